"""Small models with random weights, and random architectures, for tests."""

from functools import lru_cache

import torch
from hypothesis import strategies as st

from engine import Model, ModelConfig, build_program

MODERN = {
    "positions": "rotary", "norm": "rms", "n_kv_heads": 2, "activation": "silu", "gated": True, "norm_eps": 1e-6,
}  # fmt: skip
CLASSIC = {
    "positions": "sinusoidal", "norm_place": "post", "activation": "relu", "embed_scale": "sqrt_d_model",
    "attn_bias": True, "attn_out_bias": True, "mlp_bias": True,
}  # fmt: skip
GPT2 = {"positions": "learned", "activation": "gelu_tanh", "attn_bias": True, "attn_out_bias": True, "mlp_bias": True}
ENCODER = CLASSIC | {"positions": "learned", "causal": False, "activation": "gelu", "embed_scale": "none"}
INTERLEAVED = MODERN | {"rotary_style": "interleaved", "tied": False, "n_kv_heads": 1}
BARE = {"positions": "none", "norm_bias": False, "gated": True, "activation": "gelu", "unembed_bias": True}

ARCHITECTURES = {
    "modern": MODERN, "classic": CLASSIC, "gpt2": GPT2, "encoder": ENCODER, "interleaved": INTERLEAVED, "bare": BARE,
}  # fmt: skip
CAUSAL = {name: traits for name, traits in ARCHITECTURES.items() if traits.get("causal", True)}


def tiny_config(**traits) -> ModelConfig:
    """A small config; d_head is not d_model / n_heads, and no two sizes are equal: none can stand for another."""
    sizes = {
        "name": "tiny", "d_vocab": 37, "d_model": 20, "n_layers": 2, "n_heads": 4, "d_head": 6, "d_mlp": 26,
        "n_ctx": 64,
    }  # fmt: skip
    return ModelConfig(**(sizes | traits))


def random_weights(config: ModelConfig, seed: int = 0, dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    """Weights of every shape that the program asks for, large enough that attention is far from uniform."""
    draw = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in build_program(config).params.items():
        values = torch.randn(shape, generator=draw, dtype=torch.float64)
        if name == "embed.weight" and config.embed_scale != "none":
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


@st.composite
def configs(draw: st.DrawFn, causal: bool | None = None) -> ModelConfig:
    """Any architecture that a config can say, in small sizes."""
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
        rotary_style=draw(st.sampled_from(["half", "interleaved"])),
        rotary_theta=draw(st.sampled_from([100.0, 10_000.0, 500_000.0])),
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
        embed_scale=draw(st.sampled_from(["none", "sqrt_d_model"])),
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
