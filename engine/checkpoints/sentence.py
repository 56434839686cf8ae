"""sentence-transformers' modules.json: how the vectors of a stack become one for the text.

(Reimers and Gurevych 2019, Sentence-BERT, section 3)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.checkpoints.family import Family, Source
from engine.checkpoints.fields import short
from engine.checkpoints.folder import read_json, read_json_list, shown
from engine.config import ModelConfig, Pooling
from engine.errors import CheckpointError
from engine.text import display

MODULES = "modules.json"
ORDER = ("Transformer", "Pooling", "Dense", "Normalize")
"""The modules that are steps here, by the last part of their class, in the one order in which they may stand; Dense may
stand several times, or not at all, and Normalize may be left out."""
MODES: dict[str, Pooling] = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max", "lasttoken": "last"}
"""``pooling_mode_…`` in a file -> ours."""
SHORT: dict[str, Pooling] = {"cls": "cls", "mean": "mean", "max": "max", "lasttoken": "last"}
"""The same where one key, ``pooling_mode``, names it."""
MAX_MODULES = 32
"""A transformer, its pooling and a few linear maps are less."""
NO_EFFECT = {"include_prompt", "pooling_mode"}
SIZES = ("word_embedding_dimension", "embedding_dimension")
ENDS = ("module_input_name", "module_output_name")
IDENTITY = "torch.nn.modules.linear.Identity"


def with_pooling(folder: Path, config: ModelConfig) -> tuple[ModelConfig, tuple[str, ...], tuple[str, ...]]:
    """The config of a sentence encoder, where its Dense modules lie, and notes, if the folder has a modules.json.

    The stack then has no head: what the model is for is its sentence vector. A module, or a way of pooling, that is
    not supported is refused by name.
    """
    if not os.path.lexists(folder / MODULES):
        return config, (), ()
    entries = read_json_list(folder, MODULES)
    if len(entries) > MAX_MODULES:
        raise _refusal(folder, f"it lists {len(entries)} modules; more than {MAX_MODULES} are no sentence encoder's")
    modules = [_module(folder, entry) for entry in entries]
    kinds = [kind for kind, _ in modules]
    if unknown := [kind for kind in kinds if kind not in ORDER]:
        raise _refusal(folder, f"module {unknown[0]!r} is not supported; supported are {', '.join(ORDER)}")
    once = tuple(kind for kind in kinds if kind != "Dense")
    if sorted(kinds, key=ORDER.index) != kinds or once not in (ORDER[:2], (*ORDER[:2], "Normalize")):
        raise _refusal(folder, f"its modules are {', '.join(kinds) or 'none'}; they must be {', '.join(ORDER)}")
    places = dict(modules)
    if places["Transformer"] not in ("", "."):
        raise _refusal(folder, f"it keeps its transformer in {places['Transformer']!r}, not beside {MODULES}")
    pooling = _pooling(folder, places["Pooling"], config.d_model)
    dense = tuple(place for kind, place in modules if kind == "Dense")
    layers: list[tuple[int, int]] = []
    for place in dense:
        layers.append(_dense(folder, place, layers[-1][1] if layers else config.d_model))
    read = replace(
        config,
        head="none",
        unembed_bias=False,
        pooling=pooling,
        pool_layers=tuple(layers),
        pool_normalise="Normalize" in places,
    )
    return read, dense, _notes(folder, config)


def as_encoder(family: Family, stack: ModelConfig) -> Family:
    """The family of a sentence encoder whose stack alone had this config: its head may be in the files, unused."""
    if stack.head != "unembed":  # what families of encoders ignore by themselves
        return family
    params = ["unembed.weight", *(["unembed.bias"] if stack.unembed_bias else [])]
    head = [family.source(param, replace(stack, tied=False)).name for param in params]
    return replace(family, ignored=(*family.ignored, *head))


def with_dense(family: Family, places: tuple[str, ...]) -> Family:
    """The family of a folder whose Dense modules lie in these places: PLACE/linear.weight in its files."""
    if not places:
        return family

    def source(param: str, config: ModelConfig) -> Source:
        if not param.startswith("pool."):
            return family.source(param, config)
        _, i, kind = param.split(".")
        return Source(f"{places[int(i)]}/linear.{kind}")

    def canonical(name: str) -> str:
        return name if name.rpartition("/")[0] in places else family.canonical(name)

    return replace(family, source=source, canonical=canonical)


def _module(folder: Path, entry: object) -> tuple[str, str]:
    """(kind, path) of one entry of modules.json."""
    if not isinstance(entry, Mapping):
        raise _refusal(folder, f"an entry must be an object, but is {display(repr(entry))[:80]}")
    kind, path = entry.get("type"), entry.get("path", "")
    if not isinstance(kind, str) or not isinstance(path, str):
        raise _refusal(folder, f"an entry needs a type and a path, but is {display(repr(dict(entry)))[:120]}")
    return display(kind.rsplit(".", 1)[-1])[:80], path


def _pooling(folder: Path, place: str, d_model: int) -> Pooling:
    """The one way of pooling that a config.json asks for."""
    file = f"{place}/config.json"
    raw = read_json(folder, file)
    flags = {key: value for key, value in raw.items() if key.startswith("pooling_mode_")}
    if unknown := sorted(set(raw) - set(flags) - NO_EFFECT - set(SIZES)):
        raise _refusal(folder, f"{file} has {display(unknown[0])[:80]!r}, which layerstep does not know")
    for key in SIZES:
        if (width := raw.get(key, d_model)) != d_model:
            raise _refusal(folder, f"{file} pools vectors of {display(repr(width))[:40]}, but d_model is {d_model}")
    named, known = _modes(raw, flags)
    if len(named) == 1 and isinstance(named[0], str) and named[0] in known:
        return known[named[0]]
    asked = " and ".join(display(str(name))[:40] for name in named) or "none"
    raise _refusal(folder, f"{file} asks for pooling {asked}; supported is one of {', '.join(known)}")


def _dense(folder: Path, place: str, d_in: int) -> tuple[int, int]:
    """(in, out) of a linear map. One with a bias or an activation is refused; no supported model has it."""
    file = f"{place}/config.json"
    raw = read_json(folder, file)
    plain = {"in_features": d_in, "bias": False, "activation_function": IDENTITY}
    plain |= {key: "sentence_embedding" for key in ENDS if raw.get(key) is not None}
    if unknown := sorted(set(raw) - set(plain) - {"out_features", *ENDS}):
        raise _refusal(folder, f"{file} has {display(unknown[0])[:80]!r}, which layerstep does not know")
    for key, value in plain.items():
        if raw.get(key) != value:
            raise _refusal(folder, f"{file} has {key} {short(raw.get(key))}; supported here is {value}")
    d_out = raw.get("out_features")
    if not isinstance(d_out, int) or isinstance(d_out, bool) or not 1 <= d_out <= 2**31:
        raise _refusal(folder, f"{file} needs out_features between 1 and 2^31, but has {short(d_out)}")
    return d_in, d_out


def _modes(raw: Mapping[str, Any], flags: Mapping[str, Any]) -> tuple[list[Any], Mapping[str, Pooling]]:
    """The modes that a file asks for, and the names that it may use."""
    short = raw.get("pooling_mode")
    if short is not None:
        return (short if isinstance(short, list) else [short]), SHORT
    asked = {"pooling_mode_mean_tokens": True, **flags}  # the mean is on unless it is switched off
    return [key.removeprefix("pooling_mode_") for key, value in asked.items() if value], MODES


def _notes(folder: Path, config: ModelConfig) -> tuple[str, ...]:
    """What sentence-transformers does to a prompt and layerstep does not."""
    name = "sentence_bert_config.json"
    settings = read_json(folder, name) if os.path.lexists(folder / name) else {}
    notes = []
    longest = settings.get("max_seq_length")
    if isinstance(longest, int) and not isinstance(longest, bool) and 0 < longest < config.n_ctx:
        notes.append(f"{name}: sentence-transformers cuts a prompt after {longest} tokens; here it is read whole")
    if settings.get("do_lower_case") is True:
        notes.append(f"{name}: sentence-transformers makes a prompt lower case; here it is read as it is")
    return tuple(notes)


def _refusal(folder: Path, why: str) -> CheckpointError:
    alone = f"without its {MODULES} the folder opens as the transformer alone"
    return CheckpointError(f"{shown(folder)}: {MODULES}: {why}; {alone}"[:600])
