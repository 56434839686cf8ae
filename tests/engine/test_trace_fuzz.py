"""A saved trace, damaged: it opens as what was saved, or is refused in one line."""

import itertools
import random

import pytest
import torch
from damage import accidents, forgeries
from tiny import CLASSIC, MODERN, random_ids

from engine import LayerstepError, extend, open_trace, trace
from engine.text import display


def everything(opened):
    """All that a trace holds, to be compared."""
    tensors = {
        f"{name}@{at}": (tensor.dtype, tuple(tensor.shape), tensor.contiguous().numpy().tobytes())
        for at, p in enumerate(opened.passes)
        for name, tensor in (*p.given.items(), *p.kept.items())
    }
    passes = [
        (p.start, p.length, p.info.dtype, p.info.dense, p.info.kernel, p.info.ran, p.seconds) for p in opened.passes
    ]
    labels = [opened.label(i) for i in range(opened.config.d_vocab)]
    return tensors, passes, labels, opened.config, opened.tokens, opened.prompt, opened.notices


@pytest.fixture(scope="module", params=[MODERN, CLASSIC], ids=["modern", "classic"])
def saved(request, tiny, tmp_path_factory):
    """A file with four passes that keep this and that, and what it holds."""
    model = tiny(dtype=torch.float32, **request.param)
    path = tmp_path_factory.mktemp("traces") / "a.trace.safetensors"
    recorded = trace(model, random_ids(model.config, 5))
    for seed, keep in enumerate(("all", ["*"], "all")):
        recorded = extend(model, recorded, random_ids(model.config, 2, seed), keep=keep)
    recorded.save(path)
    found = everything(open_trace(path))
    assert found[0] == everything(recorded)[0]
    assert found[3:] == everything(recorded)[3:]
    return path.read_bytes(), found


def outcome(path, damaged, look):
    """What ``look`` finds in a damaged file; None where it was refused in one line."""
    path.unlink(missing_ok=True)
    path.write_bytes(damaged)
    try:
        return look(open_trace(path))
    except LayerstepError as error:
        said = str(error)
        assert said == display(said), f"not one printable line: {said!r}"
        assert 20 < len(said) < 700
        return None


def test_accidents(saved, tmp_path):
    data, expected = saved
    for what, damaged in itertools.islice(accidents(data, random.Random(2)), 600):
        try:
            found = outcome(tmp_path / "a.trace.safetensors", damaged, everything)
        except Exception as error:
            raise AssertionError(what) from error
        assert found is None or found == expected, what


def used(opened):
    """Use an opened trace as a person may: every site as a whole and in part, the checks, the candidates."""
    everything(opened)
    opened.checks()
    opened.top()
    opened.first_nonfinite()
    for site in opened.program.sites:
        for at in range(len(opened.passes)):
            try:
                opened[f"{site.name}@{at}"]
            except LayerstepError:
                continue


def test_forgeries(saved, tmp_path):
    """A header that lies, its checksums right."""
    data, _ = saved
    for what, damaged in itertools.islice(forgeries(data, random.Random(3)), 600):
        try:
            outcome(tmp_path / "a.trace.safetensors", damaged, used)
        except Exception as error:
            raise AssertionError(what) from error
