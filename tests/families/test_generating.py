"""Generating beside transformers' ``generate``, for every family: tokens, logits, and what sampling made of them.

In float64, so that no rounding decides between two tokens; transformers hands the logits over in float32.
"""

from contextlib import nullcontext

import pytest
import torch
import transformers
from against import EXACT, FLOAT64, gap, ids_for, random_reference, saved
from test_encoder_decoder import reference_of
from test_falcon import alibi_once
from test_sites import BOTH_KINDS, EXAMPLES, MASKED, auto_class

from engine import generate, load_model, trace
from engine.errors import PromptError
from engine.sampling import Sampling

TO_SEQUENCE = ("marian", "mt5", "t5")
NEW = 14
"""Tokens to generate: from the prompts here far past windows of 4, and within the 32 positions that are learned."""
WINDOW = {"sliding_window": 4}
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}
LONG = {"rope_type": "longrope", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 12}
VARIANTS = {
    "a window of 1": ("mistral", {"sliding_window": 1}),
    "a window of 2": ("mistral", {"sliding_window": 2}),
    "a window that the prompt just fills": ("mistral", {"sliding_window": 9}),
    "a window in phi3": ("phi3", WINDOW),
    "a window in starcoder2": ("starcoder2", WINDOW),
    "a window in qwen2": ("qwen2", BOTH_KINDS | {"use_sliding_window": True}),
    "a window in qwen3": ("qwen3", BOTH_KINDS | {"use_sliding_window": True}),
    "a window in smollm3": ("smollm3", BOTH_KINDS | {"use_sliding_window": True}),
    "all layers windowed": ("gemma2", {"layer_types": ["sliding_attention"] * 2}),
    "angles that change with the length": ("llama", {"rope_parameters": DYNAMIC, "max_position_embeddings": 12}),
    "angles that change once": (
        "llama",
        {"rope_parameters": LONG | {"short_factor": [1.0, 1.5, 2.0], "long_factor": [1.0, 4.0, 9.0]}},
    ),
}
"""Traits that no family's example has: (``model_type``, what differs)."""
CASES = {family: (family, {}) for family in sorted(set(EXAMPLES) - set(MASKED))} | VARIANTS
SAMPLINGS = [
    {"temperature": 1.0},
    {"temperature": 0.7, "top_k": 7, "repetition_penalty": 1.3},
    {"temperature": 1.5, "top_p": 0.8},
    {"temperature": 1.2, "min_p": 0.2},
    {"temperature": 0.8, "top_k": 20, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 0.8},
]
"""The temperatures as multiples of the logits' spread, which differs between families from 1 to 100."""


@pytest.fixture(scope="module", params=CASES)
def both(request):
    """A model as the engine opened it, and transformers' own; neither has an end token."""
    family, changes = CASES[request.param]
    reference = reference_for(family, **changes)
    with alibi_once() if family == "falcon" else nullcontext():
        yield opened(reference), reference


def reference_for(family, end=None, **changes):
    config = transformers.AutoConfig.for_model(family, **EXAMPLES[family] | changes)
    config.eos_token_id = config.get_text_config().eos_token_id = end
    config._experts_implementation = "eager"  # the others have no float64
    return reference_of(config, 0) if family in TO_SEQUENCE else random_reference(config, auto_class(family))


def opened(reference):
    with saved(reference, torch.float64) as folder:
        return load_model(folder, device="cpu", dtype="float64")


def prompt_for(model, n):
    return ids_for(type("sizes", (), {"vocab_size": model.config.d_vocab}), n)


def run_theirs(reference, ids, **options):
    """transformers' new ids, and its record of each step."""
    out = reference.generate(
        torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.int64), return_dict_in_generate=True,
        output_logits=True, output_scores=True, pad_token_id=0, **{"max_new_tokens": NEW} | options,
        use_cache=getattr(reference.config, "sliding_window", None) != 1,  # its cache of 0 rows keeps all of them
    )  # fmt: skip
    before = 1 if reference.config.is_encoder_decoder else len(ids)
    return out.sequences[0, before:].tolist(), out


def assert_same(generated, new, out):
    assert [g.token.id for g in generated] == new
    assert [g.step for g in generated] == list(range(len(new)))
    for g, logits, scores in zip(generated, out.logits, out.scores, strict=True):
        left = scores[0] > -torch.inf
        assert gap(g.logits, logits[0]) <= FLOAT64, g.step
        assert torch.equal(g.scores > -torch.inf, left), g.step
        assert gap(g.scores[left], scores[0][left]) <= FLOAT64, g.step
        assert g.prob == pytest.approx(float(scores[0].softmax(-1)[g.token.id]), abs=1e-5)


@pytest.mark.parametrize("penalty", [1.0, 1.4])
def test_greedy_with_and_without_a_penalty(both, penalty):
    ours, reference = both
    ids, greedy = prompt_for(ours, 9), Sampling(repetition_penalty=penalty)
    new, out = run_theirs(reference, ids, do_sample=False, repetition_penalty=penalty)
    generated = list(generate(ours, ids, max_new_tokens=NEW, sampling=greedy))
    assert_same(generated, new, out)
    assert [g.stopped for g in generated] == [""] * (NEW - 1) + ["length"]


def test_sampled_at_the_same_seed(both):
    ours, reference = both
    ids, chosen = prompt_for(ours, 3), []
    spread = float(trace(ours, ids)["logits[p=-1]"].std())
    for seed, options in enumerate(SAMPLINGS):
        options = options | {"temperature": options["temperature"] * spread}
        torch.manual_seed(seed)
        new, out = run_theirs(reference, ids, do_sample=True, **{"top_k": 0} | options)
        sampling = Sampling(**options, seed=seed)
        generated = list(generate(ours, ids, max_new_tokens=NEW, sampling=sampling, keep="residual"))
        assert_same(generated, new, out)
        chosen += generated
    assert any(g.token.id != g.scores.argmax() for g in chosen), "nothing but the likeliest was drawn"


def test_an_end_token_stops(both):
    ours, reference = both
    ids, sampling = prompt_for(ours, 5), Sampling(repetition_penalty=1.4)
    new, _ = run_theirs(reference, ids, do_sample=False, repetition_penalty=1.4)
    end = max(new, key=new.index)  # that which comes first as late as can be
    ends = [end, next(i for i in range(ours.config.d_vocab) if i not in new)]
    stopped, out = run_theirs(reference, ids, do_sample=False, repetition_penalty=1.4, eos_token_id=ends)
    assert stopped == new[: new.index(end) + 1]
    generated = list(generate(ours, ids, max_new_tokens=NEW, sampling=sampling, stop_tokens=ends))
    assert_same(generated, stopped, out)
    assert generated[-1].stopped == "end token"


@pytest.mark.parametrize("family", ["gemma3", "llama", "opt", "t5"])
def test_the_config_s_end_token_stops_unless_another_is_given(family):
    ours = opened(reference_for(family))
    ids = prompt_for(ours, 5)
    free = [g.token.id for g in generate(ours, ids, max_new_tokens=NEW)]
    reference = reference_for(family, end=free[2])
    ours = opened(reference)
    new, out = run_theirs(reference, ids, do_sample=False)
    generated = list(generate(ours, ids, max_new_tokens=NEW))
    assert_same(generated, new, out)
    assert generated[-1].stopped == "end token"
    assert [g.token.id for g in generate(ours, ids, max_new_tokens=NEW, stop_tokens=[])] == free


def test_a_trace_goes_on_and_equals_one_full_pass(both):
    ours, _ = both
    ids = prompt_for(ours, 5)
    generated = list(generate(ours, ids, max_new_tokens=NEW))
    again = list(generate(ours, generated[4].trace, max_new_tokens=NEW - 4))
    assert [g.token.id for g in again] == [g.token.id for g in generated[4:]]
    whole = generated[-1].trace
    ran = [token.id for token in whole.tokens[0]]
    fresh = trace(ours, ids, target=ran[1:]) if ours.config.encoder_layers else trace(ours, ran)
    other_angles = any(rotary.scaling in ("dynamic", "longrope") for rotary in ours.config.rotaries())
    assert any("one full pass would differ" in notice for notice in whole.notices) == other_angles
    for t in (whole, again[-1].trace):
        assert len(t.passes) == NEW
        for name in ("logits", *(f"blocks.{layer}.attn.pattern" for layer in range(ours.config.n_layers))):
            assert gap(t[name], (whole if other_angles else fresh)[name]) <= EXACT, name


@pytest.mark.parametrize("family", ["gpt2", "gpt_bigcode", "opt"])
def test_learned_positions_end_with_the_last(family):
    reference = reference_for(family)
    ours = opened(reference)
    ids = prompt_for(ours, 9)
    generated = list(generate(ours, ids, max_new_tokens=100))
    places = 32 - len(ids)
    assert [g.stopped for g in generated] == [""] * places + ["context"]
    new, out = run_theirs(reference, ids, do_sample=False, max_new_tokens=places + 1)
    assert_same(generated, new, out)


def test_phi3_keeps_its_keys_where_transformers_begins_anew(monkeypatch):
    """Phi-3's LongRoPE has other angles beyond 12 positions. There transformers runs Phi-3, and only Phi-3, without its
    cache once; the engine says that the angles change, and goes on as transformers does with every other family."""
    angles = LONG | {"short_factor": [1.0, 1.2, 1.5, 2.0, 2.0], "long_factor": [1.0, 2.0, 4.0, 9.0, 12.0]}
    reference = reference_for("phi3", rope_parameters=angles, original_max_position_embeddings=12)
    ours = opened(reference)
    ids = prompt_for(ours, 5)
    generated = list(generate(ours, ids, max_new_tokens=NEW))
    _, out = run_theirs(reference, ids, do_sample=False)
    same = [gap(g.logits, logits[0]) <= FLOAT64 for g, logits in zip(generated, out.logits, strict=True)]
    assert same == [True] * 8 + [False] * 6
    monkeypatch.delattr(type(reference), "prepare_inputs_for_generation")
    assert_same(generated, *run_theirs(reference, ids, do_sample=False))


@pytest.mark.parametrize("family", MASKED)
def test_an_encoder_is_refused(family, tmp_path):
    config = transformers.AutoConfig.for_model(family, **EXAMPLES[family])
    for head in ("AutoModel", "AutoModelForMaskedLM"):
        random_reference(config, getattr(transformers, head)).save_pretrained(tmp_path / head)
        model = load_model(tmp_path / head)
        with pytest.raises(PromptError, match="does not predict the next token, so it cannot generate") as refused:
            generate(model, [3, 4, 5])
        assert "\n" not in str(refused.value)
