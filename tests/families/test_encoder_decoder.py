"""T5 and Marian beside transformers: encoder, decoder, and the attention from one to the other."""

from itertools import pairwise

import pytest
import torch
from against import BFLOAT16, EXACT, FLOAT32, FLOAT64, gap, ids_for, random_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from spellings import assert_refused, read_config
from transformers import AutoModelForSeq2SeqLM, MarianConfig, T5Config

from engine import Model, Trace, extend, load_model, open_trace, plan_trace, trace
from engine.errors import PromptError


@st.composite
def t5s(draw: st.DrawFn) -> T5Config:
    return T5Config(
        vocab_size=draw(st.integers(20, 50)),
        d_model=draw(st.sampled_from([10, 14, 18])),
        d_kv=draw(st.integers(3, 8)),
        d_ff=draw(st.integers(8, 30)),
        num_layers=draw(st.integers(1, 2)),
        num_decoder_layers=draw(st.integers(1, 2)),
        num_heads=draw(st.integers(1, 4)),
        relative_attention_num_buckets=draw(st.sampled_from([4, 8, 32])),
        relative_attention_max_distance=draw(st.sampled_from([32, 40, 128])),
        layer_norm_epsilon=draw(st.sampled_from([1e-6, 1e-5])),
        feed_forward_proj=draw(st.sampled_from(["relu", "gated-gelu", "gated-silu", "gelu_new"])),
        tie_word_embeddings=draw(st.booleans()),
        decoder_start_token_id=draw(st.sampled_from([0, 3])),
    )


@st.composite
def marians(draw: st.DrawFn) -> MarianConfig:
    heads, d_mlp, vocab = draw(st.integers(1, 3)), draw(st.integers(8, 30)), draw(st.integers(20, 50))
    return MarianConfig(
        vocab_size=vocab,
        d_model=heads * draw(st.sampled_from([10, 12])),
        encoder_layers=draw(st.integers(1, 2)),
        decoder_layers=draw(st.integers(1, 2)),
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=d_mlp,
        decoder_ffn_dim=d_mlp,
        activation_function=draw(st.sampled_from(["swish", "gelu", "relu"])),
        scale_embedding=draw(st.booleans()),
        max_position_embeddings=64,
        pad_token_id=vocab - 1,
        decoder_start_token_id=vocab - 1,
        eos_token_id=0,
        forced_eos_token_id=None,
    )


def reference_of(config, seed: int):
    """A random model; Marian's tables of positions are no parameters and stay, its logits get a bias."""
    gain = 0.7 if config.model_type == "t5" else 1.5  # T5's scores are not divided by √d_head
    model = random_reference(config, AutoModelForSeq2SeqLM, seed, gain)
    if config.model_type == "marian":
        with torch.no_grad():
            for stack in (model.model.encoder, model.model.decoder):
                stack.embed_positions.weight.copy_(stack.embed_positions.create_weight())
            model.final_logits_bias.copy_(torch.randn(model.final_logits_bias.shape).bfloat16())
    return model


@torch.no_grad()
def run_both(model, source: list[int], target: list[int]):
    return model(
        input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([target]), use_cache=False,
        output_hidden_states=True, output_attentions=True,
    )  # fmt: skip


def assert_equal(t: Trace, out, tolerance: float) -> None:
    """Hidden states and attentions of both stacks, the attention between them, and the logits."""
    for prefix, layers, states, attentions in (
        ("encoder.", t.config.encoder_layers, out.encoder_hidden_states, out.encoder_attentions),
        ("", t.config.n_layers, out.decoder_hidden_states, out.decoder_attentions),
    ):
        for layer in range(layers):
            assert gap(t[f"{prefix}blocks.{layer}.resid_pre"], states[layer]) <= tolerance
            assert gap(t[f"{prefix}blocks.{layer}.attn.pattern"], attentions[layer]) <= tolerance
        last = f"{prefix}ln_final.normalized" if t.config.final_norm else f"{prefix}blocks.{layers - 1}.ln2.normalized"
        assert gap(t[last], states[-1]) <= tolerance
    for layer, theirs in enumerate(out.cross_attentions):
        assert gap(t[f"blocks.{layer}.cross_attn.pattern"], theirs) <= tolerance
    assert gap(t["logits"], out.logits) <= tolerance


def assert_any_split_is_the_same(model: Model, source: list[int], target: list[int]) -> None:
    whole = trace(model, source, target=target[1:])
    for cuts in ([1], list(range(1, len(target)))):
        t = trace(model, source, target=target[1 : cuts[0]])
        for start, stop in pairwise([*cuts, len(target)]):
            t = extend(model, t, target[start:stop])
        for site in ("logits", "blocks.0.attn.pattern", "blocks.0.cross_attn.pattern", "encoder.blocks.0.attn.z"):
            assert t[site].shape == whole[site].shape
            assert gap(t[site], whole[site]) <= EXACT, site
    short_source, short_target = source[:3], target[:2]
    alone = trace(model, short_source, target=short_target[1:])["logits"]
    for side in ("left", "right"):
        batch = trace(model, [source, short_source], target=[target[1:], short_target[1:]], padding=side)
        rows = slice(-2, None) if side == "left" else slice(0, 2)
        assert gap(batch["logits"][1, rows], alone[0]) <= EXACT, side
        assert gap(batch["logits"][0], whole["logits"][0]) <= EXACT, side


def check(config, seed: int) -> None:
    reference = reference_of(config, seed)
    start = config.decoder_start_token_id
    source, target = ids_for(config, 9, seed), [start, *ids_for(config, 5, seed + 1)]
    with saved(reference) as folder:
        model = load_model(folder, device="cpu", dtype="float64")
        t = trace(model, source, target=target[1:])
        assert [token.id for token in t.tokens[0]] == target
        assert [token.id for token in t.source_tokens[0]] == source
        assert_equal(t, run_both(reference, source, target), FLOAT64)
        assert not [c.text for c in t.checks() if not c.ok]
        assert_any_split_is_the_same(model, source, target)
        for name, tolerance in (("float32", FLOAT32), ("bfloat16", BFLOAT16)):
            ours = trace(load_model(folder, device="cpu", dtype=name), source, target=target[1:])
            assert_equal(ours, run_both(reference.to(getattr(torch, name)), source, target), tolerance)
            reference = reference.double()


@settings(max_examples=40)
@given(config=t5s(), seed=st.integers(0, 2**16))
def test_t5(config, seed):
    check(config, seed)


@settings(max_examples=40)
@given(config=marians(), seed=st.integers(0, 2**16))
def test_marian(config, seed):
    check(config, seed)


@pytest.fixture(scope="module")
def t5(tmp_path_factory) -> Model:
    config = T5Config(vocab_size=30, d_model=14, d_kv=5, d_ff=20, num_layers=2, num_heads=3, decoder_start_token_id=0)
    with saved(reference_of(config, 0)) as folder:
        return load_model(folder, device="cpu")


def test_without_a_target_the_decoder_has_its_start_token_alone(t5):
    t = trace(t5, [4, 5, 6])
    assert [token.id for token in t.tokens[0]] == [0]
    assert t["logits"].shape == (1, 1, 30)
    assert t.config.predicts == "next token"
    assert len(t.top(3)) == 3


def test_a_decoded_token_does_not_run_the_encoder_again(t5):
    t = extend(t5, trace(t5, [4, 5, 6]), [7])
    assert not [name for name in t.passes[1].kept if name.startswith("encoder.")]
    assert torch.equal(t["encoder.blocks.1.attn.z@1"], t["encoder.blocks.1.attn.z@0"])
    assert torch.equal(t["blocks.0.cross_attn.k@1"], t["blocks.0.cross_attn.k@0"])
    assert t["blocks.1.cross_attn.pattern"].shape == (1, 3, 2, 3)
    assert t["blocks.1.cross_attn.pattern[h=2,q=1]"].shape == (1, 3)


def test_what_is_kept_and_saved(t5, tmp_path):
    whole = trace(t5, [4, 5, 6, 7], target=[8, 9])
    lean = trace(t5, [4, 5, 6, 7], target=[8, 9], keep="residual")
    for site in t5.program.sites:
        assert torch.equal(whole[site.name], lean[site.name]), site.name
    split = extend(t5, trace(t5, [4, 5, 6, 7], target=[8]), [9])
    split.save(tmp_path / "t.safetensors")
    opened = open_trace(tmp_path / "t.safetensors")
    assert opened.source_tokens == split.source_tokens
    for step in t5.program.steps:
        if step.on_path or step.site.name.endswith("pattern"):
            assert torch.equal(opened[step.site.name], split[step.site.name]), step.site.name


def test_the_plan_is_what_is_kept(t5):
    t = trace(t5, [4, 5, 6, 7])
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in t.passes[0].kept.values()}
    assert plan_trace(t5, 4).kept == sum(storages.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": [[1], [2]]}, "1 prompts and 2 targets"),
        ({"target": "words"}, "has no tokenizer"),
        ({"target": [30]}, "outside 0…29"),
        ({"positions": [0, 1, 2]}, "positions cannot be given"),
    ],
)
def test_targets_that_cannot_be(t5, options, message):
    with pytest.raises(PromptError, match=message):
        trace(t5, [4, 5, 6], **options)


def test_only_an_encoder_decoder_has_a_target():
    with pytest.raises(PromptError, match="modern is no encoder-decoder"):
        trace(load_model("modern"), "The server", target="crashed")


@given(st.sampled_from([4, 8, 32]), st.sampled_from([40, 128]), st.booleans())
def test_buckets_are_transformers_own(buckets, distance, both_ways):
    from transformers.models.t5.modeling_t5 import T5Attention

    from engine.ops.position_bias import RelativeBias

    ahead = torch.arange(-300, 301)
    theirs = T5Attention._relative_position_bucket(ahead, both_ways, buckets, distance)
    assert torch.equal(RelativeBias(buckets, distance, both_ways).bucket(ahead), theirs)


T5 = {"model_type": "t5", "vocab_size": 30, "d_model": 10, "d_kv": 4, "d_ff": 12, "num_layers": 1, "num_heads": 2}
MARIAN = {
    "model_type": "marian", "vocab_size": 30, "d_model": 12, "encoder_layers": 1, "decoder_layers": 2,
    "encoder_attention_heads": 3, "decoder_attention_heads": 3, "encoder_ffn_dim": 9, "decoder_ffn_dim": 9,
    "decoder_start_token_id": 29,
}  # fmt: skip


def test_version_1_0_scales_before_its_head_and_1_1_does_not():
    assert read_config(T5).logit_scale == 10**-0.5
    assert read_config(T5 | {"tie_word_embeddings": False}).logit_scale == 1.0


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (T5 | {"feed_forward_proj": "gated-mish"}, ("feed_forward_proj", "gated-mish")),
        (T5 | {"feed_forward_proj": 3}, ("feed_forward_proj",)),
        (T5 | {"is_encoder_decoder": False}, ("is_encoder_decoder",)),
        (T5 | {"relative_attention_num_buckets": 2}, ("relative_buckets is 2",)),
        (T5 | {"d_model": "10"}, ("d_model",)),
        (T5 | {"sparse_layers": 2}, ("'sparse_layers'", "refused")),
        (MARIAN | {"normalize_before": True}, ("normalize_before",)),
        (MARIAN | {"decoder_vocab_size": 31}, ("decoder_vocab_size 31",)),
        (MARIAN | {"decoder_ffn_dim": 10}, ("decoder_ffn_dim 10",)),
        (MARIAN | {"activation_function": "mish"}, ("activation_function", "mish")),
        (MARIAN | {"decoder_start_token_id": 30}, ("decoder_start_token_id is 30",)),
    ],
)
def test_configs_that_are_refused(raw, words):
    assert_refused(raw, *words)
