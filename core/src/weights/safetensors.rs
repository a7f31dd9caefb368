//! Hugging Face folders: one or many safetensors shards.
