"""What today's architectures bring along: angles by length, encoders beside decoders, experts, pooling."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny import EXPERTS, LONGER, SENTENCE, TRANSLATOR, gap, random_ids, tiny

from engine import extend, open_trace, trace
from engine.errors import TraceFileError
from engine.ops.base import PassInfo
from engine.ops.embedding import SinusoidalPositions
from engine.ops.experts import ExpertProject
from engine.ops.pooling import Pool
from engine.tracefile import read, write

EXACT = 1e-12
SHORT, LONG = 5, 14  # on either side of the 8 positions that LONGER was first trained on


# --------------------------------------------------------------------------------- angles by the prompt's length


@pytest.mark.parametrize("side", ["left", "right"])
def test_each_row_of_a_batch_turns_by_the_angles_of_its_own_length(side):
    model = tiny(**LONGER)
    prompts = [random_ids(model.config, n, n) for n in (SHORT, LONG)]
    batch = trace(model, prompts, padding=side)
    for row, prompt in enumerate(prompts):
        alone = trace(model, prompt)
        n = len(prompt)
        real = slice(LONG - n, LONG) if side == "left" else slice(0, n)
        assert gap(batch["logits"][row, real], alone["logits"][0]) <= EXACT


@pytest.mark.parametrize("n", [SHORT, LONG])
def test_a_saved_trace_knows_which_angles_it_was_turned_by(tmp_path, n):
    model = tiny(**LONGER)
    t = trace(model, random_ids(model.config, n), keep=["logits"])
    t.save(tmp_path / "t.safetensors")
    opened = open_trace(tmp_path / "t.safetensors")
    for name in ("rotary_cos_grown", "rotary_sin_grown", "rotary_cos_long", "rotary_sin_long"):
        assert torch.equal(opened[name], t[name])


def test_the_two_regimes_do_differ():
    model = tiny(**LONGER)
    ids = random_ids(model.config, LONG)
    short, whole = trace(model, ids[:SHORT]), trace(model, ids)
    for name in ("rotary_cos_grown", "rotary_cos_long"):
        assert gap(whole[name][:, :SHORT], short[name]) > 1e-3


# -------------------------------------------------------------------------------------------- encoder and decoder


@pytest.mark.parametrize("keep", ["all", "residual", ["logits"]])
def test_the_encoder_runs_once_however_little_is_kept(keep):
    model = tiny(**TRANSLATOR)
    t = extend(model, trace(model, random_ids(model.config, 6), keep=keep), [3], keep=keep)
    ran = []
    extend(model, t, [4], keep=keep, watch=lambda done, total, site: ran.append(site))
    assert ran
    assert not model.program.once & set(ran)


def test_a_padded_batch_of_two_texts_is_opened_as_it_was_saved(tmp_path):
    model = tiny(**TRANSLATOR)
    sources = [random_ids(model.config, n, n) for n in (7, 3)]
    t = trace(
        model,
        sources,
        target=[[1, 2], [3, 4]],
        keep=["logits", "blocks.*.cross_attn.?", "encoder.*.attn.?", "*position_bias"],
    )
    t.save(tmp_path / "t.safetensors")
    opened = open_trace(tmp_path / "t.safetensors")
    assert not opened.passes[0].info.dense
    assert opened.source_tokens == t.source_tokens
    for site in ("blocks.1.cross_attn.pattern", "encoder.blocks.0.attn.pattern"):
        assert torch.equal(opened[site], t[site])
        assert not opened[site][1, :, :, :4].any()  # the second source is padded on the left
    assert all(check.ok for check in opened.checks())


def test_one_row_of_an_encoder_s_pattern_computes_one_row(monkeypatch):
    model = tiny(**TRANSLATOR)
    t = trace(model, random_ids(model.config, 9))
    whole = t["encoder.blocks.1.attn.pattern"]
    rows = []
    softmax = torch.Tensor.softmax
    monkeypatch.setattr(torch.Tensor, "softmax", lambda x, *a: rows.append(x.shape[-2]) or softmax(x, *a))
    fresh = trace(model, random_ids(model.config, 9))
    assert gap(fresh["encoder.blocks.1.attn.pattern[h=1,q=4]"], whole[:, 1, 4]) <= EXACT
    assert rows == [1]


@pytest.mark.parametrize(
    "change",
    [
        {"source_tokens": torch.tensor([[5000, 1, 2]])},
        {"source_tokens": torch.tensor([[-1, 1, 2]])},
        {"source_positions": torch.tensor([[0, 1, -2]])},
        {"source_positions": torch.tensor([[0, 1, 2**33]])},
    ],
)
def test_a_source_that_cannot_be_is_refused(tmp_path, change):
    model = tiny(**TRANSLATOR)
    path = tmp_path / "t.safetensors"
    trace(model, [3, 1, 2]).save(path)
    header, tensors = read(path)
    header = dict(header)
    if "source_tokens" in change:
        told = change["source_tokens"][0].tolist()
        header["source_tokens"] = [[row | {"id": i} for row, i in zip(header["source_tokens"][0], told, strict=True)]]
    held = {name: tensors[name] for name in tensors} | {f"{name}@0": value for name, value in change.items()}
    write(path, header, held, force=True)
    with pytest.raises(TraceFileError):
        open_trace(path)


def test_marian_s_table_of_positions_row_by_row():
    from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

    theirs = MarianSinusoidalPositionalEmbedding(512, 24).create_weight()
    ours = SinusoidalPositions(24, "halves").run(PassInfo(torch.float32), torch.arange(512)[None])
    assert gap(ours[0], theirs) <= 1e-7


# ------------------------------------------------------------------------------------------- experts and pooling


def test_a_saved_choice_of_an_expert_that_is_not_there_is_refused(tmp_path):
    model = tiny(**EXPERTS)
    path = tmp_path / "t.safetensors"
    trace(model, [3, 1, 2]).save(path)
    header, tensors = read(path)
    held = {name: tensors[name] for name in tensors}
    name = "blocks.0.mlp.expert_indices@0"
    write(path, dict(header), held | {name: torch.full_like(held[name], 99)}, force=True)
    with pytest.raises(TraceFileError, match="expert_indices names an expert that is not there"):
        open_trace(path)
    assert load_file(path)[name].max() == 99  # the file itself is whole


def test_experts_are_those_of_a_loop():
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(2, 5, 6, generator=draw)
    chosen = torch.randint(7, (2, 5, 3), generator=draw)
    matrices = [torch.randn(4, 6, generator=draw) for _ in range(7)]
    biases = [torch.randn(4, generator=draw) for _ in range(7)]
    y = ExpertProject("gate", 7, biased=True).run(PassInfo(x.dtype), x, chosen, *matrices, *biases)
    for b, p, c in np.ndindex(2, 5, 3):
        e = int(chosen[b, p, c])
        assert gap(y[b, p, c], matrices[e] @ x[b, p] + biases[e]) <= 1e-6


@pytest.mark.parametrize("how", ["cls", "last", "mean", "max"])
@pytest.mark.parametrize("places", [[-1, -1, 0, 1], [0, 1, -1, -1], [0, 1, 2, 3]], ids=["left", "right", "none"])
def test_pooling_leaves_padding_out(how, places):
    x = torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(0))
    real = x[0, torch.tensor(places) >= 0]
    expected = {"cls": real[0], "last": real[-1], "mean": real.mean(0), "max": real.max(0).values}[how]
    assert gap(Pool(how).run(PassInfo(x.dtype), x, torch.tensor([places]))[0], expected) <= 1e-6


def test_a_sentence_s_vector_has_length_1():
    model = tiny(**SENTENCE)
    t = trace(model, [random_ids(model.config, 6), [1, 2]])
    assert t["sentence"].shape == (2, 9)
    assert gap(t["sentence"].norm(dim=-1), torch.ones(2)) <= EXACT
    assert gap(t["sentence"][1], trace(model, [1, 2])["sentence"][0]) <= EXACT
