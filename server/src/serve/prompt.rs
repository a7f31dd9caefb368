//! From a request to the tokens of its prompts.

use super::error::ApiError;
use super::models::LoadedModel;
use super::request::{GenerateRequest, Input, PlainPrompt, ToolChoice};
use forge_core::TokenId;
use forge_core::chat::{Conversation, RenderOptions, Rendered, Role};
use forge_core::prefix::{Boundary, Kind};
use forge_core::tokenizer::SpecialTokens;

/// A prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prompt {
    /// Text as people read it.
    pub(crate) text: String,
    /// Tokens.
    pub(crate) tokens: Vec<TokenId>,
    /// Places that later prompts are likely to share: prefill stops there to save the state.
    pub(crate) boundaries: Vec<Boundary>,
}

/// The prompts of a request.
///
/// # Errors
/// Naming the message or field at fault.
pub(crate) fn prompts(
    model: &LoadedModel,
    request: &GenerateRequest,
) -> Result<Vec<Prompt>, ApiError> {
    match &request.input {
        Input::Chat(conversation) => {
            let conversation = shown(conversation, &request.tool_choice);
            let options = options(request, &conversation);
            Ok(vec![chat(model, &conversation, &options)?])
        }
        Input::Plain(prompts) => prompts.iter().map(|prompt| plain(model, prompt)).collect(),
    }
}

/// The conversation as the model sees it: without tools that it must not call, and without an
/// empty last message of its own, which has nothing to continue.
fn shown(conversation: &Conversation, choice: &ToolChoice) -> Conversation {
    let mut conversation = conversation.clone();
    if *choice == ToolChoice::None {
        conversation.tools.clear();
    }
    let empty = conversation.messages.last().is_some_and(|last| {
        let text = last.content.as_ref().map(|content| content.to_text("content"));
        let silent = text.is_none_or(|text| text.is_ok_and(|text| text.is_empty()));
        last.role == Role::Assistant && silent && last.tool_calls.is_empty()
    });
    if empty {
        conversation.messages.pop();
    }
    conversation
}

/// How the conversation of a request is rendered.
fn options(request: &GenerateRequest, conversation: &Conversation) -> RenderOptions {
    let last = conversation.messages.last();
    let continued = last.is_some_and(|m| m.role == Role::Assistant && m.tool_calls.is_empty());
    RenderOptions {
        continue_final: continued,
        enable_thinking: request.thinking.template_switch(),
        variables: request.template_variables.clone(),
        ..RenderOptions::default()
    }
}

fn chat(
    model: &LoadedModel,
    conversation: &Conversation,
    options: &RenderOptions,
) -> Result<Prompt, ApiError> {
    if conversation.messages.is_empty() {
        return Err(ApiError::invalid("messages", "is empty"));
    }
    let rendered = render(model, conversation, options)?;
    let tokens = rendered.encode(&model.text.tokenizer)?;
    let text = rendered.text().into_owned();
    let boundaries = boundaries(model, conversation, options, &text, &tokens);
    Ok(Prompt { text, tokens, boundaries })
}

/// A conversation through the model's template.
///
/// # Errors
/// If there is none, or it refuses.
pub(crate) fn render(
    model: &LoadedModel,
    conversation: &Conversation,
    options: &RenderOptions,
) -> Result<Rendered, ApiError> {
    let template = model.template.as_ref().ok_or_else(|| {
        ApiError::invalid("messages", format!("{} has no chat template", model.name))
    })?;
    Ok(template.render(conversation, options)?)
}

fn plain(model: &LoadedModel, prompt: &PlainPrompt) -> Result<Prompt, ApiError> {
    let tokenizer = &model.text.tokenizer;
    let (text, tokens) = match prompt {
        PlainPrompt::Text(text) => {
            (text.clone(), tokenizer.encode_prompt(text, SpecialTokens::Parse)?)
        }
        PlainPrompt::Tokens(tokens) => (tokenizer.decode(tokens, false), tokens.clone()),
    };
    if tokens.is_empty() {
        return Err(ApiError::invalid("prompt", "is empty"));
    }
    let vocabulary = model.text.checkpoint.config.vocab_size;
    if let Some(token) = tokens.iter().find(|token| token.index() >= vocabulary) {
        return Err(ApiError::invalid("prompt", format!("token {token} of {vocabulary}")));
    }
    Ok(Prompt { text, tokens, boundaries: Vec::new() })
}

/// Token positions at which system messages and tools end, and at which the last message before the
/// model's turn ends: what a shorter conversation's prompt has in common with this one. A template
/// that refuses the shorter one has no such place.
pub(crate) fn boundaries(
    model: &LoadedModel,
    conversation: &Conversation,
    options: &RenderOptions,
    text: &str,
    tokens: &[TokenId],
) -> Vec<Boundary> {
    let open =
        RenderOptions { add_generation_prompt: false, continue_final: false, ..options.clone() };
    let shared = |shorter: &Conversation| {
        let rendered = model.template.as_ref()?.render(shorter, &open).ok()?;
        let other = rendered.encode(&model.text.tokenizer).ok()?;
        Some(tokens.iter().zip(&other).take_while(|(a, b)| a == b).count())
    };
    let system = |role: &Role| matches!(role, Role::System | Role::Developer);
    let leading = conversation.messages.iter().take_while(|m| system(&m.role)).count();
    let mut found = Vec::new();
    if leading > 0 || !conversation.tools.is_empty() {
        // Two user messages that begin differently: what both share ends where the messages begin.
        let with = |text: &str| {
            let mut shorter = conversation.clone();
            shorter.messages.truncate(leading);
            shorter.messages.push(forge_core::chat::Message::new(Role::User, text));
            shared(&shorter)
        };
        let end = with("\u{1}").into_iter().chain(with("\u{2}")).min();
        found.extend(
            end.filter(|end| *end > 0).map(|position| Boundary { position, kind: Kind::System }),
        );
    }
    if !options.continue_final {
        let end = turn_start(model, conversation, &open, text, tokens);
        found.extend(end.map(|position| Boundary { position, kind: Kind::User }));
    }
    found
}

/// Where the opening of the model's turn begins, which a template appends to the conversation.
fn turn_start(
    model: &LoadedModel,
    conversation: &Conversation,
    open: &RenderOptions,
    text: &str,
    tokens: &[TokenId],
) -> Option<usize> {
    let before = model.template.as_ref()?.render(conversation, open).ok()?;
    let opening = text.strip_prefix(before.text().as_ref())?;
    let opening = model.text.tokenizer.encode(opening, SpecialTokens::Parse).ok()?;
    let start = tokens.len().checked_sub(opening.len())?;
    (!opening.is_empty() && tokens.ends_with(&opening)).then_some(start)
}
