"""Tables: CSV as the app exports it, Parquet as pyarrow reads it, with the numbers of the trace."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from array import array
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from exported import HOSTILE, exported, hostile, of_kind, walked

from engine import Trace
from engine.browse import Session as Engine
from engine.export.selection import Selection
from engine.jsontext import for_ourselves
from engine.pictures import Wish, picture
from engine.summary import summary
from tui import session, state  # noqa: F401  (the app's own tables)
from tui.saving import as_csv
from tui.state import sheet
from tui.state import trace as told
from tui.state.answers import Candidate, Ranking
from tui.state.cursor import Cursor
from tui.state.views import Plane, views_of


def rows_of(data: bytes) -> list[list[str]]:
    """CSV as Python's reader takes it, strictly."""
    return list(csv.reader(io.StringIO(data.decode(), newline=""), strict=True))


def table_of(data: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(data), use_threads=False)


class InProcess:
    """The app's way to the engine, without a process in between."""

    def __init__(self, t: Trace) -> None:
        self.engine = Engine()
        self.engine.show(t)

    async def request(self, method: str, on_progress: object = None, /, **params: Any) -> SimpleNamespace:
        if method == "window":
            result, data = self.engine.window(params.pop("address"), params)
        elif method == "look":
            result, data = self.engine.look(params)
        else:
            result, data = self.engine.top(params["address"], params["k"], params), b""
        values = array("f")
        values.frombytes(bytes(data))
        return SimpleNamespace(result=json.loads(for_ourselves(result)), values=values)


async def as_the_app_has_it(app: session.Session, plane: Plane, k: int) -> bytes:
    """What ``e`` and ``c`` write of a picture."""
    view, (rows, cols) = plane.view, plane.size
    if view.kind == "ranked":
        address = plane.address((0, 0), (0, 0)).replace(",v=0:0", "")
        found = (await app.client.request("top", address=address, k=k)).result["rows"]
        return as_csv(sheet.of_ranking(Ranking(tuple(Candidate(r["id"], r["label"], r["prob"], r["logit"])
                                                     for r in found))))  # fmt: skip
    block = await app.cells(plane, (0, max(1, rows)), (0, max(1, cols)))
    if view.kind == "tokens":
        return as_csv(sheet.of_tokens(plane, block))
    if not plane.has_cells:
        return as_csv(sheet.of_look(block.told)) if block.told else b""
    return as_csv([sheet.heading(plane), *sheet.lines(plane, block)])


@pytest.mark.parametrize("kind", ["walked", "hostile", "bfloat16", "batch", "encoder-decoder", "experts", "nan"])
def test_csv_is_what_the_app_exports_of_the_same_picture(kind: str) -> None:
    t = {"walked": walked, "hostile": hostile}.get(kind, lambda: of_kind(kind))()
    app = session.Session(InProcess(t))  # type: ignore[arg-type]
    app.trace = seen = told.Trace.read(json.loads(for_ourselves(summary(t))))
    done = set()
    for step in seen.steps:
        for view in views_of(step):
            if (key := (view.kind, view.name, view.rows, view.cols, len(step.axes))) in done:
                continue
            done.add(key)
            cursor = Cursor(step=step.index, pos=2, head=1, key=1, at=seen.usual_at)
            plane = Plane.of(seen, cursor, view)
            places = {axis: index for axis, index in plane.place if axis in step.axes}
            if view.kind == "thumbs":
                places = {"batch": 0}
            at = (
                plane.address((0, plane.size[0]), (0, plane.size[1]))
                if plane.has_cells
                else plane.address((0, 0), (0, 0))
            )
            if view.kind in ("thumbs", "list", "rotation", "histogram", "ranked", "grid"):
                keep = {"thumbs": ("batch",), "grid": ("batch",)}.get(view.kind, tuple(places))
                index = ",".join(f"{axis}={places[axis]}" for axis in places if axis in keep)
                at = f"{step.site}[{index}]" + ("" if plane.at is None else f"@{plane.at}")
            ours = rows_of(exported(t, "csv", at=at, view=view.name))
            theirs = rows_of(asyncio.run(as_the_app_has_it(app, plane, len(ours) - 1)))
            assert ours[: len(theirs)] == theirs, (step.site, view.name)  # the app ranks 1000 candidates
    assert len(done) >= 12


def test_a_difference_names_both_tokens_where_they_are_not_the_same() -> None:
    t = walked()
    head, *rows = rows_of(exported(t, "csv", at="blocks.1.attn.q[h=0,p=0:2]", minus="blocks.1.attn.q[h=1,p=1:3]"))
    assert head[0] == "pos/d_head"
    labels = [token.label for token in t.tokens[0]]
    assert [row[0] for row in rows] == [f"{labels[0]}|{labels[1]}", f"{labels[1]}|{labels[2]}"]
    shown = picture(Wish(t, "blocks.1.attn.q[h=0,p=0:2]", "heatmap", minus="blocks.1.attn.q[h=1,p=1:3]"))
    assert np.array_equal(np.float32([row[1:] for row in rows]), shown.place.tensor.numpy())


def test_without_an_address_there_is_a_row_for_every_step() -> None:
    t = walked()
    head, *rows = rows_of(exported(t, "csv"))
    by_site = {row[1]: dict(zip(head, row, strict=True)) for row in rows}
    assert list(by_site) == [site.name for site in t.program.sites if "past" not in site.axes]
    for name, row in by_site.items():
        own = t[name].double()
        finite = own[own.isfinite()]
        assert row["shape"] == " ".join(map(str, own.shape))
        assert row["dtype"] == str(t[name].dtype).removeprefix("torch.")
        if "attn.pattern" not in name:
            assert int(row["finite"]) == finite.numel()
            assert float(row["mean"]) == pytest.approx(float(finite.mean()), rel=1e-6, abs=1e-9)
            assert float(row["norm"]) == pytest.approx(float(finite.norm()), rel=1e-6)
    q = by_site["blocks.0.attn.q"]
    assert int(q["flops"]) == 2 * 6 * 128 * 128  # 5 tokens and 1 more, [128 × 128]
    assert int(by_site["blocks.0.attn.masked"]["masked"]) == 8 * 15


def test_the_table_of_steps_is_of_what_is_chosen() -> None:
    _, *rows = rows_of(exported(walked(), "csv", selection=Selection(keep=("blocks.*.attn.q",), layers=(1, 2))))
    assert [row[1] for row in rows] == ["blocks.1.attn.q", "blocks.2.attn.q"]


def test_parquet_has_a_row_for_each_number_with_its_index_and_its_tokens() -> None:
    t = walked()
    table = table_of(exported(t, "parquet", at="blocks.2.attn.pattern[h=3]"))
    kinds = {field.name: field.type for field in table.schema}
    assert kinds["query"] == kinds["key"] == pa.int32()
    assert kinds["value"] == pa.float32()
    own, labels = t["blocks.2.attn.pattern[b=0,h=3]"], [token.label for token in t.tokens[0]]
    for row in table.to_pylist():
        assert row["value"] == float(own[row["query"], row["key"]])
        assert (row["query_token"], row["key_token"]) == (labels[row["query"]], labels[row["key"]])
    about = json.loads(table.schema.metadata[b"layerstep"])
    assert (about["model"], about["prompt"]) == ("modern", t.prompt)
    assert about["address"] == "blocks.2.attn.pattern[b=0,h=3]"


@pytest.mark.parametrize(
    ("kind", "dtype"), [("float64", pa.float64()), ("bfloat16", pa.float32()), ("float16", pa.float32())]
)
def test_numbers_in_parquet_are_exact_whatever_their_dtype(kind: str, dtype: pa.DataType) -> None:
    t = of_kind(kind)
    table = table_of(exported(t, "parquet", at="blocks.1.attn.q[h=2]"))
    assert table.schema.field("value").type == dtype
    own = t["blocks.1.attn.q[b=0,h=2]"].double().reshape(-1)
    assert table["value"].to_numpy().astype(np.float64).tolist() == own.tolist()


@pytest.mark.parametrize("of", [walked, hostile])
def test_every_picture_is_a_parquet_table(of: Any) -> None:
    t, done = of(), set()
    from engine.pictures import views_of as views

    for site in t.program.sites:
        for view in views(t, site) if "past" not in site.axes else ():
            if (view.kind, view.name) not in done:
                done.add((view.kind, view.name))
                at = site.name + ("[h=0,q=0,k=0]" if view.kind == "chain" else "")
                table = table_of(exported(t, "parquet", at=at, view=view.name))
                assert table.num_rows
                assert len(rows_of(exported(t, "csv", at=at, view=view.name))) > 1
    assert len(done) >= 15


def test_the_steps_are_a_parquet_table_with_numbers_as_numbers() -> None:
    table = table_of(exported(walked(), "parquet"))
    assert table.schema.field("flops").type == pa.int64()
    assert table.schema.field("mean").type == pa.float64()
    assert table["site"].to_pylist()[-2:] == ["logits", "probs"]


def test_labels_from_an_enemy_are_printable_and_no_formulas() -> None:
    data = exported(hostile(), "csv", at="blocks.0.attn.pattern[h=0]")
    head, *rows = rows_of(data)
    assert len(rows) == len(HOSTILE) == len(head) - 1
    for label in (*head[1:], *(row[0] for row in rows)):
        assert label.isprintable()
        assert not label.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert "'=1+1" in head


def test_what_is_not_finite_is_named_in_csv() -> None:
    t = of_kind("nan")
    _, first, *_ = rows_of(exported(t, "csv", at="blocks.1.mlp_out"))
    assert first[1] == "NaN"
    assert first[2] in ("inf", "-inf")
    assert np.array_equal(np.float32(first[1:]), t["blocks.1.mlp_out"][0, 0].numpy(), equal_nan=True)


def test_a_dtype_rounds_a_table_too() -> None:
    t = walked()
    _, first, *_ = rows_of(exported(t, "csv", at="blocks.1.attn.q[h=0]", dtype="float16"))
    assert np.float32(first[1:]).tolist() == t["blocks.1.attn.q"][0, 0, 0].half().float().tolist()
    assert torch.equal(torch.tensor([float(x) for x in first[1:]]).half(), t["blocks.1.attn.q"][0, 0, 0].half())
