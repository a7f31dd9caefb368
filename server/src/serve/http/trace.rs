//! The outermost layer: an id for each request, its error in its API's words, figures.

use crate::serve::error::{ApiError, ErrorFormat, ErrorKind};
use crate::serve::reply::new_id;
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use std::time::Instant;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest id that a client may choose.
const MAX_ID_BYTES: usize = 128;

/// Id of a request.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) String);

/// Numbers the request, runs it, and writes its error anew if it failed.
pub(crate) async fn trace(mut request: Request, next: Next) -> Response {
    let arrived = Instant::now();
    let id = chosen_id(request.headers()).unwrap_or_else(|| new_id("req_"));
    request.extensions_mut().insert(RequestId(id.clone()));
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let mut response = next.run(request).await;
    if let Some(error) = response.extensions().get::<ApiError>().cloned() {
        let format = ErrorFormat::of_path(&path);
        if format != ErrorFormat::OpenAi {
            let headers = std::mem::take(response.headers_mut());
            response = error.response(format);
            for (name, value) in &headers {
                if !response.headers().contains_key(name) {
                    response.headers_mut().append(name, value.clone());
                }
            }
        }
        tracing::info!(
            request = id, %method, path, status = response.status().as_u16(), error = error.message,
            "refused"
        );
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let status = response.status();
    let seconds = arrived.elapsed().as_secs_f64();
    tracing::debug!(request = id, %method, path, status = status.as_u16(), seconds, "request");
    let route = route.unwrap_or_else(|| "other".to_owned());
    metrics::counter!("forge_http_requests_total", "route" => route, "status" => status.as_u16().to_string())
        .increment(1);
    response
}

fn chosen_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    (!id.is_empty() && id.len() <= MAX_ID_BYTES && id.chars().all(plain)).then(|| id.to_owned())
}

/// No such route.
pub(crate) fn not_found(request: &Request) -> ApiError {
    let message = format!("there is no {} {}", request.method(), request.uri().path());
    ApiError::new(ErrorKind::NotFound, message)
}

/// The route has other methods.
pub(crate) async fn method_not_allowed(request: Request) -> ApiError {
    let message = format!("{} does not go with {}", request.method(), request.uri().path());
    ApiError::new(ErrorKind::MethodNotAllowed, message)
}

/// A handler panicked.
#[allow(clippy::needless_pass_by_value, reason = "the layer gives it away")]
pub(crate) fn panicked(_: Box<dyn std::any::Any + Send>) -> Response {
    use axum::response::IntoResponse;
    tracing::error!("a request handler panicked");
    ApiError::internal("the server failed on this request").into_response()
}
