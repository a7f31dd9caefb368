//! forge-cuda: the CUDA backend.
