//! SentencePiece vocabularies against the definition of their algorithm.

use super::*;
use std::collections::BTreeMap;

/// Types: 1 normal, 2 unknown, 3 control, 4 user-defined, 6 byte.
fn vocabulary(pieces: &[(&str, f32, i32)]) -> GgufVocabulary {
    GgufVocabulary {
        model: "llama".into(),
        pre: "default".into(),
        tokens: pieces.iter().map(|piece| piece.0.to_owned()).collect(),
        scores: pieces.iter().map(|piece| piece.1).collect(),
        token_types: pieces.iter().map(|piece| piece.2).collect(),
        bos: Some(1),
        eos: vec![2],
        unknown: Some(0),
        ..GgufVocabulary::default()
    }
}

fn small() -> GgufVocabulary {
    vocabulary(&[
        ("<unk>", 0.0, 2),
        ("<s>", 0.0, 3),
        ("</s>", 0.0, 3),
        ("<0xC3>", 0.0, 6),
        ("<0xA9>", 0.0, 6),
        ("▁", -1.0, 1),
        ("h", -2.0, 1),
        ("i", -3.0, 1),
        ("▁h", -0.5, 1),
        ("▁hi", -0.6, 1),
        ("hi", -0.1, 1),
        ("[X]", 0.0, 4),
    ])
}

fn load(vocabulary: &GgufVocabulary) -> Tokenizer {
    gguf::load(vocabulary, Normalization::AsTokenizerJson).unwrap()
}

#[test]
fn pieces_bytes_and_prefix() {
    let tokenizer = load(&small());
    let encode = |text: &str| tokenizer.encode_prompt(text, SpecialTokens::Parse).unwrap();
    // "hi" scores best, so it is made first, and then "▁hi".
    assert_eq!(encode("hi"), [1, 9].map(TokenId));
    assert_eq!(encode("é"), [1, 5, 3, 4].map(TokenId));
    assert_eq!(encode("h[X]i</s>"), [1, 8, 11, 5, 7, 2].map(TokenId));
    assert_eq!(encode("q"), [1, 5, 0].map(TokenId));
    assert_eq!(encode(""), [1].map(TokenId));
    let text = "hi  h é";
    assert_eq!(tokenizer.decode(&encode(text), true), text);
    let bare = load(&GgufVocabulary { add_space_prefix: Some(false), ..small() });
    let ids = bare.encode(" hi", SpecialTokens::AsText).unwrap();
    assert_eq!(ids, [9].map(TokenId));
    assert_eq!(bare.decode(&ids, true), " hi");
    assert!(bare.encode("<s>", SpecialTokens::AsText).unwrap().iter().all(|id| id.0 != 1));
}

#[test]
fn bad_scores_are_refused() {
    let refusal = |change: fn(&mut GgufVocabulary)| {
        let mut vocabulary = small();
        change(&mut vocabulary);
        gguf::load(&vocabulary, Normalization::Never).unwrap_err().to_string()
    };
    assert!(refusal(|v| v.scores.truncate(3)).contains("3 scores for 12 tokens"));
    assert!(refusal(|v| v.scores[6] = f32::NAN).contains("scores[6]"));
}

/// The algorithm as it is defined: as long as two neighbours make a token, make the best one.
fn by_definition(text: &str, scores: &BTreeMap<String, (u32, f32)>) -> Vec<TokenId> {
    let mut parts: Vec<String> = text.chars().map(String::from).collect();
    loop {
        let best = (1..parts.len())
            .filter_map(|at| {
                let (left, right) = (&parts[at - 1], &parts[at]);
                let (_, score) = scores.get(&format!("{left}{right}"))?;
                Some((*score, left.chars().count(), right.chars().count(), at))
            })
            .max_by(|a, b| {
                a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))).then(b.3.cmp(&a.3))
            });
        let Some((.., at)) = best else { break };
        let right = parts.remove(at);
        parts[at - 1].push_str(&right);
    }
    parts.iter().map(|part| TokenId(scores[part].0)).collect()
}

proptest! {
    #[test]
    fn merges_follow_the_scores(
        mut words in proptest::collection::btree_set("[ab▁]{2,5}", 0..24),
        seed in any::<u64>(),
        text in "[ab ]{0,24}",
    ) {
        words.extend(["a", "b", "▁"].map(String::from));
        // Scores are distinct, in an order of their own.
        let mut order: Vec<String> = words.into_iter().collect();
        order.sort_by_key(|word| {
            word.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
        });
        let mut pieces = vec![("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)];
        pieces.extend(order.iter().enumerate().map(|(i, word)| (word.as_str(), -(i as f32), 1)));
        let scores = (0u32..).zip(&pieces).skip(3).map(|(id, p)| (p.0.to_owned(), (id, p.1)));
        let expected = by_definition(&format!("▁{}", text.replace(' ', "▁")), &scores.collect());
        let tokenizer = load(&vocabulary(&pieces));
        let found = tokenizer.encode(&text, SpecialTokens::AsText).unwrap();
        if text.is_empty() {
            prop_assert!(found.is_empty());
        } else {
            prop_assert_eq!(&found, &expected);
        }
        prop_assert_eq!(tokenizer.decode(&found, false), text);
    }
}
