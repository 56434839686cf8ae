"""``python -m tui [PROMPT] [--model M] [--at ADDRESS] …``: open the app; ``--help`` has all options."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Read the arguments and open the app; returns the exit code."""
    try:
        return _main(argv)
    except KeyboardInterrupt:  # while the terminal was not the app's yet
        return 130


def _main(argv: Sequence[str] | None) -> int:
    from tui.start import run

    words = list(sys.argv[1:] if argv is None else argv)
    if len(words) < 2 and not any(word.startswith("-") for word in words):
        return run(*words)  # the usual way in, without the parser
    import argparse

    parser = argparse.ArgumentParser(prog="python -m tui", description="Walk through a transformer's forward pass.")
    parser.add_argument("prompt", nargs="?", help="the text to walk through (also read from a pipe)")
    parser.add_argument("--model", help="a sample or a folder (default: modern)")
    parser.add_argument("--at", metavar="ADDRESS", help="where to start, e.g. blocks.2.attn.pattern[h=3,q=8]")
    parser.add_argument("--target", metavar="TEXT", help="what an encoder-decoder's decoder has written so far")
    parser.add_argument("--open", metavar="FILE", dest="file", help="a saved trace instead of a prompt")
    parser.add_argument("--chat", action="store_true", help="the prompt is a chat, for the model's chat template")
    parser.add_argument("--no-mouse", action="store_true", help="leave the mouse to the terminal")
    parser.add_argument("--light", action="store_true", help="the light theme")
    parser.add_argument("--config", metavar="FILE", help="a settings file in place of the usual one")
    parser.add_argument("--tour", metavar="NAME", help="play a tour: a file, or the name of one that comes along")
    parser.add_argument("--present", action="store_true", help="full screen, for a projector")
    parser.add_argument("--last", action="store_true", help="where the app was left")
    given = parser.parse_args(words)
    return run(
        prompt=given.prompt,
        model=given.model,
        address=given.at,
        file=given.file,
        chat=given.chat,
        target=given.target,
        mouse=not given.no_mouse,
        light=given.light,
        config=given.config,
        last=given.last,
        tour=given.tour,
        present=given.present,
    )


if __name__ == "__main__":
    sys.exit(main())
