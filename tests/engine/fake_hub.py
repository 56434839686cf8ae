"""A small server that speaks as much of the Hugging Face hub as a download needs, on this machine."""

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "c" * 40


@dataclass
class FakeHub:
    """``repos``: name -> file -> bytes. ``refuse`` answers a repository with (status, the hub's error code)."""

    url: str = ""
    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refuse: dict[str, tuple[int, str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)
    seconds: float = 0.0
    """How long every block of a file takes."""
    listings: dict[str, Any] = field(default_factory=dict)
    """What is said of a repository instead of what is in it: bytes, or changes of the listing."""
    etags: dict[str, str] = field(default_factory=dict)
    """A file's etag, instead of its own."""
    dripping: set[str] = field(default_factory=set)
    """What is given a byte at a time, and never to its end: ends of paths."""
    closed: threading.Event = field(default_factory=threading.Event)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, *args: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        self.hub.asked.append(f"{self.command} {path}")
        self.hub.tokens.add(self.headers.get("Authorization"))
        if path.startswith("api/models/"):
            repo, _, revision = path.removeprefix("api/models/").partition("/revision/")
            if self._refused(repo, revision):
                return
            siblings = [{"rfilename": n, "size": len(d), "blobId": "0" * 40} for n, d in self.hub.repos[repo].items()]
            said = self.hub.listings.get(repo, {})
            own = {"id": repo, "sha": COMMIT, "siblings": siblings}
            self._send(200, said if isinstance(said, bytes) else json.dumps(own | said).encode(), body)
            return
        repo, _, rest = path.partition("/resolve/")
        revision, _, file = rest.partition("/")
        if self._refused(repo, revision):
            return
        data = self.hub.repos[repo].get(file)
        if data is None:
            self._send(404, b"", body, {"X-Error-Code": "EntryNotFound"})
            return
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{self.hub.etags.get(file) or hashlib.sha256(data).hexdigest()}"'}
        self._send(200, data, body, headers)

    def _refused(self, repo: str, revision: str) -> bool:
        status, code = self.hub.refuse.get(repo, (0, ""))
        if not status and repo not in self.hub.repos:
            status, code = 404, "RepoNotFound"
        if not status and revision not in ("main", COMMIT):
            status, code = 404, "RevisionNotFound"
        if status:
            self._send(status, b"", True, {"X-Error-Code": code} if code else {})
        return bool(status)

    def _send(self, status: int, data: bytes, body: bool, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if not body:
            return
        drips = self.hub.dripping and urlsplit(self.path).path.endswith(tuple(self.hub.dripping))
        while drips and not self.hub.closed.wait(0.1):
            self.wfile.write(b" ")
            self.wfile.flush()
        for at in range(0, len(data), 65536):
            self.wfile.write(data[at : at + 65536])
            self.wfile.flush()
            time.sleep(self.hub.seconds if len(data) > 65536 else 0)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a download that was broken off: that is what is tested."""


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    """A hub at ``url``."""
    hub = FakeHub()
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.closed.set()
        server.shutdown()
        server.server_close()
        thread.join()
