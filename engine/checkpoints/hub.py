"""Models of the Hugging Face hub: from its cache, and else downloaded into it.

What is in the cache is used without asking the hub. A download runs in a process of its own
(`engine.checkpoints.downloader`), since only so it can be stopped at once and cleans up behind itself. The token, the
cache's place and offline mode are huggingface_hub's own: `hf auth login` or HF_TOKEN, HF_HOME, HF_HUB_OFFLINE.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from engine.checkpoints.folder import foreign, read_json
from engine.errors import CheckpointError
from engine.runtime import Watch
from engine.text import display, human

CONFIG = "config.json"
TOKENIZERS = (
    "tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model",
    "source.spm", "*.tiktoken",
)  # fmt: skip
"""One of these is there where a model has a tokenizer."""
SMALL = (
    CONFIG, *TOKENIZERS, "generation_config.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "merges.txt", "target.spm", "chat_template.*", "additional_chat_templates/*", "modules.json",
    "sentence_bert_config.json", "?_*/config.json", "?_Dense/model.safetensors", "tiktoken.model",
)  # fmt: skip
"""All that is wanted beside the weights."""
SAFETENSORS = r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?"
PICKLES = r"pytorch_model(-\d+-of-\d+)?\.bin(\.index\.json)?"

MIB = 1024 * 1024
EVERY = 0.1
"""Seconds between two reports of progress."""
TIMEOUT = 20.0
"""Seconds in which the hub has to answer, and in which some of a file has to come."""
PATIENCE = 3.0
"""Seconds that a download has to clean up in."""
FILES = (".git", ".gguf", ".safetensors", ".bin", ".json")
"""Endings of what is meant as a file, and so is no name on the hub."""
_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9_][\w.-]*", re.ASCII)
_REVISION = re.compile(r"[\w][\w./-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class HubModel:
    """``org/name`` or ``name``, and a branch, tag or commit."""

    repo: str
    revision: str = "main"

    def __str__(self) -> str:
        return self.repo if self.revision == "main" else f"{self.repo}@{self.revision}"


def parse(text: str) -> HubModel | None:
    """What a text names on the hub, if it can be such a name at all."""
    repo, at, revision = text.partition("@")
    odd = "--" in repo or ".." in repo or repo.endswith((".", "-", *FILES)) or len(repo) > 96
    if odd or not _ID.fullmatch(repo) or (at and not (_REVISION.fullmatch(revision) and ".." not in revision)):
        return None
    return HubModel(repo, revision) if at else HubModel(repo)


def folder_of(model: HubModel, watch: Watch | None = None, allow_pickle: bool = False) -> Path:
    """The model's folder in the cache, downloaded first where it is not whole there.

    ``watch`` is told (MiB done, MiB in all, of what), first before anything large is fetched, and may raise Cancelled.
    Raises CheckpointError, in one line, where the hub cannot be reached or does not give it.
    """
    folder = cached(model)
    usable = folder if folder is not None and has_weights(folder, allow_pickle=True) else None
    if usable and has_weights(usable, allow_pickle) and any(any(usable.glob(name)) for name in TOKENIZERS):
        return usable
    if _offline():
        if usable:  # without a tokenizer it does too, and of a pickle its reader says what is to be said
            return usable
        state = "is not whole" if folder is not None else "is not"
        raise CheckpointError(
            f"there is no sample model and no folder {model}, and it {state} in the hub's cache; offline mode is on "
            "(HF_HUB_OFFLINE), so nothing is downloaded"
        )
    try:
        return _download(model, watch or (lambda done, total, what: None), allow_pickle)
    except Unreachable as error:
        if usable:
            return usable
        raise CheckpointError(str(error)) from None


class Unreachable(CheckpointError):
    """The hub does not answer, or not as a hub does; what is in the cache may do."""


def cannot(model: HubModel, why: str) -> str:
    """The line that says why a model is not to be had."""
    return f"there is no sample model and no folder {model}, and it cannot be downloaded: {why}"


def cached(model: HubModel) -> Path | None:
    """The model's snapshot in the cache, which may be half of it."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(model.repo, CONFIG, revision=model.revision)
    return Path(found).parent if isinstance(found, str) else None


def has_weights(folder: Path, allow_pickle: bool) -> bool:
    """Whether all files with weights are there."""
    for stem, allowed in (("model.safetensors", True), ("pytorch_model.bin", allow_pickle)):
        if not allowed:
            continue
        if (folder / stem).is_file():
            return True
        with contextlib.suppress(CheckpointError):
            placed = read_json(folder, f"{stem}.index.json").get("weight_map")
            if isinstance(placed, dict):
                return all(isinstance(file, str) and os.path.isfile(folder / file) for file in set(placed.values()))
    return False


def wanted(files: Collection[str], allow_pickle: bool) -> list[str]:
    """What of a repository's files is needed. Raises CheckpointError where it has no weights that can be read."""
    small = [file for file in files if any(fnmatchcase(file, pattern) for pattern in SMALL)]
    for pattern in (SAFETENSORS, PICKLES):
        weights = [file for file in files if re.fullmatch(pattern, file)]
        single = [file for file in weights if file in ("model.safetensors", "pytorch_model.bin")]
        if not weights:
            continue
        if pattern == PICKLES and not allow_pickle:
            raise CheckpointError(
                "it has its weights only as a pickle, pytorch_model.bin, which is read only where you allow it: "
                "--allow-pickle, allow_pickle=True"
            )
        return small + (single or weights)
    if found := [file for file in files if file.endswith(".gguf")]:
        raise CheckpointError(f"it holds GGUF files only, as {display(found[0])[:80]}; download one and give its path")
    why = foreign(files) or "layerstep needs weights in that format"
    raise CheckpointError(f"it has no model.safetensors; {why}")


def _offline() -> bool:
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def _download(model: HubModel, watch: Watch, allow_pickle: bool) -> Path:
    """Fetch the model in a process that writes one JSON object a line: size, then bytes done, then the folder."""
    total, what = 1, f"asking the hub for {model}"
    watch(0, total, what)
    command = [sys.executable, "-m", "engine.checkpoints.downloader", model.repo, model.revision]
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    child = subprocess.Popen(
        [*command, str(int(allow_pickle))],
        stdin=subprocess.PIPE,  # which closes with this process, whatever ends it, and then the download ends
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl+C is for this process, which passes it on
        env=os.environ | {"PYTHONPATH": path},
    )
    said: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
    assert child.stdout is not None
    listener = threading.Thread(target=_listen, args=(child.stdout, said), daemon=True)
    listener.start()
    done, heard = 0, time.monotonic()
    try:
        while True:
            try:
                line = said.get(timeout=EVERY)
            except Empty:
                if time.monotonic() - heard > TIMEOUT:
                    why = f"nothing has come from the hub for {TIMEOUT:.0f} seconds; check the network, and try again"
                    raise Unreachable(cannot(model, why)) from None
            else:
                heard = time.monotonic()
                if line is None:
                    raise CheckpointError(f"the download of {model} broke off; try again")
                if "error" in line:
                    raise (Unreachable if line.get("unreachable") else CheckpointError)(line["error"])
                if "folder" in line:
                    return Path(line["folder"])
                if "size" in line:
                    total = line["size"]
                    what = f"downloading {model}, {line['files']} files, {human(total)}"
                done = line.get("done", done)
            watch(done // MIB, max(1, total // MIB), what)
    finally:
        _stop(child)
        listener.join(PATIENCE)


def _listen(source: Any, said: SimpleQueue[dict[str, Any] | None]) -> None:
    with source:
        for line in source:
            with contextlib.suppress(ValueError):
                said.put(json.loads(line))
    said.put(None)


def _stop(child: subprocess.Popen[bytes]) -> None:
    """End the download as Ctrl+C would, so that no half file is left, and then without asking."""
    if child.poll() is None:
        with contextlib.suppress(OSError):
            child.send_signal(signal.SIGINT if os.name == "posix" else signal.SIGTERM)
    try:
        child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    assert child.stdin is not None
    child.stdin.close()
