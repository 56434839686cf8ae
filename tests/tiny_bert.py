"""A tiny BERT in a folder, with a WordPiece tokenizer: with its head, without it, or as a sentence encoder."""

from __future__ import annotations

import json
from pathlib import Path

WORDS = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "paris", "is", "the", "capital", "of", "france", ".", ",", "rain",
    "##y", "server", "crash", "##ed", "a", "b", "c",
]  # fmt: skip
PROMPT = "Paris is the [MASK] of France."
PIECES = ["[CLS]", "paris", "is", "the", "[MASK]", "of", "france", ".", "[SEP]"]


def write_bert(folder: Path, head: bool = True, sentence: bool = False) -> Path:
    """A random model, as transformers would save a BertForMaskedLM or a BertModel."""
    import torch
    from safetensors.torch import save_file

    from engine import build_program
    from engine.checkpoints.families.bert import FAMILY
    from engine.checkpoints.fields import Fields

    folder.mkdir(parents=True)
    raw = {
        "model_type": "bert", "architectures": ["BertForMaskedLM" if head else "BertModel"], "vocab_size": len(WORDS),
        "hidden_size": 20, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 26,
        "max_position_embeddings": 32, "type_vocab_size": 2, "pad_token_id": 0,
    }  # fmt: skip
    config = FAMILY.config(Fields(raw, folder.name))
    draw = torch.Generator().manual_seed(0)
    weights = {}
    for param, shape in build_program(config).params.items():
        name = FAMILY.source(param, config).name
        if name not in weights:
            weights[name] = torch.randn(shape, generator=draw)
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(raw))
    write_tokenizer(folder)
    if sentence:
        kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
        modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds]
        (folder / "modules.json").write_text(json.dumps(modules))
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    return folder


def write_tokenizer(folder: Path) -> None:
    """A WordPiece tokenizer.json as BERT's."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    ids = {word: i for i, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(WORDS[:5])
    ends = [(word, ids[word]) for word in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    tokenizer.save(str(folder / "tokenizer.json"))
