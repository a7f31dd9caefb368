//! The template engine, set up as the authors of chat templates expect it.

use super::date;
use super::guard::{ControlTokens, Marks};
use super::late;
use super::limits::{self, MAX_TEMPLATE_BYTES};
use super::message::{Conversation, Names};
use super::python;
use crate::error::{Error, Result};
use crate::ids::TokenId;
use crate::tokenizer::Tokenizer;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, ErrorKind, State, Value as JinjaValue};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};

/// Stack of the compiler, which descends into each `elif` (ten bytes at least), measured at
/// 2.1 kB a level. Untouched pages cost nothing.
const COMPILE_STACK_BYTES: usize = 256 * MAX_TEMPLATE_BYTES;
/// Steps that any rendering may take.
const BASE_FUEL: u64 = 1_000_000;
/// Further steps for each byte of the conversation.
const FUEL_PER_BYTE: u64 = 16;
/// Most steps of a rendering, one or two seconds.
const MAX_FUEL: u64 = 16_000_000;
/// Stack of a rendering. A value nested one level deeper costs at least 10 steps, and printing it
/// under 460 bytes of stack a level, both measured.
const STACK_BYTES_PER_FUEL: u64 = 64;
/// Nesting of macro calls, loops and includes.
const MAX_RECURSION: usize = 200;
/// Name of the one template in its environment.
const NAME: &str = "chat_template";
/// Variable that holds the mark for late system messages.
const LATE_MARK: &str = "forge_late_mark";
/// Variable that holds the time for `strftime_now`.
const NOW: &str = "forge_now";

/// The texts of special tokens that rendering needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateTokens {
    /// `bos_token`.
    pub bos: Option<String>,
    /// `eos_token`.
    pub eos: Option<String>,
    /// All control tokens; where a message spells one out, it is marked as text.
    pub control: Vec<String>,
}

impl TemplateTokens {
    /// The tokens of `tokenizer`.
    pub fn of(tokenizer: &Tokenizer) -> Self {
        Self {
            bos: tokenizer.bos_text().map(str::to_owned),
            eos: tokenizer.eos_text().map(str::to_owned),
            control: tokenizer.special_texts().map(str::to_owned).collect(),
        }
    }
}

/// Choices of one rendering.
#[derive(Clone, Debug, PartialEq)]
pub struct RenderOptions {
    /// Ends with the opening of the model's turn.
    pub add_generation_prompt: bool,
    /// Leaves the last message, the model's own, open, so that the reply continues it. No
    /// generation prompt is added then.
    pub continue_final: bool,
    /// `enable_thinking`, undefined if `None`.
    pub enable_thinking: Option<bool>,
    /// Further variables; they win over forge's own.
    pub variables: Map<String, Value>,
    /// Seconds since 1970 for `strftime_now`, the clock if `None`. Dates are in UTC.
    pub now_unix_s: Option<i64>,
}

impl Default for RenderOptions {
    fn default() -> Self {
        Self {
            add_generation_prompt: true,
            continue_final: false,
            enable_thinking: None,
            variables: Map::new(),
            now_unix_s: None,
        }
    }
}

/// A rendered conversation, which still knows which control tokens are the template's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    text: String,
    guard: Option<char>,
}

impl Rendered {
    /// The text as people read it.
    pub fn text(&self) -> Cow<'_, str> {
        match self.guard {
            Some(guard) => Cow::Owned(self.text.replace(guard, "")),
            None => Cow::Borrowed(&self.text),
        }
    }

    /// Token ids of the prompt. Control tokens of the template are control tokens, those that
    /// messages or tools spell out are text; BOS is there once if the tokenizer wants it.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode(&self, tokenizer: &Tokenizer) -> Result<Vec<TokenId>> {
        tokenizer.encode_guarded(&self.text, self.guard)
    }
}

/// A compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    tokens: TemplateTokens,
    control: ControlTokens,
    names: Names,
}

impl ChatTemplate {
    /// Compiles a template.
    ///
    /// # Errors
    /// [`Error::Template`] with the line for a syntax error or an excessive expression, or for a
    /// template longer than [`MAX_TEMPLATE_BYTES`].
    pub fn new(source: &str, tokens: TemplateTokens) -> Result<Self> {
        limits::check(source)?;
        let mut environment = environment()?;
        let compiled = without_generation_tags(source);
        on_deep_stack(COMPILE_STACK_BYTES, || {
            environment.add_template_owned(NAME, compiled).map_err(|e| template_error(&e))
        })?;
        Ok(Self {
            environment,
            control: ControlTokens::new(&tokens.control)?,
            names: Names {
                developer: source.contains("developer"),
                none: ["is none", "is not none", "== none", "!= none"]
                    .iter()
                    .any(|test| source.contains(test)),
            },
            source: source.to_owned(),
            tokens,
        })
    }

    /// The template as it was given.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the template knows the variable `name` (`enable_thinking`, `tools`).
    pub fn mentions(&self, name: &str) -> bool {
        self.source.contains(name)
    }

    /// The BOS text that `rendered` begins with, empty if it does not.
    pub(super) fn bos_of(&self, rendered: &str) -> &str {
        self.tokens.bos.as_deref().filter(|bos| rendered.starts_with(bos)).unwrap_or_default()
    }

    /// Renders a conversation as its user expects it.
    ///
    /// Before the template sees them, content parts are joined to text, arguments given as JSON
    /// text become objects, and the role `developer` becomes `system` where the template does not
    /// know it. A system message that is not the first, which some templates refuse or drop, is
    /// rendered in its place as the template renders a leading one; where that cannot be found
    /// out, its text is put before that of the next user message, else after that of the last
    /// user or tool message, else into a user message of its own. What comes earlier in the
    /// conversation renders the same with and without it.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the message at fault; [`Error::Template`] when the template
    /// refuses the conversation, fails, or exceeds its budget of steps.
    pub fn render(&self, conversation: &Conversation, options: &RenderOptions) -> Result<Rendered> {
        let (mut messages, mut tools) = conversation.to_template(&self.names)?;
        let marks = Marks::unused_in(messages.iter().chain(&tools))?;
        let mut guarded = false;
        for value in messages.iter_mut().chain(&mut tools) {
            guarded |= self.control.guard(value, marks.guard);
        }
        if !options.continue_final {
            let text = late::render(self, &messages, tools.as_ref(), options, marks.late)?;
            return Ok(Rendered { text, guard: guarded.then_some(marks.guard) });
        }
        mark_final(&mut messages, marks.end)?;
        let options = RenderOptions { add_generation_prompt: false, ..options.clone() };
        let mut text = late::render(self, &messages, tools.as_ref(), &options, marks.late)?;
        let end = text.rfind(marks.end).ok_or_else(|| {
            Error::Template("the last message is not rendered, so it cannot be continued".into())
        })?;
        text.truncate(end);
        Ok(Rendered { text: text.replace(marks.end, ""), guard: guarded.then_some(marks.guard) })
    }

    /// Renders messages and tools exactly as they are given, as `apply_chat_template` of the
    /// transformers library does.
    ///
    /// # Errors
    /// [`Error::Template`] when the template refuses them, fails, or exceeds its budget.
    pub fn render_values(
        &self,
        messages: &[Value],
        tools: Option<&Value>,
        options: &RenderOptions,
    ) -> Result<String> {
        self.render_marked(messages, tools, options, None)
    }

    /// [`render_values`](Self::render_values), in which a system message that the template
    /// refuses becomes `late_mark`.
    pub(super) fn render_marked(
        &self,
        messages: &[Value],
        tools: Option<&Value>,
        options: &RenderOptions,
        late_mark: Option<char>,
    ) -> Result<String> {
        let bytes: usize = messages.iter().chain(tools).map(size).sum();
        let fuel = (BASE_FUEL + FUEL_PER_BYTE * bytes as u64).min(MAX_FUEL);
        let stack_bytes = usize::try_from(fuel * STACK_BYTES_PER_FUEL).unwrap_or(usize::MAX);
        on_deep_stack(stack_bytes, || {
            let mut environment = self.environment.clone();
            environment.set_fuel(Some(fuel));
            let template = environment.get_template(NAME).map_err(|e| template_error(&e))?;
            let variables = self.variables(messages, tools, options, late_mark);
            template.render(variables).map_err(|e| template_error(&e))
        })
    }

    fn variables(
        &self,
        messages: &[Value],
        tools: Option<&Value>,
        options: &RenderOptions,
        late_mark: Option<char>,
    ) -> JinjaValue {
        let none = JinjaValue::from(());
        let mut variables: Vec<(&str, JinjaValue)> = vec![
            ("messages", JinjaValue::from(Serde(messages))),
            ("tools", tools.map_or(none.clone(), |tools| JinjaValue::from(Serde(tools)))),
            ("documents", none),
            ("add_generation_prompt", JinjaValue::from(options.add_generation_prompt)),
        ];
        for (name, text) in [("bos_token", &self.tokens.bos), ("eos_token", &self.tokens.eos)] {
            variables.extend(text.as_deref().map(|text| (name, JinjaValue::from(text))));
        }
        let thinking = options.enable_thinking;
        variables.extend(thinking.map(|on| ("enable_thinking", JinjaValue::from(on))));
        variables.extend(options.now_unix_s.map(|now| (NOW, JinjaValue::from(now))));
        variables.extend(late_mark.map(|mark| (LATE_MARK, JinjaValue::from(mark.to_string()))));
        for (name, value) in &options.variables {
            variables.push((name, JinjaValue::from(Serde(value))));
        }
        JinjaValue::from_pairs(variables)
    }
}

/// Does `work` on a stack of its own, because neither compiling nor dropping a nested value asks
/// how much is left, and an exhausted stack would take the whole process along.
fn on_deep_stack<T: Send>(bytes: usize, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new()
            .name("chat template".to_owned())
            .stack_size(bytes)
            .spawn_scoped(scope, work)
            .map_err(|e| Error::Template(format!("no thread for it: {e}")))?;
        worker.join().unwrap_or_else(|_| Err(Error::Template("the engine failed".to_owned())))
    })
}

/// Appends `mark` to the content of the last message, which must be the model's.
fn mark_final(messages: &mut [Value], mark: char) -> Result<()> {
    let index = messages.len().saturating_sub(1);
    let message = messages.last_mut().and_then(Value::as_object_mut);
    let content = message
        .filter(|message| message.get("role").is_some_and(|role| role == "assistant"))
        .and_then(|message| message.get_mut("content"));
    match content {
        Some(Value::String(text)) => text.push(mark),
        Some(content @ Value::Null) => *content = Value::String(mark.to_string()),
        _ => {
            let reason = "only a message of the assistant can be continued";
            return Err(Error::invalid(format!("messages[{index}]"), reason));
        }
    }
    Ok(())
}

/// Bytes of text in `value`, a few more for everything else.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => 8 + text.len(),
        Value::Array(items) => 8 + items.iter().map(size).sum::<usize>(),
        Value::Object(fields) => {
            8 + fields.iter().map(|(key, value)| key.len() + size(value)).sum::<usize>()
        }
        _ => 8,
    }
}

fn environment() -> Result<Environment<'static>> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.map_err(|e| template_error(&e))?);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_recursion_limit(MAX_RECURSION);
    // Otherwise debug builds copy the source into every error.
    environment.set_debug(false);
    environment.set_formatter(python::print);
    environment.set_unknown_method_callback(python::method);
    environment.add_filter("tojson", |state: &State, value: &JinjaValue, indent, options| {
        python::to_json(state, value, indent, options)
    });
    environment.add_filter("string", python::string);
    environment.add_filter("trim", python::trim);
    environment.add_test("iterable", python::is_iterable);
    environment.add_test("sequence", python::is_sequence);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    Ok(environment)
}

/// Refuses the conversation in the template's words. While a late system message is being looked
/// for, a refusal of one becomes its mark instead.
fn raise_exception(state: &State, message: &str) -> Result<JinjaValue, minijinja::Error> {
    if let Some(mark) = state.lookup(LATE_MARK).filter(|mark| !mark.is_undefined()) {
        let refused = state.lookup("message").and_then(|message| message.get_attr("role").ok());
        if refused.is_some_and(|role| role.as_str() == Some("system")) {
            return Ok(mark);
        }
    }
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message.to_owned()))
}

fn strftime_now(state: &State, format: &str) -> Result<String, minijinja::Error> {
    let now = state.lookup(NOW).and_then(|now| now.as_i64()).unwrap_or_else(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_secs()).unwrap_or_default()
    });
    date::strftime(now, format)
}

/// The innermost cause, with its line.
fn template_error(error: &minijinja::Error) -> Error {
    let mut cause = error;
    while let Some(inner) = std::error::Error::source(cause)
        .and_then(|source| source.downcast_ref::<minijinja::Error>())
    {
        cause = inner;
    }
    let what = match (cause.kind(), cause.detail()) {
        (ErrorKind::OutOfFuel, _) => "it takes too many steps".to_owned(),
        (ErrorKind::InvalidOperation, Some(detail)) => detail.to_owned(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    Error::Template(match cause.line().or(error.line()) {
        Some(line) => format!("line {line}: {what}"),
        None => what,
    })
}

/// Replaces `{% generation %}` blocks, which mark a model's own words for training and mean
/// nothing here, by blocks that the engine knows. Lines keep their numbers.
fn without_generation_tags(source: &str) -> String {
    let mut result = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start + 2);
        result.push_str(before);
        rest = tag;
        let Some(end) = tag.find("%}") else { break };
        let (inside, after) = tag.split_at(end);
        let word = inside.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        let replacement = match word {
            "generation" => "if true",
            "endgeneration" => "endif",
            _ => continue,
        };
        result.push_str(&inside.replacen(word, replacement, 1));
        rest = after;
    }
    result.push_str(rest);
    result
}
