//! What a template may look like before the engine's compiler sees it.

use crate::error::{Error, Result};

/// Longest accepted template; published ones end near 30 kB.
pub const MAX_TEMPLATE_BYTES: usize = 1 << 18;
/// Most tokens between `{{` and `}}` or `{%` and `%}`. The compiler descends one level a token
/// without a limit of its own and folds constants anew on each, so its time grows with the square.
const MAX_EXPRESSION_TOKENS: usize = 1000;

/// Checks the length of `source` and of each of its expressions.
///
/// # Errors
/// [`Error::Template`] with the line of an expression that is too long.
pub(super) fn check(source: &str) -> Result<()> {
    if source.len() > MAX_TEMPLATE_BYTES {
        let reason = format!("{} bytes; the limit is {MAX_TEMPLATE_BYTES}", source.len());
        return Err(Error::Template(reason));
    }
    let mut rest = source;
    while let Some(tag) = next_tag(&mut rest) {
        rest = match tag {
            Tag::Comment => after(rest, "#}"),
            Tag::Block if is_lone_word(rest, "raw") => after_raw(rest),
            Tag::Block | Tag::Print => {
                let (tokens, end) = scan_expression(rest, tag);
                if tokens > MAX_EXPRESSION_TOKENS {
                    let before = source.get(..source.len() - rest.len()).unwrap_or_default();
                    let line = 1 + before.bytes().filter(|&byte| byte == b'\n').count();
                    let limit = format!("the limit is {MAX_EXPRESSION_TOKENS}");
                    let reason = format!("line {line}: an expression of {tokens} tokens; {limit}");
                    return Err(Error::Template(reason));
                }
                end
            }
        };
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Tag {
    Print,
    Block,
    Comment,
}

/// Moves `rest` behind the next opening mark.
fn next_tag(rest: &mut &str) -> Option<Tag> {
    loop {
        let (_, tail) = rest.split_once('{')?;
        let tag = match tail.bytes().next() {
            Some(b'{') => Tag::Print,
            Some(b'%') => Tag::Block,
            Some(b'#') => Tag::Comment,
            _ => {
                *rest = tail;
                continue;
            }
        };
        *rest = tail.get(1..).unwrap_or_default();
        return Some(tag);
    }
}

fn after<'a>(text: &'a str, mark: &str) -> &'a str {
    text.split_once(mark).map_or("", |(_, tail)| tail)
}

/// Whether the block that `text` begins in consists of `word`.
fn is_lone_word(text: &str, word: &str) -> bool {
    let inside = text.split_once("%}").map_or("", |(inside, _)| inside);
    inside.trim_matches(|c: char| c.is_ascii_whitespace() || c == '-' || c == '+') == word
}

/// What follows the opening of the block that ends a raw one.
fn after_raw(text: &str) -> &str {
    let mut rest = text;
    while !rest.is_empty() {
        rest = after(rest, "{%");
        if is_lone_word(rest, "endraw") {
            break;
        }
    }
    rest
}

/// Counts the tokens of an expression as the engine cuts them, double operators twice; returns
/// what follows it. As in the engine, only an end outside all brackets is one.
fn scan_expression(text: &str, tag: Tag) -> (usize, &str) {
    let end = if tag == Tag::Print { "}}" } else { "%}" };
    let (mut tokens, mut open_brackets) = (0usize, 0i64);
    let mut in_word = false;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        let rest = text.get(at..).unwrap_or_default();
        if open_brackets == 0 && rest.starts_with(end) {
            return (tokens, rest.get(end.len()..).unwrap_or_default());
        }
        let word = c.is_alphanumeric() || c == '_';
        if !(c.is_whitespace() || word && in_word) {
            tokens += 1;
        }
        in_word = word;
        match c {
            '(' | '[' | '{' => open_brackets += 1,
            ')' | ']' | '}' => open_brackets -= 1,
            '\'' | '"' => {
                while let Some((_, inside)) = chars.next() {
                    if inside == '\\' {
                        chars.next();
                    } else if inside == c {
                        break;
                    }
                }
            }
            _ => {}
        }
    }
    (tokens, "")
}
