"""The dtypes that a model can run in and a cache be stored in, without torch."""

from __future__ import annotations

ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
"""Name -> bytes of a number."""


GROUP = 32
"""So many numbers of a head's row share a scale, where keys and values are stored as whole numbers."""
SCALE_BYTES = 2


def quantised_row_bytes(d_head: int, bits: int, group: int = GROUP) -> int:
    """Bytes of a row of d_head numbers stored with 8 or 4 bits each: the whole numbers, and for every group a scale in
    float16; with 4 bits its minimum as well."""
    groups = -(-d_head // group)
    return -(-d_head * bits // 8) + groups * SCALE_BYTES * (1 if bits == 8 else 2)


def dtype_name(dtype: object) -> str:
    """float32 for torch.float32."""
    return str(dtype).removeprefix("torch.")
