//! The OpenAI formats.

mod chat;
mod chat_reply;
mod completions;
pub(crate) mod fields;

pub(crate) use chat::ChatRequest;
use chat_reply::ChatEncoder;
pub(crate) use chat_reply::logprob_entries;
use completions::{CompletionEncoder, CompletionRequest};

use super::error::ApiError;
use super::http::json::Json;
use super::http::trace::RequestId;
use super::http::{App, sse};
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// `POST /v1/chat/completions`.
pub(crate) async fn chat_completions(
    State(app): State<Arc<App>>,
    Extension(RequestId(id)): Extension<RequestId>,
    Json(request): Json<ChatRequest>,
) -> Result<Response, ApiError> {
    let stream = request.stream == Some(true);
    let usage = request.stream_options.and_then(|options| options.include_usage);
    let request = request.into_request()?;
    let generator = app.generator.clone();
    let generation = async move { generator.generate(request, &id).await };
    if stream {
        let encoder = ChatEncoder::new(usage.unwrap_or_default());
        return sse::respond(Box::pin(generation), encoder, app.options.ping).await;
    }
    Ok(axum::Json(chat_reply::whole(generation.await?).await?).into_response())
}

/// `POST /v1/completions`.
pub(crate) async fn completions(
    State(app): State<Arc<App>>,
    Extension(RequestId(id)): Extension<RequestId>,
    Json(request): Json<CompletionRequest>,
) -> Result<Response, ApiError> {
    let stream = request.stream == Some(true);
    let usage = request.stream_options.and_then(|options| options.include_usage);
    let echoes = request.echoes()?;
    let request = request.into_request()?;
    let generator = app.generator.clone();
    let generation = async move { generator.generate(request, &id).await };
    if stream {
        let encoder = CompletionEncoder::new(usage.unwrap_or_default(), echoes);
        return sse::respond(Box::pin(generation), encoder, app.options.ping).await;
    }
    Ok(axum::Json(completions::whole(generation.await?, &echoes).await?).into_response())
}
