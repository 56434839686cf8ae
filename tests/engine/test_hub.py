"""Models by their name on the hub: what is in the cache is used, what is not is downloaded, all else is one line."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import filelock
import pytest
import tokenizers
import torch
from fake_hub import COMMIT, FakeHub, fake_hub
from folders import LLAMA_JSON, llama_tensors, refusal
from safetensors.torch import save

from engine import load_model, trace
from engine.checkpoints import downloader
from engine.checkpoints import hub as ours
from engine.checkpoints.hub import HubModel, parse
from engine.errors import Cancelled, CheckpointError
from engine.text import display

TOKENIZER = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "b": 1}, [])).to_str().encode()


def repository(**more: bytes) -> dict[str, bytes]:
    """The files of a small model, and such as nobody needs."""
    return {
        "config.json": json.dumps(LLAMA_JSON).encode(),
        "tokenizer.json": TOKENIZER,
        "tokenizer_config.json": b"{}",
        "model.safetensors": save(llama_tensors()),
        "pytorch_model.bin": b"a pickle",
        "model.fp16.safetensors": b"x" * 5000,
        "consolidated.safetensors": b"x" * 5000,
        "onnx/model.onnx": b"x" * 5000,
        "README.md": b"# words",
        "modeling_evil.py": b"raise SystemExit",
        **more,
    }


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache of the hub's."""
    from huggingface_hub import constants

    home = tmp_path / "home"
    monkeypatch.setenv("HF_HOME", str(home))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    return home / "hub"


@pytest.fixture
def hub(cache, monkeypatch):
    """A hub that answers, and this machine online."""
    from huggingface_hub import constants

    with fake_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        monkeypatch.setenv("TRANSFORMERS_OFFLINE", "0")
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield hub


def files(cache: Path) -> set[str]:
    """What lies in the cache's only snapshot."""
    (folder,) = cache.glob("models--*/snapshots/*")
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


# ------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("gpt2", HubModel("gpt2")),
        ("org/name", HubModel("org/name")),
        ("Qwen/Qwen2.5-0.5B@v1.0", HubModel("Qwen/Qwen2.5-0.5B", "v1.0")),
        ("org/name@refs/pr/1", HubModel("org/name", "refs/pr/1")),
        (f"gpt2@{COMMIT}", HubModel("gpt2", COMMIT)),
        *((text, None) for text in (
            "", ".", "..", "./gpt2", "../x", "/abs", "a/b/c", "a//b", "a b", "a/b/", "-a", "a..b", "a--b", "a/b.", "é",
            "x" * 97, "tiny.gguf", "org/model.safetensors", "a@", "a@../b", "a@b c", "a\x00b", "\x1b[31m", "a\n",
            "~/model", "C:\\model", "https://x/y",
        )),
    ],
)  # fmt: skip
def test_what_can_be_a_name_on_the_hub(text, means):
    assert parse(text) == means


def test_samples_and_folders_come_first(hub, tmp_path, monkeypatch):
    from folders import LLAMA, native

    hub.repos["modern"] = hub.repos["org/name"] = repository()
    assert load_model("modern", device="cpu").config.d_model != 20
    monkeypatch.chdir(tmp_path)
    native(tmp_path / "org" / "name", LLAMA)
    assert load_model("org/name", device="cpu").source == str(Path("org/name"))
    assert hub.asked == []


# ---------------------------------------------------------------------------------------------------- downloading


def test_a_model_is_downloaded_once_and_then_taken_from_the_cache(hub: FakeHub, cache):
    hub.repos["org/tiny"] = repository()
    told: list[tuple[int, int, str]] = []
    model = load_model("org/tiny", device="cpu", watch=lambda *said: told.append(said))
    assert model.name == "org/tiny"
    assert model.tokenizer is not None
    assert trace(model, [1, 2, 3])["logits"].isfinite().all()
    assert torch.equal(model.weights["embed.weight"], llama_tensors()["model.embed_tokens.weight"])
    # What nobody needs stays where it is.
    assert files(cache) == {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"}
    assert not any(name in line for line in hub.asked for name in ("onnx", "README", ".py", ".bin", "fp16", "consol"))
    size = sum(len(hub.repos["org/tiny"][name]) for name in files(cache) - {"config.json"})
    downloads = [what for _, _, what in told if what.startswith("downloading")]
    assert downloads[0] == f"downloading org/tiny, 3 files, {size / 1024:.1f} KiB"
    # Now nothing is asked any more, not even whether there is something newer; a ref is as good as a branch.
    before = len(hub.asked)
    for name in ("org/tiny", "org/tiny@main", f"org/tiny@{COMMIT}"):
        assert torch.equal(load_model(name, device="cpu").weights["embed.weight"], model.weights["embed.weight"])
    assert len(hub.asked) == before


def test_what_follows_a_sentence_encoder_is_part_of_it():
    more = {"modules.json": b"[]", "1_Pooling/config.json": b"{}", "2_Dense/config.json": b"{}"}
    dense = {"2_Dense/model.safetensors": save({"linear.weight": torch.zeros(2, 2)})}
    asked = ours.wanted([*repository(**more, **dense), "2_Dense/pytorch_model.bin", "3_Other/x.bin"], False)
    assert {*more, *dense} <= set(asked)
    assert not any(name.endswith(".bin") for name in asked)


def test_the_size_is_said_before_anything_large_is_fetched(hub, monkeypatch):
    hub.repos["tiny"] = repository()

    def watch(done: int, total: int, what: str) -> None:
        if what.startswith("downloading"):
            raise Cancelled("cancelled")

    with pytest.raises(Cancelled):
        load_model("tiny", device="cpu", watch=watch)
    hub.repos["tiny"]["model.safetensors"] = b"x" * (40 * 2**20)
    hub.seconds = 0.01
    hub.asked.clear()
    with pytest.raises(Cancelled):
        load_model("tiny", device="cpu", watch=watch)
    assert "GET api/models/tiny/revision/main" in hub.asked


def test_shards_are_downloaded_with_their_index(hub, cache):
    tensors = llama_tensors()
    places = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(tensors)}
    shards = {f: save({n: t for n, t in tensors.items() if places[n] == f}) for f in set(places.values())}
    index = json.dumps({"weight_map": places}).encode()
    hub.repos["tiny"] = repository(**shards, **{"model.safetensors.index.json": index})
    del hub.repos["tiny"]["model.safetensors"]
    assert load_model("tiny", device="cpu").config.d_model == 20
    assert {name for name in files(cache) if "safetensors" in name} == {*shards, "model.safetensors.index.json"}


def test_what_is_missing_in_the_cache_is_fetched_and_the_rest_is_not_again(hub, cache):
    hub.repos["tiny"] = repository()
    load_model("tiny", device="cpu")
    (folder,) = cache.glob("models--*/snapshots/*")
    for name in ("model.safetensors", "tokenizer.json"):
        blob = (folder / name).resolve()
        (folder / name).unlink()
        blob.unlink()
        hub.asked.clear()
        assert load_model("tiny", device="cpu").tokenizer is not None
        assert [line for line in hub.asked if line.startswith("GET") and "resolve" in line] == [
            f"GET tiny/resolve/{COMMIT}/{name}"
        ]


def test_the_token_of_the_environment_is_sent(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.repos["tiny"] = repository()
    load_model("tiny", device="cpu")
    assert "Bearer hf_secret" in hub.tokens


def test_a_download_can_be_cancelled_and_leaves_no_half_file(hub, cache):
    hub.repos["tiny"] = repository(**{"model.safetensors": bytes(60 * 2**20)})
    hub.seconds = 0.02  # 20 seconds in all
    begun = 0.0

    def watch(done: int, total: int, what: str) -> None:
        nonlocal begun
        if f"GET tiny/resolve/{COMMIT}/model.safetensors" in hub.asked:
            begun = time.monotonic()
            raise Cancelled("cancelled")

    with pytest.raises(Cancelled):
        load_model("tiny", device="cpu", watch=watch)
    assert time.monotonic() - begun < 3
    assert not list(cache.glob("models--tiny/blobs/*.incomplete"))
    assert "config.json" in files(cache)


def lives(process: int) -> bool:
    """Whether a process has not ended; one that nobody has asked about since has."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{process}/stat")
    return not state.exists() or ") Z " not in state.read_text()


def until(true: Callable[[], object], seconds: float) -> bool:
    """Whether something comes true in time."""
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(true())


STARTS_ONE = """
import subprocess
class Popen(subprocess.Popen):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        print(self.pid, flush=True)
subprocess.Popen = Popen
from engine.checkpoints.hub import HubModel, folder_of
folder_of(HubModel("tiny"))
"""


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
@pytest.mark.parametrize("what", ["revision/main", "model.safetensors"])
@pytest.mark.parametrize("ended", [signal.SIGTERM, signal.SIGKILL])
def test_a_download_ends_with_the_program_that_started_it(hub, cache, what, ended):
    hub.repos["tiny"] = repository(**{"model.safetensors": bytes(2**20)})
    hub.dripping = {what}
    with subprocess.Popen([sys.executable, "-c", STARTS_ONE], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        download = int(program.stdout.readline())
        assert until(lambda: any(line.startswith("GET") and line.endswith(what) for line in hub.asked), 20)
        if what == "model.safetensors":
            assert until(lambda: list(cache.glob("models--tiny/blobs/*.incomplete")), 5)
        assert lives(download)
        program.send_signal(ended)
    assert until(lambda: not lives(download), 2)
    assert not list(cache.glob("models--tiny/blobs/*.incomplete"))


# ------------------------------------------------------------------------------------- a hub that is not to be believed


@pytest.mark.parametrize("what", ["revision/main", "model.safetensors"])
def test_a_hub_from_which_hardly_anything_comes_is_given_up(hub, cache, monkeypatch, what):
    hub.repos["tiny"] = repository(**{"model.safetensors": bytes(2**20)})
    hub.dripping = {what}
    monkeypatch.setattr(ours, "TIMEOUT", 3.0)
    begun = time.monotonic()
    assert "nothing has come from the hub for 3 seconds; check the network" in refusal("tiny")  # type: ignore[arg-type]
    assert time.monotonic() - begun < 10
    assert not list(cache.glob("models--tiny/blobs/*.incomplete"))


def test_a_download_that_another_one_holds_up_is_waited_for(hub, cache, monkeypatch):
    hub.repos["tiny"] = repository()
    load_model("tiny", device="cpu")
    (folder,) = cache.glob("models--*/snapshots/*")
    blob = (folder / "model.safetensors").resolve()
    (folder / "model.safetensors").unlink()
    blob.unlink()
    (lock,) = cache.glob(f".locks/models--tiny/{blob.name}.lock")
    monkeypatch.setenv("HF_HOME", str(cache.parent))
    monkeypatch.setattr(ours, "TIMEOUT", 1.5)
    # Every second instead of every ten it is told of the wait, by a module of Python's own.
    (cache / "sitecustomize.py").write_text(
        "import huggingface_hub.constants\nhuggingface_hub.constants.FILELOCK_LOG_EVERY_SECONDS = 0.5\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(cache), os.environ.get("PYTHONPATH", "")]))
    held = filelock.FileLock(lock, thread_local=False)
    held.acquire()
    free = threading.Timer(4, held.release)
    begun = time.monotonic()
    free.start()
    assert load_model("tiny", device="cpu").config.d_model == 20
    assert time.monotonic() - begun > 3.5
    free.join()


NO_LISTING = "the hub answered with something that is no model listing"
ODD_ANSWERS = {
    "a page of the network's": (b"<html>\x1b]0;PWNED\x07 log in</html>", NO_LISTING),
    "a list": (b"[1, 2]", NO_LISTING),
    "nothing in it": ({"sha": None, "siblings": None}, NO_LISTING),
    "too deep": (b"[" * 100_000, NO_LISTING),
    "no end": (b" " * (17 * 2**20), "the hub's answer is longer than 16777216 bytes, which is no model listing"),
    "many values": (b"[" + b"1," * 500_000 + b"1]", "the hub's answer holds some 500001 values"),
    "a commit that is a path": ({"sha": "../../../x"}, "the hub's answer names commit '../../../x'; refused"),
    "a file elsewhere": (
        {"siblings": [{"rfilename": "1_/../../../../x/config.json", "size": 5}]},
        "the hub's answer names a file '1_/../../../../x/config.json'; refused",
    ),
    "a file's name for Windows": ({"siblings": [{"rfilename": "..\\x"}]}, "names a file"),
    "a file without a name": ({"siblings": [{"rfilename": 7}]}, "names a file 7; refused"),
    "a size that is text": (
        {"siblings": [{"rfilename": "config.json", "size": "5"}]},
        "the hub's answer names 'config.json' with a size of '5'; refused",
    ),
    "a size below 0": ({"siblings": [{"rfilename": "config.json", "size": -5}]}, "with a size of '-5'; refused"),
}


@pytest.mark.parametrize("name", ODD_ANSWERS)
def test_a_listing_that_is_none_is_one_line(hub, monkeypatch, name):
    from huggingface_hub import close_session, constants

    hub.repos["tiny"] = repository()
    hub.listings["tiny"], said = ODD_ANSWERS[name]
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    try:
        with pytest.raises(CheckpointError) as caught:
            downloader._listing(HubModel("tiny"))
    finally:
        close_session()
    assert said in str(caught.value)
    assert display(str(caught.value)) == str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("etag", ["../../../../../x", "..", "/x", "a/../../x", "a\\..\\x"])
def test_an_etag_that_is_a_path_is_refused_before_anything_is_written(hub, cache, tmp_path, etag):
    # huggingface_hub names a file after it: this one would lie beside the cache.
    hub.repos["tiny"] = repository()
    hub.etags["model.safetensors"] = etag
    assert "the hub's answer names ETag " in refusal("tiny")  # type: ignore[arg-type]
    assert files(cache) <= {"config.json", "tokenizer.json", "tokenizer_config.json"}
    written = {path for path in tmp_path.rglob("*") if path.is_file() and not path.is_relative_to(cache)}
    assert written == set()


def test_no_more_is_taken_than_was_said(hub, cache):
    hub.repos["tiny"] = repository(**{"model.safetensors": bytes(4 * 2**20)})
    siblings = [{"rfilename": name, "size": 5} for name in hub.repos["tiny"]]
    hub.listings["tiny"] = {"siblings": siblings}
    assert "the hub sends more than it said there would be; refused" in refusal("tiny")  # type: ignore[arg-type]
    assert "model.safetensors" not in files(cache)
    # A mirror that says nothing of sizes is one to be used.
    hub.listings["tiny"] = {"siblings": [{"rfilename": name} for name in hub.repos["tiny"]]}
    hub.repos["tiny"] = repository()
    assert load_model("tiny", device="cpu").config.d_model == 20


def test_nothing_is_asked_of_the_hub_but_the_model(hub):
    hub.repos["tiny"] = repository()
    load_model("tiny", device="cpu")
    assert all("tiny" in line for line in hub.asked)


# ------------------------------------------------------------------------------------------------------ refusals


def test_what_the_hub_refuses_is_one_line(hub):
    def said(name: str) -> str:
        with pytest.raises(CheckpointError) as caught:
            load_model(name, device="cpu")
        text = str(caught.value)
        assert display(text) == text
        assert len(text) < 400
        return text

    assert said("no/such") == (
        "there is no sample model and no folder no/such, and it cannot be downloaded: the hub has no such model, or it "
        "is private (then `hf auth login` or set HF_TOKEN)"
    )
    hub.refuse["org/gated"] = 403, "GatedRepo"
    assert "its licence has to be accepted on the hub first" in said("org/gated")
    hub.refuse["org/private"] = 401, "RepoNotFound"
    assert "or it is private" in said("org/private")
    hub.repos["tiny"] = repository()
    assert "tiny@v9, and it cannot be downloaded: it has no such branch, tag or commit" in said("tiny@v9")
    hub.repos["empty"] = {"README.md": b""}
    assert "it has no config.json" in said("empty")
    hub.repos["pickle"] = {"config.json": b"{}", "pytorch_model.bin": b""}
    assert "only as a pickle, pytorch_model.bin" in said("pickle")
    hub.repos["gguf"] = {"config.json": b"{}", "tiny.Q4_K.gguf": b""}
    assert "it holds GGUF files only, as tiny.Q4_K.gguf" in said("gguf")
    hub.repos["onnx"] = {"config.json": b"{}", "model.onnx": b""}
    assert "it has no model.safetensors" in said("onnx")
    hub.repos["keras"] = {"config.json": b"{}", "tf_model.h5": b""}
    assert "it has no model.safetensors; its weights are TensorFlow's, in tf_model.h5" in said("keras")
    hub.repos["locked"] = repository()
    hub.refuse["locked"] = 403, ""
    assert "the hub answers with status 403; log in with `hf auth login`, or set HF_TOKEN" in said("locked")
    hub.refuse["org/down"] = 418, ""
    assert "the hub answers with status 418" in said("org/down")


def test_a_pickle_is_downloaded_where_it_is_allowed(hub, cache, tmp_path):
    torch.save(llama_tensors(), tmp_path / "x.bin")
    hub.repos["pickle"] = repository(**{"pytorch_model.bin": (tmp_path / "x.bin").read_bytes()})
    del hub.repos["pickle"]["model.safetensors"]
    assert load_model("pickle", device="cpu", allow_pickle=True).config.d_model == 20
    assert "pytorch_model.bin" in files(cache)


def test_a_full_disk_is_known_before_the_download(hub, cache, monkeypatch, tmp_path):
    # The download is another process, so what it sees of the disk is set from outside: in a module of Python's own.
    (tmp_path / "sitecustomize.py").write_text(
        "import shutil\nshutil.disk_usage = lambda path: shutil._ntuple_diskusage(9, 9, 1000)\n"
    )
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    )
    hub.repos["tiny"] = repository()
    text = refusal("tiny")  # type: ignore[arg-type]
    assert "it takes " in text
    assert "but 1000 B are free in " in text
    assert "make room, or set HF_HOME to a larger disk" in text
    assert not any("model.safetensors" in line for line in hub.asked)


def test_a_hub_that_is_not_there(hub, cache, monkeypatch):
    hub.repos["tiny"] = repository()
    load_model("tiny", device="cpu")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens
    assert "the hub cannot be reached" in refusal("other")  # type: ignore[arg-type]
    # What is whole in the cache needs no hub; what lacks only a tokenizer does without.
    (folder,) = cache.glob("models--*/snapshots/*")
    (folder / "tokenizer.json").unlink()
    model = load_model("tiny", device="cpu")
    assert model.tokenizer is None
    (folder / "model.safetensors").unlink()
    assert "the hub cannot be reached" in refusal("tiny")  # type: ignore[arg-type]


def test_offline_nothing_is_asked(hub, cache, monkeypatch):
    from huggingface_hub import constants

    hub.repos["tiny"] = repository()
    load_model("tiny", device="cpu")
    hub.asked.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert load_model("tiny", device="cpu").name == "tiny"
    assert refusal("other") == (  # type: ignore[arg-type]
        "there is no sample model and no folder other, and it is not in the hub's cache; offline mode is on "
        "(HF_HUB_OFFLINE), so nothing is downloaded"
    )
    (folder,) = cache.glob("models--*/snapshots/*")
    (folder / "model.safetensors").unlink()
    assert "and it is not whole in the hub's cache" in refusal("tiny")  # type: ignore[arg-type]
    (folder / "pytorch_model.bin").touch()
    assert "only in pytorch_model.bin, a pickle" in refusal("tiny")  # type: ignore[arg-type]
    assert hub.asked == []


def test_a_process_that_dies_is_said(hub, monkeypatch):
    hub.repos["tiny"] = repository()
    monkeypatch.setattr(ours.sys, "executable", "/bin/false")
    assert "the download of tiny broke off; try again" in refusal("tiny")  # type: ignore[arg-type]


def test_a_download_is_said_where_no_terminal_shows_its_progress(hub, tmp_path):
    hub.repos["org/tiny"] = repository()
    call = [sys.executable, "-m", "engine", "models", "--inspect", "org/tiny", "--json"]
    done = subprocess.run(call, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["config"]["name"] == "org/tiny"
    assert done.stderr.startswith("layerstep: downloading org/tiny, 3 files, ")
    assert done.stderr.count("\n") == 1


def test_the_app_is_told_of_a_download(hub):
    from engine.browse import Session

    hub.repos["tiny"] = repository()
    told: list[str] = []
    summary = Session().open({"model": "tiny", "prompt": "ab"}, lambda done, total, what: told.append(what))
    assert summary["model"] == "tiny"
    assert any(what.startswith("downloading tiny, 3 files") for what in told)
