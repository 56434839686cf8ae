"""The 2017 model and today's, in plain torch and nothing else: what the engine's programs are compared with.

Written to be read top to bottom, with a shape on every line, and with as little in common with the engine as
possible: attention by explicit softmax, norms by their formulas. Weights bear the engine's names, so
``load_state_dict(model.weights)`` says at once when one is missing or left over. As everywhere, tables of positions
are float32.
"""

import json
import math
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn


def attend(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """softmax(q kᵀ / √d) v, one head at a time. [batch, pos, head, d_head]"""
    share = q.shape[2] // k.shape[2]  # query heads that share a key-value head
    heads = []
    for h in range(q.shape[2]):
        q_h, k_h, v_h = q[:, :, h], k[:, :, h // share], v[:, :, h // share]  # [batch, pos, d_head]
        scores = q_h @ k_h.transpose(1, 2) / math.sqrt(q.shape[-1])  # [batch, query, key]
        if causal:
            ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(ahead, -math.inf)
        heads.append(torch.softmax(scores, -1) @ v_h)
    return torch.stack(heads, dim=2)


# ------------------------------------------------------------------------------------------------ classic


class LayerNorm(nn.Module):
    def __init__(self, d_model: int, eps: float) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model)), eps

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.pow(2).mean(-1, keepdim=True)
        return centred / torch.sqrt(variance + self.eps) * self.weight + self.bias


class ClassicAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, d_head: int, causal: bool) -> None:
        super().__init__()
        self.n_heads, self.causal = n_heads, causal
        self.q, self.k, self.v = (nn.Linear(d_model, n_heads * d_head) for _ in range(3))
        self.out = nn.Linear(n_heads * d_head, d_model)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (self.n_heads, -1)) for part in (self.q, self.k, self.v))
        return self.out(attend(q, k, v, self.causal).flatten(2))  # [batch, pos, d_model]


class ClassicMLP(nn.Module):
    def __init__(self, d_model: int, d_mlp: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(d_model, d_mlp), nn.Linear(d_mlp, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x).clamp(min=0))


class ClassicBlock(nn.Module):
    """LN(x + sublayer(x)), twice."""

    def __init__(self, d_model: int, n_heads: int, d_head: int, d_mlp: int, eps: float, causal: bool) -> None:
        super().__init__()
        self.attn = ClassicAttention(d_model, n_heads, d_head, causal)
        self.ln1 = LayerNorm(d_model, eps)
        self.mlp = ClassicMLP(d_model, d_mlp)
        self.ln2 = LayerNorm(d_model, eps)

    def forward(self, x: Tensor) -> Tensor:
        x = self.ln1(x + self.attn(x))
        return self.ln2(x + self.mlp(x))


class Classic(nn.Module):
    """The Transformer of 2017 as a language model: sinusoids added, norms after, ReLU, biases, tied.

    With ``causal=False`` every position sees every other.
    """

    def __init__(
        self, d_vocab: int, d_model: int, n_layers: int, n_heads: int, d_head: int, d_mlp: int,
        eps: float = 1e-5, causal: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.d_model = d_model
        self.embed = nn.Embedding(d_vocab, d_model)
        self.blocks = nn.ModuleList(ClassicBlock(d_model, n_heads, d_head, d_mlp, eps, causal) for _ in range(n_layers))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids) * math.sqrt(self.d_model)  # [batch, pos, d_model]
        x = x + self.sinusoids(ids.shape[1]).to(x.dtype)
        for block in self.blocks:
            x = block(x)
        return x @ self.embed.weight.T  # [batch, pos, d_vocab]

    def sinusoids(self, n_pos: int) -> Tensor:
        """sin(pos / 10000^(2i/d)) in the even columns, cos in the odd ones. [pos, d_model]"""
        table = torch.zeros(n_pos, self.d_model)
        for i in range(0, self.d_model, 2):
            angle = torch.arange(n_pos).double() / 10_000 ** (i / self.d_model)  # [pos]
            table[:, i] = angle.sin()
            table[:, i + 1] = angle.cos()
        return table


# ------------------------------------------------------------------------------------------------- modern


class RMSNorm(nn.Module):
    def __init__(self, d_model: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(d_model)), eps

    def forward(self, x: Tensor) -> Tensor:
        return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class ModernAttention(nn.Module):
    """Grouped queries, turned by their positions."""

    def __init__(
        self, d_model: int, n_heads: int, n_kv_heads: int, d_head: int, theta: float, interleaved: bool, causal: bool
    ) -> None:
        super().__init__()
        self.d_head, self.theta, self.interleaved, self.causal = d_head, theta, interleaved, causal
        self.q = nn.Linear(d_model, n_heads * d_head, bias=False)
        self.k = nn.Linear(d_model, n_kv_heads * d_head, bias=False)
        self.v = nn.Linear(d_model, n_kv_heads * d_head, bias=False)
        self.out = nn.Linear(n_heads * d_head, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (-1, self.d_head)) for part in (self.q, self.k, self.v))
        return self.out(attend(self.turn(q), self.turn(k), v, self.causal).flatten(2))  # [batch, pos, d_model]

    def turn(self, x: Tensor) -> Tensor:
        """Pair i of dimensions turned by pos · θ^(−2i/d_head). [batch, pos, head, d_head]"""
        turned = torch.zeros_like(x)
        for i in range(self.d_head // 2):
            first, second = (2 * i, 2 * i + 1) if self.interleaved else (i, i + self.d_head // 2)
            frequency = 1 / self.theta ** (torch.tensor(2.0 * i) / self.d_head)
            angle = (torch.arange(x.shape[1]).float() * frequency)[:, None]  # [pos, 1]
            cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
            turned[..., first] = x[..., first] * cos - x[..., second] * sin
            turned[..., second] = x[..., second] * cos + x[..., first] * sin
        return turned


class ModernMLP(nn.Module):
    """SwiGLU."""

    def __init__(self, d_model: int, d_mlp: int) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_mlp, bias=False)
        self.up = nn.Linear(d_model, d_mlp, bias=False)
        self.down = nn.Linear(d_mlp, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate(x)
        return self.down(gate * torch.sigmoid(gate) * self.up(x))


class ModernBlock(nn.Module):
    """x + sublayer(norm(x)), twice."""

    def __init__(self, d_model: int, d_mlp: int, eps: float, *attention: object) -> None:
        super().__init__()
        self.ln1 = RMSNorm(d_model, eps)
        self.attn = ModernAttention(d_model, *attention)  # type: ignore[arg-type]
        self.ln2 = RMSNorm(d_model, eps)
        self.mlp = ModernMLP(d_model, d_mlp)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class Modern(nn.Module):
    """Llama: RoPE, RMSNorm before, grouped queries, SwiGLU, no biases."""

    def __init__(
        self, d_vocab: int, d_model: int, n_layers: int, n_heads: int, n_kv_heads: int, d_head: int, d_mlp: int,
        eps: float = 1e-6, theta: float = 10_000.0, tied: bool = True, interleaved: bool = False, causal: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.embed = nn.Embedding(d_vocab, d_model)
        attention = (n_heads, n_kv_heads, d_head, theta, interleaved, causal)
        self.blocks = nn.ModuleList(ModernBlock(d_model, d_mlp, eps, *attention) for _ in range(n_layers))
        self.ln_final = RMSNorm(d_model, eps)
        self.unembed = None if tied else nn.Linear(d_model, d_vocab, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)  # [batch, pos, d_model]
        for block in self.blocks:
            x = block(x)
        x = self.ln_final(x)
        return x @ self.embed.weight.T if self.unembed is None else self.unembed(x)  # [batch, pos, d_vocab]


# ------------------------------------------------------------------------------------------------ folders

_LLAMA_WORDS = [
    ("model.embed_tokens", "embed"), ("model.norm", "ln_final"), ("lm_head", "unembed"), ("model.layers", "blocks"),
    ("self_attn.", "attn."), ("_proj", ""), ("attn.o.", "attn.out."), ("input_layernorm", "ln1"),
    ("post_attention_layernorm", "ln2"),
]  # fmt: skip


def read_folder(folder: Path) -> Classic | Modern:
    """The model in a folder, read without the engine: a Hugging Face Llama, or a 2017 model in layerstep's words."""
    c = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    weights = load_file(folder / "model.safetensors")
    if c["model_type"] == "llama":
        heads = c["num_attention_heads"]
        model: Classic | Modern = Modern(
            c["vocab_size"], c["hidden_size"], c["num_hidden_layers"], heads, c["num_key_value_heads"],
            c.get("head_dim") or c["hidden_size"] // heads, c["intermediate_size"], c["rms_norm_eps"],
            c["rope_theta"], c["tie_word_embeddings"],
        )  # fmt: skip
        for theirs, ours in _LLAMA_WORDS:
            weights = {name.replace(theirs, ours): tensor for name, tensor in weights.items()}
    else:
        model = Classic(
            c["d_vocab"], c["d_model"], c["n_layers"], c["n_heads"], c["d_head"], c["d_mlp"], c["norm_eps"], c["causal"]
        )
        expected = {
            "positions": "sinusoidal", "norm": "layer", "norm_place": "post", "activation": "relu", "gated": False,
            "embed_scale": math.sqrt(c["d_model"]), "tied": True, "n_kv_heads": c["n_heads"],
        }  # fmt: skip
        assert {key: c[key] for key in expected} == expected
    model.load_state_dict(weights)
    return model.eval().requires_grad_(False)
