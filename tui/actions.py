"""Everything a person can do, in one registry: keys, footer, help and palette are made from it."""

from __future__ import annotations

from dataclasses import dataclass

from textual.binding import Binding

GROUPS = ("Walk", "Look", "Panes", "Trace", "Generate", "App", "In the cache view")

KEY_NAMES = {
    "left": "←", "right": "→", "up": "↑", "down": "↓", "left_square_bracket": "[", "right_square_bracket": "]",
    "comma": ",", "full_stop": ".", "slash": "/", "colon": ":", "question_mark": "?", "plus": "+", "minus": "-",
    "pageup": "PgUp", "pagedown": "PgDn", "home": "Home", "end": "End", "tab": "Tab", "shift+tab": "⇧Tab",
    "escape": "Esc", "enter": "Enter", "space": "Space", "ctrl+p": "^P", "ctrl+c": "^C", "ctrl+z": "^Z",
    "equals_sign": "=", "less_than_sign": "<", "greater_than_sign": ">", "left_curly_bracket": "{",
    "right_curly_bracket": "}", "backspace": "Backspace",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do. ``hint`` is what the footer shows, '' for nothing; a lower ``rank`` stays longer."""

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

    @property
    def shown_keys(self) -> str:
        """The keys as a person knows them."""
        return " ".join(KEY_NAMES.get(key, key) for key in self.keys)

    @property
    def method(self) -> str:
        """The name of the method that does it."""
        return "do_" + self.id.replace(".", "_")


ACTIONS: tuple[Action, ...] = (
    Action("step.next", ("right",), "Next step", "Walk", "One step on in the pass", "←→ step", 1),
    Action("step.previous", ("left",), "Previous step", "Walk", "One step back"),
    Action("layer.next", ("right_square_bracket",), "Next layer", "Walk", "One block deeper", "[ ] layer", 3),
    Action("layer.previous", ("left_square_bracket",), "Previous layer", "Walk", "One block up"),
    Action("step.first", ("home",), "First step", "Walk", "The start of the pass"),
    Action("step.last", ("end",), "Last step", "Walk", "The end of the pass"),
    Action("play", ("space",), "Play / pause", "Walk", "Walk on by itself", "space play", 30),
    Action("row.up", ("up",), "Row up", "Look", "The token before; in the tree the step, at logits the candidate",
           "↑↓ token", 2, listed="↑↓ candidate"),
    Action("row.down", ("down",), "Row down", "Look", "The next token, step or candidate"),
    Action("row.page_up", ("pageup",), "Ten rows up", "Look"),
    Action("row.page_down", ("pagedown",), "Ten rows down", "Look"),
    Action("col.next", ("full_stop",), "Next key or dim", "Look", "The next column; at logits the token",
           ", . key", 12, listed=",. token"),
    Action("col.previous", ("comma",), "Previous key or dim", "Look", "The column before"),
    Action("col.page_next", ("greater_than_sign",), "Sixteen columns on", "Look"),
    Action("col.page_previous", ("less_than_sign",), "Sixteen columns back", "Look"),
    Action("head.next", ("h",), "Next head", "Look", "The next head", "h head", 4, listed=" "),
    Action("head.previous", ("H",), "Previous head", "Look", "The head before"),
    Action("batch.next", ("b",), "Next prompt of a batch", "Look"),
    Action("batch.previous", ("B",), "Previous prompt of a batch", "Look"),
    Action("view.next", ("v",), "Other view", "Look", "Picture, then one row of it as bars, and back", "v view", 10),
    Action("cells.style", ("c",), "Digits or shades", "Look", "Cells as numbers on colour, or as shades ░▒▓█"),
    Action("cells.wider", ("plus", "equals_sign"), "Wider cells", "Look", "More decimals, fewer columns"),
    Action("cells.narrower", ("minus",), "Narrower cells", "Look", "More columns, fewer decimals"),
    Action("cells.auto", ("0",), "Automatic width", "Look", "As wide as the numbers in the cells need"),
    Action("pane.next", ("tab",), "Next pane", "Panes", needs_trace=False),
    Action("pane.previous", ("shift+tab",), "Previous pane", "Panes", needs_trace=False),
    Action("pane.why", ("i",), "Show or hide the explanation", "Panes", "Narrow: in the tree's place", "i explain", 20),
    Action("pane.tree", ("t",), "Show or hide the tree", "Panes"),
    Action("trace.prompt", ("p",), "New prompt", "Trace", "For this model", "p prompt", 6, needs_trace=False),
    Action("trace.target", ("y",), "Change the target", "Trace", "What an encoder-decoder's decoder has written",
           "y target", 9, for_target=True),
    Action("trace.model", ("m",), "Choose a model", "Trace", "For this prompt", "m model", 14, needs_trace=False),
    Action("trace.about", ("a",), "About this model", "Trace", "Its config, and what loading its weights did"),
    Action("trace.open", ("o",), "Open a saved trace", "Trace", "", "o open", 40, needs_trace=False),
    Action("trace.save", ("s",), "Save this trace", "Trace", hint="s save", rank=45),
    Action("cache", ("K",), "The KV cache", "Trace", "What it holds pass by pass, and what it costs", "K cache", 11),
    Action("find.site", ("slash",), "Find a step", "Trace", "Type a part of its name", "/ find", 7),
    Action("find.any", ("ctrl+p",), "Find a step or an action", "Trace", "The command palette", needs_trace=False),
    Action("find.address", ("colon",), "Go to an address", "Trace", "blocks.2.attn.pattern[h=3,q=8]", ": address", 42),
    Action("generate.token", ("g",), "One token more", "Generate", "Chosen and run: one pass more", "g token", 5,
           for_model=True),
    Action("generate.run", ("G",), "Run", "Generate", "Token after token; G again or Esc ends it", "G run", 13,
           for_model=True),
    Action("generate.branch", ("enter",), "Take this candidate", "Generate", "On logits, probs: as the next token",
           for_model=True, listed="Enter take it"),
    Action("generate.back", ("backspace",), "One pass back", "Generate", "It stays as a branch"),
    Action("generate.branches", ("u",), "Branches", "Generate", "All ways on as a tree", "u branches", 15,
           for_passes=True),
    Action("generate.sampling", ("x",), "Sampling", "Generate", "Temperature, filters, seed", "x sampling", 25,
           for_model=True),
    Action("pass.previous", ("left_curly_bracket",), "Pass before", "Generate", "Its own tensors alone"),
    Action("pass.next", ("right_curly_bracket",), "Next pass", "Generate", "After the last one: all passes together",
           "{ } pass", 6, for_passes=True),
    Action("engine.restart", ("r",), "Start the engine again", "App", "After it ended", needs_trace=False),
    Action("theme", ("T",), "Dark or light", "App", needs_trace=False),
    Action("help", ("question_mark",), "Help", "App", "All keys", "? help", 5, needs_trace=False),
    Action("back", ("escape",), "Back, or cancel what runs", "App", needs_trace=False),
    Action("quit", ("q", "ctrl+c"), "Quit", "App", hint="q quit", rank=8, needs_trace=False),
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


def _cache(name: str, keys: tuple[str, ...], label: str, help: str = "", hint: str = "", rank: int = 50) -> Action:
    return Action(f"cache.{name}", keys, label, "In the cache view", help, hint, rank)


CACHE_ACTIONS: tuple[Action, ...] = (
    _cache("pass_next", ("right", "right_curly_bracket"), "Next pass", "It grows", "←→ pass", 1),
    _cache("pass_previous", ("left", "left_curly_bracket"), "Pass before"),
    _cache("pass_first", ("home",), "First pass"),
    _cache("pass_last", ("end",), "Last pass"),
    _cache("play", ("space",), "Play / pause", "Pass after pass", "space play", 8),
    _cache("down", ("down",), "Next layer, site or line", hint="↑↓ row", rank=2),
    _cache("up", ("up",), "Previous layer, site or line"),
    _cache("page_down", ("pagedown",), "Ten on"),
    _cache("page_up", ("pageup",), "Ten back"),
    _cache("head_next", ("h",), "Next kv head", hint="h head", rank=5),
    _cache("head_previous", ("H",), "Previous kv head"),
    _cache("look", ("enter",), "To the site at the cursor", "A layer's keys, what differs first; else measures",
           "Enter look", 4),
    _cache("values", ("v",), "A layer's values", "Of the head at the cursor", "v values", 7),
    _cache("measure", ("m",), "Measure", "Time, drift or quantised, as the section is", "m measure", 5),
    _cache("bits", ("i",), "int8 or int4", "Of the quantised cache", "i int8/4", 11),
    _cache("pages_larger", ("plus", "equals_sign"), "Larger pages", hint="+- pages", rank=12),
    _cache("pages_smaller", ("minus",), "Smaller pages"),
    _cache("section_next", ("tab",), "Next section", hint="Tab next", rank=3),
    _cache("section_previous", ("shift+tab",), "Previous section"),
    *(_cache(f"section_{n}", (str(n),), name, words) for n, (name, words) in enumerate(CACHE_SECTIONS, 1)),
    _cache("theme", ("T",), "Dark or light"),
    _cache("help", ("question_mark",), "Help", hint="? help", rank=10),
    _cache("back", ("escape", "q", "K"), "Back to the walk", "Esc first stops what runs", "Esc back", 6),
)  # fmt: skip

BY_ID = {action.id: action for action in ACTIONS}


def bindings(actions: tuple[Action, ...] = ACTIONS) -> list[Binding | tuple[str, str] | tuple[str, str, str]]:
    """The registry as Textual bindings; each runs ``do('<id>')``."""
    return [
        Binding(key, f"do('{action.id}')", action.label, show=False, priority=key == "ctrl+c")
        for action in actions
        for key in action.keys
    ]
