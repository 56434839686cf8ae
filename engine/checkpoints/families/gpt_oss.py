"""gpt-oss as Hugging Face stores it: sinks, every second layer a window, YaRN, experts with biases. (OpenAI, 2025)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from engine.checkpoints.families.llama import BLOCK, IGNORED, OUTSIDE, canonical, stack
from engine.checkpoints.families.llama import IN_BLOCK as LLAMA
from engine.checkpoints.family import Family, Source, by_table, in_block
from engine.checkpoints.fields import Fields, short
from engine.checkpoints.traits import layer_kinds, layer_types, window
from engine.config import Experts, LayerKind, ModelConfig

if TYPE_CHECKING:
    from engine.checkpoints.files import Stored

IN_BLOCK = LLAMA | {"attn": "self_attn", "mlp.router": "mlp.router"}
YARN = {
    "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
    "original_max_position_embeddings": 4096,
}  # fmt: skip
"""The family's rotary scaling where a config names none."""


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``GptOssForCausalLM`` config.json. A key that it does not know is refused by name."""
    if not c.raw.get("rope_parameters") and not c.raw.get("rope_scaling"):
        c = Fields({**c.raw, "rope_parameters": YARN}, c.where)
    c.ignore("initial_context_length", "output_router_logits", "router_aux_loss_coef")
    c.only("hidden_act", "silu")
    c.only("swiglu_alpha", 1.702)
    _check_quantisation(c)
    fields = stack(c, n_ctx=131_072, kv=8, head=64, theta=150_000.0, eps=1e-5)
    turning, n_layers = fields.pop("rotary"), fields["n_layers"]
    usual = ["full_attention" if layer % 2 else "sliding_attention" for layer in range(n_layers)]
    kinds = {
        "sliding_attention": LayerKind(name="sliding", window=window(c, 128), rotary=turning),
        "full_attention": LayerKind(name="full", rotary=turning),
    }
    experts = Experts(
        n=c.size("num_local_experts", "num_experts", default=128),
        per_token=c.size("num_experts_per_tok", "experts_per_token", default=4),
        d_expert=fields["d_mlp"],
        routing="softmax of the chosen",
        router_bias=True,
        biased=True,
        clamp=c.positive("swiglu_limit", 7.0),
    )
    biased = c.get("attention_bias", True)
    read = ModelConfig.from_json(
        fields
        | layer_kinds(c, layer_types(c, n_layers, usual), kinds)
        | {
            "norm_casts_last": True,
            "attn_bias": biased,
            "attn_out_bias": biased,
            "attn_sinks": True,
            "experts": experts,
        }
        | c.token_ids()
    )
    c.done()
    return read


def _check_quantisation(c: Fields) -> None:
    given = c.get("quantization_config", {"quant_method": "mxfp4"})
    method = given.get("quant_method") if isinstance(given, Mapping) else given
    if method != "mxfp4":
        raise c.refusal(f"quantization_config asks for {short(method)}; supported is mxfp4, or no quantisation")


_named = by_table(OUTSIDE, BLOCK, IN_BLOCK)


def source(param: str, config: ModelConfig) -> Source:
    """Experts lie in one tensor for all, [expert, d_in, d_out], the columns of gate and up by turns."""
    found, e = in_block(param), config.experts
    if e is None or found is None or not found[1].startswith("mlp.experts."):
        return _named(param, config)
    layer, stem, kind = found
    number, part = stem.removeprefix("mlp.experts.").split(".")
    i, d_in, d_out = int(number), config.d_model, 2 * e.d_expert
    columns = slice(None)
    if part == "down":
        d_in, d_out = e.d_expert, config.d_model
    else:
        columns = slice(0 if part == "gate" else 1, None, 2)
    place = f"{BLOCK.format(layer)}.mlp.experts.{'down' if part == 'down' else 'gate_up'}_proj"
    if kind == "bias":
        return Source(f"{place}_bias", lambda x: x[i, columns], (e.n, d_out))
    return Source(place, lambda x: x[i, :, columns].t(), (e.n, d_in, d_out))


def _unpacked(files: Stored) -> Stored:
    from engine.checkpoints.mxfp4 import Dequantised  # torch, which reading a config does not need

    return Dequantised(files)


FAMILY = Family(config, source, canonical, IGNORED, _unpacked)
