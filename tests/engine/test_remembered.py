"""What was derived is held as long as there is room, the least recently asked for going first."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.remembered import Remembered

ROOM = 64
KEYS = st.tuples(st.sampled_from("qkv"), st.integers(0, 3))


@given(st.lists(st.tuples(KEYS, st.none() | st.integers(0, 80))))
def test_it_holds_what_a_list_in_order_of_use_would(asked):
    held, plain = Remembered(), []  # (key, bytes), the least recently used first
    for key, size in asked:
        known = [one for one in plain if one[0] == key]
        if size is None:  # it is asked for
            found = held.get(*key)
            assert (None if found is None else found.nbytes) == (known[0][1] if known else None)
            plain = [one for one in plain if one[0] != key] + known
        else:
            held.put(*key, torch.zeros(size, dtype=torch.uint8), ROOM)
            if size <= ROOM:
                plain = [one for one in plain if one[0] != key] + [(key, size)]
                while sum(bytes for _, bytes in plain) > ROOM:
                    plain.pop(0)
        every = [(name, at) for name in "qkv" for at in range(4)]
        assert [one for one in every if one in held] == [one for one in every if one in dict(plain)]
    held.clear()
    assert not any(key in held for key, _ in asked)
    held.put("q", 0, torch.zeros(ROOM, dtype=torch.uint8), ROOM)  # all room is there again
    assert ("q", 0) in held


def test_remembering_one_more_looks_at_no_other():
    class Tensor:
        """Counts how often its size is asked for."""

        asked = 0

        @property
        def nbytes(self) -> int:
            Tensor.asked += 1
            return 1

    held = Remembered()
    for at in range(1000):
        held.put("q", at, Tensor(), ROOM)
    assert Tensor.asked < 5 * 1000  # and not 1000 × 64 / 2
