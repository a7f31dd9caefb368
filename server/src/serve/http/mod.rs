//! Routes and layers.

mod connections;
mod guard;
pub(crate) mod json;
mod native;
mod page;
pub(crate) mod sse;
pub(crate) mod trace;

pub(crate) use connections::serve;

use super::generator::Generator;
use super::responses::ResponseStore;
use super::{messages, openai, responses};
use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use metrics_exporter_prometheus::PrometheusHandle;
use std::sync::Arc;
use std::time::Duration;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowOrigin, CorsLayer};

/// What the operator chose.
#[derive(Clone, Debug)]
pub(crate) struct HttpOptions {
    /// Address or name to listen on.
    pub(crate) host: String,
    /// Keys that open every route but the static ones; none = open.
    pub(crate) api_keys: Vec<String>,
    /// Origins of web pages that may call besides our own.
    pub(crate) cors_origins: Vec<String>,
    /// Largest body.
    pub(crate) body_limit_bytes: usize,
    /// Most bytes of stored responses.
    pub(crate) response_store_bytes: usize,
    /// Longest time for a request's head.
    pub(crate) header_timeout: Duration,
    /// Longest time for a request's body.
    pub(crate) read_timeout: Duration,
    /// Time between signs of life in a stream; `None` = none.
    pub(crate) ping: Option<Duration>,
    /// Longest time that running requests get at the end.
    pub(crate) drain_timeout: Duration,
}

/// What handlers share.
pub(crate) struct App {
    /// Answers requests.
    pub(crate) generator: Generator,
    /// Responses that clients may come back to.
    pub(crate) responses: Arc<ResponseStore>,
    /// What the operator chose.
    pub(crate) options: HttpOptions,
    /// Figures.
    pub(crate) metrics: PrometheusHandle,
    /// When the server started.
    pub(crate) started_unix_s: u64,
}

/// All routes. Layers run from the outermost: id and error format, panics, origins, keys.
pub(crate) fn router(app: &Arc<App>) -> Router {
    let keyed = Router::new()
        .route("/v1/chat/completions", post(openai::chat_completions))
        .route("/v1/completions", post(openai::completions))
        .merge(responses::routes())
        .merge(messages::routes())
        .route("/v1/models", get(native::models))
        .route("/v1/models/{*model}", get(native::model))
        .route("/tokenize", post(native::tokenize))
        .route("/detokenize", post(native::detokenize))
        .route("/apply-template", post(native::apply_template))
        .route("/slots", get(native::slots))
        .route("/metrics", get(native::metrics))
        .route_layer(from_fn_with_state(Arc::clone(app), guard::key));
    let open = Router::new()
        .route("/health", get(native::health))
        .route("/openapi.json", get(native::openapi));
    keyed
        .merge(open)
        .fallback(page_or_not_found)
        .method_not_allowed_fallback(trace::method_not_allowed)
        .layer(from_fn_with_state(Arc::clone(app), guard::origin))
        .layer(cors(&app.options.cors_origins))
        .layer(CatchPanicLayer::custom(trace::panicked))
        .layer(from_fn(trace::trace))
        .with_state(Arc::clone(app))
}

/// A file of the chat page, or the error that there is no such route.
async fn page_or_not_found(request: Request) -> Response {
    match page::file(&request) {
        Some(response) => response,
        None => trace::not_found(&request).into_response(),
    }
}

/// Tells browsers which pages of other origins may read replies: none, unless they are listed.
fn cors(origins: &[String]) -> CorsLayer {
    let origin = if origins.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        let listed =
            origins.iter().filter_map(|o| HeaderValue::from_str(o.trim_end_matches('/')).ok());
        AllowOrigin::list(listed)
    };
    CorsLayer::new()
        .allow_origin(origin)
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers([
            header::CONTENT_TYPE,
            header::AUTHORIZATION,
            HeaderName::from_static("x-api-key"),
            HeaderName::from_static("x-request-id"),
            HeaderName::from_static("anthropic-version"),
            HeaderName::from_static("anthropic-beta"),
        ])
}
