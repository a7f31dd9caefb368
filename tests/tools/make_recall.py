#!/usr/bin/env python3
"""Writes tests/fixtures/forge-tiny/recall.json: recall questions for forge-tiny, as its training folder
measured them, each with the verdict of the NumPy reference.

    make_recall.py SHARED OUT      needs numpy and tokenizers; SHARED is the folder of shared material

Everything is as in models/train/evaluate.py there, seeds included, but for two things that were not kept:
shuffled paragraphs of prose.txt stand in for the held-out books, and their words for the nouns and adjectives
of WordNet.
"""
import json, os, random, re, sys
import numpy as np
from tokenizers import Tokenizer

SHARED, OUT = sys.argv[1:3]
sys.path[:0] = [f"{SHARED}/models/train", f"{SHARED}/reference"]
import reference_forward as reference, synth

tokenizer = Tokenizer.from_file(f"{SHARED}/models/forge-tiny/tokenizer.json")
PARAGRAPHS = open(f"{os.path.dirname(os.path.abspath(__file__))}/prose.txt").read().splitlines()
COMMON = set("""about after again against almost also another away been before being beneath both bring came could did does
down each even ever every first from give gone have held here into indeed just knew know last left like looked made many
more most much must near never next none nobody nothing only once other perhaps said same seemed some something stood such
than that their them then there these they this those though through under until upon very were what when where which
while whom will with would your""".split())
synth.NOUNS[:] = synth.ADJS[:] = sorted(set(re.findall("\\b[a-z]{4,12}\\b", " ".join(PARAGRAPHS))) - COMMON)
model = reference.from_hf(f"{SHARED}/models/forge-tiny")


def encode(text): return tokenizer.encode(text, add_special_tokens=False).ids


def chat(user): return f"<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


def prose(r, tokens):
    text = "\n\n".join(r.sample(PARAGRAPHS, len(PARAGRAPHS)))
    assert len(encode(text)) >= tokens
    return tokenizer.decode(encode(text)[:tokens], skip_special_tokens=False).replace("\ufffd", "")


def needle(r, length, place):
    fact, question, answer = synth.needle(r, set())
    sentences = prose(r, length - 70).split(". ")
    sentences.insert(int(place * len(sentences)), fact[:-1])
    return chat(". ".join(sentences) + "\n\n" + question), answer


def key_value(r, length):
    values, body = {}, ""
    while len(encode(body)) < length - 60:
        for _ in range(4): values[synth.ident(r)] = synth.num(r)
        body = "\n".join(f"{key}: {value}" for key, value in values.items())
    key = r.choice(list(values))
    user = f"Remember these values.\n\n{body}\n\nWhat is the value of {key}?"
    return chat(user), f"The value of {key} is {values[key]}."


def exact(prompt, answer):
    """Whether the reference's greedy answer is exact: teacher-forced, which is the same for an exact one."""
    p, a = encode(prompt), encode(answer + "<|im_end|>")
    logits = reference.Runner(model, np.float32, 64).forward(p + a)[0][len(p) - 1:-1]
    return bool((logits.argmax(-1) == a).all())


cases = []
for length, samples in ((512, 20), (2048, 12)):
    r = random.Random(100 + length)
    for i in range(samples):
        for kind in ("needle", "key_value"):
            prompt, answer = needle(r, length, (i + .5) / samples) if kind == "needle" else key_value(r, length)
            cases.append({"kind": kind, "length": length, "prompt": prompt, "answer": answer,
                          "prompt_tokens": len(encode(prompt)), "reference_exact": exact(prompt, answer)})
            print(kind, length, i, cases[-1]["prompt_tokens"], cases[-1]["reference_exact"], flush=True)
for length in (512, 2048):
    for kind in ("needle", "key_value"):
        of = [c["reference_exact"] for c in cases if (c["kind"], c["length"]) == (kind, length)]
        print(kind, length, sum(of), "of", len(of))
with open(OUT, "w") as file: json.dump({"cases": cases}, file, indent=1)
