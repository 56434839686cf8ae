"""Damages tokenizer files of every format over and over: what cannot be read is said in one line, and soon.

    python -m tests.fuzz.fuzz_tokenizer [--n 20000] [--seed 0]

Nothing else than a LayerstepError may be raised, no case may take longer than 5 s, and all of them together may not
make the process 100 MB larger.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from engine.checkpoints.vocab.sentencepiece import parse
from engine.errors import LayerstepError
from engine.text import display
from engine.tokenizer import Tokenizer
from tests.engine.vocabularies import rank_file, sentencepiece_model, special, vocab_and_merges, word_pieces, write

SECONDS = 5
MEGABYTES = 100
STRANGE = [
    "null",
    "true",
    "-1",
    "1e999",
    "[]",
    "{}",
    '"\\ud800"',
    "99999999999999999999",
    '"' + "x" * 5000 + '"',
    "[" * 999,
]


def folders(root: Path) -> dict[str, Path]:
    """A sound folder of every format."""
    names = {
        "bos_token": "<s>",
        "eos_token": {"content": "</s>", "lstrip": True},
        "legacy": True,
        "add_bos_token": True,
    }
    made = {name: root / name for name in ("llama", "t5", "gpt2", "qwen", "bert", "tiktoken", "marian")}
    for folder in made.values():
        folder.mkdir()
    llama = sentencepiece_model(model_type="bpe", vocab_size=450, byte_fallback=True)
    (made["llama"] / "tokenizer.model").write_bytes(llama)
    write(made["llama"], config={"model_type": "llama"}, tokenizer_config=names, special_tokens_map=names)
    t5 = sentencepiece_model(model_type="unigram", vocab_size=150, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    (made["t5"] / "spiece.model").write_bytes(t5)
    write(made["t5"], config={"model_type": "t5"}, tokenizer_config={"extra_ids": 3})
    write(vocab_and_merges(made["gpt2"]), config={"model_type": "gpt2"}, added_tokens={"<|x|>": 380})
    added = {"0": special("<|bos|>"), "380": special("<|x|>", lstrip=True)}
    config = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|eos|>", "added_tokens_decoder": added}
    write(vocab_and_merges(made["qwen"]), config={"model_type": "qwen2"}, tokenizer_config=config)
    write(word_pieces(made["bert"]), config={"model_type": "bert"}, tokenizer_config={"do_lower_case": False})
    for name in ("source.spm", "target.spm"):
        (made["marian"] / name).write_bytes(t5)
    pieces = [piece.text for piece in parse(t5).pieces]
    write(made["marian"], config={"model_type": "marian"}, vocab={text: id for id, text in enumerate(pieces)})
    (made["tiktoken"] / "tokenizer.model").write_bytes(rank_file())
    write(made["tiktoken"], config={"model_type": "llama"}, generation_config={"eos_token_id": [1, 2]})
    return made


def damaged(whole: bytes, draw: random.Random) -> bytes:
    """Bytes changed, cut, repeated or put in; in JSON also a value replaced."""
    data = bytearray(whole)
    for _ in range(draw.randint(1, 4)):
        at, size = draw.randrange(len(data) + 1), draw.choice([0, 1, 1, 2, 8, 200])
        match draw.randrange(4):
            case 0:
                data[at : at + size] = draw.randbytes(size)
            case 1:
                del data[at : at + size]
            case 2:
                data[at:at] = data[draw.randrange(len(data) + 1) :][:size]
            case _:
                data[at : at + 1] = draw.choice(STRANGE).encode()
    return bytes(data)


def replaced(whole: bytes, draw: random.Random) -> bytes:
    """JSON with one value replaced, somewhere."""
    data = json.loads(whole)
    at, key = {"": data}, ""
    while isinstance(at[key], dict) and at[key] and draw.random() < 0.8:
        at, key = at[key], draw.choice(list(at[key]))
    text = json.dumps(data | {"__": 0} if at[key] is data else data)
    return text.replace(json.dumps(at[key]), draw.choice(STRANGE), 1).encode()


def outcome(folder: Path) -> str:
    try:
        tokenizer = Tokenizer.find(folder)
        if tokenizer is None:
            return "no tokenizer"
        for text in ("a dog <s> hello</s> 地\n", "<|x|> <0x0A>  "):
            for literal in (False, True):
                assert all(token.label for token in tokenizer.encode(text, literal=literal))
    except LayerstepError as error:
        said = str(error)
        assert said == display(said), f"not printable: {said!r}"
        assert 10 < len(said) < 900, f"no clear line: {said!r}"
        return "refused"
    return "read"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    said: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        made = folders(Path(place))
        for folder in made.values():
            assert outcome(folder) == "read", folder
        work = Path(place) / "work"
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        quiet = os.dup(2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # a panic in Rust code writes there before it becomes our line
        for number in range(options.n):
            name = draw.choice(list(made))
            shutil.rmtree(work, ignore_errors=True)
            shutil.copytree(made[name], work)
            file = draw.choice(sorted(work.iterdir()))
            whole = file.read_bytes()
            in_json = file.suffix == ".json" and draw.random() < 0.5
            file.write_bytes((replaced if in_json else damaged)(whole, draw))
            began = time.perf_counter()
            try:
                came_to = outcome(work)
                assert time.perf_counter() - began < SECONDS, "it took too long"
            except BaseException:
                os.dup2(quiet, 2)
                traceback.print_exc()
                kept = Path(tempfile.mkdtemp()) / name
                shutil.copytree(work, kept)
                sys.exit(f"case {number} of seed {options.seed}: {name}/{file.name}, kept in {kept}")
            said[f"{name}, {came_to}"] += 1
        os.dup2(quiet, 2)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    for line, count in sorted(said.items()):
        print(f"{count:8,}  {line}")
    print(f"{options.n:,} folders in {time.perf_counter() - start:.1f} s, seed {options.seed}: {grown:.0f} MB more")
    if grown > MEGABYTES:
        sys.exit("which is too much")


if __name__ == "__main__":
    main()
