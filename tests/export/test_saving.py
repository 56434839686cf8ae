"""Writing an export: in the format that is meant, whole or not at all, over no other file, no larger than allowed."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path

import pytest
from exported import of_kind, walked

from engine import open_trace, save_as
from engine.browse import Session
from engine.errors import AddressError, Cancelled, ExportError, TourError
from engine.export import arrays, tables
from engine.export.formats import FORMATS, format_of
from engine.export.selection import Selection
from engine.sites import Address
from engine.tours import Other, Stop, Tour, to_toml

PATTERN = "blocks.1.attn.pattern[h=2]"


def files(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_the_ending_of_a_name_says_the_format_unless_one_is_named(tmp_path: Path) -> None:
    for form in FORMATS.values():
        assert format_of(Path(f"A.B{form.suffix.upper()}")) is form
    save_as(walked(), tmp_path / "steps.dat", "csv")
    assert (tmp_path / "steps.dat").read_bytes().startswith(b"step,site,")
    for name, to, words in (("x.docx", None, r"x\.docx does not say in which format; end it with one of \.html"),
                            ("x.csv", "doc", "there is no format 'doc'; there are html, svg")):  # fmt: skip
        with pytest.raises(ExportError, match=words):
            save_as(walked(), tmp_path / name, to)
    assert files(tmp_path) == ["steps.dat"]


def test_how_many_bytes_were_written_is_said_and_before_that_about_how_many(tmp_path: Path) -> None:
    heard: list[int | None] = []
    size = save_as(walked(), tmp_path / "x.safetensors", tell=heard.append)
    assert heard == [size] == [(tmp_path / "x.safetensors").stat().st_size]


def test_what_is_there_already_stays_unless_it_is_to_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("mine")
    path.chmod(0o640)
    with pytest.raises(ExportError, match=r"x\.csv exists already; choose another name, or replace it with force"):
        save_as(walked(), path)
    assert path.read_text() == "mine"
    save_as(walked(), path, force=True)
    assert path.read_text() != "mine"
    assert path.stat().st_mode & 0o777 == 0o640
    assert files(tmp_path) == ["x.csv"]


@pytest.mark.parametrize(
    ("name", "words"),
    [("gone/x.csv", "there is no folder"), ("x\0.csv", "no file name can have"), ("folder.csv", "is a folder")],
)
def test_a_place_that_cannot_be_written_to_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    (tmp_path / "folder.csv").mkdir()
    monkeypatch.setattr(tables, "write", lambda *_: pytest.fail("it was made"))
    with pytest.raises(ExportError, match=words) as refused:
        save_as(walked(), tmp_path / name, force=True)
    assert "\n" not in str(refused.value)


def test_a_full_disk_is_one_line_with_what_is_needed_and_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = arrays.numbers

    def until_it_is_full(order, part, watch):
        if part.site.block == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(order, part, watch)

    monkeypatch.setattr(arrays, "numbers", until_it_is_full)
    before = tmp_path / "x.safetensors"
    before.write_text("mine")
    with pytest.raises(ExportError, match=r"the disk is full \([\d,]+ bytes are needed\); make room"):
        save_as(walked(), before, force=True)
    assert (files(tmp_path), before.read_text()) == (["x.safetensors"], "mine")


@pytest.mark.parametrize("to", ["html", "json", "npz", "safetensors"])
def test_what_is_too_large_is_refused_and_written_with_the_limit_that_is_named(tmp_path: Path, to: str) -> None:
    words = r"over the limit of 1\.0 KiB; .+, or allow it with --max-size \d+M"
    with pytest.raises(ExportError, match=words) as refused:
        save_as(of_kind("batch"), tmp_path / "x", to, max_size=1024)
    assert files(tmp_path) == []
    allowed = int(re.search(r"--max-size (\d+)M", str(refused.value))[1]) * 2**20  # type: ignore[index]
    assert save_as(of_kind("batch"), tmp_path / "x", to, max_size=allowed) <= allowed


@pytest.mark.parametrize(
    ("to", "how", "words"),
    [
        ("svg", {}, "a figure .svg. is of one place; name it with --at"),
        ("npz", {"at": PATTERN}, "is of a whole trace; leave --at out"),
        ("html", {"at": PATTERN}, "is of a whole trace; leave --at out"),
        ("pdf", {"at": PATTERN, "tour": Tour("T", "m", "x", ())}, "a tour cannot be a figure .pdf.; it can be html"),
        ("cast", {}, "is recorded by the app: layerstep export … --to cast"),
    ],
)  # fmt: skip
def test_a_format_is_refused_what_it_cannot_be_of(tmp_path: Path, to: str, how: dict, words: str) -> None:
    with pytest.raises(ExportError, match=words):
        save_as(walked(), tmp_path / "x", to, **how)
    assert files(tmp_path) == []


@pytest.mark.parametrize("at", ["blocks.9.attn.q", "blocks.1.attn.pattern[h=99]", "embed[x=1]", "<svg>"])
def test_a_place_that_is_not_there_leaves_no_file(tmp_path: Path, at: str) -> None:
    for to in ("svg", "csv", "json", "parquet", "tikz"):
        with pytest.raises(AddressError):
            save_as(walked(), tmp_path / "x", to, at=at)
    assert files(tmp_path) == []


def test_a_file_without_what_a_picture_needs_says_how_to_have_it(tmp_path: Path) -> None:
    walked().save(tmp_path / "t.trace.safetensors")
    with pytest.raises(AddressError, match=r"has no view 'lens'; it has .*with its model \(--model\) more"):
        save_as(open_trace(tmp_path / "t.trace.safetensors"), tmp_path / "x.svg", at="embed", view="lens")
    assert files(tmp_path) == ["t.trace.safetensors"]


@pytest.mark.parametrize("to", ["html", "md", "ipynb"])
def test_a_tour_of_two_traces_needs_both(tmp_path: Path, to: str) -> None:
    quoted = Stop("S", Address.parse("embed[b=0,p=1,d=2]"), "heatmap", "It is {other:embed[b=0,p=1,d=2]} there.")
    tour = Tour("T", "modern", "The disk was full", (quoted,), other=Other("modern", "The disk was new"))
    with pytest.raises(TourError, match="of two traces; give the other one as well"):
        save_as(walked(), tmp_path / "x", to, tour=tour)
    assert files(tmp_path) == []


# -- from the app --------------------------------------------------------------------------------------------------


@pytest.fixture
def session() -> Session:
    """The engine of an app in which two traces are open."""
    found = Session()
    found.show(walked())
    found.show(of_kind("batch"), "other")
    return found


def by_the_app(session: Session, path: Path, **params: object) -> bytes:
    told = session.export({"path": str(path), **params}, lambda *_: None)
    assert told == {"path": str(path), "size": path.stat().st_size}
    return path.read_bytes()


def test_what_the_app_exports_is_what_a_script_does(tmp_path: Path, session: Session) -> None:
    for params, how in (
        ({"to": "csv", "address": PATTERN, "view": "row"}, {"at": PATTERN, "view": "row"}),
        ({"address": PATTERN, "minus": {"address": "blocks.1.attn.pattern[h=3]"}, "view": "heatmap"},
         {"at": PATTERN, "minus": "blocks.1.attn.pattern[h=3]", "view": "heatmap"}),
        ({"keep": ["blocks.*.attn.q"], "layers": [1]}, {"selection": Selection(("blocks.*.attn.q",), (1,))}),
    ):  # fmt: skip
        ours = by_the_app(session, tmp_path / "app.csv", force=True, **params)
        save_as(walked(), tmp_path / "script.csv", force=True, **how)
        assert ours == (tmp_path / "script.csv").read_bytes()


def test_a_trace_that_happens_to_be_open_beside_is_no_part_of_what_is_exported(
    tmp_path: Path, session: Session
) -> None:
    stop = Stop("S", Address.parse("embed[b=0,p=1,d=2]"), "heatmap", "x", beside=Address.parse("embed[b=0,p=1,d=2]"))
    (tmp_path / "t.toml").write_text(to_toml(Tour("T", "modern", "The disk was full", (stop,))))
    for params in ({}, {"tour": str(tmp_path / "t.toml")}):
        page = by_the_app(session, tmp_path / "x.html", force=True, keep=["path"], **params)
        data = re.search(rb'id="layerstep">(.*?)</script>', page)
        assert data is not None
        assert len(json.loads(data[1])["traces"]) == 1


def test_a_generation_that_is_cancelled_opens_no_shorter_one(session: Session) -> None:
    before = session.trace

    def watch(done: int, total: int, what: str) -> None:
        if total == 3 and done == 1:
            raise Cancelled("cancelled")

    with pytest.raises(Cancelled):
        session.open({"model": "modern", "prompt": "The disk", "generate": 3}, watch)
    assert session.trace is before
