"""A tour on its traces: recorded as it says, quoting the model's own numbers, and found out where it does not hold."""

from __future__ import annotations

import pytest
import torch

from engine import Model, generate, load_model, trace
from engine.errors import Cancelled, LayerstepError
from engine.markdown import plain
from engine.pictures import picture
from engine.sites import Address
from engine.touring import TourRun, check, open_tour
from engine.tours import Mark, Stop, Tour, parse_tour, quoted

PROMPT, OTHER = "The dog barked because it was", "The man barked because it was"
Z = "blocks.1.attn.z[p=3,h=5,d=2]"
EDIT = "blocks.1.attn.z[h=5] *= 2"
MODELS: dict[str, Model] = {}


def run(stop: str, head: str = "", other: str = "") -> TourRun:
    text = f'title = "T"\nmodel = "modern"\nprompt = "{PROMPT}"\n{head}\n{other}\n[[stop]]\ntitle = "S"\n{stop}'
    return open_tour(parse_tour(text.encode(), "t.toml"), models=MODELS, device="cpu")


def told(narration: str, head: str = "", other: str = "", address: str = Z, view: str = "heatmap") -> TourRun:
    return run(f'address = "{address}"\nview = "{view}"\nnarration = """{narration}"""', head, other)


def troubles(walked: TourRun) -> list[str]:
    (checked,) = check(walked)
    assert checked.ok == (not checked.troubles)
    return list(checked.troubles)


@pytest.fixture(scope="module")
def model() -> Model:
    return MODELS.setdefault("modern", load_model("modern", device="cpu"))


def test_what_it_quotes_is_what_the_model_has(model: Model) -> None:
    t, u = trace(model, PROMPT), trace(model, OTHER)
    marks = f"{{value:{Z}}} {{other:{Z}}} {{top:logits[p=-1]}} {{top:probs[b=0,p=2]}} {{token:tokens[p=2]}}"
    walked = told(f"{marks} {{key:step.next}}", other=f'[other]\nprompt = "{OTHER}"')
    said = [quoted(float(one["blocks.1.attn.z"][0, 3, 5, 2])) for one in (t, u)]
    best = [f"`{t.top(1, pos=pos)[0].label}`" for pos in (-1, 2)]
    (line,) = plain(walked.words(walked.tour.stops[0].narration))
    assert line == " ".join([*said, *best, f"`{t.tokens[0][2].label}`", "→"])
    assert said[0] != said[1]
    assert not troubles(walked)


def test_tokens_follow_the_prompt_each_in_a_pass_of_its_own(model: Model) -> None:
    walked = told("{token:tokens[p=0]@2}", head="generate = 3").main
    expected = [one.token.id for one in generate(model, PROMPT, max_new_tokens=3)]
    assert len(walked.passes) == 4
    assert walked["tokens"][0, -3:].tolist() == expected
    again = told("{token:tokens[p=0]@2} {top:logits[p=0]@1}", head="generate = 3")
    labels = [token.label for token in again.main.tokens[0][-2:]]
    assert list(again.values.values()) == [labels[0], labels[0]]  # what was likeliest is what came


def test_one_that_is_cancelled_is_no_shorter_one(model: Model) -> None:
    def watch(done: int, total: int, what: str) -> None:
        if total == 3 and done == 1:
            raise Cancelled("cancelled")

    text = f'title = "T"\nmodel = "modern"\nprompt = "{PROMPT}"\ngenerate = 3\n[[stop]]\ntitle = "S"\naddress = "{Z}"\n'
    tour = parse_tour(f'{text}view = "heatmap"\nnarration = "x"'.encode(), "t.toml")
    with pytest.raises(Cancelled):
        open_tour(tour, watch, models={"modern": model})


def test_edits_are_of_the_trace_that_names_them(model: Model) -> None:
    walked = told(f"{{value:{Z}}} {{other:{Z}}}", head=f'edits = ["{EDIT}"]\ngenerate = 1', other="[other]\nedits = []")
    assert walked.other is not None
    plainly = trace(model, PROMPT)["blocks.1.attn.z"]
    length = plainly.shape[1]
    assert torch.equal(walked.other["blocks.1.attn.z"][:, :length], plainly)
    assert torch.equal(walked.main["blocks.1.attn.z"][:, :length, 5], 2 * plainly[:, :, 5])
    value, other = walked.values.values()
    assert value == 2 * other
    assert len(walked.other.passes) == 2


@pytest.mark.parametrize(
    ("address", "view", "axes"),
    [
        ("blocks.1.attn.pattern[b=0,h=5,q=3,k=2]", "heatmap", ["query", "key"]),
        ("blocks.1.attn.pattern[b=0,h=5,q=3,k=2]", "mean", ["query", "key"]),
        ("blocks.1.attn.pattern[b=0,h=5,q=3,k=2]", "row", ["key"]),
        (Z, "all heads", ["head", "d_head"]),
        ("probs[b=0,p=3,v=16]", "ranked", ["d_vocab"]),
        ("tokens[b=0,p=2]", "tokens", ["pos"]),
    ],
)
def test_the_picture_of_a_stop_is_whole_though_its_address_names_a_cell(
    address: str, view: str, axes: list[str]
) -> None:
    walked = told("x", address=address, view=view)
    shown = picture(walked.wish(walked.tour.stops[0])).place
    assert shown is not None
    assert [axis.name for axis in shown.axes] == axes
    assert not troubles(walked)


@pytest.mark.parametrize("view", ["lens", "norms", "neighbours", "neurons", "heads", "rotation", "histogram", "arcs"])
def test_looks_are_pictures_of_stops_too(view: str) -> None:
    places = {"lens": "blocks.1.resid_post[b=0,p=3,d=0]", "norms": "blocks.1.resid_post[b=0,p=3,d=0]",
              "neighbours": "embed[b=0,p=3,d=0]", "neurons": "blocks.1.mlp.post[b=0,p=3,d=9]",
              "rotation": "blocks.1.attn.rot_q[b=0,p=3,h=5,d=0]"}  # fmt: skip
    walked = told("x", address=places.get(view, "blocks.1.attn.pattern[b=0,h=5,q=3,k=2]"), view=view)
    assert not troubles(walked)


def test_what_is_beside_is_of_the_other_trace_where_there_is_one() -> None:
    stop = f'address = "{Z}"\nview = "all heads"\nnarration = "x"\nbeside = "blocks.0.attn_out[p=1]"'
    alone, both = run(stop), run(stop, other=f'[other]\nprompt = "{OTHER}"')
    wishes = [walked.beside(walked.tour.stops[0]) for walked in (alone, both)]
    assert [wish and wish.trace for wish in wishes] == [alone.main, both.other]
    assert [wish and wish.view for wish in wishes] == ["heatmap", "heatmap"]  # all heads it has not
    assert not troubles(alone)
    assert told("x").beside(told("x").tour.stops[0]) is None


@pytest.mark.parametrize(
    ("stop", "words"),
    [
        (
            {"address": "blocks.1.attn.zz"},
            "there is no site 'blocks.1.attn.zz' in this program; there is,",
        ),
        ({"address": "embed[p=99]"}, "embed[p=99]: pos 99 is outside 0…7"),
        ({"address": "embed@1"}, "there is no pass 1"),
        ({"address": "embed[h=1]"}, "embed has no axis 'h'"),
        ({"view": "arcs"}, "has no view 'arcs'; it has heatmap, row, all heads"),
        ({"address": "blocks.1.attn.pattern[h=1]", "view": "chain"}, "has no view 'chain'; it has heatmap, row, arcs"),
        (
            {"narration": "{value:embed[p=1]}"},
            "embed[p=1] is not one number; give an index for each of batch",
        ),
        ({"narration": "{value:embed[b=0,p=1,d=0:1]}"}, "is not one number"),
        ({"narration": "{top:embed[b=0,p=1]}"}, "is not over the vocabulary at one position"),
        ({"narration": "{top:logits[b=0]}"}, "is not over the vocabulary at one position"),
        ({"narration": "{token:embed[b=0,p=1]}"}, "is not one token; write e.g. tokens[b=0,p=2]"),
        ({"narration": "{token:tokens}"}, "is not one token"),
        ({"narration": "{value:blocks.1.attn.masked[b=0,h=0,q=1,k=2]}"}, "k=2] is -inf, no finite number"),
        (
            {"narration": "It is .97 of it."},
            ".97 is written and not quoted; write {value:ADDRESS}, or `.97`",
        ),
        ({"notes": "Say 3.14."}, "notes: 3.14 is written and not quoted"),
        ({"question": "Is it 12.5?", "answer": "Yes."}, "question: 12.5 is written and not quoted"),
        ({"beside": "embed[p=99]"}, "beside: embed[p=99]: pos 99 is outside"),
    ],
)
def test_what_does_not_hold_is_said_of_its_stop(stop: dict[str, str], words: str) -> None:
    whole = {"address": Z, "view": "heatmap", "narration": "x"} | stop
    (trouble,) = troubles(run("\n".join(f'{key} = "{value}"' for key, value in whole.items())))
    assert words in trouble


def test_numbers_that_are_no_quotation_are_left_alone() -> None:
    free = "GPT-3.5 and Qwen2.5 in 2017, v1.2.3, 1,000 of 64 tokens, `0.5`, 3 · 4 ... √2."
    assert not troubles(told(free))


def test_a_number_that_is_none_is_a_question_mark_for_the_reader() -> None:
    walked = TourRun(told("x").tour, told("x").main)
    mark = Mark("value", "embed[p=99]")
    stop = Stop("S", Address.parse(Z), "heatmap", "{value:embed[p=99]}")
    broken = TourRun(Tour("T", "modern", PROMPT, (stop,)), walked.main)
    assert broken.values == {mark: None}
    assert plain(broken.words(stop.narration)) == ["?"]
    with pytest.raises(LayerstepError, match="outside"):
        broken.value(mark)


def test_an_edit_beyond_what_was_generated_is_refused() -> None:
    n = len(told("x").main)
    for edits in (f'"{Z.split("[")[0]}[p={n + 1}] = 0"', f'"{Z.split("[")[0]}[p={n + 40}] = 0"'):
        head = f"generate = 2\nedits = [{edits}]"
        if str(n + 40) in edits:
            with pytest.raises(LayerstepError, match=f"it changes nothing, as the positions here are 0…{n + 1}"):
                told("x", head=head)
        else:
            assert not bool(told("x", head=head).main["blocks.1.attn.z"][0, n + 1].any())
