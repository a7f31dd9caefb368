// Signs of the codebook types: a 7-bit index whose parity is the eighth sign.
fn sign_mask(index: u32) -> u32 {
    let low = index & 127u;
    return low | ((countOneBits(low) & 1u) << 7u);
}

// 1 or -1 for each of the low four bits.
fn signs(mask: u32) -> vec4<f32> {
    return 1.0 - 2.0 * bytes(spread(mask));
}
