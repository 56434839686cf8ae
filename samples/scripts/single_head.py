"""The single attention head of the classic tutorial, twice: as torch.nn modules and as a program of named steps.

Embedding width 64, head width 32, three projections without bias, no mask, no output projection; a batch of
2 sentences of 5 tokens. The module gives one tensor; the program gives every step on the way there.

    python samples/scripts/single_head.py
"""

import math

import torch
from torch import nn

from engine import Program, Step
from engine.ops.attention import Attention, Mask, Scale, Scores, Softmax
from engine.ops.base import PassInfo
from engine.ops.projection import ProjectToHeads
from engine.runner import run
from engine.sites import Site

EMBED_DIM, HEAD_DIM, BATCH, TOKENS = 64, 32, 2, 5


class SingleHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(EMBED_DIM, HEAD_DIM, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.q(x), self.k(x), self.v(x)  # [batch, pos, head_dim]
        scores = q @ k.transpose(1, 2) / math.sqrt(HEAD_DIM)  # [batch, query, key]
        return scores.softmax(-1) @ v  # [batch, pos, head_dim]


def single_head() -> Program:
    """The same as a program. Steps off the path are only looked at: the kernel that gives z does without them."""
    heads, cells, positions = ("batch", "pos", "head", "d_head"), ("batch", "head", "query", "key"), ("batch", "pos")
    inputs = (Site("x", ("batch", "pos", "d_model")), Site("positions", positions))
    project = {
        name: ProjectToHeads(role, HEAD_DIM) for name, role in zip("qkv", ("query", "key", "value"), strict=True)
    }
    attention = Attention(Scale(HEAD_DIM), Mask(causal=False))
    steps = (
        *(Step(Site(name, heads), op, ("x",), (f"{name}.weight",)) for name, op in project.items()),
        Step(Site("scores", cells), Scores(), ("q", "k"), on_path=False),
        Step(Site("scaled", cells), Scale(HEAD_DIM), ("scores",), on_path=False),
        Step(Site("pattern", cells), Softmax(), ("scaled",), on_path=False),
        Step(Site("z", heads), attention, ("q", "k", "v", "positions", "positions")),
    )
    return Program(inputs, steps, {f"{name}.weight": (HEAD_DIM, EMBED_DIM) for name in project})


def main() -> None:
    torch.manual_seed(0)
    module, program, x = SingleHead(), single_head(), torch.randn(BATCH, TOKENS, EMBED_DIM)
    given = {"x": x, "positions": torch.arange(TOKENS).expand(BATCH, TOKENS)}
    names = [step.site.name for step in program.steps]
    values = run(program, dict(module.named_parameters()), given, names, PassInfo(x.dtype))
    for step in program.steps:
        value, axes = values[step.site.name], " × ".join(step.site.axes)
        print(f"{step.site.name:8} {step.op.text.formula:32} {axes:30} {list(value.shape)}  mean {value.mean():+.4f}")
    gap = (values["z"].squeeze(2) - module(x)).abs().max().item()  # one head: [batch, pos, 1, head_dim]
    print(f"largest difference from torch.nn: {gap:.1e}")
    assert gap < 1e-6


if __name__ == "__main__":
    main()
