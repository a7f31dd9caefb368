//! Text to token ids and back, from a `tokenizer.json` or a GGUF vocabulary.
