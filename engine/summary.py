"""What an app knows of a trace before it asks for a tensor: model, tokens, passes, steps with their words."""

from __future__ import annotations

from collections.abc import Mapping

from engine.analysis import looks
from engine.dtypes import dtype_name
from engine.edits import UNEDITED
from engine.jsontext import Json
from engine.ops.base import Shape, times
from engine.ops.edited import Edited
from engine.program import Step
from engine.sites import ENCODER, Site
from engine.text import Token
from engine.told import fields
from engine.traces import Trace


def summary(trace: Trace) -> Json:
    """All that an app shows of a trace before it asks for a tensor."""
    shapes = {site.name: trace.shape(site.name) for site in trace.program.sites}
    derived = looks.looks_in(trace)
    return {
        "model": trace.config.name,
        "file": trace.source if trace.weights is None else None,
        "prompt": trace.prompt,
        "device": trace.device.type,
        "dtype": dtype_name(trace.dtype),
        "kernel": "+".join(trace.kernels),
        "notices": list(trace.notices),
        "edits": [str(edit) for edit in trace.edits],
        "config": trace.config.to_json(),
        "facts": fields(trace.config),
        "predicts": trace.config.predicts,
        "tokens": [[_token(token) for token in row] for row in trace.tokens],
        "source_tokens": [[_token(token) for token in row] for row in trace.source_tokens],
        "target": _target(trace),
        "masked": [trace.masked(row) for row in range(len(trace.tokens))],
        "passes": [{"start": p.start, "length": p.length, "seconds": p.seconds} for p in trace.passes],
        "depth": list(looks.depth(trace)),
        "steps": [
            {**row, "looks": list(derived.get(row["site"], ()))}
            for row in (
                *(_given(trace, site, shapes[site.name]) for site in _shown_inputs(trace)),
                *(_step(trace, step, shapes) for step in trace.program.steps),
            )
        ],
    }


def _target(trace: Trace) -> str:
    """What an encoder-decoder's decoder was given after its start token; '' of any other model."""
    given = trace.tokens[0] if trace.source_tokens else ()
    return b"".join(token.bytes for token in given if token.origin != "tokenizer").decode("utf-8", "replace").strip()


def _token(token: Token) -> Json:
    return {
        "id": token.id,
        "label": token.label,
        "hex": token.bytes.hex(),
        "group": token.group,
        "special": token.special,
        "origin": token.origin,
    }


def _shown_inputs(trace: Trace) -> list[Site]:
    """The inputs that people look at, what an encoder reads first."""
    shown = [site for site in trace.program.inputs if "past" not in site.axes]
    return sorted(shown, key=lambda site: site.name not in trace.program.once)


INPUTS = {
    "source_tokens": (
        "Token ids of the source",
        "ids = tokenize(source)",
        "The tokenizer cut the text that the encoder reads into pieces and gave each its number in the vocabulary. The "
        "model sees no letters, only these numbers.",
    ),
    "source_positions": (
        "Positions in the source",
        "pos = 0, 1, 2, …",
        "Where each token of the source stands, counted from 0. Padding stands nowhere and has −1.",
    ),
    "tokens": (
        "Token ids",
        "ids = tokenize(text)",
        "The tokenizer cut the prompt into pieces and gave each its number in the vocabulary. The model sees no "
        "letters, only these numbers.",
    ),
    "positions": (
        "Positions",
        "pos = 0, 1, 2, …",
        "Where each token stands, counted from 0. Padding stands nowhere and has −1.",
    ),
    "key_positions": (
        "Positions of the keys",
        "pos = 0, 1, 2, …",
        "Where each key stands that may be attended to, earlier passes first. A query compares them with its own "
        "position to know what lies before it.",
    ),
}


def _given(trace: Trace, site: Site, shape: Shape) -> Json:
    title, formula, story = INPUTS[site.name]
    return _row(trace, site, shape) | {
        "part": "input", "on_path": True, "kept": True, "edited": False, "dtype": "int64", "title": title,
        "formula": formula, "latex": "", "numbers": times(*shape), "story": story, "reads": [], "params": [],
    }  # fmt: skip


def _step(trace: Trace, step: Step, shapes: Mapping[str, Shape]) -> Json:
    site, text, shape = step.site, step.op.text, shapes[step.site.name]
    return _row(trace, site, shape) | {
        "part": _part(site.name),
        "on_path": step.on_path,
        "edited": isinstance(step.op, Edited),
        "kept": trace.kept(site.name, len(trace.passes) - 1),
        "dtype": dtype_of(trace, site),
        "title": text.title,
        "formula": text.formula,
        "latex": text.latex,
        "numbers": _numbers(trace, step, shapes),
        "story": text.story,
        "reads": list(step.reads),
        "params": list(step.params),
    }


def numbers(trace: Trace, site: Site, at: int | None) -> str:
    """The formula's symbols with the sizes of one pass, or of all of them together."""
    step = trace.program.step(site.name)
    if step is None:
        return times(*trace.shape(site.name, at))
    return _numbers(trace, step, {name: trace.shape(name, at) for name in (site.name, *step.reads)})


def _numbers(trace: Trace, step: Step, shapes: Mapping[str, Shape]) -> str:
    params = [trace.program.params[param] for param in step.params]
    return step.op.numbers([shapes[read] for read in step.reads], params, shapes[step.site.name])


def _row(trace: Trace, site: Site, shape: Shape) -> Json:
    in_encoder = site.name.startswith(ENCODER)
    layers = trace.config.encoder_layers or 0
    stack = "" if not layers else "encoder " if in_encoder else "decoder "
    block = None if site.block is None else site.block + (0 if in_encoder else layers)
    return {
        "site": site.name,
        "block": block,  # counted through, so that an encoder's and a decoder's are told apart
        "block_name": "" if block is None else f"{stack}block {site.block}",
        "label": site.name.rsplit(".", 1)[-1],
        "axes": list(site.axes),
        "window": site.window,
        "shape": list(shape),
    }


def _part(name: str) -> str:
    """Which part of the pass a site belongs to, by its name's middle."""
    name = name.removesuffix(UNEDITED)
    if "cross_attn" in name:
        return "cross-attention"
    if ".attn." in name or name.endswith("attn_out"):
        return "attention"
    if ".mlp." in name or name.endswith("mlp_out"):
        return "mlp"
    if name.endswith((".scale", ".normalized")):
        return "norm"
    if ".resid_" in name:
        return "residual"
    return "output" if name.startswith(("logits", "probs", "head.", "embed_out", "pooled", "sentence")) else "input"


def dtype_of(trace: Trace, site: Site) -> str:
    step, given = trace.program.step(site.name), trace.passes[0].given.get(site.name)
    return dtype_name(step.dtype(trace.dtype) if step else trace.dtype if given is None else given.dtype)
