"""Attention kernels: they agree, the trace names the one that ran, and one that cannot says why. CUDA at the end."""

import itertools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from tiny import ARCHITECTURES, CLASSIC, GPT2, MODERN, gap, random_ids, random_model, tiny_config
from torch import Tensor
from torch.nn.attention import SDPBackend
from torch.profiler import ProfilerActivity, profile

from engine import Model, extend, load_model, plan_trace, trace
from engine.errors import KernelError, PromptError
from engine.ops import kernels
from engine.ops.base import PassInfo

OPS = {  # what torch calls its kernels
    "flash": ("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention"),
    "efficient": ("_scaled_dot_product_efficient_attention",),
    "cudnn": ("_scaled_dot_product_cudnn_attention",),
    "math": ("_scaled_dot_product_attention_math",),
}


def ran(model: Model, prompt: object, **options: object) -> tuple[set[str], object]:
    """The kernels that a pass really called, as torch's profiler saw them, and its trace."""
    trace(model, prompt, **options)  # a kernel is tried once before it is chosen
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        t = trace(model, prompt, **options)
    called = {event.key.removeprefix("aten::") for event in prof.key_averages()}
    return {name for name, ops in OPS.items() if called & set(ops)}, t


@pytest.mark.parametrize("kernel", ["auto", "flash", "math"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["modern", "gpt2", "encoder"])
def test_the_trace_names_the_kernel_that_ran(tiny, name, dtype, kernel):
    model = tiny(**ARCHITECTURES[name], dtype=dtype)
    for prompt in (random_ids(model.config, 6), [random_ids(model.config, 6), [1, 2]]):
        called, t = ran(model, prompt, kernel=kernel)
        assert called == set(t.kernels)
        if kernel != "auto":
            assert t.kernels == (kernel,)
        assert {p.info.kernel for p in t.passes} == {kernel}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_kernels_agree(tiny, name, dtype):
    model, exact = tiny(**ARCHITECTURES[name], dtype=dtype), tiny(**ARCHITECTURES[name])
    prompts = [random_ids(model.config, 9), random_ids(model.config, 4, 1)]
    reference = trace(model, prompts, kernel="math")
    written_out = model.config.attn_softcap is not None or model.config.attn_sinks
    assert reference.kernels == ("explicit" if written_out else "math",)
    for kernel in ("auto", "flash"):
        if written_out and kernel == "flash":
            with pytest.raises(KernelError, match="'flash' cannot run here: no fused kernel has a s"):
                trace(model, prompts, kernel=kernel)
            continue
        t = trace(model, prompts, kernel=kernel)
        assert gap(t["blocks.0.attn.z"], reference["blocks.0.attn.z"]) < 4 * torch.finfo(dtype).eps
        assert not [check.text for check in t.checks() if not check.ok]
        if dtype is not torch.bfloat16:
            assert gap(t["logits"], trace(exact, prompts, kernel="math")["logits"]) < 200 * torch.finfo(dtype).eps


def test_shared_key_heads_are_not_copied_where_the_kernel_can_share(tiny):
    model = tiny(**MODERN, dtype=torch.float32)
    ids = random_ids(model.config, 6)
    trace(model, ids)
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        t = trace(model, ids)
    assert t.kernels == ("flash",)
    assert "aten::repeat_interleave" not in {event.key for event in prof.key_averages()}


@pytest.mark.parametrize("kernel", ["auto", "flash"])
def test_shared_key_heads_are_repeated_where_only_that_keeps_a_fused_kernel(tiny, monkeypatch, kernel):
    # E16: as on CUDA, where some kernels cannot share: heads 0 and 1 read the first key-value head, not 0 and 2.
    model = tiny(**MODERN)
    ids = random_ids(model.config, 9)
    reference = trace(model, ids, kernel=kernel)
    choice, attention = torch._fused_sdp_choice, kernels.scaled_dot_product_attention

    def cannot_share(q, k, v, *args, enable_gqa=False, **options):
        return int(SDPBackend.MATH.value) if enable_gqa else choice(q, k, v, *args, **options)

    def refuses_to_share(*args, enable_gqa=False, **options):
        if enable_gqa:
            raise RuntimeError("No available kernel. Aborting execution.")
        return attention(*args, **options)

    monkeypatch.setattr(torch, "_fused_sdp_choice", cannot_share)
    monkeypatch.setattr(kernels, "scaled_dot_product_attention", refuses_to_share)
    t = trace(model, ids, kernel=kernel)
    assert t.kernels == ("flash",)
    assert gap(t["logits"], reference["logits"]) <= 1e-12
    assert not [check.text for check in t.checks() if not check.ok]


def test_a_trace_of_several_passes_names_all_kernels(tiny):
    model = tiny(**MODERN)
    t = extend(model, trace(model, [1, 2, 3], kernel="math"), [4])
    assert t.kernels == ("math",)  # it goes on with the kernel that was asked for
    # Where attention did not run, no kernel did; and deriving z later is not what ran.
    t = trace(model, [1, 2], keep=["embed"])
    assert t.kernels == ()
    t["blocks.0.attn.z"]
    assert t.kernels == ()


@pytest.mark.parametrize("kernel", ["efficient", "cudnn"])
def test_a_kernel_that_cannot_run_here_says_why(tiny, kernel):
    with pytest.raises(KernelError) as error:
        trace(tiny(**MODERN), [1, 2, 3], kernel=kernel)
    assert f"kernel {kernel!r} runs on CUDA only and this model is on the cpu" in str(error.value)
    assert "\n" not in str(error.value)


def test_unknown_kernels_are_refused(tiny):
    for kernel in ("fast", "", "FLASH", "\x1b[31mmath"):
        with pytest.raises(PromptError, match="is not known; known are auto, flash, efficient, cudnn, math") as error:
            trace(tiny(**MODERN), [1], kernel=kernel)
        assert str(error.value).isprintable()


def test_torch_s_own_reason_is_handed_on_in_one_line(tiny, monkeypatch):
    def refuse(*args: object, **kwargs: object) -> None:
        warnings.warn("Flash attention kernel not used because: (Triggered internally at a.cpp:99.)", stacklevel=1)
        reason = "Expected query to be of a dtype in {Half, BFloat16}.\nGot: float"
        warnings.warn(f"{reason} (Triggered internally at b.h:1.)", stacklevel=1)
        raise RuntimeError("No available kernel. Aborting execution.")

    monkeypatch.setattr(kernels, "scaled_dot_product_attention", refuse)
    with pytest.raises(KernelError) as error:
        trace(tiny(**MODERN), [1, 2, 3], kernel="flash")
    text = str(error.value)
    assert "kernel 'flash' cannot run here" in text
    assert "Expected query to be of a dtype in {Half, BFloat16}" in text
    assert "Triggered" not in text
    assert "\n" not in text
    assert "use kernel auto" in text


def test_causal_by_shape_only_where_the_block_is_square(tiny, monkeypatch):
    # E2: torch aligns is_causal with the first key; it must not be given where there is a past or padding.
    seen: list[tuple[bool, bool, int, int]] = []
    original = kernels.scaled_dot_product_attention

    def spy(q, k, v, mask, **options):
        seen.append((options["is_causal"], mask is not None, q.shape[2], k.shape[2]))
        return original(q, k, v, mask, **options)

    monkeypatch.setattr(kernels, "scaled_dot_product_attention", spy)

    def calls(run) -> set[tuple[bool, bool, int, int]]:
        seen.clear()
        run()
        return set(seen)

    model, encoder = tiny(**MODERN, n_layers=1), tiny(**ARCHITECTURES["encoder"], n_layers=1)
    first = trace(model, [1, 2, 3])
    assert calls(lambda: trace(model, [1, 2, 3])) == {(True, False, 3, 3)}
    assert calls(lambda: trace(encoder, [1, 2, 3])) == {(False, False, 3, 3)}
    # One token sees all, so there is no mask at all; two heads that share their keys are rows of one product.
    assert calls(lambda: extend(model, first, [4])) == {(False, False, 2, 4)}
    assert calls(lambda: trace(model, [1])) == {(False, False, 2, 1)}
    assert calls(lambda: extend(model, first, [4, 5])) == {(False, True, 2, 5)}
    assert calls(lambda: trace(model, [[1, 2, 3], [4]])) == {(False, True, 3, 3)}
    assert calls(lambda: trace(encoder, [[1, 2, 3], [4]])) == {(False, True, 3, 3)}
    assert calls(lambda: trace(model, [1, 2, 3], positions=[5, 0, 2])) == {(False, True, 3, 3)}


def one_query(batch: int, heads: int, kv_heads: int, keys: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """A query for each head, and keys and values as a cache holds them, one head's positions side by side."""
    torch.manual_seed(keys)
    k, v = (torch.randn(batch, kv_heads, keys + 3, 8, dtype=dtype)[:, :, :keys].transpose(1, 2) for _ in range(2))
    return torch.randn(batch, 1, heads, 8, dtype=dtype), k, v


def mask_of(kind: str, batch: int, heads: int, keys: int, dtype: torch.dtype) -> Tensor | None:
    if kind == "none":
        return None
    if kind == "a bias for each head":
        return torch.randn(batch, heads, 1, keys, dtype=dtype)
    allowed = torch.rand(batch, 1, 1, keys) > 0.4
    allowed[-1] = kind != "a row without any key"
    return allowed


@pytest.mark.parametrize("kernel", ["auto", "flash", "math"])
@pytest.mark.parametrize("kind", ["none", "padding", "a row without any key", "a bias for each head"])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (6, 1), (3, 3)])
def test_one_query_over_shared_keys_is_softmax_over_each_heads_own(heads, kv_heads, kind, kernel):
    for batch, keys, dtype in itertools.product((1, 2), (1, 5, 700), (torch.float32, torch.float64)):
        q, k, v = one_query(batch, heads, kv_heads, keys, dtype)
        mask = mask_of(kind, batch, heads, keys, dtype)
        z = kernels.fused_attention(
            PassInfo(dtype, kernel=kernel), q, k, v, mask, is_causal=mask is None and keys == 1, scale=0.3, own=True
        )
        assert z.shape == q.shape
        for b, h in itertools.product(range(batch), range(heads)):
            kv_head = h // (heads // kv_heads)
            scores = 0.3 * k[b, :, kv_head].double() @ q[b, 0, h].double()
            if mask is not None:
                row = mask[b, h if mask.shape[1] > 1 else 0, 0]
                scores = scores.masked_fill(~row, -torch.inf) if row.dtype is torch.bool else scores + row
            exact = scores.softmax(0).nan_to_num(0) @ v[b, :, kv_head].double()
            assert gap(z[b, 0, h], exact) < 8 * torch.finfo(dtype).eps


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("keys", [5, 2000])  # few are all looked at
@pytest.mark.parametrize("queries", [1, 3])
def test_what_is_not_finite_is_found_among_the_keys_that_are_not_known(bad, keys, queries):
    def ran(places: dict[str, tuple[int, ...]], own: bool, known: bool) -> tuple[set[str], int]:
        torch.manual_seed(0)
        given = {"q": torch.randn(1, queries, 4, 16), "k": torch.randn(1, keys, 2, 16)}
        for name, at in places.items():
            given[name][at] = bad
        info = PassInfo(torch.float32, past_finite=known)
        mask = torch.ones(1, 1, queries, keys, dtype=torch.bool)
        kernels.fused_attention(info, **given, v=given["k"], mask=mask, is_causal=False, scale=0.25, own=own)
        return info.ran, info.finite

    old, new = {"k": (0, 0, 1, 3)}, {"k": (0, keys - queries, 1, 3)}
    for own, known in itertools.product((False, True), repeat=2):
        assert ran({}, own, known) == ({"flash"}, int(own))
        for bad_at in (new, {"q": (0, queries - 1, 3, 15)}, {"k": (0, keys - 1, 0, 0)}):
            assert ran(bad_at, own, known) == ({"math"}, 0)
        if not (own and known):
            assert ran(old, own, known) == ({"math"}, 0)


def test_keys_of_earlier_passes_are_not_added_up_again(monkeypatch):
    looked_at: list[int] = []
    is_finite = kernels._is_finite
    monkeypatch.setattr(kernels, "_is_finite", lambda x: (looked_at.append(x.numel()), is_finite(x))[1])
    q, k = torch.randn(1, 2, 4, 64), torch.randn(1, 1000, 4, 64)
    for known, numbers in ((False, k.numel()), (True, 2 * 4 * 64)):
        info = PassInfo(torch.float32, past_finite=known)
        kernels.fused_attention(info, q, k, k, None, is_causal=False, scale=0.1, own=True)
        assert looked_at[-2:] == [q.numel(), numbers]


def test_what_was_found_is_not_counted_twice_when_steps_run_again():
    info = PassInfo(torch.float32, finite=3, past_finite=True)
    assert (info.again().finite, info.again().past_finite) == (0, True)
    assert info.finite == 3


# --------------------------------------------------------------------------------------------------------- CUDA


def on_cuda(dtype: torch.dtype, traits: dict[str, object], **sizes: object) -> Model:
    config = tiny_config(**{"d_head": 64, "d_model": 96, "n_ctx": 4096} | traits | sizes)
    weights = random_model(config, dtype=dtype).weights
    return Model.from_weights(config, {name: weight.cuda() for name, weight in weights.items()})


def refusal(model: Model, prompt: object, kernel: str) -> str:
    """Why a kernel cannot run a prompt; empty where it can."""
    try:
        trace(model, prompt, kernel=kernel)
    except KernelError as error:
        return str(error)
    return ""


@contextmanager
def no_waiting() -> Iterator[None]:
    """Whatever makes the host wait for the device is an error."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("keep", ["all", "residual", ["blocks.*.attn.pattern"]], ids=str)
def test_cuda_nothing_waits_while_recording(name, keep):
    model = on_cuda(torch.bfloat16, ARCHITECTURES[name])
    one, batch = random_ids(model.config, 33), [random_ids(model.config, 33), [1, 2]]
    with no_waiting():
        t = trace(model, one, keep=keep, max_memory=2**40)
        trace(model, batch, keep=keep, max_memory=2**40)
        if model.config.causal:
            extend(model, t, [3, 4], keep=keep)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [
        ("flash", torch.float16), ("flash", torch.bfloat16), ("efficient", torch.float32), ("efficient", torch.float16),
        ("cudnn", torch.bfloat16), ("math", torch.float32), ("math", torch.float64), ("auto", torch.float32),
        ("auto", torch.bfloat16), ("auto", torch.float16), ("auto", torch.float64),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["modern", "gpt2", "encoder"])
def test_cuda_kernels_against_the_cpu_in_float64(name, kernel, dtype):
    model = on_cuda(dtype, ARCHITECTURES[name])
    exact = random_model(model.config)
    ids, batch = random_ids(model.config, 40), [random_ids(model.config, 40), random_ids(model.config, 7, 1)]
    tolerance = 400 * torch.finfo(dtype).eps if dtype.itemsize > 2 else 0.15
    for prompt in (ids, batch):
        if reason := refusal(model, prompt, kernel):  # flash takes no mask, and not every build has every kernel
            assert kernel in ("flash", "cudnn")
            assert "\n" not in reason
            assert len(reason) > len(f"kernel {kernel!r} cannot run here: ; use kernel auto")
            continue
        t = trace(model, prompt, kernel=kernel)
        assert kernel in ("auto", *t.kernels)
        real = t["positions"].cpu() >= 0
        assert gap(t["logits"].cpu()[real], trace(exact, prompt)["logits"][real]) < tolerance
        assert not t["blocks.0.attn.z"][~real.cuda()].any()
        assert not [check.text for check in t.checks() if not check.ok]


@pytest.mark.gpu
def test_cuda_grouped_heads_keep_a_fused_kernel():
    # E16: float32, or a mask, with grouped heads must not fall to the kernel that writes N × N scores.
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        model = on_cuda(dtype, MODERN, d_head=128, n_heads=8)
        for prompt in (random_ids(model.config, 64), [random_ids(model.config, 64), [1, 2]]):
            assert "math" not in trace(model, prompt).kernels


@pytest.mark.gpu
def test_cuda_flash_in_float32_says_why_not():
    with pytest.raises(KernelError, match="cannot run here") as error:
        trace(on_cuda(torch.float32, GPT2), [1, 2, 3], kernel="flash")
    assert "\n" not in str(error.value)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_cuda_keeping_changes_no_bit(dtype):
    for traits in (MODERN, CLASSIC):
        model = on_cuda(dtype, traits)
        for prompt in (random_ids(model.config, 100), [random_ids(model.config, 9), [1, 2]]):
            reference = trace(model, prompt)
            for keep in ("residual", ["blocks.1.attn.pattern"]):
                t = trace(model, prompt, keep=keep)
                for site in model.program.sites:
                    assert torch.equal(t[site.name], reference[site.name]), site.name


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_cuda_nan_stays_nan(dtype):
    model = on_cuda(dtype, GPT2)
    weights = {name: weight.clone() for name, weight in model.weights.items()}
    weights["embed.weight"][5, 0] = float("nan")
    t = trace(Model.from_weights(model.config, weights), [1, 2, 5, 3])
    assert t["blocks.0.attn.z"][0, 2:].isnan().all()
    assert t.top() == []
    assert t.first_nonfinite() == ("embed", 0, 1)


@pytest.mark.gpu
@pytest.mark.parametrize("keep", ["all", "residual", ["blocks.*.attn.pattern"]], ids=str)
def test_cuda_peak_is_what_was_planned(keep):
    model = on_cuda(torch.bfloat16, MODERN, d_model=512, d_mlp=1024, d_vocab=8000, n_layers=4)
    ids = random_ids(model.config, 2048)
    trace(model, ids, keep=keep)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    t = trace(model, ids, keep=keep)
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    assert t.length == 2048
    assert peak <= 1.2 * plan_trace(model, 2048, keep=keep).peak


@pytest.mark.gpu
def test_cuda_a_float16_file_stays_float16(tmp_path):
    import json

    from safetensors.torch import save_file

    config = tiny_config(**GPT2)
    weights = random_model(config, dtype=torch.float16).weights
    save_file(dict(weights), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "layerstep", "format_version": 1} | config.to_json())
    )
    model = load_model(tmp_path, device="cuda")
    assert model.dtype is torch.float16
    assert {weight.device.type for weight in model.weights.values()} == {"cuda"}
    assert trace(model, [1, 2, 3])["logits"].device.type == "cuda"
