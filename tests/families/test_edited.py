"""A what-if beside transformers, whose module is hooked to change the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch
from against import EXACT, FLOAT64, gap, ids_for, random_reference, run_reference, saved
from torch import Tensor
from transformers import GPT2Config, LlamaConfig

from engine import load_model, trace

N = 7
GPT2 = GPT2Config(vocab_size=30, n_positions=12, n_embd=20, n_layer=2, n_head=2)
LLAMA = LlamaConfig(
    vocab_size=30, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=6, max_position_embeddings=32,
)  # fmt: skip

Change = Callable[[Tensor], None]
"""Changes a tensor in place."""


def zero(*where: Any) -> Change:
    return lambda x: x[where].fill_(0)


def times(by: float, *where: Any) -> Change:
    return lambda x: x[where].mul_(by)


def plus(by: float, *where: Any) -> Change:
    return lambda x: x[where].add_(by)


ALL, GROUP = slice(None), slice(6, 12)
EDITS = {
    "gpt2": [
        ("pos_embed = 0", "transformer.wpe", "out", zero(...)),
        ("blocks.1.resid_pre[p=2:5,d=7:] += 1", "transformer.h.1", "in", plus(1, ALL, slice(2, 5), slice(7, None))),
        ("blocks.1.attn.z[h=1] = 0", "transformer.h.1.attn.c_proj", "in", zero(..., slice(10, 20))),
        ("blocks.0.attn.k[g=1,p=3] *= 3", "transformer.h.0.attn.c_attn", "out", times(3, ALL, 3, slice(30, 40))),
        ("blocks.0.attn_out[p=6] *= -1", "transformer.h.0.attn.c_proj", "out", times(-1, ALL, 6)),
        ("blocks.1.mlp.post[d=33] = 2", "transformer.h.1.mlp.c_proj", "in", lambda x: x[..., 33].fill_(2)),
        ("ln_final.normalized[d=4:] *= 0.5", "transformer.ln_f", "out", times(0.5, ..., slice(4, None))),
    ],
    "llama": [
        ("embed[p=0] *= 2", "model.embed_tokens", "out", times(2, ALL, 0)),
        ("blocks.0.ln1.normalized[d=3] += 1", "model.layers.0.input_layernorm", "out", plus(1, ..., 3)),
        ("blocks.0.attn.v[g=1,p=1:] = 0", "model.layers.0.self_attn.v_proj", "out", zero(ALL, slice(1, 9), GROUP)),
        ("blocks.1.attn.z[h=3] = 0", "model.layers.1.self_attn.o_proj", "in", zero(..., slice(18, 24))),
        ("blocks.1.mlp.pre[d=7] *= 3", "model.layers.1.mlp.gate_proj", "out", times(3, ..., 7)),
        ("blocks.0.mlp_out = 0", "model.layers.0.mlp", "out", zero(...)),
        ("logits[v=5] += -2", "lm_head", "out", plus(-2, ..., 5)),
    ],
}  # fmt: skip


@contextmanager
def changed(model: Any, where: str, side: str, change: Change) -> Iterator[None]:
    """The model with one module's input or output changed."""

    def on_input(module: Any, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x = args[0].clone()
        change(x)
        return (x, *args[1:])

    def on_output(module: Any, args: Any, out: Tensor) -> Tensor:
        change(out := out.clone())
        return out

    module = model.get_submodule(where)
    hook = module.register_forward_pre_hook(on_input) if side == "in" else module.register_forward_hook(on_output)
    try:
        yield
    finally:
        hook.remove()


@pytest.mark.parametrize(("config", "edits"), [(GPT2, EDITS["gpt2"]), (LLAMA, EDITS["llama"])], ids=["gpt2", "llama"])
def test_logits_are_those_of_transformers_with_the_same_change(config, edits):
    tolerance = EXACT if config is GPT2 else FLOAT64
    theirs, ids = random_reference(config), ids_for(config, N)
    plain = run_reference(theirs, ids).logits
    with saved(theirs, torch.float64) as folder:
        model = load_model(folder, dtype="float64")
        unedited = trace(model, ids)
        for edit, where, side, change in edits:
            with changed(theirs, where, side, change):
                expected = run_reference(theirs, ids).logits
            assert gap(plain, expected) > 1e-3, f"{edit} has no effect there"
            assert gap(unedited.edit(edit)["logits"], expected) <= tolerance, edit
        texts = [edit for edit, *_ in edits]
        with ExitStack() as stack:
            for _, where, side, change in edits:
                stack.enter_context(changed(theirs, where, side, change))
            expected = run_reference(theirs, ids).logits
        assert gap(trace(model, ids, edits=texts)["logits"], expected) <= tolerance
