"""The linear kernel: both kernels equal a float64 product to rounding, and the choice between them is stable."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from engine.ops import linear as module
from engine.ops.linear import SMALLEST, SMALLEST_ROW, backend, linear

CPU = torch.device("cpu")
LARGE = (64, 256, 256)  # rows, d_in, d_out: above SMALLEST
needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Every test is a new process: nothing decided yet, an empty folder to remember in."""
    monkeypatch.setenv("LAYERSTEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LAYERSTEP_LINEAR", raising=False)
    decision = module._onednn_wins
    decision.cache_clear()
    yield tmp_path / "cache" / "linear.json"
    decision.cache_clear()


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The shares that measuring will find, last first; each is taken once."""
    shares = [0.5]
    monkeypatch.setattr(module, "_measure", lambda: shares.pop())
    return shares


@pytest.fixture(params=["torch", pytest.param("onednn", marks=needs_onednn)])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the two kernels, taken for products of any size."""
    monkeypatch.setenv("LAYERSTEP_LINEAR", request.param)
    monkeypatch.setattr(module, "SMALLEST", 0)
    monkeypatch.setattr(module, "SMALLEST_ROW", 0)
    ran: list[str] = []
    onednn, plain = module._onednn, F.linear
    monkeypatch.setattr(module, "_onednn", lambda *a: (ran.append("onednn"), onednn(*a))[1])
    monkeypatch.setattr(module.F, "linear", lambda *a: (ran.append("torch"), plain(*a))[1])
    yield request.param
    assert set(ran) == {request.param}


def check(x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """linear() against the product in float64, within float32's rounding of each output."""
    y = linear(x, weight, bias)
    exact = x.double() @ weight.double().T
    spread = x.double().abs() @ weight.double().abs().T
    if bias is not None:
        exact, spread = exact + bias.double(), spread + bias.double().abs()
    assert y.shape == (*x.shape[:-1], weight.shape[0])
    assert y.dtype == x.dtype
    assert y.is_contiguous()
    bound = (x.shape[-1] + 2) * torch.finfo(torch.float32).eps / 2 * spread
    assert bool(((y.double() - exact).abs() <= bound).all())


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("rows", [(1,), (5,), (2, 7), (1, 64), (0,), (2, 0), (), (2, 3, 4)])
@pytest.mark.parametrize(("d_in", "d_out"), [(64, 64), (48, 130), (1, 3), (33, 1)])
def test_equals_float64(kernel: str, rows: tuple[int, ...], d_in: int, d_out: int, biased: bool) -> None:
    x, weight = torch.randn(*rows, d_in), torch.randn(d_out, d_in)
    check(x, weight, torch.randn(d_out) if biased else None)


@pytest.mark.parametrize("rows", [1, 4, 256])
def test_large_products_equal_float64(kernel: str, rows: int) -> None:
    check(torch.randn(rows, 768), torch.randn(2304, 768), torch.randn(2304))


def test_any_strides(kernel: str) -> None:
    weight, bias = torch.randn(48, 32), torch.randn(48)
    heads_first = torch.randn(2, 4, 6, 32).transpose(1, 2)
    for x in (torch.randn(32, 9).t(), torch.randn(9, 80)[:, 3:35], torch.randn(18, 32)[::2], heads_first):
        check(x, weight, bias)
    x = torch.randn(3, 5, 32)
    for strided in (
        torch.randn(32, 48).t(),  # a Conv1D's layout
        torch.randn(48, 64)[:, ::2],
        torch.randn(96, 32)[1::2],
        torch.randn(1, 32).expand(48, 32),
    ):
        check(x, strided, bias)
    check(x, weight, torch.randn(96)[::2])
    check(x, weight, torch.randn(1).expand(48))


def test_large_values_are_not_rounded_to_bfloat16(kernel: str) -> None:
    x, weight = torch.full((4, 16), 1 + 2**-20), torch.ones(8, 16)
    assert torch.equal(linear(x, weight), torch.full((4, 8), 16 * (1 + 2**-20)))


def test_non_finite_values_stay_in_their_rows(kernel: str) -> None:
    x = torch.ones(4, 32)
    x[1, 3], x[2, 5] = torch.nan, torch.inf
    y = linear(x, torch.ones(16, 32))
    assert bool(y[1].isnan().all())
    assert bool((y[2] == torch.inf).all())
    assert bool((y[[0, 3]] == 32).all())


def test_repeats_bit_for_bit(kernel: str) -> None:
    x, weight, bias = torch.randn(5, 96), torch.randn(64, 96), torch.randn(64)
    first = linear(x, weight, bias)
    assert all(torch.equal(linear(x.clone(), weight, bias), first) for _ in range(3))
    assert torch.equal(linear(x[None], weight, bias)[0], first)


def test_leaves_its_inputs_alone(kernel: str) -> None:
    given = torch.randn(8, 32), torch.randn(16, 32), torch.randn(16)
    before = [t.clone() for t in given]
    linear(*given)
    assert all(torch.equal(a, b) for a, b in zip(given, before, strict=True))


def large(**kwargs: object) -> tuple[Tensor, Tensor]:
    rows, d_in, d_out = LARGE
    return torch.randn(rows, d_in, **kwargs), torch.randn(d_out, d_in, **kwargs)


def test_wrong_shapes_are_refused_alike() -> None:
    x, weight = large()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        linear(x[:, :3], weight[:, :5])


@needs_onednn
def test_gradients_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAYERSTEP_LINEAR", "onednn")
    x, weight = large()
    x.requires_grad_()
    linear(x, weight).sum().backward()
    torch.testing.assert_close(x.grad, weight.sum(0).expand_as(x), rtol=1e-5, atol=1e-4)  # float32 sums


@needs_onednn
@pytest.mark.parametrize(("share", "expected"), [(0.5, "onednn"), (0.89, "onednn"), (0.95, "torch"), (1.4, "torch")])
def test_takes_the_faster(measured: list[float], share: float, expected: str) -> None:
    measured[:] = [share]
    assert backend(64, 10**7, torch.float32, CPU) == expected


@needs_onednn
def test_runs_what_the_choice_says(monkeypatch: pytest.MonkeyPatch, measured: list[float]) -> None:
    ran: list[str] = []
    monkeypatch.setattr(module, "_onednn", lambda x, w, b: ran.append("onednn") or F.linear(x, w, b))
    x, weight = large()
    linear(x, weight)
    linear(x[:8], weight)
    linear(x.bfloat16(), weight.bfloat16())
    assert ran == ["onednn"]


@needs_onednn
@pytest.mark.parametrize(
    ("rows", "d", "expected"),
    [
        ((1,), 768, "onednn"), ((1, 1), 768, "onednn"), ((), 768, "onednn"), ((4,), 768, "onednn"),
        ((1,), 256, "torch"), ((2,), 768, "torch"), ((1, 3), 768, "torch"),
    ],
)  # fmt: skip
def test_one_row_goes_to_onednn_sooner(
    monkeypatch: pytest.MonkeyPatch, rows: tuple[int, ...], d: int, expected: str
) -> None:
    monkeypatch.setenv("LAYERSTEP_LINEAR", "onednn")
    ran: list[str] = []
    onednn, plain = module._onednn, F.linear
    monkeypatch.setattr(module, "_onednn", lambda *a: (ran.append("onednn"), onednn(*a))[1])
    monkeypatch.setattr(module.F, "linear", lambda *a: (ran.append("torch"), plain(*a))[1])
    check(torch.randn(*rows, d), torch.randn(d, d), torch.randn(d))
    assert ran == [expected]


@pytest.mark.parametrize("rows", [1, 12])
def test_small_products_are_never_measured(monkeypatch: pytest.MonkeyPatch, fresh: Path, rows: int) -> None:
    monkeypatch.setattr(module, "_onednn_wins", lambda: pytest.fail("a small product needs no decision"))
    x, weight = torch.randn(rows, 128), torch.randn(384, 128)
    assert x.numel() * weight.shape[0] < (SMALLEST_ROW if rows == 1 else SMALLEST)
    assert torch.equal(linear(x, weight), F.linear(x, weight))
    assert not fresh.parent.exists()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes_and_devices_are_torchs(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    monkeypatch.setenv("LAYERSTEP_LINEAR", "onednn")
    assert backend(64, 10**9, dtype, CPU) == "torch"
    assert backend(64, 10**9, torch.float32, torch.device("meta")) == "torch"
    x, weight = large(device="meta")
    assert linear(x, weight).shape == (LARGE[0], LARGE[2])


@needs_onednn
def test_measured_once_and_remembered(measured: list[float], fresh: Path) -> None:
    assert backend(64, 10**7, torch.float32, CPU) == "onednn"
    assert list(json.loads(fresh.read_text()).values()) == [0.5]
    assert [f.name for f in fresh.parent.iterdir()] == ["linear.json"]  # nothing half-written is left
    module._onednn_wins.cache_clear()  # the next process
    assert backend(64, 10**7, torch.float32, CPU) == "onednn"
    assert measured == []  # measured once


@needs_onednn
def test_a_decision_does_not_change(measured: list[float], fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert backend(64, 10**7, torch.float32, CPU) == "onednn"
    measured.append(2.0)
    fresh.unlink()
    monkeypatch.setenv("LAYERSTEP_LINEAR", "torch")
    assert backend(64, 10**7, torch.float32, CPU) == "onednn"
    assert measured == [2.0]


@needs_onednn
def test_threads_that_ask_at_once_get_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = iter([0.5, 2.0, 0.5, 2.0, 0.5, 2.0, 0.5, 2.0])
    monkeypatch.setattr(module, "_measure", lambda: (time.sleep(0.01), next(shares))[1])
    monkeypatch.setattr(module, "_write", lambda *_: None)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: backend(64, 10**7, torch.float32, CPU), range(64)))
    assert set(answers) == {"onednn"}


@needs_onednn
def test_another_machines_entry_is_kept_and_not_used(measured: list[float], fresh: Path) -> None:
    fresh.parent.mkdir()
    fresh.write_text(json.dumps({"torch 1.0, an abacus": 3.0}))
    assert backend(64, 10**7, torch.float32, CPU) == "onednn"
    assert sorted(json.loads(fresh.read_text()).values()) == [0.5, 3.0]


MACHINE = json.dumps(module._machine())


@needs_onednn
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"[]",
        b"null",
        b"3",
        b"[" * 100_000,
        f'{{{MACHINE}: "fast"}}'.encode(),
        f"{{{MACHINE}: null}}".encode(),
        f"{{{MACHINE}: true}}".encode(),
        f"{{{MACHINE}: NaN}}".encode(),
        f"{{{MACHINE}: -1.5}}".encode(),
        f"{{{MACHINE}: 1e999}}".encode(),
        f"{{{MACHINE}: [0.5]}}".encode(),
    ],
    ids=lambda content: repr(content[-24:]),
)
def test_a_damaged_file_is_measured_anew(measured: list[float], fresh: Path, content: bytes) -> None:
    fresh.parent.mkdir()
    fresh.write_bytes(content)
    assert backend(64, 10**7, torch.float32, CPU) == "onednn"
    assert json.loads(fresh.read_text()) == {module._machine(): 0.5}


@needs_onednn
@pytest.mark.parametrize("obstacle", ["the folder is a file", "the file is a folder"])
def test_a_file_that_cannot_be_written_is_no_error(measured: list[float], fresh: Path, obstacle: str) -> None:
    if obstacle == "the folder is a file":
        fresh.parent.write_text("")
    else:
        (fresh / "inner").mkdir(parents=True)
    assert backend(64, 10**7, torch.float32, CPU) == "onednn"
    assert not list(fresh.parent.parent.glob("**/.linear*"))


def test_without_onednn_it_is_torchs(monkeypatch: pytest.MonkeyPatch, measured: list[float], fresh: Path) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    monkeypatch.setenv("LAYERSTEP_LINEAR", "onednn")
    assert backend(64, 10**7, torch.float32, CPU) == "torch"
    assert measured == [0.5]
    assert not fresh.exists()


@needs_onednn
def test_a_processor_without_a_kernel_takes_torchs(monkeypatch: pytest.MonkeyPatch, fresh: Path) -> None:
    def refuse(*_: object) -> Tensor:
        raise RuntimeError("could not create a primitive")

    monkeypatch.setattr(module, "_onednn", refuse)
    x, weight = large()
    assert torch.equal(linear(x, weight), F.linear(x, weight))
    assert not fresh.exists()


@needs_onednn
def test_measuring_is_quick_and_leaves_torch_as_it_was() -> None:
    threads, seed = torch.get_num_threads(), torch.random.get_rng_state()
    started = os.times()
    assert 0.05 < module._measure() < 20
    ended = os.times()
    assert ended.user + ended.system - started.user - started.system < 0.15
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.random.get_rng_state(), seed)
