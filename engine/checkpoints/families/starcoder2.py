"""StarCoder2 as Hugging Face stores it: LayerNorm, biases everywhere, RoPE, GQA, a window. (Lozhkov et al. 2024)"""

from __future__ import annotations

from engine.checkpoints.families.llama import BLOCK, IGNORED, OUTSIDE, canonical, stack
from engine.checkpoints.families.llama import IN_BLOCK as LLAMA
from engine.checkpoints.family import Family, by_table
from engine.checkpoints.fields import Fields
from engine.checkpoints.traits import activation, window
from engine.config import ModelConfig

IN_BLOCK = LLAMA | {"mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj"}
OUTSIDE_BIASED = OUTSIDE | {"ln_final.bias": "model.norm.bias"}


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``Starcoder2ForCausalLM`` config.json. A key that it does not know is refused by name."""
    c.only("mlp_type", "default")
    c.only("norm_type", "layer_norm")
    c.ignore("residual_dropout", "embedding_dropout")
    c.ignore(  # in published files; transformers does not read them
        "activation_function", "attention_softmax_in_fp32", "layer_norm_epsilon", "scale_attention_softmax_in_fp32",
        "scale_attn_weights",
    )  # fmt: skip
    biased = c.get("use_bias", True)
    read = ModelConfig.from_json(
        stack(c, n_ctx=4096, kv=2)
        | {
            "norm": "layer",
            "norm_eps": c.get("norm_epsilon", 1e-5),
            "window": window(c),
            "attn_bias": biased,
            "attn_out_bias": biased,
            "mlp_bias": biased,
            "activation": activation(c, "hidden_act", "gelu_pytorch_tanh"),
            "gated": False,
            "tied": c.get("tie_word_embeddings", True),
        }
        | c.token_ids(bos=50256, eos=50256)
    )
    c.done()
    return read


FAMILY = Family(config, by_table(OUTSIDE_BIASED, BLOCK, IN_BLOCK), canonical, IGNORED)
