"""Mixtral as Hugging Face stores it: Mistral with a mixture of experts in place of every FFN. (Jiang et al. 2024)"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.checkpoints.families.llama import BLOCK, IGNORED, IN_BLOCK, OUTSIDE, stack
from engine.checkpoints.families.llama import canonical as prefixed
from engine.checkpoints.family import Family, Source, by_table, in_block
from engine.checkpoints.fields import Fields
from engine.checkpoints.traits import window
from engine.config import Experts, ModelConfig


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``MixtralForCausalLM`` config.json. A key that it does not know is refused by name."""
    c.only("attention_bias", False)
    c.ignore("output_router_logits", "router_aux_loss_coef", "router_jitter_noise")
    fields = stack(c, n_ctx=131_072, kv=8, theta=1e6, eps=1e-5)
    experts = Experts(
        n=c.size("num_local_experts", "num_experts", default=8),
        per_token=c.size("num_experts_per_tok", default=2),
        d_expert=fields["d_mlp"],
    )
    read = ModelConfig.from_json(fields | {"window": window(c), "experts": experts} | c.token_ids(bos=1, eos=2))
    c.done()
    return read


def with_experts(
    named: Callable[[str, ModelConfig], Source], parts: Mapping[str, str]
) -> Callable[[str, ModelConfig], Source]:
    """``source`` of a family that has a tensor for each part of each expert, under the names that ``parts`` gives.

    transformers 5 can also write each part of all experts as one tensor, with the rows of gate and up after each other.
    """

    def source(param: str, config: ModelConfig) -> Source:
        found, e = in_block(param), config.experts
        if e is None or found is None or not found[1].startswith("mlp.experts."):
            return named(param, config)
        layer, stem, kind = found
        number, part = stem.removeprefix("mlp.experts.").split(".")
        place, i = f"{BLOCK.format(layer)}.mlp.experts", int(number)
        if part == "down":
            fused = Source(f"{place}.down_proj", lambda x: x[i], (e.n, config.d_model, e.d_expert))
        else:
            rows = slice(0, e.d_expert) if part == "gate" else slice(e.d_expert, None)
            fused = Source(f"{place}.gate_up_proj", lambda x: x[i, rows], (e.n, 2 * e.d_expert, config.d_model))
        return Source(f"{place}.{number}.{parts[part]}.{kind}", or_else=fused)

    return source


def canonical(name: str) -> str:
    """The published name; transformers 5 says mlp."""
    return prefixed(name).replace(".block_sparse_moe.", ".mlp.")


FAMILY = Family(
    config,
    with_experts(
        by_table(OUTSIDE, BLOCK, IN_BLOCK | {"mlp.router": "mlp.gate"}),
        {"gate": "w1", "up": "w3", "down": "w2"},
    ),
    canonical,
    IGNORED,
)
