//! Chat templates: conversations to prompt text.
//!
//! [`ChatTemplate`] compiles the Jinja source that a checkpoint carries and renders a
//! [`Conversation`] with it. The engine is set up as the transformers library sets up its own:
//! block trimming, loop controls, `tojson` as Python's `json.dumps`, `raise_exception`,
//! `strftime_now`, and Python's string, list and dictionary methods. A template is data from a
//! stranger: its size, steps, memory and nesting are bounded.
//!
//! [`Rendered`] remembers which control tokens came from the template, so that what a person or a
//! tool wrote can never end a turn or open another.

mod date;
mod guard;
mod late;
mod limits;
mod message;
mod python;
mod template;
#[cfg(test)]
mod tests;

pub use limits::MAX_TEMPLATE_BYTES;
pub use message::{Content, Conversation, FunctionCall, Message, Role, ToolCall};
pub use template::{ChatTemplate, RenderOptions, Rendered, TemplateTokens};
