//! forge-wgpu: the portable backend over WebGPU.
