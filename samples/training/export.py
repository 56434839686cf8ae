"""Writes a trained model as a folder, and reads one back.

`modern` becomes an ordinary Hugging Face Llama folder; `classic`, for which no such class exists, gets the
project's own format: `config.json` in the engine's words, weights named `blocks.L.attn.q.weight` and so on.
"""

import json
import shutil
from math import sqrt
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from samples.training.models import Classic, Modern, Shape, build
from samples.training.prepare import BOS, EOS, PAD, SPECIAL

TOKENS = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
LLAMA_NAMES = {
    "embed": "model.embed_tokens",
    "ln_final": "model.norm",
    "ln1": "input_layernorm",
    "ln2": "post_attention_layernorm",
    "attn.q": "self_attn.q_proj",
    "attn.k": "self_attn.k_proj",
    "attn.v": "self_attn.v_proj",
    "attn.out": "self_attn.o_proj",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
}
SHIPPED_DTYPE = "float16"
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def llama_name(name: str) -> str:
    """Our weight name in Hugging Face's words."""
    module, _, suffix = name.rpartition(".")
    if not module.startswith("blocks."):
        return f"{LLAMA_NAMES[module]}.{suffix}"
    _, layer, part = module.split(".", 2)
    return f"model.layers.{layer}.{LLAMA_NAMES[part]}.{suffix}"


def llama_config(shape: Shape, dtype: str) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.d_vocab,
        "hidden_size": shape.d_model,
        "intermediate_size": shape.d_mlp,
        "num_hidden_layers": shape.n_layers,
        "num_attention_heads": shape.n_heads,
        "num_key_value_heads": shape.n_kv_heads,
        "head_dim": shape.d_head,
        "max_position_embeddings": shape.n_ctx,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_theta,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "torch_dtype": dtype,
        **TOKENS,
    }


def classic_config(shape: Shape) -> dict[str, object]:
    return {
        "model_type": "layerstep",
        "format_version": 1,
        "name": "classic",
        "d_vocab": shape.d_vocab,
        "d_model": shape.d_model,
        "n_layers": shape.n_layers,
        "n_heads": shape.n_heads,
        "n_kv_heads": shape.n_kv_heads,
        "d_head": shape.d_head,
        "d_mlp": shape.d_mlp,
        "n_ctx": shape.n_ctx,
        "positions": "sinusoidal",
        "norm": "layer",
        "norm_eps": shape.norm_eps,
        "norm_place": "post",
        "causal": True,
        "activation": "relu",
        "gated": False,
        "attn_bias": True,
        "attn_out_bias": True,
        "mlp_bias": True,
        "norm_bias": True,
        "embed_scale": sqrt(shape.d_model),
        "tied": True,
        **TOKENS,
    }


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def write(model: Classic | Modern, folder: Path, tokenizer: Path, dtype: str = "float32") -> None:
    """Write config, weights and tokenizer into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    is_llama = isinstance(model, Modern)
    weights = {
        llama_name(name) if is_llama else name: tensor.detach().to(DTYPES[dtype]).contiguous()
        for name, tensor in model.state_dict().items()
    }
    for name, tensor in weights.items():
        if not tensor.isfinite().all():
            raise ValueError(f"{name} is not finite in {dtype}")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    write_json(folder / "config.json", llama_config(model.shape, dtype) if is_llama else classic_config(model.shape))
    shutil.copyfile(tokenizer, folder / "tokenizer.json")
    bos, eos, pad = SPECIAL
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": bos,
            "eos_token": eos,
            "pad_token": pad,
            "model_max_length": model.shape.n_ctx,
            "clean_up_tokenization_spaces": False,
        },
    )


def stored_dtype(folder: Path) -> str:
    """The dtype of the weights in a model folder, by its name in torch."""
    first = next(iter(load_file(folder / "model.safetensors").values()))
    return str(first.dtype).removeprefix("torch.")


def read_shape(config: dict[str, object]) -> Shape:
    if config["model_type"] == "llama":
        fields: tuple[str, ...] = (
            "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
            "intermediate_size", "max_position_embeddings", "rope_theta", "rms_norm_eps",
        )  # fmt: skip
        return Shape("modern", *(config[field] for field in fields))  # type: ignore[arg-type]
    fields = ("d_vocab", "d_model", "n_layers", "n_heads", "n_kv_heads", "d_mlp", "n_ctx")
    return Shape("classic", *(config[field] for field in fields))  # type: ignore[arg-type]


def read(folder: Path) -> Classic | Modern:
    """The model of a folder that `write` wrote, in float32."""
    model = build(read_shape(json.loads((folder / "config.json").read_text(encoding="utf-8"))))
    stored: dict[str, Tensor] = load_file(folder / "model.safetensors")
    is_llama = isinstance(model, Modern)
    names = {name: llama_name(name) if is_llama else name for name in model.state_dict()}
    if set(names.values()) != set(stored):
        raise ValueError(f"{folder}: other weights than expected: {set(names.values()) ^ set(stored)}")
    model.load_state_dict({ours: stored[theirs].float() for ours, theirs in names.items()})
    return model.eval()
