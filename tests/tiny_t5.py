"""A tiny T5 in a folder, with a word-level tokenizer that ends a source as T5's does."""

from __future__ import annotations

import json
from pathlib import Path

WORDS = ["<pad>", "</s>", "<unk>", "the", "cat", "sat", "on", "mat", "die", "Katze", "sass", "auf", "der", "Matte"]
SOURCE = "the cat sat on the mat"
TARGET = "die Katze"


def write_t5(folder: Path) -> Path:
    """A random model, as transformers would save a T5ForConditionalGeneration."""
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    from engine import build_program
    from engine.checkpoints.families.t5 import FAMILY
    from engine.checkpoints.fields import Fields

    folder.mkdir(parents=True)
    raw = {
        "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "vocab_size": len(WORDS), "d_model": 24,
        "d_kv": 6, "d_ff": 30, "num_layers": 1, "num_decoder_layers": 2, "num_heads": 4, "decoder_start_token_id": 0,
        "eos_token_id": 1, "pad_token_id": 0,
    }  # fmt: skip
    config = FAMILY.config(Fields(raw, folder.name))
    draw = torch.Generator().manual_seed(0)
    params = build_program(config).params
    save_file(
        {FAMILY.source(name, config).name: torch.randn(shape, generator=draw) for name, shape in params.items()},
        folder / "model.safetensors",
    )
    (folder / "config.json").write_text(json.dumps(raw))
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(WORDS[:3])
    tokenizer.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 1)])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder
