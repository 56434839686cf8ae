"""y = x Wᵀ + b, by whichever of torch's two float32 kernels is the faster on this CPU.

``F.linear`` calls MKL, which runs at half speed on AMD's processors; oneDNN's kernel does not, but costs 10 µs a call
and half a millisecond for each new shape. So small products always go to ``F.linear``, and so do
all other dtypes and devices, for which ``F.linear`` is oneDNN or the GPU's own already. For large float32 products one
question is left, whether oneDNN is the faster here: it is measured once per machine (about 10 ms) and remembered.
Within a process a product of the same rows and size always takes the same kernel, so that what is derived equals what
was recorded.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from engine.runtime import threads

SMALLEST = 2_000_000
"""Multiply-adds from which on oneDNN's speed outweighs what a call costs."""
SMALLEST_ROW = 150_000
"""The same for one row, which costs what reading the weight costs: from memory oneDNN reads a quarter faster, from the
processor's cache it does not. A weight of this size is one of many, which together no longer stay in the cache."""
WORTH_IT = 0.9
"""oneDNN's share of F.linear's time below which it is taken; measured shares are near 0.5 or near 1."""

Backend = Literal["torch", "onednn"]
_lock = Lock()


def linear(
    x: Float[Tensor, "*rows d_in"], weight: Float[Tensor, "d_out d_in"], bias: Float[Tensor, " d_out"] | None = None
) -> Float[Tensor, "*rows d_out"]:
    """y = x Wᵀ + b over the last axis; any strides, no copy of the weight, true float32."""
    size = x.numel() * weight.shape[0]
    if size >= SMALLEST_ROW and weight.dtype is x.dtype:
        rows = x.numel() // max(1, x.shape[-1])
        if backend(rows, size, x.dtype, x.device) == "onednn":
            learns = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias))
            if not learns:  # oneDNN's kernel has no derivative
                return _onednn(x, weight, bias)
    return F.linear(x, weight, bias)


def backend(rows: int, size: int, dtype: torch.dtype, device: torch.device) -> Backend:
    """The kernel for a product of ``size`` = rows × d_in × d_out multiply-adds; the answer never changes."""
    if size < (SMALLEST_ROW if rows == 1 else SMALLEST) or dtype is not torch.float32 or device.type != "cpu":
        return "torch"
    with _lock:
        return "onednn" if _onednn_wins() else "torch"


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if bias is not None:
        bias = bias.contiguous()  # the kernel reads it as if it were
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


@cache
def _onednn_wins() -> bool:
    """Whether large products go to oneDNN: as LAYERSTEP_LINEAR says (torch, onednn), else as measured."""
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    if (forced := os.environ.get("LAYERSTEP_LINEAR")) in ("torch", "onednn"):
        return forced == "onednn"
    file, machine = _cache_file(), _machine()
    shares = _read(file)
    if machine not in shares:
        try:
            shares[machine] = round(_measure(), 3)
        except RuntimeError:  # a processor that oneDNN has no kernel for
            return False
        _write(file, shares)
    return shares[machine] < WORTH_IT


def _measure() -> float:
    """oneDNN's time as a share of F.linear's, on one thread, for 64 rows and a weight of 768 × 768."""
    x, weight = torch.full((64, 768), 0.5), torch.full((768, 768), 0.5)  # no random numbers: the seed is the user's
    kernels: tuple[Callable[[Tensor, Tensor, None], Tensor], ...] = (_onednn, F.linear)
    best = [float("inf")] * 2
    with threads(0):  # one, so that busy neighbours do not matter; on more the share is the same
        for turn in range(8):
            for i, kernel in enumerate(kernels):
                start = time.perf_counter()
                kernel(x, weight, None)
                if turn:  # the first turn prepares
                    best[i] = min(best[i], time.perf_counter() - start)
    return best[0] / best[1]


def _machine() -> str:
    """What the measured share depends on."""
    cpu = os.environ.get("PROCESSOR_IDENTIFIER") or platform.machine()
    with contextlib.suppress(OSError, StopIteration), open("/proc/cpuinfo", errors="replace") as lines:
        cpu = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"torch {torch.__version__}, {cpu}, {torch.backends.cpu.get_cpu_capability()}"


def _cache_file() -> Path:
    if folder := os.environ.get("LAYERSTEP_CACHE"):
        return Path(folder) / "linear.json"
    from platformdirs import user_cache_path  # only where something is measured

    return user_cache_path("layerstep") / "linear.json"


def _read(file: Path) -> dict[str, float]:
    """Shares by machine; what is no share is left out, and a file that cannot be read holds none."""
    try:
        held: Any = json.loads(file.read_text())
        return {name: share for name, share in held.items() if isinstance(share, float) and 0 < share < 1000}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}


def _write(file: Path, shares: dict[str, float]) -> None:
    """Whole or not at all; where it cannot be written, the next process measures again."""
    part = file.with_name(f".{file.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_text(json.dumps(shares, indent=1))
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
