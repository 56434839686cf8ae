"""What every family has to show, beside transformers' own run of the very same files.

A family's test draws a config, and calls ``check_family``: transformers saves a random model of it, the engine opens
the folder, and then logits, hidden states and attention matrices are compared in float64, float32 and bfloat16;
chunks, single tokens, padding and batches with one full pass; and every invariant that the engine shows is checked.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine import Model, Trace, extend, load_model, trace

FLOAT64 = 2e-6
"""Where transformers itself computes parts in float32, whatever the model's dtype: norms, softmax, rotary tables."""
EXACT = 1e-12
"""Where it does not."""
FLOAT32 = 1e-4
BFLOAT16 = 0.25
"""bfloat16 has 8 bits: 0.4 % a rounding, over some dozen roundings, on attention that is far from uniform."""


def gap(ours: Tensor, theirs: Tensor) -> float:
    """max |ours − theirs| relative to the larger of 1 and max |theirs|."""
    assert ours.shape == theirs.shape, f"{list(ours.shape)} is not {list(theirs.shape)}"
    ours, theirs = ours.double(), theirs.double()
    return float((ours - theirs).abs().max()) / max(1.0, float(theirs.abs().max())) if theirs.numel() else 0.0


def random_reference(config: Any, auto: Any = None, seed: int = 0, gain: float = 1.5) -> Any:
    """transformers' model of a config, eager and float64, with weights so large that attention is far from uniform.

    ``auto`` is the Auto class; AutoModelForCausalLM by default. Every parameter is drawn anew, vectors too, so that no
    bias is zero and no norm's weight is one. The numbers are such that bfloat16 holds them: all dtypes have one model.
    """
    import transformers

    auto = auto or transformers.AutoModelForCausalLM
    model = auto.from_config(config, attn_implementation="eager").double().eval()
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            values = torch.randn(weight.shape, dtype=torch.float64)
            if weight.dim() >= 2 and "embed" not in name.lower() and "wte" not in name:
                values *= gain / weight.shape[-1] ** 0.5
            elif weight.dim() < 2:
                values = 0.25 * values + (float(weight.mean()) if "norm" in name.lower() or "ln" in name else 0.0)
            weight.copy_(values.bfloat16())
    model.tie_weights()
    return model


@contextmanager
def saved(model: Any, dtype: torch.dtype = torch.float32) -> Iterator[Path]:
    """The folder that transformers writes for a model."""
    folder = Path(tempfile.mkdtemp(prefix="family-"))
    try:
        _copy_as(model, dtype).save_pretrained(folder)
        yield folder
    finally:
        shutil.rmtree(folder)


def _copy_as(model: Any, dtype: torch.dtype) -> Any:
    """The same model in another dtype; the one given is left as it is."""
    from copy import deepcopy

    if dtype is torch.float64:
        return model
    copy = deepcopy(model).to(dtype)
    for (name, ours), theirs in zip(copy.named_buffers(), model.buffers(), strict=True):
        if "inv_freq" in name:  # from_pretrained leaves them in float32, so the copy must not round them
            ours.data = theirs.data.clone()
    return copy


def ids_for(config: Any, n: int, seed: int = 0) -> list[int]:
    """A random prompt, without padding: RoBERTa's own code would take that token out of the count of positions."""
    draw = torch.Generator().manual_seed(1000 + seed)
    pad = getattr(config, "pad_token_id", None)
    ids = torch.randint(config.vocab_size, (n,), generator=draw).tolist()
    return [(i + 1) % config.vocab_size if i == pad else i for i in ids]


@torch.no_grad()
def run_reference(model: Any, ids: Sequence[int], positions: Sequence[int] | None = None) -> Any:
    """transformers' outputs, with hidden states and attentions."""
    places = {} if positions is None else {"position_ids": torch.tensor([list(positions)])}
    return model(
        torch.tensor([list(ids)]), output_hidden_states=True, output_attentions=True, use_cache=False, **places
    )


def states(t: Trace) -> list[Tensor]:
    """The engine's residual stream where transformers has ``hidden_states``: before each block, and at the end."""
    names = [f"blocks.{layer}.resid_pre" for layer in range(t.config.n_layers)]
    last = "ln_final.normalized" if t.config.final_norm else t.program.edges[len(names)]
    return [t[name] for name in (*names, "embed_out" if t.config.d_embed and t.config.predicts else last)]


def patterns(t: Trace) -> list[Tensor]:
    """The engine's attention matrices, layer by layer."""
    return [t[f"blocks.{layer}.attn.pattern"] for layer in range(t.config.n_layers)]


def assert_equal_outputs(t: Trace, out: Any, tolerance: float, exact: Any = None) -> None:
    """Logits, every hidden state and every attention matrix.

    transformers loses bits as well: an output may differ from its where it is as near to ``exact``, transformers'
    output in float64, as the tolerance or as twice what transformers' own is off.
    """
    ours = {f"hidden state {i}": state for i, state in enumerate(states(t))}
    ours |= {f"attention of layer {i}": pattern for i, pattern in enumerate(patterns(t))}
    ours |= {"logits": t["logits"]} if t.config.predicts is not None else {}

    def outputs(out: Any) -> list[Tensor]:
        return [*out.hidden_states, *out.attentions, *([out.logits] if "logits" in ours else [])]

    for (name, x), theirs, truth in zip(ours.items(), outputs(out), outputs(exact or out), strict=True):
        apart = gap(x, theirs)
        near = exact is not None and gap(x, truth) <= max(tolerance, 2 * gap(theirs, truth))
        assert apart <= tolerance or near, f"{name}: {apart:.1e}"


def assert_checks_hold(t: Trace) -> None:
    """Every invariant that the engine shows."""
    failed = [check for check in t.checks() if not check.ok]
    assert not failed, failed[0].text
    for layer in range(t.config.n_layers):  # attn_out and mlp_out are exactly what is added, in every family
        block = f"blocks.{layer}"
        if t.config.norm_place != "post":
            total = t[f"{block}.resid_pre"] + t[f"{block}.attn_out"] + t[f"{block}.mlp_out"]
            assert gap(total, t[f"{block}.resid_post"]) <= 4 * torch.finfo(total.dtype).eps


def assert_any_split_is_the_same(model: Model, ids: Sequence[int], tolerance: float = EXACT) -> None:
    """Chunks and single tokens after a prefill; left and right padding in a batch: all equal to one full pass."""
    ids = list(ids)
    n, whole = len(ids), trace(model, ids)
    last = whole.program.edges[model.config.n_layers]
    if model.config.causal:
        cuts = [[n // 2], [1, n - 1], list(range(1, n))]
        for cut in cuts:
            t = trace(model, ids[: cut[0]])
            for start, stop in pairwise([*cut, n]):
                t = extend(model, t, ids[start:stop])
            assert gap(t[last], whole[last]) <= tolerance
            for layer in range(model.config.n_layers):
                pattern = f"blocks.{layer}.attn.pattern"
                assert gap(t[pattern], whole[pattern]) <= tolerance
    for side in ("left", "right"):
        batch = trace(model, [ids[: n // 2 + 1], ids], padding=side)
        real = n // 2 + 1
        rows = slice(n - real, n) if side == "left" else slice(0, real)
        alone = trace(model, ids[:real])
        assert gap(batch[last][0, rows], alone[last][0]) <= tolerance, side
        assert gap(batch[last][1], whole[last][0]) <= tolerance, side


def check_family(
    config: Any,
    *,
    seed: int = 0,
    tolerance: float = FLOAT64,
    bfloat16: float = BFLOAT16,
    n: int = 9,
    auto: Any = None,
    gain: float = 1.5,
    dtype: torch.dtype = torch.float32,
    positions: Sequence[int] | None = None,
) -> Model:
    """All of it, for one config; the float64 model as the engine opened it."""
    reference = random_reference(config, auto, seed, gain)
    ids = ids_for(config, n, seed)
    with saved(reference, dtype) as folder:
        ours = load_model(folder, device="cpu", dtype="float64")
        t = trace(ours, ids, positions=positions)
        exact = run_reference(reference, ids, positions)
        assert_equal_outputs(t, exact, tolerance)
        assert_checks_hold(t)
        if positions is None:
            assert_any_split_is_the_same(ours, ids)
        for name, allowed in (("float32", FLOAT32), ("bfloat16", bfloat16)):
            model = load_model(folder, device="cpu", dtype=name)
            theirs = run_reference(_copy_as(reference, getattr(torch, name)), ids, positions)
            assert_equal_outputs(trace(model, ids, positions=positions), theirs, allowed, exact)
    return ours
