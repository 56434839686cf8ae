"""All figures of a sample model: `python -m samples.training measure FOLDER`.

Prints a table and writes `figures.json` and the model card into the folder. Sentences are made of word pairs that
training never saw (`sentences.held_out`); heads are picked on one half of them and reported on the other.
"""

import json
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from samples.training import probes, sentences
from samples.training.batches import SHARES, validation
from samples.training.card import write_card
from samples.training.export import read, stored_dtype, write_json
from samples.training.prepare import BOS, DATA, EOS
from samples.training.train import masked_loss

PROMPTS = Path(__file__).parents[1] / "prompts" / "prompts.toml"
N_CASES = 800
N_QUESTIONS = 200
HELD_OUT = Path(__file__).with_name("held_out.txt")  # our own prose, not in the training text
PERIODS = (16, 40, 100)
QUESTIONS: dict[str, Callable[[int, int], list[probes.Question]]] = {
    "possession_again": probes.possession_again,
    "possession_asked": probes.possession_asked,
    "agreement": probes.agreement_questions,
    "gift": probes.gift_questions,
    "it_habit": probes.it_questions,
    "name_habit": probes.name_questions,
    "verb_habit": probes.verb_questions,
}


@dataclass(frozen=True, slots=True)
class Prompt:
    """A sample prompt: its text, the next token expected on top, and what it shows."""

    text: str
    expect: str
    shows: str
    models: Sequence[str] = ("modern", "classic")


def read_prompts(model: str, path: Path = PROMPTS) -> list[Prompt]:
    """The sample prompts that are for the model of this name."""
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["prompt"]
    return [prompt for prompt in (Prompt(**entry) for entry in entries) if model in prompt.models]


@torch.no_grad()
def generate(model: nn.Module, ids: list[int], count: int, temperature: float, seed: int) -> list[int]:
    """`count` more tokens, or fewer if EOS comes; greedy at temperature 0."""
    generator = torch.Generator().manual_seed(seed)
    ids = list(ids)
    for _ in range(count):
        logits = model(torch.tensor([ids]))[0, -1]  # [d_vocab]
        if temperature == 0:
            token = int(logits.argmax())
        else:
            token = int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator))
        if token == EOS:
            break
        ids.append(token)
    return ids


def top_tokens(tokenizer: Tokenizer, logits: Tensor, count: int = 5) -> list[tuple[str, float]]:
    values, ids = logits.softmax(-1).topk(count)
    return [(tokenizer.decode([int(i)]), round(float(v), 4)) for v, i in zip(values, ids, strict=True)]


def prompt_figures(model: nn.Module, tokenizer: Tokenizer) -> list[dict[str, object]]:
    found = []
    for prompt in read_prompts(model.shape.kind):
        top = top_tokens(tokenizer, probes.next_logits(model, tokenizer, prompt.text))
        as_expected = top[0][0] == prompt.expect
        found.append({"text": prompt.text, "expect": prompt.expect, "ok": as_expected, "top": top})
    return found


@torch.no_grad()
def check_rounding(exact: nn.Module, folder: Path) -> str:
    """Says what the rounding of the weights in `folder` does to the sample prompts; a changed top-1 is an error."""
    stored, tokenizer = read(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    furthest, changed, n_pos = 0.0, 0, 0
    prompts = read_prompts(stored.shape.kind)
    for prompt in prompts:
        ids = torch.tensor([tokenizer.encode(prompt.text).ids])
        before, after = exact(ids)[0], stored(ids)[0]  # [pos, d_vocab]
        differs = before.argmax(-1) != after.argmax(-1)  # [pos]
        if differs[-1]:
            raise ValueError(f"another token comes out on top after {prompt.text!r}")
        furthest = max(furthest, float((before - after).abs().max()))
        changed, n_pos = changed + int(differs.sum()), n_pos + len(differs)
    return (
        f"{len(prompts)} prompts, every top-1 as before rounding; no logit moved by more than {furthest:.4f}; "
        f"inside the prompts another token came out on top at {changed} of {n_pos} positions"
    )


def continuations(model: nn.Module, tokenizer: Tokenizer) -> list[str]:
    start = tokenizer.encode("Once upon a time").ids
    runs = [generate(model, start, 60, 0.0, 0)] + [generate(model, start, 60, 0.6, seed) for seed in range(3)]
    return [tokenizer.decode(ids, skip_special_tokens=True) for ids in runs]


def losses(model: nn.Module, data: Path) -> dict[str, float]:
    """Loss per token on validation text, windows of 256."""
    found = {}
    for source in SHARES:
        ids = validation(data, source, 256, n_rows=40)
        with torch.no_grad():
            found[source] = masked_loss(model(ids[:, :-1]), ids, torch.ones(ids.shape[0], 256)).item()
    return found


def rows_of(tokenizer: Tokenizer, texts: list[str], n_pos: int) -> Tensor:
    """The texts one after another, cut into rows `[row, n_pos]` that begin with BOS."""
    stream = [i for text in texts for i in tokenizer.encode(text).ids[1:]]
    step = n_pos - 1
    return torch.tensor([[BOS, *stream[i : i + step]] for i in range(0, len(stream) - step, step)])


def previous_token_figures(model: nn.Module, tokenizer: Tokenizer) -> dict[str, object]:
    """The best previous-token head on three kinds of text: prose of ours, random tokens, and sentences."""
    shape = model.shape
    generator = torch.Generator().manual_seed(7)
    random_ids = torch.randint(probes.N_SPECIAL, shape.d_vocab, (32, 64), generator=generator)
    random_ids[:, 0] = BOS
    rows = {
        "prose": rows_of(tokenizer, HELD_OUT.read_text(encoding="utf-8").splitlines(), 48),
        "random tokens": random_ids,
        "generated sentences": rows_of(tokenizer, sentences.documents(300, seed=99), 128),
    }
    found: dict[str, object] = {}
    for kind, ids in rows.items():
        (layer, head), weight = probes.previous_token(model, ids)
        found[kind] = {"head": f"L{layer}H{head}", "weight": weight}
    return found


def measure(folder: Path, data: Path = DATA) -> dict[str, object]:
    """Every figure of the model in `folder`, as plain data."""
    torch.set_num_threads(1)
    model = read(folder)
    name, shape = model.shape.kind, model.shape
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    figures: dict[str, object] = {
        "model": name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "n_ctx": shape.n_ctx,
        "dtype": stored_dtype(folder),
        "previous_token": previous_token_figures(model, tokenizer),
        "induction": [probes.induction(model, shape.d_vocab, period, 64, seed=5) for period in PERIODS],
        "it_to_subject": probes.find_head(model, tokenizer, probes.it_cases(N_CASES, seed=11)).as_dict(),
        "verb_to_subject": probes.find_head(model, tokenizer, probes.verb_cases(N_CASES, seed=12)).as_dict(),
        "pronoun_to_name": probes.find_head(model, tokenizer, probes.name_cases(N_CASES, seed=13)).as_dict(),
    }
    for seed, (label, ask) in enumerate(QUESTIONS.items(), start=21):
        on_top, before, count = probes.share_right(model, tokenizer, ask(N_QUESTIONS, seed))
        figures[label] = {"on_top": on_top, "before_the_wrong_one": before, "of": count}
    figures["prompts"] = prompt_figures(model, tokenizer)
    figures["once_upon_a_time"] = continuations(model, tokenizer)
    if (data / "stories.valid").exists():
        figures["validation_loss"] = losses(model, data)
    return figures


def rounded(value: object) -> object:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return value


def table(figures: dict[str, object]) -> str:
    """The figures for people."""
    f = json.loads(json.dumps(figures))
    lines = [f"{f['model']}: {f['parameters']} parameters, context of {f['n_ctx']} tokens", ""]

    def add(label: str, head: str, text: str) -> None:
        lines.append(f"{label:34s} {head:5s} {text}")

    for kind, previous in f["previous_token"].items():
        add(f"previous token, {kind}", previous["head"], f"{previous['weight']:.2f}")
    for i in f["induction"]:
        ratio = i["loss_second_copy"] / i["loss_first_copy"]
        add(
            f"induction, period {i['period']}",
            i["head"],
            f"{i['weight']:.2f}, loss {i['loss_first_copy']:.2f} -> {i['loss_second_copy']:.2f} "
            f"(x {ratio:.3f}), accuracy {i['accuracy_second_copy']:.2f}",
        )
    for label in ("it_to_subject", "verb_to_subject", "pronoun_to_name"):
        h = f[label]
        add(
            label.replace("_", " "),
            h["head"],
            f"target {h['target']:.2f}, other {h['foil']:.2f}; {h['cases_reported']} cases",
        )
        same, offset, index = (h[f"baseline_{key}"] for key in ("same_head_elsewhere", "offset", "index"))
        alone = f"same head {same:.2f}, best offset {offset:.2f}, best index {index:.2f}"
        add("  by position alone", "", alone)
        for kind, part in h["by_kind"].items():
            add(f"  {kind}", "", f"target {part['target']:.2f}, other {part['foil']:.2f}")
    for label in QUESTIONS:
        q = f[label]
        right = f"{q['on_top']} on top, {q['before_the_wrong_one']} before the wrong one"
        add(label.replace("_", " "), "", f"{right}, of {q['of']}")
    for source, loss in f.get("validation_loss", {}).items():
        add(f"loss, {source}", "", f"{loss:.3f}")
    lines.append("")
    for p in f["prompts"]:
        tops = "  ".join(f"{token!r} {share:.2f}" for token, share in p["top"])
        lines.append(f"{'ok ' if p['ok'] else 'NOT'} {p['text']!r}: {tops}")
    lines += ["", *f["once_upon_a_time"]]
    return "\n".join(lines)


def measure_and_write(folder: Path, data: Path = DATA) -> None:
    figures = rounded(measure(folder, data))
    assert isinstance(figures, dict)
    write_json(folder / "figures.json", figures)
    write_card(folder, figures)
    print(table(figures))
