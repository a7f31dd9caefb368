//! GGUF files (v2, v3, split sets).
