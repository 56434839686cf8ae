"""Whether two traces hold the same numbers, to the last bit, wherever one looks."""

from __future__ import annotations

import torch

from engine import Trace

Snapshot = dict[tuple[str, int | None], torch.Tensor]


def snapshot(t: Trace) -> Snapshot:
    """Every site of every pass, and of all passes together."""
    every = (None, *range(len(t.passes)))
    places = [(site.name, at) for site in t.program.sites for at in every]
    return {(name, at): (t[name] if at is None else t.site(name, at)).clone() for name, at in places}


def assert_still(t: Trace, before: Snapshot) -> None:
    for (name, at), tensor in before.items():
        assert torch.equal(t[name] if at is None else t.site(name, at), tensor), (name, at)


def assert_same_bits(t: Trace, fresh: Trace) -> None:
    """The same tokens in the same passes, recorded alike, and the same bits."""
    assert [token.id for token in t.tokens[0]] == [token.id for token in fresh.tokens[0]]
    assert [(p.start, p.length) for p in t.passes] == [(p.start, p.length) for p in fresh.passes]
    assert [set(p.kept) for p in t.passes] == [set(p.kept) for p in fresh.passes]
    assert (t.length, t.prompt, t.source_tokens) == (fresh.length, fresh.prompt, fresh.source_tokens)
    assert set(t.notices) == set(fresh.notices)
    assert_still(t, snapshot(fresh))
