"""The actions for who is new here: help with its words, the guided walk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tui.screens.touring import Touring
from tui.state.views import views_of
from tui.widgets.header import HeaderLine
from tui.widgets.why import WhyPane

if TYPE_CHECKING:
    from tui.glossary import Term


class Learning(Touring):
    """The help, with the words that are shown; and, with ``Touring``, the guided walk."""

    # help

    def do_help(self) -> None:
        self.help()

    def help(self, typed: str = "") -> None:
        """The help, with the words that are shown, or at one word."""
        from tui.screens.help import HelpScreen

        first = "Generate" if self.lists_candidates else ""
        self.app.push_screen(HelpScreen(first, self.words_here() if not typed else (), typed))

    def words_here(self) -> tuple[tuple[str, tuple[Term, ...]], ...]:
        """The words that are shown, under titles; those of the explanation first and apart while it has the focus."""
        from tui.glossary import glossary

        plane = self.plane
        if plane is None:
            return ()
        step, words = plane.step, glossary()
        called = [term for part in reversed(step.site.split(".")) if (term := words.named(part)) is not None]
        told = words.words(step.title, step.formula, step.story, step.numbers, *step.reads, *step.params)
        explained = list(dict.fromkeys((*called[:1], *told, *called)))
        pictures = [term for view in views_of(step) if (term := words.named(view.name)) is not None]
        axes = [term for axis in step.axes if (term := words.named(axis)) is not None]
        facts = words.words(self.query_one(HeaderLine).strip(0).text)
        rest = tuple(term for term in dict.fromkeys((*axes, *pictures, *facts)) if term not in explained)
        if isinstance(self.focused, WhyPane):
            return ("Words in this explanation", tuple(explained)), ("Other words on this screen", rest)
        return (("Words on this screen", (*explained, *rest)),)

    def on_why_pane_asked(self, event: WhyPane.Asked) -> None:
        """A click on a word of the explanation opens the help at it."""
        from tui.glossary import glossary

        if (term := glossary().at(event.line, event.at)) is not None:
            self.help(term.name)
