"""``layerstep cache``: what a run's KV cache holds, and what it would cost."""

import json
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pytest
from calls import Call, shell, write_model
from safetensors.torch import load_file

from engine import Trace, extend, load_model, open_trace, trace
from engine.analysis.cachecost import cache_bytes, plan_cache
from engine.analysis.drift import Drift, drift
from engine.analysis.kvcache import cache_report
from engine.analysis.pages import pages, plan_pages
from engine.analysis.quantised import quantised
from engine.cli.cache import MOST
from engine.cli.cachetext import ADDED, DROPPED, STORED, grid
from engine.cli.whatifs import drift_lines
from engine.config import LayerKind, Rotary
from engine.generating import MAX_NEW
from engine.text import human

PROMPT = "dog bites man"
WINDOW = {
    "positions": "rotary", "n_layers": 3, "layer_kinds": ("near", "far", "near"),
    "kinds": (LayerKind(name="near", window=4, rotary=Rotary()), LayerKind(name="far", rotary=Rotary())),
}  # fmt: skip


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of windowed and full layers."""
    return write_model(tmp_path_factory.mktemp("models") / "mixed", **WINDOW)


def cells(text: str, layer: int) -> str:
    """The marks of a layer's row in the grid."""
    rows = [line for line in text.splitlines() if line.startswith(f"{layer} ") and set(line) & {STORED, ADDED, DROPPED}]
    [row] = rows
    return "".join(mark for mark in row if mark in STORED + ADDED + DROPPED)


# -------------------------------------------------------------------------------------------------- of a run


def test_json_is_the_engines_report(call: Call, mixed):
    done = call("cache", PROMPT, "--model", mixed, "--json")
    assert (done.code, done.err) == (0, "")
    told = cache_report(trace(load_model(mixed), PROMPT)).to_json()
    assert told.keys() == done.json.keys()
    told.pop("fits")  # others use the machine's memory too
    assert done.json.items() >= told.items()
    assert done.json["bytes"] == done.json["formula"] == cache_bytes(load_model(mixed).config, done.json["tokens"], 4)


def test_as_text(call: Call, mixed):
    done = call("cache", PROMPT, "--model", mixed)
    assert (done.code, done.err) == (0, "")
    told = cache_report(trace(load_model(mixed), PROMPT))
    assert told.text in done.out
    assert told.formula_text in done.out
    for words in (
        "measured",
        "allocated",
        "formula",
        "window 4",
        "kv head",
        "MHA",
        "MQA",
        "int4",
        "beyond n_ctx",
        "fits ",
    ):
        assert words in done.out
    assert all(line.isprintable() for line in done.out.splitlines())  # no colour, no cursor


def test_of_a_saved_trace(call: Call, mixed, tmp_path):
    file = tmp_path / "a.safetensors"
    t = extend(load_model(mixed), trace(load_model(mixed), PROMPT), " man")
    t.save(file)
    done = call("cache", file, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json["bytes"] == cache_report(t).bytes
    assert [row["new"] for row in done.json["growth"]] == [p.length for p in t.passes]
    shown = call("cache", file).out
    assert ADDED in shown
    assert DROPPED in shown


def test_it_goes_on_first(call: Call, mixed):
    before = call("cache", PROMPT, "--model", mixed, "--json").json
    done = call("cache", PROMPT, "--model", mixed, "-n", 3, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json["tokens"] == before["tokens"] + 3
    assert [row["new"] for row in done.json["growth"]] == [before["tokens"], 1, 1, 1]
    assert done.json["bytes"] == done.json["formula"]


def test_it_goes_on_within_the_memory_and_the_bounds_of_the_engine(call: Call, mixed):
    done = call("cache", PROMPT, "--model", mixed, "-n", "500", "--max-memory", "300K")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert "recording 501 more tokens needs" in done.err
    assert MOST + 1 == MAX_NEW  # the last token that is chosen does not run


def test_it_goes_on_from_a_file_with_its_model(call: Call, mixed, tmp_path):
    file = tmp_path / "a.safetensors"
    trace(load_model(mixed), PROMPT).save(file)
    for option in (["-n", 2], ["--time"]):
        refused = call("cache", file, *option)
        assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)
        assert "--model M" in refused.err
        assert call("cache", file, *option, "--model", mixed).code == 0


def test_a_token_is_timed(call: Call, tiny):
    done = call("cache", PROMPT, "--model", tiny, "--time", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json["timing"]["tokens"] == done.json["tokens"]
    assert done.json["timing"]["cached_ms"] > 0
    assert "on the cache, and" in call("cache", PROMPT, "--model", tiny, "--time").out.splitlines()[-1]


def test_another_length_is_told_of(call: Call, tiny):
    data = call("cache", PROMPT, "--model", tiny, "--tokens", 12_345, "--json").json
    row = next(row for row in data["at_lengths"] if row["tokens"] == 12_345)
    assert row["bytes"] == cache_bytes(load_model(tiny).config, 12_345, 4)


def test_a_prompt_is_read_from_a_pipe(tiny):
    line = 'printf "dog bites man" | layerstep cache --model "$1" --json'
    piped = shell(line, tiny)
    assert piped.returncode == 0
    assert json.loads(piped.stdout)["tokens"] == trace(load_model(tiny), PROMPT).length


# ------------------------------------------------------------------------- drift, fewer bits, and pages


def table(text: str, head: str) -> list[list[str]]:
    """The cells of the table whose heads begin so, without these."""
    lines = iter(text.splitlines())
    next(line for line in lines if line.split("  ")[0] == head)
    return [line.split() for line in takewhile(lambda line: line and not line.startswith("… "), lines)]


def same(told: str, number: float) -> bool:
    """Whether that is how a table tells this number."""
    return float(told) == pytest.approx(number, rel=0.051)


@pytest.fixture(scope="module")
def grown(mixed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved trace of many passes."""
    file = tmp_path_factory.mktemp("traces") / "grown.safetensors"
    model = load_model(mixed)
    t = trace(model, PROMPT, goes_on=True)
    for i in range(25):
        t = extend(model, t, [i])
    t.save(file)
    return file


def test_json_of_what_is_told_beside_is_the_engines(call: Call, mixed, grown):
    done = call("cache", grown, "--model", mixed, "--drift", "--bits", 4, "--pages", 5, "--json")
    assert (done.code, done.err) == (0, "")
    t = open_trace(grown, load_model(mixed))
    assert done.json["drift"] == drift(t).to_json()
    assert done.json["quantised"] == quantised(t, 4).to_json()
    assert done.json["pages"] == pages(t, 5).to_json()
    assert not {"drift", "quantised", "pages"} & call("cache", grown, "--json").json.keys()


def test_drift_as_a_table(call: Call, mixed, grown):
    data = call("cache", grown, "--model", mixed, "--drift", "--json").json["drift"]
    shown = call("cache", grown, "--model", mixed, "--drift").out
    assert data["text"] in shown
    rows = table(shown[shown.index(data["text"]) :], "pass")
    assert [row[0] for row in rows] == [*map(str, range(12)), "…", *map(str, range(14, 26))]
    assert "… 26 passes in all; --json has all" in shown
    for at, *gaps, last in (row for row in rows if row != ["…"]):
        assert all(map(same, gaps, data["rows"][int(at)]["gaps"]))
        assert same(last, data["logits"][int(at)])


def test_the_first_site_that_drifts_is_named(call: Call, mixed, grown, tmp_path):
    t = open_trace(grown, load_model(mixed))
    site = "blocks.1.mlp_out"
    wrong = replace(t.passes[3], kept={**t.passes[3].kept, site: 1.01 * t.site(site, 3)})
    spoilt = Trace(t.config, t.program, t.weights, (*t.passes[:3], wrong, *t.passes[4:]), t.tokens)
    spoilt.save(tmp_path / "spoilt.safetensors")
    done = call("cache", tmp_path / "spoilt.safetensors", "--model", mixed, "--drift")
    assert done.code == 0
    assert f"cached and uncached differ, first in {site}@3: by " in done.out


def test_many_layers_fit_the_width():
    layers, passes = 80, 3
    found = Drift("float32", gaps=((1.5e-105,) * layers,) * passes, logits=(1.5e-105,) * passes)
    for width in (40, 80, 200):
        lines = [line for line in drift_lines(found, width) if line.lstrip().startswith(("pass", "0", "1", "2"))]
        assert max(map(len, lines)) <= width
        assert "… 80 layers in all; --json has all" in [*drift_lines(found, width)]


def test_fewer_bits_as_a_table(call: Call, mixed):
    data = call("cache", PROMPT, "--model", mixed, "--bits", 8, "--json").json["quantised"]
    shown = call("cache", PROMPT, "--model", mixed, "--bits", 8).out
    assert data["text"] in shown
    by_site = {row["site"]: row for row in data["rows"]}
    rows = [row for row in table(shown, "site") if row != ["…"]]
    assert len(rows) == 24 < len(by_site)
    assert f"… {len(by_site)} sites in all; --json has all" in shown
    for site, error, relative in rows:
        assert same(error, by_site[site]["error"])
        assert same(relative, by_site[site]["relative"])


def test_pages_as_a_table(call: Call, mixed):
    for source in ([PROMPT], ["--tokens", 30]):
        data = call("cache", *source, "--model", mixed, "--pages", 4, "--json").json["pages"]
        shown = call("cache", *source, "--model", mixed, "--pages", 4).out
        assert data["text"] in shown
        rows = table(shown[shown.index(data["text"]) :], "layer")
        said = [[str(row["layer"]), str(row["pages"]), str(row["used"]), *human(row["waste_bytes"]).split()]
                for row in data["rows"]]  # fmt: skip
        assert rows == said
    assert data == plan_pages(load_model(mixed).config, [30], 4, 4).to_json()


def test_what_runs_the_model_names_it_where_a_file_has_none(call: Call, grown):
    for option in (["--drift"], ["--bits", 8]):
        done = call("cache", grown, *option)
        assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
        assert "FILE holds no weights; name its model (--model M)" in done.err
    assert call("cache", grown, "--pages", 16).code == 0  # takes no weights


def test_one_pass_has_no_drift(call: Call, mixed, tmp_path):
    trace(load_model(mixed), PROMPT).save(tmp_path / "one.safetensors")
    done = call("cache", tmp_path / "one.safetensors", "--drift")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1].startswith("the trace is a single pass")


# ------------------------------------------------------------------------------------------- without a run


def test_a_config_is_enough(call: Call, mixed, monkeypatch):
    monkeypatch.setattr("engine.load_model", lambda *a, **o: pytest.fail("it loaded weights"))
    done = call("cache", "--model", mixed, "--tokens", 30, "--json")
    assert (done.code, done.err) == (0, "")
    config = load_model(mixed).config
    assert done.json["formula"] == cache_bytes(config, 30, 4)
    assert (done.json["bytes"], done.json["dtype"]) == (None, "float32")
    half = call("cache", "--model", mixed, "--tokens", 30, "--dtype", "bfloat16", "--json").json
    assert half["formula"] == cache_bytes(config, 30, 2)
    text = call("cache", "--model", mixed, "--tokens", 30).out
    assert "by the formula, nothing was run" in text
    assert "measured" not in text


def test_a_config_alone_with_a_dtype(call: Call, tiny, tmp_path):
    """Where no weights lie beside it, the dtype has to be said."""
    (tmp_path / "config.json").write_bytes((tiny / "config.json").read_bytes())
    assert call("cache", "--model", tmp_path, "--tokens", 8).code == 1
    assert call("cache", "--model", tmp_path, "--tokens", 8, "--dtype", "float32").code == 0


def test_beyond_the_context(call: Call, tiny, tmp_path):
    long = call("cache", "--model", tiny, "--tokens", 33)
    assert long.code == 0
    assert "33 tokens are more than the 32" in long.err
    assert "this, beyond n_ctx" in long.out
    learned = write_model(tmp_path / "short", positions="learned", n_ctx=8)
    assert "a run would be refused: " in call("cache", "--model", learned, "--tokens", 9).err


def test_a_translator_without_a_run(call: Call, tmp_path):
    folder = write_model(
        tmp_path / "translator", encoder_layers=2, decoder_start_token_id=0, positions="relative",
        relative_buckets=8, relative_distance=20,
    )  # fmt: skip
    done = call("cache", "--model", folder, "--tokens", 10, "--json")
    assert done.json["cross"]["positions"] == 10
    assert "source" in call("cache", "--model", folder, "--tokens", 10).out
    ran = call("cache", PROMPT, "--model", folder, "--target", "man")
    assert ran.code == 0
    assert "cross" in ran.out


# ------------------------------------------------------------------------------------------------- the grid


def test_the_grid_is_what_each_layer_holds(mixed):
    told = plan_cache(load_model(mixed).config, 10, "float32")
    lines = "\n".join(grid(told, 80))
    assert cells(lines, 0) == DROPPED * 7 + STORED * 3
    assert cells(lines, 1) == STORED * 10
    grown = "\n".join(grid(replace(told, passes=((0, 6), (6, 3), (9, 1))), 80))
    assert cells(grown, 0) == DROPPED * 7 + STORED * 2 + ADDED
    assert cells(grown, 1) == STORED * 9 + ADDED
    assert ADDED not in lines


@pytest.mark.parametrize("tokens", [1, 2, 31, 5000, 2**31])
@pytest.mark.parametrize("width", [20, 80, 200])
def test_the_grid_fits_its_width(mixed, width, tokens):
    told = plan_cache(load_model(mixed).config, tokens, "float32")
    told = replace(told, passes=((0, tokens - 1), (tokens - 1, 1)))
    lines = list(grid(told, width))
    assert max(map(len, lines[1:])) <= width
    for layer in range(3):
        row = cells("\n".join(lines), layer)
        assert len(row) == len(cells("\n".join(lines), 0))
        assert row.endswith(ADDED)
    assert cells("\n".join(lines), 1) == STORED * (len(row) - 1) + ADDED


def test_many_layers_are_shortened(mixed):
    told = plan_cache(replace(load_model(mixed).config, n_layers=60, kinds=(), layer_kinds=(), rotary=Rotary()),
                      10, "float32")  # fmt: skip
    lines = list(grid(told, 80))
    assert len(lines) == 1 + 24 + 1
    assert sum(line.startswith("…") for line in lines) == 1


# ---------------------------------------------------------------------------------------------- bad input


def test_an_encoder_says_why_not(call: Call, tmp_path):
    folder = write_model(tmp_path / "encoder", causal=False)
    for args in ((PROMPT,), ("--tokens", 9)):
        done = call("cache", *args, "--model", folder)
        assert (done.code, done.out.count("\n")) == (0, 1)
        assert "encoder looks both ways" in done.out
        assert call("cache", *args, "--model", folder, "--json").json["none"] is True
        assert call("cache", *args, "--model", folder, "--pages", 16).out == done.out


@pytest.mark.parametrize(
    "args",
    [
        ["--tokens", "0"],
        ["--tokens", "-1"],
        ["--tokens", str(2**31 + 1)],
        ["--tokens", "many"],
        ["-n", "0", PROMPT],
        ["--tokens", "4", "--time"],
        ["--tokens", "4", "-n", "3"],
        ["--tokens", "4", "--keep", "all"],
        ["--tokens", "4", "--ids"],
        ["--tokens", "4", "--drift"],
        ["--tokens", "4", "--bits", "8"],
        ["--bits", "5", PROMPT],
        ["--bits", "many", PROMPT],
        ["--pages", "0", PROMPT],
        ["--pages", str(2**20 + 1), PROMPT],
    ],
)
def test_usage(call: Call, tiny, args):
    done = call("cache", *args, "--model", tiny)
    assert (done.code, done.out, done.err.count("layerstep: ")) == (2, "", 1)


def test_what_cannot_be_told(call: Call, tiny, tmp_path):
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"no trace")
    for args in (
        [broken], [tmp_path / "missing.safetensors"], [PROMPT, "--model", tmp_path / "nowhere"],
        ["--tokens", 4, "--model", tmp_path / "nowhere"], ["--tokens", 4, "--model", tiny, "--device", "tpu"],
    ):  # fmt: skip
        done = call("cache", *args)
        assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)


def test_weights_are_not_looked_at(call: Call, tmp_path):
    """A folder of weights that are all NaN costs as much; so does one whose prompt cannot be told apart."""
    folder = write_model(tmp_path / "spoilt", spoil="embed.weight")
    assert load_file(folder / "model.safetensors")["embed.weight"].isnan().all()
    assert call("cache", "--model", folder, "--tokens", 9).code == 0
    assert call("cache", PROMPT, "--model", folder).code == 0
