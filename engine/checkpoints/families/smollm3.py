"""SmolLM3 as Hugging Face stores it: Llama, in which every fourth layer has no positions. (NoPE: Yang et al. 2025)"""

from __future__ import annotations

from engine.checkpoints.families.llama import BLOCK, IGNORED, IN_BLOCK, OUTSIDE, canonical, stack
from engine.checkpoints.family import Family, by_table
from engine.checkpoints.fields import Fields, short
from engine.checkpoints.traits import layer_kinds, layer_types, window
from engine.config import LayerKind, ModelConfig

NOPE = "_nope"
"""What marks the kinds of layers without positions."""


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``SmolLM3ForCausalLM`` config.json. A key that it does not know is refused by name."""
    c.ignore("max_window_layers", "pretraining_tp")  # in published files; transformers does not read them
    fields = stack(c, n_ctx=32_768, kv=4, theta=2e6)
    turning, n_layers = fields.pop("rotary"), fields["n_layers"]
    turns, width = _turns(c, n_layers), window(c)
    windowed = c.only("use_sliding_window", False, True) and width is not None
    usual = ["sliding_attention" if windowed and not turn else "full_attention" for turn in turns]
    kinds = {
        f"{name}{suffix}": LayerKind(name=f"{name.removesuffix('_attention')}{suffix}", window=seen, rotary=turn)
        for name, seen in (("full_attention", None), ("sliding_attention", width))
        for suffix, turn in (("", turning), (NOPE, None))
    }
    types = layer_types(c, n_layers, usual)
    names = [f"{name}{'' if turn else NOPE}" for name, turn in zip(types, turns, strict=True)]
    biased = c.get("attention_bias", False)
    read = ModelConfig.from_json(
        fields
        | layer_kinds(c, names, kinds)
        | {
            "positions": "rotary" if any(turns) else "none",
            "attn_bias": biased,
            "attn_out_bias": biased,
            "mlp_bias": c.get("mlp_bias", False),
            "tied": c.get("tie_word_embeddings", True),
        }
        | c.token_ids(bos=128_000, eos=128_001, pad=128_004)
    )
    c.done()
    return read


def _turns(c: Fields, n_layers: int) -> list[bool]:
    """Which layers have rotary positions: those with a 1 in ``no_rope_layers``, whose name says the opposite."""
    every = c.size("no_rope_layer_interval", default=4)
    given = c.get("no_rope_layers")
    if given is None:
        return [(layer + 1) % every != 0 for layer in range(n_layers)]
    if not isinstance(given, list) or len(given) < n_layers or any(flag not in (0, 1) for flag in given):
        raise c.refusal(f"no_rope_layers must be 0 or 1 for each of {n_layers} layers, but is {short(given)}")
    return [bool(flag) for flag in given[:n_layers]]


FAMILY = Family(config, by_table(OUTSIDE, BLOCK, IN_BLOCK), canonical, IGNORED)
