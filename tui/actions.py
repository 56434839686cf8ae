"""Everything a person can do, in one registry: keys, footer, help and palette are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from textual.binding import Binding

from tui.keys import printed

GROUPS = ("Walk", "Look", "Panes", "Trace", "Generate", "App", "In the cache view")


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do. ``hint`` is what the footer says beside its key, or ''; a lower ``rank`` stays longer."""

    id: str
    keys: tuple[str, ...]
    label: str
    group: str
    help: str = ""
    hint: str = ""
    rank: int = 50
    needs_trace: bool = True
    for_target: bool = False  # hinted at only where a decoder has a text of its own
    for_passes: bool = False  # hinted at only where there is more than one pass
    for_model: bool = False  # hinted at only where the model is here and goes on from a text
    listed: str = ""  # the hint in its place where the vocabulary is listed; a blank for none
    pair: str = ""  # the action whose key stands before this one's in the footer

    @property
    def shown_keys(self) -> str:
        """The keys as a person knows them."""
        return " ".join(printed(key) for key in self.keys)

    @property
    def method(self) -> str:
        """The name of the method that does it."""
        return "do_" + (self.id.rpartition(".")[0] if self.arguments else self.id).replace(".", "_")

    @property
    def arguments(self) -> tuple[int, ...]:
        """What that method is given: the number at the end of the id, where there is one."""
        last = self.id.rpartition(".")[2]
        return (int(last),) if last.isdecimal() else ()


ACTIONS: tuple[Action, ...] = (
    Action("step.next", ("right",), "Next step", "Walk", "One step on in the pass", "step", 1, pair="step.previous"),
    Action("step.previous", ("left",), "Previous step", "Walk", "One step back"),
    Action("layer.next", ("right_square_bracket",), "Next layer", "Walk", "One block deeper", "layer", 3,
           pair="layer.previous"),
    Action("layer.previous", ("left_square_bracket",), "Previous layer", "Walk", "One block up"),
    Action("step.first", ("home",), "First step", "Walk", "The start of the pass"),
    Action("step.last", ("end",), "Last step", "Walk", "The end of the pass"),
    Action("play", ("space",), "Play / pause", "Walk", "Walk on by itself", "play", 30),
    Action("row.up", ("up",), "Row up", "Look", "The token before; in the tree the step, at logits the candidate"),
    Action("row.down", ("down",), "Row down", "Look", "The next token, step or candidate", "token", 2, pair="row.up",
           listed="candidate"),
    Action("row.page_up", ("pageup",), "Ten rows up", "Look"),
    Action("row.page_down", ("pagedown",), "Ten rows down", "Look"),
    Action("col.next", ("full_stop",), "Next key or dim", "Look", "The next column; at logits the token",
           "key", 12, pair="col.previous", listed="token"),
    Action("col.previous", ("comma",), "Previous key or dim", "Look", "The column before"),
    Action("col.page_next", ("greater_than_sign",), "Sixteen columns on", "Look"),
    Action("col.page_previous", ("less_than_sign",), "Sixteen columns back", "Look"),
    Action("head.next", ("h",), "Next head", "Look", "The next head", "head", 4, listed=" "),
    Action("head.previous", ("H",), "Previous head", "Look", "The head before"),
    Action("batch.next", ("b",), "Next prompt of a batch", "Look"),
    Action("batch.previous", ("B",), "Previous prompt of a batch", "Look"),
    Action("view.next", ("v",), "Next picture", "Look", "Of the pictures named below the stage", "view", 10),
    Action("view.previous", ("V",), "Picture before", "Look"),
    *(Action(f"view.{n}", (str(n),), f"Picture {n}", "Look") for n in range(1, 10)),
    Action("chain.next", ("n",), "On in the chain of scores", "Look", "scores, scaled, masked, pattern, in place"),
    Action("chain.previous", ("N",), "Back in the chain of scores", "Look"),
    Action("scale.next", ("l",), "Next colour scale", "Look", "auto, per row, symmetric, log, clipped, fixed"),
    Action("scale.previous", ("L",), "Colour scale before", "Look"),
    Action("beside", ("d",), "Beside, difference, alone", "Look", "Two things side by side, then their difference",
           "beside", 16),
    Action("beside.choose", ("D",), "Choose what is beside", "Look", "A head, layer, pass, prompt, model or file"),
    Action("beside.flip", ("f",), "Flip the two sides", "Look"),
    Action("cells.style", ("c",), "Digits or shades", "Look", "Cells as numbers on colour, or as shades ░▒▓█"),
    Action("cells.wider", ("plus", "equals_sign"), "Wider cells", "Look", "More decimals, fewer columns"),
    Action("cells.narrower", ("minus",), "Narrower cells", "Look", "More columns, fewer decimals"),
    Action("cells.auto", ("0",), "Automatic width", "Look", "As wide as the numbers in the cells need"),
    Action("pane.next", ("tab",), "Next pane", "Panes", needs_trace=False),
    Action("pane.previous", ("shift+tab",), "Previous pane", "Panes", needs_trace=False),
    Action("pane.why", ("i",), "Show or hide the explanation", "Panes", "Narrow: in the tree's place", "explain", 20),
    Action("pane.tree", ("t",), "Show or hide the tree", "Panes"),
    Action("pane.maximise", ("z",), "Maximise this pane", "Panes", "Again, or Esc: as before", needs_trace=False),
    Action("trace.prompt", ("p",), "New prompt", "Trace", "For this model", "prompt", 6, needs_trace=False),
    Action("trace.target", ("y",), "Change the target", "Trace", "What an encoder-decoder's decoder has written",
           "target", 9, for_target=True),
    Action("trace.model", ("m",), "Choose a model", "Trace", "For this prompt", "model", 14, needs_trace=False),
    Action("trace.about", ("a",), "About this model", "Trace", "Its config, and what loading its weights did"),
    Action("trace.open", ("o",), "Open a saved trace", "Trace", "", "open", 40, needs_trace=False),
    Action("trace.save", ("s",), "Save this trace", "Trace", hint="save", rank=45),
    Action("cache", ("K",), "The KV cache", "Trace", "What it holds pass by pass, and what it costs", "cache", 11),
    Action("copy", ("C",), "Copy", "Trace", "A value, a row, a summary, an address", "copy", 35),
    Action("export", ("e",), "Export", "Trace", "What is shown, figures, data, a page, a handout", "export", 33),
    Action("export.svg", (), "Export the screen as a picture", "Trace", "SVG"),
    Action("export.text", (), "Export the screen as text", "Trace"),
    Action("export.pane", (), "Export the pane with the focus as text", "Trace"),
    Action("export.csv", (), "Export the whole picture's numbers", "Trace", "CSV"),
    Action("find.site", ("slash",), "Find a step", "Trace", "Type a part of its name", "find", 7),
    Action("find.any", ("ctrl+p",), "Find a step or an action", "Trace", "The command palette", needs_trace=False),
    Action("find.address", ("colon",), "Go to an address", "Trace", "blocks.2.attn.pattern[h=3,q=8]", "address", 42),
    Action("generate.token", ("g",), "One token more", "Generate", "Chosen and run: one pass more", "token", 5,
           for_model=True),
    Action("generate.run", ("G",), "Run", "Generate", "Token after token; again, or Esc, ends it", "run", 13,
           for_model=True),
    Action("generate.branch", ("enter",), "Take this candidate", "Generate", "On logits, probs: as the next token",
           for_model=True, listed="take it"),
    Action("generate.back", ("backspace",), "One pass back", "Generate", "It stays as a branch"),
    Action("generate.branches", ("u",), "Branches", "Generate", "All ways on as a tree", "branches", 15,
           for_passes=True),
    Action("generate.sampling", ("x",), "Sampling", "Generate", "Temperature, filters, seed", "sampling", 25,
           for_model=True),
    Action("pass.previous", ("left_curly_bracket",), "Pass before", "Generate", "Its own tensors alone"),
    Action("pass.next", ("right_curly_bracket",), "Next pass", "Generate", "After the last one: all passes together",
           "pass", 6, for_passes=True, pair="pass.previous"),
    Action("engine.restart", ("E",), "Start the engine again", "App", "After it ended", needs_trace=False),
    Action("theme", ("T",), "Next theme", "App", needs_trace=False),
    Action("settings", ("O",), "Settings", "App", "Keys, theme and looks, and the file they are in", needs_trace=False),
    Action("session.restore", ("R",), "Last session", "App", "Where the app was left", needs_trace=False),
    Action("tour", ("W",), "Tours", "App", "The guided walk of 90 seconds, others, your own", needs_trace=False),
    Action("present", ("P",), "Present", "App", "Full screen: the picture and the tour's words", needs_trace=False),
    Action("present.blank", ("Z",), "Blank the screen", "App", "Any key brings it back", needs_trace=False),
    Action("record", ("r",), "Record a tour", "App", "This place as a stop; then more, and the file"),
    Action("help", ("question_mark",), "Help", "App", "Words shown here, all keys", "help", 5, needs_trace=False),
    Action("back", ("escape",), "Back, or cancel what runs", "App", needs_trace=False),
    Action("quit", ("q", "ctrl+c"), "Quit", "App", hint="quit", rank=8, needs_trace=False),
)  # fmt: skip

CACHE_SECTIONS = (
    ("Growth", "Layers × positions, pass by pass, and which heads share"),
    ("Bytes", "Measured and by the formula; other kinds, dtypes, lengths"),
    ("Drift", "The cached run against the uncached one"),
    ("Time", "A token with the cache and without it"),
    ("Quantised", "What keys and values in int8 or int4 would do"),
    ("Pages", "What pages of some positions would waste"),
)
"""The sections of the cache view, and what they show."""


def _cache(
    name: str, keys: tuple[str, ...], label: str, help: str = "", hint: str = "", rank: int = 50, pair: str = ""
) -> Action:
    pair = f"cache.{pair}" if pair else ""
    return Action(f"cache.{name}", keys, label, "In the cache view", help, hint, rank, pair=pair)


CACHE_ACTIONS: tuple[Action, ...] = (
    _cache("pass_next", ("right", "right_curly_bracket"), "Next pass", "It grows", "pass", 1, "pass_previous"),
    _cache("pass_previous", ("left", "left_curly_bracket"), "Pass before"),
    _cache("pass_first", ("home",), "First pass"),
    _cache("pass_last", ("end",), "Last pass"),
    _cache("play", ("space",), "Play / pause", "Pass after pass", "play", 8),
    _cache("down", ("down",), "Next layer, site or line", hint="row", rank=2, pair="up"),
    _cache("up", ("up",), "Previous layer, site or line"),
    _cache("page_down", ("pagedown",), "Ten on"),
    _cache("page_up", ("pageup",), "Ten back"),
    _cache("head_next", ("h",), "Next kv head", hint="head", rank=5),
    _cache("head_previous", ("H",), "Previous kv head"),
    _cache("look", ("enter",), "To the site at the cursor", "A layer's keys, what differs first; else measures",
           "look", 4),
    _cache("values", ("v",), "A layer's values", "Of the head at the cursor", "values", 7),
    _cache("measure", ("m",), "Measure", "Time, drift or quantised, as the section is", "measure", 5),
    _cache("bits", ("i",), "int8 or int4", "Of the quantised cache", "int8/4", 11),
    _cache("pages_larger", ("plus", "equals_sign"), "Larger pages"),
    _cache("pages_smaller", ("minus",), "Smaller pages", hint="pages", rank=12, pair="pages_larger"),
    _cache("section_next", ("tab",), "Next section", hint="next", rank=3),
    _cache("section_previous", ("shift+tab",), "Previous section"),
    *(_cache(f"section_{n}", (str(n),), name, words) for n, (name, words) in enumerate(CACHE_SECTIONS, 1)),
    _cache("theme", ("T",), "Next theme"),
    _cache("help", ("question_mark",), "Help", hint="help", rank=10),
    _cache("back", ("escape", "q", "K"), "Back to the walk", "Esc first stops what runs", "back", 6),
)  # fmt: skip

BY_ID = {action.id: action for action in ACTIONS}
ALWAYS = {"back": "escape", "cache.back": "escape", "quit": "ctrl+c"}
"""Keys that stay, whatever a person sets: the way out is the same everywhere."""
NO_KEY = "no_key"
"""Stands where an action has no key: nothing that can be typed."""


class Keymap:
    """The registry with a person's own keys: ``keys`` has those of the actions that they changed, by id."""

    def __init__(self, keys: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self.changed = dict(keys or {})
        self.actions = tuple(map(self._own, ACTIONS))
        self.cache_actions = tuple(map(self._own, CACHE_ACTIONS))
        self.by_id = {action.id: action for action in (*self.actions, *self.cache_actions)}

    def _own(self, action: Action) -> Action:
        if action.id not in self.changed:
            return action
        always = (ALWAYS[action.id],) if action.id in ALWAYS else ()
        return replace(action, keys=tuple(dict.fromkeys((*self.changed[action.id], *always))))

    def key(self, name: str) -> str:
        """The first key of an action, as it is printed; of one without keys that of the command palette."""
        keys = self.by_id[name].keys or self.by_id["find.any"].keys
        return printed(keys[0]) if keys else "a click"

    def hint_keys(self, action: Action) -> str:
        """The keys of a hint: ``←→``, ``[ ]``, ``g``; '' for an action without."""
        both = [self.by_id[name].keys for name in (action.pair, action.id) if name]
        if not (keys := [printed(own[0]) for own in both if own]):
            return ""
        plain = all(len(key) == 1 and not key.isalnum() for key in keys)
        return (" " if keys[0] in ("[", "{", "(") else "" if plain else "/").join(keys)

    @property
    def for_textual(self) -> dict[str, str]:
        """What ``App.set_keymap`` takes."""
        return {name: ",".join(self.by_id[name].keys or (NO_KEY,)) for name in self.changed}


DEFAULT = Keymap()


def keymap_of(app: object) -> Keymap:
    """The keys that an app goes by."""
    found = getattr(app, "keymap", None)
    return found if isinstance(found, Keymap) else DEFAULT


def bindings(actions: tuple[Action, ...] = ACTIONS) -> list[Binding | tuple[str, str] | tuple[str, str, str]]:
    """The registry as Textual bindings; each runs ``do('<id>')``. By their ids an app's keymap finds them."""
    return [
        Binding(key, f"do('{action.id}')", action.label, show=False, priority=key == "ctrl+c", id=action.id)
        for action in actions
        for key in action.keys or (NO_KEY,)
    ]
