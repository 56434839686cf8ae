"""The README's table of the sample models, from their figures.json.

python tests/cli/readme_figures.py     writes it into README.md
"""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
MODELS = ("modern", "classic")
BEGIN, END = "<!-- figures: tests/cli/readme_figures.py -->\n", "<!-- end of figures -->\n"
ROWS = (
    ("weight on the previous token, in prose", ("previous_token", "prose", "weight")),
    ("weight on what came next last time (induction, period 16)", ("induction", 0, "weight")),
    ("loss on a random sequence", ("induction", 0, "loss_first_copy")),
    ("loss on the same sequence again", ("induction", 0, "loss_second_copy")),
    ('weight from "It" to the subject noun', ("it_to_subject", "target")),
    ("… to the other noun", ("it_to_subject", "foil")),
    ("weight from a verb to its subject, across another noun", ("verb_to_subject", "target")),
    ("weight from he or she to the right one of two names", ("pronoun_to_name", "target")),
    ("is or are, right across a noun of the other number", ("agreement", "before_the_wrong_one")),
    ("who has what, asked again: the right thing on top", ("possession_asked", "on_top")),
)
"""What is shown, and where it stands in figures.json. Counts are shown out of how many."""


def table() -> str:
    """The table as Markdown; – where a model has no such figure."""
    figures = {name: _read(ROOT / "samples" / "models" / name / "figures.json") for name in MODELS}
    lines = ["| on text never seen in training | " + " | ".join(f"`{name}`" for name in MODELS) + " |"]
    lines.append("| --- |" + " --- |" * len(MODELS))
    for words, place in ROWS:
        lines.append(f"| {words} | " + " | ".join(_figure(figures[name], place) for name in MODELS) + " |")
    return "\n".join(lines) + "\n"


def _read(path: Path) -> object:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _figure(figures: object, place: tuple[str | int, ...]) -> str:
    around = None
    for key in place:
        around = figures
        try:
            figures = figures[key]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return "–"
    if isinstance(around, dict) and "of" in around:
        return f"{figures} of {around['of']}"
    return f"{figures:.2f}" if isinstance(figures, int | float) else "–"


def filled(text: str) -> str:
    """README's text with the table of now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n" + table() + "\n" + END + after


if __name__ == "__main__":
    README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")
