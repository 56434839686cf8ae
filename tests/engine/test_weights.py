"""Weights out of a file's tensors: parts of them, as views where they can be, and in memory once."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from folders import LLAMA, LLAMA_JSON, llama_tensors, load, refusal, write
from safetensors.torch import save_file
from tiny import GPT2, gap, random_ids, random_model, random_weights, tiny_config

from engine import Model, ModelConfig, trace
from engine.checkpoints.families.native import FAMILY as NATIVE
from engine.checkpoints.family import Family, Source
from engine.checkpoints.files import Safetensors
from engine.checkpoints.weights import Loading, plan_loading
from engine.errors import Cancelled, CheckpointError, MemoryLimitError

CPU = torch.device("cpu")


# ----------------------------------------------------------------------------- a family that stores all of it otherwise


def fused(params: dict[str, torch.Tensor], config: ModelConfig, interleaved: bool) -> dict[str, torch.Tensor]:
    """Our weights as a family may store them: q, k and v in one, transposed, or one after another for every head."""
    stored = {}
    for name, tensor in params.items():
        if ".attn.q." not in name:
            if ".attn.k." not in name and ".attn.v." not in name:
                stored[name] = tensor.t().contiguous() if tensor.ndim == 2 and ".mlp." in name else tensor
            continue
        parts = [tensor, params[name.replace(".q.", ".k.")], params[name.replace(".q.", ".v.")]]
        whole = torch.cat(parts)
        if interleaved:
            whole = torch.cat([part.view(config.n_heads, config.d_head, *part.shape[1:]) for part in parts], 1).flatten(
                0, 1
            )
        stored[name.replace(".q.", ".qkv.")] = whole
    return stored


def fused_family(interleaved: bool) -> Family:
    def part(config: ModelConfig, number: int, whole: torch.Tensor) -> torch.Tensor:
        rows, d = config.n_heads * config.d_head, config.d_head
        if not interleaved:
            return whole[number * rows : (number + 1) * rows]
        return whole.view(config.n_heads, 3, d, *whole.shape[1:])[:, number].flatten(0, 1)

    def source(param: str, config: ModelConfig) -> Source:
        for number, letter in enumerate("qkv"):
            if f".attn.{letter}." in param:
                rows = 3 * config.n_heads * config.d_head
                shape = (rows, config.d_model) if param.endswith("weight") else (rows,)
                return Source(param.replace(f".{letter}.", ".qkv."), partial(part, config, number), shape)
        if ".mlp." in param and param.endswith("weight"):
            return Source(param, torch.t)
        return Source(param)

    return Family(NATIVE.config, source)


FUSED = tiny_config(**GPT2)


def plan(folder: Path, family: Family, tensors: dict[str, torch.Tensor], config: ModelConfig = FUSED) -> Loading:
    save_file(tensors, folder / "model.safetensors")
    return plan_loading(Safetensors(folder / "model.safetensors"), "m", family, config, CPU)


def in_file(loading: Loading, weight: torch.Tensor, name: str) -> bool:
    """Whether a weight is the mapped file itself."""
    return weight.untyped_storage().data_ptr() == loading.files.tensor(name).untyped_storage().data_ptr()


@pytest.mark.parametrize("interleaved", [False, True])
def test_parts_of_a_tensor_make_the_same_model(tmp_path, interleaved):
    model = random_model(FUSED)
    loading = plan(tmp_path, fused_family(interleaved), fused(dict(model.weights), FUSED, interleaved))
    weights = loading.read()
    for name, weight in model.weights.items():
        assert torch.equal(weights[name], weight), name
    ids = random_ids(FUSED, 9)
    expected = trace(model, ids)["logits"]
    assert gap(trace(Model.from_weights(FUSED, weights), ids)["logits"], expected) < 1e-12


@pytest.mark.parametrize("interleaved", [False, True])
def test_rows_columns_and_transposes_are_the_file_itself_and_nothing_else_is_planned_as_such(tmp_path, interleaved):
    model = random_model(FUSED)
    loading = plan(tmp_path, fused_family(interleaved), fused(dict(model.weights), FUSED, interleaved))
    weights = loading.read()
    copied = 0
    for piece in loading.pieces:
        assert in_file(loading, weights[piece.param], piece.stored) is not piece.copied, piece.param
        assert piece.copied is (interleaved and any(f".attn.{x}." in piece.param for x in "qkv"))
        copied += piece.copied * weights[piece.param].nbytes
    assert loading.needs("float64") == copied
    assert loading.needs("float32") == sum(w.nbytes for w in weights.values()) // 2


def test_what_does_not_fit_a_part_is_one_line(tmp_path):
    tensors = fused(dict(random_weights(FUSED)), FUSED, False)
    name = "blocks.1.attn.qkv.weight"

    def said(change: dict[str, torch.Tensor]) -> str:
        with pytest.raises(CheckpointError) as caught:
            plan(tmp_path, fused_family(False), {k: v for k, v in (tensors | change).items() if v is not None})
        return str(caught.value)

    assert f"{name} is [24, 20] in the file, but the config asks for [72, 20]" in said({name: torch.zeros(24, 20)})
    assert f"tensor '{name}' [72, 20] is missing" in said({name: None})
    up = "blocks.0.mlp.up.weight"
    assert f"{up} is [26, 20] in the file, but the config asks for a {up} [26, 20] in it" in said(
        {up: torch.zeros(26, 20)}
    )
    assert f"{up} is [26] in the file" in said({up: torch.zeros(26)})


def test_spellings_of_a_name_are_one_and_both_at_once_are_none(tmp_path):
    family = replace(NATIVE, canonical=lambda name: name.removeprefix("model."))
    tensors = random_weights(FUSED)
    assert plan(tmp_path, family, {f"model.{name}": t for name, t in tensors.items()}).read().keys() == tensors.keys()
    with pytest.raises(CheckpointError, match=r"'embed\.weight' and 'model\.embed\.weight' are two spellings of one"):
        plan(tmp_path, family, tensors | {"model.embed.weight": tensors["embed.weight"].clone()})
    # A name that is ignored or left over is looked at in its canonical spelling and shown in the file's.
    family = replace(family, ignored=("rope.*",))
    loading = plan(tmp_path, family, tensors | {"model.rope.inv_freq": torch.zeros(3)})
    assert loading.report.ignored == {"rope.*": 1}
    with pytest.raises(CheckpointError, match=r"tensor 'model\.x' is in the file.* place for it, and so is 1 more"):
        plan(tmp_path, family, tensors | {"model.x": torch.zeros(3), "model.y": torch.zeros(3)})


def test_a_model_without_a_head_has_no_tie_to_settle(tmp_path):
    # An encoder: what the config says of ties means nothing, and its family need not know a head's name.
    def source(param: str, config: ModelConfig) -> Source:
        assert param != "unembed.weight"
        return Source(param)

    tensors = {name: t for name, t in random_weights(FUSED).items() if not name.startswith("unembed")}
    for tied in (True, False):
        loading = plan(tmp_path, Family(NATIVE.config, source), tensors, replace(FUSED, tied=tied, head="none"))
        assert loading.config.tied is tied
        assert loading.report.tied == ""
        assert loading.report.warnings == ()


# ---------------------------------------------------------------------------------------------------------- memory


def resident(key: str) -> int:
    """VmRSS, VmHWM, RssAnon of this process in bytes."""
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc")
    return int(re.search(rf"{key}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024


def test_what_has_to_be_copied_is_not_in_memory_twice(tmp_path):
    # All of q, k and v is copied, and they are three quarters of this model.
    config = tiny_config(**GPT2, d_vocab=512, d_model=768, n_heads=12, d_head=64, d_mlp=16, n_layers=6)
    params = random_weights(config, dtype=torch.bfloat16)
    tensors = fused(params, config, True)
    size = sum(t.nbytes for t in tensors.values())
    loading = plan(tmp_path, fused_family(True), tensors, config)
    assert loading.needs("bfloat16") > 0.7 * size
    del params, tensors
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    except OSError:
        pytest.skip("needs /proc/self/clear_refs")
    before = resident("VmRSS")
    weights = loading.read()
    total = sum(float(w.float().sum()) for w in weights.values())  # every page is touched
    assert total
    assert resident("VmHWM") - before < 1.15 * size + 3e6  # and the largest matrix in float32


def test_a_model_too_large_for_memory_is_refused_before_it_is_read(tmp_path, monkeypatch):
    from engine.checkpoints import weights

    monkeypatch.setattr(weights, "NEVER_ASKED", 0)
    folder = write(tmp_path / "m", LLAMA_JSON, llama_tensors(dtype=torch.bfloat16))
    as_float32 = sum(t.nbytes for t in llama_tensors().values())
    monkeypatch.setattr(weights, "available_memory", lambda device: as_float32 - 1)
    monkeypatch.setattr(Safetensors, "tensor", lambda self, name: pytest.fail("it was read"))
    text = refusal(folder, dtype="float32")
    advice = "--dtype bfloat16 takes the files as they are"
    assert text == f"m's weights need 26.7 KiB as float32, but 26.7 KiB are free on cpu; {advice}"
    monkeypatch.setattr(weights, "available_memory", lambda device: as_float32)
    with pytest.raises(pytest.fail.Exception):
        load(folder, dtype="float32")
    # The mapped file itself takes none.
    monkeypatch.undo()
    monkeypatch.setattr(weights, "NEVER_ASKED", 0)
    monkeypatch.setattr(weights, "available_memory", lambda device: 0)
    model = load(folder)
    assert (model.dtype, model.report.warnings) == (torch.bfloat16, ())
    monkeypatch.setattr(weights, "NEVER_WARNED", 0)
    assert "13.4 KiB of weights are more than the 0 B that are free" in load(folder).report.warnings[0]
    write(folder, LLAMA_JSON, llama_tensors(dtype=torch.float16))
    assert "--dtype float16 takes the files as they are" in refusal(folder)
    with pytest.raises(MemoryLimitError):
        load(folder)


def test_reading_tells_how_far_it_is_and_can_be_stopped(tmp_path):
    folder = write(tmp_path / "m", LLAMA_JSON, llama_tensors())
    told: list[tuple[int, int, str]] = []
    model = load(folder, watch=lambda *said: told.append(said))
    assert told == [(i, len(model.weights), "weights of m") for i in range(len(model.weights))]

    def stop(done: int, total: int, what: str) -> None:
        if done == 3:
            raise Cancelled("cancelled")

    with pytest.raises(Cancelled):
        load(folder, watch=stop)


def test_a_tensor_that_lies_at_an_odd_place_is_read_all_the_same(tmp_path):
    # The format allows any place; every writer pads the header.
    folder = write(tmp_path / "m", LLAMA_JSON, llama_tensors())
    file = folder / "model.safetensors"
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    file.write_bytes((length + 1).to_bytes(8, "little") + data[8 : 8 + length] + b" " + data[8 + length :])
    model = load(folder)
    expected = load(write(tmp_path / "n", LLAMA_JSON, llama_tensors()))
    assert torch.equal(trace(model, [1, 2])["logits"], trace(expected, [1, 2])["logits"])
    assert all(weight.data_ptr() % 4 == 0 for weight in model.weights.values())
    assert LLAMA.d_model == model.config.d_model
