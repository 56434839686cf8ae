"""Text for LaTeX, whoever wrote it: what means something to TeX is escaped, and what its fonts lack is spelled out.

It is for pdfLaTeX with any font encoding, and so for XeLaTeX and LuaLaTeX too. Nothing of it is a command that another
text could have brought along.
"""

from __future__ import annotations

import unicodedata

from engine.text import display

SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\ensuremath{<}", ">": r"\ensuremath{>}",
    "|": r"\ensuremath{|}", '"': r"\char34{}", "`": "`{}", "'": "'{}", "-": "-{}", "[": "{[}", "]": "{]}",
    "␣": r"\ensuremath{\sqcup}", "⏎": r"\ensuremath{\hookleftarrow}", "⇥": r"\ensuremath{\mapsto}",
    "‹": r"\ensuremath{\langle}", "›": r"\ensuremath{\rangle}",
}  # fmt: skip
"""What is no letter to TeX, and our own marks for blanks and for code points. The empty groups keep what stands beside
from becoming a dash, a quotation mark or an option."""
MATH = {
    "×": r"\times", "·": r"\cdot", "√": r"\surd", "Σ": r"\Sigma", "σ": r"\sigma", "μ": r"\mu", "ε": r"\epsilon",
    "θ": r"\theta", "γ": r"\gamma", "β": r"\beta", "α": r"\alpha", "φ": r"\varphi", "Φ": r"\Phi", "π": r"\pi",
    "→": r"\to", "−": "-", "∞": r"\infty", "≤": r"\leq", "≥": r"\geq", "≠": r"\neq", "≈": r"\approx", "±": r"\pm",
    "‖": r"\Vert", "∈": r"\in", "⊙": r"\odot", "⊕": r"\oplus", "½": r"\tfrac12", "²": "^2", "ᵀ": r"^\top",
}  # fmt: skip
"""Signs of our own formulas and numbers, in math."""
TEXT = {
    "…": r"\dots{}", "“": "``", "”": "''", "‘": "`", "’": "'", "–": "--", "—": "---", "◌": r"\ensuremath{\circ}",
}  # fmt: skip


def escaped(text: str) -> str:
    """A text as LaTeX sets it letter by letter; what it may have no letter for as ⟨U+6F22⟩."""
    return "".join(map(_escaped, display(text)))


def _escaped(char: str) -> str:
    if char in SPECIAL:
        return SPECIAL[char]
    if char in MATH:
        return rf"\ensuremath{{{MATH[char]}}}"
    if char in TEXT:
        return TEXT[char]
    if char.isascii() or (char <= "\u017f" and unicodedata.category(char)[0] == "L"):
        return char
    return rf"\ensuremath{{\langle}}U+{ord(char):04X}\ensuremath{{\rangle}}"
