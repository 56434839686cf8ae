"""Small models with random weights, and random architectures, for tests."""

from dataclasses import replace
from functools import lru_cache

import torch
from hypothesis import strategies as st

from engine import Model, ModelConfig, build_program
from engine.config import Experts, LayerKind, Rotary

MODERN = {
    "positions": "rotary", "norm": "rms", "n_kv_heads": 2, "activation": "silu", "gated": True, "norm_eps": 1e-6,
}  # fmt: skip
CLASSIC = {
    "positions": "sinusoidal", "norm_place": "post", "activation": "relu", "embed_scale": 20**0.5,
    "attn_bias": True, "attn_out_bias": True, "mlp_bias": True,
}  # fmt: skip
GPT2 = {"positions": "learned", "activation": "gelu_tanh", "attn_bias": True, "attn_out_bias": True, "mlp_bias": True}
ENCODER = CLASSIC | {"positions": "learned", "causal": False, "activation": "gelu", "embed_scale": 1.0}
INTERLEAVED = MODERN | {"rotary": Rotary(style="interleaved"), "tied": False, "n_kv_heads": 1}
BARE = {"positions": "none", "norm_bias": False, "gated": True, "activation": "gelu", "unembed_bias": True}

GEMMA = MODERN | {
    "norm_place": "sandwich", "norm_plus_one": True, "norm_casts_last": True, "activation": "gelu_tanh",
    "embed_scale": 20**0.5, "attn_scale": 0.3, "attn_softcap": 5.0, "logit_softcap": 3.0, "qk_norm": "head",
    "kinds": (
        LayerKind(name="near", window=3, rotary=Rotary(theta=100.0)),
        LayerKind(name="far", rotary=Rotary(scaling="linear", factor=8.0)),
    ),
    "layer_kinds": ("near", "far"),
}  # fmt: skip
EXPERTS = MODERN | {
    "experts": Experts(n=4, per_token=2, d_expert=10, routing="softmax of the chosen", router_bias=True, biased=True,
                       clamp=1.5, dense_layers=(1,)),
    "attn_sinks": True, "window": 4, "norm_casts_last": True,
}  # fmt: skip
ALIBI = {
    "positions": "alibi", "alibi_slopes": (0.5, 0.25, 0.125, 0.0625), "embed_norm": True, "qk_norm": "heads",
    "parallel": "two norms", "norm_bias": False, "qkv_clip": 2.0, "activation": "gelu_quick",
}  # fmt: skip
MULTIPLIED = MODERN | {
    "rotary": Rotary(dims=4, style="interleaved"),
    "parallel": "one norm",
    "residual_scale": 0.5,
    "logit_scale": 0.25,
    "norm": "layer",
    "norm_weight": False,
    "attn_scale_by_layer": True,
}
LONGER = MODERN | {  # rotary angles that depend on the prompt's length
    "kinds": (
        LayerKind(name="grown", rotary=Rotary(scaling="dynamic", factor=2.0, original_n_ctx=8)),
        LayerKind(name="long", rotary=Rotary(scaling="longrope", original_n_ctx=8, attention_factor=1.2,
                                             short_factors=(1.0, 1.5, 2.0), long_factors=(2.0, 3.0, 5.0))),
    ),
    "layer_kinds": ("grown", "long"),
}  # fmt: skip
NARROW = GPT2 | {"d_embed": 8, "position_offset": 2, "norm_place": "output", "norm": "rms", "qk_norm": "all"}
BERT = ENCODER | {"head": "transform", "token_types": 2, "embed_norm": True, "unembed_bias": True, "window": 3}
SENTENCE = ENCODER | {
    "head": "none", "pooling": "mean", "pool_layers": ((20, 12), (12, 9)), "pool_normalise": True, "norm_place": "pre",
    "first_norm": False,
}  # fmt: skip
TRANSLATOR = {
    "encoder_layers": 2, "decoder_start_token_id": 0, "positions": "relative", "relative_buckets": 8,
    "relative_distance": 20, "norm": "rms", "attn_scale": 1.0,
}  # fmt: skip

PLAIN = {
    "modern": MODERN, "classic": CLASSIC, "gpt2": GPT2, "encoder": ENCODER, "interleaved": INTERLEAVED, "bare": BARE,
}  # fmt: skip
ARCHITECTURES = PLAIN | {
    "gemma": GEMMA, "experts": EXPERTS, "alibi": ALIBI, "multiplied": MULTIPLIED, "narrow": NARROW, "bert": BERT,
}  # fmt: skip
CAUSAL = {name: traits for name, traits in ARCHITECTURES.items() if traits.get("causal", True)}


def tiny_config(**traits) -> ModelConfig:
    """A small config; d_head is not d_model / n_heads, and no two sizes are equal: none can stand for another."""
    sizes = {
        "name": "tiny", "d_vocab": 37, "d_model": 20, "n_layers": 2, "n_heads": 4, "d_head": 6, "d_mlp": 26,
        "n_ctx": 64,
    }  # fmt: skip
    traits = sizes | traits
    if kinds := traits.get("layer_kinds"):  # in turn, however many layers there are
        traits["layer_kinds"] = tuple(kinds[i % len(kinds)] for i in range(traits["n_layers"]))
    if (experts := traits.get("experts")) and traits["n_layers"] == 1:
        traits["experts"] = replace(experts, dense_layers=())
    return ModelConfig(**traits)


def random_weights(config: ModelConfig, seed: int = 0, dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    """Weights of every shape that the program asks for, large enough that attention is far from uniform."""
    draw = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in build_program(config).params.items():
        values = torch.randn(shape, generator=draw, dtype=torch.float64)
        if name == "embed.weight" and config.embed_scale != 1:
            values /= config.d_model**0.5  # as in 2017: scaled up again when they are looked up
        elif len(shape) == 2 and not name.endswith("embed.weight"):
            values *= (2 if ".attn." in name else 1) / shape[1] ** 0.5
        elif len(shape) == 1:
            values = 0.2 * values + (1 if name.endswith("weight") else 0)
        weights[name] = values.to(dtype)
    return weights


def random_model(config: ModelConfig, seed: int = 0, dtype: torch.dtype = torch.float64) -> Model:
    """A model of this config with random weights."""
    return Model.from_weights(config, random_weights(config, seed, dtype))


@lru_cache(maxsize=64)
def _cached(seed: int, dtype: torch.dtype, traits: tuple[tuple[str, object], ...]) -> Model:
    return random_model(tiny_config(**dict(traits)), seed, dtype)


def tiny(seed: int = 0, dtype: torch.dtype = torch.float64, **traits) -> Model:
    """A small model of these traits (``**MODERN``, ``**CLASSIC`` …) with random weights; the same one each time."""
    return _cached(seed, dtype, tuple(sorted(traits.items())))


def random_ids(config: ModelConfig, n: int, seed: int = 0) -> list[int]:
    """A random prompt."""
    draw = torch.Generator().manual_seed(1000 + seed)
    return torch.randint(config.d_vocab, (n,), generator=draw).tolist()


def rotaries() -> st.SearchStrategy[Rotary]:
    return st.builds(
        Rotary, style=st.sampled_from(["half", "interleaved"]), theta=st.sampled_from([100.0, 10_000.0, 500_000.0])
    )


@st.composite
def configs(draw: st.DrawFn, causal: bool | None = None) -> ModelConfig:
    """Any architecture that a config can say, in small sizes."""
    c = draw(plain_configs(causal))
    flag, number = st.booleans(), st.sampled_from([None, 0.5, 2.0])
    traits: dict = {
        "norm_place": (place := draw(st.sampled_from([c.norm_place, "sandwich", "output"]))),
        "parallel": draw(st.sampled_from(["no", "one norm", "two norms"])) if place in ("pre", "sandwich") else "no",
        "qk_norm": draw(st.sampled_from(["none", "none", "head", "heads", "all"])),
        "norm_plus_one": draw(flag),
        "norm_casts_last": draw(flag),
        "norm_weight": draw(flag),
        "embed_norm": draw(flag),
        "token_types": draw(st.sampled_from([0, 2])),
        "d_embed": draw(st.sampled_from([None, 3])),
        "position_offset": draw(st.sampled_from([0, 2])) if c.positions == "learned" else 0,
        "attn_softcap": draw(number),
        "attn_scale": draw(number),
        "attn_scale_by_layer": draw(flag),
        "attn_sinks": draw(flag),
        "qkv_clip": draw(number),
        "residual_scale": draw(st.sampled_from([1.0, 0.5])),
        "logit_scale": draw(st.sampled_from([1.0, 0.25])),
        "logit_softcap": draw(number),
        "head": draw(st.sampled_from(["unembed", "transform"])),
    }
    if draw(flag):
        n = draw(st.integers(1, 4))
        traits["experts"] = draw(
            st.builds(
                Experts, n=st.just(n), per_token=st.integers(1, n), d_expert=st.integers(1, 6),
                routing=st.sampled_from(["softmax", "softmax of the chosen"]), normalised=flag, biased=flag,
                router_bias=flag, clamp=number, dense_layers=st.sampled_from([(), (0,)]),
            )
        )  # fmt: skip
    if c.positions == "none" and draw(flag):
        traits |= {"positions": "alibi", "alibi_slopes": tuple(0.5**h for h in range(c.n_heads))}
    windows = st.sampled_from([None, 1, 2, 3])
    if draw(flag):
        kinds = tuple(
            LayerKind(name=name, window=draw(windows), rotary=draw(rotaries()) if c.rotary else None) for name in "ab"
        )
        traits |= {"kinds": kinds, "rotary": None}
        traits["layer_kinds"] = tuple(draw(st.sampled_from("ab")) for _ in range(c.n_layers))
    else:
        traits["window"] = draw(windows)
    return replace(c, **traits)


@st.composite
def plain_configs(draw: st.DrawFn, causal: bool | None = None) -> ModelConfig:
    """Any architecture of the 2017 paper's and Llama's kind, in small sizes."""
    kv_heads = draw(st.integers(1, 3))
    group = draw(st.integers(1, 3))
    positions = draw(st.sampled_from(["none", "learned", "sinusoidal", "rotary"]))
    flag = st.booleans()
    return ModelConfig(
        name="drawn",
        d_vocab=draw(st.integers(3, 30)),
        d_model=draw(st.integers(4, 20)),
        n_layers=draw(st.integers(1, 3)),
        n_heads=kv_heads * group,
        n_kv_heads=kv_heads,
        d_head=2 * draw(st.integers(1, 4)) if positions == "rotary" else draw(st.integers(1, 8)),
        d_mlp=draw(st.integers(1, 24)),
        n_ctx=32,
        positions=positions,
        rotary=draw(rotaries()) if positions == "rotary" else None,
        norm=draw(st.sampled_from(["layer", "rms"])),
        norm_eps=draw(st.sampled_from([1e-5, 1e-6, 1e-2])),
        norm_place=draw(st.sampled_from(["pre", "post"])),
        norm_bias=draw(flag),
        final_norm=draw(st.sampled_from([None, True, False])),
        causal=draw(flag) if causal is None else causal,
        attn_bias=draw(flag),
        attn_out_bias=draw(flag),
        activation=draw(st.sampled_from(["relu", "gelu", "gelu_tanh", "silu"])),
        gated=draw(flag),
        mlp_bias=draw(flag),
        embed_scale=draw(st.sampled_from([1.0, 3.5])),
        tied=draw(flag),
        unembed_bias=draw(flag),
    )


def gap(a: torch.Tensor, b: torch.Tensor) -> float:
    """max |a − b| relative to the larger of 1 and max |b|; NaN where either holds one. Shapes must be equal."""
    assert a.shape == b.shape, f"{list(a.shape)} is not {list(b.shape)}"
    if not a.numel():
        return 0.0
    a, b = a.double(), b.double()
    finite = b.where(b.isfinite(), 0).abs().max()
    return float((a - b).masked_fill(a == b, 0).abs().max()) / max(1.0, float(finite))  # −∞ equals −∞
