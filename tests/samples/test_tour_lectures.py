"""What the seven lectures say of the sample models is so: each claim of a narration, an answer or a note, measured."""

from __future__ import annotations

import inspect
import json
from math import cos, exp, isclose, pi, sin, sqrt
from pathlib import Path

import torch
from torch import Tensor
from toured import asked, entropy, labels, main, model, next_token, other, tour

from engine import Trace, cache_report, lens, neighbours
from engine.tours import Mark
from engine.tours import quoted as rounded
from samples.training import sentences

MODELS = Path(__file__).parents[2] / "samples" / "models"
PRONOUN = tour("heads").prompt
IT = 10
CAPITALS = {"France": "␣Paris", "Spain": "␣Madrid", "Italy": "␣Rome"}


def silent(*heads: int) -> Trace:
    """The server and the disk without some heads of layer 1, at `It` alone."""
    return asked("modern", PRONOUN, *(f"blocks.1.attn.z[h={head},p={IT}] = 0" for head in heads))


def lens_column(t: Trace, site: str, pos: int = -1) -> str:
    found = lens(t)
    return t.label(int(found.ids[pos, found.sites.index(site)]))


def norms(t: Trace) -> Tensor:
    """The length of the stream at every depth and token. [site pos]"""
    return torch.stack([t[site][0].norm(dim=-1) for site in lens(t).sites])


def add_up(t: Trace, first: str, second: str, total: str) -> bool:
    """Whether a sum that is shown, with three digits each, is right to who adds up what is read."""
    a, b, c = (rounded(float(t[place])) for place in (first, second, total))
    return rounded(float(a) + float(b)) == c


# --- order --------------------------------------------------------------------------------------------------


def test_order_twins_enter_as_the_same_vector():
    embed = main("order")["embed"][0]
    for word, (first, second) in {"␣bites": (2, 6), "␣man": (3, 5), ".": (4, 8)}.items():
        assert [labels(main("order"))[pos] for pos in (first, second)] == [word, word]
        assert torch.equal(embed[first], embed[second])


def test_order_without_positions_the_model_takes_the_second_man_for_the_first():
    with_them, without = main("order"), other("order")
    assert [next_token(with_them, pos) for pos in (3, 5)] == [".", "␣bites"]
    assert [next_token(without, pos) for pos in (3, 5)] == [".", "."]
    assert (without["probs"][0, [3, 5], 16] > 0.95).all()


def test_order_without_positions_a_row_of_layer_0_reads_the_same_backwards():
    with_them, without = (t["blocks.0.attn.pattern"][0, :, 8, 2:7] for t in (main("order"), other("order")))
    assert torch.allclose(without, without.flip(-1), atol=1e-7)
    assert (with_them[6] - with_them[6].flip(-1)).abs().max() > 0.2
    assert without[6, 0] > 2 * without[6, 1:4].max()  # it is one that looks for verbs


def test_order_shuffled_words_leave_the_last_row_as_it_is_and_only_without_positions():
    ids = main("order")["tokens"][0].tolist()
    shuffled = (ids[0], *(ids[i] for i in (5, 2, 7, 3, 1, 6, 4)), ids[8])
    without = asked("classic", shuffled, "pos_embed = 0")["blocks.0.attn.z"][0, 8]
    assert torch.allclose(without, other("order")["blocks.0.attn.z"][0, 8], atol=1e-6)
    with_them = asked("classic", shuffled)["blocks.0.attn.z"][0, 8]
    assert (with_them - main("order")["blocks.0.attn.z"][0, 8]).abs().max() > 0.1


def test_order_the_mask_lets_it_in_by_the_back_door():
    without = other("order")
    assert (without["blocks.0.attn.z"][0, 2] - without["blocks.0.attn.z"][0, 6]).abs().max() > 0.5
    row = without["blocks.1.attn.pattern"][0, 2, 8]
    assert row[2] - row[6] > 0.1


def test_order_the_waves_are_hands_of_clocks():
    table = main("order")["pos_embed"][0]
    assert isclose(table[5, 0], sin(5), abs_tol=1e-6)
    assert isclose(table[5, 1], cos(5), abs_tol=1e-6)
    assert 6 < 2 * pi / float(table[1, 0].asin()) < 7  # one turn of the first hand
    assert 2 * pi / float(table[1, 126].asin()) > 50_000
    assert table.abs().max() <= 1
    assert torch.unique(table, dim=0).shape == table.shape  # no two positions alike


def test_order_word_and_position_are_added():
    t, place = main("order"), "[b=0,p=5,d=0]"
    assert torch.equal(t["embed_scaled"] + t["pos_embed"], t["blocks.0.resid_pre"])
    assert add_up(t, f"embed_scaled{place}", f"pos_embed{place}", f"blocks.0.resid_pre{place}")
    assert isclose(model("classic").config.embed_scale, sqrt(128), rel_tol=1e-6)
    assert torch.equal(*(other("order")["blocks.0.resid_pre"][0, pos] for pos in (3, 5)))


def test_order_a_head_finds_the_token_before_and_is_blind_without_positions():
    before = [t["blocks.0.attn.pattern"][0, 0].diagonal(-1) for t in (main("order"), other("order"))]
    assert before[0].min() > 0.9
    assert before[1][-1] < 0.2


# --- vectors ------------------------------------------------------------------------------------------------


def test_vectors_three_commas_come_in_alike_and_go_out_as_three_days():
    t = main("vectors")
    commas = [pos for pos, label in enumerate(labels(t)) if label == ","]
    assert commas == [4, 6, 8]
    first, *more = (t["embed"][0, pos] for pos in commas)
    assert all(torch.equal(first, row) for row in more)
    assert [next_token(t, pos) for pos in commas] == ["␣Tuesday", "␣Wednesday", "␣Thursday"]
    ends = [t["blocks.3.resid_post"][0, pos] for pos in (4, 8)]
    assert torch.cosine_similarity(*ends, dim=0) < 0.5


def test_vectors_the_pieces_are_those_that_it_shows():
    m = model("modern")
    assert labels(main("vectors"))[1:6] == ["M", "o", "nday", ",", "␣Tuesday"]
    assert [token.label for token in m.tokenizer.encode(" Monday")[1:]] == ["␣Monday"]
    assert [token.bytes for token in m.tokenizer.encode("🐈")[1:]] == [bytes([byte]) for byte in "🐈".encode()]
    single = {token.bytes for i in range(m.config.d_vocab) if len((token := m.tokenizer.token(i)).bytes) == 1}
    assert len(single) == 256
    assert m.config.d_vocab * m.config.d_model == 262144


def test_vectors_the_nearest_arrows_are_those_of_days():
    t = main("vectors")
    near = [t.label(found.id) for found in neighbours(t, int(t["tokens"][0, 5]), 5)]
    assert near[:3] == ["␣Monday", "␣Wednesday", "␣Friday"]
    assert "uesday" in near
    ends = [t.label(found.id) for found in neighbours(t, int(t["tokens"][0, 3]), 5)]
    assert ends[:2] == ["aturday", "ursday"]
    comma = [t.label(found.id) for found in neighbours(t, int(t["tokens"][0, 4]), 3)]
    assert comma == [".", "␣and", ";"]
    assert {"␣Friday", "␣Tuesday", "␣Saturday"} <= {t.label(found.id) for found in neighbours(t, 1254, 10)}


def test_vectors_a_head_sends_each_comma_to_its_day():
    pattern = main("vectors")["blocks.1.attn.pattern"][0, 5]
    assert all(pattern[comma].argmax() == comma - 1 and pattern[comma, comma - 1] > 0.8 for comma in (4, 6, 8))


def test_vectors_the_lens_reads_as_it_says():
    t = main("vectors")
    found = lens(t)
    assert found.ids[:, 0].tolist() == t["tokens"][0].tolist()  # at the start every token knows itself
    last = [t.label(int(token)) for token in found.ids[8]]
    assert last[2:7] == ["␣Mark", "␣Thursday", "␣eight", "␣eight", "␣Thursday"]
    assert found.sites[3] == "blocks.1.resid_mid"
    assert add_up(t, *(f"blocks.1.{site}[b=0,p=8,d=4]" for site in ("resid_pre", "attn_out", "resid_mid")))


def test_vectors_the_end_is_compared_with_the_table_of_the_start():
    t, table = main("vectors"), model("modern").weights["embed.weight"]
    end = t["ln_final.normalized"][0, 8]
    assert torch.allclose(end @ table[1078], t["logits"][0, 8, 1078], atol=1e-4)
    assert torch.cosine_similarity(table, end, dim=-1).argmax() == 1078
    assert [t.label(token) for token in (1078, 1254, 1057, 1050)] == ["␣Thursday", "␣eight", "␣Tuesday", "␣Wednesday"]
    assert t["logits"][0, 8].topk(2).indices.tolist() == [1078, 1254]


# --- attention ----------------------------------------------------------------------------------------------


def test_attention_the_verb_finds_its_subject_past_the_nearer_noun():
    t = main("attention")
    assert labels(t)[1:] == ["The", "␣keys", "␣to", "␣the", "␣cabinet", "␣are"]
    row = t["blocks.1.attn.scores"][0, 5, 6]
    assert row.topk(2).indices.tolist() == [2, 3]
    assert t["blocks.1.attn.pattern"][0, 5, 6, 5] < 0.001
    assert model("modern").config.n_heads // model("modern").config.n_kv_heads == 2
    assert next_token(t) == "␣rusty" == t.label(1620)
    assert next_token(asked("modern", "The cabinet of the keys is")) == "␣wooden"


def test_attention_only_the_distance_counts_in_layer_0():
    later = asked("modern", f"Once upon a time. {tour('attention').prompt}")
    assert (labels(later)[11], labels(later)[7]) == ("␣are", "␣keys")
    here, there = main("attention")["blocks.0.attn.scores"][0, 7, 6, 2], later["blocks.0.attn.scores"][0, 7, 11, 7]
    assert torch.allclose(here, there, atol=1e-4)
    plain = [t["blocks.0.attn.q"][0, pos, 7] for t, pos in ((main("attention"), 6), (later, 11))]
    turned = [t["blocks.0.attn.rot_q"][0, pos, 7] for t, pos in ((main("attention"), 6), (later, 11))]
    assert torch.allclose(*plain, atol=1e-5)
    assert (turned[0] - turned[1]).abs().max() > 0.1


def test_attention_the_arithmetic_in_its_words_is_that_of_the_model():
    t, undone = main("attention"), other("attention")
    scores, scaled = t["blocks.1.attn.scores"][0, 5, 6], t["blocks.1.attn.scaled"][0, 5, 6]
    assert round(float(scores[2] - scores[3]), 2) == 16.66
    assert 16.5e6 < exp(16.66) < 17.5e6
    assert round(float(scaled[2] - scaled[3]), 3) == 4.165
    assert round(exp(4.165)) == 64
    soft, hard = (float(found["blocks.1.attn.pattern"][0, 0, 6, 6]) for found in (t, undone))
    assert (round(soft, 2), round(1 - soft, 2), round(soft * (1 - soft), 2)) == (0.71, 0.29, 0.21)
    assert round(hard * (1 - hard), 4) == 0.0003


def test_attention_undoing_the_division_hardens_the_weights_but_not_the_answer():
    t, undone = main("attention"), other("attention")
    assert torch.equal(undone["blocks.1.attn.scaled"], t["blocks.1.attn.scores"])
    soft, hard = (float(entropy(found["blocks.1.attn.pattern"][0, :, 1:]).mean()) for found in (t, undone))
    assert soft > 1
    assert hard < 0.5
    everywhere = asked("modern", tour("attention").prompt, *(f"blocks.{n}.attn.q *= 4" for n in range(4)))
    assert next_token(undone) == next_token(everywhere) == "␣rusty"


def test_attention_what_the_head_brings_is_nearly_the_value_of_keys():
    t = main("attention")
    z, value = t["blocks.1.attn.z"][0, 6, 5], t["blocks.1.attn.v"][0, 2, 2]
    assert torch.cosine_similarity(z, value, dim=0) > 0.99
    brought = t["blocks.1.attn.result"][0, 6].norm(dim=-1)
    assert set(brought.topk(3).indices.tolist()) == {5, 6, 7}
    assert (t["blocks.1.attn.pattern"][0, 5:8, 6].argmax(-1) == 2).all()
    assert torch.allclose(t["blocks.1.attn.result"][0, 6].sum(0), t["blocks.1.attn_out"][0, 6], atol=1e-4)


# --- heads --------------------------------------------------------------------------------------------------


def test_heads_the_model_follows_the_subject():
    assert labels(main("heads")).index("␣It") == IT
    assert next_token(main("heads")) == "␣rebooted" == main("heads").label(1518)
    assert next_token(asked("modern", "The disk crashed because the server was full. It")) == "␣clicked"
    assert main("heads")["probs"][0, IT, 1652] < 0.001
    assert main("heads").label(1652) == "␣clicked"


def test_heads_three_are_sharp_and_look_from_it_to_the_server():
    t = main("heads")
    assert set(entropy(t["blocks.1.attn.pattern"][0]).mean(-1).topk(3, largest=False).indices.tolist()) == {5, 6, 7}
    server, disk = labels(t).index("␣server"), labels(t).index("␣disk")
    at_it = t["blocks.1.attn.pattern"][0, 5:8, IT]
    assert (at_it[:, server] > 0.9).all()
    assert at_it[0, disk] < 0.001
    assert t["blocks.1.attn.pattern"][0, 5, labels(t).index("␣crashed")].argmax() == server
    assert t["blocks.1.attn.pattern"][0, 5, labels(t).index("␣was")].argmax() == disk


def test_heads_the_dull_explanation_fails_when_the_sentence_is_turned_round():
    turned = asked("modern", "Because the disk was full, the server crashed. It")
    words = labels(turned)
    assert words.index("␣disk") < words.index("␣server") == len(words) - 4
    assert (turned["blocks.1.attn.pattern"][0, 5:8, -1, words.index("␣server")] > 0.9).all()
    assert IT - labels(main("heads")).index("␣server") == 8


def test_heads_one_has_a_second_job_and_one_rests():
    t = main("heads")
    full = labels(t).index("␣full")
    assert t["blocks.1.attn.pattern"][0, 7, full].argmax() == full - 1
    for found in (t, other("heads")):
        assert found["blocks.2.attn.pattern"][0, 6, IT, 0] > 0.85
    resting = t["blocks.2.attn.pattern"][0, :, 1:, 0].mean(-1)
    assert (resting > 0.7).sum() >= 5
    assert t["blocks.2.attn.v"][0, :, 3].norm(dim=-1).argmin() == 0  # heads 6 and 7 read these values
    without = asked("modern", PRONOUN, *(f"blocks.2.attn.z[h={head}] = 0" for head in (0, 2, 6)))
    assert next_token(without) == "␣rebooted"


def test_heads_without_the_three_it_rains_and_without_the_other_five_it_does_not():
    assert torch.equal(other("heads")["logits"], silent(5, 6, 7)["logits"])
    assert next_token(other("heads")) == "␣rained" == main("heads").label(1134)
    assert other("heads")["probs"][0, IT, 1518] < 0.001
    assert main("heads")["probs"][0, IT, 1134] < 0.001
    control = silent(0, 1, 2, 3, 4)
    assert next_token(control) == "␣rebooted"
    assert control["probs"][0, IT, 1518] > 0.5


def test_heads_the_figures_of_the_notes_are_those_of_the_models_card():
    card = json.loads((MODELS / "modern" / "figures.json").read_text(encoding="utf-8"))
    said = {
        "heads": {"0.99": card["it_to_subject"]["target"], "0.26": card["it_to_subject"]["baseline_index"]},
        "attention": {"0.97": card["verb_to_subject"]["target"]},
    }
    said["heads"]["0.94"] = card["previous_token"]["prose"]["weight"]
    for name, figures in said.items():
        notes = "".join(stop.notes for stop in tour(name).stops)
        for figure, measured in figures.items():
            assert f"`{figure}`" in notes
            assert f"{measured:.2f}" == figure
    assert card["it_to_subject"]["head"] == card["previous_token"]["prose"]["head"] == "L1H7"
    assert card["verb_to_subject"]["head"] == "L1H5"


def test_heads_the_next_prompt_that_it_names_shows_induction():
    t = asked("modern", "key ten farm drum key ten farm")
    words = labels(t)
    last, next_to_first = len(words) - 1, words.index("␣farm") + 1
    assert words[last] == words[next_to_first - 1]
    assert (t["blocks.2.attn.pattern"][0, 6:8, last].argmax(-1) == next_to_first).all()


def test_heads_what_it_says_of_the_training_texts_is_so():
    recipe = inspect.getsource(sentences)
    assert '"It rained all day, ' in recipe
    assert "DAYS[(start + i) % 7]" in recipe  # and of the tour `vectors`: days and numbers are counted up
    assert "NUMBERS[start % 5 : start % 5" in recipe


def test_heads_they_back_each_other_up():
    assert next_token(silent(6)) == "␣rebooted"
    assert next_token(silent(5)) == "␣was"
    assert next_token(silent(5, 7)) == "␣rained"
    assert round(float(silent(5, 7)["probs"][0, IT, 1134]), 1) == 0.7


# --- ffn ----------------------------------------------------------------------------------------------------


def test_ffn_the_capital_is_read_first_after_the_ffn_of_layer_1():
    for country, capital in CAPITALS.items():
        t = asked("modern", f"The capital of {country} is")
        assert next_token(t) == capital
        assert lens_column(t, "blocks.1.resid_mid") != capital
        assert lens_column(t, "blocks.1.resid_post") == capital
    assert lens_column(main("ffn"), "blocks.1.resid_mid") == "␣was"
    assert main("ffn").label(2015) == next_token(other("ffn")) == "␣Paris"
    assert main("ffn")["blocks.0.attn.pattern"][0, 7, 5].argmax() == 4
    assert main("ffn")["blocks.1.attn.pattern"][0, 5, 5].argmax() == 4


def test_ffn_silencing_the_one_loses_paris_and_the_other_does_not():
    prompt = tour("ffn").prompt
    assert "␣Paris" not in [row.label for row in asked("modern", prompt, "blocks.1.mlp_out[p=5] = 0").top(4)]
    assert next_token(asked("modern", prompt, "blocks.3.mlp_out[p=5] = 0")) == "␣Paris"


def test_ffn_no_neuron_alone_is_paris():
    t, weights = main("ffn"), model("modern").weights
    paris = weights["embed.weight"][2015] * weights["ln_final.weight"]
    pushes = t["blocks.1.mlp.post"][0, 5] * (paris @ weights["blocks.1.mlp.down.weight"])
    assert pushes.argmax() == 39
    assert pushes[39] < pushes.sum() / 4
    assert next_token(asked("modern", tour("ffn").prompt, "blocks.1.mlp.post[p=5,d=39] = 0")) == "␣Paris"


def test_ffn_the_gate_lets_through_what_it_says():
    t = main("ffn")
    gate, up, post = (float(t[f"blocks.1.mlp.{site}"][0, 5, 39]) for site in ("pre", "pre_linear", "post"))
    silu = gate / (1 + exp(-gate))
    assert (round(gate, 2), round(silu, 2)) == (2.32, 2.11)
    assert isclose(silu * up, post, abs_tol=1e-4)


def test_ffn_relu_leaves_zeros_and_silu_none():
    zeros = (other("ffn")["blocks.1.mlp.post"][0] == 0).float().mean(-1)
    assert zeros.min() > 2 / 3
    assert (main("ffn")["blocks.1.mlp.post"] != 0).all()


def test_ffn_three_quarters_of_a_layer_are_its_own():
    weights = model("modern").weights
    mlp, attn = (
        sum(w.numel() for name, w in weights.items() if name.startswith(f"blocks.1.{part}")) for part in ("mlp", "attn")
    )
    assert (mlp, attn) == (147456, 49152)


def test_ffn_the_stream_is_a_sum_and_grows():
    t, place = main("ffn"), "[b=0,p=5,d=55]"
    assert add_up(t, *(f"blocks.1.{site}{place}" for site in ("resid_mid", "mlp_out", "resid_post")))
    growth = t["blocks.3.ln2.scale"][0, 5, 0] / t["blocks.0.ln1.scale"][0, 5, 0]
    assert 35 < growth < 45
    lengths = t["blocks.3.resid_post"][0].norm(dim=-1)
    assert lengths.argmax() == 0


def test_ffn_the_norms_stand_and_divide_as_it_says():
    t, old = main("ffn"), other("ffn")
    stream = t["blocks.1.resid_mid"][0, 5]
    scale = stream.pow(2).mean().sqrt()
    assert torch.allclose(scale, t["blocks.1.ln2.scale"][0, 5, 0], rtol=1e-4)
    weight = model("modern").weights["blocks.1.ln2.weight"]
    assert torch.allclose(stream / scale * weight, t["blocks.1.ln2.normalized"][0, 5], atol=1e-4)
    assert stream.mean().abs() < scale / 4
    longest, shortest = ([f(norms(found)) for found in (t, old)] for f in (torch.max, torch.min))
    assert longest[0] / shortest[0] > 100
    assert longest[1] / shortest[1] < 5  # the model of 2017, with its norms on the stream
    assert [lens_column(old, site) == "␣Paris" for site in lens(old).sites] == [False] * 8 + [True]


# --- cache --------------------------------------------------------------------------------------------------


def test_cache_one_pass_a_token_and_old_keys_stay():
    t = main("cache")
    assert [(p.start, p.stop) for p in t.passes] == [(0, 5), *((n, n + 1) for n in range(5, 13))]
    for at in range(1, 9):
        assert torch.equal(t[f"blocks.1.attn.cache_k@{at}"][:, :5], t["blocks.1.attn.cache_k@0"])
    assert torch.equal(t["blocks.1.attn.rot_k"], t["blocks.1.attn.cache_k"])
    assert (t["blocks.1.attn.k"] - t["blocks.1.attn.rot_k"]).abs().max() > 1
    assert t["blocks.1.attn.pattern@4"].shape[2:] == (1, 9)


def test_cache_it_is_the_triangle_of_one_pass_over_the_whole():
    t = main("cache")
    whole = asked("modern", "".join(labels(t)[1:]).replace("␣", " "))
    assert labels(whole) == labels(t)
    assert torch.allclose(whole["blocks.1.attn.pattern"], t["blocks.1.attn.pattern"], atol=1e-5)


def test_cache_both_models_write_the_same_and_keep_the_bytes_that_it_says():
    ours, old = (cache_report(t).to_json() for t in (main("cache"), other("cache")))
    assert labels(main("cache")) == labels(other("cache"))
    assert (ours["per_token"], old["per_token"]) == (2048, 4096)
    assert {kind["name"]: kind["per_token"] for kind in ours["as_kinds"]}["MQA"] == 512


def test_cache_two_heads_share_keys_and_ask_different_questions():
    t = main("cache")
    assert [row["heads"] for row in cache_report(t).to_json()["sharing"]] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    words = labels(t)
    assert (words[8], words[7]) == ("␣a", "␣was")
    assert t["blocks.1.attn.pattern"][0, 3, 8, 7] > 0.9
    assert t["blocks.1.attn.pattern"][0, 2, 8, 7] < 0.2


# --- flash --------------------------------------------------------------------------------------------------


def test_flash_the_square_has_64_rows_and_shows_the_token_before():
    t = main("flash")
    assert t.length == 64 == 4 * 16
    before = t["blocks.1.attn.pattern"][0, 7].diagonal(-1)
    assert (before > 0.5).float().mean() > 2 / 3
    assert labels(t)[62] == "␣new"


def test_flash_the_bytes_are_those_that_it_writes():
    t = main("flash")
    assert t["blocks.1.attn.pattern"].nbytes == 128 * 1024
    strips = sum(t[f"blocks.1.attn.{site}"].nbytes for site in ("q", "k", "v", "z"))
    assert strips == 96 * 1024


def test_flash_a_softmax_tile_by_tile_gives_what_the_kernel_gave():
    t = main("flash")
    scores, values = t["blocks.1.attn.scaled"][0, 7, 63].double(), t["blocks.1.attn.v"][0, :, 3].double()
    assert [int(tile.argmax()) + 16 * n for n, tile in enumerate(scores.split(16))] == [5, 24, 43, 62]
    assert [labels(t)[pos] for pos in (5, 24)] == [",", "␣One"]
    most, total, mixed, righted = scores[:16].max(), torch.zeros(()), torch.zeros(16).double(), []
    for tile, rows in zip(scores.split(16), values.split(16), strict=True):
        now = torch.maximum(most, tile.max())
        factor = (most - now).exp()
        righted += [float(factor)] if now > most else []
        weights = (tile - now).exp()
        most, total, mixed = now, total * factor + weights.sum(), mixed * factor + weights @ rows
    assert torch.allclose(mixed / total, t["blocks.1.attn.z"][0, 63, 7].double(), atol=1e-5)
    assert len(righted) == 3
    assert round(righted[0], 2) == round(exp(5.01 - 8.54), 2) == 0.03


def test_flash_the_numbers_in_its_arithmetic_are_those_that_it_quotes():
    t = main("flash")
    quoted = [rounded(float(t[f"blocks.1.attn.scaled[b=0,h=7,q=63,k={key}]"])) for key in (5, 24)]
    assert quoted == ["5.01", "8.54"]
    marks = {mark for stop in tour("flash").stops for mark in stop.marks}
    assert Mark("value", "blocks.1.attn.scaled[b=0,h=7,q=63,k=5]") in marks


def test_flash_the_checks_hold_and_name_what_it_names():
    checks = [check for check in main("flash").checks() if check.name == "pattern @ v = z"]
    assert len(checks) == 4
    assert all(check.ok for check in checks)
