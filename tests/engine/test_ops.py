"""Every op against float64 or another algorithm, and what every op says of itself."""

import dataclasses
import importlib
import math
import pkgutil
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import ARCHITECTURES, BERT, EXPERTS, GPT2, SENTENCE, TRANSLATOR, gap, random_ids, tiny_config
from torch import Tensor

import engine.ops
from engine import build_program, trace
from engine.config import Rotary
from engine.edits import Edit
from engine.errors import KernelError
from engine.ops.attention import Append, Attention, Mask, Scale, Scores, Softmax, per_query_head
from engine.ops.base import Cost, Op, PassInfo
from engine.ops.edited import Edited
from engine.ops.embedding import Embed, LearnedPositions, ScaleEmbedding, SinusoidalPositions
from engine.ops.mask import attention_mask
from engine.ops.mlp import Activate, Gate
from engine.ops.norm import LayerNorm, NormScale, RMSNorm
from engine.ops.projection import HeadResult, Project, ProjectFromHeads, ProjectToHeads
from engine.ops.quantised import QuantisedAppend
from engine.ops.residual import Add, Carry, Multiply
from engine.ops.rotary import RotaryTable, Rotate
from engine.ops.unembed import Probabilities, Unembed

EXACT = 1e-13
NAN, INF = math.nan, math.inf


def rand(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def info(dtype: torch.dtype = torch.float64, **kinds) -> PassInfo:
    return PassInfo(dtype, **kinds)


def positions(*rows: list[int]) -> Tensor:
    return torch.tensor(rows)


# ----------------------------------------------------------------------------------------- embedding, positions


def test_embed_looks_rows_up():
    weight = rand(5, 3)
    out = Embed().run(info(), positions([4, 0, 4]), weight)
    assert torch.equal(out, torch.stack([weight[4], weight[0], weight[4]])[None])


# E12: the factor is rounded to the model's dtype before it is used.
@pytest.mark.parametrize(
    ("d_model", "dtype", "factor"),
    [
        (640, torch.bfloat16, 25.25), (768, torch.bfloat16, 27.75), (1152, torch.bfloat16, 34.0),
        (2304, torch.bfloat16, 48.0), (2560, torch.bfloat16, 50.5), (3072, torch.bfloat16, 55.5),
        (3584, torch.bfloat16, 59.75), (3840, torch.bfloat16, 62.0), (3072, torch.float16, 55.4375),
        (3072, torch.float64, math.sqrt(3072)),
    ],
)  # fmt: skip
def test_embedding_scale_is_rounded_to_the_dtype(d_model, dtype, factor):
    x = torch.arange(1, 65, dtype=dtype).view(1, 1, 64) / 8
    out = ScaleEmbedding(math.sqrt(d_model), d_model).run(info(dtype), x)
    assert out.tolist() == (x.double() * factor).to(dtype).tolist()
    assert out[0, 0, 7].item() == factor  # 1 · √d_model


def test_learned_positions_look_rows_up_and_padding_takes_row_0():
    weight = rand(4, 3)
    out = LearnedPositions().run(info(), positions([-1, 0, 3]), weight)
    assert torch.equal(out[0], weight[[0, 0, 3]])


@pytest.mark.parametrize("d", [1, 2, 7, 64])
def test_sinusoidal_positions_are_the_paper_s_formula(d):
    places = [0, 1, 2, 17, 511]
    out = SinusoidalPositions(d).run(info(torch.float32), positions(places))
    assert out.shape == (1, 5, d)
    for row, pos in enumerate(places):
        for j in range(d):
            i = j // 2
            angle = pos / 10_000 ** (2 * i / d)
            expected = math.sin(angle) if j % 2 == 0 else math.cos(angle)
            # float32 angles up to 511 are rounded by up to 2⁻¹⁶.
            assert out[0, row, j].item() == pytest.approx(expected, abs=4e-5)


def test_sinusoidal_positions_take_the_model_s_dtype():
    assert SinusoidalPositions(4).run(info(torch.bfloat16), positions([0, 1])).dtype is torch.bfloat16


# ------------------------------------------------------------------------------------------------------ rotary


@pytest.mark.parametrize("style", ["half", "interleaved"])
@pytest.mark.parametrize("theta", [10_000.0, 500_000.0])
def test_rotary_tables(theta, style):
    places, d = [0, 1, 5, 100, 2047], 8
    cos = RotaryTable("cos", Rotary(style=style, theta=theta), d).run(info(torch.bfloat16), positions(places))
    sin = RotaryTable("sin", Rotary(style=style, theta=theta), d).run(info(torch.bfloat16), positions(places))
    assert cos.dtype is sin.dtype is torch.float32  # whatever the model's dtype
    for row, pos in enumerate(places):
        for i in range(d // 2):
            angle = pos * theta ** (-2 * i / d)
            first, second = (i, i + d // 2) if style == "half" else (2 * i, 2 * i + 1)
            for dim, sign in ((first, -1), (second, 1)):
                assert cos[0, row, dim].item() == pytest.approx(math.cos(angle), abs=2e-4)
                assert sin[0, row, dim].item() == pytest.approx(sign * math.sin(angle), abs=2e-4)


def turned(x: Tensor, places: list[int], style: str, theta: float = 10_000.0) -> Tensor:
    """Rotation by complex numbers in float64. [batch pos head d_head]"""
    d = x.shape[-1]
    angle = torch.tensor(places).double()[:, None] * theta ** (-torch.arange(0, d, 2).double() / d)  # [pos d/2]
    a, b = x.double().chunk(2, -1) if style == "half" else (x.double()[..., ::2], x.double()[..., 1::2])
    z = torch.complex(a, b) * torch.polar(torch.ones_like(angle), angle)[:, None]
    return torch.cat((z.real, z.imag), -1) if style == "half" else torch.view_as_real(z).flatten(-2)


def rotate(x: Tensor, places: list[int], style: str) -> Tensor:
    d, at = x.shape[-1], positions(places)
    tables = [RotaryTable(function, Rotary(style=style), d).run(info(x.dtype), at) for function in ("cos", "sin")]
    return Rotate(Rotary(style=style)).run(info(x.dtype), x, *tables)


@pytest.mark.parametrize("style", ["half", "interleaved"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 1e-6), (torch.bfloat16, 4e-3)])
@pytest.mark.parametrize("places", [[0, 1, 2, 9], [0], [9]])  # a single position takes another road
def test_rotation_is_multiplication_by_a_complex_number(style, dtype, tolerance, places):
    x = rand(2, len(places), 3, 8, dtype=dtype)
    out = rotate(x, places, style)
    assert out.dtype is dtype
    assert gap(out, turned(x, places, style)) < tolerance
    assert places[0] or torch.equal(out[:, 0], x[:, 0])  # position 0 turns nothing


def test_the_rotation_is_rounded_once():
    # In bfloat16 the exact value, rounded once, is what comes out: no product is rounded on the way.
    x, places = rand(1, 6, 2, 16, dtype=torch.bfloat16), [0, 1, 2, 3, 4, 5]
    exact = turned(x, places, "half")
    assert (rotate(x, places, "half") == exact.to(torch.bfloat16)).float().mean() > 0.98


def test_half_and_interleaved_differ_by_a_permutation_only():
    x, places = rand(1, 5, 2, 10), [0, 1, 2, 3, 4]
    order = [i // 2 + (i % 2) * 5 for i in range(10)]  # interleaved dimension -> its place in halves
    assert torch.equal(rotate(x, places, "half")[..., order], rotate(x[..., order], places, "interleaved"))


@pytest.mark.parametrize("style", ["half", "interleaved"])
def test_a_score_depends_on_the_distance_alone(style):
    q, k = rand(1, 1, 1, 8), rand(1, 1, 1, 8, seed=1)

    def score(i: int, j: int) -> float:
        return float((rotate(q, [i], style) * rotate(k, [j], style)).sum())

    for distance in (0, 1, 6):
        assert score(distance, 0) == pytest.approx(score(distance + 40, 40), abs=1e-4)
    assert abs(score(0, 0) - score(6, 0)) > 1e-2


# ------------------------------------------------------------------------------------------------------- norms


def test_layer_norm_by_its_formula():
    x, w, b = rand(2, 3, 7) * 3 + 1, rand(7, seed=1), rand(7, seed=2)
    for vector, out in zip(x.flatten(0, 1), LayerNorm(1e-3).run(info(), x, w, b).flatten(0, 1), strict=True):
        values = vector.tolist()
        mean = math.fsum(values) / 7
        spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / 7 + 1e-3)
        expected = [(v - mean) / spread * w[i].item() + b[i].item() for i, v in enumerate(values)]
        assert out.tolist() == pytest.approx(expected, abs=1e-13)
    no_bias = LayerNorm(1e-3).run(info(), x, w)
    assert gap(no_bias + b, LayerNorm(1e-3).run(info(), x, w, b)) < EXACT


def test_rms_norm_by_its_formula():
    x, w = rand(2, 3, 7) * 3 + 1, rand(7, seed=1)
    for vector, out in zip(x.flatten(0, 1), RMSNorm(1e-3).run(info(), x, w).flatten(0, 1), strict=True):
        values = vector.tolist()
        size = math.sqrt(math.fsum(v * v for v in values) / 7 + 1e-3)
        assert out.tolist() == pytest.approx([v / size * w[i].item() for i, v in enumerate(values)], abs=1e-13)


@pytest.mark.parametrize("centred", [True, False])
def test_the_scale_is_what_the_norm_divides_by(centred):
    x = rand(2, 3, 7) * 5 + 2
    scale = NormScale(1e-2, centred).run(info(), x)
    assert scale.shape == (2, 3, 1)
    y = (LayerNorm if centred else RMSNorm)(1e-2).run(info(), x, torch.ones(7).double())
    assert gap(y * scale, x - x.mean(-1, keepdim=True) if centred else x) < 1e-12


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_norms_of_16_bit_are_taken_in_float32(dtype):
    # Values whose squares overflow float16: 300² = 90000.
    x = (rand(1, 4, 64) * 300).to(dtype)
    w = torch.ones(64, dtype=dtype)
    for op, centre in ((LayerNorm(1e-5), True), (RMSNorm(1e-5), False)):
        exact = x.double() - (x.double().mean(-1, keepdim=True) if centre else 0)
        exact = exact / torch.sqrt(exact.square().mean(-1, keepdim=True) + 1e-5)
        assert gap(op.run(info(dtype), x, w), exact) < 2 * torch.finfo(dtype).eps
    scale = NormScale(1e-5, False).run(info(dtype), x)
    assert scale.dtype is torch.float32
    assert gap(scale, x.double().square().mean(-1, keepdim=True).sqrt()) < 1e-5


# ------------------------------------------------------------------------------------------------- projections


@pytest.mark.parametrize("bias", [True, False])
def test_projections_are_sums_of_products(bias):
    x, w, b = rand(2, 3, 5), rand(6, 5, seed=1), rand(6, seed=2)
    params = (w, b) if bias else (w,)
    expected = (x[..., None, :] * w).sum(-1) + (b if bias else 0)
    assert gap(Project("up").run(info(), x, *params), expected) < EXACT
    heads = ProjectToHeads("query", 2).run(info(), x, *params)  # head h holds rows 2h, 2h + 1
    assert heads.shape == (2, 3, 3, 2)
    for h in range(3):
        assert gap(heads[:, :, h], expected[..., 2 * h : 2 * h + 2]) < EXACT
    z, w_o, b_o = rand(2, 3, 3, 2), rand(5, 6, seed=3), rand(5, seed=4)
    out = ProjectFromHeads("attn_out").run(info(), z, w_o, *((b_o,) if bias else ()))
    expected = (z.reshape(2, 3, 1, 6) * w_o).sum(-1) + (b_o if bias else 0)
    assert gap(out, expected) < EXACT


def test_the_heads_shares_add_up_to_attn_out():
    z, w, b = rand(2, 3, 4, 2), rand(5, 8, seed=1), rand(5, seed=2)
    shares = HeadResult().run(info(), z, w)
    assert shares.shape == (2, 3, 4, 5)
    for h in range(4):
        alone = torch.zeros_like(z)
        alone[:, :, h] = z[:, :, h]
        assert gap(shares[:, :, h], ProjectFromHeads("attn_out").run(info(), alone, w)) < EXACT
    assert gap(shares.sum(2) + b, ProjectFromHeads("attn_out").run(info(), z, w, b)) < EXACT


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_heads_shares_are_float32(dtype):
    z, w = rand(1, 3, 4, 8, dtype=dtype), rand(5, 32, seed=1, dtype=dtype)
    shares = HeadResult().run(info(dtype), z, w)
    assert shares.dtype is torch.float32
    exact = torch.einsum("bphd,mhd->bphm", z.double(), w.double().view(5, 4, 8))
    assert gap(shares, exact) < 1e-6


def test_unembed_and_probabilities():
    x, w, b = rand(1, 3, 4), rand(6, 4, seed=1), rand(6, seed=2)
    logits = Unembed(tied=False).run(info(), x, w, b)
    assert gap(logits, (x[..., None, :] * w).sum(-1) + b) < EXACT
    probs = Probabilities().run(info(), logits)
    for row, expected in zip(probs[0].tolist(), logits[0].tolist(), strict=True):
        total = math.fsum(map(math.exp, expected))
        assert row == pytest.approx([math.exp(v) / total for v in expected], abs=1e-14)
    assert Probabilities().run(info(), logits.bfloat16()).dtype is torch.float32


def test_residual_ops():
    x, f = rand(1, 2, 3), rand(1, 2, 3, seed=1)
    assert torch.equal(Add().run(info(), x, f), x + f)
    assert Carry().run(info(), x) is x  # another name, not a copy


def test_overflow_in_the_residual_stream_stays_visible():
    # E19: 58820 + 33760 is beyond float16.
    x, f = torch.tensor([[[58820.0]]]).half(), torch.tensor([[[33760.0]]]).half()
    assert Add().run(info(torch.float16), x, f).item() == INF


# --------------------------------------------------------------------------------------------------------- mlp

XS = [-3.0, -1.0, 0.5, 1.0, 3.0]
# E12's numbers; ReLU and SiLU by their definitions.
ACTIVATIONS = {
    "gelu": [-0.00405, -0.158655, 0.345731, 0.841345, 2.99595],
    "gelu_tanh": [-0.003637, -0.158808, 0.345714, 0.841192, 2.996363],
    "relu": [0.0, 0.0, 0.5, 1.0, 3.0],
    "silu": [x / (1 + math.exp(-x)) for x in XS],
}


@pytest.mark.parametrize("function", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_activations(function, dtype):
    x = torch.tensor([[XS]], dtype=dtype)
    assert Activate(function).run(info(dtype), x)[0, 0].tolist() == pytest.approx(ACTIVATIONS[function], abs=1e-6)
    up = torch.tensor([[[2.0, -3.0, 0.25, 1.0, 0.0]]], dtype=dtype)
    gated = Gate(function).run(info(dtype), x, up)[0, 0].tolist()
    assert gated == pytest.approx(
        [a * b for a, b in zip(ACTIVATIONS[function], up[0, 0].tolist(), strict=True)], abs=1e-6
    )
    assert x[0, 0].tolist() == XS  # nothing is written in place
    assert up[0, 0].tolist() == [2.0, -3.0, 0.25, 1.0, 0.0]


@given(x=st.floats(-30, 30))
def test_gelu_in_float64(x):
    out = Activate("gelu").run(info(), torch.tensor([[[x]]], dtype=torch.float64)).item()
    assert out == pytest.approx(x * 0.5 * math.erfc(-x / math.sqrt(2)), abs=1e-14)


# --------------------------------------------------------------------------------------------------- attention


def test_the_mask_of_a_chunk_after_three_tokens():
    # E2: two queries, five keys. Row 0 may see four, row 1 all five.
    mask = attention_mask(positions([3, 4]), positions([0, 1, 2, 3, 4]), causal=True)
    assert mask[0].int().tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]


def test_padding_sees_nothing_and_is_seen_by_nobody():
    places = positions([-1, -1, 0, 1])
    causal = attention_mask(places, places, causal=True)[0].int().tolist()
    assert causal == [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    both_ways = attention_mask(places, places, causal=False)[0].int().tolist()
    assert both_ways == [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]


@given(
    rows=st.lists(st.lists(st.integers(-1, 6), min_size=3, max_size=3), min_size=1, max_size=2),
    keys=st.lists(st.integers(-1, 6), min_size=4, max_size=4),
    causal=st.booleans(),
)
def test_the_mask_cell_by_cell(rows, keys, causal):
    mask = attention_mask(positions(*rows), positions(*[keys] * len(rows)), causal=causal)
    for b, row in enumerate(rows):
        for i, q in enumerate(row):
            for j, k in enumerate(keys):
                assert mask[b, i, j].item() == (q >= 0 and k >= 0 and (not causal or k <= q))


@pytest.mark.parametrize("kernel", ["auto", "math", "flash"])
def test_a_chunk_after_earlier_tokens_attends_to_the_newest_keys(kernel):
    # E2: uniform attention over values 0, 1, 2, 3, 4; a top-left aligned causal mask would give 0.0 and 0.5.
    values = torch.arange(5.0)[None, :, None, None].repeat(1, 1, 1, 4)
    q, k = torch.zeros(1, 2, 1, 4), torch.zeros(1, 5, 1, 4)
    op, keys = Attention(Scale(4), Mask(causal=True)), positions([0, 1, 2, 3, 4])
    z = op.run(info(torch.float32, kernel=kernel), q, k, values, positions([3, 4]), keys)
    assert z[0, :, 0, 0].tolist() == pytest.approx([1.5, 2.0])
    one = op.run(info(torch.float32, kernel=kernel), q[:, :1], k, values, positions([4]), keys)
    assert one[0, 0, 0, 0].item() == pytest.approx(2.0)


def naive(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    """Attention by einsum in float64; rows that may attend to nothing are zeros. [batch pos head d_head]"""
    share = q.shape[2] // k.shape[2]
    k, v = (x.double().repeat_interleave(share, 2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q.double(), k) / math.sqrt(q.shape[-1])
    weights = scores.exp() * allowed[:, None]
    total = weights.sum(-1, keepdim=True)
    return torch.einsum("bhqk,bkhd->bqhd", weights / total.where(total > 0, 1), v)


@given(
    kv_heads=st.integers(1, 3), group=st.integers(1, 3), d=st.integers(1, 9), past=st.integers(0, 4),
    new=st.integers(1, 5), pads=st.integers(0, 3), causal=st.booleans(),
    kernel=st.sampled_from(["auto", "math", "flash"]),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]), seed=st.integers(0, 9),
)  # fmt: skip
def test_attention_against_einsum(kv_heads, group, d, past, new, pads, causal, kernel, dtype, seed):
    heads, keys = kv_heads * group, past + new
    q = rand(2, new, heads, d, seed=seed, dtype=dtype) * 2
    k, v = (rand(2, keys, kv_heads, d, seed=seed + i, dtype=dtype) for i in (1, 2))
    pads = min(pads, keys)
    places = positions([-1] * pads + list(range(keys - pads)), list(range(keys)))
    allowed = attention_mask(places[:, past:], places, causal=causal)
    op = Attention(Scale(d), Mask(causal))
    z = op.run(info(dtype, dense=False, kernel=kernel), q, k, v, places[:, past:], places)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2}[dtype]
    assert z.shape == q.shape
    assert z.dtype is dtype
    assert gap(z, naive(q, k, v, allowed)) < tolerance
    assert not z[0, : max(0, pads - past)].any()  # padded queries: exactly zeros
    if not pads:  # nothing hidden but by order: lengths alone decide, and the result is the same
        dense = Attention(Scale(d), Mask(causal)).run(info(dtype, kernel=kernel), q, k, v, places[:, past:], places)
        assert gap(dense, z) < tolerance


def test_grouped_heads_share_in_order():
    # E16: 8 query heads, 2 key-value heads: heads 0 to 3 read the first. Tiling would be 3.28 off.
    q, k, v = rand(1, 4, 8, 6), rand(1, 4, 2, 6, seed=1), rand(1, 4, 2, 6, seed=2)
    places, op = positions([0, 1, 2, 3]), Attention(Scale(6), Mask(causal=True))
    grouped = op.run(info(), q, k, v, places, places)
    repeated = op.run(info(), q, k.repeat_interleave(4, 2), v.repeat_interleave(4, 2), places, places)
    assert gap(grouped, repeated) < EXACT
    assert gap(grouped, op.run(info(), q, k.repeat(1, 1, 4, 1), v.repeat(1, 1, 4, 1), places, places)) > 0.1
    assert torch.equal(per_query_head(k, 8)[:, :, 3], k[:, :, 0])
    assert torch.equal(per_query_head(k, 8)[:, :, 4], k[:, :, 1])


def cells(q: Tensor, k: Tensor, places: Tensor, keys: Tensor, causal: bool = True) -> dict[str, Tensor]:
    scores = Scores().run(info(q.dtype), q, k)
    scaled = Scale(q.shape[-1]).run(info(q.dtype), scores)
    masked = Mask(causal).run(info(q.dtype), scaled, places, keys)
    return {"scores": scores, "scaled": scaled, "masked": masked, "pattern": Softmax().run(info(q.dtype), masked)}


def test_scores_to_pattern_cell_by_cell():
    q, k, places = rand(2, 4, 6, 3), rand(2, 4, 2, 3, seed=1), positions([-1, 0, 1, 2], [0, 1, 2, 3])
    out = cells(q, k, places, places)
    for b in range(2):
        for h in range(6):
            for i in range(4):
                hidden = [bool(places[b, j] < 0 or places[b, i] < 0 or places[b, j] > places[b, i]) for j in range(4)]
                scores = [float(q[b, i, h] @ k[b, j, h // 3]) for j in range(4)]
                scaled = [s / math.sqrt(3) for s in scores]
                masked = [-INF if off else s for off, s in zip(hidden, scaled, strict=True)]
                total = math.fsum(math.exp(s) for s in masked)
                assert out["scores"][b, h, i].tolist() == pytest.approx(scores)
                assert out["scaled"][b, h, i].tolist() == pytest.approx(scaled)
                assert out["masked"][b, h, i].tolist() == pytest.approx(masked)
                pattern = out["pattern"][b, h, i].tolist()
                assert pattern == pytest.approx([math.exp(s) / total if total else 0.0 for s in masked])
                assert all(p == 0 for p, off in zip(pattern, hidden, strict=True) if off)  # exactly


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_what_is_looked_at_is_float32_at_least(dtype):
    q, k, places = rand(1, 3, 2, 4, dtype=dtype), rand(1, 3, 1, 4, seed=1, dtype=dtype), positions([0, 1, 2])
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    assert {name: x.dtype for name, x in cells(q, k, places, places).items()} == dict.fromkeys(
        ("scores", "scaled", "masked", "pattern"), wide
    )


def test_scores_of_float16_do_not_overflow():
    # E19: q and k near 300 over 80 dimensions give 7.2 million, beyond float16.
    q = torch.full((1, 1, 1, 80), 300.0).half()
    assert Scores().run(info(torch.float16), q, q).item() == 80 * 300.0**2


@pytest.mark.parametrize("kernel", ["auto", "math", "flash"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_rows_that_may_attend_to_nothing_are_zeros_everywhere(kernel, dtype):
    # E3: one convention for weights and kernel, and the other rows are not touched by it.
    q, k, v = (rand(2, 6, 2, 4, seed=i, dtype=dtype) for i in range(3))
    places = positions([-1, -1, -1, 0, 1, 2], [0, 1, 2, 3, 4, 5])
    z = Attention(Scale(4), Mask(True)).run(info(dtype, dense=False, kernel=kernel), q, k, v, places, places)
    pattern = cells(q, k, places, places)["pattern"]
    assert not z[0, :3].any()
    assert not pattern[0, :, :3].any()
    assert not pattern[0, :, :, :3].any()
    assert z.isfinite().all()
    assert gap(pattern[0, :, 3:].sum(-1), torch.ones(2, 3)) < 1e-6
    alone = Attention(Scale(4), Mask(True)).run(
        info(dtype, kernel=kernel), q[:1, 3:], k[:1, 3:], v[:1, 3:], places[:1, 3:], places[:1, 3:]
    )
    assert gap(z[:1, 3:], alone) < 8 * torch.finfo(dtype).eps


def test_a_forced_kernel_that_would_lose_a_nan_is_refused():
    q, k, v = (rand(1, 3, 1, 4, seed=i, dtype=torch.float32) for i in range(3))
    q[0, 1] = NAN
    places = positions([0, 1, 2])
    with pytest.raises(KernelError, match="loses NaN"):
        Attention(Scale(4), Mask(True)).run(info(torch.float32, kernel="flash"), q, k, v, places, places)


@pytest.mark.parametrize("kernel", ["auto", "math"])
def test_nan_in_gives_nan_out(kernel):
    # E19: never zeros, which would look like an answer.
    q, k, v = (rand(1, 3, 1, 4, seed=i, dtype=torch.float32) for i in range(3))
    q[0, 1] = NAN
    places = positions([0, 1, 2])
    for dense in (True, False):
        op = Attention(Scale(4), Mask(True))
        z = op.run(info(torch.float32, dense=dense, kernel=kernel), q, k, v, places, places)
        assert z[0, 1].isnan().all()
        assert z[0, [0, 2]].isfinite().all()
    pattern = cells(q, k, places, places)["pattern"]
    assert pattern[0, 0, 1, :2].isnan().all()
    assert pattern[0, 0, [0, 2]].isfinite().all()
    assert Softmax().run(info(), torch.full((1, 1, 1, 2), NAN)).isnan().all()


def test_softmax_of_large_scores():
    row = torch.tensor([[[[1e4, 1e4 - 1, -INF, -1e30]]]])
    expected = [1 / (1 + math.exp(-1)), math.exp(-1) / (1 + math.exp(-1)), 0.0, 0.0]
    assert Softmax().run(info(), row)[0, 0, 0].tolist() == pytest.approx(expected, abs=1e-6)


def test_the_cache_is_what_was_then_what_is_new():
    past, new = rand(2, 3, 1, 4), rand(2, 2, 1, 4, seed=1)
    assert torch.equal(Append("keys").run(info(), past, new), torch.cat((past, new), 1))
    assert Append("keys").run(info(), past[:, :0], new) is new


# ---------------------------------------------------------------------------------------------- cost and words


def test_flops_by_hand():
    x, stream = (2, 3, 8), [(2, 3, 8)]
    assert Embed().flops([(2, 3)], [(9, 8)], x) == 0
    assert Project("up").flops(stream, [(5, 8)], (2, 3, 5)) == 2 * (2 * 3) * 5 * 8  # a multiply and an add each
    assert ProjectToHeads("query", 4).flops(stream, [(8, 8)], (2, 3, 2, 4)) == 2 * 6 * 64
    assert Unembed(True).flops(stream, [(9, 8)], (2, 3, 9)) == 2 * 6 * 9 * 8
    assert Scores().flops([(2, 3, 4, 5), (2, 7, 2, 5)], [], (2, 4, 3, 7)) == 2 * (2 * 4 * 3 * 7) * 5
    assert HeadResult().flops([(2, 3, 4, 5)], [(8, 20)], (2, 3, 4, 8)) == 2 * (2 * 3) * 8 * 20
    assert Add().flops(stream * 2, [], x) == 2 * 3 * 8
    assert Carry().flops(stream, [], x) == 0
    # q kᵀ and p v: 2 · d each per cell, and about 4 for the softmax.
    attention = Attention(Scale(5), Mask(True))
    assert attention.flops([(2, 3, 4, 5), (2, 7, 2, 5)], [], (2, 3, 4, 5)) == (2 * 3 * 4 * 7) * (4 * 5 + 4)


def test_cost_counts_every_tensor_once():
    cost = Project("up").cost([(2, 3, 8)], [(5, 8), (5,)], (2, 3, 5), itemsize=2)
    assert cost == Cost(2 * 6 * 40, 2 * (48 + 40 + 5 + 30))
    assert cost + Cost(1, 2) == Cost(cost.flops + 1, cost.bytes + 2)


def test_a_program_s_flops_are_two_per_weight_and_token_and_the_attention():
    config = tiny_config(**ARCHITECTURES["gpt2"])
    program, n = build_program(config), 10
    matrices = sum(math.prod(s) for name, s in program.params.items() if len(s) == 2 and "embed" not in name)
    matrices += config.d_vocab * config.d_model  # the tied unembedding
    attention = config.n_layers * n * n * config.n_heads * (4 * config.d_head + 4)
    total = program.flops(config.axis_sizes(1, n))
    assert 2 * n * matrices + attention < total < 1.1 * (2 * n * matrices + attention)


def all_ops() -> list[Op]:
    """Every op of every kind of program, once, and those of what-ifs."""
    configs = [tiny_config(**traits) for traits in (*ARCHITECTURES.values(), SENTENCE, TRANSLATOR)]
    configs += [tiny_config(gated=gated, activation=a) for a in ACTIVATIONS for gated in (True, False)]
    ops = {repr(step.op): step.op for config in configs for step in build_program(config).steps}
    step = build_program(configs[0]).step("blocks.0.attn.z")
    assert step is not None
    edited = Edited(step.site, step.op, (Edit.parse("blocks.0.attn.z[h=1] *= -2"),))
    return [*ops.values(), QuantisedAppend("keys", 8, 32), QuantisedAppend("values", 4, 16), edited]


def test_all_ops_are_looked_at():
    files = [importlib.import_module(f"engine.ops.{file.name}") for file in pkgutil.iter_modules(engine.ops.__path__)]
    every = {kind for file in files for kind in vars(file).values() if isinstance(kind, type) and issubclass(kind, Op)}
    assert every - {Op} == {type(op) for op in all_ops()}


@pytest.mark.parametrize("op", all_ops(), ids=repr)
def test_every_op_speaks(op):
    text = op.text
    assert text.title
    assert text.formula
    assert text.latex
    sentences = [part for part in re.split(r"(?<=[.!?])\s+", text.story) if part]
    assert 2 <= len(sentences) <= 3
    assert all(sentence[0].isupper() or sentence[0] in "√θ" for sentence in sentences)
    assert text.story[-1] in ".!?"
    for line in (text.title, text.formula, text.latex, text.story):
        assert line == line.strip()
        assert "\n" not in line
        assert "  " not in line.replace(",  ", ", ")
    assert text.latex.count("{") == text.latex.count("}")
    assert text.latex.count(r"\left") - text.latex.count(r"\leftarrow") == text.latex.count(r"\right")
    assert text.latex.count(r"\begin") == text.latex.count(r"\end")
    assert op == dataclasses.replace(op)  # plain data


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_step_has_its_formula_s_numbers(name):
    config = tiny_config(**ARCHITECTURES[name])
    program = build_program(config)
    sizes = config.axis_sizes(1, 7, src=5)
    shapes = {site.name: program.shape(site, sizes) for site in program.sites}
    for step in program.steps:
        reads, params = [shapes[read] for read in step.reads], [program.params[param] for param in step.params]
        assert re.search(r"\d", step.op.numbers(reads, params, shapes[step.site.name])), step.site.name


@pytest.mark.parametrize(
    ("site", "traits", "formula"),
    [
        ("blocks.0.resid_pre", GPT2, "x = Σ eᵢ"),
        ("blocks.0.resid_mid", GPT2, "y = x + f(x)"),
        ("blocks.0.resid_post", GPT2 | {"parallel": "two norms"}, "y = x + attn_out + mlp_out"),
    ],
)
def test_a_sum_says_what_it_is_the_sum_of(site, traits, formula):
    assert story(site, **traits).startswith(f"{formula} | ")


def story(site: str, **traits) -> str:
    """What a step of a small program says of itself: formula and story."""
    step = build_program(tiny_config(**traits)).step(site)
    assert step is not None
    return f"{step.op.text.formula} | {step.op.text.story}"


@pytest.mark.parametrize("place", ["pre", "post", "sandwich", "output"])
@pytest.mark.parametrize("scale", [1.0, 0.5])
@pytest.mark.parametrize("sub", ["attn", "mlp"])
def test_only_what_is_added_says_that_it_is(place, scale, sub):
    traits = GPT2 | {"norm_place": place, "residual_scale": scale}
    if place in ("pre", "post") and scale == 1:
        assert "exactly what" in story(f"blocks.0.{sub}_out", **traits)
        return
    first = story(f"blocks.0.{sub}.out", **traits)
    assert first.startswith(f"{sub}.out = ")
    assert "exactly what" not in first
    assert "one more step" in first
    last = story(f"blocks.0.{sub}_out", **traits)
    assert "The block begins" not in last
    assert "multiplied" in last if scale != 1 else "what a sub-layer adds" in last


@pytest.mark.parametrize("place", ["pre", "sandwich"])
def test_a_head_s_share_is_of_what_its_projection_makes(place):
    said = story("blocks.0.attn.result", **GPT2, norm_place=place)
    assert said.endswith("it is attn_out." if place == "pre" else "it is attn.out.")
    assert ("adds to the residual stream" in said) == (place == "pre")


def test_an_expert_s_answer_is_one_of_several():
    said = story("blocks.0.mlp.expert_out", **EXPERTS)
    assert said.startswith("out_e = ")
    assert "one expert's answer; it is weighted and mixed" in said
    assert "adds to the residual stream" not in said
    assert story("blocks.0.mlp_out", **EXPERTS).endswith("adds to the residual stream.")
    assert "one more step" in story("blocks.0.mlp.out", **EXPERTS, norm_place="sandwich")


@pytest.mark.parametrize("name", ["q", "k", "v", "scores", "masked", "pattern", "z"])
def test_cross_attention_speaks_of_two_texts(name):
    said = story(f"blocks.0.cross_attn.{name}", **TRANSLATOR)
    assert "source" in said
    assert "both ways" not in said
    assert said != story(f"blocks.0.attn.{name}", **TRANSLATOR)
    assert ("encoder" in said) == (name in "qkv")


def test_a_mask_says_who_may_look_where():
    assert "never ahead" in story("blocks.0.attn.masked", **TRANSLATOR)
    both = story("encoder.blocks.0.attn.masked", **TRANSLATOR)
    assert "the same places of one text, and each may look at all of it: only padding is hidden" in both
    assert "even padding" in story("encoder.blocks.0.attn.scores", **TRANSLATOR)
    near = story("blocks.0.attn.masked", **BERT)
    assert "only padding" not in near
    assert "more than 2 positions away is hidden, and so is padding" in near
    q = torch.arange(6)[None]  # window 3
    assert attention_mask(q, q, causal=False, window=3)[0, 3].tolist() == [False, True, True, True, True, True]


def test_scores_that_are_not_scaled_are_said_to_be_so():
    assert TRANSLATOR["attn_scale"] == 1
    assert story("blocks.0.attn.scaled", **TRANSLATOR).startswith("scaled = score | ")
    assert story("blocks.0.attn.z", **TRANSLATOR).startswith("z = softmax(q kᵀ + bias) v")
    assert story("blocks.0.attn.scaled", attn_scale=0.5).startswith("scaled = score · scale | ")
    assert story("blocks.0.attn.scaled").startswith("scaled = score / √d_head | ")


@pytest.mark.parametrize(
    ("positions", "factor", "words", "missing"),
    [
        ("sinusoidal", 20**0.5, "position vector that is added next", "adds none"),
        ("rotary", 20**0.5, "This model adds none", "that is added next"),
        ("rotary", 12.0, "the size at which the residual stream begins", "2017"),
    ],
)
def test_a_scaled_embedding_says_what_comes_next(positions, factor, words, missing):
    said = story("embed_scaled", positions=positions, embed_scale=factor)
    assert words in said
    assert missing not in said


def test_logits_divided_by_the_width_say_so():
    said = story("logits", **TRANSLATOR, logit_scale=20**-0.5)
    assert said.startswith("y = x / √d_model | ")
    assert "the config gives" not in said
    assert Multiply(20**-0.5, "", 20).numbers([], [], ()) == "1/√d_model = 1/√20 = 0.223607"
    for traits in ({"logit_scale": 0.25}, {"logit_scale": 20**-0.5, "tied": False}):
        assert "the config gives" in story("logits", **TRANSLATOR, **traits)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_step_says_its_numbers(tiny, name):
    model = tiny(**ARCHITECTURES[name])
    t = trace(model, random_ids(model.config, 7))
    for step in model.program.steps:
        reads = [tuple(t.site(read, 0).shape) for read in step.reads]
        shape, params = t.shape(step.site.name), [model.program.params[p] for p in step.params]
        line = step.op.numbers(reads, params, shape)
        if not isinstance(step.op, Add | Carry):
            assert re.search(r"\d", line), step
            assert "\n" not in line
        assert step.op.flops(reads, params, shape) >= 0
        moved = step.op.cost(reads, params, shape, 4).bytes
        assert moved == 0 if step.op.alias(reads) is not None else moved >= 4 * math.prod(shape)


def test_numbers_of_some_steps():
    reads = [(1, 11, 128)]
    assert (
        Project("up").numbers(reads, [(384, 128), (384,)], (1, 11, 384))
        == "[11 × 128] · [128 × 384] + [384] → [11 × 384]"
    )
    assert ProjectToHeads("key", 16).numbers(reads, [(64, 128)], (1, 11, 4, 16)).endswith("= 4 heads of 16")
    assert Scale(16).numbers([], [], ()) == "√d_head = √16 = 4"
    assert Mask(True).numbers([], [], (1, 8, 11, 11)) == "11 queries × 11 keys"
    assert LayerNorm(1e-5).numbers(reads, [(128,)], (1, 11, 128)) == "d_model = 128, ε = 1e-05"


def test_a_lookup_is_charged_the_rows_that_it_reads():
    cost = Embed().cost([(2, 5)], [(1000, 8)], (2, 5, 8), 4)
    assert cost.bytes == 4 * (10 + 2 * 80)
    assert Append("keys").cost([(1, 0, 2, 4), (1, 3, 2, 4)], [], (1, 3, 2, 4), 4).bytes == 0


def test_attention_s_scratch_is_counted_where_a_mask_may_be_needed():
    shape = (2, 5, 4, 8)
    assert Attention(Scale(8), Mask(True)).scratch([shape, shape, shape], shape, 4) == 2 * 25 * 5
    alone = (1, 5, 4, 8)
    assert Attention(Scale(8), Mask(True)).scratch([alone, alone, alone], alone, 4) == 0
