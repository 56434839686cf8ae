"""GGUF files beside llama.cpp itself: `pip install xllamacpp pytest && pytest tests/peers`.

llama.cpp keeps keys and values in float16 and multiplies in blocks, so that log-probabilities agree to about 0.01; a
wrong reordering, scale, window or rotary angle would be off by whole units. LLAMA_CPP may name a checkout of llama.cpp,
whose real vocabularies come with the ids that their models' own tokenizers give.
"""

import math
import os
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "engine"))

import gguf_models
from gguf_files import converted, write
from test_gguf import ENCODERS, random_model

from engine import load_model, trace
from engine.errors import TokenizerError
from engine.tokenizer import Tokenizer

IDS = [1, 5, 9, 20, 7, 7, 30, 12, 33, 6]
LETTERS = [
    "<unk>",
    "<s>",
    "</s>",
    "▁",
    *map(chr, range(97, 123)),
    *(f"<0x{byte:02X}>" for byte in (10, *range(32, 41))),
]
VOCABULARY = {
    "model": "llama", "pre": "default", "tokens": LETTERS, "scores": [0.0] * 40,
    "token_type": [2, 3, 3, *[1] * 27, *[6] * 10], "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0,
    "token_type_count": 2,
}  # fmt: skip


def file_of(folder: Path, name: str) -> Path:
    """A file with norms about 1, so that logits are far apart, and with a vocabulary, which llama.cpp asks for."""
    arch, config, keys, more = gguf_models.MODELS[name]()
    if name == "phi3":  # llama.cpp takes the factors for the context that was asked for, and leaves the window out
        config.max_position_embeddings, config.original_max_position_embeddings, config.sliding_window = (
            8192,
            4096,
            None,
        )
        factor = math.sqrt(1 + math.log(2) / math.log(4096))
        keys |= {"context_length": 8192, "rope.scaling.original_context_length": 4096, "attention.sliding_window": 0}
        keys |= {"rope.scaling.attn_factor": factor}
    model = random_model(config, arch)
    with torch.no_grad():
        for param, weight in model.named_parameters():
            if weight.dim() == 1 and ("norm" in param.lower() or "ln_" in param) and not arch.startswith("gemma"):
                weight.copy_((weight + (1 if param.endswith("weight") else 0)).bfloat16())
    vocabulary = {f"tokenizer.ggml.{key}": value for key, value in VOCABULARY.items()}
    return write(folder / f"{name}.gguf", arch, keys | vocabulary, converted(model, arch) | more)


def server(path: Path, **options: object) -> object:
    llama_cpp = pytest.importorskip("xllamacpp", reason="llama.cpp is not installed: pip install xllamacpp")
    params = llama_cpp.CommonParams()
    params.model.path = str(path)
    settings = {"n_ctx": 64, "n_parallel": 1, "warmup": False, "fit_params": False, "verbosity": -1} | options
    for key, value in settings.items():
        setattr(params, key, value)
    return llama_cpp.Server(params)


@pytest.mark.parametrize("name", [name for name, made in gguf_models.MODELS.items() if made()[0] not in ENCODERS])
def test_log_probabilities_are_those_of_llama_cpp(tmp_path, name):
    path = file_of(tmp_path, name)
    asked = {"prompt": IDS, "n_predict": 1, "n_probs": 40, "temperature": 0, "cache_prompt": False}
    said = server(path).handle_completions(asked)["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    ours = trace(load_model(path, device="cpu"), IDS)["logits"][0, -1].double().log_softmax(-1)
    assert len(said) == 40
    assert max(abs(float(ours[entry["id"]]) - entry["logprob"]) for entry in said) < 0.02


@pytest.mark.parametrize("name", ["bert", "gemma_embedding"])
def test_sentence_vectors_are_those_of_llama_cpp(tmp_path, name):
    path = file_of(tmp_path, name)
    theirs = torch.tensor(server(path, embedding=True).handle_embeddings({"input": IDS})["data"][0]["embedding"])
    t = trace(load_model(path, device="cpu"), IDS)
    last = [site.name for site in t.program.sites if site.name.startswith("pooled")][-1]
    ours = torch.nn.functional.normalize(t[last][0].double(), dim=0)
    assert (ours - theirs).abs().max() < 0.002


def vocabularies() -> list[Path]:
    return sorted(Path(os.environ.get("LLAMA_CPP", "/nowhere"), "models").glob("ggml-vocab-*.gguf"))


@pytest.mark.parametrize("path", vocabularies() or [None], ids=lambda path: path.stem if path else "none")
def test_ids_of_real_vocabularies_are_those_of_their_own_tokenizers(path):
    if path is None:
        pytest.skip("LLAMA_CPP does not name a checkout of llama.cpp")
    texts, expected = (path.with_name(path.name + ending) for ending in (".inp", ".out"))
    try:
        tokenizer = Tokenizer.find(path)
    except TokenizerError as error:
        pytest.skip(str(error))
    if not texts.exists():
        pytest.skip("llama.cpp has no texts for it")
    assert tokenizer is not None
    pairs = zip(texts.read_text().split("\n__ggml_vocab_test__\n"), expected.read_text().split("\n"), strict=True)
    for text, ids in pairs:
        assert tokenizer.ids(text, add_special=False) == list(map(int, ids.split())), text
