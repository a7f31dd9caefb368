//! The Anthropic Messages format.

mod content;
mod create;
#[cfg(test)]
mod tests;
mod writer;

use super::error::ApiError;
use super::http::json::Json;
use super::http::trace::RequestId;
use super::http::{App, sse};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use create::MessagesRequest;
use serde_json::json;
use std::sync::Arc;
use writer::MessageWriter;

/// The routes.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/messages", post(create))
        .route("/v1/messages/count_tokens", post(count_tokens))
}

/// `POST /v1/messages`.
async fn create(
    State(app): State<Arc<App>>,
    Extension(RequestId(id)): Extension<RequestId>,
    Json(request): Json<MessagesRequest>,
) -> Result<Response, ApiError> {
    let stream = request.stream == Some(true);
    let max_tokens = request.max_tokens;
    if max_tokens.is_none() {
        return Err(ApiError::invalid("max_tokens", "is missing"));
    }
    let writer = MessageWriter::new(request.shows_thinking()?, max_tokens);
    let request = request.into_request()?;
    let generator = app.generator.clone();
    let generation = async move { generator.generate(request, &id).await.map_err(in_own_words) };
    if stream {
        return sse::respond(Box::pin(generation), writer, app.options.ping).await;
    }
    let whole = writer::whole(generation.await?, writer).await.map_err(in_own_words)?;
    Ok(axum::Json(whole).into_response())
}

/// `POST /v1/messages/count_tokens`.
async fn count_tokens(
    State(app): State<Arc<App>>,
    Json(request): Json<MessagesRequest>,
) -> Result<Response, ApiError> {
    let request = request.into_request()?;
    let count = app.generator.count_tokens(request).await.map_err(in_own_words)?;
    Ok(axum::Json(json!({"input_tokens": count})).into_response())
}

/// The names that this API has for fields of the internal request.
fn in_own_words(error: ApiError) -> ApiError {
    error.renamed("response_format", "output_config.format").renamed("stop", "stop_sequences")
}
