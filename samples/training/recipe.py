"""The training runs as data: phases, rates and sizes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of training: how many tokens, in rows of `window`, a share `repeats` of them repeating."""

    name: str
    tokens: int
    window: int
    repeats: float


@dataclass(frozen=True, slots=True)
class Recipe:
    """One model's training. The rate rises over `warmup` steps, holds, and falls linearly from `hold` on."""

    phases: tuple[Phase, ...]
    rate: float
    warmup: int
    hold: float  # share of all tokens
    tokens_per_step: int = 4096
    weight_decay: float = 0.05
    optimiser: str = "muon"
    seed: int = 0

    @property
    def tokens(self) -> int:
        return sum(phase.tokens for phase in self.phases)


M = 1_000_000
# Text first, so that previous-token heads form; then half of the rows repeat, so that induction heads form on
# them; then mostly text while the rate falls, in longer and longer windows.


def phases(induction: int, mixture: int, paragraphs: int, whole_window: float) -> tuple[Phase, ...]:
    """The course of training, in millions of tokens."""
    return (
        Phase("language", 5 * M // 2, 128, 0.10),
        Phase("induction", induction * M, 128, 0.60),
        Phase("mixture", mixture * M, 128, 0.12),
        Phase("paragraphs", paragraphs * M, 256, 0.12),
        Phase("whole window", int(whole_window * M), 512, 0.12),
    )


RECIPES = {
    "modern": Recipe(phases(6, 8, 2, 1.5), rate=3e-3, warmup=100, hold=0.5),
    "classic": Recipe(phases(4, 7, 2, 1.5), rate=2e-3, warmup=200, hold=0.5),
}
