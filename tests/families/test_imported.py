"""What transformers returned, and what a cache of TransformerLens would hold of the same run, walked as a trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from against import gap, ids_for, random_reference, run_reference, saved
from torch import Tensor
from transformers import AutoModelForMaskedLM, BertConfig, Gemma2Config, GPT2Config, LlamaConfig, OPTConfig

from engine import Model, Trace, import_cache, import_file, import_transformers, load_model, open_trace, trace

N, CLOSE = 7, 1e-4
GPT2 = GPT2Config(vocab_size=30, n_positions=12, n_embd=20, n_layer=2, n_head=2)
LLAMA = LlamaConfig(
    vocab_size=30, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=6, max_position_embeddings=32,
)  # fmt: skip
GEMMA2 = Gemma2Config(
    vocab_size=30, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=6, sliding_window=4, query_pre_attn_scalar=6,
)  # fmt: skip
BERT = BertConfig(
    vocab_size=30, hidden_size=20, num_hidden_layers=2, num_attention_heads=2, intermediate_size=26,
    max_position_embeddings=16,
)  # fmt: skip
OPT = OPTConfig(
    vocab_size=30, hidden_size=20, num_hidden_layers=2, num_attention_heads=2, ffn_dim=26, word_embed_proj_dim=10,
    max_position_embeddings=16, do_layer_norm_before=False,
)  # fmt: skip
LAST = {
    "gpt2": "ln_final.normalized", "llama": "ln_final.normalized", "gemma2": "ln_final.normalized",
    "bert": "blocks.1.ln2.normalized", "opt": "embed_out",
}  # fmt: skip
"""What transformers' last hidden state is in each family. (E17)"""
CONFIGS = {"gpt2": GPT2, "llama": LLAMA, "gemma2": GEMMA2, "bert": BERT, "opt": OPT}


@contextmanager
def loaded(config: Any) -> Iterator[tuple[Any, Path, Model, list[int]]]:
    """transformers' model in float32, its folder, ours, and a prompt."""
    auto = AutoModelForMaskedLM if config is BERT else None
    theirs = random_reference(config, auto).float()
    with saved(theirs) as folder:
        yield theirs, folder, load_model(folder, dtype="float32"), ids_for(config, N)


def assert_near(t: Trace, own: Trace) -> None:
    for name, tensor in t.passes[0].kept.items():
        assert gap(tensor, own[name]) <= CLOSE, name


@pytest.mark.parametrize("name", CONFIGS)
def test_outputs_of_transformers(name, tmp_path):
    with loaded(CONFIGS[name]) as (theirs, folder, model, ids):
        out, own = run_reference(theirs, ids), trace(model, ids, keep=["*"])
        t = import_transformers(out, model, ids)
        assert_near(t, own)
        assert torch.equal(t[LAST[name]], out.hidden_states[-1])
        assert all(torch.equal(t[f"blocks.{i}.attn.pattern"], pattern) for i, pattern in enumerate(out.attentions))
        assert any("own run agrees" in notice for notice in t.notices)
        assert all(check.ok for check in t.checks())
        arrays = {f"hidden_states_{i}": state.numpy() for i, state in enumerate(out.hidden_states)}
        arrays |= {"attentions": torch.stack(out.attentions)[:, 0].numpy(), "input_ids": np.array(ids)}
        np.savez(tmp_path / "a.npz", **arrays)
        made = import_file(tmp_path / "a.npz", folder)
        assert made.left_out == {}
        made.trace.save(tmp_path / "a.trace.safetensors")
        opened = open_trace(tmp_path / "a.trace.safetensors", model)
        assert torch.equal(opened["blocks.1.attn.pattern"], out.attentions[1])
        if model.config.predicts:
            assert gap(opened["logits"], out.logits) <= CLOSE  # derived, by our weights, of their last state


def hooked(model: Any, places: dict[str, tuple[str, str]], ids: list[int]) -> dict[str, Tensor]:
    """A run with the inputs and outputs of modules noted, by other names: name -> (module, "in" or "out")."""
    found: dict[str, Tensor] = {}
    hooks = []
    for name, (where, side) in places.items():

        def note(module: Any, args: Any, kwargs: Any, out: Any, name: str = name, side: str = side) -> None:
            x = (args[0] if args else kwargs["hidden_states"]) if side == "in" else out
            found[name] = (x[0] if isinstance(x, tuple) else x).detach().clone()

        hooks.append(model.get_submodule(where).register_forward_hook(note, with_kwargs=True))
    run_reference(model, ids)
    for hook in hooks:
        hook.remove()
    return found


def test_a_cache_in_transformerlens_s_names_of_gpt2(tmp_path):
    with loaded(GPT2) as (theirs, folder, model, ids):
        places = {"hook_embed": ("transformer.wte", "out"), "hook_pos_embed": ("transformer.wpe", "out")}
        for i in range(2):
            block = f"transformer.h.{i}"
            places |= {
                f"blocks.{i}.hook_resid_pre": (block, "in"), f"blocks.{i}.hook_resid_post": (block, "out"),
                f"blocks.{i}.ln1.hook_normalized": (f"{block}.ln_1", "out"),
                f"blocks.{i}.attn.hook_qkv": (f"{block}.attn.c_attn", "out"),
                f"blocks.{i}.attn.hook_z": (f"{block}.attn.c_proj", "in"),
                f"blocks.{i}.hook_attn_out": (f"{block}.attn.c_proj", "out"),
                f"blocks.{i}.hook_resid_mid": (f"{block}.ln_2", "in"),
                f"blocks.{i}.mlp.hook_pre": (f"{block}.mlp.c_fc", "out"),
                f"blocks.{i}.mlp.hook_post": (f"{block}.mlp.c_proj", "in"),
                f"blocks.{i}.hook_mlp_out": (f"{block}.mlp.c_proj", "out"),
            }  # fmt: skip
        cache = hooked(theirs, places | {"ln_final.hook_normalized": ("transformer.ln_f", "out")}, ids)
        cache["hook_pos_embed"] = cache["hook_pos_embed"].reshape(1, N, 20)
        for i in range(2):
            heads = [x.unflatten(-1, (2, 10)) for x in cache.pop(f"blocks.{i}.attn.hook_qkv").split(20, -1)]
            cache |= {f"blocks.{i}.attn.hook_{x}": y for x, y in zip("qkv", heads, strict=True)}
            cache[f"blocks.{i}.attn.hook_z"] = cache[f"blocks.{i}.attn.hook_z"].unflatten(-1, (2, 10))
        np.savez(tmp_path / "cache.npz", **{name: x[0].numpy() for name, x in cache.items()}, tokens=np.array(ids))
        made = import_file(tmp_path / "cache.npz", folder)
        assert set(made.sites) == set(cache)
        assert made.left_out == {}
        t, out = made.trace, run_reference(theirs, ids)
        assert_near(t, trace(model, ids, keep=["*"]))
        assert all(check.ok for check in t.checks())
        assert {check.name for check in t.checks()} >= {
            "pattern @ v = z",
            "resid_pre + attn_out + mlp_out = resid_post",
        }
        for i, pattern in enumerate(out.attentions):  # derived, without a weight, of their queries and keys
            assert gap(t[f"blocks.{i}.attn.pattern"], pattern) <= CLOSE


def test_norms_that_are_folded_into_weights_are_seen():
    with loaded(GPT2) as (theirs, _, model, ids):
        places = {"resid": ("transformer.h.0.ln_1", "in"), "hook_embed": ("transformer.wte", "out")}
        cache = hooked(theirs, places, ids)
        x = cache.pop("resid")
        folded = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        t = import_cache(cache | {"blocks.0.ln1.hook_normalized": folded}, model, ids)
        assert any("1 of 2 tensors are not those of" in notice and "folded" in notice for notice in t.notices)
