"""Any split of a prompt into passes is the same pass, and so is the prompt in a padded batch."""

from itertools import pairwise

import pytest
import tokenizers
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import ARCHITECTURES, CAUSAL, CLASSIC, ENCODER, GPT2, MODERN, configs, gap, random_ids, random_model

from engine import Model, Trace, extend, trace
from engine.errors import PromptError
from engine.tokenizer import Tokenizer

EXACT = 1e-12
UNSEEN = ("scores", "scaled", "capped", "biased", "position_bias")


def in_passes(model: Model, ids: list[int], cuts: list[int], **options) -> Trace:
    """The prompt in several passes, cut at these places."""
    edges = [0, *cuts, len(ids)]
    t = trace(model, ids[: edges[1]], **options)
    for start, stop in pairwise(edges[1:]):
        t = extend(model, t, ids[start:stop], **options)
    return t


def assert_same(split: Trace, whole: Trace) -> None:
    """Every site, over all passes, is what one pass gives."""
    assert split.length == whole.length
    for site in whole.program.sites:
        assert split.shape(site.name) == tuple(split[site.name].shape) == whole.shape(site.name)
        if "past" not in site.axes:  # over all passes there is none
            if site.name.rsplit(".")[-1] in UNSEEN:  # a pass has no scores for keys to come
                seen = split[site.name].isfinite()
                assert gap(split[site.name][seen], whole[site.name][seen]) <= EXACT
                assert seen[..., -1, -(site.window or whole.length) :].all()
            else:
                assert gap(split[site.name], whole[site.name]) <= EXACT, site.name


@given(config=configs(causal=True), n=st.integers(2, 9), seed=st.integers(0, 99), data=st.data())
def test_any_split_of_any_architecture(config, n, seed, data):
    model, ids = random_model(config, seed), random_ids(config, n, seed)
    cuts = sorted(data.draw(st.sets(st.integers(1, n - 1), min_size=1)))
    keep = data.draw(st.sampled_from(["all", "residual", ["logits"], ["embed"]]))
    split = in_passes(model, ids, cuts, keep=keep)
    assert [(p.start, p.length) for p in split.passes] == [(a, b - a) for a, b in pairwise([0, *cuts, n])]
    assert_same(split, trace(model, ids))


@pytest.mark.parametrize("name", CAUSAL)
def test_twelve_tokens_cut_everywhere_and_one_by_one(tiny, name):
    # E2: prefill p tokens and go on with the rest as one chunk, for every p; and token by token.
    model = tiny(**CAUSAL[name])
    ids = random_ids(model.config, 12)
    whole = trace(model, ids)
    for p in range(1, 12):
        assert_same(in_passes(model, ids, [p]), whole)
    assert_same(in_passes(model, ids, list(range(1, 12))), whole)


@pytest.mark.parametrize("kernel", ["auto", "math", "flash"])
def test_float32_and_every_kernel(tiny, kernel):
    # E18: in float32 the same to 1e-5, with the same token on top.
    model = tiny(**MODERN, dtype=torch.float32)
    ids = random_ids(model.config, 12)
    whole = trace(model, ids, kernel=kernel)
    for cuts in ([5, 6], [1, 2, 7]):
        t = trace(model, ids[: cuts[0]], kernel=kernel)
        for start, stop in pairwise([*cuts, 12]):
            t = extend(model, t, ids[start:stop])
        assert {p.info.kernel for p in t.passes} == {kernel}
        assert gap(t["logits"], whole["logits"]) <= 1e-5
        assert torch.equal(t["logits"].argmax(-1), whole["logits"].argmax(-1))


def test_bfloat16_agrees_to_its_rounding(tiny):
    model = tiny(**MODERN, dtype=torch.bfloat16)
    ids = random_ids(model.config, 12)
    gaps = [gap(in_passes(model, ids, [p])["logits"], trace(model, ids)["logits"]) for p in (1, 6, 11)]
    assert max(gaps) < 0.1


def test_a_pass_is_what_the_pass_alone_wrote(tiny):
    model = tiny(**MODERN)
    ids = random_ids(model.config, 7)
    whole, split = trace(model, ids), in_passes(model, ids, [3, 4])
    for at, (start, stop) in enumerate([(0, 3), (3, 4), (4, 7)]):
        assert gap(split.site("blocks.1.resid_post", at), whole["blocks.1.resid_post"][:, start:stop]) <= EXACT
        pattern = split.site("blocks.1.attn.pattern", at)
        assert gap(pattern, whole["blocks.1.attn.pattern"][:, :, start:stop, :stop]) <= EXACT
        assert split.site("blocks.1.attn.cache_k", at).shape[1] == stop
        assert split.site("blocks.1.attn.past_k", at).shape[1] == start
        assert split.sizes(at) == model.config.axis_sizes(1, stop - start, start)
        # A pass's index is its own: row 0 of pass 2 is position 4.
        assert torch.equal(split[f"blocks.0.resid_post[p=0]@{at}"], split.site("blocks.0.resid_post", at)[:, 0])
    assert torch.equal(split["blocks.0.attn.past_v@2"], split["blocks.0.attn.cache_v@1"])


def test_an_extended_trace_leaves_the_first_as_it_was(tiny):
    # K1: going back and typing other tokens is the same as a fresh run, bit for bit.
    model = tiny(**MODERN, dtype=torch.float32)
    a, b = random_ids(model.config, 5), random_ids(model.config, 3, 1)
    first = trace(model, a)
    before = {site.name: first[site.name].clone() for site in model.program.sites}
    one, other = extend(model, first, [1, 2, 3]), extend(model, first, b)
    for name, tensor in before.items():
        assert torch.equal(first[name], tensor), name
    assert len(first.passes) == 1
    assert first.length == 5
    assert one.passes[0] is first.passes[0]  # shared, not copied
    fresh = extend(model, trace(model, a), b)
    for site in model.program.sites:
        assert torch.equal(other[site.name], fresh[site.name]), site.name
    assert [t.id for t in other.tokens[0]] == [*a, *b]


def test_what_cannot_be_extended(tiny):
    model = tiny(**MODERN)
    with pytest.raises(PromptError, match="batch"):
        extend(model, trace(model, [[1, 2], [3]]), [4])
    with pytest.raises(PromptError, match="at least one"):
        extend(model, trace(model, [1, 2]), [])
    with pytest.raises(PromptError, match="outside"):
        extend(model, trace(model, [1, 2]), [37])
    # A model that looks both ways would have to change what earlier tokens saw.
    encoder = tiny(**ENCODER)
    with pytest.raises(PromptError, match="both ways"):
        extend(encoder, trace(encoder, [1, 2]), [3])
    with pytest.raises(PromptError, match="another model"):
        extend(tiny(**GPT2), trace(model, [1, 2]), [3])


def test_the_context_s_end(tiny):
    # T6: exactly n_ctx runs; one more is refused before the run where positions are learned, else noted.
    learned, rotary = tiny(**GPT2, n_ctx=8), tiny(**MODERN, n_ctx=8)
    full = random_ids(learned.config, 8)
    t = trace(learned, full)
    assert t.length == 8
    assert not t.notices
    with pytest.raises(PromptError, match=r"9 tokens.*8 positions"):
        trace(learned, [*full, 1])
    with pytest.raises(PromptError, match=r"9 tokens.*8 positions"):
        extend(learned, t, [1])
    beyond = trace(rotary, [*full, 1])
    assert beyond.length == 9
    assert len(beyond.notices) == 1
    assert "8" in beyond.notices[0]
    assert len(extend(rotary, trace(rotary, full), [1]).notices) == 1
    assert extend(rotary, beyond, [1]).notices == beyond.notices  # said once
    assert trace(learned, [5]).length == 1


# ----------------------------------------------------------------------------------------------------- padding


def assert_row_is(padded: Trace, row: int, alone: Trace) -> None:
    """A row of a padded batch is the prompt alone, and its padding is zeros where nothing may be seen."""
    n, pads = alone.length, padded.length - alone.length
    for site in alone.program.sites:
        if "past" in site.axes or site.name in ("tokens", "positions", "key_positions"):
            continue
        mine = padded[site.name][row : row + 1] if "batch" in site.axes else padded[site.name]
        for i, axis in enumerate(site.axes):
            if axis in ("pos", "kv_pos", "query", "key"):
                mine = mine.narrow(i, pads, n)
        assert gap(mine, alone[site.name]) <= EXACT, site.name
    for layer in range(alone.config.n_layers):
        z, pattern = (padded[f"blocks.{layer}.attn.{name}"][row] for name in ("z", "pattern"))
        assert not z[:pads].any()
        assert not pattern[:, :pads].any()
        assert not pattern[:, :, :pads].any()
    assert padded["positions"][row].tolist() == [-1] * pads + list(range(n))
    assert padded["logits"].isfinite().all()


@pytest.mark.parametrize("pads", [1, 2, 3, 8])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_padded_prompt_is_the_prompt_alone(tiny, name, pads):
    # E1
    model = tiny(**ARCHITECTURES[name], n_layers=3)
    short, long = random_ids(model.config, 6), random_ids(model.config, 6 + pads, 1)
    t = trace(model, [short, long])
    assert_row_is(t, 0, trace(model, short))
    assert_row_is(t, 1, trace(model, long))
    assert [len(row) for row in t.tokens] == [6 + pads] * 2
    assert [token.id for token in t.tokens[0][pads:]] == short


@given(config=configs(), lengths=st.lists(st.integers(1, 6), min_size=2, max_size=4), seed=st.integers(0, 99))
def test_any_batch_of_any_architecture(config, lengths, seed):
    model = random_model(config, seed)
    prompts = [random_ids(config, n, seed + i) for i, n in enumerate(lengths)]
    t = trace(model, prompts)
    for row, prompt in enumerate(prompts):
        assert_row_is(t, row, trace(model, prompt))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kernel", ["auto", "math", "flash"])
def test_padding_in_other_dtypes_and_kernels(tiny, dtype, kernel):
    model = tiny(**MODERN, dtype=dtype)
    short, long = random_ids(model.config, 5), random_ids(model.config, 9, 1)
    t = trace(model, [short, long], kernel=kernel)
    assert gap(t["logits"][0, 4:], trace(model, short, kernel=kernel)["logits"][0]) < 20 * torch.finfo(dtype).eps
    assert not t["blocks.0.attn.z"][0, :4].any()
    assert t["logits"].isfinite().all()


@pytest.fixture
def with_words(tiny) -> Model:
    """A model with a tokenizer of whole words."""
    vocabulary = {word: i for i, word in enumerate(["<unk>", "the", "disk", "was", "full", "server", "crashed"])}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    model = tiny(**CLASSIC)
    return Model.from_weights(model.config, model.weights, Tokenizer(inner))


def test_text_and_ids_are_the_same(with_words):
    model = with_words
    text = trace(model, ["the disk was full", "the server"])
    ids = trace(model, [[1, 2, 3, 4], [1, 5]])
    tensor = trace(model, torch.tensor([[1, 2, 3, 4]]))
    assert torch.equal(text["logits"], ids["logits"])
    assert torch.equal(text["tokens"], ids["tokens"])
    assert torch.equal(trace(model, "the disk was full")["logits"], tensor["logits"])
    assert torch.equal(trace(model, [1, 2, 3, 4])["logits"], tensor["logits"])
    assert trace(model, "the disk was full").prompt == "the disk was full"


def test_empty_and_impossible_prompts(tiny, with_words):
    # T6: a clear message before anything runs.
    model = tiny(**MODERN)
    for prompt in ([], [[]], [[1], []], torch.zeros(1, 0, dtype=torch.long)):
        with pytest.raises(PromptError, match=r"empty|no prompt"):
            trace(model, prompt)
    for text in ("", "   "):
        with pytest.raises(PromptError, match="empty"):
            trace(with_words, text)
    with pytest.raises(PromptError, match="no tokenizer"):
        trace(model, "text")
    for ids in ([37], [-1], [[1], [37]]):
        with pytest.raises(PromptError, match=r"outside 0…36"):
            trace(model, ids)
    for nonsense in (
        [1.5],
        [True],
        [None],
        None,
        3,
        3.5,
        [[1], 2],
        ["a", 1],
        [[["a"]]],
        {},
        torch.tensor(3),
        torch.rand(2),
    ):
        with pytest.raises(PromptError) as error:
            trace(model, nonsense)
        assert "\n" not in str(error.value)
    with pytest.raises(PromptError, match="kernel 'warp' is not known"):
        trace(model, [1], kernel="warp")


# --------------------------------------------------------------------------------------------------- positions


@pytest.mark.parametrize("name", CAUSAL)
def test_given_positions_win(tiny, name):
    # E1: an explicit position is used as it is.
    model = tiny(**CAUSAL[name])
    ids = random_ids(model.config, 5)
    t = trace(model, ids, positions=[0, 1, 2, 3, 4])
    assert gap(t["logits"], trace(model, ids)["logits"]) <= EXACT
    moved = trace(model, ids, positions=[7, 8, 9, 10, 11])
    assert moved["positions"].tolist() == [[7, 8, 9, 10, 11]]
    if model.config.positions in ("rotary", "alibi"):  # only distances count (but for the table's rounding)
        assert gap(moved["logits"], t["logits"]) < 1e-4
    elif model.config.positions != "none":
        assert gap(moved["logits"], t["logits"]) > 1e-3
        table = trace(model, random_ids(model.config, 12))["pos_embed"]
        assert gap(moved["pos_embed"], table[:, 7:]) <= EXACT
    # A gap in the positions hides nothing but what comes later.
    spread = trace(model, ids, positions=[0, 2, 4, 6, 8])
    assert ((spread["blocks.0.attn.pattern"] > 0).sum(-1) <= torch.arange(1, 6)).all()


def test_order_is_that_of_the_positions(tiny):
    # The same tokens in another order with their positions: the same rows, reordered.
    model = tiny(**MODERN)
    ids, order = random_ids(model.config, 5), [3, 0, 4, 1, 2]
    plain = trace(model, ids)
    shuffled = trace(model, [ids[i] for i in order], positions=order)
    assert gap(shuffled["logits"], plain["logits"][:, order]) <= EXACT
    assert gap(shuffled["blocks.1.attn.pattern"], plain["blocks.1.attn.pattern"][:, :, order][..., order]) <= EXACT


def test_after_given_positions_it_goes_on_from_the_last(tiny):
    model = tiny(**GPT2)
    ids = random_ids(model.config, 6)
    whole = trace(model, ids, positions=[3, 4, 5, 6, 7, 8])
    split = trace(model, ids[:3], positions=[3, 4, 5])
    for start, stop in ((3, 4), (4, 6)):
        split = extend(model, split, ids[start:stop])
    assert split["positions"].tolist() == [[3, 4, 5, 6, 7, 8]]
    assert_same(split, whole)


def test_positions_that_cannot_be(tiny):
    model = tiny(**GPT2, n_ctx=8)
    for positions in ([0], [0, 1, 2], [0, -1], [0, 8], [0, 2**70], [0, 1.5], [0, True], [0, None]):
        with pytest.raises(PromptError, match="positions"):
            trace(model, [1, 2], positions=positions)
    with pytest.raises(PromptError, match="positions"):
        trace(model, [[1, 2], [3, 4]], positions=[0, 1])
    assert trace(model, [1, 2], positions=[0, 7]).length == 2
    with pytest.raises(PromptError, match="beyond the 8"):
        extend(model, trace(model, [1, 2], positions=[0, 7]), [3])
