"""The help: words that are shown, keys that are in effect, marks and the glossary, in one document to search."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers import go, main_of, running, settled, text_of
from textual.pilot import Pilot

from engine.sites import LETTERS
from tui.actions import ACTIONS, CACHE_ACTIONS, Keymap
from tui.app import LayerstepApp
from tui.glossary import Glossary, Term, glossary
from tui.screens.help import HelpScreen
from tui.settings import Settings
from tui.state.manual import Entry, Manual
from tui.widgets.manual import ManualLines
from tui.widgets.why import WhyPane

PATTERN = "blocks.0.attn.pattern"
DESIGN = """
token, embedding, d_model, n_layers, n_heads, n_kv_heads, d_head, d_mlp, d_vocab, n_ctx, residual stream, resid_pre,
resid_mid, resid_post, LayerNorm, RMSNorm, ε, q, k, v, RoPE, θ, inverse frequency, sinusoidal positions, ALiBi, scores,
√d_k, scaled, soft cap, mask, causal mask, sliding window, softmax, pattern, attention head, GQA, MQA, W_O, z, result,
FFN, MLP, gate, up, ReLU, GELU, SiLU, SwiGLU, neuron, unembedding, logits, probs, temperature, top-k, top-p, KV cache,
prefill, pass, trace, site, step, address, logit lens, entropy, cosine, norm, FlashAttention, SDPA kernel, float32,
bfloat16, NaN, expert, router, attention sink, cross-attention, encoder, pooling
"""


# ------------------------------------------------------------------------------------------------- the glossary


@pytest.mark.parametrize("word", [" ".join(word.split()) for word in DESIGN.split(",")])
def test_every_word_of_the_design_is_in_the_glossary(word: str) -> None:
    term = glossary().named(word)
    assert term is not None
    assert glossary().find(word)[0] is term


README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
TABLE = README[(at := README.index("| picture |")) : README.index("\n\n", at)]
PICTURES = [name for row in TABLE.splitlines() for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
SAID = """
loss, cross-entropy, perplexity, token, embedding, logits, softmax, residual stream, attention pattern, kernel,
trace, safetensors, GGUF, address, candidates, temperature, top-k, top-p, min-p, penalty, seed, KV cache, drift, pages,
int8, sliding window, CUDA graph, FLOPs, RoPE, YaRN, pooling, special token, chat template, tokenizer, induction,
bfloat16, encoder, cosine, quantiles, entropy, histogram, chain
"""


@pytest.mark.parametrize("word", [*PICTURES, *(" ".join(word.split()) for word in SAID.split(","))])
def test_what_the_readme_speaks_of_is_found(word: str) -> None:
    assert glossary().named(word) is not None
    assert word.casefold() in " ".join(README.casefold().split()) or word in ("cross-entropy", "perplexity")


def test_where_no_word_has_the_name_keys_come_first() -> None:
    read = Manual(glossary(), Keymap()).read
    first, *rest = read("copy")
    assert first.title.startswith("Keys: ")
    assert any(entry.head == "C" for entry in first.entries)
    assert "Glossary" in [section.title for section in rest]
    assert next(section.title for section in read("softmax")) == "softmax"


@pytest.mark.parametrize("term", glossary().terms, ids=lambda term: term.name)
def test_a_term_is_a_few_sentences_and_refers_to_others_that_exist(term: Term) -> None:
    assert term.text.endswith(".")
    assert 1 <= len(re.findall(r"[.:?] (?=[A-Z])|\.$", term.text)) <= 4
    assert len(term.text) < 360
    assert term.name not in term.see
    assert set(term.see) <= set(glossary().by_name)


def test_no_word_means_two_things() -> None:
    words = glossary()
    for kind in ("written", "named"):
        means: dict[str, str] = {}
        for term in words.terms:
            for name in {*term.aliases, term.name} if kind == "written" else term.names:
                key = name if len(name) <= 2 else name.casefold()
                assert means.setdefault(key, term.name) == term.name, name
    assert len(words.by_name) == len(words.terms)


def test_every_axis_is_explained() -> None:
    pools = {f"d_pool{i}" for i in range(8)}
    assert {axis for axis in LETTERS if glossary().named(axis) is None} <= pools


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("p = eˢ / Σ eˢ; scaled = score / √d_head", ["scores", "√d_k"]),
        ("z = softmax(q kᵀ / √d_head) v", ["z", "softmax", "q", "k", "√d_k", "v"]),
        ("concat(z₁ … z_h) W_Oᵀ", ["z", "W_O"]),
        ("top-k, then top-p", ["top-k", "top-p"]),
        ("Q is not q, and kéy is neither", ["q"]),
        ("in blocks.3.attn.rot_q", ["block", "attention", "RoPE"]),
        ("blocks.0.mlp.post and ln2.scale", ["block", "FFN", "neuron", "LayerNorm", "norm's divisor"]),
        ("pass it on and add it up, row by row, in the text", []),
        ("Causal MASK, causal masking, masks", ["causal mask"]),
        ("d_model d_modelx xd_model d_model-like", ["d_model"]),
        ("the KV cache", ["KV cache"]),
        ("x · σ(x)", ["sigmoid"]),
        ("", []),
    ],
)
def test_words_are_found_whole_and_the_longest_first(text: str, words: list[str]) -> None:
    assert [term.name for term in glossary().words(text)] == words


def test_the_word_at_a_place_is_the_one_that_covers_it() -> None:
    text = "one KV cache per layer"
    at = [glossary().at(text, place) for place in range(len(text))]
    assert [term.name if term else "" for term in at] == [""] * 4 + ["KV cache"] * 8 + [""] * 5 + ["block"] * 5


def test_what_is_called_so_comes_before_what_only_speaks_of_it() -> None:
    words = Glossary(
        [
            Term("first", "It speaks of seconds."),
            Term("of seconds", "x"),
            Term("other", "x", aliases=("secondary",)),
            Term("second", "x"),
        ]
    )
    assert [term.name for term in words.find("SECOND")] == ["second", "other", "of seconds", "first"]
    assert [term.name for term in words.find("speaks of")] == ["first"]
    assert words.find("nothing of that") == []
    assert words.find(" ") == list(words.terms)


# ------------------------------------------------------------------------------------------------------ the help


def lines_of(app: LayerstepApp) -> ManualLines:
    return app.screen.query_one(ManualLines)


def terms_of(app: LayerstepApp, section: str) -> list[str]:
    """The words of a section."""
    found = next(one for one in lines_of(app)._sections if one.title == section)
    return [entry.term.name for entry in found.entries if entry.term]


def titles(app: LayerstepApp) -> list[str]:
    return [section.title for section in lines_of(app)._sections]


async def press(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await settled(pilot)


def chosen(app: LayerstepApp) -> Entry:
    entry = lines_of(app).chosen
    assert entry is not None
    return entry


@pytest.mark.parametrize(
    ("site", "first", "among"),
    [
        (PATTERN, "pattern", {"attention", "query axis", "key axis", "arcs", "attention head"}),
        ("blocks.0.attn.k", "k", {"kv head", "d_head", "all heads"}),
        ("blocks.0.ln1.scale", "norm's divisor", {"LayerNorm"}),
        ("blocks.1.resid_mid", "resid_mid", {"logit lens", "norms", "d_model"}),
        ("logits", "logits", {"vocabulary", "ranked"}),
    ],
)
async def test_it_begins_with_the_words_that_are_shown(site: str, first: str, among: set[str]) -> None:
    async with running((80, 24)) as (app, pilot):
        await go(app, pilot, site)
        await press(pilot, "question_mark")
        shown = terms_of(app, "Words on this screen")
        assert shown[0] == first
        assert among <= set(shown)
        assert "router" not in shown
        assert "Words on this screen" in text_of(app)[lines_of(app).region.y]


async def test_the_words_of_the_explanation_come_first_while_it_has_the_focus() -> None:
    async with running((120, 40)) as (app, pilot):
        await go(app, pilot, PATTERN)
        await press(pilot, "tab")
        assert isinstance(app.focused, WhyPane)
        await press(pilot, "question_mark")
        assert titles(app)[:2] == ["Words in this explanation", "Other words on this screen"]
        explained, others = terms_of(app, titles(app)[0]), terms_of(app, titles(app)[1])
        assert "softmax" in explained or "pattern" in explained
        assert "arcs" in others
        assert not set(explained) & set(others)


async def test_without_a_trace_there_are_keys_and_the_glossary() -> None:
    async with running((80, 24), wait=False) as (app, pilot):
        main_of(app).trace = None
        await pilot.press("question_mark")
        await pilot.pause()
        assert titles(app)[0] == "Keys: Walk"
        assert titles(app)[-1] == "Glossary"


async def test_typing_searches_at_once() -> None:
    async with running((80, 24)) as (app, pilot):
        await press(pilot, "question_mark", *"gqa")
        assert titles(app)[:2] == ["GQA", "See also"]
        assert terms_of(app, "See also") == list(glossary().by_name["GQA"].see)
        assert "Grouped-query attention: several" in "\n".join(text_of(app))
        await press(pilot, *["backspace"] * 3, *"guided")
        assert titles(app) == ["Keys: App", "Glossary"]
        await press(pilot, *"xyz")
        assert titles(app) == []
        assert "nothing has this word" in "\n".join(text_of(app))
        await press(pilot, "down", "up", "tab", "pagedown", "enter")
        await press(pilot, "escape")
        assert app.screen is main_of(app)


async def test_tab_goes_from_section_to_section_and_round() -> None:
    async with running((80, 24)) as (app, pilot):
        await press(pilot, "question_mark")
        lines, seen = lines_of(app), []
        for _ in titles(app):
            seen.append(lines.section)
            assert text_of(app)[lines.region.y].strip("╭│╮ ").startswith(seen[-1]) or seen[-1] in ("Marks", "Glossary")
            await press(pilot, "tab")
        assert seen == titles(app)
        assert lines.section == seen[0]
        await press(pilot, "shift+tab")
        assert lines.section == "Glossary"


async def test_enter_and_a_click_show_what_a_word_refers_to() -> None:
    async with running((80, 40)) as (app, pilot):
        await press(pilot, "question_mark", *"softmax", "down", "enter")
        assert titles(app)[0] == "pattern"  # the first that softmax refers to
        assert chosen(app).term == glossary().by_name["pattern"]
        lines = text_of(app)
        y = max(y for y, line in enumerate(lines) if re.search(r"│ +entropy +│", line))
        await pilot.click(offset=(lines[y].index("entropy"), y))
        await settled(pilot)
        assert titles(app)[0] == "entropy"


async def test_the_cursor_stays_in_sight_and_inside() -> None:
    async with running((60, 20)) as (app, pilot):
        await press(pilot, "question_mark")
        lines = lines_of(app)
        for key in ("down", "pagedown", "up", "pageup", "shift+tab", "pagedown", "pagedown", "up"):
            await press(pilot, key)
            assert any("▌" in line for line in text_of(app)[lines.region.y : lines.region.bottom]), key
        for _ in range(200):
            lines.page(1)
        assert chosen(app) is lines.entries[-1]
        for _ in range(200):
            lines.page(-1)
        assert chosen(app) is lines.entries[0]
        await pilot.resize_terminal(140, 50)
        await pilot.resize_terminal(1, 1)
        await pilot.resize_terminal(80, 24)
        await settled(pilot)
        assert "▌" in "\n".join(text_of(app))


async def test_no_line_is_cut_at_80_columns() -> None:
    async with running((80, 24)) as (app, pilot):
        await press(pilot, "question_mark")
        lines = lines_of(app)
        width = lines.room.width
        for line, at in lines._lines:
            if at < 0 or lines.entries[at].mark:
                continue
            assert sum(segment.cell_length for segment in line) + 1 <= width, "".join(s.text for s in line)


async def test_a_second_question_mark_closes_it() -> None:
    async with running((80, 24)) as (app, pilot):
        await press(pilot, "question_mark")
        assert isinstance(app.screen, HelpScreen)
        await press(pilot, "question_mark")
        assert app.screen is main_of(app)


async def test_the_keys_are_those_that_are_in_effect() -> None:
    own = Settings(keys={"step.next": ("J", "right"), "cache.values": ("ctrl+v",)})
    async with running((80, 24), settings=own) as (app, pilot):
        await press(pilot, "question_mark")
        entries = {entry.words: entry.head for entry in lines_of(app).entries if entry.term is None}
        assert entries["Next step"] == "J →"
        assert entries["Previous step"] == "←"
        assert entries["A layer's values"] == "^V"
        assert entries["Picture 1 … 9"] == "1 … 9"
    async with running((80, 24), settings=Settings(keys={"view.2": ("ctrl+k",)})) as (app, pilot):
        await press(pilot, "question_mark")
        entries = {entry.words: entry.head for entry in lines_of(app).entries if entry.term is None}
        assert (entries["Picture 2"], entries["Picture 1"]) == ("^K", "1")


async def test_every_action_has_its_line() -> None:
    async with running((80, 24)) as (app, pilot):
        await press(pilot, "question_mark")
        said = {entry.words for entry in lines_of(app).entries if entry.term is None}
        assert {action.label for action in (*ACTIONS, *CACHE_ACTIONS) if not action.arguments} <= said


async def test_a_word_of_the_explanation_is_clicked() -> None:
    async with running((120, 40)) as (app, pilot):
        await go(app, pilot, PATTERN)
        pane = main_of(app).query_one(WhyPane)
        region, lines = pane.content_region, text_of(app)
        y = next(y for y in range(region.y, region.bottom) if re.search(r"\bstep\b", lines[y][region.x :]))
        x = lines[y].index("step", region.x)
        await pilot.click(offset=(x + 1, y))
        await settled(pilot)
        assert isinstance(app.screen, HelpScreen)
        assert titles(app)[0] == "step"
        await press(pilot, "escape")
        y = next(y for y in range(region.y, region.bottom) if "out blocks" in text_of(app)[y])
        await pilot.click(offset=(region.x, y))  # not on a word
        await settled(pilot)
        assert app.screen is main_of(app)


@pytest.mark.parametrize("typed", ["[/]", "[b]x", "\\[", "漢字", "ε", "(", "{value:x}"])
async def test_whatever_is_typed_is_only_text(typed: str) -> None:
    async with running((80, 24)) as (app, pilot):
        await press(pilot, "question_mark")
        app.screen.query_one("AskInput").value = typed  # type: ignore[attr-defined]
        await settled(pilot)
        assert isinstance(app.screen, HelpScreen)
        assert (titles(app) != []) == (typed in ("ε", "("))


async def test_in_the_cache_view_it_has_the_words_of_that_view() -> None:
    async with running((100, 30)) as (app, pilot):
        await press(pilot, "K")
        await press(pilot, "question_mark")
        assert titles(app)[:2] == ["Words on this screen", "Keys: In the cache view"]
        assert "KV cache" in terms_of(app, "Words on this screen")
