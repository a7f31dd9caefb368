#!/usr/bin/env python3
"""Prints the error bounds of core/src/weights/quant/tests.rs: relative RMS errors of public quantisers.

    quant_bounds.py SHARED      needs `pip install gguf`; SHARED is the folder of shared material

The values are those of `gaussian(1 << 14, 7)` in that file, and rows of a trained matrix of forge-tiny.
"""
import json, struct, sys
import numpy as np, gguf
from gguf.quants import quantize, dequantize

MASK = (1 << 64) - 1


def gaussian(count, state):
    values = np.zeros(count, np.float32)
    for at in range(count):
        for _ in range(12):
            state = (state * 6364136223846793005 + 1442695040888963407) & MASK
            values[at] += np.float32((state >> 40) / (1 << 24) - 0.5)
    return values


def trained(shared):
    with open(f"{shared}/models/forge-tiny/model.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        name = next(n for n in header if n.endswith("layers.0.mlp.gate_proj.weight"))
        start = file.tell() + header[name]["data_offsets"][0]
        file.seek(start)
        raw = np.frombuffer(file.read(32 * 512 * 2), np.uint16)
    return (raw.astype(np.uint32) << 16).view(np.float32)


for label, values in (("gaussian", gaussian(1 << 14, 7)), ("trained", trained(sys.argv[1]))):
    for kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "BF16", "MXFP4"):
        storage = gguf.GGMLQuantizationType[kind]
        try: stored = dequantize(quantize(values, storage), storage)
        except NotImplementedError: continue
        error = np.sqrt(np.mean((stored - values).astype(np.float64) ** 2) / np.mean(values.astype(np.float64) ** 2))
        print(f"{label:8} {kind:6} {error:.6f}")
