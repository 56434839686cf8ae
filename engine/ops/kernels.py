"""Which attention kernel runs: torch's choice among the fused ones, or the one that is asked for."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from math import isfinite

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from engine.errors import KernelError
from engine.ops.base import PassInfo, at_least_float32
from engine.ops.mask import no_key

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
KERNELS = ("auto", *BACKENDS)
CUDA_ONLY = ("efficient", "cudnn")
FEW = 32_768
"""Numbers that are added up as fast as a part of them is cut out."""
_AS_IT_IS = nullcontext()
_NAMES = {int(backend.value): name for name, backend in BACKENDS.items()}


def note_explicit(info: PassInfo, why: str) -> None:
    """Attention written out, since no kernel has ``why``. Raises KernelError where a fused kernel is forced."""
    if info.kernel not in ("auto", "math"):
        raise KernelError(f"kernel {info.kernel!r} cannot run here: no fused kernel has {why}; use kernel auto or math")
    info.ran.add("explicit")


def fused_attention(
    info: PassInfo,
    q: Float[Tensor, "batch pos head d_head"],
    k: Float[Tensor, "batch kv_pos kv_head d_head"],
    v: Float[Tensor, "batch kv_pos kv_head d_head"],
    mask: Bool[Tensor, "batch 1 pos kv_pos"] | Float[Tensor, "batch head pos kv_pos"] | None,
    *,
    is_causal: bool,
    scale: float,
    own: bool,
) -> Float[Tensor, "batch pos head d_head"]:
    """torch's scaled_dot_product_attention, noting in ``info.ran`` which kernel it took.

    ``mask`` is True where a query may attend to a key, or a number to add to its score. ``own``: the keys are those of
    the queries' own text, the last ones made in this pass and the others in earlier ones.

    Query heads that share a key-value head are rows of one product where there is a single query. Else they share by
    ``enable_gqa`` where that keeps a fused kernel, or by repeating keys and values.
    Raises KernelError, with torch's reason, where a kernel is forced that cannot run.
    """
    if info.static and info.kernel == "math":
        info.ran.add("math")
        return _one_query(q, k, v, mask, scale)
    batch, queries, heads, d_head = q.shape
    kv_heads = k.shape[2]
    k, v = k.transpose(1, 2), v.transpose(1, 2)  # [batch kv_head kv_pos d_head]
    shares = heads != kv_heads
    if as_rows := shares and queries == 1 and (mask is None or mask.shape[1] == 1):
        q = q.reshape(batch, kv_heads, -1, d_head)  # [batch kv_head group d_head]
        shares = is_causal = False
    else:
        q = q.transpose(1, 2)  # [batch head pos d_head]
    key = (q.shape, k.shape, mask is None, is_causal)
    choice = info.choices.get(key)
    if choice is None:
        choice = info.choices[key] = _choose(info.kernel, q, k, mask, is_causal)
    name, repeat = choice
    forced = None if info.kernel == "auto" else BACKENDS[name]
    if name == "flash" and q.is_cpu:
        known = own and info.past_finite and k.numel() > FEW
        if _is_finite(q) and _is_finite(k.narrow(2, k.shape[2] - queries, queries) if known else k):
            info.finite += own
        elif forced is not None:
            raise KernelError("kernel 'flash' on the cpu loses NaN and ∞, and this pass has them; use auto or math")
        else:  # torch's CPU kernel may turn a NaN or infinite score into zeros; the plain one keeps it visible.
            name, forced = "math", SDPBackend.MATH
    if repeat:
        k, v = k.repeat_interleave(heads // kv_heads, dim=1), v.repeat_interleave(heads // kv_heads, dim=1)
        shares = False
    info.ran.add(name)
    with _AS_IT_IS if forced is None else sdpa_kernel(forced):
        z = scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal, scale=scale, enable_gqa=shares)
    return z.reshape(batch, 1, heads, d_head) if as_rows else z.transpose(1, 2)


def _one_query(
    q: Float[Tensor, "batch 1 head d_head"],
    k: Float[Tensor, "batch kv_pos kv_head d_head"],
    v: Float[Tensor, "batch kv_pos kv_head d_head"],
    mask: Bool[Tensor, "batch 1 1 kv_pos"] | Float[Tensor, "batch head 1 kv_pos"] | None,
    scale: float,
) -> Float[Tensor, "batch 1 head d_head"]:
    """The plain kernel's arithmetic, for a compiler; torch's own would scale a copy of all the keys in every pass."""
    batch, _, heads, d_head = q.shape
    rows = (at_least_float32(q) * scale).view(batch, k.shape[2], -1, d_head)  # [batch kv_head group d_head]
    s = rows @ at_least_float32(k).permute(0, 2, 3, 1)  # [batch kv_head group kv_pos]
    if mask is not None and mask.dtype is torch.bool:
        s = s.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        s = s + mask.reshape(s.shape)
    p = s.softmax(-1).masked_fill(no_key(s), 0.0)
    z = p @ at_least_float32(v).transpose(1, 2)  # [batch kv_head group d_head]
    return z.reshape(batch, 1, heads, d_head).to(q.dtype)


def _is_finite(x: Tensor) -> bool:
    """Whether a tensor on the CPU holds neither NaN nor ±∞, by its sum alone."""
    return isfinite(x.sum(dtype=torch.float32).item())


def _choose(kernel: str, q: Tensor, k: Tensor, mask: Tensor | None, is_causal: bool) -> tuple[str, bool]:
    """The kernel for tensors like these, and whether key-value heads have to be repeated for it."""
    group = q.shape[1] // k.shape[1]

    def ask(repeat: bool) -> str:
        keys = k.repeat_interleave(group, dim=1) if repeat else k
        gqa = group > 1 and not repeat
        if kernel == "auto":
            return _NAMES[torch._fused_sdp_choice(q, keys, keys, mask, 0.0, is_causal, enable_gqa=gqa)]
        with sdpa_kernel(BACKENDS[kernel]):
            scaled_dot_product_attention(q, keys, keys, mask, is_causal=is_causal, enable_gqa=gqa)
        return kernel

    if kernel == "auto":
        name = ask(repeat=False)
        return (name, False) if name != "math" or group == 1 else (ask(repeat=True), True)
    if q.device.type == "cpu" and kernel in CUDA_ONLY:
        raise KernelError(f"kernel {kernel!r} runs on CUDA only and this model is on the cpu; use flash, math or auto")
    reasons: list[str] = []
    for repeat in (False, True) if group > 1 else (False,):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                return ask(repeat), repeat
            except RuntimeError as error:
                said = [str(w.message).split("(Triggered")[0] for w in caught] or [str(error)]
                reasons = [" ".join(line.split()) for line in said]
    raise KernelError(f"kernel {kernel!r} cannot run here: {'; '.join(dict.fromkeys(reasons))}; use kernel auto")
