"""GGUF files for tests, made of transformers' models as llama.cpp's convert_hf_to_gguf does it.

The names come from the gguf package's own map; the reorderings are stated here, as the converter has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor

Type = gguf.GGMLQuantizationType
PERMUTED = ("llama", "granite", "granitemoe", "smollm3", "olmo")
ARCHS = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}


def write(
    path: Path, arch: str, metadata: dict[str, Any], tensors: dict[str, Tensor | np.ndarray], kind: Type = Type.F32
) -> Path:
    """A GGUF file. ``kind`` is what matrices are stored as; vectors stay float32, and bytes are blocks of that kind."""
    writer = gguf.GGUFWriter(str(path), arch)
    for key, value in metadata.items():
        _add(
            writer,
            key if "." in key and key.split(".")[0] in ("tokenizer", "general", "split") else f"{arch}.{key}",
            value,
        )
    for name, tensor in tensors.items():
        stored = kind if tensor.ndim > 1 else Type.F32
        if isinstance(tensor, Tensor):
            tensor = gguf.quantize(tensor.float().contiguous().numpy(), stored)
        writer.add_tensor(name, tensor, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    adders: list[tuple[type, Callable[[str, Any], None]]] = [
        (bool, writer.add_bool), (int, writer.add_uint32), (float, writer.add_float32), (str, writer.add_string),
        (list, writer.add_array),
    ]  # fmt: skip
    next(add for kind, add in adders if isinstance(value, kind))(key, value)


def converted(model: Any, arch: str) -> dict[str, Tensor]:
    """The tensors of transformers' model under the names and in the layouts of GGUF."""
    config = model.config
    names = gguf.get_tensor_name_map(ARCHS[arch], config.num_hidden_layers)
    found: dict[str, Tensor] = {}
    for name, tensor in _parameters(model):
        name = name.removeprefix("transformer.") if arch == "bloom" else name
        for renamed, part in _reordered(name, tensor, config, arch):
            stored = names.get_name(renamed, try_suffixes=(".weight", ".bias"))
            assert stored, f"{arch} has no name for {renamed}"
            if ".norms." in name:  # a norm of every head's own: stacked
                part = torch.cat([found[stored], part[None]]) if stored in found else part[None]
            found[stored] = part
    return found


def _parameters(model: Any) -> Iterator[tuple[str, Tensor]]:
    """The parameters once each, a tied head not among them, and no layer for whole texts."""
    yield from ((name, weight.detach()) for name, weight in model.named_parameters() if "pooler." not in name)


def _reordered(name: str, tensor: Tensor, config: Any, arch: str) -> Iterator[tuple[str, Tensor]]:
    name = re.sub(r"\.norms\.\d+", "", name) + (".weight" if name.endswith("sinks") else "")
    if arch == "granitemoe":
        name = name.replace("block_sparse_moe.router", "block_sparse_moe.router.layer").replace(
            "block_sparse_moe.exp", "mlp.exp"
        )
    if arch in PERMUTED and ".q_proj." in name:
        tensor = permuted(tensor, config.num_attention_heads)
    if arch in PERMUTED and ".k_proj." in name:
        tensor = permuted(tensor, config.num_key_value_heads)
    if arch.startswith("gemma") and name.endswith("norm.weight"):
        tensor = tensor.float() + 1
    if arch == "gpt2" and name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
        tensor = tensor.T
    if arch in ("gptneox", "bloom") and "query_key_value" in name:  # each head's q, k, v -> all q, all k, all v
        rest = tensor.shape[1:]
        tensor = tensor.reshape(config.num_attention_heads, 3, -1, *rest).transpose(0, 1).reshape(-1, *rest)
    if arch == "falcon" and "query_key_value" in name:  # each group's queries, its key, its value
        kv, heads = config.num_kv_heads if config.new_decoder_architecture else 1, config.num_attention_heads
        per = tensor.reshape(kv, heads // kv + 2, -1, tensor.shape[-1])
        tensor = torch.cat([per[:, :-2].flatten(0, 2), per[:, -2].flatten(0, 1), per[:, -1].flatten(0, 1)])
    if arch == "gpt-oss" and "experts.gate_up_proj" in name:  # gate and up by turns, and the matrices turned over
        tensor = tensor if name.endswith("_bias") else tensor.transpose(-1, -2)
        block, kind = name.split("gate_up_proj")[0], "bias" if name.endswith("_bias") else "weight"
        yield f"{block}gate_proj.{kind}", tensor[:, ::2]
        yield f"{block}up_proj.{kind}", tensor[:, 1::2]
        return
    if arch == "gpt-oss" and "experts.down_proj" in name:
        turned = tensor if name.endswith("_bias") else tensor.transpose(-1, -2)
        yield (
            name.replace("down_proj_bias", "down_proj.bias").replace(
                "down_proj", "down_proj.weight", 1 - name.count("_bias")
            ),
            turned,
        )
        return
    if name.endswith("experts.gate_up_proj"):
        gate, up = tensor.chunk(2, dim=1)
        block = name.removesuffix("gate_up_proj")
        yield f"{block}gate_proj.weight", gate
        yield f"{block}up_proj.weight", up
        return
    if name.endswith("experts.down_proj"):
        name += ".weight"
    yield name, tensor


def permuted(weight: Tensor, heads: int) -> Tensor:
    """llama.cpp's ``LlamaModel.permute``: the two dimensions of a turning pair become neighbours."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def random_blocks(rows: int, width: int, kind: Type) -> np.ndarray:
    """Rows of random blocks: every bit pattern may occur, so scales may be infinite or no number."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    return np.random.default_rng(kind).integers(0, 256, (rows, width // block * size), dtype=np.uint8)
