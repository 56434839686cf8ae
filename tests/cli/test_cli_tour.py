"""``layerstep tour``: the list, the text, the check, and how it hands over to the app."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from calls import Call

from engine import load_model, tours, trace
from engine.tomltext import written

PROMPT = "dog bites man"
PLACE = "blocks.0.attn.pattern[h=1,q=2,k=1]"
STOP = f"""[[stop]]
title = "Who bites"
address = "{PLACE}"
view = "heatmap"
narration = "It gives **{{value:{PLACE}}}**, not {{other:{PLACE}}}. Press {{key:help}}."
question = "Who?"
answer = "`dog`"
notes = "- slowly"
beside = "embed"
"""


@pytest.fixture
def tour(tiny: Path, tmp_path: Path) -> Path:
    """A tour of the tiny model, which holds."""
    path = tmp_path / "bites.toml"
    head = f'title = "Bites"\nabout = "Who *bites*."\nmodel = {written(str(tiny))}\nprompt = "{PROMPT}"\n'
    path.write_text(f'{head}[other]\nprompt = "man bites dog"\n{STOP}')
    return path


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What the app is told, in place of the app."""
    told: list[tuple[object, ...]] = []
    app = SimpleNamespace(
        run=lambda **given: told.append(("run", {k: v for k, v in given.items() if v})) or 0,
        notes=lambda **given: told.append(("notes", given)) or 0,
    )
    monkeypatch.setattr("engine.cli.walk.import_module", lambda name: app)
    monkeypatch.setattr("engine.cli.tour.import_module", lambda name: app)
    return told


def test_without_a_name_the_tours_are_listed(call: Call, monkeypatch, tour: Path):
    monkeypatch.setattr(tours, "ROOTS", (tour.parent,))
    done = call("tour")
    assert done.code == 0
    assert [line.split() for line in done.out.splitlines()] == [
        ["tour", "stops", "model", "title"],
        ["bites", "1", str(tours.read_tour(tour).model), "Bites"],
    ]
    (entry,) = call("tour", "--json").json["tours"]
    assert (entry["name"], entry["file"], entry["about"]) == ("bites", str(tour), "Who *bites*.")
    assert entry["other"]["prompt"] == "man bites dog"


def test_one_that_is_broken_does_not_hide_the_others(call: Call, monkeypatch, tour: Path):
    (tour.parent / "worse.toml").write_text("title = ")
    monkeypatch.setattr(tours, "ROOTS", (tour.parent,))
    done = call("tour")
    assert (done.code, "Bites" in done.out) == (0, True)
    assert "worse.toml: is no TOML" in done.out
    checked = call("tour", "--check", "--json")
    assert (checked.code, [one["ok"] for one in checked.json["tours"]]) == (1, [True, False])
    assert checked.err == "layerstep: 1 of 2 tours do not hold\n"


def test_as_text_it_has_the_models_numbers(call: Call, tiny: Path, tour: Path):
    done = call("tour", tour, "--text")
    model = load_model(tiny, device="cpu")
    value, other = (tours.quoted(float(trace(model, p)[f"{PLACE[:-1]},b=0]"])) for p in (PROMPT, "man bites dog"))
    assert (done.code, done.err) == (0, "")
    assert f"It gives {value}, not {other}. Press ?.\n" in done.out
    assert "Who bites." in done.out
    assert "\nQuestion: Who?\n\nAnswer: `dog`\n\nNotes: - slowly\n" in done.out


def test_a_check_says_of_every_stop_whether_it_holds(call: Call, tour: Path):
    done = call("tour", "--check", tour)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [f"{tour} · Bites", f"  ✓ 1 Who bites · {PLACE} · heatmap"]
    tour.write_text(f"{tour.read_text()}{STOP.replace('h=1', 'h=9').replace('heatmap', 'arcs')}")
    broken = call("tour", "--check", tour, "first")
    assert broken.code == 1
    assert broken.err == "layerstep: 1 of 2 tours do not hold\n"
    assert "  ✗ 2 Who bites" in broken.out
    assert "head 9 is outside 0…3" in broken.out
    (stop,) = call("tour", "--check", tour, "--json").json["tours"][0]["stops"][1:]
    assert (stop["ok"], stop["view"], len(stop["troubles"])) == (False, "arcs", 3)


def test_the_app_is_told_the_file(call: Call, played, tour: Path):
    assert call("tour", tour, "--light").code == call("tour", tour, "--present", "--no-mouse").code == 0
    assert call("tour", "first").code == 0
    assert played[0] == ("run", {"tour": str(tour), "light": True})
    assert played[1][1]["present"]
    assert played[2][1]["tour"] == str(tours.shipped()["first"])
    assert call("tour", "--notes", "--light").code == 0
    assert played[3] == ("notes", {"light": True})


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["firs"], 1, "there is no tour 'firs'; there is first"),
        (["no.toml"], 1, "no.toml: no such file or directory"),
        (["."], 1, "is a directory"),
        ([Path(__file__)], 1, "is no TOML"),
        (["--text", "firs"], 1, "there is no tour 'firs'"),
        (["--check", "firs"], 1, "the tour does not hold"),
        (["--notes", "first"], 2, "leave the NAME out"),
        (["--present"], 2, "--present needs the NAME of a tour"),
        (["--text"], 2, "--text needs the NAME of a tour"),
        (["first", "first"], 2, "one tour at a time"),
        (["first", "--check", "--text"], 2, "--text and --check are different things"),
        (["first", "--json"], 2, "--json is for the list, or for --check"),
    ],
)
def test_what_cannot_be_is_said_before_the_app_takes_the_screen(call: Call, played, args, code: int, words: str):
    done = call("tour", *args)
    assert done.code == code
    assert words in done.err
    assert not played


def test_a_model_that_is_missing_is_said_of_its_tour(call: Call, tour: Path):
    tour.write_text(tour.read_text().replace("tiny", "missing"))
    assert "missing" in call("tour", tour, "--text").err
    done = call("tour", "--check", tour)
    assert (done.code, done.out.startswith(f"✗ {tour}: ")) == (1, True)


def test_hostile_words_are_printed_as_marks(call: Call, tour: Path):
    hostile = "\\u001b]0;x\\u0007\\u202e<b>"
    text = tour.read_text()
    for words in ("Bites", "Who bites", "Who *bites*.", "It gives", "slowly"):
        text = text.replace(words, words + hostile)
    tour.write_text(text)
    for mode in ("--text", "--check"):
        done = call("tour", mode, tour)
        assert done.code == 0
        assert "‹U+202E›<b>" in done.out
        assert done.out.replace("\n", "").isprintable()


def test_a_shell_completes_the_names(call: Call, monkeypatch, capsys):
    monkeypatch.setenv("_LAYERSTEP_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "layerstep tour fi")
    monkeypatch.setenv("COMP_CWORD", "2")
    with pytest.raises(SystemExit):
        call()
    assert "plain,first" in capsys.readouterr().out.splitlines()
