"""Model folders for tests: what is in them, and what loading one comes to."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tiny import MODERN, random_weights, tiny_config

from engine import Model, ModelConfig, load_model
from engine.checkpoints.families.llama import FAMILY
from engine.errors import CheckpointError, ConfigError, DeviceError, MemoryLimitError, TokenizerError
from engine.text import display

NATIVE = {"model_type": "layerstep", "format_version": 1}
INDEX = "model.safetensors.index.json"
HOSTILE = "\x1b]0;PWNED\x07\x1b[5;5H\x9b31m\r\n\u202e\x00\ud83d"


def write(folder: Path, config: dict, tensors: dict[str, torch.Tensor] | None = None) -> Path:
    """A model folder."""
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    if tensors is not None:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder


def native(folder: Path, config: ModelConfig, dtype: torch.dtype = torch.float32) -> Path:
    return write(folder, NATIVE | config.to_json(), random_weights(config, dtype=dtype))


LLAMA = tiny_config(**MODERN)
LLAMA_JSON = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 37, "hidden_size": 20,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
    "intermediate_size": 26, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10_000.0,
    "hidden_act": "silu", "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": [2, 3],
}  # fmt: skip


def tensor_name(param: str) -> str:
    return FAMILY.source(param, LLAMA).name


def llama_tensors(config: ModelConfig = LLAMA, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    return {tensor_name(name): tensor for name, tensor in random_weights(config, dtype=dtype).items()}


def load(folder: Path, **options: str) -> Model:
    return load_model(folder, **({"device": "cpu"} | options))


def load_or_say_why(folder: Path, **options: str) -> Model | str:
    """The model, or the one clear line with which a folder is refused."""
    try:
        return load(folder, **options)
    except (CheckpointError, ConfigError, DeviceError, MemoryLimitError, TokenizerError) as error:
        text = str(error)
    assert text
    assert display(text) == text, repr(text)  # printable as it stands, on one line
    assert len(text) < 600
    return text


def refusal(folder: Path, **options: str) -> str:
    """The line with which a folder is refused, which it must be."""
    said = load_or_say_why(folder, **options)
    assert isinstance(said, str), "it was loaded"
    return said


def sharded(folder: Path, places: dict[str, str], extra: dict[str, str] | None = None) -> Path:
    """The Llama folder in shards: tensor name -> file; ``extra`` entries of the index have no tensor behind them."""
    tensors = llama_tensors()
    write(folder, LLAMA_JSON)
    for file in set(places.values()):
        (folder / file).parent.mkdir(exist_ok=True, parents=True)
        save_file({n: tensors[n] for n in places if places[n] == file}, folder / file)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places | (extra or {})}))
    return folder


HALVES = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(sorted(llama_tensors()))}
