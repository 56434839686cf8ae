"""The two sample architectures in plain torch: `Classic` (2017) and `Modern` (today).

Both map token ids `[batch, pos]` to logits `[batch, pos, d_vocab]`, and both can hand over their attention
patterns. They are what training runs; the engine has its own implementation and never imports this file.
"""

import math
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model. `kind` names the architecture."""

    kind: str
    d_vocab: int = 2048
    d_model: int = 128
    n_layers: int = 4
    n_heads: int = 8
    n_kv_heads: int = 8
    d_mlp: int = 512
    n_ctx: int = 512
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5

    @property
    def d_head(self) -> int:
        return self.d_model // self.n_heads

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def attend(q: Tensor, k: Tensor, v: Tensor, patterns: list[Tensor] | None) -> Tensor:
    """Causal attention over `[batch, head, pos, d_head]`; appends its pattern to `patterns`, if given.

    Plain matrix products: in bfloat16 on a CPU they train twice as fast as the fused kernel.
    """
    batch, n_heads, n_pos, d_head = q.shape
    q, k, v = (x.reshape(batch * n_heads, n_pos, d_head) for x in (q, k, v))
    future = torch.full((n_pos, n_pos), -1e4, dtype=q.dtype, device=q.device).triu(1)  # [query, key]; exp gives 0
    scores = torch.baddbmm(future.expand(len(q), -1, -1), q, k.transpose(1, 2), alpha=d_head**-0.5)
    pattern = scores.softmax(-1, dtype=scores.dtype)  # [batch*head, query, key]
    if patterns is not None:
        patterns.append(pattern.view(batch, n_heads, n_pos, n_pos))
    return (pattern @ v).view(batch, n_heads, n_pos, d_head)


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)  # [batch, pos, n*d_head] -> [batch, n, pos, d_head]


def join_heads(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)  # [batch, n, pos, d_head] -> [batch, pos, n*d_head]


# ------------------------------------------------------------------------------------------------ classic


def sinusoids(n_ctx: int, d_model: int) -> Tensor:
    """The table of Vaswani et al. 2017, section 3.5: sine in even columns, cosine in odd ones."""
    rate = 10_000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float32) / d_model)  # [d_model/2]
    angle = torch.outer(torch.arange(n_ctx, dtype=torch.float32), rate)  # [n_ctx, d_model/2]
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)  # [n_ctx, d_model], interleaved


class ClassicAttention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.n_heads = shape.n_heads
        self.q = nn.Linear(shape.d_model, shape.d_model)
        self.k = nn.Linear(shape.d_model, shape.d_model)
        self.v = nn.Linear(shape.d_model, shape.d_model)
        self.out = nn.Linear(shape.d_model, shape.d_model)

    def forward(self, x: Tensor, patterns: list[Tensor] | None = None) -> Tensor:
        # [batch, pos, d_model] -> [batch, head, pos, d_head]
        q, k, v = (split_heads(project(x), self.n_heads) for project in (self.q, self.k, self.v))
        return self.out(join_heads(attend(q, k, v, patterns)))  # [batch, pos, d_model]


class ClassicMLP(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.up = nn.Linear(shape.d_model, shape.d_mlp)
        self.down = nn.Linear(shape.d_mlp, shape.d_model)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu(self.up(x))  # [batch, pos, d_mlp]
        return self.down(hidden)  # [batch, pos, d_model]


class ClassicBlock(nn.Module):
    """Post-norm: each sublayer's output is added to its input, and the sum is normalised."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attn = ClassicAttention(shape)
        self.ln1 = nn.LayerNorm(shape.d_model, shape.norm_eps)
        self.mlp = ClassicMLP(shape)
        self.ln2 = nn.LayerNorm(shape.d_model, shape.norm_eps)

    def forward(self, x: Tensor, patterns: list[Tensor] | None = None) -> Tensor:
        x = self.ln1(x + self.attn(x, patterns))  # [batch, pos, d_model]
        return self.ln2(x + self.mlp(x))


LOOK_BACK = (1, 2, 3, 4)  # where the first heads of the first layer look before training


@torch.no_grad()
def look_back(attn: ClassicAttention, head: int, offset: int, shape: Shape) -> None:
    """Start a head out looking `offset` tokens back.

    A shift of position is a linear map of the sinusoids (section 3.5 of the 2017 paper): it turns each pair of sine
    and cosine by its rate times the offset. The head's queries are so turned, on the fastest pairs, and its keys are
    not. It is a start only; training may do with the head what it likes.
    """
    n_pairs, scale = shape.d_head // 2, 3.2
    rows = slice(head * shape.d_head, (head + 1) * shape.d_head)
    keys = scale * torch.eye(shape.d_head, shape.d_model)  # [d_head, d_model]: the first n_pairs sines and cosines
    angle = offset * 10_000.0 ** (-2 * torch.arange(n_pairs) / shape.d_model)  # [n_pairs]
    turn = torch.block_diag(*(torch.tensor([[c, -s], [s, c]]) for c, s in zip(angle.cos(), angle.sin(), strict=True)))
    attn.k.weight[rows] = keys
    attn.q.weight[rows] = turn @ keys  # [d_head, d_head] @ [d_head, d_model]


class Classic(nn.Module):
    """The Transformer of 2017 as a decoder-only language model."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.d_vocab, shape.d_model)
        self.blocks = nn.ModuleList(ClassicBlock(shape) for _ in range(shape.n_layers))
        self.register_buffer("positions", sinusoids(shape.n_ctx, shape.d_model), persistent=False)
        nn.init.normal_(self.embed.weight, std=0.02)  # small beside the positions, so that heads find these first
        for name, weight in self.named_parameters():
            if name.endswith(".bias"):
                nn.init.zeros_(weight)
            elif weight.dim() == 2 and name != "embed.weight":
                nn.init.xavier_uniform_(weight)
        for head, offset in enumerate(LOOK_BACK):
            look_back(self.blocks[0].attn, head, offset, shape)

    def forward(self, ids: Tensor, patterns: list[Tensor] | None = None) -> Tensor:
        x = self.embed(ids) * math.sqrt(self.shape.d_model)  # [batch, pos, d_model]
        x = x + self.positions[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, patterns)
        return F.linear(x, self.embed.weight)  # [batch, pos, d_vocab]


# ------------------------------------------------------------------------------------------------- modern


class RMSNorm(nn.Module):
    def __init__(self, d_model: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def rotary_table(n_ctx: int, d_head: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines `[n_ctx, d_head]` for the half-rotated layout: i pairs with i + d_head/2."""
    rate = theta ** (-torch.arange(0, d_head, 2, dtype=torch.float32) / d_head)  # [d_head/2]
    angle = torch.outer(torch.arange(n_ctx, dtype=torch.float32), rate).repeat(1, 2)  # [n_ctx, d_head]
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin  # [batch, head, pos, d_head]


class ModernAttention(nn.Module):
    """Grouped-query attention: `n_heads / n_kv_heads` query heads share one key-value head."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.n_heads, self.n_kv_heads = shape.n_heads, shape.n_kv_heads
        d_kv = shape.n_kv_heads * shape.d_head
        self.q = nn.Linear(shape.d_model, shape.d_model, bias=False)
        self.k = nn.Linear(shape.d_model, d_kv, bias=False)
        self.v = nn.Linear(shape.d_model, d_kv, bias=False)
        self.out = nn.Linear(shape.d_model, shape.d_model, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, patterns: list[Tensor] | None = None) -> Tensor:
        q = rotate(split_heads(self.q(x), self.n_heads), cos, sin)  # [batch, head, pos, d_head]
        k = rotate(split_heads(self.k(x), self.n_kv_heads), cos, sin)  # [batch, kv_head, pos, d_head]
        v = split_heads(self.v(x), self.n_kv_heads)  # [batch, kv_head, pos, d_head]
        share = self.n_heads // self.n_kv_heads
        k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)  # [batch, head, pos, d_head]
        return self.out(join_heads(attend(q, k, v, patterns)))  # [batch, pos, d_model]


class ModernMLP(nn.Module):
    """SwiGLU: silu(gate) * up, then down."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.d_model, shape.d_mlp, bias=False)
        self.up = nn.Linear(shape.d_model, shape.d_mlp, bias=False)
        self.down = nn.Linear(shape.d_mlp, shape.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.silu(self.gate(x)) * self.up(x)  # [batch, pos, d_mlp]
        return self.down(hidden)  # [batch, pos, d_model]


class ModernBlock(nn.Module):
    """Pre-norm: a sublayer reads the normalised stream and adds to the plain one."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.ln1 = RMSNorm(shape.d_model, shape.norm_eps)
        self.attn = ModernAttention(shape)
        self.ln2 = RMSNorm(shape.d_model, shape.norm_eps)
        self.mlp = ModernMLP(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, patterns: list[Tensor] | None = None) -> Tensor:
        x = x + self.attn(self.ln1(x), cos, sin, patterns)  # [batch, pos, d_model]
        return x + self.mlp(self.ln2(x))


class Modern(nn.Module):
    """A Llama in small."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.d_vocab, shape.d_model)
        self.blocks = nn.ModuleList(ModernBlock(shape) for _ in range(shape.n_layers))
        self.ln_final = RMSNorm(shape.d_model, shape.norm_eps)
        cos, sin = rotary_table(shape.n_ctx, shape.d_head, shape.rope_theta)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for name, weight in self.named_parameters():
            if name == "embed.weight":
                nn.init.normal_(weight, std=0.02)
            elif weight.dim() == 2:
                into_stream = name.endswith(("out.weight", "down.weight"))
                shrink = (2 * shape.n_layers) ** -0.5 if into_stream else 1.0
                nn.init.normal_(weight, std=shrink * weight.shape[1] ** -0.5)

    def forward(self, ids: Tensor, patterns: list[Tensor] | None = None) -> Tensor:
        n_pos = ids.shape[1]
        x = self.embed(ids)  # [batch, pos, d_model]
        cos, sin = self.cos[:n_pos].to(x.dtype), self.sin[:n_pos].to(x.dtype)  # [pos, d_head]
        for block in self.blocks:
            x = block(x, cos, sin, patterns)
        return F.linear(self.ln_final(x), self.embed.weight)  # [batch, pos, d_vocab]


SHAPES = {
    "classic": Shape("classic"),
    "modern": Shape("modern", n_kv_heads=4, d_mlp=384),
}


def build(shape: Shape) -> Classic | Modern:
    return Classic(shape) if shape.kind == "classic" else Modern(shape)
