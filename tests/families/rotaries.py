"""Rotary embeddings to draw: every kind of scaling, and prompts that stand before, across and beyond its threshold."""

from typing import Any

from hypothesis import strategies as st

N_CTX = 64
SCALINGS = ["default", "linear", "dynamic", "yarn", "llama3", "longrope"]


@st.composite
def rope_parameters(draw: st.DrawFn, turning: int, kinds: list[str] = SCALINGS, theta: float = 1e4) -> dict[str, Any]:
    """transformers' ``rope_parameters`` of one kind, for heads of which ``turning`` dimensions turn."""
    kind = draw(st.sampled_from(kinds))
    more: dict[str, Any] = {}
    if kind not in ("default", "longrope"):
        more |= {"factor": draw(st.sampled_from([2.0, 4.0, 7.5]))}
    if kind in ("yarn", "llama3", "longrope"):
        more |= {"original_max_position_embeddings": draw(st.sampled_from([16, 32]))}
    if kind == "llama3":
        more |= {
            "low_freq_factor": draw(st.sampled_from([0.5, 1.0])),
            "high_freq_factor": draw(st.sampled_from([2.0, 4.0])),
        }
    if kind == "yarn" and draw(st.booleans()):
        more |= {"beta_fast": draw(st.sampled_from([4.0, 32.0])), "beta_slow": 0.5, "truncate": draw(st.booleans())}
    if kind == "yarn":
        more |= draw(st.sampled_from([{}, {"attention_factor": 1.3}, {"mscale": 0.7, "mscale_all_dim": 1.1}]))
    if kind == "longrope":
        factors = st.lists(st.sampled_from([1.0, 1.5, 4.0, 9.25]), min_size=turning // 2, max_size=turning // 2)
        more |= {"short_factor": draw(factors), "long_factor": draw(factors)}
        more |= draw(st.sampled_from([{}, {"factor": 4.0}, {"attention_factor": 1.2}]))
    return {"rope_type": kind, "rope_theta": draw(st.sampled_from([theta, 5e5])), **more}


starts = st.sampled_from([None, None, 12, 28, 60, 64, 8190, 100_000])
"""Where a prompt begins: None at 0, the usual; 12, 28 and 60 so that it crosses a threshold of 16, 32 or N_CTX."""


def places(start: int | None, n: int = 9) -> list[int] | None:
    """Positions one after the other; gaps would be the ends of packed sequences to transformers."""
    return None if start is None else list(range(start, start + n))
