//! forge's own container.
