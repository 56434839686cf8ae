"""One cell of attention through all its stages."""

from math import exp, inf, isfinite, tanh

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_looks_lens import IDS, in_passes
from tiny import ALIBI, ARCHITECTURES, EXPERTS, GEMMA, GPT2, MODERN, MULTIPLIED, TRANSLATOR, tiny

from engine import Address, Model, open_trace, trace
from engine.analysis.chain import chain
from engine.analysis.looks import look
from engine.errors import AddressError

STAGES = {"modern": MODERN, "gemma": GEMMA, "experts": EXPERTS, "alibi": ALIBI, "multiplied": MULTIPLIED}


def at(t, address):
    return {stage.label: stage for stage in chain(t, Address.parse(address))}


@given(
    traits=st.sampled_from(sorted(ARCHITECTURES)).map(ARCHITECTURES.get),
    layer=st.integers(0, 1),
    cell=st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 9)),
)
def test_every_stage_has_the_number_of_its_site(traits, layer, cell):
    t = trace(tiny(**traits), IDS)
    head, query, key = cell
    found = chain(t, Address.parse(f"blocks.{layer}.attn.scaled[h={head},q={query},k={key}]"))
    assert [stage.label for stage in found][:2] == ["scores", "scaled"]
    assert [stage.label for stage in found][-2:] == ["masked", "pattern"]
    for stage in found:
        value = float(t[f"{stage.site}[b=0,h={head},q={query},k={key}]"])
        assert stage.value == (pytest.approx(value, abs=1e-6) if isfinite(value) else None), stage
        hidden = value == -inf or (stage.label == "pattern" and found[-2].state == "masked")
        assert stage.state == ("masked" if hidden else ""), stage
        assert stage.words


@given(
    name=st.sampled_from(sorted(STAGES)),
    cuts=st.sets(st.integers(1, 9), min_size=1, max_size=3).map(sorted),
    cell=st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 9)),
)
def test_any_split_has_the_same_chain_but_for_keys_that_its_pass_did_not_have(name, cuts, cell):
    model = tiny(**STAGES[name])
    head, query, key = cell
    whole, t = trace(model, IDS), in_passes(model, IDS, cuts)
    site = f"blocks.0.attn.pattern[h={head},q={query},k={key}]"
    for one, other in zip(chain(t, Address.parse(site)), chain(whole, Address.parse(site)), strict=True):
        if one.state == "masked" and other.state == "":
            assert other.label in ("scores", "scaled", "capped", "biased"), "hidden from the start"
            assert at(whole, site)["masked"].state == "masked"
        else:
            assert (one.state, one.value) == (other.state, pytest.approx(other.value, abs=1e-6))


def test_the_words_have_the_models_numbers():
    t = trace(tiny(**GEMMA), IDS)
    found = at(t, "blocks.1.attn.pattern[h=1,q=6,k=2]")
    assert list(found) == ["scores", "scaled", "capped", "masked", "pattern"]
    assert found["scaled"].words == "× 0.3, the model's scale"
    assert found["capped"].words == "5 · tanh(x / 5)"
    assert found["capped"].value == pytest.approx(5 * tanh(found["scaled"].value / 5), abs=1e-6)
    assert found["pattern"].words.endswith("over 7 keys")
    found = at(trace(tiny(**GPT2 | {"d_head": 16}), IDS), "blocks.1.attn.pattern[h=1,q=6,k=2]")
    assert found["scores"].words == "q · k, a dot product of 16 numbers"
    assert found["scaled"].words == "× 0.25 = 1/√16"
    assert found["scaled"].value == pytest.approx(found["scores"].value / 4)


def test_the_numbers_of_the_cell_come_with_its_formula():
    t = trace(tiny(**GPT2), IDS)
    for cell, hidden in [("h=1,q=6,k=2", False), ("h=1,q=2,k=6", True)]:
        told, _ = look(t, "chain", f"blocks.1.attn.pattern[{cell}]")
        sites = [float(t[f"blocks.1.attn.{name}[b=0,{cell}]"]) for name in ("scores", "scaled", "masked", "pattern")]
        scores, scaled, masked, pattern = ("−∞" if number == -inf else f"{number:.4g}" for number in sites)
        assert told["numbers"] == f"scores {scores} → scaled {scaled} → masked {masked} → pattern {pattern}"
        assert (masked, pattern) == ("−∞", "0") or not hidden


def test_the_share_is_the_quotient_that_is_told():
    for traits, among in [(MODERN, "over 7 keys"), (EXPERTS, "over 4 keys and the sink")]:
        stage = at(trace(tiny(**traits), IDS), "blocks.1.attn.pattern[h=1,q=6,k=5]")["pattern"]
        part, total = stage.words.split(" = ")[1].split(", ")[0].split(" / ")
        assert float(part) / float(total) == pytest.approx(stage.value, rel=2e-3)
        assert stage.words.endswith(among)


def test_a_bias_of_positions_is_told():
    t = trace(tiny(**ALIBI), IDS)
    found = at(t, "blocks.0.attn.biased[h=0,q=7,k=4]")
    assert found["biased"].words == "+ (−1.5), the bias of these two positions"  # 0.5 · (4 − 7)
    assert found["biased"].value == pytest.approx(found["scaled"].value - 1.5, abs=1e-6)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("blocks.1.attn.masked[h=0,q=3,k=5]", "−∞: key 5 comes after query 3"),
        ("blocks.0.attn.masked[h=0,q=7,k=2]", "−∞: key 2 is 5 away from query 7, and the window is 3"),
        ("blocks.1.attn.masked[h=0,q=7,k=2]", "may be attended to: left as it is"),
    ],
)
def test_the_mask_says_why(address, words):
    assert at(trace(tiny(**GEMMA), IDS), address)["masked"].words == words


def test_padding_is_called_padding():
    both = trace(tiny(**MODERN), [IDS, IDS[:4]])
    assert at(both, "blocks.0.attn.masked[b=1,h=0,q=9,k=1]")["masked"].words == "−∞: the key is padding"
    found = at(both, "blocks.0.attn.masked[b=1,h=0,q=1,k=1]")
    assert found["masked"].words == "−∞: the query is padding"
    assert (found["pattern"].value, found["pattern"].state) == (0, "masked")
    assert found["pattern"].words == "0: this query may attend to nothing"


def test_a_key_that_was_not_there_is_told():
    t = in_passes(tiny(**GEMMA), IDS, [4, 8])
    later = at(t, "blocks.1.attn.scores[h=0,q=5,k=9]")
    assert later["scores"].words == "this key came after the query's pass"
    assert {stage.state for stage in later.values()} == {"masked"}
    assert later["pattern"].value == 0
    gone = at(t, "blocks.0.attn.scores[h=0,q=9,k=1]")  # a window of 3
    assert gone["scores"].words == "a window has let go of this key before"


def test_what_is_not_finite_is_not_called_masked():
    model = tiny(**GPT2)
    weights = {name: weight.clone() for name, weight in model.weights.items()}
    weights["blocks.0.attn.k.bias"][:] = torch.nan
    t = trace(Model.from_weights(model.config, weights), IDS)
    found = at(t, "blocks.0.attn.pattern[h=0,q=5,k=2]")
    assert {stage.state for stage in found.values()} == {"nan"}
    assert {stage.value for stage in found.values()} == {None}
    assert at(t, "blocks.0.attn.pattern[h=0,q=5,k=7]")["masked"].state == "masked"


def test_a_decoders_look_at_its_source_and_the_encoders_own():
    t = in_passes_of_a_translator()
    for stack, query, key in [("blocks.1.cross_attn", 4, 8), ("encoder.blocks.0.attn", 8, 2)]:
        found = at(t, f"{stack}.pattern[h=1,q={query},k={key}]")
        for stage in found.values():
            assert stage.value == pytest.approx(float(t[f"{stage.site}[b=0,h=1,q={query},k={key}]"]), abs=1e-6)
    biased = at(t, "blocks.0.attn.pattern[h=1,q=4,k=2]")["biased"]
    assert biased.value == pytest.approx(float(t["blocks.0.attn.biased[b=0,h=1,q=4,k=2]"]), abs=1e-6)


def in_passes_of_a_translator():
    from engine import extend

    model = tiny(**TRANSLATOR)
    return extend(model, trace(model, IDS, target=[1, 2]), [3, 4])


def test_it_needs_no_weights(tmp_path):
    t, file = trace(tiny(**MODERN), IDS), tmp_path / "a.trace.safetensors"
    t.save(file)
    address = "blocks.1.attn.scores[h=1,q=6,k=2]"
    assert look(open_trace(file), "chain", address) == look(t, "chain", address)


def test_the_power_is_of_what_is_told():
    stage = at(trace(tiny(**MODERN), IDS), "blocks.1.attn.pattern[h=1,q=6,k=5]")
    most = stage["pattern"].words.split("(s − ")[1].split(") / Σ")[0].strip("(").rstrip(")").replace("−", "-")
    own = float(stage["pattern"].words.split(" = ")[1].split(" / ")[0])
    assert own == pytest.approx(exp(stage["masked"].value - float(most)), rel=2e-3)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("blocks.0.attn.q[p=1]", "no stage of attention"),
        ("position_bias[h=0,q=1,k=1]", "no stage of attention"),
        ("blocks.0.attn.scores[h=0,q=1]", "name one key"),
        ("blocks.0.attn.scores[h=0,q=1,k=0:2]", "name one key"),
    ],
)
def test_what_is_no_cell_is_refused(address, why):
    with pytest.raises(AddressError, match=why):
        look(trace(tiny(**ALIBI), IDS), "chain", address)
