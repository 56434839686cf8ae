"""Places in a trace as text: read, written, resolved, and used as an index."""

import string

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import ARCHITECTURES, MODERN, random_ids, tiny_config

from engine import Address, build_program, extend, trace
from engine.errors import AddressError
from engine.sites import LETTERS, Site, Span, block_of, matches, normalise

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z_0-9]{0,6}(\.[A-Za-z_0-9]{1,6}){0,4}", fullmatch=True).filter(
    lambda name: "hook_" not in name
)
ENDS = st.one_of(st.none(), st.integers(-(10**6), 10**6))
INDEX = st.one_of(st.integers(-(10**6), 10**6), st.builds(Span, ENDS, ENDS))
AXES = st.lists(st.sampled_from(sorted(set(LETTERS.values()))), unique=True, max_size=4)


@st.composite
def addresses(draw: st.DrawFn) -> Address:
    axes = draw(AXES)
    at = draw(st.one_of(st.none(), st.integers(0, 10**9 - 1)))
    return Address(draw(NAMES), tuple((axis, draw(INDEX)) for axis in axes), at)


@given(address=addresses())
def test_an_address_goes_to_text_and_back(address):
    assert Address.parse(str(address)) == address
    assert Address.parse(f"  {address}\n") == address


@given(address=addresses(), words=st.randoms())
def test_axes_may_be_written_in_full(address, words):
    full = {letter: [axis for axis, of in LETTERS.items() if of == letter] for letter in set(LETTERS.values())}
    written = Address(address.site, tuple((words.choice(full[a]), i) for a, i in address.index), address.at)
    assert str(written) == str(address)  # letters are the form in which it is written
    text = address.site + "[" + " , ".join(f"{a}={i}" for a, i in written.index) + "]"
    assert Address.parse(text) == Address(written.site, written.index)


@pytest.mark.parametrize(
    ("text", "site", "index", "at"),
    [
        ("embed", "embed", (), None),
        ("blocks.2.attn.pattern[h=3,q=9,k=5]@1", "blocks.2.attn.pattern", (("h", 3), ("q", 9), ("k", 5)), 1),
        ("blocks.0.attn.hook_q@0", "blocks.0.attn.q", (), 0),
        ("blocks.0.hook_resid_pre[p=-1]", "blocks.0.resid_pre", (("p", -1),), None),
        ("hook_embed", "embed", (), None),
        ("ln_final.hook_normalized", "ln_final.normalized", (), None),
        ("logits[p=2:]", "logits", (("p", Span(2)),), None),
        ("logits[p=:-1,v=3:7]", "logits", (("p", Span(None, -1)), ("v", Span(3, 7))), None),
        ("logits[p=:]", "logits", (("p", Span()),), None),
        ("logits[]", "logits", (), None),
        ("logits[ pos = 2 ]".replace(" = ", "="), "logits", (("pos", 2),), None),
    ],
)
def test_addresses_as_people_write_them(text, site, index, at):
    assert Address.parse(text) == Address(site, index, at)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "[h=1]", "@1", "a b", "blocks..q", ".q", "q.", "1blocks", "a[h=1", "a]h=1[", "a[h]", "a[h=]", "a[=3]",
        "a[h=1.5]", "a[h=x]", "a[h=1:2:3]", "a[h=1]@", "a@x", "a@-1", "a@1@2", "a[h=1][q=2]", "a[h=1,h=2]",
        "a[head=1,h=2]", "a[k=1,key=2]", "a[h==1]", "a[h=1]b", "a[h=1;q=2]", "a[h=99999999999999]", "a[h=3-5]",
        "a@9999999999", "../etc/passwd", "\x1b[31m", "a\n[h=1]", "a[h=\x00]", "é", "hook_", "blocks.0.hook_",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_in_one_line(text):
    with pytest.raises(AddressError) as error:
        Address.parse(text)
    assert "\n" not in str(error.value)
    assert str(error.value).isprintable()


@given(text=st.one_of(st.text(), st.text(string.printable + "\x1b\u202e", max_size=30)))
def test_any_text_is_an_address_or_an_error(text):
    try:
        address = Address.parse(text)
    except AddressError as error:
        message = str(error)
    else:
        message = str(address)
        assert Address.parse(message) == Address.parse(str(Address.parse(message)))
    assert message.isprintable()


def test_a_very_long_text_gives_a_short_error():
    with pytest.raises(AddressError) as error:
        Address.parse("[" * 1_000_000)
    assert len(str(error.value)) < 400


# ------------------------------------------------------------------------------------------------- resolving

AXES_OF_PATTERN = ("batch", "head", "query", "key")


def test_resolving():
    def resolve(text: str) -> dict:
        return Address.parse(text).resolve(AXES_OF_PATTERN, (1, 4, 9, 9))

    assert resolve("a[h=3,query=-1]") == {"head": 3, "query": 8}
    assert resolve("a[h=0:2]") == {"head": Span(0, 2)}
    assert resolve("a[h=2:]") == {"head": Span(2, 4)}
    assert resolve("a[h=:-1,k=-3:]") == {"head": Span(0, 3), "key": Span(6, 9)}
    assert resolve("a[h=3:1]") == {"head": Span(3, 3)}  # as in Python: nothing
    assert resolve("a[h=2:99]") == {"head": Span(2, 4)}
    assert resolve("a") == {}
    for text, message in {
        "a[h=4]": r"a\[h=4\]: head 4 is outside 0…3",
        "a[h=-5]": "head -5 is outside 0…3",
        "a[q=9]": "query 9 is outside 0…8",
        "a[d=0]": r"a has no axis 'd'; its axes are b \(batch\), h \(head\), q \(query\), k \(key\)",
        "a[pos=0]": "no axis 'pos'",
        "a[x=0]": "no axis 'x'",
    }.items():
        with pytest.raises(AddressError, match=message):
            resolve(text)


@given(
    size=st.integers(0, 6),
    start=st.one_of(st.none(), st.integers(-8, 8)),
    stop=st.one_of(st.none(), st.integers(-8, 8)),
)
def test_a_span_means_what_a_slice_means(size, start, stop):
    span = Address("a", (("h", Span(start, stop)),)).resolve(("head",), (size,))["head"]
    assert list(range(size))[slice(start, stop)] == list(range(size))[span.start : span.stop]
    assert 0 <= span.start <= span.stop <= size


def test_no_site_has_two_axes_with_one_letter():
    for traits in ARCHITECTURES.values():
        for site in build_program(tiny_config(**traits)).sites:
            letters = [LETTERS[axis] for axis in site.axes]
            assert len(set(letters)) == len(letters), site


def test_moving_an_address():
    address = Address.parse("blocks.2.attn.pattern[head=3,q=9]@1")
    assert str(address.with_index(q=4)) == "blocks.2.attn.pattern[h=3,q=4]@1"
    assert str(address.with_index(h=None, k=Span(0, 2))) == "blocks.2.attn.pattern[q=9,k=0:2]@1"
    assert str(address) == "blocks.2.attn.pattern[h=3,q=9]@1"  # the old one is as it was


# ------------------------------------------------------------------------------------------------------ names


def test_transformer_lens_names():
    assert normalise("blocks.3.attn.hook_pattern") == "blocks.3.attn.pattern"
    assert normalise("blocks.3.hook_resid_pre") == "blocks.3.resid_pre"
    assert normalise("blocks.3.ln1.hook_scale") == "blocks.3.ln1.scale"
    assert normalise("hook_embed") == "embed"
    assert normalise("hooked") == "hooked"


def test_blocks():
    assert block_of("blocks.12.attn.q") == 12
    assert Site("blocks.0.resid_pre", ()).block == 0
    for name in ("embed", "blocks", "blocks.1", "blocks.x.q", "ln_final.scale", "blocks.².q"):
        assert block_of(name) is None


def test_patterns():
    assert matches("blocks.3.attn.q", ["blocks.*.attn.q"])
    assert matches("blocks.3.attn.q", ["x", "blocks.*.attn.hook_q"])
    assert matches("embed", ["*"])
    assert not matches("blocks.3.attn.q", ["blocks.*.attn.k"])
    assert not matches("blocks.3.attn.q", [])
    assert matches("blocks.3.attn.q", ["blocks.[0-3].attn.[qk]"])
    assert not matches("Embed", ["embed"])


# ---------------------------------------------------------------------------------------------- as an index


@pytest.fixture(scope="module")
def two_passes(tiny):
    model = tiny(**MODERN)
    ids = random_ids(model.config, 8)
    return extend(model, trace(model, ids[:5]), ids[5:])


def test_indexing_is_tensor_indexing(two_passes):
    t = two_passes
    pattern = t["blocks.1.attn.pattern"]
    assert pattern.shape == (1, 4, 8, 8)
    assert torch.equal(t["blocks.1.attn.hook_pattern"], pattern)
    assert torch.equal(t["blocks.1.attn.pattern[h=3,q=6,k=2]"], pattern[:, 3, 6, 2])
    assert torch.equal(t["blocks.1.attn.pattern[b=0,h=3,q=6,k=2]"], pattern[0, 3, 6, 2])
    assert t["blocks.1.attn.pattern[b=0,h=3,q=6,k=2]"].shape == ()
    assert torch.equal(t["blocks.1.attn.pattern[q=-1]"], pattern[:, :, -1])
    assert torch.equal(t["blocks.1.attn.pattern[h=1:3,k=:2]"], pattern[:, 1:3, :, :2])
    assert torch.equal(t["blocks.1.attn.pattern[h=2:2]"], pattern[:, 2:2])
    assert torch.equal(t["logits[p=-1,v=5:9]"], t["logits"][:, -1, 5:9])
    assert torch.equal(t["blocks.0.attn.k[g=1]"], t["blocks.0.attn.k"][:, :, 1])
    assert torch.equal(t["tokens[p=2]"], t["tokens"][:, 2])
    assert torch.equal(t[Address("logits", (("p", 0),))], t["logits"][:, 0])


def test_indexing_a_pass(two_passes):
    t = two_passes
    one = t["blocks.1.attn.pattern@1"]
    assert one.shape == (1, 4, 3, 8)
    assert torch.equal(t["blocks.1.attn.pattern[q=0]@1"], one[:, :, 0])
    assert torch.equal(t["blocks.1.attn.pattern"][:, :, 5:], one)
    assert t["blocks.1.attn.pattern@0"].shape == (1, 4, 5, 5)
    assert torch.equal(t["logits[p=-1]@0"], t["logits"][:, 4])
    assert torch.equal(t["blocks.0.attn.cache_k"], t["blocks.0.attn.cache_k@1"])
    # A key that pass 0 did not have yet: weight 0, score −∞.
    assert not t["blocks.1.attn.pattern[q=0:5,k=5:]"].any()
    assert (t["blocks.1.attn.masked[q=0:5,k=5:]"] == -torch.inf).all()


def test_indexing_that_cannot_be(two_passes):
    t = two_passes
    for text, message in {
        "blocks.9.attn.q": "no site 'blocks.9.attn.q'",
        "blocks.1.attn.pattern[h=4]": "head 4 is outside 0…3",
        "blocks.1.attn.pattern[q=8]": "query 8 is outside 0…7",
        "blocks.1.attn.pattern[q=3]@1": "query 3 is outside 0…2",
        "blocks.1.attn.pattern@2": "no pass 2; this trace has passes 0…1",
        "logits@7": "no pass 7",
        "logits[h=0]": "no axis 'h'",
        "blocks.0.attn.past_k[k=0]": "outside",
        "not an address": "is not an address",
    }.items():
        with pytest.raises(AddressError) as error:
            t[text]
        assert message in str(error.value)
        assert "\n" not in str(error.value)


def test_membership(two_passes):
    assert "blocks.0.attn.hook_z" in two_passes
    assert "tokens" in two_passes
    for name in ("blocks.7.attn.z", "", "blocks.0.attn.z[h=0]", 3, None):
        assert name not in two_passes


def test_every_site_can_be_asked_for_by_every_pass(two_passes):
    for site in two_passes.program.sites:
        for at in (0, 1):
            assert tuple(two_passes[f"{site.name}@{at}"].shape) == two_passes.shape(site.name, at)
        assert tuple(two_passes[site.name].shape) == two_passes.shape(site.name)
