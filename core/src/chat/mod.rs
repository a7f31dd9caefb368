//! Chat templates.
/// placeholder
pub struct Rendered;
