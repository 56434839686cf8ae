"""Text to token files: `python -m samples.training prepare --corpus DIR`.

Trains the tokenizer on a mix in which the sentences' words are frequent enough to become single tokens, and
writes every source as one stream of 16-bit ids, each document between BOS and EOS.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from samples.training import sentences, texts
from samples.training.models import SHAPES

BOS, EOS, PAD = range(3)
SPECIAL = ("<|bos|>", "<|eos|>", "<|pad|>")
N_SPECIAL = len(SPECIAL)
DATA = Path(__file__).parent / "data"
N_DOCUMENTS = 240_000
VALID_EVERY = 25  # one document in so many is kept for validation


def train_tokenizer(lines: Iterator[str], d_vocab: int) -> Tokenizer:
    """A byte-level BPE whose `encode` begins with BOS."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=d_vocab,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{SPECIAL[BOS]} $A",
        pair=f"{SPECIAL[BOS]} $A {SPECIAL[BOS]} $B",
        special_tokens=[(SPECIAL[BOS], BOS)],
    )
    return tokenizer


def tokenizer_text(sources: dict[str, list[str]]) -> Iterator[str]:
    """Shares of each source that make the sentences' words whole and leave room for ordinary English."""
    yield from sources["sentences"][:16_000]
    yield from sources["stories"][:1600]
    yield from sources["prose"][:200]
    yield from word_starts()


def word_starts() -> Iterator[str]:
    """Names and nouns as first words of a prompt, where no space precedes them."""
    words = {*sentences.BOYS, *sentences.GIRLS, *sentences.ACTORS, *map(sentences.capital, sentences.ACTORS)}
    words |= {"It", "He", "She", "The", "Because", "When", "Once", "Who", "What"}
    for word in sorted(words):
        yield from [word] * 400


def write_stream(tokenizer: Tokenizer, documents: list[str], path: Path) -> int:
    encoded = tokenizer.encode_batch(documents)
    stream = np.concatenate([np.array([*e.ids, EOS], dtype=np.uint16) for e in encoded])
    stream.tofile(path)
    return len(stream)


def prepare(corpus: Path, data: Path = DATA, n_documents: int = N_DOCUMENTS, seed: int = 1) -> None:
    """Write `tokenizer.json` and `<source>.train`, `<source>.valid` into `data`."""
    if absent := texts.missing(corpus):
        raise SystemExit(f"not in {corpus}: {', '.join(absent)}")
    data.mkdir(parents=True, exist_ok=True)
    sources = {
        "sentences": sentences.documents(n_documents, seed),
        "stories": texts.read_stories(corpus),
        "prose": texts.read_prose(corpus),
    }
    kept = data / "tokenizer.json"
    if kept.exists():  # so that a change of the text leaves the token ids as they are
        tokenizer = Tokenizer.from_file(str(kept))
    else:
        tokenizer = train_tokenizer(tokenizer_text(sources), SHAPES["modern"].d_vocab)
        tokenizer.save(str(kept))
    for name, documents in sources.items():
        to_validate = range(0, len(documents), VALID_EVERY)[:1000]
        valid = [documents[i] for i in to_validate]
        train = [text for i, text in enumerate(documents) if i not in to_validate]
        n_train = write_stream(tokenizer, train, data / f"{name}.train")
        n_valid = write_stream(tokenizer, valid, data / f"{name}.valid")
        print(
            f"{name}: {len(documents)} documents, {n_train} tokens to train, {n_valid} to validate",
            flush=True,
        )
