"""Reading a family's config.json: every key is read, known to be without effect, or refused by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from engine.errors import CheckpointError
from engine.text import display

NO_EFFECT = frozenset(
    """_attn_implementation _attn_implementation_autoset _commit_hash _flash_attn_2_enabled _name_or_path architectures
    attention_dropout attention_probs_dropout_prob attn_pdrop auto_map
    bad_words_ids begin_suppress_tokens chunk_size_feed_forward classifier_dropout decoder_start_token_id
    diversity_penalty do_sample dropout dtype early_stopping embd_pdrop encoder_no_repeat_ngram_size
    exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id gradient_checkpointing
    hidden_dropout hidden_dropout_prob id2label initializer_range keys_to_ignore_at_inference label2id
    length_penalty max_length min_length no_repeat_ngram_size num_beam_groups num_beams num_return_sequences
    output_attentions output_hidden_states output_scores prefix problem_type remove_invalid_values
    repetition_penalty resid_pdrop return_dict return_dict_in_generate sep_token_id suppress_tokens
    task_specific_params temperature tf_legacy_loss tokenizer_class top_k top_p torch_dtype torchscript
    transformers.js_config transformers_version typical_p unsloth_fixed unsloth_version use_bfloat16
    use_cache""".split()  # noqa: SIM905
)
"""Keys of any family that do not change the forward pass; none of them is read here."""
NEUTRAL: Mapping[str, Any] = {
    "add_cross_attention": False, "cross_attention_hidden_size": None, "is_decoder": False, "is_encoder_decoder": False,
    "pruned_heads": {}, "tie_encoder_decoder": False,
}  # fmt: skip
"""Keys that every family may have at this value, at which they change nothing."""


class Fields:
    """A config.json as a family reads it. ``done`` refuses what nobody asked for.

    ``where`` names the model in messages, ``family`` the model_type.
    """

    def __init__(self, raw: Mapping[str, Any], where: str) -> None:
        self.raw, self.where = raw, where
        self.family = str(raw.get("model_type"))
        self._read = {"model_type"}

    def get(self, key: str, default: Any = None) -> Any:
        """A value, or the default where the key is absent or null."""
        self._read.add(key)
        value = self.raw.get(key)
        return default if value is None else value

    def need(self, *keys: str, default: Any = None) -> Any:
        """A value under the first of its spellings that is there, which one must be where there is no default."""
        for key in keys:
            if (value := self.get(key)) is not None:
                self._read.update(keys)
                return value
        if default is not None:
            return default
        raise CheckpointError(f"{self.where}: config.json lacks {keys[0]!r}")

    def size(self, *keys: str, default: int | None = None, most: int = 2**31) -> int:
        """A positive whole number, which must be there unless the family has a default."""
        value = self.need(*keys, default=default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            end = "2^31" if most == 2**31 else most
            raise self.refusal(f"{keys[0]} must be a number between 1 and {end}, but is {short(value)}")
        return value

    def positive(self, key: str, default: float) -> float:
        """A number above 0, which arithmetic is done with while the config is read."""
        value = self.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e30:
            raise self.refusal(f"{key} must be a number above 0, but is {short(value)}")
        return float(value)

    def only(self, key: str, *allowed: Any) -> Any:
        """A value that changes the arithmetic, supported only where it is one of these; the first is the default."""
        value = self.get(key, allowed[0])
        if not any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed):
            known = " or ".join(map(short, allowed))
            raise self.refusal(f"{key} {short(value)} is not supported, only {known}")
        return value

    def ignore(self, *keys: str) -> None:
        """Keys of this family that do not change the forward pass."""
        self._read.update(keys)

    def token_ids(
        self, bos: int | None = None, eos: int | None = None, pad: int | None = None
    ) -> dict[str, int | None]:
        """The bos, eos and pad ids; of several eos ids the first. The defaults are for absent keys, not for null."""
        ids: dict[str, int | None] = {}
        for key, default in (("bos_token_id", bos), ("eos_token_id", eos), ("pad_token_id", pad)):
            value = self.get(key, default if key not in self.raw else None)
            ids[key] = value[0] if isinstance(value, list) and value else None if value == [] else value
        return ids

    @property
    def architecture(self) -> str:
        """The class that transformers would open it with; empty where the file names none."""
        named = self.raw.get("architectures")
        return str(named[0]) if isinstance(named, list) and named else ""

    def part(self, key: str) -> Fields:
        """A config within the config."""
        value = self.need(key)
        if not isinstance(value, Mapping):
            raise self.refusal(f"{key} must be an object, but is {short(value)}")
        return Fields(value, self.where)

    def refusal(self, why: str) -> CheckpointError:
        """The error that refuses this config."""
        return CheckpointError(f"{self.where}: {display(self.family)[:40]}'s {why}"[:400])

    def done(self, known: Iterable[str] = ()) -> None:
        """Refuse a key that was neither read nor is known to be without effect."""
        if "quantization_config" not in self._read and (how := self.raw.get("quantization_config")) is not None:
            method = how.get("quant_method") if isinstance(how, Mapping) else None
            named = f" with {display(method)[:40]}" if isinstance(method, str) else ""
            raise CheckpointError(
                f"{self.where}: was quantised{named} (quantization_config in config.json); take the model that was not "
                "quantised, or a GGUF file of it"
            )
        neutral = {key for key, value in NEUTRAL.items() if self.raw.get(key, value) == value}
        if unknown := sorted(set(map(str, self.raw)) - self._read - NO_EFFECT - neutral - set(known)):
            raise CheckpointError(
                f"{self.where}: config.json has {display(unknown[0])[:80]!r}, which layerstep does not know for "
                f"{display(self.family)[:40]}; refused"
            )


def short(value: object) -> str:
    """A foreign value as it may stand in a message."""
    text = display(repr(value))
    return text if len(text) <= 80 else f"{text[:79]}…"
