"""Whole models against other implementations: NumPy by hand, plain torch, and transformers."""

import warnings

import numpy as np
import pytest
import torch
from by_hand import forward, position_tables
from hypothesis import given, settings
from hypothesis import strategies as st
from plain import Classic, Modern, read_folder
from tiny import CLASSIC, GPT2, INTERLEAVED, MODERN, PLAIN, gap, plain_configs, random_ids, random_model

from engine import Model, ModelConfig, load_model, trace
from engine.samples import ROOTS

EXACT = 1e-12


# ------------------------------------------------------------------------------------------------- by hand


@given(config=plain_configs(), seed=st.integers(0, 99), n=st.integers(1, 7), batch=st.integers(1, 2))
@settings(max_examples=60)
def test_every_site_of_every_architecture_is_what_numpy_says(config, seed, n, batch):
    model = random_model(config, seed)
    prompts = [random_ids(config, n, seed + row) for row in range(batch)]
    t = trace(model, prompts, keep=["*"])
    weights = {name: weight.numpy() for name, weight in model.weights.items()}
    tokens = np.array(prompts)
    # Position tables are float32 by rule; everything after them is compared in float64.
    exact = position_tables(config, np.broadcast_to(np.arange(n), tokens.shape))
    for name, table in exact.items():
        assert gap(t[name], torch.from_numpy(table)) < 3e-6
    expected = forward(config, weights, tokens, {name: t[name].double().numpy() for name in exact})
    assert set(expected) == {step.site.name for step in model.program.steps}
    for name, values in expected.items():
        assert gap(t[name], torch.from_numpy(values)) <= EXACT, name


def test_tiny_models_attend_far_from_uniformly(tiny):
    # What the other tests rest on: with attention near uniform, many faults would not show.
    for traits in PLAIN.values():
        model = tiny(**traits)
        t = trace(model, random_ids(model.config, 12))
        for layer in range(model.config.n_layers):
            assert t[f"blocks.{layer}.attn.pattern[q=11]"].amax(-1).mean() > 0.4


# --------------------------------------------------------------------------------------------- plain torch


def run_plain(plain: torch.nn.Module, model: Model, ids: torch.Tensor) -> float:
    plain.double().load_state_dict(dict(model.weights))
    with torch.no_grad():
        return gap(trace(model, ids)["logits"], plain(ids))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
def test_the_model_of_2017(tiny, seed, causal):
    model = tiny(seed=seed, **CLASSIC, causal=causal)
    c = model.config
    plain = Classic(c.d_vocab, c.d_model, c.n_layers, c.n_heads, c.d_head, c.d_mlp, c.norm_eps, causal)
    ids = torch.tensor([random_ids(c, 11, seed), random_ids(c, 11, seed + 50)])
    assert run_plain(plain, model, ids) <= EXACT


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("traits", [MODERN, INTERLEAVED], ids=["half", "interleaved"])
def test_the_modern_model(tiny, seed, causal, traits):
    model = tiny(seed=seed, **traits, causal=causal)
    c = model.config
    plain = Modern(
        c.d_vocab, c.d_model, c.n_layers, c.n_heads, c.kv_heads, c.d_head, c.d_mlp, c.norm_eps, c.rotary.theta,
        c.tied, c.rotary.style == "interleaved", causal,
    )  # fmt: skip
    ids = torch.tensor([random_ids(c, 11, seed), random_ids(c, 11, seed + 50)])
    assert run_plain(plain, model, ids) <= EXACT


# -------------------------------------------------------------------------------------------- transformers

LLAMAS = [
    {"num_attention_heads": 4, "num_key_value_heads": 4, "tie_word_embeddings": True},
    {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False},
    {"num_attention_heads": 6, "num_key_value_heads": 1, "head_dim": 10, "rope_theta": 500_000.0},
    {"num_attention_heads": 4, "num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True, "head_dim": 16},
]


@pytest.fixture(scope="module")
def llamas(tmp_path_factory):
    """Random Llama models of transformers, each with the folder it was saved to."""
    from transformers import LlamaConfig, LlamaForCausalLM

    made = []
    for seed, traits in enumerate(LLAMAS):
        config = LlamaConfig(
            vocab_size=61, hidden_size=48, intermediate_size=44, num_hidden_layers=3, max_position_embeddings=64,
            rms_norm_eps=1e-5, attn_implementation="eager", bos_token_id=1, eos_token_id=2, **traits,
        )  # fmt: skip
        torch.manual_seed(seed)
        theirs = LlamaForCausalLM(config).eval().requires_grad_(False)
        for name, weight in theirs.named_parameters():
            if weight.dim() == 2:
                torch.nn.init.normal_(weight, std=(2 if "self_attn" in name else 1) / weight.shape[1] ** 0.5)
            else:
                torch.nn.init.normal_(weight, 1 if "norm" in name else 0, 0.2)
        folder = tmp_path_factory.mktemp("llama")
        theirs.save_pretrained(folder)
        made.append((theirs, folder))
    return made


# transformers takes norms, rotary tables and softmax in float32 even where the model is float64.
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 2e-6), ("float32", 1e-4)])
@pytest.mark.parametrize("which", range(len(LLAMAS)))
def test_llama_folders_against_transformers(llamas, which, dtype, tolerance):
    theirs, folder = llamas[which]
    theirs = theirs.to(getattr(torch, dtype))
    model = load_model(folder, device="cpu", dtype=dtype)
    ids = torch.tensor([random_ids(model.config, 13, which), random_ids(model.config, 13, which + 50)])
    out = theirs(ids, output_hidden_states=True, output_attentions=True)
    t = trace(model, ids)
    assert gap(t["logits"], out.logits) <= tolerance
    n = model.config.n_layers
    for layer in range(n):
        assert gap(t[f"blocks.{layer}.resid_pre"], out.hidden_states[layer]) <= tolerance
        assert gap(t[f"blocks.{layer}.attn.pattern"], out.attentions[layer]) <= tolerance
    assert gap(t["ln_final.normalized"], out.hidden_states[n]) <= tolerance


@pytest.mark.parametrize("which", range(len(LLAMAS)))
def test_llama_config_fields(llamas, which):
    theirs, folder = llamas[which]
    c, model = theirs.config, load_model(folder, device="cpu")
    ours = model.config
    assert (ours.d_vocab, ours.d_model, ours.d_mlp, ours.n_layers) == (61, 48, 44, 3)
    assert (ours.n_heads, ours.n_kv_heads) == (c.num_attention_heads, c.num_key_value_heads)
    assert ours.d_head == LLAMAS[which].get("head_dim", 48 // c.num_attention_heads)  # an explicit head_dim wins
    assert (ours.tied, ours.attn_bias) == (c.tie_word_embeddings, c.attention_bias)
    assert ours.rotary.theta == LLAMAS[which].get("rope_theta", 10_000.0)
    assert (ours.bos_token_id, ours.eos_token_id, ours.pad_token_id) == (1, 2, None)
    assert ("embed.weight" in model.weights, "unembed.weight" in model.weights) == (True, not ours.tied)


@pytest.fixture(scope="module")
def gpt2():
    """A random GPT-2 of transformers and the same weights under the engine's names."""
    from transformers import GPT2Config, GPT2LMHeadModel

    theirs_config = GPT2Config(
        vocab_size=53, n_positions=32, n_embd=24, n_layer=3, n_head=4, attn_implementation="eager", bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = GPT2LMHeadModel(theirs_config).double().eval().requires_grad_(False)
    for name, weight in theirs.named_parameters():
        if weight.dim() == 2 and "wte" not in name:
            torch.nn.init.normal_(weight, std=1.5 / weight.shape[0] ** 0.5)  # Conv1D: [in, out]
        else:
            torch.nn.init.normal_(weight, 1 if "ln_" in name and "weight" in name else 0, 0.2)
    state = theirs.transformer.state_dict()
    weights = {
        "embed.weight": state["wte.weight"], "pos_embed.weight": state["wpe.weight"],
        "ln_final.weight": state["ln_f.weight"], "ln_final.bias": state["ln_f.bias"],
    }  # fmt: skip
    for layer in range(3):
        at, to = f"h.{layer}", f"blocks.{layer}"
        for kind in ("weight", "bias"):
            for part, value in zip("qkv", state[f"{at}.attn.c_attn.{kind}"].split(24, dim=-1), strict=True):
                weights[f"{to}.attn.{part}.{kind}"] = value.t()
            names = {"attn.out": "attn.c_proj", "mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj"}
            for ours, name in names.items():
                weights[f"{to}.{ours}.{kind}"] = state[f"{at}.{name}.{kind}"].t()
            for ours, name in {"ln1": "ln_1", "ln2": "ln_2"}.items():
                weights[f"{to}.{ours}.{kind}"] = state[f"{at}.{name}.{kind}"]
    config = ModelConfig(
        name="gpt2", d_vocab=53, d_model=24, n_layers=3, n_heads=4, d_head=6, d_mlp=96, n_ctx=32, **GPT2
    )
    return theirs, Model.from_weights(config, weights)


def test_gpt2_against_transformers(gpt2):
    theirs, model = gpt2
    ids = torch.tensor([random_ids(model.config, 17), random_ids(model.config, 17, 1)])
    out = theirs(ids, output_hidden_states=True, output_attentions=True)
    t = trace(model, ids)
    assert gap(t["logits"], out.logits) <= EXACT
    for layer in range(3):
        assert gap(t[f"blocks.{layer}.resid_pre"], out.hidden_states[layer]) <= EXACT
        assert gap(t[f"blocks.{layer}.attn.pattern"], out.attentions[layer]) <= EXACT
    assert gap(t["ln_final.normalized"], out.hidden_states[3]) <= EXACT


def test_gpt2_with_padding_against_transformers(gpt2):
    # Left padding, with the positions that transformers is given by hand.
    theirs, model = gpt2
    short, long = random_ids(model.config, 5), random_ids(model.config, 9, 1)
    padded = torch.tensor([[0] * 4 + short, long])
    mask = torch.tensor([[0] * 4 + [1] * 5, [1] * 9])
    out = theirs(padded, attention_mask=mask, position_ids=(mask.cumsum(-1) - 1).clamp(min=0))
    t = trace(model, [short, long])
    assert gap(t["logits"][0, 4:], out.logits[0, 4:]) <= EXACT
    assert gap(t["logits"][1], out.logits[1]) <= EXACT


# ------------------------------------------------------------------------------------------- shipped samples

PROMPTS = [[5, 9, 300, 12, 7, 40, 41, 300, 12, 77, 3], [11], [8, 300, 12, 7, 8, 300, 12, 7, 8, 300, 12]]


def sample(name: str):
    """The folder of a shipped sample; a failure where it is missing."""
    for root in ROOTS:
        if (root / name / "config.json").is_file():
            return root / name
    return pytest.fail(f"sample model {name!r} is missing")


@pytest.mark.parametrize("name", ["modern", "classic"])
def test_samples_against_plain_torch(name):
    folder = sample(name)
    plain = read_folder(folder).double()
    model = load_model(name, device="cpu", dtype="float64")
    for ids in PROMPTS:
        assert gap(trace(model, ids)["logits"], plain(torch.tensor([ids]))) <= EXACT
    # And as it is shipped, in the file's own dtype: equal to rounding, with the same token on top.
    model = load_model(name, device="cpu")
    for ids in PROMPTS:
        ours, exact = trace(model, ids)["logits"], plain(torch.tensor([ids]))
        assert gap(ours, exact) <= 1e-4
        assert torch.equal(ours[0].argmax(-1), exact[0].argmax(-1))


def test_the_modern_sample_is_an_ordinary_llama_folder():
    from transformers import AutoModelForCausalLM

    folder = sample("modern")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        theirs = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float64)
    theirs.requires_grad_(False)
    model = load_model("modern", device="cpu", dtype="float64")
    for ids in PROMPTS:
        out = theirs(torch.tensor([ids]), output_attentions=True)
        t = trace(model, ids)
        assert gap(t["logits"], out.logits) <= 2e-6
        for layer in range(model.config.n_layers):
            assert gap(t[f"blocks.{layer}.attn.pattern"], out.attentions[layer]) <= 2e-6
