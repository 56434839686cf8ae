"""A token's neighbours in the embedding matrix, and the neurons that did most for it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_looks_lens import IDS, in_passes
from tiny import ARCHITECTURES, BERT, EXPERTS, GPT2, MODERN, TRANSLATOR, tiny
from torch.nn import functional as F

from engine import Address, Model, neighbours, open_trace, trace
from engine.analysis import neighbours as nearest
from engine.analysis.looks import look
from engine.analysis.neurons import neurons
from engine.analysis.places import token_of
from engine.errors import AddressError, Cancelled, NotKeptError

# neighbours


@pytest.mark.parametrize("cells", [1, 100, 10**6])
@pytest.mark.parametrize("token", [0, 5, 36])
def test_neighbours_are_those_of_largest_cosine(monkeypatch, cells, token):
    monkeypatch.setattr(nearest, "CELLS_AT_ONCE", cells)
    t = trace(tiny(**MODERN), IDS)
    matrix = t.weights["embed.weight"]
    expected = F.cosine_similarity(matrix, matrix[token][None])
    found = neighbours(t, token, 7)
    others = [i for i in expected.argsort(descending=True).tolist() if i != token]
    assert [n.id for n in found] == others[:7]
    assert [n.cosine for n in found] == pytest.approx(expected[others[:7]].tolist())
    assert [n.norm for n in found] == pytest.approx(matrix[others[:7]].norm(dim=-1).tolist())
    assert len(neighbours(t, token, 1000)) == 36


def test_rows_without_a_direction_are_nobodys_neighbours():
    model = tiny(**MODERN)
    weights = {name: weight.clone() for name, weight in model.weights.items()}
    weights["embed.weight"][7] = 0
    weights["embed.weight"][8, 3] = torch.inf
    weights["embed.weight"][9, 3] = torch.nan
    t = trace(Model.from_weights(model.config, weights), [1, 2, 3])
    assert {n.id for n in neighbours(t, 1, 100)} == set(range(37)) - {1, 7, 8, 9}
    assert neighbours(t, 7, 100) == []


@pytest.mark.parametrize("token", [-1, 37])
def test_a_token_that_is_not_there_is_refused(token):
    with pytest.raises(AddressError, match="rows 0…36"):
        neighbours(trace(tiny(**MODERN), IDS), token)


def test_neighbours_can_be_cancelled(monkeypatch):
    monkeypatch.setattr(nearest, "CELLS_AT_ONCE", 1)

    def stop(done, of, what):
        raise Cancelled("enough")

    with pytest.raises(Cancelled):
        look(trace(tiny(**MODERN), IDS), "neighbours", "embed[p=3]", watch=stop)


def test_a_look_at_neighbours_is_of_the_token_at_the_address():
    t = in_passes(tiny(**MODERN), IDS, [4])
    for address, token in [("embed[p=5]", IDS[5]), ("embed[p=1]@1", IDS[5]), ("embed[p=-1]", IDS[9])]:
        told, _ = look(t, "neighbours", address, k=4)
        assert [row[1] for row in told["rows"]] == [n.id for n in neighbours(t, token, 4)]
        assert [row[0] for row in told["rows"]] == [t.label(row[1]) for row in told["rows"]]
        assert [column["kind"] for column in told["columns"]] == ["label", "int", "bar", "number"]
    with pytest.raises(AddressError, match="one token"):
        look(t, "neighbours", "embed")


def test_the_source_has_neighbours_as_well():
    t = trace(tiny(**TRANSLATOR), IDS, target=[1, 2])
    told, _ = look(t, "neighbours", "encoder.embed[p=2]", k=1)
    assert told["rows"][0][1] == neighbours(t, IDS[2], 1)[0].id


# neurons


def at_token(t, address):
    rows, part = token_of(t, Address.parse(address))
    return Address.parse(address).site, rows, part


@pytest.mark.parametrize("traits", [GPT2, MODERN, ARCHITECTURES["gemma"]], ids=["plain", "gated", "gemma"])
def test_the_neurons_that_add_most_come_first(traits):
    t = trace(tiny(**traits), IDS)
    post, pre = t["blocks.1.mlp.post[b=0,p=6]"], t["blocks.1.mlp.pre[b=0,p=6]"]
    columns = t.weights["blocks.1.mlp.down.weight"].T  # [d_mlp d_model], what each adds
    size = (post[:, None] * columns).norm(dim=-1)
    found = neurons(t, *at_token(t, "blocks.1.mlp.post[p=6]"), 9)
    order = size.argsort(descending=True).tolist()
    assert [n.index for n in found] == order[:9]
    for n in found:
        assert n.post == float(post[n.index])
        assert n.pre == float(pre[n.index])
        assert n.out_norm == pytest.approx(float(columns[n.index].norm()))
        assert n.contribution == pytest.approx(float(size[n.index]))
        gate = None if "gated" not in traits else float(t["blocks.1.mlp.pre_linear[b=0,p=6]"][n.index])
        assert n.pre_linear == gate
        adds = t.weights["embed.weight"] @ (columns[n.index] * post[n.index])
        assert n.promotes == tuple(adds.argsort(descending=True)[:3].tolist())


def test_all_neurons_together_are_what_the_ffn_adds():
    t = trace(tiny(**MODERN), IDS)
    found = neurons(t, *at_token(t, "blocks.0.mlp.post[p=3]"), 1000)
    columns = t.weights["blocks.0.mlp.down.weight"].T
    total = sum(n.post * columns[n.index] for n in found)
    torch.testing.assert_close(total, t["blocks.0.mlp_out[b=0,p=3]"])


def test_of_a_mixture_they_are_those_of_the_chosen_experts_by_their_weights():
    t = trace(tiny(**EXPERTS), IDS)
    found = neurons(t, *at_token(t, "blocks.0.mlp.post[p=4]"), 1000)
    chosen = t["blocks.0.mlp.expert_indices[b=0,p=4]"].tolist()
    assert {n.expert for n in found} == set(chosen)
    assert len(found) == 2 * 10
    assert [n.contribution for n in found] == sorted((n.contribution for n in found), reverse=True)
    total = torch.zeros(20, dtype=torch.float64)
    unembedding = t.weights[t.program.step("logits").params[0]]  # [d_vocab d_model]
    for n in found:
        adds = n.weight * n.post * t.weights[f"blocks.0.mlp.experts.{n.expert}.down.weight"][:, n.index]
        assert n.contribution == pytest.approx(float(adds.norm()))
        assert n.promotes == tuple((unembedding @ adds).argsort(descending=True)[:3].tolist())
        total += adds
    shares = dict(zip(chosen, t["blocks.0.mlp.expert_weights[b=0,p=4]"].tolist(), strict=True))
    total += sum(shares[e] * t.weights[f"blocks.0.mlp.experts.{e}.down.bias"] for e in chosen)
    torch.testing.assert_close(total, t["blocks.0.mlp_out[b=0,p=4]"])
    told, _ = look(t, "neurons", "blocks.0.mlp.post[p=4,c=1]", k=100)
    assert {row[1] for row in told["rows"]} == {chosen[1]}


@given(cuts=st.sets(st.integers(1, 9), max_size=3).map(sorted), pos=st.integers(0, 9))
def test_any_split_has_the_same_neurons(cuts, pos):
    model = tiny(**MODERN)
    address = f"blocks.1.mlp.post[p={pos}]"
    whole, _ = look(trace(model, IDS), "neurons", address, k=5)
    split, _ = look(in_passes(model, IDS, cuts, "residual"), "neurons", address, k=5)
    for one, other in zip(split["rows"], whole["rows"], strict=True):
        assert one[0] == other[0]
        assert one[1:-1] == pytest.approx(other[1:-1])


def test_what_a_neuron_promotes_is_told_only_where_the_head_fits_the_stream():
    for traits in (MODERN, EXPERTS, BERT):
        told, _ = look(trace(tiny(**traits), IDS), "neurons", "blocks.1.mlp.post[p=2]")
        assert ("promotes" in [column["name"] for column in told["columns"]]) == (traits is not BERT)
    t = trace(tiny(**TRANSLATOR), IDS, target=[1, 2])
    told, _ = look(t, "neurons", "encoder.blocks.1.mlp.post[p=2]")
    assert "promotes" not in [column["name"] for column in told["columns"]]


def test_what_holds_no_neurons_is_refused():
    with pytest.raises(AddressError, match="neurons are those of an FFN"):
        look(trace(tiny(**MODERN), IDS), "neurons", "blocks.0.mlp.pre[p=1]")


@pytest.mark.parametrize(("name", "address"), [("neighbours", "embed[p=1]"), ("neurons", "blocks.0.mlp.post[p=1]")])
def test_without_weights_it_says_what_to_do(tmp_path, name, address):
    file = tmp_path / "a.trace.safetensors"
    trace(tiny(**MODERN), IDS).save(file)
    with pytest.raises(NotKeptError, match="open it with its model"):
        look(open_trace(file), name, address)
