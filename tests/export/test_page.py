"""What an HTML page holds: the engine's own numbers and words, all of what was chosen, and nothing that could act."""

from __future__ import annotations

import base64
import copy
import errno
import hashlib
import io
import json
import shlex

import numpy as np
import pytest
import torch
from hostile_trace import HOSTILE, hostile
from read_page import Page
from tiny_bert import PROMPT, write_bert
from tiny_t5 import SOURCE, TARGET, write_t5

from engine import Model, Trace, generate, load_model, open_trace, trace
from engine.analysis import looks
from engine.browse import Session
from engine.errors import Cancelled, ExportError
from engine.export.order import Order
from engine.export.page import page as write_page
from engine.export.page.entry import CANDIDATES
from engine.export.saving import save_as
from engine.export.selection import Selection
from engine.hidden import hidden
from engine.jsontext import plain
from engine.pictures import views_of
from engine.summary import summary
from engine.text import display
from engine.tours import parse_tour
from engine.windows import Plane

DISK = "The server crashed because the disk was full"


@pytest.fixture(scope="module")
def model():
    return load_model("modern", device="cpu")


@pytest.fixture(scope="module")
def walked(model) -> Trace:
    return trace(model, DISK)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Writes a page of a trace; the page read again."""
    folder = tmp_path_factory.mktemp("pages")

    def written(t: Trace, **how) -> Page:
        path = folder / f"{len(list(folder.iterdir()))}.html"
        save_as(t, path, **how)
        return Page(path)

    return written


@pytest.fixture(scope="module")
def walk(pages, walked) -> Page:
    return pages(walked)


def told(page: Page) -> dict:
    return page.document["traces"][0]


def same(page: Page, t: Trace, of: int = 0) -> None:
    """Every tensor of the page has the bits that the trace has."""
    tensors = page.document["traces"][of]["tensors"]
    for site, about in tensors.items():
        numbers, there = page.tensor(site, of), t[site].cpu()
        assert about["shape"] == list(there.shape), site
        if there.is_floating_point():
            assert numbers.dtype == there.dtype, site
            assert numbers.numpy(force=True).tobytes() == there.contiguous().numpy().tobytes(), site
        else:
            assert torch.equal(numbers, there.int()), site


def test_every_tensor_that_can_be_had_is_in_it_bit_for_bit(walk: Page, walked: Trace) -> None:
    assert list(told(walk)["tensors"]) == [site.name for site in walked.program.sites if "past" not in site.axes]
    same(walk, walked)
    assert (walk.document["rounded"], walk.document["left_out"]) == ([], [])


def test_what_the_app_is_told_the_page_is_told(walk: Page, walked: Trace) -> None:
    about = json.loads(json.dumps(plain(summary(walked), words=True)))
    mine = copy.deepcopy(told(walk)["summary"])
    for row in mine["steps"]:
        row |= told(walk)["step_words"][row.pop("words")]
    assert mine == about
    assert told(walk)["words"]["prompt"] == DISK
    session = Session()
    session.show(walked)
    assert told(walk)["checks"] == session.checks(None, lambda *_: None)["rows"]
    cache = json.loads(json.dumps(session.cache(None)))
    assert told(walk)["cache"] == {key: value for key, value in cache.items() if key != "fits"}  # free memory, here


def test_candidates_are_the_most_probable_tokens_at_every_position(walk: Page, walked: Trace) -> None:
    found, vocab = told(walk)["candidates"], told(walk)["vocab"]
    assert found["shape"] == [1, walked.length, CANDIDATES]
    ids, probs, logits = (
        walk.numbers(found[key], dtype).reshape(found["shape"])
        for key, dtype in (("ids", "int32"), ("probs", "float32"), ("logits", "float32"))
    )
    for pos in range(walked.length):
        here = [(c.id, c.label, c.prob, c.logit) for c in walked.top(CANDIDATES, pos=pos)]
        rows = zip(ids[0, pos].tolist(), probs[0, pos].tolist(), logits[0, pos].tolist(), strict=True)
        assert [(i, vocab[i], prob, logit) for i, prob, logit in rows] == here
    assert vocab == [walked.label(i) for i in range(walked.config.d_vocab)]


@pytest.mark.parametrize("look", ["lens", "norms", "added"])
def test_looks_along_depth_are_the_engines(walk: Page, walked: Trace, look: str) -> None:
    [found] = told(walk)["looks"][look]
    about, values = looks.look(walked, look, found["address"])
    assert values is not None
    assert torch.equal(walk.numbers(found["block"]).reshape(about["shape"]), values)
    assert {key: found[key] for key in about} == json.loads(json.dumps(plain(about, words=True)))
    steps = {row["site"] for row in told(walk)["summary"]["steps"] if look in row["looks"]}
    assert set(found["sites"]) == steps


def test_masked_cells_are_those_that_the_mask_hides(walk: Page, walked: Trace) -> None:
    for site, about in told(walk)["tensors"].items():
        assert about["weights"] == site.endswith("pattern")
        assert about["masks"] == Plane.find(walked, site).masks
        if about["weights"]:
            batch, _, queries, keys = about["shape"]
            bits = np.unpackbits(np.frombuffer(walk.raw(about["hidden"]), np.uint8), count=batch * queries * keys)
            ought = hidden(walked, site, None, (0, queries), (0, keys))
            assert np.array_equal(bits.reshape(batch, 1, queries, keys), ought.numpy())


def test_every_site_offers_the_views_that_the_app_has_but_for_those_that_need_weights(walk, walked) -> None:
    for row in told(walk)["summary"]["steps"]:
        listed = told(walk)["view_lists"][told(walk)["views"][row["site"]]]
        there = [view for view in views_of(walked, walked.program.site(row["site"])) if view.kind != "list"]
        assert [(view["name"], view["kind"]) for view in listed] == [(view.name, view.kind) for view in there]
        assert [tuple(view["fixed"]) for view in listed] == [view.fixed(tuple(row["axes"])) for view in there]


def test_formulas_come_as_trees_of_mathml(walk: Page) -> None:
    trees = walk.document["mathml"]
    latex = {said["latex"] for said in told(walk)["step_words"] if said["latex"]}
    assert latex <= trees.keys()

    def tags(tree) -> set[str]:
        name, about, inside = tree
        assert all(isinstance(value, str) for value in about.values())
        return {name}.union(*(tags(one) for one in inside if not isinstance(one, str)))

    for tree in trees.values():
        assert tree[0] == "math"
        assert all(tag[0] == "m" for tag in tags(tree))
    [scores] = [tree for text, tree in trees.items() if text == r"S = Q K^\top"]
    assert tags(scores) == {"math", "mrow", "mi", "mo", "msup"}


# -- passes, batches, other kinds of models ------------------------------------------------------------------------


def test_passes_of_a_generation_are_joined(pages, model) -> None:
    for step in generate(model, "Once upon a", max_new_tokens=5, stop_tokens=[]):
        t = step.trace
    page = pages(t)
    same(page, t)
    assert len(told(page)["summary"]["passes"]) == len(t.passes) > 4
    assert told(page)["candidates"]["shape"][1] == t.length
    assert told(page)["cache"] is not None


def test_every_prompt_of_a_batch_is_in_it(pages, model) -> None:
    t = trace(model, ["dog bites man", DISK])
    page = pages(t)
    same(page, t)
    assert told(page)["candidates"]["shape"][0] == 2
    assert [one["batch"] for one in told(page)["looks"]["lens"]] == [0, 1]


def test_an_encoder_decoder_has_both_its_streams(pages, tmp_path) -> None:
    t = trace(load_model(str(write_t5(tmp_path / "t5"))), SOURCE, target=TARGET)
    page = pages(t)
    same(page, t)
    ends = [found["cols"]["sites"][-1] for found in told(page)["looks"]["norms"]]
    assert ends == ["blocks.1.resid_post", "encoder.blocks.0.resid_post"]
    assert told(page)["words"]["target"] == summary(t)["target"] != ""


def test_an_encoder_without_a_head_has_no_candidates(pages, tmp_path) -> None:
    t = trace(load_model(str(write_bert(tmp_path / "bert", head=False))), PROMPT)
    page = pages(t)
    same(page, t)
    assert told(page)["candidates"] is None


def test_a_layer_of_nan_stays_nan_and_no_token_is_the_likeliest(pages, model) -> None:
    spoilt = {**model.weights, "blocks.2.mlp.down.weight": model.weights["blocks.2.mlp.down.weight"] * torch.nan}
    t = trace(Model.from_weights(model.config, spoilt), [5, 6, 7])
    page = pages(t)
    same(page, t)
    found = told(page)["candidates"]
    assert set(page.numbers(found["ids"], "int32").tolist()) == {-1}
    assert next(check["site"] for check in told(page)["checks"] if not check["ok"]) == "blocks.2.mlp_out"


# -- what is chosen, and what is rounded ---------------------------------------------------------------------------


def test_a_trace_file_without_its_model_says_what_it_misses(pages, walked, tmp_path) -> None:
    walked.save(tmp_path / "t.safetensors")
    t = open_trace(tmp_path / "t.safetensors")
    page = pages(t)
    same(page, t)
    assert "lens" not in told(page)["looks"]
    assert told(page)["words"]["file"] == "t.safetensors"
    assert str(tmp_path).encode() not in page.bytes  # nobody's business where it is opened
    needs, without = page.document["left_out"]
    assert needs == "Deriving these needs the model's weights (--model): blocks.*.attn.result."
    assert "without its model (--model)" in without


def test_layers_and_heads_are_chosen_with_the_keys_and_values_that_they_use(pages, walked) -> None:
    page = pages(walked, selection=Selection(layers=(1,), heads=(0, 5)))
    tensors = told(page)["tensors"]
    assert {site.split(".")[1] for site in tensors if site.startswith("blocks.")} == {"1"}
    about = tensors["blocks.1.attn.pattern"]
    assert about["index"] == {"head": [0, 5]}
    assert torch.equal(page.tensor("blocks.1.attn.pattern"), walked["blocks.1.attn.pattern"][:, [0, 5]])
    assert tensors["blocks.1.attn.k"]["index"] == {"kv_head": [0, 2]}
    views = told(page)["view_lists"][told(page)["views"]["blocks.1.attn.pattern"]]
    assert not {"mean", "max"} & {view["name"] for view in views}  # which would be of all heads
    assert [line for line in page.document["left_out"] if "--heads" in line or "--layers" in line] == [
        "Only these layers were chosen for this file (--layers): 1.",
        "Only these heads were chosen for this file (--heads): 0, 5.",
    ]


@pytest.mark.parametrize(("name", "dtype"), [("float16", torch.float16), ("bfloat16", torch.bfloat16)])
def test_what_is_rounded_is_said_with_its_largest_error(pages, walked, name: str, dtype: torch.dtype) -> None:
    page = pages(walked, dtype=name)
    worst = (0.0, 0.0, "")
    for site, about in told(page)["tensors"].items():
        there = walked[site]
        if not there.is_floating_point():
            assert (about["dtype"], page.tensor(site).tolist()) == ("int32", there.tolist())
            continue
        assert about["dtype"] == name
        assert torch.equal(page.tensor(site), there.to(dtype))
        finite = there.isfinite()
        error = float((page.tensor(site).double() - there.double())[finite].abs().max())
        worst = max(worst, (error / float(there[finite].abs().max()), error, site))
    [sentence] = page.document["rounded"]
    assert f"rounded to {name}" in sentence
    assert f"in {worst[2]}: by {worst[1]:.1e}" in sentence


def test_a_bfloat16_trace_is_kept_as_it_is(pages) -> None:
    t = trace(load_model("classic", device="cpu", dtype="bfloat16"), "dog bites man")
    page = pages(t, selection=Selection(layers=(0,)))
    assert told(page)["tensors"]["embed"]["dtype"] == "bfloat16"
    assert torch.equal(page.tensor("embed").view(torch.int16), t["embed"].view(torch.int16))
    assert page.document["rounded"] == []


def test_a_number_beyond_float16_is_refused_and_nothing_is_written(model, tmp_path) -> None:
    large = {**model.weights, "blocks.1.mlp.down.weight": model.weights["blocks.1.mlp.down.weight"] * 1e6}
    t = trace(Model.from_weights(model.config, large), [5, 6, 7])
    with pytest.raises(ExportError, match=r"blocks\.1\.mlp_out holds .*float16 ends at 6\.55e\+04; round to bfloat16"):
        save_as(t, tmp_path / "x.html", dtype="float16")
    assert list(tmp_path.iterdir()) == []


# -- size ----------------------------------------------------------------------------------------------------------


def test_the_size_is_known_before_and_near_that_of_the_tensors(pages, walked, model, tmp_path) -> None:
    t5 = trace(load_model(str(write_t5(tmp_path / "t5"))), SOURCE, target=TARGET)
    long = trace(model, list(range(5, 69)))
    for t, how in (
        (walked, {}), (long, {}), (long, {"dtype": "float16"}), (t5, {}),
        (long, {"selection": Selection(("residual",))}),
    ):  # fmt: skip
        page = pages(t, **how)
        assert (
            t is t5 or len(page.bytes) <= 1.40 * page.nbytes + 300_000
        )  # of the sample models, whose tensors are larger
        assert page_size(t, how) == pytest.approx(len(page.bytes), rel=0.05)


def page_size(t: Trace, how: dict) -> int:
    return write_page.size(Order(t, "html", **how))


@pytest.mark.parametrize("share", [0.6, 0.45, 0.2, 0.1])
def test_too_large_a_page_is_refused_with_a_choice_that_fits(model, tmp_path, share: float) -> None:
    t = trace(model, list(range(5, 69)))
    limit = int(share * page_size(t, {}))
    with pytest.raises(ExportError) as refused:
        save_as(t, tmp_path / "x.html", max_size=limit)
    assert list(tmp_path.iterdir()) == []
    words = str(refused.value)
    choice = words[words.index("; ") + 2 : words.index(" makes it")]
    how = dict(zip((given := shlex.split(choice))[::2], given[1::2], strict=True))
    layers = tuple(map(int, how["--layers"].split(","))) if "--layers" in how else None
    selection = Selection(tuple(how.get("--keep", "all").split(",")), layers)
    save_as(t, tmp_path / "y.html", max_size=limit, selection=selection, dtype=how.get("--round-to", "auto"))


# -- foreign text --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def attacked(walked) -> Trace:
    return hostile(walked)


@pytest.mark.parametrize("title", ["", *HOSTILE])
def test_no_foreign_text_is_markup(pages, attacked, walk, title: str) -> None:
    page = pages(attacked, title=title, selection=Selection(("residual",)))
    assert page.tags == walk.tags | {"script": page.tags["script"]}  # a block more or less
    assert len(page.scripts) == page.tags["script"]
    assert page.title == page.document["title"] == display(page.document["title"])
    if title:
        assert page.title == display(title)
    assert told(page)["summary"]["prompt"] == "".join(HOSTILE).encode("utf-16", "surrogatepass").decode(
        "utf-16", "replace"
    )
    assert told(page)["words"]["prompt"] == display("".join(HOSTILE))
    assert told(page)["words"]["notices"] == [display(text) for text in HOSTILE]
    [data] = [text for attrs, text in page.scripts if attrs.get("id") == "layerstep"]
    assert data.isascii()
    assert not set("<>&") & set(data)


def test_the_policy_allows_the_one_script_and_the_one_style_and_nothing_else(walk: Page) -> None:
    runs = [text for attrs, text in walk.scripts if attrs.get("type") not in ("text/plain", "application/json")]
    assert (len(runs), len(walk.styles)) == (1, 1)
    assert walk.policy == {
        "default-src": ["'none'"],
        "script-src": [f"'sha256-{sha256(runs[0])}'"],
        "style-src": [f"'sha256-{sha256(walk.styles[0][1])}'"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
        "require-trusted-types-for": ["'script'"],
        "trusted-types": ["'none'"],
    }
    assert not {"link", "iframe", "object", "embed", "img", "form"} & walk.tags.keys()
    assert "</script" not in runs[0]


def sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


# -- tours ---------------------------------------------------------------------------------------------------------

TOUR = """
title = "A <b>tour</b> \u202e"
model = "modern"
prompt = "The server crashed because the disk was full"
[[stop]]
title = "Who looks at whom</script>"
address = "blocks.1.attn.pattern[b=0,h=5,q=7,k=2]"
view = "heatmap"
narration = "It is **{value:blocks.1.attn.pattern[b=0,h=5,q=7,k=2]}** <img src=x> at {token:tokens[b=0,p=2]}."
question = "What comes *next*?"
answer = "{top:logits[b=0,p=8]}"
notes = "Breathe."
beside = "blocks.2.attn.pattern[b=0,h=0,q=7,k=2]"
[[stop]]
title = "Like it"
address = "embed[b=0,p=6,d=0]"
view = "neighbours"
narration = "Near."
"""


def the_tour(text: str = TOUR):
    return parse_tour(text.encode(), "t.toml")


def test_a_tour_is_told_with_the_models_own_numbers(pages, walked) -> None:
    page = pages(walked, tour=the_tour(), notes=True)
    tour = page.document["tour"]
    first, second = tour["stops"]
    assert (tour["title"], page.title) == ("A <b>tour</b> ‹U+202E›", "A <b>tour</b> ‹U+202E›")
    assert (first["trace"], first["address"], first["view"]) == (0, "blocks.1.attn.pattern[b=0,h=5,q=7,k=2]", "heatmap")
    weight = float(walked["blocks.1.attn.pattern[b=0,h=5,q=7,k=2]"])
    [[_, said]] = first["narration"]
    assert said[1] == ["strong", [["text", f"{weight:.3g}"]]]
    assert ["code", "␣server"] in said
    assert first["question"] == [["p", [["text", "What comes "], ["em", [["text", "next"]]], ["text", "?"]]]]
    assert first["answer"] == [["p", [["code", walked.top(1)[0].label]]]]
    assert first["notes"] == [["p", [["text", "Breathe."]]]]
    assert first["beside"] == {"trace": 0, "address": "blocks.2.attn.pattern[b=0,h=0,q=7,k=2]", "view": "heatmap"}
    assert (second["question"], second["beside"]) == (None, None)
    [near] = told(page)["told"]
    assert (near["view"], near["site"], near["index"]) == ("neighbours", "embed", {"batch": 0, "pos": 6, "d_model": 0})
    assert near["rows"] == looks.look(walked, "neighbours", "embed[b=0,p=6]")[0]["rows"]


def test_the_speakers_notes_are_in_no_page_that_is_handed_out(pages, walked) -> None:
    page = pages(walked, tour=the_tour())
    assert page.document["tour"]["stops"][0]["notes"] is None
    assert b"Breathe" not in page.bytes


def test_a_tour_with_another_trace_has_both(pages, walked, model) -> None:
    other = trace(model, "The server crashed because the disk was new")
    page = pages(
        walked, tour=the_tour(TOUR + '[other]\nprompt = "The server crashed because the disk was new"'), beside=other
    )
    same(page, walked, 0)
    same(page, other, 1)
    assert page.document["tour"]["stops"][0]["beside"]["trace"] == 1


@pytest.mark.parametrize(
    ("old", "new", "selection", "words"),
    [
        ("", "", Selection(("path", "blocks.2.attn.pattern")), "stop 1, .*blocks.1.attn.pattern.*add .* to --keep"),
        ("", "", Selection(layers=(1,)), "stop 1, .*shows blocks.2.attn.pattern.*--layers"),
        ("", "", Selection(heads=(0, 1)), "stop 1, .*shows head 5 of blocks.1.attn.pattern.*--heads"),
        ("heatmap", "mean", Selection(heads=(0, 5)), "stop 1, .*shows all heads of blocks.1.attn.pattern.*--heads"),
        ("heatmap", "pie", Selection(), "stop 1, .*has no view 'pie'; it has heatmap"),
        ('"blocks.2.attn.pattern[b=0,h=0,q=7,k=2]"', '"blocks.9.attn.q"', Selection(), "stop 1, .*blocks.9.attn.q"),
        ('"embed[b=0,p=6,d=0]"', '"embed[b=0,p=60,d=0]"', Selection(), "stop 2, .*pos 60 is outside"),
    ],
)  # fmt: skip
def test_a_stop_at_what_is_not_there_is_refused(walked, tmp_path, old, new, selection, words) -> None:
    with pytest.raises(ExportError, match=words) as refused:
        save_as(
            walked, tmp_path / "x.html", tour=the_tour(TOUR.replace(old, new, 1) if old else TOUR), selection=selection
        )
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_tour_of_a_file_says_what_needs_the_model(walked, tmp_path) -> None:
    walked.save(tmp_path / "t.safetensors")
    with pytest.raises(ExportError, match=r"stop 2, Like it: embed has no view 'neighbours'.*--model"):
        save_as(open_trace(tmp_path / "t.safetensors"), tmp_path / "x.html", tour=the_tour())


# -- writing -------------------------------------------------------------------------------------------------------


class Full(io.BytesIO):
    def write(self, data) -> int:
        if self.tell() > 100_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


def test_a_full_disk_and_a_cancelled_export_leave_nothing(walked, tmp_path, monkeypatch) -> None:
    def stop(done: int, of: int, what: str) -> None:
        if done > 10:
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        save_as(walked, tmp_path / "x.html", watch=stop)
    with pytest.raises(OSError, match="No space"):
        write_page.write(Order(walked, "html"), Full())
    assert list(tmp_path.iterdir()) == []


def test_the_title_says_what_the_page_is_of_unless_it_is_given(walk, pages, walked) -> None:
    assert walk.title == f"{DISK} · modern"
    assert pages(walked, title="Lecture 3", selection=Selection(("residual",))).title == "Lecture 3"
