"""StarCoder and SantaCoder (GPTBigCode) as Hugging Face stores them: GPT-2's block, but one key-value head for all
queries, and matrices as [out, in]."""

from __future__ import annotations

from engine.checkpoints.families.gpt2 import stack
from engine.checkpoints.family import Family, Source, by_table, in_block
from engine.checkpoints.fields import Fields
from engine.checkpoints.fused import QKV, fused_qkv
from engine.config import ModelConfig

OUTSIDE = {
    "embed.weight": "transformer.wte.weight",
    "pos_embed.weight": "transformer.wpe.weight",
    "ln_final.weight": "transformer.ln_f.weight",
    "ln_final.bias": "transformer.ln_f.bias",
    "unembed.weight": "lm_head.weight",
}
IN_BLOCK = {"ln1": "ln_1", "ln2": "ln_2", "attn.out": "attn.c_proj", "mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj"}
_plain = by_table(OUTSIDE, "transformer.h.{}", IN_BLOCK)


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``GPTBigCodeForCausalLM`` config.json. A key that it does not know is refused by name."""
    c.only("add_cross_attention", False)
    c.ignore(
        "attention_softmax_in_fp32", "inference_runner", "max_batch_size", "max_sequence_length", "n_ctx",
        "pad_key_length", "pre_allocate_kv_cache", "scale_attention_softmax_in_fp32", "summary_activation",
        "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj", "validate_runner_input",
    )  # fmt: skip
    fields = stack(c, "gelu_pytorch_tanh")
    kv_heads = 1 if c.only("multi_query", True, False) else fields["n_heads"]
    c.only("num_key_value_heads", kv_heads)  # follows from multi_query, and transformers 5 writes it as well
    read = ModelConfig.from_json(fields | {"n_kv_heads": kv_heads})
    c.done()
    return read


def source(param: str, config: ModelConfig) -> Source:
    """All queries, then the key and the value; or the three head by head, where each head has its own."""
    found = in_block(param)
    if found is not None and found[1] in QKV:
        layer, stem, kind = found
        return fused_qkv(f"transformer.h.{layer}.attn.c_attn.{kind}", stem, config, groups=config.kv_heads)
    return _plain(param, config)


def canonical(name: str) -> str:
    """Files of the bare model lack the prefix."""
    return name if name.startswith(("transformer.", "lm_head.")) else f"transformer.{name}"


FAMILY = Family(
    config,
    source,
    canonical,
    ignored=("transformer.bias", "transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias"),
)
