"""The dtypes that a model can run in, by name and without torch."""

from __future__ import annotations

ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
"""Name -> bytes of a number."""


def dtype_name(dtype: object) -> str:
    """float32 for torch.float32."""
    return str(dtype).removeprefix("torch.")
