"""What a KV cache costs, by the formula; and what it would cost otherwise. Needs no torch.

Every layer holds a key and a value of d_head numbers for each kv head and each position that a later query may still
see: 2 × layers × kv heads × d_head × positions × bytes. (Shazeer 2019, for fewer kv heads than heads)
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from engine.config import ModelConfig
from engine.dtypes import GROUP, ITEMSIZE, SCALE_BYTES, quantised_row_bytes
from engine.errors import PromptError
from engine.runtime import available_memory
from engine.sites import Site
from engine.text import human

MOST_TOKENS = 2**31
"""A cache of more positions is not meant."""
BITS = {name: 8 * size for name, size in ITEMSIZE.items()} | {"float8": 8, "int8": 8, "int4": 4}
WHAT_IFS = ("float32", "bfloat16", "float8", "int8", "int4")


def cache_bytes(
    config: ModelConfig, tokens: int, itemsize: int, kv_heads: int | None = None, *, batch: int = 1, source: int = 0
) -> int:
    """Bytes of the keys and values that are held after ``tokens`` positions, at ``itemsize`` bytes a number.

    A layer with a window of W holds the last W − 1 of them, and an encoder holds nothing. An encoder-decoder holds the
    keys and values of its ``source`` positions as well. ``kv_heads`` in place of the model's own. Raises PromptError
    for a number of tokens that no cache has, and ConfigError for kv heads that do not share the query heads evenly.
    """
    config = config if kv_heads is None else replace(config, n_kv_heads=kv_heads)
    return _bytes(config, check_tokens(tokens), config.d_head * itemsize, batch, source)


def row_bytes(d_head: int, dtype: str) -> int:
    """Bytes of one key (or value) of one head: its numbers, and for int8 and int4 what their groups need."""
    return quantised_row_bytes(d_head, BITS[dtype]) if dtype.startswith("int") else d_head * BITS[dtype] // 8


def check_tokens(tokens: object) -> int:
    """A number of positions that a cache may have. Raises PromptError."""
    if isinstance(tokens, bool) or not isinstance(tokens, int) or not 0 <= tokens <= MOST_TOKENS:
        raise PromptError(f"tokens must be a whole number in 0…{MOST_TOKENS}, but is {str(tokens)[:40]}")
    return tokens


def held(config: ModelConfig, layer: int, tokens: int) -> int:
    """How many of ``tokens`` positions a layer holds."""
    return _held(config.kind(layer).window, tokens) if config.causal else 0


def _held(window: int | None, tokens: int) -> int:
    return Site("", (), window).held(tokens)


def _bytes(config: ModelConfig, tokens: int, row: int, batch: int, source: int) -> int:
    """``cache_bytes`` for keys and values of ``row`` bytes."""
    positions = sum(layers * _held(window, tokens) for window, layers in _windows(config).items())
    if config.encoder_layers:
        positions += config.n_layers * source
    return 2 * batch * config.kv_heads * row * positions


def _windows(config: ModelConfig) -> Counter[int | None]:
    """How many layers have which window."""
    return Counter(config.kind(layer).window for layer in range(config.n_layers) if config.causal)


@dataclass(frozen=True, slots=True)
class LayerCache:
    """One layer's keys and values: positions ``stored`` and ``dropped`` by its window, and their bytes.

    ``bytes`` are those of the tensors and ``allocated`` those of the buffers that they lie in; None where nothing ran.
    """

    layer: int
    window: int | None
    stored: int
    dropped: int
    bytes: int | None
    allocated: int | None
    formula: int


@dataclass(frozen=True, slots=True)
class NoCache:
    """Why a model has no KV cache."""

    text: str

    def to_json(self) -> dict[str, Any]:
        return {"none": True, "text": self.text}


@dataclass(frozen=True, slots=True)
class CacheReport:
    """What the KV cache of ``batch`` prompts of ``tokens`` positions costs.

    ``layers`` are the decoder's own, and ``cross`` the bytes (None: nothing ran) of the keys and values of the
    ``source`` of an encoder-decoder, which stay as they are. ``passes`` are (start, length). ``memory`` is free on the
    device. ``asked`` is one more length to tell of.
    """

    config: ModelConfig
    dtype: str
    device: str
    tokens: int
    batch: int
    source: int
    layers: tuple[LayerCache, ...]
    cross: int | None
    passes: tuple[tuple[int, int], ...]
    memory: int
    asked: int | None = None

    @property
    def itemsize(self) -> int:
        return ITEMSIZE[self.dtype]

    def at(self, tokens: int, dtype: str | None = None, kv_heads: int | None = None) -> int:
        """Bytes by the formula of as many prompts of another length, dtype or number of kv heads."""
        config = self.config if kv_heads is None else replace(self.config, n_kv_heads=kv_heads)
        return _bytes(config, tokens, row_bytes(config.d_head, dtype or self.dtype), self.batch, self.source)

    @property
    def formula(self) -> int:
        return self.at(self.tokens)

    @property
    def bytes(self) -> int | None:
        """All that the tensors hold, the source's keys and values included; None where nothing ran."""
        return _total([layer.bytes for layer in self.layers], self.cross)

    @property
    def allocated(self) -> int | None:
        return _total([layer.allocated for layer in self.layers], self.cross)

    @property
    def per_token(self) -> int:
        """Bytes of a position that every layer holds."""
        return 2 * self.config.n_layers * self.config.kv_heads * row_bytes(self.config.d_head, self.dtype)

    @property
    def next_token(self) -> int:
        """Bytes by which one more position makes the cache of a prompt larger: none in a window that is full."""
        return (self.at(self.tokens + 1) - self.formula) // self.batch

    @property
    def stored(self) -> int:
        """Positions held, over all layers."""
        return sum(layer.stored for layer in self.layers)

    @property
    def text(self) -> str:
        size = self.formula if self.bytes is None else self.bytes
        said = f"{human(size)} for {count(self.tokens, 'position')} in {count(len(self.layers), 'layer')}"
        said += f" and {self.batch} prompts" if self.batch > 1 else ""
        said += f"; one more adds {human(self.next_token * self.batch)}"
        if dropped := sum(layer.dropped for layer in self.layers):
            of = count(sum(layer.dropped > 0 for layer in self.layers), "layer")
            said += f"; windows have dropped {count(dropped, 'row')} in {of}"
        if self.source:
            said += f"; {human(self.cross_formula)} of it are keys and values of the source, which stay as they are"
        return said

    @property
    def cross_formula(self) -> int:
        """Bytes of the keys and values of the source."""
        return self.at(0)

    @property
    def formula_text(self) -> str:
        c = self.config
        each = f"{count(c.kv_heads, 'kv head')} × {c.d_head} d_head"
        prompts = f"{self.batch} prompts × " if self.batch > 1 else ""
        rows = Counter(layer.stored for layer in self.layers)
        if len(rows) == 1:
            own = f"2 (k and v) × {count(c.n_layers, 'layer')} × {each} × {count(self.layers[0].stored, 'position')}"
        else:
            parts = " + ".join(f"{count(n, 'layer')} × {stored:,}" for stored, n in rows.items())
            own = f"2 (k and v) × ({parts} positions) × {each}"
        terms = [own]
        if self.source:
            terms.append(
                f"2 (k and v) × {count(c.n_layers, 'layer')} × {each} × {count(self.source, 'source position')}"
            )
        return " + ".join(f"{prompts}{term} × {self.itemsize} B" for term in terms) + f" = {self.formula:,} B"

    def sharing(self) -> list[dict[str, Any]]:
        """Which query heads read the keys and values of each kv head."""
        group = self.config.group
        return [{"kv_head": g, "heads": list(range(g * group, (g + 1) * group))} for g in range(self.config.kv_heads)]

    def growth(self) -> list[dict[str, int]]:
        """After each pass: positions so far, how many of them it added, and bytes by the formula."""
        return [
            {"at": at, "positions": start + new, "new": new, "bytes": self.at(start + new)}
            for at, (start, new) in enumerate(self.passes)
        ]

    def as_kinds(self) -> list[dict[str, Any]]:
        """The same model with a kv head for each head (MHA), for a group of heads (GQA) and for all (MQA)."""
        rows = []
        for kv_heads in _kinds(self.config):
            name = "MHA" if kv_heads == self.config.n_heads else "MQA" if kv_heads == 1 else f"GQA ({kv_heads})"
            size, per_token = self.at(self.tokens, kv_heads=kv_heads), self.per_token * kv_heads // self.config.kv_heads
            this = kv_heads == self.config.kv_heads
            rows.append({"name": name, "kv_heads": kv_heads, "bytes": size, "per_token": per_token, "this": this})
        return rows

    def as_dtypes(self) -> list[dict[str, Any]]:
        """The same cache with other numbers."""
        names = WHAT_IFS if self.dtype in WHAT_IFS else (self.dtype, *WHAT_IFS)
        return [
            {
                "name": name,
                "bytes": self.at(self.tokens, name),
                "this": name == self.dtype,
                "counted": _counted(self.config.d_head, name),
            }
            for name in names
        ]

    def at_lengths(self) -> list[dict[str, Any]]:
        """The same model after other numbers of positions, up to n_ctx and beyond; ``this`` is what there is now."""
        n_ctx = self.config.n_ctx
        usual = (1024 * 4**i for i in range(11))
        lengths = {n for n in usual if n <= max(4 * n_ctx, 4096)} | {n_ctx, self.tokens}
        lengths |= set() if self.asked is None else {self.asked}
        return [
            {"tokens": n, "bytes": self.at(n), "beyond": n > n_ctx, "this": n == self.tokens} for n in sorted(lengths)
        ]

    def fits(self) -> dict[str, Any]:
        """How many positions the memory that is free on the device has room for; None: any number."""
        tokens = self._longest()
        return {"memory": self.memory, "tokens": None if tokens is None else max(0, tokens), "text": self._fit(tokens)}

    def _longest(self) -> int | None:
        """The most positions that fit; None: any number; −1: not even none."""
        most = max(self.memory, 0) + 2  # a position takes a byte at least, in a layer without a window
        if None not in (windows := _windows(self.config)):
            most = max(filter(None, windows))
            if self.at(most) <= self.memory:
                return None
        return bisect_right(range(most), self.memory, key=self.at) - 1

    def _fit(self, tokens: int | None) -> str:
        free, n_ctx = f"the {human(self.memory)} that are free on {self.device}", self.config.n_ctx
        if tokens is None:
            most = max(filter(None, _windows(self.config)))
            return (
                f"fits in {free} at any length: every layer has a window, and after {count(most - 1, 'token')} the "
                f"cache stays at {human(self.at(most))}"
            )
        if tokens < 0:
            return f"does not fit: the keys and values of the source alone take more than {free}"
        each = f" in each of {self.batch} prompts" if self.batch > 1 else ""
        said = f"fits until {count(tokens, 'token')}{each} in {free}"
        if tokens <= n_ctx:
            return said + (f", less than its n_ctx of {n_ctx:,}" if tokens < n_ctx else ", just its n_ctx")
        end = "where its positions end" if self.config.positions == "learned" else "that it was trained on"
        return f"{said}, more than the {n_ctx:,} {end}"

    def to_json(self) -> dict[str, Any]:
        c = self.config
        cross = {"positions": self.source, "bytes": self.cross, "formula": self.cross_formula}
        heads = {"heads": c.n_heads, "kv_heads": c.kv_heads, "group": c.group, "d_head": c.d_head}
        layers = [
            asdict(layer) | heads | {"kind": "full" if layer.window is None else "window"} for layer in self.layers
        ]
        return {
            "model": c.name,
            "dtype": self.dtype,
            "itemsize": self.itemsize,
            "device": self.device,
            "tokens": self.tokens,
            "batch": self.batch,
            "stored": self.stored,
            "text": self.text,
            "layers": layers,
            "cross": cross if self.source else None,
            "sharing": self.sharing(),
            "growth": self.growth(),
            "per_token": self.per_token,
            "next_token": self.next_token,
            "bytes": self.bytes,
            "allocated": self.allocated,
            "formula": self.formula,
            "formula_text": self.formula_text,
            "as_kinds": self.as_kinds(),
            "as_dtypes": self.as_dtypes(),
            "at_lengths": self.at_lengths(),
            "fits": self.fits(),
        }


def plan_cache(
    config: ModelConfig, tokens: int, dtype: str, device: str = "cpu", *, batch: int = 1, source: int = 0
) -> CacheReport | NoCache:
    """What the cache of a model would cost; nothing runs, so nothing is measured."""
    if (why := no_cache(config)) is not None:
        return why
    check_tokens(tokens)
    layers = tuple(
        layer_cache(config, layer, tokens, batch * row_bytes(config.d_head, dtype), None, None)
        for layer in range(config.n_layers)
    )
    free = available_memory(device)
    passes = ((0, tokens),) if tokens else ()
    return CacheReport(config, dtype, device, tokens, batch, source, layers, None, passes, free)


def no_cache(config: ModelConfig) -> NoCache | None:
    """Why a model has none; None of one that has."""
    if config.causal:
        return None
    return NoCache(f"{config.name} looks both ways: every new token changes what all others see, so it has no KV cache")


def layer_cache(
    config: ModelConfig, layer: int, tokens: int, row: int, size: int | None, allocated: int | None
) -> LayerCache:
    """What a layer holds of ``tokens`` positions, with keys and values of ``row`` bytes in a head."""
    stored = held(config, layer, tokens)
    formula = 2 * config.kv_heads * row * stored
    return LayerCache(layer, config.kind(layer).window, stored, tokens - stored, size, allocated, formula)


def _kinds(config: ModelConfig) -> list[int]:
    """kv heads of MHA, of GQA (the model's own, or groups of about four) and of MQA; each once."""
    heads = config.n_heads
    between = [n for n in range(2, heads) if not heads % n]
    grouped = [config.kv_heads] if config.kv_heads in between else sorted(between, key=lambda n: abs(heads / n - 4))[:1]
    return list(dict.fromkeys((heads, *grouped, 1)))


def _counted(d_head: int, dtype: str) -> str:
    """What ``row_bytes`` counts, in words."""
    if not dtype.startswith("int"):
        return f"{BITS[dtype] // 8} B a number"
    each = "a scale" if BITS[dtype] == 8 else "a scale and a minimum"
    return f"{BITS[dtype]} bits a number, and {each} of {SCALE_BYTES} B for every {min(GROUP, d_head)}"


def count(n: int, what: str) -> str:
    """A number of things: 1 layer, 6 layers."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _total(parts: Sequence[int | None], more: int | None) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) + (more or 0) if len(known) == len(parts) else None
