"""Arrays that others recorded become a trace, or are refused in one line: names, shapes, dtypes, tokens, files."""

from __future__ import annotations

import io
import json
import pickle
import random
import struct
import tracemalloc
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tiny import ARCHITECTURES, ENCODER, EXPERTS, GPT2, MODERN, TRANSLATOR, random_ids

from engine import LayerstepError, Model, Trace, import_cache, import_file, import_transformers, open_trace, trace
from engine.browse import Session
from engine.errors import ArraysError, NotKeptError, PromptError
from engine.importing import site_of, states
from engine.text import display

N = 5


def refusal(do, *args, **options) -> str:
    """The one line that it is refused with."""
    with pytest.raises(ArraysError) as error:
        do(*args, **options)
    said = str(error.value)
    assert said == display(said)
    assert len(said) < 900
    return said


@pytest.fixture
def model(tiny):
    return tiny(dtype=torch.float32, **MODERN)


@pytest.fixture
def own(model) -> Trace:
    return trace(model, random_ids(model.config, N), keep=["*"])


def lensed(t: Trace) -> dict[str, torch.Tensor]:
    """A trace of ours by TransformerLens's names, its values as they are."""
    hooked = {"attn.pattern": "attn.hook_pattern", "attn.masked": "attn.hook_attn_scores", "embed": "hook_embed"}
    found = {}
    for name, tensor in t.passes[0].kept.items():
        head, _, tail = name.rpartition(".")
        inner = name.split(".", 2)[-1]
        if inner in hooked:
            name = name.removesuffix(inner) + hooked[inner]
        elif tail not in ("scores", "scaled", "normalized", "cache_k", "cache_v") and "rotary" not in name:
            name = f"{head}.hook_{tail}" if head else tail
        found[name] = tensor
    return found


def same_as(t: Trace, own: Trace, least: int) -> None:
    """Every tensor that was imported has the bits of our own run."""
    assert len(t.passes[0].kept) >= least
    for name, tensor in t.passes[0].kept.items():
        assert torch.equal(tensor, own[name]), name


# --- names and shapes -----------------------------------------------------------------------------------------


def test_a_cache_by_transformerlens_s_names_is_a_trace(model, own):
    t = import_cache(lensed(own), model, random_ids(model.config, N))
    same_as(t, own, 40)
    assert t.weights is None
    assert t.notices[0].startswith("imported from a cache: layerstep did not compute the")
    assert any("own run agrees" in notice for notice in t.notices)
    assert all(check.ok for check in t.checks())
    assert t.top(3) == own.top(3)
    assert [token.id for token in t.tokens[0]] == random_ids(model.config, N)


def test_what_follows_without_weights_can_be_had_and_the_rest_says_what_is_missing(model, own):
    some = {f"blocks.1.attn.hook_{x}": own[f"blocks.1.attn.{x}"] for x in ("rot_q", "rot_k", "v")}
    t = import_cache(some, model, random_ids(model.config, N))
    assert torch.equal(t["blocks.1.attn.pattern"], own["blocks.1.attn.pattern"])
    torch.testing.assert_close(t["blocks.1.attn.z"], own["blocks.1.attn.z"])
    with pytest.raises(NotKeptError, match="needs the weights"):
        t["logits"]


@pytest.mark.parametrize("spell", [
    lambda name: name, lambda name: name.replace(".", "/"), lambda name: name.replace(".", "_"),
    lambda name: name.replace("hook_", ""), str.upper,
])  # fmt: skip
@pytest.mark.parametrize("batch", [True, False])
def test_spellings_and_a_batch_axis_that_was_dropped(model, own, spell, batch):
    cache = {spell(name): tensor if batch else tensor[0] for name, tensor in lensed(own).items()}
    same_as(import_cache(cache, model, random_ids(model.config, N)), own, 40)


@pytest.mark.parametrize("spell", ["{}.{}", "{}_{}", "{}/{}", "{}[{}]"])
def test_states_and_attentions_one_by_one_or_stacked(model, own, spell):
    ids = random_ids(model.config, N)
    streams = [own[name] for name in states(model.program, 2)]
    patterns = [own[f"blocks.{layer}.attn.pattern"] for layer in range(2)]
    one_by_one = {spell.format("hidden_states", i): x for i, x in enumerate(streams)}
    one_by_one |= {spell.format("attentions", i): x for i, x in enumerate(patterns)}
    stacked = {"hidden_states": torch.stack(streams), "attentions": torch.stack(patterns)[:, 0]}
    for arrays in (one_by_one, stacked):
        t = import_cache(arrays | {"input_ids": [ids]}, model)
        same_as(t, own, 7)
        kept = t.passes[0].kept
        assert {"blocks.0.resid_pre", "blocks.0.resid_post", "blocks.1.resid_pre", "ln_final.normalized"} <= set(kept)
        assert "blocks.1.resid_post" not in kept  # E17: the last state is what the head reads, and no stream
        assert kept["blocks.0.resid_post"] is kept["blocks.1.resid_pre"]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_site_of_every_architecture_has_one_spelling(tiny, name):
    program = tiny(**ARCHITECTURES[name]).program
    for step in program.steps:
        site = step.site.name
        assert site_of(program, site) == site_of(program, site.replace(".", "/")) == site
        head, _, tail = site.rpartition(".")
        assert site_of(program, f"{head}.hook_{tail}" if head else f"hook_{tail}") == site
        meant = site.replace(".out", "_out")  # what is added to the stream, where _ stands for both
        assert site_of(program, site.replace(".", "_")) == meant
    assert site_of(program, "blocks.1.attn.hook_attn_scores") == "blocks.1.attn.masked"
    assert site_of(program, "blocks_1_attn_hook_attn_scores") == "blocks.1.attn.masked"
    assert site_of(program, "blocks.9.attn.q") is None


def test_what_fits_no_site_is_left_out_and_told(model, own):
    arrays = {"embed": own["embed"], "blocks.0.hook_q_input": own["embed"], "\x1b[31mjunk": torch.zeros(3)}
    t = import_cache(arrays, model, random_ids(model.config, N))
    assert "left out (no site of tiny): blocks.0.hook_q_input, ␛[31mjunk" in t.notices
    assert "nothing here fits a site of tiny: junk; " in refusal(import_cache, {"junk": torch.zeros(3)}, model, [1, 2])
    assert "there are no arrays" in refusal(import_cache, {}, model, [1, 2])


def test_rmsnorm_before_its_weight_is_another_tensor(model, own, tiny):
    # TransformerLens's RMSNorm records hook_normalized before the weight, its LayerNorm behind it.
    arrays = {"ln_final.hook_normalized": own["ln_final.normalized"], "embed": own["embed"]}
    t = import_cache(arrays, model, random_ids(model.config, N))
    assert "left out (TransformerLens has it before the norm's weight): ln_final.hook_normalized" in t.notices
    layered = tiny(dtype=torch.float32, **GPT2)
    theirs = trace(layered, [1, 2])["ln_final.normalized"]
    same_as(import_cache({"ln_final.hook_normalized": theirs}, layered, [1, 2]), trace(layered, [1, 2]), 1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"embed": torch.zeros(1, N, 21)}, r"embed is [1, 5, 21], and for 5 tokens of tiny embed is [1, 5, 20]"),
        ({"embed": torch.zeros(1, N + 1, 20)}, "is [1, 6, 20], and for 5 tokens"),
        ({"embed": torch.zeros(2, N, 20)}, "is [2, 5, 20]"),
        ({"embed": torch.zeros(20)}, "is [20]"),
        ({"embed": torch.zeros(())}, "embed is []"),
        ({"hidden_states": torch.zeros(2, 1, N, 20)}, "is [3, 1, 5, 20]"),
        ({"attentions.0": torch.zeros(1, 4, N, N + 1)}, "is [1, 4, 5, 5]"),
        ({"embed": torch.zeros(1, N, 20, dtype=torch.complex64)}, "complex64, and should be float32"),
        ({"embed": torch.zeros(1, N, 20, dtype=torch.int64)}, "int64, and should be"),
        ({"embed": torch.zeros(1, N, 20, dtype=torch.bool)}, "bool, and should be"),
        ({"encoder_hidden_states.0": torch.zeros(1)}, "of an encoder-decoder"),
        ({"cross_attentions": torch.zeros(1)}, "of an encoder-decoder"),
        ({"embed@0": torch.zeros(1)}, "open that with `layerstep open`"),
        ({"hook_embed": torch.zeros(1, N, 20), "embed": torch.ones(1, N, 20)}, "hook_embed and embed are both embed"),
        ({"embed": "text"}, "embed is no array of numbers"),
        ({"embed": [[1.0], [1.0, 2.0]]}, "embed is no array of numbers"),
        ({5: torch.zeros(1)}, "arrays go by names"),
        ({"input_ids": torch.zeros(N), "embed": torch.zeros(1, N, 20)}, "should be whole numbers [batch, pos]"),
        ({"tokens": [[9] * N], "embed": torch.zeros(1, N, 20)}, "are not those in the file"),
        ({"attention_mask": [[0, 1, 1, 1, 1]], "embed": torch.zeros(1, N, 20)}, "attention_mask hides tokens"),
        ({"position_ids": [[1, 2, 3, 4, 5]], "embed": torch.zeros(1, N, 20)}, "does not count from 0"),
    ],
)  # fmt: skip
def test_what_is_no_recording_of_this_model(model, change, said):
    assert said in refusal(import_cache, change, model, random_ids(model.config, N))


def test_tokens_are_needed_and_are_those_of_the_model(model, own):
    arrays = {"embed": own["embed"]}
    assert "give them with --ids or --prompt" in refusal(import_cache, arrays, model)
    with pytest.raises(PromptError, match="outside 0…36"):
        import_cache(arrays, model, [1, 2, 3, 4, 99])
    with pytest.raises(PromptError, match="no tokenizer"):
        import_cache(arrays, model, "text")
    assert "different lengths" in refusal(import_cache, arrays, model, [[1, 2], [3]])
    ones = {"attention_mask": [[1] * N], "position_ids": [list(range(N))], "token_type_ids": [[0] * N]}
    same_as(import_cache(arrays | ones, model, random_ids(model.config, N)), own, 1)


def test_an_encoder_decoder_is_refused_and_an_encoder_is_not(tiny):
    assert "encoder-decoder" in refusal(import_cache, {"embed": torch.zeros(1)}, tiny(**TRANSLATOR), [1])
    model = tiny(**ENCODER)
    own = trace(model, [1, 2, 3])
    same_as(import_cache({"hidden_states.2": own[states(model.program, 2)[-1]]}, model, [1, 2, 3]), own, 1)


def test_experts_that_are_not_there_are_refused(tiny):
    model = tiny(dtype=torch.float32, **EXPERTS)
    chosen = trace(model, [1, 2])["blocks.0.mlp.expert_indices"]
    same_as(import_cache({"blocks.0.mlp.expert_indices": chosen}, model, [1, 2]), trace(model, [1, 2]), 1)
    assert "an expert that is not there" in refusal(
        import_cache, {"blocks.0.mlp.expert_indices": chosen + 4}, model, [1, 2]
    )


def test_a_batch_and_16_bits(tiny):
    model = tiny(dtype=torch.bfloat16, **MODERN)
    rows = [[1, 2, 3], [4, 5, 6]]
    own = trace(model, rows, keep=["*"])
    t = import_cache({"embed": own["embed"], "attentions.0": own["blocks.0.attn.pattern"].bfloat16()}, model, rows)
    assert t.dtype is torch.bfloat16
    assert t["embed"].dtype is torch.bfloat16
    assert t["blocks.0.attn.pattern"].dtype is torch.float32
    mixed = import_cache({"embed": own["embed"], "logits": own["logits"].double()}, model, rows)
    assert mixed.dtype is mixed["embed"].dtype is torch.float64


def test_numbers_that_are_not_finite_stay_and_are_told(model, own):
    spoilt = own["blocks.1.resid_pre"].clone()
    spoilt[0, 2, 3] = torch.nan
    t = import_cache({"hidden_states.1": spoilt}, model, random_ids(model.config, N))
    assert t["blocks.1.resid_pre"].isnan().sum() == 1
    assert any("not hold" in notice and "is finite" in notice for notice in t.notices)
    first = "are not those of tiny's own run, the first blocks.0.resid_post, which is finite in other places"
    assert any(first in notice for notice in t.notices)


def test_tokens_by_two_names_are_the_same_or_refused(model, own):
    ids = random_ids(model.config, N)
    both = {"embed": own["embed"], "input_ids": np.array(ids, np.uint16), "tokens": np.array([ids])}
    assert [token.id for token in import_cache(both, model).tokens[0]] == ids
    assert "input_ids and tokens are both" in refusal(import_cache, both | {"tokens": np.array(ids[::-1])}, model)


def test_folded_norms_and_other_weights_are_seen(model, own):
    cache = lensed(own) | {"blocks.0.attn.hook_pattern": own["blocks.0.attn.pattern"] * 1.5}
    t = import_cache(cache, model, random_ids(model.config, N))
    assert any("rows sum to 1" in notice for notice in t.notices)
    assert not all(check.ok for check in t.checks())
    centred = own["blocks.1.resid_mid"] - own["blocks.1.resid_mid"].mean(-1, keepdim=True)
    cache = lensed(own) | {"blocks.1.hook_resid_mid": centred}
    t = import_cache(cache, model, random_ids(model.config, N))
    assert any("from_pretrained_no_processing" in notice and "blocks.1.resid_mid" in notice for notice in t.notices)


def test_outputs_of_transformers_that_hold_nothing(model):
    for said, outputs in {
        "hold no hidden states": {},
        "attentions[0] is nothing (load the model with": {"hidden_states": None, "attentions": (None, None)},
        "hidden_states[0] is no tensor": {"hidden_states": ((torch.zeros(1),),)},
    }.items():
        assert said in refusal(import_transformers, SimpleNamespace(**outputs), model, [1, 2])
    assert "arrays by name" in refusal(import_cache, [1, 2], model, [1, 2])


# --- files ----------------------------------------------------------------------------------------------------


@pytest.fixture
def arrays(model, own) -> dict[str, np.ndarray]:
    found = {name: own[name].numpy() for name in ("embed", "blocks.0.resid_mid", "blocks.1.attn.pattern", "logits")}
    return found | {"input_ids": np.array([random_ids(model.config, N)])}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed, None], ids=["npz", "compressed", "safetensors"])
def test_files_of_all_kinds_go_through_a_trace_file_into_the_app(model, own, arrays, tmp_path, save):
    path = tmp_path / ("a.npz" if save else "a.safetensors")
    if save:
        save(path, **arrays)
    else:
        save_file({name: torch.tensor(array) for name, array in arrays.items()}, path)
    made = import_file(path, model)
    same_as(made.trace, own, 4)
    assert made.sites["blocks.1.attn.pattern"] == ("blocks.1.attn.pattern",)
    made.trace.save(tmp_path / "out.trace.safetensors")
    same_as(open_trace(tmp_path / "out.trace.safetensors"), own, 4)
    opened = open_trace(tmp_path / "out.trace.safetensors", model)
    assert torch.equal(opened["blocks.0.resid_mid"], own["blocks.0.resid_mid"])
    assert opened["blocks.1.mlp_out"].shape == own["blocks.1.mlp_out"].shape  # with weights the rest can be derived
    told = Session().open({"file": str(tmp_path / "out.trace.safetensors")}, lambda *_: None)
    assert told["notices"][0].startswith(f"imported from {path.name}: ")
    assert [row["kept"] for row in told["steps"] if row["site"] == "blocks.1.attn.pattern"] == [True]


def test_other_byte_orders_and_layouts_are_the_same_numbers(model, own, arrays, tmp_path):
    odd = {"embed": np.asfortranarray(arrays["embed"].astype(">f4")), "input_ids": arrays["input_ids"].astype(">i2")}
    np.savez(tmp_path / "a.npz", **odd)
    same_as(import_file(tmp_path / "a.npz", model).trace, own, 1)


def test_our_own_export_reads_back(model, own, tmp_path):
    arrays = {name: tensor.numpy() for name, tensor in {**own.passes[0].given, **own.passes[0].kept}.items()}
    np.savez(tmp_path / "a.npz", __meta__=np.array('{"a": 1}'), **arrays)
    made = import_file(tmp_path / "a.npz", model)
    same_as(made.trace, own, len(own.passes[0].kept))
    assert made.left_out == {}


def test_a_config_alone_will_do(model, own, arrays, tmp_path):
    fields = {key: value for key, value in model.config.to_json().items() if key != "name"}
    (tmp_path / "bare").mkdir()
    told = {"model_type": "layerstep", "format_version": 1, **fields}
    (tmp_path / "bare" / "config.json").write_text(json.dumps(told))
    np.savez(tmp_path / "a.npz", **arrays)
    t = import_file(tmp_path / "a.npz", tmp_path / "bare").trace
    same_as(t, own, 4)
    assert t.fingerprint == ""
    t.save(tmp_path / "out.safetensors")
    assert open_trace(tmp_path / "out.safetensors", model).weights is model.weights
    import_file(tmp_path / "a.npz", model).trace.save(tmp_path / "known.safetensors")
    header = open_trace(tmp_path / "known.safetensors")
    assert header.fingerprint == own.fingerprint


def test_of_a_hub_model_what_is_in_the_cache_will_do(model, own, arrays, tmp_path, monkeypatch):
    test_a_config_alone_will_do(model, own, arrays, tmp_path)
    monkeypatch.setattr("engine.checkpoints.hub.cached", lambda named: tmp_path / "bare")
    same_as(import_file(tmp_path / "a.npz", "some/model").trace, own, 4)


def test_a_trace_is_its_own_whatever_becomes_of_the_arrays(model, own):
    arrays = {"embed": own["embed"].numpy().copy(), "logits": own["logits"].clone()}
    t = import_cache(arrays, model, random_ids(model.config, N))
    arrays["embed"][:] = 0
    arrays["logits"].zero_()
    same_as(t, own, 2)


def npy(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    body = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H", len(body)) + body + data


def zipped(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return out.getvalue()


def shaped(shape: str, dtype: str = "'<f4'") -> str:
    return f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "neither an npz nor"),
        (b"hello", "neither an npz nor"),
        (b"PK\x03\x04", "damaged, or no npz"),
        (b"\x80\x04\x95" + pickle.dumps([1]), "neither an npz nor"),
        (zipped(embed=npy(shaped("(1,)", "'|O'"), pickle.dumps([1]))), "pickled object, which is never loaded"),
        (zipped(embed=npy(shaped("(1099511627776,)"))), "does not fit its size"),
        (zipped(embed=npy(shaped("(4611686018427387904, 4)"))), "does not fit its size"),
        (zipped(embed=npy(shaped("(-1,)"))), "damaged"),
        (zipped(embed=npy(shaped("(1, 5, 20)"), bytes(399))), "does not fit its size"),
        (zipped(embed=npy(shaped("(100,)", "'<c16'"), bytes(1600))), "embed is [100]"),
        (zipped(embed=npy(shaped("(1,)", "[('a', '|O')]"))), "pickled object"),
        (zipped(embed=npy("__import__('os').system('true')")), "damaged"),
        (zipped(embed=npy("(" * 100)), "damaged"),
        (zipped(embed=b"no npy at all"), "embed is no array"),
        (zipped(embed=npy(shaped("(1,)"), bytes(4), b"\x03\x00")), "npy of version (3, 0)"),
        (zipped(**{"../../etc/passwd": npy(shaped("(1,)"), bytes(4))}), "nothing here fits"),
        (zipped(**{"a\x1b[31m": npy(shaped("(1,)"), bytes(4))}), "nothing here fits"),
        (struct.pack("<Q", 10**15) + b"{", "damaged"),
        (struct.pack("<Q", 2) + b"{}", "there are no arrays"),
    ],
)  # fmt: skip
def test_hostile_files(model, tmp_path, data, said):
    path = tmp_path / "a.npz"
    path.write_bytes(data)
    told = refusal(import_file, path, model, [1, 2, 3, 4, 5])
    assert said in told
    assert told.count(display(str(path))) <= 1  # the file is named once


def test_members_that_are_no_arrays_are_named(model, tmp_path):
    (tmp_path / "a.npz").write_bytes(zipped(readme=b"hello"))
    assert "readme is no array, and an npz holds nothing else" in refusal(import_file, tmp_path / "a.npz", model, [1])


def test_places_that_are_no_files_and_kinds_that_run_code(model, tmp_path):
    assert "does not exist" in refusal(import_file, tmp_path / "no.npz", model)
    assert "no ordinary file" in refusal(import_file, tmp_path, model)
    assert "only .npz and .safetensors are read" in refusal(import_file, tmp_path / "a.pt", model)
    assert "a␀b.npz" in refusal(import_file, "a\0b.npz", model)


def test_a_bomb_is_refused_before_it_is_unpacked(model, tmp_path):
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("embed.npy", npy(shaped("(1, 5, 1000000)"), bytes(20_000_000)))
    assert path.stat().st_size < 1_000_000
    tracemalloc.start()
    assert "is [1, 5, 1000000]" in refusal(import_file, path, model, [1, 2, 3, 4, 5])
    assert tracemalloc.get_traced_memory()[1] < 4_000_000
    tracemalloc.stop()


def test_a_table_of_a_million_members_is_not_read(model, tmp_path):
    path = tmp_path / "many.npz"
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 65535, 65535, 200_000_000, 4, 0)
    path.write_bytes(b"PK\3\4" + end)
    assert "more than 20,000 arrays" in refusal(import_file, path, model)
    locator = b"PK\6\7" + bytes(16)
    path.write_bytes(b"PK\3\4" + locator + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, 50, 4, 0))
    assert "more than 20,000 arrays" in refusal(import_file, path, model)


def attempted(path: Path, model: Model, ids: list[int]) -> Trace | None:
    """The trace of a file; None where it was refused in one line."""
    try:
        return import_file(path, model, ids).trace
    except LayerstepError as error:
        if (said := str(error)) != display(said) or len(said) > 900:
            raise
        return None


def damaged(data: bytes, draw: random.Random) -> bytes:
    """The file with some bytes changed, cut out, doubled, or its end missing."""
    changed = bytearray(data)
    kind = draw.randrange(4)
    at = draw.randrange(len(changed))
    if kind == 0:
        for _ in range(draw.choice([1, 1, 2, 8])):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
    elif kind == 1:
        del changed[at:]
    elif kind == 2:
        del changed[at : at + draw.randrange(1, 40)]
    else:
        changed[at:at] = changed[at : at + draw.randrange(1, 40)]
    return bytes(changed)


@pytest.mark.parametrize("kind", ["npz", "compressed", "safetensors"])
def test_damaged_files_are_one_line_or_what_was_saved(model, own, arrays, tmp_path, kind):
    source, path = tmp_path / "a.bin", tmp_path / "b.npz"
    small = {"embed": arrays["embed"], "blocks.1.attn.pattern": arrays["blocks.1.attn.pattern"]}
    if kind == "safetensors":
        save_file({name: torch.tensor(array) for name, array in small.items()}, source)
    else:
        with source.open("wb") as file:
            (np.savez if kind == "npz" else np.savez_compressed)(file, **small)
    data, draw, ids, refused = source.read_bytes(), random.Random(kind), random_ids(model.config, N), 0
    bare = type(model)(model.config, model.program, {}, None, model.device, model.dtype)
    for _ in range(100):
        path.write_bytes(damaged(data, draw))
        t = attempted(path, bare, ids)
        refused += t is None
        if t is not None and kind != "safetensors":  # which has no checksums
            assert all(torch.equal(tensor, own[name]) for name, tensor in t.passes[0].kept.items())
    assert refused > 40
