"""What is settled before torch starts: environment, allocator, threads, and how much memory there is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from engine import runtime
from engine.ops.base import PassInfo
from engine.passes import Pass

GIB = 2**30
needs_glibc = pytest.mark.skipif(not runtime._has_glibc(), reason="mallopt is glibc's")
MALLOC_TOLD = ("GLIBC_TUNABLES", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_ARENA_MAX")


def in_new_process(code: str, **env: str) -> dict[str, object]:
    """What ``code`` prints as JSON in a fresh process whose environment says nothing about threads or malloc."""
    told = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS", *MALLOC_TOLD)
    clean = {name: value for name, value in os.environ.items() if name not in told}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "import json, os, sys\n" + code],
        env=clean | env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


PREPARED = """
from engine.runtime import prepare
prepare()
prepare()
names = "GOMP_SPINCOUNT", "OMP_WAIT_POLICY"
print(json.dumps({name: os.environ.get(name) for name in names} | {"torch": "torch" in sys.modules}))
"""


def test_prepare_sets_a_short_spin_and_imports_no_torch() -> None:
    told = in_new_process(PREPARED)
    assert told == {"GOMP_SPINCOUNT": runtime.SPIN, "OMP_WAIT_POLICY": None, "torch": False}


@pytest.mark.parametrize(
    ("name", "value", "spin"),
    [("GOMP_SPINCOUNT", "5", "5"), ("GOMP_SPINCOUNT", "", ""), ("OMP_WAIT_POLICY", "active", None)],
)
def test_what_the_user_set_stands(name: str, value: str, spin: str | None) -> None:
    told = in_new_process(PREPARED, **{name: value})
    assert told[name] == value
    assert told["GOMP_SPINCOUNT"] == spin


def test_after_torch_the_environment_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setattr(runtime, "_keep_freed_memory", lambda: None)
    runtime.prepare()
    assert "GOMP_SPINCOUNT" not in os.environ


FAULTS = """
import resource
from engine.runtime import prepare
prepare()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = bytearray(40_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(json.dumps({"faults": [faults(), faults(), faults()]}))
"""


@needs_glibc
def test_freed_memory_is_used_again_without_new_pages() -> None:
    first, *later = in_new_process(FAULTS)["faults"]
    assert first > 1000
    assert max(later) < 100


@needs_glibc
@pytest.mark.parametrize(("name", "value"), [("MALLOC_MMAP_MAX_", "65536"), ("GLIBC_TUNABLES", "glibc.malloc.check=0")])
def test_malloc_settings_of_the_user_stand(name: str, value: str) -> None:
    assert min(in_new_process(FAULTS, **{name: value})["faults"]) > 1000


def test_without_glibc_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "confstr", lambda _: (_ for _ in ()).throw(ValueError("not here")), raising=False)
    monkeypatch.setattr(runtime.ctypes, "CDLL", lambda _: pytest.fail("nothing to call"))
    runtime._keep_freed_memory.cache_clear()
    runtime.prepare()
    assert runtime._held_free() == 0


@pytest.mark.parametrize(
    ("weights", "at_most", "expected"),
    [(0, 8, 1), (1_000_000, 8, 1), (7_999_999, 64, 1), (16_000_000, 2, 2), (124_000_000, 2, 2), (124_000_000, 64, 15)],
)
def test_threads_for(weights: int, at_most: int, expected: int) -> None:
    assert runtime.threads_for(weights, at_most) == expected


@pytest.fixture
def four_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "processors", lambda: 4)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("four_threads")
def test_threads_are_the_models_and_then_the_users_again() -> None:
    for weights, expected in ((1_000_000, 1), (24_000_000, 3), (10**9, 4)):
        with runtime.threads(weights):
            assert torch.get_num_threads() == expected
        assert torch.get_num_threads() == 4
    with pytest.raises(KeyError), runtime.threads(1):
        raise KeyError
    assert torch.get_num_threads() == 4


@pytest.mark.usefixtures("four_threads")
def test_never_more_threads_than_the_user_gave_torch() -> None:
    torch.set_num_threads(2)
    with runtime.threads(10**9):
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("four_threads")
def test_a_models_bits_do_not_depend_on_the_threads_around_it() -> None:
    x, weight = torch.randn(5, 256), torch.randn(256, 256)  # a shape that MKL rounds by the number of threads
    results = []
    for around in (1, 2, 4):
        torch.set_num_threads(around)
        with runtime.threads(1_000_000):
            results.append(torch.nn.functional.linear(x, weight))
    assert all(torch.equal(result, results[0]) for result in results)


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


@pytest.fixture
def container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty tree of control groups, in which this process is at /job/step under versions 1 and 2."""
    monkeypatch.setattr(runtime, "CGROUPS", tmp_path / "cgroup")
    lines = "9:memory:/job/step\n2:cpu,cpuacct:/job/step\n1:name=systemd:/\n0::/job/step\nnonsense"
    read = runtime._text
    monkeypatch.setattr(runtime, "_text", lambda f: lines if str(f) == "/proc/self/cgroup" else read(f))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 100 * GIB}))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    runtime.processors.cache_clear()
    yield tmp_path / "cgroup"
    runtime.processors.cache_clear()


def test_outside_a_container_memory_is_the_machines(container: Path) -> None:
    assert runtime._free_host_memory() == 100 * GIB
    assert runtime.processors() == 16


@pytest.mark.parametrize("where", ["", "job", "job/step"])
def test_a_containers_memory_limit_counts_at_every_level(container: Path, where: str) -> None:
    group(container / "job/step", memory__max="max", memory__current="7", memory__stat="anon 5")
    group(
        container / where,
        memory__max=str(8 * GIB), memory__current=str(6 * GIB), memory__stat=f"anon 5\ninactive_file {GIB}",
    )  # fmt: skip
    assert runtime._free_host_memory() == 3 * GIB


def test_version_1_limits_count_too(container: Path) -> None:
    group(
        container / "memory/job",
        memory__limit_in_bytes=str(4 * GIB), memory__usage_in_bytes=str(3 * GIB),
        memory__stat=f"inactive_file 1\ntotal_inactive_file {GIB // 2}",
    )  # fmt: skip
    group(container / "memory", memory__limit_in_bytes=str(2**63 - 4096), memory__usage_in_bytes="1")
    group(container / "cpu", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    group(container / "cpu/job/step", cpu__cfs_quota_us="250000", cpu__cfs_period_us="100000")
    assert runtime._free_host_memory() == GIB + GIB // 2
    assert runtime.processors() == 3


def test_more_used_than_allowed_is_nothing_free(container: Path) -> None:
    group(container / "job", memory__max="1000", memory__current="2000")
    assert runtime._free_host_memory() == 0


@pytest.mark.parametrize(("quota", "expected"), [("max 100000", 16), ("50000 100000", 1), ("200000 0", 16), ("", 16)])
def test_a_containers_cpu_quota_counts(container: Path, quota: str, expected: int) -> None:
    group(container / "job", cpu__max=quota)
    assert runtime.processors() == expected


def test_available_memory_of_this_machine() -> None:
    free = runtime.available_memory("cpu")
    assert 0 < free <= psutil.virtual_memory().total
    assert runtime.available_memory(torch.device("cpu")) > 0
    with pytest.raises(ValueError, match="'tpu'"):
        runtime.available_memory("tpu")


HELD = """
from engine.runtime import _held_free, prepare
prepare()
block = bytearray(100_000_000)
before = _held_free()
del block
print(json.dumps({"more": _held_free() - before}))
"""


@needs_glibc
def test_memory_that_the_allocator_holds_is_available() -> None:
    assert in_new_process(HELD)["more"] > 99_000_000


@pytest.mark.gpu
def test_available_memory_of_a_gpu() -> None:
    free = runtime.available_memory("cuda")
    assert 0 < free <= torch.cuda.get_device_properties(0).total_memory
    block = torch.empty(64 * 2**20, dtype=torch.uint8, device="cuda")
    with_block = runtime.available_memory(block.device)
    del block
    assert runtime.available_memory("cuda:0") >= with_block + 64 * 2**20 - 2**21


NAMES = """
import engine
for name in {names}:
    assert name not in vars(engine)
    value = getattr(engine, name)
    assert vars(engine)[name] is value
    assert getattr(engine, name) is value
print(json.dumps({{"spin": os.environ.get("GOMP_SPINCOUNT"), "torch": "torch" in sys.modules}}))
"""


def test_names_that_need_no_torch_settle_nothing() -> None:
    names = ["Address", "LayerstepError", "ModelConfig", "Token"]
    assert in_new_process(NAMES.format(names=names)) == {"spin": None, "torch": False}
    assert in_new_process(NAMES.format(names=["load_model", "trace"])) == {"spin": runtime.SPIN, "torch": True}


def test_memory_is_settled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(runtime, "_has_glibc", lambda: asked.append(1))
    monkeypatch.setattr(os, "environ", {"GOMP_SPINCOUNT": "1"})
    runtime._keep_freed_memory.cache_clear()
    runtime.prepare()
    runtime.prepare()
    assert len(asked) == 1


# --- how long a device works ------------------------------------------------------------------------------


def test_on_the_cpu_seconds_are_the_host_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.perf_counter", iter([10.0, 12.5]).__next__)
    assert float(runtime.Stopwatch(torch.device("cpu")).stop()) == 2.5


def test_on_cuda_seconds_are_the_device_s_and_waited_for_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self, stream: str) -> None:
            done.append(f"recorded on {stream}")

        def synchronize(self) -> None:
            done.append("waited")

        def elapsed_time(self, end: Event) -> float:
            assert (self, end) == (watch._events[0], watch._events[1])
            return 1500.0

    monkeypatch.setattr("torch.cuda.Event", Event)
    monkeypatch.setattr("torch.cuda.current_stream", lambda device: f"the stream of {device}")
    watch = runtime.Stopwatch(torch.device("cuda", 0))
    ran = Pass(0, 1, PassInfo(torch.float32), {}, {}, watch.stop())
    assert done == ["recorded on the stream of cuda:0"] * 2
    assert ran.seconds == 1.5
    assert done[2:] == ["waited"]


@pytest.mark.gpu
def test_seconds_of_a_gpu_s_work_are_not_those_of_handing_it_over() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    a = torch.randn(8192, 8192, device=device)
    torch.cuda.synchronize()
    began = time.perf_counter()
    watch = runtime.Stopwatch(device)
    for _ in range(20):
        a @ a
    watch.stop()
    handed_over = time.perf_counter() - began
    torch.cuda.synchronize()
    assert handed_over < float(watch) < time.perf_counter() - began + 0.01
