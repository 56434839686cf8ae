"""The process that downloads a model of the hub, for `engine.checkpoints.hub`, and all that it does not believe a hub.

It ends with the process that started it. A hub may be any server (HF_ENDPOINT): of what it says only that is used which
has been looked at, since huggingface_hub makes paths of file names, commits and etags.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import sys
import threading
import time
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from engine.checkpoints.folder import MAX_JSON_BYTES, refuse_dense
from engine.checkpoints.hub import CONFIG, EVERY, MIB, TIMEOUT, HubModel, Unreachable, cannot, wanted
from engine.errors import CheckpointError
from engine.text import display, human

BLOCK = 64 * 1024
"""Bytes of a file between two signs of life."""
GRACE = 1.0
"""Seconds that there are to clean up in once whoever started the download is gone."""
NAMES = ("ETag", "X-Linked-ETag", "X-Repo-Commit", "X-Xet-Hash")
"""Headers that become file names in the cache."""
_NAME = re.compile(r"(?:W/)?\"?\w[\w.-]{0,199}\"?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")


def main(repo: str, revision: str, allow_pickle: str) -> None:
    """Download a model; every line of the output is a JSON object."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job ignores
    threading.Thread(target=_end_with_parent, daemon=True).start()
    model = HubModel(repo, revision)
    try:
        _say(folder=str(_fetch(model, bool(int(allow_pickle)))))
    except (KeyboardInterrupt, BrokenPipeError):  # cancelled, or nobody listens any more
        os._exit(130)
    except Exception as error:
        why, unreachable = _reason(error)
        _say(error=cannot(model, why), unreachable=unreachable)


def _end_with_parent() -> None:
    """Wait for the end of the input, which is never written to, and then do as at Ctrl+C."""
    os.read(0, 1)
    if os.name == "posix":
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(GRACE)
    os._exit(130)


def _say(**line: object) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _fetch(model: HubModel, allow_pickle: bool) -> Path:
    """Fetch what is wanted of one commit, all of it or nothing that is large."""
    from huggingface_hub import constants, hf_hub_download, set_client_factory, try_to_load_from_cache

    set_client_factory(_client)
    constants.DOWNLOAD_CHUNK_SIZE = BLOCK
    constants.HF_HUB_DISABLE_TELEMETRY = True  # for which it would ask the hub something of its own
    log = logging.getLogger("huggingface_hub")
    log.addHandler(_Waiting())
    log.setLevel(logging.INFO)
    commit, sizes = _listing(model)
    _say(done=0)
    _Counted.most = MAX_JSON_BYTES
    folder = Path(hf_hub_download(model.repo, CONFIG, revision=model.revision, tqdm_class=_Counted)).parent
    if commit != folder.name:  # asked for by its branch, the config leaves a note in the cache of what that stands for
        commit, sizes = _listing(HubModel(model.repo, folder.name))
    missing = [
        file for file in wanted(sizes, allow_pickle)
        if not isinstance(try_to_load_from_cache(model.repo, file, revision=folder.name), str)
    ]  # fmt: skip
    size = sum(sizes[file] or 0 for file in missing)
    if size > (free := _free(Path(constants.HF_HUB_CACHE))):
        raise CheckpointError(
            f"it takes {human(size)}, but {human(free)} are free in {display(constants.HF_HUB_CACHE)}; "
            "make room, or set HF_HOME to a larger disk"
        )
    _Counted.done = 0
    _Counted.most = free if None in map(sizes.get, missing) else size + MIB
    _say(size=size, files=len(missing), done=0)
    for file in missing:
        hf_hub_download(model.repo, file, revision=folder.name, tqdm_class=_Counted)
        _say(done=_Counted.done)
    return folder


def _free(folder: Path) -> int:
    """Free bytes of the disk that a folder is on, or will be."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


# --- what the hub says ------------------------------------------------------------------------------------


def _client() -> Any:
    """huggingface_hub's own client, which also looks at what would become file names."""
    from huggingface_hub.utils._http import default_client_factory

    client = default_client_factory()
    client.event_hooks = {**client.event_hooks, "response": [_refuse_paths]}
    return client


def _refuse_paths(response: Any) -> None:
    """Refuse an answer with a header that would be no plain file name."""
    if response.request.method != "HEAD":  # from no other's is a name made
        return
    for header in NAMES:
        if not _NAME.fullmatch(value := response.headers.get(header, "x")):
            raise _odd(f"{header} {value!r}")


def _odd(what: str) -> CheckpointError:
    return CheckpointError(f"the hub's answer names {display(what)[:160]}; refused")


def _listing(model: HubModel) -> tuple[str, dict[str, int | None]]:
    """The commit that a revision stands for, and its files with their sizes (None where the hub does not say)."""
    from huggingface_hub import constants, get_session
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # type: ignore[attr-defined]

    url = f"{constants.ENDPOINT}/api/models/{model.repo}/revision/{quote(model.revision, safe='')}"
    text = bytearray()
    with get_session().stream(
        "GET", url, params={"blobs": True}, headers=build_hf_headers(), timeout=TIMEOUT
    ) as response:
        # Its headers say what is wrong; a body would be read however long it is.
        hf_raise_for_status(type(response)(response.status_code, headers=response.headers, request=response.request))
        for block in response.iter_bytes(BLOCK):
            text += block
            if len(text) > MAX_JSON_BYTES:
                raise Unreachable(f"the hub's answer is longer than {MAX_JSON_BYTES} bytes, which is no model listing")
    refuse_dense("the hub's answer", bytes(text))
    try:
        found = json.loads(text)
        commit = found["sha"]
        files = [(file["rfilename"], file.get("size")) for file in found["siblings"]]
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        said = "the hub answered with something that is no model listing"
        raise Unreachable(f"{said}; check the network, and HF_ENDPOINT where it is set") from None
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise _odd(f"commit {commit!r}")
    for name, size in files:
        if not isinstance(name, str) or not _is_plain(name):
            raise _odd(f"a file {name!r}")
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**63):
            raise _odd(f"{name!r} with a size of {str(size)[:40]!r}")
    return commit, dict(files)


def _is_plain(name: str) -> bool:
    """Whether a file's name stays within the folder that it is put in, on every system."""
    odd = "\\" in name or ":" in name or "\0" in name or name.startswith("/")
    return bool(name) and not odd and ".." not in PurePosixPath(name).parts


def _reason(error: Exception) -> tuple[str, bool]:
    """Why a download failed, and whether the hub was not reached at all."""
    from huggingface_hub import errors

    if isinstance(error, CheckpointError):
        return str(error), isinstance(error, Unreachable)
    chain: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in chain:
        chain.append(at)
        at = at.__cause__ or at.__context__

    def is_any(*kinds: type[BaseException]) -> bool:
        return any(isinstance(one, kinds) for one in chain)

    if is_any(errors.GatedRepoError):
        return "its licence has to be accepted on the hub first; do that, then `hf auth login` or set HF_TOKEN", False
    if is_any(errors.RepositoryNotFoundError):
        return "the hub has no such model, or it is private (then `hf auth login` or set HF_TOKEN)", False
    if is_any(errors.RevisionNotFoundError):
        return "it has no such branch, tag or commit", False
    if is_any(errors.RemoteEntryNotFoundError):
        return f"it has no {CONFIG}, so it is no model in a format that layerstep reads", False
    if full := next((one for one in chain if isinstance(one, OSError) and one.errno in (28, 122)), None):
        return f"the disk is full ({full.strerror}); make room, or set HF_HOME to a larger disk", False
    status = next((one.response.status_code for one in chain if isinstance(one, errors.HfHubHTTPError)), None)
    if status in (401, 403):
        return f"the hub answers with status {status}; log in with `hf auth login`, or set HF_TOKEN", False
    if status is not None:
        return f"the hub answers with status {status}; try again later", status >= 500
    why = display(" ".join(str(chain[-1]).split()))[:120] or type(chain[-1]).__name__
    return f"the hub cannot be reached ({why}); check the network, or load a folder", True


# --- how far it is ----------------------------------------------------------------------------------------


class _Counted:
    """What huggingface_hub takes for a progress bar: it counts the bytes of all files and says so now and then."""

    done = 0
    most = 0
    """More than this is not taken of a hub that sends without end."""
    _next = 0.0

    def __init__(self, *args: object, **options: object) -> None:
        self.total = options.get("total")
        self.n = 0

    def __enter__(self) -> _Counted:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing was opened."""

    def update(self, n: float | None = 1) -> None:
        _Counted.done += int(n or 0)
        if _Counted.done > _Counted.most:
            raise CheckpointError("the hub sends more than it said there would be; refused")
        self.update_transfer()

    def update_transfer(self, n: float | None = 1) -> None:
        if time.monotonic() >= _Counted._next:
            _say(done=_Counted.done)
            _Counted._next = time.monotonic() + EVERY

    def _silent(self, *args: object, **options: object) -> None:
        """Drawn by whoever started this process."""

    set_postfix_str = set_transfer_postfix_str = refresh = close = _silent


class _Waiting(logging.Handler):
    """A sign of life while another process downloads the same file, for which huggingface_hub waits."""

    def emit(self, record: logging.LogRecord) -> None:
        if "waiting to acquire lock" in record.getMessage():
            _say(done=_Counted.done)


if __name__ == "__main__":
    main(*sys.argv[1:])
