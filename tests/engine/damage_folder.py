"""Ways to damage a model folder, by accident and on purpose, for the tests and for `tests/fuzz`."""

from __future__ import annotations

import json
import random
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from engine.architecture import build_program
from engine.checkpoints.families import FAMILIES
from engine.config import ModelConfig

Files = dict[str, bytes]

INDEX = "model.safetensors.index.json"
NATIVE = {
    "model_type": "layerstep", "format_version": 1, "d_vocab": 37, "d_model": 20, "n_layers": 2, "n_heads": 4,
    "d_head": 6, "d_mlp": 26, "n_ctx": 64, "attn_bias": True, "name": "native",
}  # fmt: skip
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 26, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4}
MARIAN = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 26, "decoder_ffn_dim": 26, "decoder_start_token_id": 0,
}  # fmt: skip
FEW = {"num_local_experts": 3, "num_experts_per_tok": 2}
SIZES: dict[str, dict[str, Any]] = {
    **{
        kind: {} for kind in (
            "bert", "camembert", "cohere", "cohere2", "falcon", "gemma", "gemma2", "gemma3_text", "gpt_neox", "granite",
            "llama", "modernbert", "olmo", "olmo2", "phi", "phi3", "qwen2", "qwen3", "roberta", "smollm3", "stablelm",
            "starcoder2", "xlm-roberta",
        )
    },
    "bloom": {"n_layer": 2, "n_head": 4},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 26},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "gpt_oss": FEW, "granitemoe": FEW, "mixtral": FEW,
    "gptj": {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4},
    "marian": MARIAN, "mistral": {"sliding_window": 4},
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64}, "mt5": T5,
    "opt": {"ffn_dim": 26, "word_embed_proj_dim": 32},
    "qwen3_moe": {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 8}, "t5": T5,
}  # fmt: skip
"""model_type -> what makes transformers' default config small, beside ``COMMON``."""
COMMON = {
    "vocab_size": 37, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "hidden_size": 32,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 26,
    "max_position_embeddings": 64,
}  # fmt: skip


ENCODERS = ("bert", "camembert", "distilbert", "roberta", "modernbert", "xlm-roberta")

SHARDED = ("llama", "gpt2", "bert", "mixtral", "t5")
"""Families whose example is in shards, with an index."""


def example(kind: str) -> Files:
    """A model folder that loads, its files by name."""
    files = _native() if kind == "layerstep" else _by_transformers(kind)
    return files | {"tokenizer.json": tokenizer()}


def _native() -> Files:
    config = ModelConfig.from_json({k: v for k, v in NATIVE.items() if k not in ("model_type", "format_version")})
    draw = torch.Generator().manual_seed(0)
    tensors = {name: torch.randn(shape, generator=draw) for name, shape in build_program(config).params.items()}
    return {"config.json": json.dumps(NATIVE).encode(), "model.safetensors": save(tensors)}


def _by_transformers(kind: str) -> Files:
    """A small model of a family as transformers saves it."""
    import transformers
    from transformers import AutoConfig

    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as place:
        warnings.simplefilter("ignore")
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        usual = AutoConfig.for_model(kind)
        known = {*usual.to_dict(), *usual.attribute_map}
        config = AutoConfig.for_model(kind, **({k: v for k, v in COMMON.items() if k in known} | SIZES[kind]))
        head = "AutoModel" if kind in ENCODERS else "AutoModelForSeq2SeqLM" if kind in ("t5", "mt5", "marian") else ""
        torch.manual_seed(0)
        model = getattr(transformers, head or "AutoModelForCausalLM").from_config(config)
        model.save_pretrained(place, max_shard_size="10KB" if kind in SHARDED else "5GB")
        return {file.name: file.read_bytes() for file in sorted(Path(place).iterdir())}


def tokenizer() -> bytes:
    """A tokenizer.json of single letters."""
    import tokenizers

    vocab = {chr(97 + i): i for i in range(26)}
    return tokenizers.Tokenizer(tokenizers.models.BPE(vocab, [])).to_str().encode()


def kinds() -> list[str]:
    """The families that there are and of which a small config can be made."""
    return [kind for kind in FAMILIES if kind == "layerstep" or kind in SIZES]


# --- damage -----------------------------------------------------------------------------------------------

HOSTILE = "\x1b]0;PWNED\x07\x1b[5;5H\x9b31m\r\n\u202e\x00\ud83d"
NUMBERS = (0, -1, 1, 2, 3, 7, 2**31, 2**31 + 1, 2**53, 2**63, 2**64, 10**400, 4096, 4097, 1e308, -0.0, 5e-324, 0.5)
TEXTS = (
    "",
    "a",
    HOSTILE,
    "../x",
    "/etc/passwd",
    "a" * 100_000,
    "\ud800",
    "é" * 300,
    "null",
    "0",
    "gelu",
    "F32",
    "I8",
    "F4",
)
NAMES = ("tie_word_embeddings", "rope_scaling", "auto_map", "quantization_config", "head_dim", "layer_types", "dtype")


def value(draw: random.Random) -> Any:
    """Any JSON value, odd ones more often than not."""
    match draw.randrange(9):
        case 0:
            return draw.choice(NUMBERS)
        case 1:
            return draw.choice(TEXTS)
        case 2:
            return draw.choice((None, True, False, float("nan"), float("inf"), -float("inf")))
        case 3:
            return [value(draw) for _ in range(draw.randrange(3))]
        case 4:
            return {draw.choice(TEXTS + NAMES): value(draw) for _ in range(draw.randrange(3))}
        case 5:
            return draw.randrange(-3, 70)
        case 6:
            nested: Any = 0
            for _ in range(draw.choice((5, 200, 400))):
                nested = [nested] if draw.random() < 0.5 else {"a": nested}
            return nested
        case 7:
            return {"rope_type": draw.choice(("default", "linear", "yarn", "llama3", "x")), "factor": value(draw)}
        case _:
            return [draw.randrange(40)] * draw.choice((1, 2, 50_000))


def changed(data: Any, draw: random.Random) -> Any:
    """A JSON value in which one place has been changed."""
    at, parent, key = data, None, None
    while isinstance(at, dict | list) and at and (parent is None or draw.random() < 0.6):
        parent, key = at, draw.choice(list(at) if isinstance(at, dict) else range(len(at)))
        at = parent[key]
    if parent is None:
        return value(draw)
    match draw.randrange(6):
        case 0 if isinstance(parent, dict):
            del parent[key]
        case 1 if isinstance(parent, dict):
            parent[draw.choice(TEXTS + NAMES)] = value(draw)
        case 2 if isinstance(at, int | float) and not isinstance(at, bool) and abs(at) < 1e300:
            parent[key] = draw.choice((at + 1, at - 1, at * 2, -at, float(at), str(at), at * 10**6))
        case 3 if isinstance(parent, dict):
            parent[draw.choice(list(parent))] = at
        case _:
            parent[key] = value(draw)
    return data


def bytes_changed(data: bytes, draw: random.Random, within: int | None = None) -> bytes:
    """What a disk, a network or an editor may do to a file; mostly in its first ``within`` bytes."""
    end = min(len(data), within or len(data)) or 1
    at = draw.randrange(end)
    count = draw.choice((1, 2, 8, 100))
    match draw.randrange(6):
        case 0:
            return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :] if data else b"x"
        case 1:
            return data[:at]
        case 2:
            return data[:at] + draw.randbytes(count) + data[at:]
        case 3:
            return data[:at] + data[at + count :]
        case 4:
            return data[:at] + bytes(count) + data[at + count :]
        case _:
            return data[:at] + data[draw.randrange(end) :][:count] + data[at:]


def doubled(text: bytes, draw: random.Random) -> bytes:
    """JSON in which a key of the outer object stands twice."""
    data = json.loads(text)
    key = draw.choice(list(data))
    return text[: text.rindex(b"}")] + b", " + json.dumps({key: value(draw)})[1:-1].encode() + b"}"


def json_damaged(text: bytes, draw: random.Random) -> bytes:
    kind = draw.random()
    if kind < 0.15:
        return bytes_changed(text, draw)
    if kind < 0.2:
        return doubled(text, draw)
    if kind < 0.23:
        return b'{"a":' * draw.choice((10, 5_000, 200_000)) + text
    data = json.loads(text)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        data = changed(data, draw)
    return json.dumps(data).encode("utf-8", "surrogatepass")


def header_damaged(data: bytes, draw: random.Random) -> bytes:
    """A safetensors file with another header, whose length is right unless that is what is wrong."""
    length = int.from_bytes(data[:8], "little")
    kind = draw.random()
    if kind < 0.3:
        return bytes_changed(data, draw, 8 + length)
    if kind < 0.35:
        odd = draw.choice((0, 1, 7, length + 1, 2**20, 100_000_001, 2**31, 2**63, 2**64 - 1))
        return odd.to_bytes(8, "little") + data[8:]
    header = data[8 : 8 + length]
    if kind < 0.4:
        header = doubled(header, draw)
    elif kind < 0.45:
        header = header.rstrip() + b" " * draw.choice((1, 3, 100_000, 9_000_000))
    elif kind < 0.5:
        name = draw.choice(TEXTS)
        many = {
            f"{name}{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(draw.choice((1, 3000)))
        }
        header = json.dumps(json.loads(header) | many).encode("utf-8", "replace")
    else:
        header = json.dumps(changed(json.loads(header), draw)).encode("utf-8", "replace")
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


def damaged(files: Mapping[str, bytes], draw: random.Random) -> tuple[str, Files]:
    """A folder's files with one of them changed, and which."""
    often = ["config.json"] * 3 + [INDEX] * 3 * (INDEX in files)
    name = draw.choice([*files, *often, *(f for f in files if f.endswith(".safetensors"))])
    data = files[name]
    kind = draw.random()
    if kind < 0.01:
        return f"{name} removed", {f: d for f, d in files.items() if f != name}
    if kind < 0.02:
        other = draw.choice(list(files))
        return f"{name} is {other}", {**files, name: files[other]}
    changed = header_damaged(data, draw) if name.endswith(".safetensors") else json_damaged(data, draw)
    return name, {**files, name: changed}


def written(folder: Path, files: Mapping[str, bytes], before: Mapping[str, bytes]) -> None:
    """The files in a folder that holds those of ``before``; only what differs is written."""
    for name in before.keys() - files.keys():
        (folder / name).unlink()
    for name, data in files.items():
        if before.get(name) != data:
            (folder / name).unlink(missing_ok=True)  # to write over a file makes some file systems wait for the disk
            (folder / name).write_bytes(data)
