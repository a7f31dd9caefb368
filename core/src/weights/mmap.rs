//! Read-only file mappings: the only unsafe of the loaders.
