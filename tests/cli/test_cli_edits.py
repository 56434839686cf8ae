"""``--edit`` wherever a prompt is run, and ``layerstep import``."""

from __future__ import annotations

import json

import numpy as np
import pytest
from calls import Call

TEXT = "dog bites man"
EDIT = "blocks.1.attn.z[h=2] = 0"


def test_an_edit_is_shown_where_it_is_and_after_it(call: Call, tiny):
    asked = ("show", TEXT, "--model", tiny, "--edit", EDIT, "--at")
    z = call(*asked, "blocks.1.attn.z[p=1,h=2]", "--json")
    assert (z.code, set(z.json["values"])) == (0, {0.0})
    assert f"layerstep: note: edited: {EDIT}" in z.err
    assert any(call(*asked, "blocks.1.attn.z_unedited[p=1,h=2]", "--json").json["values"])
    assert "Edited: y = x, but 0 at h=2" in call(*asked, "blocks.1.attn.z").out


def test_an_edited_trace_is_compared_with_the_same_prompt_unedited(call: Call, tiny):
    at = ("--at", "logits[p=2]", "--minus", "logits[p=2]", "--other", TEXT, "--json")
    edited = call("show", TEXT, "--model", tiny, "--edit", "embed *= 2", *at).json
    same = call("show", TEXT, "--model", tiny, *at).json
    assert any(edited["values"])
    assert not any(same["values"])


@pytest.mark.parametrize("command", ["show", "generate", "cache", "trace"])
@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ("blocks.1.attn.z", "is no edit; write a place"),
        ("blocks.1.attn.pattern[h=1] = 0", "edit blocks.1.attn.rot_q or blocks.1.attn.rot_k or blocks.1.attn.z"),
        ("embed = nan", "takes a finite number"),
        ("\x1b[31m = 0", "is no edit; write a place"),
    ],
)
def test_an_edit_that_cannot_be_made_is_one_line(call: Call, tiny, tmp_path, command, edit, said):
    output = ("-o", tmp_path / "a.safetensors") if command == "trace" else ()
    done = call(command, TEXT, "--model", tiny, "--edit", edit, *output)
    assert (done.code, done.out) == (1, "")
    assert said in done.err
    assert len(done.err.splitlines()) == 1
    assert "\x1b" not in done.err


def test_a_saved_trace_keeps_its_edits_and_takes_no_others(call: Call, tiny, tmp_path):
    path = tmp_path / "a.trace.safetensors"
    assert call("trace", TEXT, "--model", tiny, "--edit", EDIT, "--edit", "embed *= 2", "-o", path, "--json").code == 0
    told = call("show", path, "--json").json
    assert {f"edited: {EDIT}", "edited: embed *= 2"} <= set(told["notices"])
    refused = call("show", path, "--edit", EDIT)
    assert (refused.code, "--edit is for a PROMPT" in refused.err) == (2, True)
    longer = call("generate", path, "--model", tiny, "-n", "3", "--json").json
    fresh = call("generate", TEXT, "--model", tiny, "-n", "3", "--edit", EDIT, "--edit", "embed *= 2", "--json").json
    plain = call("generate", TEXT, "--model", tiny, "-n", "3", "--json").json
    went_on, anew, unedited = ([token["prob"] for token in run["tokens"]] for run in (longer, fresh, plain))
    assert went_on == pytest.approx(anew, abs=1e-5)
    assert unedited != pytest.approx(anew, abs=1e-3)


def test_import_makes_a_trace_that_shows(call: Call, tiny, tmp_path):
    recorded = call("show", TEXT, "--model", tiny, "--at", "blocks.1.attn.pattern", "--json").json
    ids = [token["id"] for token in call("show", TEXT, "--model", tiny, "--json").json["tokens"][0]]
    pattern = np.array(recorded["values"], np.float32)
    np.savez(tmp_path / "a.npz", attentions_1=pattern, input_ids=ids, junk=np.zeros(2))
    path = tmp_path / "a.trace.safetensors"
    done = call("import", tmp_path / "a.npz", "--model", tiny, "-o", path)
    assert (done.code, done.out) == (0, "")
    assert "note: imported from a.npz" in done.err
    assert "note: left out (no site of tiny): junk" in done.err
    assert "own run agrees" in done.err
    assert f"saved {path}: {len(ids)} tokens, 1 tensors" in done.err
    shown = call("show", path, "--at", "blocks.1.attn.pattern", "--json").json
    np.testing.assert_array_equal(np.array(shown["values"], np.float32), pattern)
    assert call("show", path, "--at", "blocks.1.attn.pattern[h=1,q=2]", "--checks").code == 0
    assert "needs the weights" in call("show", path, "--at", "logits").err
    again = call("import", tmp_path / "a.npz", "--model", tiny, "-o", path)
    assert (again.code, "exists already" in again.err) == (1, True)
    told = call("import", tmp_path / "a.npz", "--model", tiny, "-o", path, "--force", "--json").json
    assert told["sites"] == {"attentions_1": ["blocks.1.attn.pattern"]}
    assert told["left_out"] == {"junk": f"no site of {tiny.name}"}
    assert all(check["ok"] for check in told["checks"])


def test_import_says_what_it_needs(call: Call, tiny, tmp_path):
    np.savez(tmp_path / "a.npz", embed=np.zeros((1, 2, 20), np.float32))
    out = ("-o", tmp_path / "out.safetensors")
    assert "give them with --ids or --prompt" in call("import", tmp_path / "a.npz", "--model", tiny, *out).err
    assert call("import", tmp_path / "a.npz", *out).code == 2
    both = call("import", tmp_path / "a.npz", "--model", tiny, *out, "--ids", "1", "--prompt", "x")
    assert (both.code, "choose one" in both.err) == (2, True)
    wrong = call("import", tmp_path / "a.npz", "--model", tiny, *out, "--ids", "1 2 3")
    assert "embed is [1, 2, 20], and for 3 tokens" in wrong.err
    (tmp_path / "b.npz").write_bytes(b"\0")
    assert call("import", tmp_path / "b.npz", "--model", tiny, *out).code == 1
    done = call("import", tmp_path / "a.npz", "--model", tiny, *out, "--ids", "1,2")
    assert (done.code, "are not those of tiny's own run" in done.err) == (0, True)
    assert json.loads(call("show", tmp_path / "out.safetensors", "--json").out)["tokens"][0][1]["id"] == 2
