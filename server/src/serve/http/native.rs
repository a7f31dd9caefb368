//! forge's own routes: models, tokens, templates, health, slots, figures.

use super::App;
use super::json::Json;
use crate::serve::error::{ApiError, ErrorKind};
use crate::serve::models::Entry;
use crate::serve::prompt;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use forge_core::TokenId;
use forge_core::chat::{Conversation, Message, RenderOptions};
use forge_core::engine::EngineStats;
use forge_core::tokenizer::SpecialTokens;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `GET /v1/models`.
pub(crate) async fn models(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let entries = entries(&app).await?;
    let present = app.generator.hub.status().model;
    let data: Vec<Value> =
        entries.iter().map(|entry| model_json(&app, entry, present.as_deref())).collect();
    Ok(axum::Json(json!({"object": "list", "data": data})).into_response())
}

/// `GET /v1/models/{model}`.
pub(crate) async fn model(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    let entries = entries(&app).await?;
    let present = app.generator.hub.status().model;
    let named = |entry: &&Entry| entry.name == name || entry.aliases.contains(&name);
    let entry = entries.iter().find(named).ok_or_else(|| {
        let message = format!("model {name:?} does not exist");
        ApiError { param: Some("model".into()), ..ApiError::new(ErrorKind::NotFound, message) }
    })?;
    Ok(axum::Json(model_json(&app, entry, present.as_deref())).into_response())
}

async fn entries(app: &Arc<App>) -> Result<Vec<Entry>, ApiError> {
    let hub = Arc::clone(&app.generator.hub);
    tokio::task::spawn_blocking(move || hub.entries()).await.map_err(ApiError::internal)
}

fn model_json(app: &App, entry: &Entry, present: Option<&str>) -> Value {
    let loaded = present == Some(entry.name.as_str());
    let mut value = json!({
        "id": entry.name,
        "object": "model",
        "created": app.started_unix_s,
        "owned_by": "forge",
        "aliases": entry.aliases,
        "loaded": loaded,
    });
    if loaded && let Some(model) = app.generator.hub.present() {
        value["context_length"] = model.plan.context.into();
        value["max_model_len"] = model.plan.context.into();
        value["tools"] = model.tools.is_some().into();
        value["reasoning"] = model.steering.knows_thinking().into();
    }
    value
}

/// A text to be cut into tokens, in the words of several engines.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenizeRequest {
    model: Option<String>,
    #[serde(alias = "prompt", alias = "text")]
    content: String,
    add_special: Option<bool>,
    parse_special: Option<bool>,
    with_pieces: Option<bool>,
}

/// `POST /tokenize`.
pub(crate) async fn tokenize(
    State(app): State<Arc<App>>,
    Json(request): Json<TokenizeRequest>,
) -> Result<Response, ApiError> {
    let lease = app.generator.hub.acquire(request.model.as_deref()).await?;
    let work = move || {
        let tokenizer = &lease.model.text.tokenizer;
        let special = if request.parse_special.unwrap_or(true) {
            SpecialTokens::Parse
        } else {
            SpecialTokens::AsText
        };
        let tokens = if request.add_special.unwrap_or_default() {
            tokenizer.encode_prompt(&request.content, special)?
        } else {
            tokenizer.encode(&request.content, special)?
        };
        let listed = tokens.iter().map(|token| match request.with_pieces {
            Some(true) => {
                json!({"id": token.0, "piece": tokenizer.token_text(*token).unwrap_or_default()})
            }
            _ => json!(token.0),
        });
        Ok::<_, ApiError>(json!({
            "tokens": listed.collect::<Vec<_>>(),
            "count": tokens.len(),
            "max_model_len": lease.model.plan.context,
        }))
    };
    let value = tokio::task::spawn_blocking(work).await.map_err(ApiError::internal)??;
    Ok(axum::Json(value).into_response())
}

/// Tokens to be joined to text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DetokenizeRequest {
    model: Option<String>,
    tokens: Vec<u32>,
}

/// `POST /detokenize`.
pub(crate) async fn detokenize(
    State(app): State<Arc<App>>,
    Json(request): Json<DetokenizeRequest>,
) -> Result<Response, ApiError> {
    let lease = app.generator.hub.acquire(request.model.as_deref()).await?;
    let ids: Vec<TokenId> = request.tokens.into_iter().map(TokenId).collect();
    let text = lease.model.text.tokenizer.decode(&ids, false);
    Ok(axum::Json(json!({"content": text, "prompt": text})).into_response())
}

/// A conversation to be rendered.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TemplateRequest {
    model: Option<String>,
    messages: Vec<Message>,
    tools: Option<Vec<Value>>,
    enable_thinking: Option<bool>,
    add_generation_prompt: Option<bool>,
    chat_template_kwargs: Option<Map<String, Value>>,
}

/// `POST /apply-template`.
pub(crate) async fn apply_template(
    State(app): State<Arc<App>>,
    Json(request): Json<TemplateRequest>,
) -> Result<Response, ApiError> {
    let lease = app.generator.hub.acquire(request.model.as_deref()).await?;
    let work = move || {
        let conversation =
            Conversation { messages: request.messages, tools: request.tools.unwrap_or_default() };
        let options = RenderOptions {
            add_generation_prompt: request.add_generation_prompt.unwrap_or(true),
            enable_thinking: request.enable_thinking,
            variables: request.chat_template_kwargs.unwrap_or_default(),
            ..RenderOptions::default()
        };
        let rendered = prompt::render(&lease.model, &conversation, &options)?;
        let tokens = rendered.encode(&lease.model.text.tokenizer)?;
        let text = rendered.text();
        let boundaries = prompt::boundaries(&lease.model, &conversation, &options, &text, &tokens);
        let boundaries = boundaries
            .iter()
            .map(|boundary| json!({"tokens": boundary.position, "after": boundary.kind}));
        Ok::<_, ApiError>(json!({
            "prompt": text, "tokens": tokens.len(), "boundaries": boundaries.collect::<Vec<_>>(),
        }))
    };
    let value = tokio::task::spawn_blocking(work).await.map_err(ApiError::internal)??;
    Ok(axum::Json(value).into_response())
}

/// `GET /health`: waits for nothing.
pub(crate) async fn health(State(app): State<Arc<App>>) -> Response {
    let status = app.generator.hub.status();
    let error = status.fault.clone().or_else(|| {
        let lost = status.model.is_none() && status.loading.is_none();
        status.failed.as_ref().filter(|_| lost).map(|(name, reason)| format!("{name}: {reason}"))
    });
    let state = match (&error, &status.loading, &status.model) {
        (Some(_), ..) => "error",
        (None, Some(_), _) | (None, None, None) => "loading",
        (None, None, Some(_)) => "ok",
    };
    let loading = status.loading.map(
        |(name, done, total)| json!({"model": name, "done_bytes": done, "total_bytes": total}),
    );
    let failed = status.failed.map(|(name, reason)| json!({"model": name, "reason": reason}));
    let body = json!({
        "status": state,
        "model": status.model,
        "device": status.device,
        "loading": loading,
        "failed": failed,
        "error": error,
        "waiting_for_model": status.waiting,
        "requests": app.generator.gate.taken(),
        "version": env!("CARGO_PKG_VERSION"),
    });
    let code = if error.is_some() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    (code, axum::Json(body)).into_response()
}

/// `GET /slots`: what waits and runs.
pub(crate) async fn slots(State(app): State<Arc<App>>) -> Response {
    let model = app.generator.hub.present();
    let requests = app.generator.gate.active().into_iter().map(|active| {
        let read = |value: &AtomicUsize| value.load(Ordering::Relaxed);
        let generated = read(&active.generated);
        let state = match (read(&active.prefilled), generated) {
            (0, 0) => "waiting",
            (_, 0) => "prompt",
            _ => "answer",
        };
        json!({
            "id": active.id,
            "state": state,
            "prompt_tokens": read(&active.prompt_tokens),
            "prefilled_tokens": read(&active.prefilled),
            "generated_tokens": generated,
            "seconds": active.since.elapsed().as_secs_f64(),
        })
    });
    let requests: Vec<Value> = requests.collect();
    let stats = model.as_ref().map(|model| model.engine.stats()).unwrap_or_default();
    axum::Json(json!({
        "model": model.as_ref().map(|model| model.name.clone()),
        "slots": model.as_ref().map(|model| model.plan.slots),
        "free_slots": stats.free_slots,
        "blocks": model.as_ref().map(|model| model.plan.blocks),
        "free_blocks": stats.free_blocks,
        "context": model.as_ref().map(|model| model.plan.context),
        "requests": requests,
    }))
    .into_response()
}

/// `GET /openapi.json`: the interface for programs.
pub(crate) async fn openapi() -> Response {
    static DOCUMENT: &str = include_str!("../../../assets/openapi.json");
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}

/// The engine's own figures. They begin anew when the model changes.
fn engine_figures(stats: &EngineStats) {
    let gauge = |name: &'static str, value: f64| metrics::gauge!(name).set(value);
    gauge("forge_waiting", stats.waiting as f64);
    gauge("forge_running", stats.running as f64);
    gauge("forge_block_bytes", stats.block_bytes as f64);
    gauge("forge_snapshot_blocks", stats.snapshot_blocks as f64);
    gauge("forge_prefix_snapshots", stats.prefix.device_snapshots as f64);
    gauge("forge_prefix_host_snapshots", stats.prefix.host_snapshots as f64);
    gauge("forge_prefix_blocks", stats.prefix.device_blocks as f64);
    gauge("forge_prefix_host_blocks", stats.prefix.host_blocks as f64);
    gauge("forge_prefix_disk_bytes", stats.disk_bytes as f64);
    gauge("forge_prefix_hit_rate", stats.prefix.hit_rate());
    gauge("forge_step_seconds_mean", stats.step_time.mean());
    gauge("forge_step_seconds_p99", stats.step_time.quantile(0.99));
    gauge("forge_inter_token_seconds_mean", stats.inter_token.mean());
    gauge("forge_inter_token_seconds_median", stats.inter_token.quantile(0.5));
    gauge("forge_inter_token_seconds_p99", stats.inter_token.quantile(0.99));
    let counter = |name: &'static str, value: u64| metrics::counter!(name).absolute(value);
    counter("forge_steps_total", stats.steps);
    counter("forge_prefilled_tokens_total", stats.prefilled_tokens);
    counter("forge_decoded_tokens_total", stats.generated_tokens);
    counter("forge_reused_tokens_total", stats.reused_tokens);
    counter("forge_preemptions_total", stats.preemptions);
    counter("forge_preemptions_recomputed_total", stats.preemptions_recomputed);
    counter("forge_snapshots_skipped_total", stats.snapshots_skipped);
    counter("forge_prefix_matched_tokens_total", stats.prefix.matched_tokens);
    counter("forge_prefix_hit_tokens_total", stats.prefix.hit_tokens);
    counter("forge_prefix_lost_evicted_tokens_total", stats.prefix.lost_evicted);
    counter("forge_prefix_lost_no_snapshot_tokens_total", stats.prefix.lost_no_snapshot);
    counter("forge_prefix_lost_below_fork_tokens_total", stats.prefix.lost_below_fork);
    counter("forge_prefix_evictions_total", stats.prefix.device_evictions);
    counter("forge_prefix_host_evictions_total", stats.prefix.host_evictions);
    counter("forge_host_written_bytes_total", stats.host_written_bytes);
    counter("forge_host_fetched_bytes_total", stats.host_fetched_bytes);
    counter("forge_disk_read_bytes_total", stats.disk_read_bytes);
    counter("forge_disk_errors_total", stats.disk_errors);
}

/// `GET /metrics`, for Prometheus.
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let gauge = |name: &'static str, value: usize| metrics::gauge!(name).set(value as f64);
    gauge("forge_requests", app.generator.gate.taken());
    if let Some(model) = app.generator.hub.present() {
        let stats = model.engine.stats();
        gauge("forge_slots", model.plan.slots);
        gauge("forge_free_slots", stats.free_slots);
        gauge("forge_blocks", model.plan.blocks);
        gauge("forge_free_blocks", stats.free_blocks);
        gauge("forge_engine_requests", stats.requests);
        engine_figures(&model.engine.engine_stats());
    }
    app.metrics.run_upkeep();
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], app.metrics.render()).into_response()
}
