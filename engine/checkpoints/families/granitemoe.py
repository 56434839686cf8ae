"""GraniteMoE: Granite whose FFN is a mixture of experts, all of a layer's in two tensors."""

from __future__ import annotations

from torch import Tensor

from engine.checkpoints.families.granite import multiplied
from engine.checkpoints.families.llama import BLOCK, IGNORED, IN_BLOCK, OUTSIDE
from engine.checkpoints.families.llama import canonical as prefixed
from engine.checkpoints.family import Family, Source, by_table, in_block
from engine.checkpoints.fields import Fields
from engine.config import ModelConfig

NAMED = by_table(OUTSIDE, BLOCK, IN_BLOCK | {"mlp.router": "block_sparse_moe.router.layer"})
NEWER = {
    "experts.gate_up_proj": "input_linear.weight",
    "experts.down_proj": "output_linear.weight",
    "router.weight": "router.layer.weight",
}
"""transformers 5's names in memory -> the files' names."""


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``GraniteMoeForCausalLM`` config.json. A key that it does not know is refused by name."""
    c.ignore("output_router_logits", "router_aux_loss_coef", "router_jitter_noise")
    experts = {
        "n": c.size("num_local_experts", default=8),
        "per_token": c.size("num_experts_per_tok", default=2),
        "d_expert": c.size("intermediate_size"),
        "routing": "softmax of the chosen",
    }
    read = ModelConfig.from_json(multiplied(c) | {"experts": experts})
    c.done()
    return read


def source(param: str, config: ModelConfig) -> Source:
    """The tensor of a weight; of an expert's, its slice of all experts', gate above up."""
    found = in_block(param)
    if found is None or not found[1].startswith("mlp.experts."):
        return NAMED(param, config)
    layer, stem, _ = found
    expert, part = stem.removeprefix("mlp.experts.").split(".")
    e = config.experts
    assert e is not None
    at, inner = f"{BLOCK.format(layer)}.block_sparse_moe", e.d_expert

    def pick(every: Tensor) -> Tensor:
        one = every[int(expert)]  # [2·d_expert d_model], or [d_model d_expert]
        return {"gate": one[:inner], "up": one[inner:], "down": one}[part]

    if part == "down":
        return Source(f"{at}.output_linear.weight", pick, (e.n, config.d_model, inner))
    return Source(f"{at}.input_linear.weight", pick, (e.n, 2 * inner, config.d_model))


def canonical(name: str) -> str:
    """The files' own spelling, and its prefix."""
    before, at, part = prefixed(name).partition(".block_sparse_moe.")
    return f"{before}{at}{NEWER.get(part, part)}"


FAMILY = Family(config, source, canonical, IGNORED)
