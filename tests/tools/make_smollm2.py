#!/usr/bin/env python3
"""Writes tests/fixtures/smollm2.json: the margins by which the NumPy reference in f32 prefers the tokens that
SHARED/cases/smollm2.json records (best other logit subtracted, so negative where it prefers another one).

    make_smollm2.py SHARED GGUF OUT      needs numpy; GGUF is what .ci/fetch-smollm2 fetches

The recording engine multiplies activations rounded to 8 bits, which moves margins by up to 0.6.
"""
import json, sys
import numpy as np

SHARED, GGUF, OUT = sys.argv[1:4]
sys.path.insert(0, f"{SHARED}/reference")
import reference_forward as reference

model = reference.from_gguf(GGUF)
completions = []
for case in json.load(open(f"{SHARED}/cases/smollm2.json"))["completions"]:
    prompt, tokens = case["prompt_tokens"], case["tokens"]
    logits = reference.Runner(model, np.float32).forward(prompt + tokens[:-1])[0][len(prompt) - 1:]
    margins = []
    for row, token in zip(logits, tokens):
        best = row[token]
        row[token] = -np.inf
        margins.append(round(float(best - row.max()), 4))
    completions.append({"prompt_tokens": prompt, "tokens": tokens, "margins": margins})
    print(repr(case["prompt"]), min(margins), flush=True)
with open(OUT, "w") as file: json.dump({"completions": completions}, file)
