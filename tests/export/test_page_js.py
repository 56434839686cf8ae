"""The page's script counts, reads and writes as Python does: checked in node, with neither browser nor packages."""

from __future__ import annotations

import base64
import json
import math
import random
import shutil
import struct
import subprocess
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
import torch

from engine.errors import AddressError
from engine.export.page.page import lean
from engine.sites import LETTERS, Address, Span
from engine.statistics import Statistics
from tui.state import numbers
from tui.state.block import Stats

ASSETS = files("engine.export.page") / "assets"
NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(NODE is None, reason="node is not on this machine")


def script(*names: str) -> str:
    return "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in names)


def node(modules: tuple[str, ...], body: str, given: Any) -> Any:
    """What ``body`` returns for the JSON ``given``; numbers that are not finite come as text."""
    program = (
        '"use strict";\nconst plain = (_, x) => typeof x === "number" && !Number.isFinite(x) ? String(x) : x;\n'
        + script(*modules)
        + f'\nconst given = JSON.parse(require("fs").readFileSync(0, "utf8"));\n{body}'
    )
    assert NODE is not None
    ran = subprocess.run(
        [NODE, "-e", f"{program}\nprocess.stdout.write(JSON.stringify(answer, plain));"],
        input=json.dumps(given), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def bits(values: list[float]) -> list[str]:
    """Doubles as text that loses nothing: NaN, infinities and −0 are no JSON."""
    return [struct.pack("<d", value).hex() for value in values]


FROM_BITS = """
const double = (hex) => Buffer.from(hex, "hex").readDoubleLE(0);
"""


def awkward() -> list[float]:
    """Ties, ends of ranges, subnormals, and many numbers of all sizes."""
    chance = random.Random(6)
    ties = [n / 2**k for k in range(9) for n in (1, 3, 5, 7, 9, 11, 25, 125, 375, 12345)]
    tens = [m * 10.0**e for e in range(-12, 24) for m in (1.0, 9.5, 9.9995, 9.99995, 0.5, 2.5, 4.9999995)]
    near = [0.0, 0.005, 0.00499999, 1e-4, 9.9e-5, 9.94, 9.95, 99999.5, 999999.5, 5e-324, 1.7976931348623157e308]
    wide = [math.ldexp(chance.uniform(-1, 1), chance.randint(-60, 60)) for _ in range(2000)]
    single = [struct.unpack("<f", struct.pack("<f", chance.gauss(0, 1)))[0] for _ in range(2000)]
    found = ties + tens + near + wide + single
    return [*found, *(-value for value in found), math.nan, math.inf, -math.inf]


def test_numbers_are_written_as_the_app_writes_them():
    values = awkward()
    finite = [value for value in values if math.isfinite(value)]
    body = (
        FROM_BITS
        + """
const answer = {
  exact: given.all.map((x) => exact(double(x))),
  short: given.all.flatMap((x) => [1, 4, 6, 7, 9].map((width) => short(double(x), width))),
  whole: given.finite.map((x) => exact(double(x), true)),
  share: given.finite.map((x) => share(Math.abs(double(x)))),
  cell: given.finite.flatMap((x) => [0, 1, 2, 3].map((places) => cell(double(x), places))),
  size: given.finite.map((x) => size(Math.abs(double(x)))),
  count: [0, 7, 999, 1000, 65536, 1234567].map(count),
};"""
    )
    found = node(("numbers.js",), body, {"all": bits(values), "finite": bits(finite)})
    ours = {
        "exact": [numbers.exact(x) for x in values],
        "short": [numbers.short(x, width) for x in values for width in (1, 4, 6, 7, 9)],
        "whole": [numbers.exact(x, True) for x in finite],
        "share": [numbers.share(abs(x)) for x in finite],
        "cell": [numbers.cell(x, places) for x in finite for places in (0, 1, 2, 3)],
        "size": [numbers.size(abs(x)) for x in finite],
        "count": [numbers.count(n) for n in (0, 7, 999, 1000, 65536, 1234567)],
    }
    for name, expected in ours.items():
        different = [pair for pair in zip(found[name], expected, strict=True) if pair[0] != pair[1]]
        assert not different, (name, different[:5])


def test_a_cell_has_as_many_decimals_as_in_the_app():
    chance = random.Random(7)
    cases = [
        (low, low + abs(chance.gauss(0, 10 ** chance.randint(-4, 5))), room, most)
        for room in range(1, 9)
        for most in (1, 2, 3, 4)
        for low in (0.0, -0.5, chance.gauss(0, 1), chance.gauss(0, 100))
    ]
    limits = [10**e * m for e in range(-7, 6) for m in (1, 4.9999, 5, 5.0001)]
    body = "const answer = [given.cases.map((one) => decimals(...one)), given.limits.map(wanted)];"
    decimals, wanted = node(("numbers.js",), body, {"cases": cases, "limits": limits})
    assert decimals == [numbers.decimals(*case) for case in cases]
    assert wanted == [numbers.wanted(limit) for limit in limits]


def test_an_address_is_read_and_written_as_in_python():
    chance = random.Random(8)
    axes = ["batch", "head", "query", "key", "pos", "d_model", "kv_head", "src_key", "choice", "other"]

    def one() -> str:
        index = ",".join(
            f"{LETTERS.get(axis, axis) if chance.random() < 0.7 else axis}={value}"
            for axis in chance.sample(axes, chance.randint(0, 3))
            for value in [chance.choice(["0", "7", "-1", "2:5", ":4", "3:", "-2:-1", "012"])]
        )
        site = chance.choice(["tokens", "blocks.2.attn.hook_pattern", "encoder.blocks.0.attn.q", "hook_embed"])
        return site + (f"[{index}]" if index or chance.random() < 0.2 else "") + chance.choice(["", "@0", "@12"])

    wrong = [
        "", "a b", "3x", "[h=1]", "x[h]", "x[h=]", "x[h=1", "x]h=1[", "x[h=1]@", "x[h=1]@1.5", "x[h=1,head=2]",
        "x[q=1,src_query=1]", "x[h=1:2:3]", "x.[h=1]", "x@1234567890", "x[h=٣]", "<img src=x>", "a&b", "x[=3]",
    ]  # fmt: skip
    texts = [one() for _ in range(400)] + wrong + [" tokens[p=1] ", "x[h= 1]", "x[ h=1 , q=2 ]", "x[]", "x[:]"]

    def ours(text: str) -> str | None:
        try:
            return str(Address.parse(text))
        except AddressError:
            return None

    body = """
const read = (text) => {
  try { return formatAddress(parseAddress(text)); }
  catch (error) { if (error instanceof AddressError) return null; throw error; }
};
const answer = given.map(read);"""
    assert node(("address.js",), body, texts) == [ours(text) for text in texts]


def test_an_index_is_resolved_as_in_python_and_what_is_outside_is_refused():
    axes, shape = ("batch", "head", "query", "key"), (1, 8, 9, 5)
    texts = [f"x[{axis}={i}]" for axis in ("b", "head", "q", "k") for i in range(-10, 11)]
    texts += ["x[d=1]", "x[pos=1]", "x", "x[h=2,q=-1,k=0]", "x[q=2:5]", "x[q=:3]"]

    def ours(text: str) -> dict[str, int] | None:
        try:
            found = Address.parse(text).resolve(axes, shape)
        except AddressError:
            return None
        return {axis: (i.start or 0) if isinstance(i, Span) else i for axis, i in found.items()}

    body = """
const answer = given.texts.map((text) => {
  try { return resolveAddress(parseAddress(text), given.axes, given.shape); }
  catch (error) { if (error instanceof AddressError) return null; throw error; }
});"""
    found = node(("address.js",), body, {"texts": texts, "axes": axes, "shape": shape})
    assert found == [ours(text) for text in texts]


def test_the_letters_of_axes_are_those_of_the_engine():
    assert node(("address.js",), "const answer = LETTERS;", None) == dict(LETTERS)


DECODE = """
const texts = given.texts;
const blocks = new Blocks((id) => texts[id]);
const hex = (numbers) => Buffer.from(new Float64Array(numbers).buffer).toString("hex");
"""


def test_every_half_and_brain_float_is_decoded_exactly():
    every = np.arange(65536, dtype="<u2")
    half = every.view("<f2").astype("<f8")
    brain = torch.from_numpy(every.astype("<i4") << 16).view(torch.float32).double().numpy()
    text = base64.b64encode(every.tobytes()).decode()
    body = (
        DECODE
        + """
const answer = ["float16", "bfloat16"].map((dtype) => hex(blocks.read("t0", dtype, 0, 65536)));"""
    )
    found = node(("data.js",), body, {"texts": {"t0": text}})
    for name, expected in zip(found, (half, brain), strict=True):
        decoded = np.frombuffer(bytes.fromhex(name), "<f8")
        assert np.array_equal(decoded, expected, equal_nan=True)


@pytest.mark.parametrize("modern", [True, False])
def test_a_part_of_a_block_is_decoded_alone(modern):
    """With and without the browser's own base64, wherever the part begins between the groups of three bytes."""
    values = np.concatenate([np.random.default_rng(9).normal(size=97), [np.nan, np.inf, -np.inf, -0.0]]).astype("<f4")
    whole = np.array([0, 1, -1, 2**31 - 1, -(2**31), 7], "<i4")
    texts = {"t0": base64.b64encode(values.tobytes()).decode(), "t1": base64.b64encode(whole.tobytes()).decode()}
    fake = "Uint8Array.fromBase64 = (text) => new Uint8Array(Buffer.from(text, 'base64'));" if modern else ""
    body = (
        fake
        + DECODE
        + """
const answer = [];
for (let first = 0; first < 6; first++)
  for (const length of [0, 1, 2, 3, 50, 95]) answer.push(hex(blocks.read("t0", "float32", first, length)));
answer.push(hex(blocks.read("t0", "float32", 0, 101)), hex(blocks.read("t1", "int32", 0, 6)));"""
    )
    *parts, all_of_it, integers = (
        np.frombuffer(bytes.fromhex(one), "<f8") for one in node(("data.js",), body, {"texts": texts})
    )
    spans = [(first, length) for first in range(6) for length in (0, 1, 2, 3, 50, 95)]
    for (first, length), part in zip(spans, parts, strict=True):
        assert np.array_equal(part, values[first : first + length].astype("<f8"), equal_nan=True)
    assert np.array_equal(all_of_it, values.astype("<f8"), equal_nan=True)
    assert math.copysign(1, all_of_it[-1]) == -1
    assert integers.tolist() == whole.tolist()


def test_what_was_decoded_last_is_kept_and_no_more_than_there_is_room_for():
    body = """
const made = [];
const recent = new Recent(3, (x) => x.size);
const ask = (key, size) => recent.get(key, () => { made.push(key); return { size }; });
for (const key of "abacdab") ask(key, 1);
ask("huge", 9);
ask("huge", 9);
const answer = made;"""
    assert node(("data.js",), body, None) == ["a", "b", "c", "d", "b", "huge"]


def test_statistics_and_the_end_of_a_scale_are_those_of_the_app():
    generator = np.random.default_rng(10)
    planes = [
        generator.normal(3, 2, 400), generator.uniform(0, 1, 300), generator.normal(0, 1, 500) ** 5, np.zeros(8),
        np.array([np.nan, np.inf, -np.inf]), np.array([1e20, -1e20, 3.0, np.nan]), np.array([2.5]),
    ]  # fmt: skip
    planes = [plane.astype("<f4") for plane in planes]
    body = (
        FROM_BITS
        + """
const answer = given.map((plane) => statisticsOf(Float32Array.from(plane, double), () => false));"""
    )
    modules = ("numbers.js", "address.js", "data.js", "trace.js", "cursor.js", "plane.js")
    found = node(modules, body, [bits(plane.astype(float).tolist()) for plane in planes])
    for plane, ours in zip(planes, found, strict=True):
        stats = Stats.read(Statistics.of([torch.from_numpy(plane)]).told(masks=False))
        for name in ("low", "high", "count", "nonfinite", "masked", "signed"):
            assert float(ours[name]) == getattr(stats, name), name
        for name in ("mean", "std", "norm", "limit"):
            assert ours[name] == pytest.approx(getattr(stats, name), rel=1e-12, abs=1e-12), name
            assert numbers.short(ours[name]) == numbers.short(getattr(stats, name))


def test_all_scripts_together_are_one_that_node_can_read(tmp_path):
    names = (ASSETS / "scripts.txt").read_text(encoding="utf-8").split()
    assert sorted(names) == sorted(path.name for path in ASSETS.iterdir() if path.name.endswith(".js"))
    program = tmp_path / "page.js"
    program.write_text(f'(() => {{\n"use strict";\n{lean(script(*names))}\n}})();', encoding="utf-8")
    assert NODE is not None
    ran = subprocess.run([NODE, "--check", program], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr


def test_what_is_left_out_of_a_script_is_no_code():
    """Lines are cut at both ends, and those that begin as a comment go: so none may be inside a text or a comment."""
    names = (ASSETS / "scripts.txt").read_text(encoding="utf-8").split()
    for name in names:
        text = (ASSETS / name).read_text(encoding="utf-8")
        assert all("*/" in line for line in text.splitlines() if "/*" in line), f"{name}: a comment over two lines"
        assert all(line.count("`") % 2 == 0 for line in text.splitlines()), f"{name}: a text over two lines"


def test_nothing_in_the_page_can_ask_for_anything_or_parse_markup():
    names = (ASSETS / "scripts.txt").read_text(encoding="utf-8").split()
    text = script(*names) + (ASSETS / "page.css").read_text(encoding="utf-8")
    for word in (
        "fetch(", "XMLHttpRequest", "import(", "WebSocket", "innerHTML", "insertAdjacentHTML", "outerHTML", "DOMParser",
        "eval(", "new Function", "document.write", "url(", "@import", "localStorage", "sendBeacon", "https://",
    ):  # fmt: skip
        assert word not in text, word
