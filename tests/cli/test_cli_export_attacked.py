"""`layerstep export` with a full disk, options that contradict each other, limits, and folders that are missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROMPT = "dog bites man"
PATTERN = "blocks.0.attn.pattern[h=1]"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((PROMPT, "--to", "csv", "--minus", "tokens"), "--minus is of one place"),
        ((PROMPT, "--to", "json", "--view", "heads"), "--view is of one place"),
        ((PROMPT, "--to", "parquet", "--other", "x"), "--other is of one place"),
        ((PROMPT, "--to", "csv", "--round-to", "float16"), "--round-to rounds no table of the steps"),
        ((PROMPT, "--to", "md", "--round-to", "float16"), "--round-to is not for md"),
        ((PROMPT, "--to", "png", "--view", "cost", "--peaks", "1e12,1e11"), "--peaks is for --view roofline"),
        (("--to", "html", "--tour", "heads", "--model", "classic"), "--model is not for a tour"),
        (("--to", "md", "--tour", "heads", "--heads", "0"), "--heads chooses nothing of a tour as md"),
    ],
)
def test_an_option_without_effect_is_refused(call, args: tuple[str, ...], words: str) -> None:
    done = call("export", *args)
    assert done.code == 2
    assert words in done.err


def test_a_limit_that_is_named_holds_for_what_is_not_measured_before(call, tmp_path: Path) -> None:
    for to, words in (("svg", "--size"), ("csv", "--at"), ("tikz", "--at")):
        target = tmp_path / f"x.{to}"
        done = call("export", PROMPT, "--to", to, "--at", PATTERN, "--max-size", "100", "-o", target)
        assert done.code == 1, done.err
        assert "over the limit of 100 B" in done.err
        assert words in done.err
    assert not list(tmp_path.iterdir())


def test_a_folder_to_be_is_no_name_of_a_file(call, tmp_path: Path) -> None:
    done = call("export", PROMPT, "--to", "json", "-o", f"{tmp_path}/new/")
    assert (done.code, list(tmp_path.iterdir())) == (1, [])
    assert "is a folder; name a file in it" in done.err


def test_peaks_that_no_machine_has_are_one_line(call, tmp_path: Path) -> None:
    target = tmp_path / "x.png"
    done = call("export", PROMPT, "--view", "roofline", "--peaks", "1e-300,1e300", "-o", target)
    assert done.code == 1
    assert "both from 1 to 1e30" in done.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_stdout_that_takes_nothing_is_named_and_matplotlib_draws_without_a_folder_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "engine", "export", PROMPT, "--to", "svg", "--at", "tokens", "-o", "-"]
    homeless = {**os.environ, "MPLCONFIGDIR": "/proc/none", "HOME": "/proc/none", "TERM": "dumb"}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=homeless, check=False)
    assert done.returncode == 1
    assert done.stderr == b"layerstep: stdout cannot be written: No space left on device\n"
