"""The model card: a model folder's README.md, written from its figures.json so that it never says anything else."""

from pathlib import Path
from typing import Any

from samples.training.recipe import RECIPES

ABOUT = {
    "classic": (
        "The Transformer of 2017 as a decoder-only language model: sinusoidal positions added to the scaled token "
        "embedding, LayerNorm after each sublayer (post-norm), multi-head attention, a ReLU feed-forward layer, "
        "biases everywhere, the unembedding tied to the embedding.",
        "The folder is in layerstep's own format: `config.json` says every trait in the engine's words, and "
        "`model.safetensors` holds `embed.weight`, `blocks.L.attn.{q,k,v,out}`, `blocks.L.ln1` (after attention), "
        "`blocks.L.mlp.{up,down}` and `blocks.L.ln2` (after the feed-forward layer), matrices as [out, in].",
    ),
    "modern": (
        "What language models look like today, in small: rotary positions (half-rotated), RMSNorm before each "
        "sublayer (pre-norm), grouped-query attention with 8 query and 4 key-value heads, a SwiGLU feed-forward "
        "layer, no biases, the unembedding tied to the embedding.",
        "The folder is an ordinary Hugging Face one: `LlamaForCausalLM.from_pretrained` opens it and computes the "
        "same logits.",
    ),
}
LABELS = {
    "it_to_subject": '"It" → the subject noun',
    "verb_to_subject": "verb → its subject, across other nouns",
    "pronoun_to_name": "he / she → the right one of two names",
}
QUESTION_LABELS = {
    "possession_again": '"Tom has a red ball. Anna has a blue cup. Tom has a" → red',
    "possession_asked": '"… What does Tom have? He has a" → red',
    "agreement": "is / are after a noun of the other number",
    "gift": '"When Tom and Anna went to the park, Tom gave a ball to" → Anna',
    "it_habit": 'what the subject does after "It", not what the other thing does',
    "name_habit": "what he / she does, not what the other person does",
    "verb_habit": "what the subject is, not what the noun beside the verb is",
}


CLASSIC_START = (
    "Heads 0 to 3 of the first layer were not found by training alone: they started out looking 1 to 4 tokens back "
    "(`samples/training/README.md` says how and why) and were then free to change."
)


def percent(share: float) -> str:
    return f"{share:.2f}"


def head_rows(figures: dict[str, Any]) -> list[str]:
    rows = [
        f"| the previous token, {kind} | {found['head']} | {percent(found['weight'])} | | |"
        for kind, found in figures["previous_token"].items()
    ]
    for found in figures["induction"]:
        rows.append(
            f"| induction, period {found['period']} | {found['head']} | {percent(found['weight'])} | | "
            f"{1 / found['period']:.2f} |"
        )
    for key, label in LABELS.items():
        found = figures[key]
        alone = max(found["baseline_same_head_elsewhere"], found["baseline_offset"], found["baseline_index"])
        rows.append(
            f"| {label} | {found['head']} | {percent(found['target'])} | {percent(found['foil'])} | {percent(alone)} |"
        )
        rows += [
            f"| – {kind} | | {percent(part['target'])} | {percent(part['foil'])} | |"
            for kind, part in found["by_kind"].items()
        ]
    return rows


def loss_rows(figures: dict[str, Any]) -> list[str]:
    return [
        f"| {found['period']} | {found['loss_first_copy']:.2f} | {found['loss_second_copy']:.3f} | "
        f"{found['accuracy_second_copy']:.3f} |"
        for found in figures["induction"]
    ]


def shown(token: str) -> str:
    return f"`{token}`" if token.strip() else repr(token)


def prompt_rows(figures: dict[str, Any]) -> list[str]:
    return [
        f"| {prompt['text']} | " + ", ".join(f"{shown(t)} {p:.2f}" for t, p in prompt["top"][:3]) + " |"
        for prompt in figures["prompts"]
    ]


def card(figures: dict[str, Any]) -> str:
    """The README of one model, as Markdown."""
    name = figures["model"]
    about, files = ABOUT[name]
    recipe = RECIPES[name]
    questions = [
        f"| {label} | {figures[key]['on_top']} | {figures[key]['before_the_wrong_one']} | {figures[key]['of']} |"
        for key, label in QUESTION_LABELS.items()
    ]
    stories = [f"> {text.strip()}\n" for text in figures["once_upon_a_time"]]
    losses = [f"{source} {loss:.2f}" for source, loss in figures.get("validation_loss", {}).items()]
    return "\n".join([
        f"# {name}",
        "",
        about,
        "",
        f"{figures['parameters']:,} parameters, a context of {figures['n_ctx']} tokens, a byte-level BPE vocabulary "
        "of 2048 shared by both sample models (`encode` puts BOS in front). Trained by this project on one CPU core "
        f"on {recipe.tokens / 1e6:.0f}M tokens of generated sentences, TinyStories and public-domain children's "
        "books: `samples/training` is the recipe, its `NOTICE` names the texts. It knows some hundred words well "
        "and nothing of the world; it is for looking inside, not for use.",
        "",
        f"{files} Stored as {figures['dtype']}"
        + (", which changes no sample prompt's top-1." if figures["dtype"] != "float32" else "."),
        "",
        "## Figures",
        "",
        "Measured by `python -m samples.training measure` on sentences whose word pairs were kept out of training. "
        "Of all heads the best one on half of the sentences is picked, and its weight on the other half is reported. "
        "*By position alone* is the best of three: the same head's weight where the word stands in other sentences, "
        "and the share of sentences that one fixed distance, or one fixed place in the text, would hit.",
        *(["", CLASSIC_START] if name == "classic" else []),
        "",
        "| from → to | head | weight on it | on the other word | by position alone |",
        "| --- | --- | --- | --- | --- |",
        *head_rows(figures),
        "",
        "A uniformly random sequence, twice:",
        "",
        "| period | loss, first copy | second copy | accuracy, second copy |",
        "| --- | --- | --- | --- |",
        *loss_rows(figures),
        "",
        "What comes next. Of two answers guessing would find half; *on top* means of all 2048 tokens.",
        "",
        "| next word | on top | before the wrong one | of |",
        "| --- | --- | --- | --- |",
        *questions,
        "",
        *([f"Loss per token on held-out text: {', '.join(losses)}.", ""] if losses else []),
        "## Sample prompts",
        "",
        "| prompt | next token |",
        "| --- | --- |",
        *prompt_rows(figures),
        "",
        '"Once upon a time", first greedy, then three samples at temperature 0.6:',
        "",
        *stories,
    ])  # fmt: skip


def write_card(folder: Path, figures: dict[str, Any]) -> None:
    (folder / "README.md").write_text(card(figures), encoding="utf-8")
