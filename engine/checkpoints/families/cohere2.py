"""Cohere 2 (Command R7B): Cohere whose layers see a window with rotary positions, or everything without any."""

from __future__ import annotations

from engine.checkpoints.families.cohere import NAMED, side_by_side
from engine.checkpoints.families.llama import IGNORED, canonical
from engine.checkpoints.family import Family
from engine.checkpoints.fields import Fields
from engine.checkpoints.traits import layer_kinds, layer_types
from engine.config import LayerKind, ModelConfig

FULL, SLIDING = "full_attention", "sliding_attention"


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``Cohere2ForCausalLM`` config.json. A key that it does not know is refused by name."""
    c.only("head_dim", c.size("hidden_size") // c.size("num_attention_heads"))
    c.only("use_qk_norm", False)
    for key in ("use_embedding_sharing", "use_gated_activation", "use_parallel_block"):
        c.only(key, True)
    c.only("position_embedding_type", "rope_gptj")
    c.only("rotary_pct", 1.0)
    c.only("order_of_interleaved_layers", "local_attn_first")
    c.ignore("cache_implementation", "model_max_length", "use_parallel_embedding")
    fields = side_by_side(c, 10_000.0)
    rotary, n_layers = fields.pop("rotary"), fields["n_layers"]
    every = c.size("sliding_window_pattern", default=4)
    c.only("layer_switch", every)
    names = layer_types(c, n_layers, [SLIDING if (i + 1) % every else FULL for i in range(n_layers)])
    if SLIDING in names and c.raw.get("sliding_window", 4096) is None:
        raise c.refusal("sliding_window must be a number where a layer is of sliding_attention, but is null")
    kinds = {
        SLIDING: LayerKind(name="sliding", window=c.size("sliding_window", default=4096), rotary=rotary),
        FULL: LayerKind(name="full"),
    }
    turning = {"positions": "rotary" if SLIDING in names else "none"}
    read = ModelConfig.from_json(fields | turning | layer_kinds(c, names, kinds))
    c.done()
    return read


FAMILY = Family(config, NAMED, canonical, IGNORED)
