# ruff: noqa: E501
"""A small stand-in for ``engine.service``: the same conversation, made-up numbers, no torch.

As a script it speaks over stdin and stdout (``python fake_engine.py [--slow SECONDS] [--hostile] [--die-on METHOD]``);
in a test ``MemoryLink`` runs it inside the event loop. Every number is a pure function of site and index.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import struct
import sys
import threading
import time
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fake_cache import FakeCache
from fake_generation import VOCABULARY, Branch, FakeError, FakeGeneration, Generation, labelled
from fake_looks import FakeLooks

from engine.sites import Address
from engine.text import display

HOSTILE = [
    "[/", "[/]", "[/#888]", "[b", "[not a style]", "[bold]", "[1,2]", "[link=file:///x]", "\\[b]",
    "AA\x1b]0;PWNED\x07BB\x1b[5;5HCC\x00DD\x9b31mEE\rFF", "\x1b]52;c;UFdORUQ=\x07", "\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\",
    "\x1bPq#0\x1b\\", "\x1b(0", "\x1b[", "\x7f", "\u202eevil\u202c", "e\u0301", "❤\ufe0f", "👨\u200d👩\u200d👧", "🇩🇪", "👍🏽",
    "漢字", "\u200b", "\t", "\n", " ", "\u2060", "\u0301", "\u200d\u200d\u200d" + "a" * 79,
]  # fmt: skip
WORDS = ["The", "server", "crashed", "because", "the", "disk", "was", "full"]
PLACES = ("pos", "query", "key", "kv_pos")
HEAD_AXES = {"q": "head", "rot_q": "head", "z": "head"}
LOOK_PARTS = 10
"""How often a look says how far it is."""


class FakeEngine(FakeGeneration, FakeCache, FakeLooks):
    """Answers requests; ``slow`` is the time an ``open`` takes."""

    def __init__(
        self,
        layers: int = 2,
        heads: int = 4,
        kv: int = 2,
        slow: float = 0.0,
        hostile: bool = False,
        die_on: str = "",
        source: bool = False,
        experts: bool = False,
        mask: int | None = None,
        withheld: str = "",
        window: int | None = None,
        going: Generation | None = None,
        n_ctx: int = 256,
        rotary: bool = False,
    ) -> None:
        """``source``: the prompt is what an encoder reads; ``mask``: the position an encoder is to fill in;
        ``withheld``: why windows of steps off the path cannot be had; ``window``: how far every second layer looks
        back; ``going``: how it generates; ``rotary``: q and k are turned in steps of their own."""
        self.rotary, self.salt = rotary, ""
        self.other: FakeEngine | None = None
        self.window, self.going, self.n_ctx = window, going or Generation(), n_ctx
        self.vocabulary = HOSTILE if hostile else VOCABULARY
        self.branches: list[Branch] = []
        self.current = 0
        self.passes: list[tuple[int, int]] = []
        self.is_cancelled: Callable[[], bool] = lambda: False
        self.source, self.experts, self.mask, self.withheld = source, experts, mask, withheld
        self.words: list[str] = []
        self.layers, self.heads, self.kv, self.slow, self.hostile, self.die_on = (
            layers,
            heads,
            kv,
            slow,
            hostile,
            die_on,
        )
        self.d = {"d_model": 32, "d_head": 8, "d_mlp": 64, "d_rot": 8, "d_vocab": 500, "scale": 1}
        self.chosen = {"choice": 2, "d_expert": 64}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.summary: dict[str, Any] = {}
        self.tokens: list[str] = []
        self.steps: dict[str, dict[str, Any]] = {}

    def answer(
        self,
        method: str,
        params: dict[str, Any],
        progress: Callable[[int, int, str], None],
        cancelled: Callable[[], bool],
    ) -> tuple[dict[str, Any], array[float]]:
        """One request to its end."""
        self.asked.append((method, params))
        self.is_cancelled = cancelled
        if method == self.die_on:
            raise SystemExit("fake engine: out of memory [/] \x1b[31m")
        if params.get("trace") == "other":
            return self._beside(method, params, progress, cancelled)
        if method == "open":
            for done in range(20):
                if cancelled():
                    raise FakeError("Cancelled", "cancelled")
                progress(done, 20, f"blocks.0.step{done}")
                time.sleep(self.slow / 20) if self.slow else None
            return self._open(params), array("f")
        if method == "export":
            for done in range(5):
                if cancelled():
                    raise FakeError("Cancelled", "cancelled")
                progress(done, 5, f"blocks.{done}")
        if method in ("window", "look", "top", "checks", "save", "export") and not self.summary:
            raise FakeError("NoTrace", "no trace is open")
        if method == "look" and self.slow:
            for done in range(LOOK_PARTS):
                if cancelled():
                    raise FakeError("Cancelled", "cancelled")
                progress(done, LOOK_PARTS, params["name"])
                time.sleep(self.slow / LOOK_PARTS)
        if method in ("timing", "drift", "quantised"):  # they run passes, and say how far they are
            for done in range(5):
                if cancelled():
                    raise FakeError("Cancelled", "cancelled")
                progress(done, 5, f"pass {done}")
        call = getattr(self, f"_{method}", None)
        if call is None:
            raise FakeError("UsageError", f"no method {method!r}")
        result = call(params)
        return result if isinstance(result, tuple) else (result, array("f"))

    def _beside(
        self,
        method: str,
        params: dict[str, Any],
        progress: Callable[[int, int, str], None],
        cancelled: Callable[[], bool],
    ) -> tuple[dict[str, Any], array[float]]:
        """A request about the other trace; its values are others where its model or its prompt is another."""
        own = {key: value for key, value in params.items() if key != "trace"}
        if method == "open":
            other = FakeEngine(
                self.layers, self.heads, self.kv, self.slow, self.hostile, source=self.source, rotary=self.rotary
            )
            answer = other.answer(method, own, progress, cancelled)
            mine, its = ([str(one.summary.get(key)) for key in ("model", "prompt", "edits")] for one in (self, other))
            other.salt = "" if mine == its else " ".join(its)
            self.other = other
            return answer
        return self._second.answer(method, own, progress, cancelled)

    @property
    def _second(self) -> FakeEngine:
        if self.other is None:
            raise FakeError("NoTrace", "no trace is open beside this one")
        return self.other

    def _close_other(self, params: dict[str, Any]) -> dict[str, Any]:
        self.other = None
        return {}

    def _open(self, params: dict[str, Any]) -> dict[str, Any]:
        if params.get("model") == "missing":
            raise FakeError("ModelError", "there is no model 'missing [/]'; here are: classic, modern")
        if params.get("file") and not str(params["file"]).endswith(".safetensors"):
            raise FakeError("TraceFileError", f"{params['file']} is no trace file")
        prompt = params.get("prompt") if params.get("file") is None else "a saved prompt"
        if prompt == "":
            raise FakeError("PromptError", "the prompt is empty")
        words = HOSTILE if self.hostile else [w if i == 0 else " " + w for i, w in enumerate(str(prompt).split(" "))]
        self.words = words if self.source else []
        self.tokens = ["<|bos|>", *(str(params.get("target") or "").split() if self.source else words)]
        self.passes = [(0, len(self.tokens))]
        self.branches, self.current = [Branch(self.tokens, self.passes)], 0
        edits = [str(edit) for edit in params.get("edits") or ()]
        bad = "\x1b]52;c;bW9kZWw=\x07[/]" if self.hostile else ""
        self.summary = {
            "model": display((params.get("model") or "modern") + bad), "file": params.get("file"), "prompt": prompt,
            "device": "cpu", "dtype": "float32", "kernel": "flash", "notices": ["notice [/]" + bad] if self.hostile else [],
            "report": ["cast 38 tensors from float16 to float32", "ignored x.inv_freq" + bad],
            "config": {"n_layers": self.layers, "n_heads": self.heads, "n_kv_heads": self.kv, "norm": "rms",
                       "positions": "rotary", "n_ctx": self.n_ctx, **self.d},
            "facts": [["n_layers", str(self.layers)], ["kinds", "sliding, window 8; full"]],
            "source_tokens": [[self._token(i + 1, text) for i, text in enumerate(self.words)]] if self.source else [],
            "target": " ".join(self.tokens[1:]) if self.source else "",
            "masked": [[] if self.mask is None else [self.mask]],
            "predicts": "next token" if self.mask is None else "masked token", "edits": edits,
        }  # fmt: skip
        if params.get("generate"):
            self._generate({"n": params["generate"]})
        return self.retold()

    def retold(self) -> dict[str, Any]:
        """The summary with the tokens and passes that there are now."""
        self.steps = {step["site"]: step for step in self._program(len(self.tokens))}
        passes = [
            {"start": start, "length": length, "seconds": 0.001 * length, "token": labelled(self.tokens[start])}
            for start, length in self.passes
        ]
        self.summary = self.summary | {
            "tokens": [[self._token(i, text) for i, text in enumerate(self.tokens)]],
            "passes": passes, "steps": list(self.steps.values()),
            "branch": self.current, "branches": max(1, len(self.branches)), "depth": self.depth(),
        }  # fmt: skip
        return self.summary

    def _token(self, index: int, text: str) -> dict[str, Any]:
        special = index == 0
        known = text in self.vocabulary and index >= self.prompt_length
        return {
            "id": 13 + self.vocabulary.index(text) if known else zlib.crc32(text.encode("utf-8", "replace")) % 500,
            "hex": text.encode("utf-8", "replace").hex(),
            "label": labelled(text, index), "group": None, "special": special,
            "origin": "tokenizer" if special else "generated" if index >= self.prompt_length else "text",
        }  # fmt: skip

    def _program(self, n: int) -> Iterator[dict[str, Any]]:
        stream, sizes = ("batch", "pos", "d_model"), {"batch": 1, "pos": n, "query": n, "key": n, "kv_pos": n}
        sizes |= {"head": self.heads, "kv_head": self.kv, **self.d, **self.chosen}
        sizes |= {"src": len(self.words), "src_key": len(self.words)}

        def step(
            site: str, part: str, label: str, axes: tuple[str, ...], formula: str = "y = W x + b", **more: Any
        ) -> dict[str, Any]:
            block = int(site.split(".")[1]) if site.startswith("blocks.") else None
            if self.window is not None and block is not None and block % 2 and {"key", "kv_pos"} & set(axes):
                more["window"] = self.window
            return {
                "site": site, "block": block, "part": part, "label": label, "axes": list(axes),
                "shape": [sizes[a] for a in axes], "on_path": True, "kept": True, "dtype": "float32",
                "title": f"The {label} step", "formula": formula, "latex": "", "numbers": f"{n} tokens, d_model = 32",
                "story": f"This step writes {label}. It is made up, and so are its numbers. A student would read here why.",
                "reads": [], "params": [], "looks": self.looks_of(site, axes), **more,
            }  # fmt: skip

        if self.source:
            yield step("source_tokens", "input", "source_tokens", ("batch", "src"), dtype="int64")
            yield step("encoder.blocks.0.resid_post", "residual", "resid out", ("batch", "src", "d_model"))
        yield step("tokens", "input", "tokens", ("batch", "pos"), "ids = tokenize(text)", dtype="int64")
        yield step("positions", "input", "positions", ("batch", "pos"), "0, 1, 2, …", dtype="int64")
        yield step("embed", "input", "embed", stream, "x = W_E[id]", reads=["tokens"], params=["embed.weight"])
        yield step("rotary_cos", "input", "cos", ("batch", "pos", "d_rot"), "cos(p·θ^(-2i/d))", reads=["positions"])
        last = "embed"
        for layer in range(self.layers):
            b = f"blocks.{layer}"
            yield step(f"{b}.resid_pre", "residual", "resid in", stream, "x", reads=[last])
            yield step(
                f"{b}.ln1.scale", "norm", "scale", ("batch", "pos", "scale"), "s = √(mean x² + ε)", on_path=False
            )
            yield step(f"{b}.ln1.normalized", "norm", "normalized", stream, "y = w · x / s", reads=[f"{b}.resid_pre"])
            for name in "qkv":
                heads = HEAD_AXES.get(name, "kv_head")
                yield step(
                    f"{b}.attn.{name}", "attention", name, ("batch", "pos", heads, "d_head"), f"{name} = W_{name} y"
                )
            for name in ("rot_q", "rot_k") if self.rotary else ():
                heads = HEAD_AXES.get(name, "kv_head")
                yield step(f"{b}.attn.{name}", "attention", name, ("batch", "pos", heads, "d_head"), "q cos + q⊥ sin")
            yield step(f"{b}.attn.cache_k", "attention", "cache k", ("batch", "kv_pos", "kv_head", "d_head"))
            yield step(f"{b}.attn.cache_v", "attention", "cache v", ("batch", "kv_pos", "kv_head", "d_head"))
            for name, formula in (
                ("scores", "s = q · k"),
                ("scaled", "s / √d_head"),
                ("masked", "s or −∞"),
                ("pattern", "p = eˢ / Σ eˢ"),
            ):
                yield step(
                    f"{b}.attn.{name}",
                    "attention",
                    name,
                    ("batch", "head", "query", "key"),
                    formula,
                    on_path=False,
                    kept=False,
                )
            yield step(f"{b}.attn.z", "attention", "z", ("batch", "pos", "head", "d_head"), "z = Σ p v")
            yield step(
                f"{b}.attn.result",
                "attention",
                "result",
                ("batch", "pos", "head", "d_model"),
                on_path=False,
                kept=False,
            )
            yield step(f"{b}.attn_out", "attention", "attn out", stream, "o = W_O z")
            yield step(
                f"{b}.resid_mid", "residual", "resid mid", stream, "x + o", reads=[f"{b}.resid_pre", f"{b}.attn_out"]
            )
            if self.source:
                cross = ("batch", "head", "query", "src_key")
                yield step(
                    f"{b}.cross_attn.pattern", "cross-attention", "pattern", cross, block_name=f"decoder block {layer}"
                )
            if self.experts:
                chosen = ("batch", "pos", "choice")
                yield step(f"{b}.mlp.expert_indices", "mlp", "expert_indices", chosen, dtype="int64")
                yield step(f"{b}.mlp.expert_out", "mlp", "expert_out", (*chosen, "d_expert"))
            yield step(f"{b}.mlp.post", "mlp", "activated", ("batch", "pos", "d_mlp"), "silu(g) · u")
            yield step(f"{b}.mlp_out", "mlp", "mlp out", stream)
            yield step(f"{b}.resid_post", "residual", "resid out", stream, "x + m")
            last = f"{b}.resid_post"
        yield step("ln_final.normalized", "output", "final norm", stream, reads=[last])
        yield step("logits", "output", "logits", ("batch", "pos", "d_vocab"), "l = W_U y")
        yield step("probs", "output", "probs", ("batch", "pos", "d_vocab"), "p = softmax(l)", on_path=False)

    def value(self, site: str, index: dict[str, int]) -> float:
        """The made-up value of one element."""
        name = site.rsplit(".", 1)[-1]
        if site == "tokens":
            return float(self.summary["tokens"][0][index["pos"]]["id"])
        if site == "positions":
            return float(index["pos"])
        if name in ("source_tokens", "expert_indices"):
            return float(index.get("src", (3 * index.get("pos", 0) + index.get("choice", 0)) % 8))
        if name in ("rot_q", "rot_k"):
            return self.turned(site, index)
        if name == "rotary_cos":
            return math.cos(self.turn_of(index["pos"], index["d_rot"]))
        if name in ("scaled", "masked") and not (name == "masked" and index["key"] > index["query"]):
            return self.value(site.replace(name, "scores"), index) / math.sqrt(self.d["d_head"])
        seed = zlib.crc32((self.salt + site).encode()) % 1000
        if name == "pattern":
            if "src_key" in index:
                return 1 / len(self.words)
            if index["key"] > index["query"]:
                return 0.0
            weights = [
                1.5 + math.sin(seed + 3 * index["head"] + 2 * index["query"] + 7 * k) for k in range(index["query"] + 1)
            ]
            return weights[index["key"]] / sum(weights)
        if name == "masked" and index["key"] > index["query"]:
            return -math.inf
        if name == "scale":
            return 1.0 + 0.1 * index["pos"]
        if name == "z" and index.get("pos") == 1 and self.hostile:
            return math.nan if index["d_head"] % 2 else math.inf
        phase = sum((i + 1) * 1.7 * v for i, v in enumerate(index.values()))
        return 2.5 * math.sin(seed + phase) + 0.4 * math.cos(0.3 * phase)

    def _window(self, params: dict[str, Any]) -> tuple[dict[str, Any], array[float]]:
        address = Address.parse(params["address"])
        step = self.steps.get(address.site)
        if step is not None and self.withheld and not step["on_path"]:
            raise FakeError("NotKeptError", self.withheld)
        if minus := params.get("minus"):
            cells, told = self.difference(params, self._second if minus.get("trace") == "other" else self)
        else:
            cells = self.cells(address, params.get("over"))
            told = {"stats": self.statistics(address.site.rsplit(".", 1)[-1], cells.values)}
        places = zip(cells.axes, cells.origin, cells.ranges, strict=True)
        return {
            "address": str(address), "axes": list(cells.axes), "shape": cells.shape, "full_shape": list(cells.full),
            "dtype": self.steps[address.site]["dtype"], "numbers": f"{len(self.tokens)} tokens{self._told_of(address.at)}",
            "origin": {axis: first + along[0] for axis, first, along in places if axis in PLACES and along}, **told,
        }, cells.values  # fmt: skip

    def statistics(self, name: str, values: Sequence[float]) -> dict[str, Any]:
        """Those of a plane of the site called ``name`` inside its block."""
        finite = [v for v in values if math.isfinite(v)] or [0.0]
        mean = sum(finite) / len(finite)
        masked = {"pattern": 0.0, "masked": -math.inf}.get(name)
        hidden = 0 if masked is None else sum(v == masked for v in values)
        return {
            "min": min(finite), "max": max(finite), "mean": mean, "std": math.sqrt(sum((v - mean) ** 2 for v in finite) / len(finite)),
            "norm": math.sqrt(sum(v * v for v in finite)), "nonfinite": sum(not math.isfinite(v) for v in values) - (hidden if name == "masked" else 0),
            "masked": hidden, "count": len(values),
        }  # fmt: skip

    def in_pass(self, step: dict[str, Any], at: int | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shape of a site in one pass or over all, and the position of the first index on each axis."""
        if at is None:
            return tuple(step["shape"]), (0,) * len(step["shape"])
        if at >= len(self.passes):
            raise FakeError("AddressError", f"there is no pass {at}")
        start, length = self.passes[at]
        first = max(0, start - step["window"] + 1) if step.get("window") else 0
        ends = {"pos": (start, length), "query": (start, length)}
        ends |= dict.fromkeys(("key", "kv_pos"), (first, start + length - first))
        places = [ends.get(axis, (0, size)) for axis, size in zip(step["axes"], step["shape"], strict=True)]
        return tuple(size for _, size in places), tuple(o for o, _ in places)

    def _top(self, params: dict[str, Any]) -> dict[str, Any]:
        address = Address.parse(params["address"])
        pos = int(dict(address.index).get("p", 0))  # type: ignore[arg-type]
        pos += self.passes[address.at][0] if address.at else 0
        ranked = self.ranked(pos)
        rows = [
            {"id": number, "label": labelled(text, number), "prob": prob, "logit": 9.5 - i}
            for i, (number, text, prob) in enumerate(ranked[: int(params.get("k", 10))])
        ]
        if params.get("temperature"):
            for i, row in enumerate(rows):
                row["scores_prob"] = 0.6 - 0.2 * i if i < 3 else None
        return {"rows": rows, "nonfinite": 0, "numbers": f"over 64 tokens{self._told_of(address.at)}"}

    def _told_of(self, at: int | None) -> str:
        return "" if at is None else f" in pass {at}"

    def _checks(self, params: dict[str, Any]) -> dict[str, Any]:
        rows = [
            {
                "name": "rows sum to 1",
                "site": site,
                "figure": 1.2e-7 if params.get("at") is None else (params["at"] + 1) * 1e-8,
                "tolerance": 1e-5,
                "ok": True,
                "text": "max |Σ pattern − 1| = 1.2e-07 ≤ 1e-05",
            }
            for site in self.steps
            if site.endswith("pattern") and params.get("site") in (None, site)
        ]
        if params.get("site", "").endswith("attn.z"):
            rows.append(
                {
                    "name": "pattern @ v = z",
                    "site": params["site"],
                    "figure": 0.1,
                    "tolerance": 1e-5,
                    "ok": False,
                    "text": "0.1 > 1e-05",
                }
            )
        return {"rows": rows}

    def _models(self, params: dict[str, Any]) -> dict[str, Any]:
        rows = [
            {"name": n, "path": f"samples/{n}", "text": "4 layers · 8 heads · d 128"} for n in ("classic", "modern")
        ]
        if self.hostile:
            rows += [{"name": text, "path": text, "text": text} for text in HOSTILE]
        return {"rows": rows}

    def _save(self, params: dict[str, Any]) -> dict[str, Any]:
        if params["path"].startswith("/nowhere"):
            raise FakeError("WriteError", f"cannot write {params['path']}: no such folder")
        return {"path": params["path"], "size": 123456}

    def _export(self, params: dict[str, Any]) -> dict[str, Any]:
        if self.withheld:
            raise FakeError("NotKeptError", self.withheld)
        path = Path(params["path"])
        if path.exists() and not params["force"]:
            raise FakeError("ExportError", f"{path} exists already; choose another name")
        path.write_text(json.dumps(params), encoding="utf-8")
        return {"path": str(path), "size": path.stat().st_size}

    def _shutdown(self, params: dict[str, Any]) -> dict[str, Any]:
        return {}


class MemoryLink:
    """The fake engine inside the event loop: each request is answered on a later turn of the loop, in order.

    ``pace`` is how many seconds a generated token takes; the loop goes on meanwhile.
    """

    def __init__(
        self, engine: FakeEngine | None = None, ready: bool = True, hold: bool = False, pace: float = 0.0
    ) -> None:
        self.engine = engine or FakeEngine()
        self.ready, self.hold, self.pace, self._free = ready, hold, pace, 0.0
        self.closed = False
        self.sent: list[dict[str, Any]] = []
        self._queue: list[dict[str, Any]] = []
        self._cancelled: set[int] = set()
        self._attached = False

    async def attach(self, on_frame: Callable[..., None], on_gone: Callable[[str], None]) -> None:
        self._on_frame, self._on_gone, self._attached = on_frame, on_gone, True
        self._loop = asyncio.get_running_loop()
        on_frame({"event": "hello"}, b"")
        if self.ready:
            on_frame({"event": "ready", "torch": "0", "device": "cpu", "threads": 1}, b"")
        for _ in self._queue:
            self._loop.call_soon(self._next)

    def send(self, data: bytes) -> None:
        header = json.loads(data[4:])
        self.sent.append(header)
        if header["method"] == "cancel":
            self._cancelled.add(header["params"]["id"])
            return
        self._queue.append(header)
        if self._attached and not self.hold:
            self._free = max(self._free, self._loop.time()) + (self.pace if header["method"] == "generate" else 0)
            self._loop.call_at(self._free, self._next) if self.pace else self._loop.call_soon(self._next)

    def release(self) -> None:
        """Answer what was held back."""
        self.hold = False
        while self._queue:
            self._next()

    def _next(self) -> None:
        if self.closed or not self._queue or self.hold:
            return
        request = self._queue.pop(0)
        head = {"id": request["id"], "run": request["run"]}
        if request["id"] in self._cancelled:
            self._on_frame({**head, "ok": False, "error": {"kind": "Cancelled", "message": "cancelled"}}, b"")
            return
        try:
            result, values = self.engine.answer(
                request["method"], request["params"],
                lambda done, total, what: self._on_frame({"event": "progress", **head, "done": done, "total": total, "what": what}, b""),
                lambda: request["id"] in self._cancelled,
            )  # fmt: skip
        except FakeError as error:
            self._on_frame({**head, "ok": False, "error": {"kind": error.kind, "message": str(error)}}, b"")
        except SystemExit as end:
            self.closed = True
            self._on_gone(f"the engine ended with code 1: {end}")
        else:
            self._on_frame({**head, "ok": True, "result": result}, values.tobytes())

    def die(self) -> None:
        """End as a process does that is killed."""
        if not self.closed:
            self.closed = True
            self._on_gone("the engine ended with signal 9")

    async def close(self, patience: float = 0.3) -> None:
        self.closed = True

    def kill(self) -> None:
        self.closed = True


def main() -> None:
    """Speak the protocol over stdin and stdout."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--slow", type=float, default=0.0)
    parser.add_argument("--start", type=float, default=0.0, help="seconds until ready")
    parser.add_argument("--hostile", action="store_true")
    parser.add_argument("--deaf", action="store_true", help="ignore SIGTERM and the end of stdin")
    parser.add_argument("--die-on", default="")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rotary", action="store_true", help="q and k are turned in steps of their own")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds that a generated token takes")
    given = parser.parse_args()
    going = Generation(pace=given.pace)
    engine = FakeEngine(
        given.layers, slow=given.slow, hostile=given.hostile, die_on=given.die_on, going=going, rotary=given.rotary
    )
    lock, cancelled = threading.Lock(), set()

    def write(header: dict[str, Any], payload: bytes = b"") -> None:
        text = json.dumps(header | ({"bytes": len(payload)} if payload else {})).encode()
        with lock:
            sys.stdout.buffer.write(struct.pack(">I", len(text)) + text + payload)
            sys.stdout.buffer.flush()

    if given.deaf:
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    requests: list[dict[str, Any] | None] = []
    came = threading.Condition()

    def read() -> None:
        pipe = sys.stdin.buffer
        while head := pipe.read(4):
            request = json.loads(pipe.read(struct.unpack(">I", head)[0]))
            if request["method"] == "cancel":
                cancelled.add(request["params"]["id"])
                continue
            with came:
                requests.append(request)
                came.notify()
        with came:
            requests.append(None)
            came.notify()

    write({"event": "hello"})
    threading.Thread(target=read, daemon=True).start()
    time.sleep(given.start)
    write({"event": "ready", "torch": "0", "device": "cpu", "threads": 1})
    while True:
        with came:
            came.wait_for(lambda: requests)
            request = requests.pop(0)
        if request is None or request["method"] == "shutdown":
            if given.deaf:
                time.sleep(600)
            return
        head = {"id": request["id"], "run": request["run"]}
        try:
            result, values = engine.answer(
                request["method"], request["params"],
                lambda done, total, what, head=head: write({"event": "progress", **head, "done": done, "total": total, "what": what}),
                lambda number=request["id"]: number in cancelled,
            )  # fmt: skip
        except FakeError as error:
            write({**head, "ok": False, "error": {"kind": error.kind, "message": str(error)}})
        except SystemExit as end:
            print(end, file=sys.stderr, flush=True)
            os._exit(1)
        else:
            write({**head, "ok": True, "result": result}, values.tobytes())


if __name__ == "__main__":
    main()
