"""What the KV cache costs: by hand, measured, as transformers holds it, and as what-ifs."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import (
    ARCHITECTURES,
    CAUSAL,
    ENCODER,
    GEMMA,
    GPT2,
    LONGER,
    MODERN,
    TRANSLATOR,
    configs,
    random_ids,
    random_model,
    tiny_config,
)

from engine import Trace, extend, open_trace, trace
from engine.analysis.cachecost import CacheReport, NoCache, cache_bytes, check_tokens, held, plan_cache, row_bytes
from engine.analysis.kvcache import Timing, cache_report, time_per_token
from engine.checkpoints.lookup import read_config
from engine.errors import Cancelled, ConfigError, MemoryLimitError, PromptError
from engine.ops.attention import per_query_head
from engine.ops.mask import attention_mask

KIB, MIB, GIB = 2**10, 2**20, 2**30

KINDS = CAUSAL | {
    "longer": LONGER,
    "mixed": MODERN | {"kinds": GEMMA["kinds"], "layer_kinds": ("near", "near", "far"), "n_layers": 5},
    "itself alone": MODERN | {"window": 1},
}

LLAMA = {"model_type": "llama", "vocab_size": 128_256, "max_position_embeddings": 131_072, "rope_theta": 500_000.0}
PUBLISHED = {  # from their config.json, what bears on the cache
    "Llama-3.1-8B": LLAMA | {
        "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
    "Llama-3.2-1B": LLAMA | {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 64,
    },
    "gpt2": {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_ctx": 1024, "n_positions": 1024,
             "vocab_size": 50_257},
    "Mistral-7B-v0.1": {
        "model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "sliding_window": 4096, "max_position_embeddings": 32_768,
        "vocab_size": 32_000,
    },
    "gemma-2-2b": {
        "model_type": "gemma2", "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096,
        "max_position_embeddings": 8192, "vocab_size": 256_000,
    },
    "gemma-3-1b": {
        "model_type": "gemma3_text", "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26,
        "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "sliding_window": 512,
        "sliding_window_pattern": 6, "max_position_embeddings": 32_768, "vocab_size": 262_144,
    },
    "starcoder": {
        "model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 40, "n_head": 48, "n_inner": 24_576,
        "n_positions": 8192, "multi_query": True, "vocab_size": 49_152,
    },
}  # fmt: skip


def published(name: str):
    return read_config(PUBLISHED[name], name)[0]


def cost_of(config, tokens: int = 18, memory: int | None = None, **more) -> CacheReport:
    """The report of a model that is not run, on a machine with so much memory."""
    planned = plan_cache(config, tokens, **{"dtype": "float32"} | more)
    return planned if memory is None else replace(planned, memory=memory)


def traced(traits, n: int = 9, dtype: torch.dtype = torch.float32, **more) -> Trace:
    model = random_model(tiny_config(**traits), dtype=dtype)
    return trace(model, random_ids(model.config, n), **more)


# ------------------------------------------------------------------------------------------- the formula, by hand


@pytest.mark.parametrize(
    ("name", "tokens", "itemsize", "size"),
    [
        ("Llama-3.1-8B", 8192, 2, GIB),  # 2 · 32 · 8 · 128 · 8192 · 2
        ("Llama-3.1-8B", 1, 2, 128 * KIB),
        ("Llama-3.2-1B", 131_072, 2, 4 * GIB),  # 2 · 16 · 8 · 64 · 131072 · 2
        ("gpt2", 1024, 4, 72 * MIB),  # 2 · 12 · 12 · 64 · 1024 · 4
        ("Mistral-7B-v0.1", 4095, 2, 512 * MIB - 128 * KIB),  # 2 · 32 · 8 · 128 · 4095 · 2
        ("Mistral-7B-v0.1", 32_768, 2, 512 * MIB - 128 * KIB),
        ("gemma-2-2b", 8192, 2, 2 * 4 * 256 * 2 * (13 * 8192 + 13 * 4095)),
        ("gemma-3-1b", 32_768, 2, 2 * 1 * 256 * 2 * (4 * 32_768 + 22 * 511)),
        ("starcoder", 8192, 2, 160 * MIB),  # 2 · 40 · 1 · 128 · 8192 · 2
    ],
)
def test_published_models(name, tokens, itemsize, size):
    assert cache_bytes(published(name), tokens, itemsize) == size


def test_a_what_if_of_kv_heads_by_hand():
    llama, starcoder = published("Llama-3.1-8B"), published("starcoder")
    assert cache_bytes(llama, 8192, 2, kv_heads=32) == 4 * GIB  # as MHA
    assert cache_bytes(llama, 8192, 2, kv_heads=1) == GIB // 8  # as MQA
    assert cache_bytes(starcoder, 8192, 2, kv_heads=48) == 48 * 160 * MIB
    assert [row["name"] for row in cost_of(llama).as_kinds()] == ["MHA", "GQA (8)", "MQA"]
    assert [row["kv_heads"] for row in cost_of(starcoder).as_kinds()] == [48, 12, 1]
    assert [row["kv_heads"] for row in cost_of(published("gpt2")).as_kinds()] == [12, 3, 1]
    prime = tiny_config(n_heads=7, n_kv_heads=1)  # no group between
    assert [row["name"] for row in cost_of(prime).as_kinds()] == ["MHA", "MQA"]
    assert [row["name"] for row in cost_of(tiny_config(n_heads=1)).as_kinds()] == ["MHA"]


def test_the_formula_in_words():
    modern = tiny_config(**MODERN, n_layers=6)
    assert cost_of(modern).formula_text == (
        "2 (k and v) × 6 layers × 2 kv heads × 6 d_head × 18 positions × 4 B = 10,368 B"
    )
    assert cost_of(tiny_config(**GEMMA)).formula_text == (
        "2 (k and v) × (1 layer × 2 + 1 layer × 18 positions) × 2 kv heads × 6 d_head × 4 B = 1,920 B"
    )
    assert cost_of(tiny_config(**TRANSLATOR), 5, source=11, batch=2).formula_text == (
        "2 prompts × 2 (k and v) × 2 layers × 4 kv heads × 6 d_head × 5 positions × 4 B + "
        "2 prompts × 2 (k and v) × 2 layers × 4 kv heads × 6 d_head × 11 source positions × 4 B = 12,288 B"
    )


@given(config=configs(causal=True), tokens=st.integers(0, 40), itemsize=st.sampled_from([1, 2, 4, 8]))
def test_what_is_held_is_what_the_next_token_sees(config, tokens, itemsize):
    """The mask decides: a position is held where the query after the last one may attend to it."""
    positions, size = torch.arange(tokens + 1)[None], 0
    for layer in range(config.n_layers):
        mask = attention_mask(positions[:, -1:], positions, causal=True, window=config.kind(layer).window)
        seen = int(mask.sum()) - 1  # but for itself
        assert held(config, layer, tokens) == seen
        size += 2 * config.kv_heads * config.d_head * seen * itemsize
    assert cache_bytes(config, tokens, itemsize) == size


# ------------------------------------------------------------------------------------------------------ measured


def assert_measured(t: Trace) -> CacheReport:
    told = cache_report(t)
    assert told.bytes == told.formula
    assert all(layer.bytes == layer.formula <= layer.allocated for layer in told.layers)
    assert told.allocated >= told.bytes
    return told


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", KINDS)
def test_the_tensors_hold_what_the_formula_says(name, dtype):
    model = random_model(tiny_config(**KINDS[name]), dtype=dtype)
    t = trace(model, random_ids(model.config, 5))
    told = [assert_measured(t)]
    for more in (1, 1, 4, 1):
        t = extend(model, t, random_ids(model.config, more))
        told.append(assert_measured(t))
    assert [row["bytes"] for row in told[-1].growth()] == [earlier.bytes for earlier in told]
    assert [(row["positions"], row["new"]) for row in told[-1].growth()] == [(5, 5), (6, 1), (7, 1), (11, 4), (12, 1)]
    assert told[-1].bytes == cache_bytes(model.config, 12, dtype.itemsize)
    for layer in told[-1].layers:
        window = model.config.kind(layer.layer).window
        assert layer.stored == (12 if window is None else window - 1)
        assert layer.stored + layer.dropped == 12


def test_one_more_token_adds_what_was_said():
    for name, traits in KINDS.items():
        model = random_model(tiny_config(**traits), dtype=torch.float32)
        t = trace(model, [1])
        for _ in range(5):
            before = cache_report(t)
            t = extend(model, t, [2])
            assert cache_report(t).bytes == before.bytes + before.next_token, name


def test_a_batch_and_what_it_is_padded_with():
    model = random_model(tiny_config(**GEMMA), dtype=torch.float32)
    told = assert_measured(trace(model, [random_ids(model.config, 9), random_ids(model.config, 4)]))
    assert (told.batch, told.bytes) == (2, 2 * cache_bytes(model.config, 9, 4))


def test_what_is_recorded_changes_nothing():
    for keep in ("all", "residual", ["logits"]):
        assert assert_measured(traced(GEMMA, keep=keep)).tokens == 9


@pytest.mark.parametrize("name", ["modern", "gemma", "experts"])
def test_a_saved_trace_tells_the_same(name, tmp_path):
    model = random_model(tiny_config(**KINDS[name]), dtype=torch.float32)
    t = extend(model, trace(model, random_ids(model.config, 6)), [1])
    t.save(tmp_path / "t")
    recorded, opened = cache_report(t), cache_report(open_trace(tmp_path / "t"))
    assert [replace(layer, allocated=0) for layer in opened.layers] == [
        replace(layer, allocated=0) for layer in recorded.layers
    ]


def test_a_translator_holds_its_source_as_well():
    model = random_model(tiny_config(**TRANSLATOR), dtype=torch.float32)
    t = trace(model, random_ids(model.config, 7), target=[1, 2])
    told = assert_measured(t)
    cross = sum(t[f"blocks.{layer}.cross_attn.{x}"].nbytes for layer in range(2) for x in "kv")
    own = sum(t[f"blocks.{layer}.attn.cache_{x}"].nbytes for layer in range(2) for x in "kv")
    assert (told.source, told.cross, told.cross_formula, told.bytes) == (7, cross, cross, own + cross)
    later = assert_measured(extend(model, t, [3, 4]))
    assert (later.cross, later.bytes) == (cross, told.bytes + 2 * told.per_token)  # it does not grow
    assert later.to_json()["cross"] == {"positions": 7, "bytes": cross, "formula": cross}
    assert "stay as they are" in told.text


# ---------------------------------------------------------------------------------------------- as transformers does


def theirs(model_type: str, **fields):
    """A tiny model of transformers, its config as we read it, and the config class's own fields."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = CONFIG_MAPPING[model_type](**fields)
    auto = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    raw = {key: value for key, value in config.to_dict().items() if key != "architectures"}
    return auto.from_config(config, attn_implementation="eager").eval(), read_config(raw, model_type)[0]


SIZES = {
    "vocab_size": 37, "hidden_size": 24, "intermediate_size": 26, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 64, "pad_token_id": None,
}  # fmt: skip
OLDER = {"vocab_size": 37, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_inner": 26, "n_positions": 64}


@pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated")  # its newer name came with transformers 5.24
@pytest.mark.parametrize(
    ("model_type", "fields"),
    [
        ("llama", SIZES),
        ("gpt2", OLDER),
        ("gpt_bigcode", OLDER | {"multi_query": True}),
        ("mistral", SIZES | {"sliding_window": 4}),
        ("gemma2", SIZES | {"sliding_window": 4}),
        ("gemma3_text", SIZES | {"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"] * 2}),
        ("qwen2", SIZES | {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_transformers_holds_as_many_bytes(model_type, fields):
    """Its DynamicCache too keeps the last W − 1 positions of a sliding layer."""
    model, config = theirs(model_type, **fields)
    ours = random_model(config, dtype=torch.float32)
    t, past, done = None, None, 0
    for n in (3, 1, 5, 1):
        ids = random_ids(config, n)
        t = trace(ours, ids) if t is None else extend(ours, t, ids)
        with torch.no_grad():
            past = model(input_ids=torch.tensor([ids]), past_key_values=past, use_cache=True).past_key_values
        done += n
        told = cache_report(t)
        by_layer = [layer.keys.nbytes + layer.values.nbytes for layer in past.layers]
        assert [layer.bytes for layer in told.layers] == by_layer
        assert told.bytes == cache_bytes(config, done, 4) == sum(by_layer)


def test_transformers_holds_a_source_of_as_many_bytes():
    model, config = theirs("t5", vocab_size=37, d_model=24, d_kv=6, d_ff=26, num_layers=2, num_heads=4,
                           decoder_start_token_id=0)  # fmt: skip
    with torch.no_grad():
        past = model(input_ids=torch.tensor([[3] * 7]), decoder_input_ids=torch.tensor([[0, 1, 2]])).past_key_values
    told = cache_report(trace(random_model(config, dtype=torch.float32), [3] * 7, target=[1, 2]))
    own, cross = (
        [layer.keys.nbytes + layer.values.nbytes for layer in half.layers]
        for half in (past.self_attention_cache, past.cross_attention_cache)
    )
    assert [layer.bytes for layer in told.layers] == own
    assert (told.cross, told.bytes) == (sum(cross), sum(own) + sum(cross))


# --------------------------------------------------------------------------------------------------- what-ifs


@given(config=configs(causal=True), n=st.integers(1, 6))
def test_another_number_of_kv_heads_costs_what_such_a_model_holds(config, n):
    told = cache_report(trace(random_model(config, dtype=torch.float32), random_ids(config, n)))
    rows = told.as_kinds()
    assert [row["kv_heads"] for row in rows if row["this"]] == [config.kv_heads]
    for row in rows:
        other = replace(config, n_kv_heads=row["kv_heads"])
        again = cache_report(trace(random_model(other, dtype=torch.float32), random_ids(other, n)))
        assert (row["bytes"], row["per_token"]) == (again.bytes, again.per_token)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_another_dtype_costs_what_it_takes(dtype):
    told = cache_report(traced(GEMMA, dtype=torch.float32))
    row = next(r for r in cache_report(traced(GEMMA, dtype=dtype)).as_dtypes() if r["this"])
    assert (row["name"], row["bytes"]) == (str(dtype).removeprefix("torch."), told.bytes * dtype.itemsize // 4)
    assert [r["name"] for r in told.as_dtypes()] == ["float32", "bfloat16", "float8", "int8", "int4"]


@pytest.mark.parametrize("d_head", [6, 7, 32, 33, 64, 128])
def test_whole_numbers_count_their_scales(d_head):
    groups = -(-d_head // 32)
    scales = torch.empty(groups, dtype=torch.float16).nbytes
    assert row_bytes(d_head, "int8") == torch.empty(d_head, dtype=torch.int8).nbytes + scales
    packed = torch.nn.functional.pad(torch.arange(d_head) % 16, (0, d_head % 2)).view(-1, 2)  # two to a byte
    assert row_bytes(d_head, "int4") == (packed[:, 0] * 16 + packed[:, 1]).to(torch.uint8).nbytes + 2 * scales
    assert row_bytes(d_head, "float8") == torch.empty(d_head, dtype=torch.float8_e4m3fn).nbytes
    told = {row["name"]: row["counted"] for row in cost_of(tiny_config(d_head=d_head)).as_dtypes()}
    assert told["int4"] == f"4 bits a number, and a scale and a minimum of 2 B for every {min(d_head, 32)}"
    assert told["float8"] == "1 B a number"


def test_heads_share_what_attention_gives_them():
    told = cost_of(tiny_config(n_heads=6, n_kv_heads=2))
    read = per_query_head(torch.arange(2.0).view(1, 1, 2, 1), 6).flatten().tolist()  # the kv head of each head
    assert [head for row in told.sharing() for head in row["heads"]] == list(range(6))
    assert [row["kv_head"] for row in told.sharing() for _ in row["heads"]] == read


def test_lengths_go_up_to_the_context_and_beyond():
    rows = cost_of(published("gpt2"), 18).at_lengths()
    assert [(row["tokens"], row["beyond"], row["this"]) for row in rows] == [
        (18, False, True), (1024, False, False), (4096, True, False),
    ]  # fmt: skip
    assert rows[1]["bytes"] == 72 * MIB
    lengths = [row["tokens"] for row in cost_of(published("Llama-3.1-8B"), 4096).at_lengths()]
    assert lengths == [1024, 4096, 16_384, 65_536, 131_072, 262_144]
    asked = cache_report(traced(MODERN), tokens=77).at_lengths()
    assert [row["tokens"] for row in asked] == [9, 64, 77, 1024, 4096]


# ------------------------------------------------------------------------------------------------ what fits


@given(config=configs(causal=True), memory=st.integers(0, 60_000), batch=st.integers(1, 3))
def test_it_fits_until_there_and_no_further(config, memory, batch):
    told = cost_of(config, batch=batch, memory=memory)
    fits = told.fits()
    if fits["tokens"] is None:
        assert all(config.kind(layer).window for layer in range(config.n_layers))
        assert batch * cache_bytes(config, 2**31, 4) <= memory
        assert "at any length" in fits["text"]
    else:
        n = fits["tokens"]
        assert batch * cache_bytes(config, n, 4) <= memory < batch * cache_bytes(config, n + 1, 4)
        assert f"{n:,} token" in fits["text"]


def test_what_fits_by_hand():
    llama = cost_of(published("Llama-3.1-8B"), dtype="bfloat16", memory=GIB)
    assert llama.fits() == {
        "memory": GIB,
        "tokens": 8192,
        "text": "fits until 8,192 tokens in the 1.0 GiB that are free on cpu, less than its n_ctx of 131,072",
    }
    assert replace(llama, memory=GIB - 1).fits()["tokens"] == 8191
    mistral = cost_of(published("Mistral-7B-v0.1"), dtype="bfloat16", memory=512 * MIB)
    assert mistral.fits()["tokens"] is None
    assert "after 4,095 tokens the cache stays at 511.9 MiB" in mistral.fits()["text"]
    assert replace(mistral, memory=512 * MIB - 128 * KIB - 1).fits()["tokens"] == 4094
    gpt2 = cost_of(published("gpt2"), memory=GIB).fits()["text"]
    assert gpt2.endswith("more than the 1,024 where its positions end")


def test_a_source_takes_its_part_first():
    told = cost_of(tiny_config(**TRANSLATOR), 5, source=11)
    one = told.per_token
    assert replace(told, memory=told.cross_formula + 3 * one).fits()["tokens"] == 3
    assert replace(told, memory=told.cross_formula + 3 * one - 1).fits()["tokens"] == 2
    none = replace(told, memory=told.cross_formula - 1).fits()
    assert (none["tokens"], "of the source alone" in none["text"]) == (0, True)


def test_free_memory_is_the_devices(monkeypatch):
    for module in ("cachecost", "kvcache"):
        monkeypatch.setattr(f"engine.analysis.{module}.available_memory", lambda device: {"cpu": 12_345}[str(device)])
    assert cache_report(traced(MODERN)).fits()["memory"] == 12_345
    assert cost_of(tiny_config()).fits()["memory"] == 12_345


# ------------------------------------------------------------------------------------------------- what is told


def test_the_report_as_json():
    data = cache_report(traced(GEMMA)).to_json()
    assert {key: data[key] for key in ("dtype", "itemsize", "device", "tokens", "stored", "bytes", "formula")} == {
        "dtype": "float32", "itemsize": 4, "device": "cpu", "tokens": 9, "stored": 2 + 9, "bytes": 1056,
        "formula": 1056,
    }  # fmt: skip
    near, far = data["layers"]
    sizes = {"heads": 4, "kv_heads": 2, "group": 2, "d_head": 6}
    assert near.items() >= (sizes | {"kind": "window", "window": 3, "stored": 2, "dropped": 7, "bytes": 192}).items()
    assert far.items() >= (sizes | {"kind": "full", "window": None, "stored": 9, "dropped": 0, "bytes": 864}).items()
    assert (data["per_token"], data["next_token"]) == (192, 96)
    assert data["text"].startswith(
        "1.0 KiB for 9 positions in 2 layers; one more adds 96 B; windows have dropped 7 row"
    )


def test_nothing_is_measured_where_nothing_ran():
    data = cost_of(tiny_config(**MODERN)).to_json()
    assert (data["bytes"], data["allocated"], data["layers"][0]["bytes"]) == (None, None, None)
    assert data["formula"] == cache_bytes(tiny_config(**MODERN), 18, 4)


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in CAUSAL])
def test_an_encoder_has_none(name):
    t = traced(ARCHITECTURES[name])
    for told in (cache_report(t), plan_cache(t.config, 9, "float32")):
        assert isinstance(told, NoCache)
        assert told.to_json() == {"none": True, "text": told.text}
        assert "tiny looks both ways" in told.text
    assert cache_bytes(t.config, 9, 4) == 0


@pytest.mark.parametrize("tokens", [-1, 2**31 + 1, 10**30, True, 1.5, "4", None])
def test_numbers_of_tokens_that_no_cache_has(tokens):
    for ask in (lambda: check_tokens(tokens), lambda: cache_bytes(tiny_config(), tokens, 4)):
        with pytest.raises(PromptError, match=r"tokens must be a whole number in 0…2147483648, but is ") as error:
            ask()
        assert len(str(error.value)) < 120
    with pytest.raises(PromptError):
        plan_cache(tiny_config(), tokens, "float32")


def test_no_tokens_take_nothing():
    told = cost_of(tiny_config(**GEMMA), 0)
    assert (told.formula, told.stored, told.growth()) == (0, 0, [])
    assert cache_report(traced(MODERN), tokens=0).at_lengths()[0] == {
        "tokens": 0, "bytes": 0, "beyond": False, "this": False,
    }  # fmt: skip


def test_the_most_tokens_are_counted_at_once():
    config = published("Llama-3.1-8B")
    assert cost_of(config, 2**31, dtype="bfloat16").formula == 2**31 * 128 * KIB


@pytest.mark.parametrize("kv_heads", [0, -1, 3, 8])
def test_kv_heads_that_no_model_has(kv_heads):
    with pytest.raises(ConfigError, match="kv_heads"):
        cache_bytes(tiny_config(), 4, 4, kv_heads=kv_heads)


# --------------------------------------------------------------------------------------------------- its time


def test_one_more_token_is_timed_both_ways():
    model = random_model(tiny_config(**MODERN, n_ctx=4096), dtype=torch.float32)
    t = trace(model, random_ids(model.config, 2000), keep="residual")
    timing = time_per_token(model, t)
    assert 0 < timing.cached < timing.uncached
    assert timing.tokens == 2000 == t.length  # the trace is as it was
    assert timing.to_json() == {
        "cached_ms": 1000 * timing.cached, "uncached_ms": 1000 * timing.uncached, "tokens": 2000, "text": timing.text,
    }  # fmt: skip


def test_a_timing_in_words():
    assert Timing(0.0021, 0.0147, 17).text == (
        "one more token after 17 positions takes 2.1 ms on the cache, and 14.7 ms where all 18 are run anew: 7 times "
        "as long"
    )
    assert "1.5 s where all 2,000 are run anew" in Timing(0.1, 1.5, 1999).text


@pytest.mark.parametrize("name", ["gemma", "experts", "multiplied", "translator"])
def test_every_kind_can_be_timed(name):
    model = random_model(tiny_config(**(KINDS | {"translator": TRANSLATOR})[name]), dtype=torch.float32)
    assert time_per_token(model, trace(model, [1, 2, 3])).uncached > 0


def test_both_ways_are_the_same_token(monkeypatch):
    """What is run anew ends in the logits that the first token on the cache had."""
    made = []
    monkeypatch.setattr("engine.analysis.kvcache._timed", lambda work, *_: made.append(work()) or 1.0)
    for traits, more in ((MODERN, {}), (MODERN, {"positions": [3, 4, 9]}), (TRANSLATOR, {"target": [5]})):
        model = random_model(tiny_config(**traits))
        time_per_token(model, trace(model, [1, 2, 3], **more))
        cached, anew = made[-2].kept["logits"][0, -1], made[-1]["logits"][0, -1]
        assert torch.allclose(cached, anew, rtol=1e-10, atol=1e-10)


def test_what_cannot_go_on_cannot_be_timed(monkeypatch):
    model = random_model(tiny_config(**GPT2, n_ctx=4), dtype=torch.float32)
    with pytest.raises(PromptError, match="4 positions"):
        time_per_token(model, trace(model, [1, 2, 3, 4]))
    assert time_per_token(model, trace(model, [1, 2, 3])).cached > 0  # one is left, and it is timed once
    with pytest.raises(PromptError, match="batch"):
        time_per_token(model, trace(model, [[1, 2], [3, 4]]))
    encoder = random_model(tiny_config(**ENCODER), dtype=torch.float32)
    with pytest.raises(PromptError, match="looks both ways"):
        time_per_token(encoder, trace(encoder, [1, 2]))
    long = random_model(tiny_config(**MODERN, n_ctx=8192, d_vocab=2000), dtype=torch.float32)
    t = trace(long, [1] * 5000, keep="residual")
    monkeypatch.setattr("engine.plan.available_memory", lambda device: 1000)
    with pytest.raises(MemoryLimitError, match="5001 tokens"):
        time_per_token(long, t)


def test_timing_stops_when_told_to():
    model = random_model(tiny_config(**MODERN), dtype=torch.float32)
    t = trace(model, [1, 2, 3])
    calls = []

    def watch(done: int, total: int, site: str) -> None:
        calls.append(site)
        if len(calls) == at:
            raise Cancelled("cancelled")

    for at in (1, 20, 300):
        calls.clear()
        with pytest.raises(Cancelled):
            time_per_token(model, t, watch=watch)
        assert len(calls) == at
    assert assert_measured(t).tokens == 3
