"""A small sound GGUF file, and how one is damaged: mostly in its header, which is what says where to read."""

import random
import struct
from collections.abc import Callable
from pathlib import Path

import torch
from gguf_files import Type, write

EDGES = [0, 1, 255, 2**16 - 1, 2**16, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1]
HEADER = 2200
"""About where the tensors begin in `sound`."""


def sound(folder: Path) -> bytes:
    """One block of a Llama, quantised, with a vocabulary."""
    pieces = ["<unk>", "<s>", "</s>", "▁", *"abcdefghijklmnopqrstuvwxyz", *map(str, range(10))]
    metadata = {
        "context_length": 64, "embedding_length": 32, "block_count": 1, "feed_forward_length": 64,
        "attention.head_count": 4, "attention.head_count_kv": 2, "rope.freq_base": 5e5, "rope.dimension_count": 8,
        "attention.layer_norm_rms_epsilon": 1e-5, "vocab_size": 40, "general.alignment": 32,
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": pieces, "tokenizer.ggml.scores": [0.0] * 40,
        "tokenizer.ggml.token_type": [2, 3, 3, *[1] * 37], "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.chat_template": "{{ messages }}",
    }  # fmt: skip
    shapes = {
        "token_embd": (40, 32), "output_norm": (32,), "blk.0.attn_norm": (32,), "blk.0.ffn_norm": (32,),
        "blk.0.attn_q": (32, 32), "blk.0.attn_k": (16, 32), "blk.0.attn_v": (16, 32), "blk.0.attn_output": (32, 32),
        "blk.0.ffn_gate": (64, 32), "blk.0.ffn_up": (64, 32), "blk.0.ffn_down": (32, 64),
    }  # fmt: skip
    tensors = {f"{name}.weight": torch.randn(shape) for name, shape in shapes.items()}
    return write(folder / "sound.gguf", "llama", metadata, tensors, Type.Q8_0).read_bytes()


Change = Callable[[bytes, int, random.Random], bytes]
CHANGES: list[Change] = [
    lambda data, at, draw: data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :],
    lambda data, at, draw: data[:at] + struct.pack("<Q", draw.choice(EDGES)) + data[at + 8 :],
    lambda data, at, draw: data[:at] + struct.pack("<I", draw.choice(EDGES[:7])) + data[at + 4 :],
    lambda data, at, draw: data[:at] + data[at + draw.randint(1, 60) :],
    lambda data, at, draw: data[:at] + draw.randbytes(draw.randint(1, 20)) + data[at:],
    lambda data, at, draw: data[:at],
]


def damaged(data: bytes, draw: random.Random) -> bytes:
    """The file with one to eight changes."""
    for _ in range(draw.choice([1, 1, 1, 2, 3, 8])):
        if len(data) > 16:
            at = draw.randrange(min(len(data), HEADER) if draw.random() < 0.9 else len(data))
            data = draw.choice(CHANGES)(data, at, draw)
    return data
