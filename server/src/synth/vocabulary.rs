//! A byte-level vocabulary of any size: the bytes, pieces of words with the merges that make them,
//! and the control tokens of a chat.

use anyhow::{Result, bail};
use forge_core::weights::gguf::{GgufArray, GgufValue};

/// Rows behind the pieces: control and user-defined tokens, then unused ones.
const RESERVED: usize = 276;
/// Control tokens (kind 3) and user-defined ones (kind 4), in the order of the real models.
const ADDED: [(&str, i32); 9] = [
    ("<|endoftext|>", 3),
    ("<|im_start|>", 3),
    ("<|im_end|>", 3),
    ("<think>", 4),
    ("</think>", 4),
    ("<tool_call>", 4),
    ("</tool_call>", 4),
    ("<tool_response>", 4),
    ("</tool_response>", 4),
];
const UNUSED: i32 = 5;
/// A space in the printable alphabet of byte-level vocabularies.
const SPACE: char = '\u{120}';

const CHAT_TEMPLATE: &str = "{% for message in messages %}\
    <|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
    {% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// The `tokenizer.*` keys of a vocabulary of `size` tokens.
///
/// # Errors
/// If it has no room for the bytes and control tokens, or more than there are pieces for.
pub(super) fn keys(size: usize) -> Result<Vec<(String, GgufValue)>> {
    let bytes = byte_alphabet();
    let Some(pieces) = size.checked_sub(RESERVED + bytes.len()) else {
        bail!("vocab: {size} tokens are fewer than {}", RESERVED + bytes.len());
    };
    let mut tokens: Vec<String> = bytes.iter().map(char::to_string).collect();
    let mut merges = Vec::with_capacity(pieces);
    for (left, right) in merge_pairs().take(pieces) {
        merges.push(format!("{left} {right}"));
        tokens.push(left + &right);
    }
    if merges.len() < pieces {
        bail!("vocab: {size} tokens are more than the {} there are", RESERVED + tokens.len());
    }
    let mut kinds = vec![1; tokens.len()];
    let first_added = tokens.len() as u32;
    for (text, kind) in ADDED {
        tokens.push(text.to_owned());
        kinds.push(kind);
    }
    while tokens.len() < size {
        tokens.push(format!("[PAD{}]", tokens.len()));
        kinds.push(UNUSED);
    }
    let text = |text: &str| GgufValue::String(text.to_owned());
    let keys = [
        ("ggml.model", text("gpt2")),
        ("ggml.pre", text("qwen35")),
        ("ggml.tokens", GgufValue::Array(GgufArray::String(tokens))),
        ("ggml.token_type", GgufValue::Array(GgufArray::I32(kinds))),
        ("ggml.merges", GgufValue::Array(GgufArray::String(merges))),
        ("ggml.eos_token_id", GgufValue::U32(first_added + 2)),
        ("ggml.padding_token_id", GgufValue::U32(first_added)),
        ("ggml.add_bos_token", GgufValue::Bool(false)),
        ("chat_template", text(CHAT_TEMPLATE)),
    ];
    Ok(keys.into_iter().map(|(key, value)| (format!("tokenizer.{key}"), value)).collect())
}

/// The 256 bytes as printable characters: those of Latin-1 stand for themselves, the others follow
/// from U+0100 on (as GPT-2 has it).
fn byte_alphabet() -> Vec<char> {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut shifted = '\u{100}'..;
    let mut alphabet: Vec<char> = Vec::with_capacity(256);
    let (mut plain, mut others): (Vec<char>, Vec<char>) = (Vec::new(), Vec::new());
    for byte in 0..=255u8 {
        match printable(byte) {
            true => plain.push(char::from(byte)),
            false => others.extend(shifted.next()),
        }
    }
    alphabet.append(&mut plain);
    alphabet.append(&mut others);
    alphabet
}

/// Pairs of tokens that exist before them, no two with the same text: letters to pieces of two,
/// those to pieces of four.
fn merge_pairs() -> impl Iterator<Item = (String, String)> {
    let letters = || 'a'..='z';
    let pairs = move || {
        let first = std::iter::once(SPACE).chain(letters());
        first.flat_map(move |a| letters().map(move |b| (a, b)))
    };
    let twos = pairs().map(|(a, b)| (a.to_string(), b.to_string()));
    let join = |(a, b): (char, char)| format!("{a}{b}");
    let fours = pairs().flat_map(move |left| {
        // A space only begins a piece.
        let inner = pairs().filter(|(a, _)| *a != SPACE);
        inner.map(move |right| (join(left), join(right)))
    });
    twos.chain(fours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_real_size_has_valid_merges_and_no_token_twice() {
        let keys = keys(248_320).unwrap();
        let strings = |name: &str| {
            let (_, value) = keys.iter().find(|(key, _)| key.ends_with(name)).unwrap();
            value.as_strings().unwrap()
        };
        let (tokens, merges) = (strings("tokens"), strings("merges"));
        assert_eq!((tokens.len(), merges.len()), (248_320, 248_320 - 276 - 256));
        let mut known = HashSet::new();
        for token in &tokens[..256] {
            assert!(known.insert(token.clone()));
        }
        for merge in merges {
            let (left, right) = merge.split_once(' ').unwrap();
            assert!(known.contains(left) && known.contains(right), "{merge}");
            assert!(known.insert(format!("{left}{right}")), "{merge}");
        }
        // As published: 248044 is the end of a text, 248046 that of a turn.
        assert_eq!((&*tokens[248_044], &*tokens[248_046]), ("<|endoftext|>", "<|im_end|>"));
    }

    #[test]
    fn sizes_without_room_are_refused() {
        assert!(keys(531).is_err());
        assert!(keys(532).is_ok());
        assert!(keys(600_000).is_err());
    }
}
