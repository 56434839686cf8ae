"""What has to be settled before torch starts: how threads wait, what happens to freed memory, how many threads.

Imports no torch. ``prepare`` runs once before torch is imported; what the user has set in the environment stands.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

Watch = Callable[[int, int, str], None]
"""Called now and then with (done, in all, of what), before each step of a run; it may raise Cancelled."""
SPIN = "1000"
"""How often an idle thread of libgomp looks for work before it sleeps: long enough for the gap between two steps. Its
own default of some 5 ms is 4 % faster on a quiet machine, and many times slower once a neighbour wants a core."""
WEIGHTS_PER_THREAD = 8_000_000
"""A model's weights for each thread: the products of smaller models are done before a second thread has woken."""
OBJECTS_BETWEEN = 10_000
"""New objects after which Python looks for garbage."""
PYTHONS_OWN = (700, 2000)
"""What it has for that by itself, by version."""
CGROUPS = Path("/sys/fs/cgroup")
M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8  # glibc's malloc.h


def as_part(watch: Watch | None, before: int, of: int) -> Watch | None:
    """The watch of one of ``of`` like pieces of work, ``before`` of which are done, that tells of all of it."""
    if watch is None:
        return None
    return lambda done, size, what: watch(before * size + done, of * size, what)


def prepare() -> None:
    """Set how threads wait, how freed memory is kept and how often Python looks for garbage. Called after torch is
    imported it does only the last two.

    All hold for the whole process: freed memory stays with malloc, whoever freed it. A program that does not want
    that sets GOMP_SPINCOUNT or OMP_WAIT_POLICY for the threads, any MALLOC_… variable or GLIBC_TUNABLES
    (glibc.malloc.…) for the memory, and gc.set_threshold for the garbage; then it is left as it is.
    """
    if "torch" not in sys.modules and not os.environ.keys() & {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}:
        os.environ["GOMP_SPINCOUNT"] = SPIN
    _keep_freed_memory()
    _collect_less_often()


@cache
def _collect_less_often() -> None:
    """A recorded pass is a hundred new objects that stay, and at Python's own threshold a generation spends a fifth of
    its time on looking through all of torch's for garbage."""
    young, *older = gc.get_threshold()
    if young in PYTHONS_OWN:
        gc.set_threshold(OBJECTS_BETWEEN, *older)


@cache
def _keep_freed_memory() -> None:
    """Let glibc keep what is freed instead of giving it back: fresh pages are the whole cost of keeping tensors."""
    asked = "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "") or any(n.startswith("MALLOC_") for n in os.environ)
    if asked or not _has_glibc():
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_MAX, 0)  # large blocks too come from the heap
    libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)  # of which up to 2 GiB is kept
    libc.mallopt(M_ARENA_MAX, 1)  # one heap for all threads: what one frees another finds


def _has_glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError, OSError):  # Windows; macOS, musl
        return False


def threads_for(weights: int, at_most: int) -> int:
    """Threads for a model of so many weights: one for a small model, which a busy neighbour then does not disturb."""
    return max(1, min(at_most, weights // WEIGHTS_PER_THREAD))


@contextlib.contextmanager
def threads(weights: int) -> Iterator[None]:
    """Run a model of so many weights on its number of threads: always the same, and never more than torch was given.

    MKL rounds some products differently on another number of threads, so every run of a model goes through here.
    """
    import torch

    given = torch.get_num_threads()
    wanted = threads_for(weights, min(given, processors()))
    if wanted != given:
        torch.set_num_threads(wanted)
    try:
        yield
    finally:
        if wanted != given:
            torch.set_num_threads(given)


@cache
def processors() -> int:
    """Processors that this process may use; a container's quota counts, which torch does not know."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for group in _cgroups("cpu"):
        quota, _, period = _text(group / "cpu.max").partition(" ")
        quota, period = quota or _text(group / "cpu.cfs_quota_us"), period or _text(group / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):
            found = min(found, -(-int(quota) // int(period)))
    return max(1, found)


class Stopwatch:
    """The seconds from its making to its ``stop``, as a number.

    On CUDA it is the device that is timed, as the host runs ahead of it; only asking for the number waits for it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._events = [_event(device)] if device.type == "cuda" else []
        self._began = self._ended = time.perf_counter()

    def stop(self) -> Stopwatch:
        self._events += [_event(self._device)] if self._events else []
        self._ended = time.perf_counter()
        return self

    def __float__(self) -> float:
        if not self._events:
            return self._ended - self._began
        began, ended = self._events
        ended.synchronize()
        return float(began.elapsed_time(ended)) / 1000  # of milliseconds


def _event(device: torch.device) -> torch.cuda.Event:
    """This moment in what a CUDA device has been given to do."""
    import torch

    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def available_memory(device: torch.device | str) -> int:
    """Bytes that a run on ``device`` can still have, what torch or the allocator holds unused included."""
    kind = str(device).partition(":")[0]
    if kind == "cpu":
        return _free_host_memory() + _held_free()
    import torch

    if kind == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    if kind == "mps":
        return max(0, torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory())
    raise ValueError(f"no memory is known of device {kind!r}")


def _free_host_memory() -> int:
    """Free bytes of this machine, or of the container that this process is in."""
    import psutil  # type: ignore[import-untyped]

    free = int(psutil.virtual_memory().available)
    for group in _cgroups("memory"):
        for limit, used, cache_name in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            bound, now = _text(group / limit), _text(group / used)
            if bound.isdigit() and now.isdigit():
                stat = dict(line.split(" ", 1) for line in _text(group / "memory.stat").splitlines() if " " in line)
                free = min(free, max(0, int(bound) - int(now) + int(stat.get(cache_name, 0))))
    return free


def _held_free() -> int:
    """Bytes that glibc holds free for this process."""
    if not _has_glibc() or not hasattr(libc := ctypes.CDLL(None), "mallinfo2"):
        return 0
    libc.mallinfo2.restype = _MallInfo
    return int(libc.mallinfo2().fordblks)


class _MallInfo(ctypes.Structure):
    """glibc's struct mallinfo2: ten sizes, the ninth of which is the free bytes."""

    _fields_ = [
        *((f"field{i}", ctypes.c_size_t) for i in range(8)),
        ("fordblks", ctypes.c_size_t),
        ("keepcost", ctypes.c_size_t),
    ]


def _cgroups(controller: str) -> Iterator[Path]:
    """The folders of this process's control groups, innermost first, under version 2 and 1 alike."""
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        root = CGROUPS if number == "0" else CGROUPS / controller
        if number == "0" or controller in controllers.split(","):
            inner = root / path.lstrip("/")
            yield from (inner, *(folder for folder in inner.parents if folder.is_relative_to(root)))


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, ValueError):
        return ""
