#!/usr/bin/env python3
"""Writes tests/fixtures/forge-tiny/recall.json: recall questions for forge-tiny, as its training folder
measured them, each with the verdict of the NumPy reference.

    make_recall.py SHARED OUT      needs numpy and tokenizers; SHARED is the folder of shared material

Everything is as in models/train/evaluate.py there, seeds included, but for two things that were not kept:
shuffled paragraphs of prose.txt stand in for the held-out books, and the lists below for the words of WordNet.
"""
import json, os, random, sys
import numpy as np
from tokenizers import Tokenizer

SHARED, OUT = sys.argv[1:3]
sys.path[:0] = [f"{SHARED}/models/train", f"{SHARED}/reference"]
import reference_forward as reference, synth

tokenizer = Tokenizer.from_file(f"{SHARED}/models/forge-tiny/tokenizer.json")
PARAGRAPHS = open(f"{os.path.dirname(os.path.abspath(__file__))}/prose.txt").read().splitlines()
synth.NOUNS[:] = sorted({*synth.ANIMALS, *synth.OBJECTS, *synth.PLACES, *synth.JOBS, *synth.FOODS, *"""
age air animal arm army arrow autumn bank battle bed bench bird board body bottle branch brother business captain
carriage chain chair chance chapter character child church circle clay cloud coast color command company condition
corner country court cousin crowd daughter death desert dinner distance door dream dust earth edge engine evening
eye face family father feast fence field figure fire floor flower foot fortune friend game gate girl glass gold
grass ground guard guest hall hammer hand harvest heart hero history hour house hunter island journey judge king
kitchen lady language leaf leg letter light line machine man manner master matter member message metal mind minute
moment money month moon morning mother mountain mouth music name nation nature neck night noise note number ocean
office opinion order paper parent path peace person picture plant pocket power price prince prison promise purpose
queen question rain reason report rest result road rock roof room school sea season secret sense servant shadow ship
shore shoulder sign silence sister skin sky sleep smile snow soldier song sound spirit spring star state station
stick storm story stranger street stream summer sun system table thing thought thread thunder time town travel tree
trouble truth uncle valley voice wagon walk wall war watch water wave weather week wife wind window wine winter
woman wonder wood word work world year youth""".split()})
synth.ADJS[:] = sorted({*synth.COLORS, *"""able ancient angry bad bare beautiful bitter bright broad broken calm careful
certain clean clear cold common complete cool curious dark dead deep different distant double dry dull early easy
empty entire equal fair false famous fine firm flat free fresh full general gentle golden good grand grave great
happy hard heavy high hollow hot human idle large late lonely long loose loud low natural narrow new noble odd old
open ordinary pale perfect plain pleasant poor proper proud public pure quick quiet rare ready real rich rough round
sad safe sharp short silent simple single slow small soft solid strange strong sudden sweet tall terrible thick thin
tired true usual various warm weak wet whole wide wild wise wonderful wrong young""".split()})
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
