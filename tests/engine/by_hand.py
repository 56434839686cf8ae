"""Every site of every architecture in NumPy float64, from a config and its weights: a second opinion on each number.

It shares nothing with the engine but names. Tables of positions are float32 in the engine by rule; here they are
exact, so a caller compares those alone and hands the engine's own in for all that follows (``tables``).
"""

import math
from collections.abc import Mapping

import numpy as np

Arrays = dict[str, np.ndarray]

_erf = np.vectorize(math.erf, otypes=[float])


def position_tables(c, positions: np.ndarray) -> Arrays:
    """The tables that depend on positions alone, by the formulas in the papers, number by number."""
    tables: Arrays = {}
    batch, n = positions.shape
    if c.positions == "rotary":
        angle = np.empty((batch, n, c.d_head // 2))
        for b, p, i in np.ndindex(angle.shape):
            angle[b, p, i] = positions[b, p] * c.rotary.theta ** (-2 * i / c.d_head)
        both = np.concatenate if c.rotary.style == "half" else lambda pair, _: np.stack(pair, -1).reshape(batch, n, -1)
        cos, sin = np.cos(angle), np.sin(angle)
        tables = {"rotary_cos": both((cos, cos), -1), "rotary_sin": both((-sin, sin), -1)}
    if c.positions == "sinusoidal":
        table = np.empty((batch, n, c.d_model))
        for b, p, j in np.ndindex(table.shape):
            angle = positions[b, p] / 10_000 ** ((j - j % 2) / c.d_model)
            table[b, p, j] = math.cos(angle) if j % 2 else math.sin(angle)
        tables = {"pos_embed": table}
    return tables


def forward(c, w: Mapping[str, np.ndarray], tokens: np.ndarray, tables: Arrays | None = None) -> Arrays:
    """All sites for unpadded ``tokens`` [batch, pos]."""
    batch, n = tokens.shape
    positions = np.broadcast_to(np.arange(n), tokens.shape)
    s: Arrays = position_tables(c, positions) | (tables or {})

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        y = np.einsum("...i,oi->...o", x, w[f"{name}.weight"])
        return y + w[f"{name}.bias"] if f"{name}.bias" in w else y

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        if c.norm == "layer":
            x = x - x.sum(-1, keepdims=True) / c.d_model
        s[f"{name}.scale"] = np.sqrt((x * x).sum(-1, keepdims=True) / c.d_model + c.norm_eps)
        y = x / s[f"{name}.scale"] * w[f"{name}.weight"]
        s[f"{name}.normalized"] = y + w[f"{name}.bias"] if f"{name}.bias" in w else y
        return s[f"{name}.normalized"]

    def rotate(x: np.ndarray) -> np.ndarray:
        half = c.d_head // 2
        second = slice(half, None) if c.rotary.style == "half" else slice(1, None, 2)
        turn = (s["rotary_cos"] + 1j * s["rotary_sin"])[:, :, None, second]  # [batch pos 1 d_head/2]
        a, b = (x[..., :half], x[..., half:]) if c.rotary.style == "half" else (x[..., ::2], x[..., 1::2])
        turned = (a + 1j * b) * turn
        out = np.empty_like(x)
        if c.rotary.style == "half":
            out[..., :half], out[..., half:] = turned.real, turned.imag
        else:
            out[..., ::2], out[..., 1::2] = turned.real, turned.imag
        return out

    def attention(block: str, x: np.ndarray) -> np.ndarray:
        at = f"{block}.attn"
        q = s[f"{at}.q"] = linear(f"{at}.q", x).reshape(batch, n, c.n_heads, c.d_head)
        k = s[f"{at}.k"] = linear(f"{at}.k", x).reshape(batch, n, c.n_kv_heads, c.d_head)
        v = s[f"{at}.v"] = linear(f"{at}.v", x).reshape(batch, n, c.n_kv_heads, c.d_head)
        if c.positions == "rotary":
            q = s[f"{at}.rot_q"] = rotate(q)
            k = s[f"{at}.rot_k"] = rotate(k)
        if c.causal:
            s[f"{at}.cache_k"], s[f"{at}.cache_v"] = k, v
        share = c.n_heads // c.n_kv_heads
        cells = {name: np.zeros((batch, c.n_heads, n, n)) for name in ("scores", "scaled", "masked", "pattern")}
        z = np.zeros((batch, n, c.n_heads, c.d_head))
        for b, h, i in np.ndindex(batch, c.n_heads, n):
            for j in range(n):
                score = float(q[b, i, h] @ k[b, j, h // share])
                cells["scores"][b, h, i, j] = score
                cells["scaled"][b, h, i, j] = score / math.sqrt(c.d_head)
                hidden = c.causal and j > i
                cells["masked"][b, h, i, j] = -math.inf if hidden else score / math.sqrt(c.d_head)
            row = cells["masked"][b, h, i]
            weights = [math.exp(value - row.max()) for value in row]
            for j in range(n):
                cells["pattern"][b, h, i, j] = weights[j] / math.fsum(weights)
                z[b, i, h] += cells["pattern"][b, h, i, j] * v[b, j, h // share]
        s.update({f"{at}.{name}": value for name, value in cells.items()})
        s[f"{at}.z"] = z
        per_head = w[f"{at}.out.weight"].reshape(c.d_model, c.n_heads, c.d_head)
        s[f"{at}.result"] = np.stack([z[:, :, h] @ per_head[:, h].T for h in range(c.n_heads)], axis=2)
        s[f"{block}.attn_out"] = linear(f"{at}.out", z.reshape(batch, n, -1))
        return s[f"{block}.attn_out"]

    def activation(x: np.ndarray) -> np.ndarray:
        match c.activation:
            case "relu":
                return np.where(x > 0, x, 0.0)
            case "gelu":
                return x * 0.5 * (1 + _erf(x / math.sqrt(2)))
            case "gelu_tanh":
                return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
            case "silu":
                return x / (1 + np.exp(-x))
        raise AssertionError(c.activation)

    def mlp(block: str, x: np.ndarray) -> np.ndarray:
        at = f"{block}.mlp"
        if c.gated:
            s[f"{at}.pre"], s[f"{at}.pre_linear"] = linear(f"{at}.gate", x), linear(f"{at}.up", x)
            s[f"{at}.post"] = activation(s[f"{at}.pre"]) * s[f"{at}.pre_linear"]
        else:
            s[f"{at}.pre"] = linear(f"{at}.up", x)
            s[f"{at}.post"] = activation(s[f"{at}.pre"])
        s[f"{block}.mlp_out"] = linear(f"{at}.down", s[f"{at}.post"])
        return s[f"{block}.mlp_out"]

    x = s["embed"] = w["embed.weight"][tokens]
    if c.embed_scale != 1:
        x = s["embed_scaled"] = x * c.embed_scale
    if c.positions == "learned":
        s["pos_embed"] = w["pos_embed.weight"][positions]
    if "pos_embed" in s:
        x = x + s["pos_embed"]
    for layer in range(c.n_layers):
        b = f"blocks.{layer}"
        s[f"{b}.resid_pre"] = x
        if c.norm_place == "pre":
            x = s[f"{b}.resid_mid"] = x + attention(b, norm(f"{b}.ln1", x))
            x = s[f"{b}.resid_post"] = x + mlp(b, norm(f"{b}.ln2", x))
        else:
            s[f"{b}.resid_mid"] = x + attention(b, x)
            x = norm(f"{b}.ln1", s[f"{b}.resid_mid"])
            s[f"{b}.resid_post"] = x + mlp(b, x)
            x = norm(f"{b}.ln2", s[f"{b}.resid_post"])
    if c.norm_place == "pre" if c.final_norm is None else c.final_norm:
        x = norm("ln_final", x)
    logits = np.einsum("bpd,vd->bpv", x, w["embed.weight" if c.tied else "unembed.weight"])
    s["logits"] = logits + w["unembed.bias"] if c.unembed_bias else logits
    e = np.exp(s["logits"] - s["logits"].max(-1, keepdims=True))
    s["probs"] = e / e.sum(-1, keepdims=True)
    return s
