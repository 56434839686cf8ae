"""OPT beside transformers."""

import pytest
import torch
from against import check_family, ids_for, random_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from rotaries import N_CTX, places
from spellings import assert_refused, read_config, respell
from transformers import OPTConfig

from engine import load_model, trace

OPT_350M = {
    "activation_dropout": 0.0, "activation_function": "relu", "architectures": ["OPTForCausalLM"],
    "attention_dropout": 0.0, "bos_token_id": 2, "do_layer_norm_before": False, "dropout": 0.1, "eos_token_id": 2,
    "ffn_dim": 4096, "hidden_size": 1024, "init_std": 0.02, "layerdrop": 0.0, "max_position_embeddings": 2048,
    "model_type": "opt", "num_attention_heads": 16, "num_hidden_layers": 24, "pad_token_id": 1, "prefix": "</s>",
    "torch_dtype": "float16", "transformers_version": "4.20.0.dev0", "use_cache": True, "vocab_size": 50272,
    "word_embed_proj_dim": 512,
}  # fmt: skip
OPT_13B = OPT_350M | {
    "_remove_final_layer_norm": False, "do_layer_norm_before": True, "ffn_dim": 20480, "hidden_size": 5120,
    "num_attention_heads": 40, "num_hidden_layers": 40, "output_projection": True, "word_embed_proj_dim": 5120,
}  # fmt: skip


@st.composite
def opts(draw: st.DrawFn) -> OPTConfig:
    heads, d_head = draw(st.integers(1, 4)), draw(st.sampled_from([10, 13, 16]))
    return OPTConfig(
        vocab_size=draw(st.integers(20, 50)),
        hidden_size=heads * d_head,
        ffn_dim=draw(st.integers(8, 40)),
        num_hidden_layers=draw(st.integers(1, 3)),
        num_attention_heads=heads,
        max_position_embeddings=N_CTX,
        activation_function=draw(st.sampled_from(["relu", "gelu", "gelu_new"])),
        do_layer_norm_before=draw(st.booleans()),
        _remove_final_layer_norm=draw(st.booleans()),
        word_embed_proj_dim=draw(st.sampled_from([heads * d_head, 11, 24])),
        enable_bias=draw(st.booleans()),
        layer_norm_elementwise_affine=draw(st.booleans()),
        tie_word_embeddings=draw(st.booleans()),
    )


dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@settings(max_examples=40)
@given(config=opts(), seed=st.integers(0, 2**16), dtype=dtypes, start=st.sampled_from([None, None, 12, N_CTX - 9]))
def test_opt(config, seed, dtype, start):
    check_family(config, seed=seed, dtype=dtype, positions=places(start))


def tiny(**more) -> OPTConfig:
    sizes = {"vocab_size": 40, "hidden_size": 24, "ffn_dim": 22, "num_hidden_layers": 2, "num_attention_heads": 3}
    return OPTConfig(**sizes | {"max_position_embeddings": 16} | more)


def test_positions_are_counted_from_row_2():
    reference = random_reference(tiny())
    rows = reference.model.decoder.embed_positions.weight
    with saved(reference) as folder:
        t = trace(load_model(folder, dtype="float64"), list(range(3, 19)))
    assert rows.shape == (18, 24)
    assert torch.equal(t["pos_embed"][0], rows[2:])


def test_the_350m_model_embeds_narrowly_and_norms_after_each_sum():
    with saved(random_reference(tiny(word_embed_proj_dim=10, do_layer_norm_before=False))) as folder:
        t = trace(load_model(folder), list(range(3, 9)))
    sites = {step.site.name for step in t.program.steps}
    assert (t["embed"].shape, t["embed_in"].shape, t["embed_out"].shape) == ((1, 6, 10), (1, 6, 24), (1, 6, 10))
    assert "ln_final.normalized" not in sites
    order = [step.site.name for step in t.program.steps if step.site.name.startswith("blocks.1.")]
    assert order.index("blocks.1.resid_mid") < order.index("blocks.1.ln1.normalized") < order.index("blocks.1.mlp.pre")
    assert order.index("blocks.1.resid_post") < order.index("blocks.1.ln2.normalized")


def test_files_of_the_bare_decoder_and_a_head_that_repeats_the_embedding_open_alike():
    from safetensors.torch import load_file, save_file

    config = tiny()
    with saved(random_reference(config)) as folder:
        before, file = load_model(folder), folder / "model.safetensors"
        tensors = {name.removeprefix("model."): tensor for name, tensor in load_file(file).items()}
        save_file(tensors | {"lm_head.weight": tensors["decoder.embed_tokens.weight"].clone()}, file)
        after = load_model(folder)
    ids = ids_for(config, 9)
    assert torch.equal(trace(before, ids)["logits"], trace(after, ids)["logits"])
    assert after.report.ignored == {"lm_head.weight": 1}


def test_published_configs_are_read():
    small, large = read_config(OPT_350M), read_config(OPT_13B)
    assert (small.norm_place, small.final_norm, small.d_embed, small.tied) == ("post", False, 512, True)
    assert (large.norm_place, large.final_norm, large.d_embed) == ("pre", True, None)
    assert (large.d_head, large.position_offset, large.n_ctx, large.mlp_bias) == (128, 2, 2048, True)


def test_absent_keys_have_the_familys_defaults():
    needed = ("ffn_dim", "hidden_size", "model_type", "num_attention_heads", "num_hidden_layers", "vocab_size")
    ours, theirs = read_config({key: OPT_350M[key] for key in needed}), OPTConfig()
    assert (ours.n_ctx, ours.norm_eps, ours.tied) == (theirs.max_position_embeddings, 1e-5, theirs.tie_word_embeddings)
    assert (ours.norm_place, ours.final_norm, ours.norm_weight, ours.attn_bias) == ("pre", True, True, True)
    assert (ours.activation, ours.bos_token_id, ours.eos_token_id, ours.pad_token_id) == ("relu", 2, 2, 1)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden_size": 1000}, ["hidden_size 1000", "num_attention_heads 16"]),
        ({"do_layer_norm_before": "no"}, ["do_layer_norm_before 'no'"]),
        ({"_remove_final_layer_norm": 1}, ["_remove_final_layer_norm 1"]),
        ({"word_embed_proj_dim": -1}, ["d_embed", "-1"]),
        ({"word_embed_proj_dim": "512"}, ["d_embed", "512"]),
        ({"enable_bias": "yes"}, ["bias", "yes"]),
        ({"layer_norm_elementwise_affine": 2}, ["norm_weight"]),
        ({"max_position_embeddings": 0}, ["max_position_embeddings"]),
        ({"activation_function": "mish"}, ["activation_function", "mish"]),
        ({"ffn_dim": None}, ["ffn_dim"]),
        ({"scale_embeddings": True}, ["scale_embeddings True"]),
        ({"rope_theta": 1e4}, ["rope_theta", "opt"]),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change, named):
    assert_refused(OPT_350M | change, *named)


def test_a_table_of_positions_that_lacks_the_two_first_rows_is_refused():
    from safetensors.torch import load_file, save_file

    from engine.errors import CheckpointError

    with saved(random_reference(tiny())) as folder:
        tensors, name = load_file(folder / "model.safetensors"), "model.decoder.embed_positions.weight"
        save_file(tensors | {name: tensors[name][2:].clone()}, folder / "model.safetensors")
        with pytest.raises(CheckpointError, match=r"embed_positions.weight is \[16, 24\].*asks for \[18, 24\]"):
            load_model(folder)


def test_a_config_of_transformers_4_is_the_same():
    def older(raw):
        raw.update(torch_dtype=raw.pop("dtype"), activation_dropout=0.0, prefix="</s>")

    with saved(random_reference(tiny())) as folder:
        before = load_model(folder).config
        respell(folder, change=older)
        assert load_model(folder).config == before
