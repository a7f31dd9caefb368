//! The OpenAI Responses format.

mod create;
mod input;
mod item;
mod retrieve;
mod store;
#[cfg(test)]
mod tests;
mod tools;
mod writer;

pub(crate) use store::ResponseStore;

use super::error::ApiError;
use super::http::json::Json;
use super::http::trace::RequestId;
use super::http::{App, sse};
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use create::{Accepted, ResponseRequest};
use serde_json::json;
use std::sync::Arc;
use writer::{Keep, ResponseWriter};

/// Says which parts of a request were not taken up.
const IGNORED: HeaderName = HeaderName::from_static("x-forge-ignored");

/// The routes.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/responses", post(create))
        .route("/v1/responses/input_tokens", post(input_tokens))
        .route("/v1/responses/{id}", get(retrieve::response).delete(retrieve::delete))
        .route("/v1/responses/{id}/input_items", get(retrieve::input_items))
}

/// `POST /v1/responses`.
async fn create(
    State(app): State<Arc<App>>,
    Extension(RequestId(id)): Extension<RequestId>,
    Json(request): Json<ResponseRequest>,
) -> Result<Response, ApiError> {
    let stream = request.stream == Some(true);
    let keeps = request.store != Some(false);
    let Accepted { request, input, form, ignored } = accept(&app, request).await?;
    let keep = keeps.then(|| Keep { store: Arc::clone(&app.responses), input });
    let writer = ResponseWriter::new(form, keep);
    let generator = app.generator.clone();
    let generation = async move { generator.generate(request, &id).await.map_err(in_own_words) };
    let mut response = if stream {
        sse::respond(Box::pin(generation), writer, app.options.ping).await?
    } else {
        let whole = writer::whole(generation.await?, writer).await.map_err(in_own_words)?;
        axum::Json(whole).into_response()
    };
    if let Ok(ignored) = HeaderValue::from_str(&ignored.join(", "))
        && !ignored.is_empty()
    {
        response.headers_mut().insert(IGNORED, ignored);
    }
    Ok(response)
}

/// `POST /v1/responses/input_tokens`.
async fn input_tokens(
    State(app): State<Arc<App>>,
    Json(request): Json<ResponseRequest>,
) -> Result<Response, ApiError> {
    let Accepted { request, .. } = accept(&app, request).await?;
    let count = app.generator.count_tokens(request).await.map_err(in_own_words)?;
    Ok(axum::Json(json!({"object": "response.input_tokens", "input_tokens": count}))
        .into_response())
}

/// A long chain takes a while to put together.
async fn accept(app: &Arc<App>, request: ResponseRequest) -> Result<Accepted, ApiError> {
    let store = Arc::clone(&app.responses);
    let accepted = tokio::task::spawn_blocking(move || request.accept(&store)).await;
    accepted.map_err(ApiError::internal)?
}

/// The names that this API has for fields of the internal request.
fn in_own_words(error: ApiError) -> ApiError {
    error.renamed("messages", "input").renamed("response_format", "text.format")
}
