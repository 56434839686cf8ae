# ruff: noqa: E501
"""The part of the fake engine that answers about the KV cache: made-up times and errors, honest bytes."""

from __future__ import annotations

from typing import Any


class FakeCache:
    """Answers ``cache``, ``timing``, ``drift``, ``quantised`` and ``pages``; every second layer may have a window."""

    layers: int
    heads: int
    kv: int
    window: int | None
    mask: int | None
    hostile: bool
    d: dict[str, int]
    tokens: list[str]
    steps: dict[str, dict[str, Any]]
    summary: dict[str, Any]

    def _cache(self, params: dict[str, Any]) -> dict[str, Any]:
        if self.mask is not None:
            return {
                "none": True,
                "text": "an encoder sees the whole text at once: nothing is kept for later" + self._bad,
            }
        total, bad, each = len(self.tokens), self._bad, 2 * self.kv * self.d["d_head"] * 4
        layers = []
        for layer in range(self.layers):
            window = self.window if layer % 2 else None  # a window of 4 sees itself and keeps 3 rows
            stored = total if window is None else min(total, window - 1)
            layers.append({
                "layer": layer, "kind": "full" if window is None else "window", "window": window, "heads": self.heads,
                "kv_heads": self.kv, "group": self.heads // self.kv, "d_head": self.d["d_head"], "stored": stored,
                "dropped": total - stored, "bytes": stored * each, "allocated": (stored // 256 + 1) * 256 * each, "formula": stored * each,
            })  # fmt: skip

        def held(positions: int) -> int:
            return sum(
                each * min(positions, positions if row["window"] is None else row["window"] - 1) for row in layers
            )

        growth = [
            {
                "at": at,
                "positions": p["start"] + p["length"],
                "new": p["length"],
                "bytes": held(p["start"] + p["length"]),
            }
            for at, p in enumerate(self.summary["passes"])
        ]
        group = self.heads // self.kv
        return {
            "dtype": "float32", "itemsize": 4, "device": "cpu", "tokens": total, "text": f"{total} positions on cpu{bad}",
            "layers": layers, "growth": growth, "per_token": each * self.layers, "bytes": held(total),
            "sharing": [{"kv_head": n, "heads": list(range(n * group, (n + 1) * group))} for n in range(self.kv)],
            "allocated": sum(row["allocated"] for row in layers), "formula": held(total),
            "formula_text": f"2 (k and v) × {self.layers} layers × {self.kv} kv heads × 8 d_head × {total} positions × 4 B{bad}",
            "as_kinds": [{"name": name, "kv_heads": kv, "bytes": held(total) * kv // self.kv, "per_token": 1, "this": kv == self.kv}
                         for name, kv in (("MHA", self.heads), (f"GQA ({self.kv}){bad}", self.kv), ("MQA", 1))],
            "as_dtypes": [{"name": name, "bytes": int(held(total) * size / 4), "this": size == 4, "counted": counted}
                          for name, size, counted in (("float32", 4, "4 B a number"), ("bfloat16", 2, "2 B a number"), ("float8", 1, "1 B a number"),
                                                      ("int8", 1.125, "8 bits a number, and a scale of 2 B for every 16"),
                                                      ("int4", 0.625, "4 bits a number, and a scale and a minimum of 2 B for every 16"))],
            "at_lengths": [{"tokens": n, "bytes": each * self.layers * n, "beyond": n > 256} for n in (total, 64, 256, 1024)],
            "fits": {"memory": 2**33, "tokens": 2**33 // each, "text": f"fits until {2**33 // each:,} tokens in the 8.0 GiB that are free{bad}"},
        }  # fmt: skip

    @property
    def _bad(self) -> str:
        return " \x1b]52;c;Y2FjaGU=\x07[/]\n\u202e" if self.hostile else ""

    def _timing(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"cached_ms": 0.5, "uncached_ms": 4.0, "tokens": len(self.tokens), "text": "median of 5" + self._bad}

    def _drift(self, params: dict[str, Any]) -> dict[str, Any]:
        passes = range(len(self.summary["passes"]))
        gaps = [
            [0.0 if at == 0 else 10.0 ** (layer / 2 - 9) * (at + 1) for layer in range(self.layers)] for at in passes
        ]
        bit = {"site": "blocks.1.attn.z" + self._bad, "at": passes[-1], "gap": gaps[-1][-1]}
        last = min(2, self.layers - 1)
        return {
            "tolerance": 1e-5, "dtype": "float32" + self._bad, "ok": True, "first": None, "first_bit": bit,
            "worst": {"site": f"blocks.{last}.attn.k", "at": passes[-1], "gap": gaps[-1][last]},
            "rows": [{"at": at, "gaps": row} for at, row in zip(passes, gaps, strict=True)],
            "logits": [2 * max(row) for row in gaps], "text": f"{len(passes)} passes against one{self._bad}",
        }  # fmt: skip

    def _quantised(self, params: dict[str, Any]) -> dict[str, Any]:
        bits, sites = (
            params["bits"],
            [site for site in self.steps if site.endswith(("cache_k", "attn.z", "resid_post"))],
        )
        return {
            "bits": bits, "group": 32, "bytes": 1000 * bits, "bytes_before": 32_000, "text": "per head and channel" + self._bad,
            "rows": [{"site": site, "error": (n + 1) / 10**(bits / 4), "relative": (n + 1) / 100} for n, site in enumerate(sites)],
            "tokens": {"same_top": len(self.tokens) - (bits == 4), "of": len(self.tokens), "kl": 3.2e-4},
        }  # fmt: skip

    def _pages(self, params: dict[str, Any]) -> dict[str, Any]:
        size, total, rows = params["size"], len(self.tokens), []
        for layer in range(self.layers):
            used = min(total, self.window - 1) if layer % 2 and self.window else total
            pages = -(-used // size)
            rows.append({"layer": layer, "pages": pages, "used": used, "waste_bytes": 128 * (pages * size - used)})
        waste = sum(row["waste_bytes"] for row in rows)
        room = sum(128 * row["pages"] * size for row in rows)
        return {
            "size": size,
            "rows": rows,
            "waste": waste,
            "share": waste / room,
            "text": f"pages of {size}{self._bad}",
        }
