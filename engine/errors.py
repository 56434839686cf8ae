"""The exceptions that layerstep raises on purpose.

Each message is one clear line: what is wrong, where, and what to do. It is passed through as given, so a
caller prints `str(error)` and never a traceback. Foreign text inside a message still goes through
`engine.text.display` at the place where it is shown.
"""


class LayerstepError(Exception):
    """Something layerstep could not do, said in one line."""


class ConfigError(LayerstepError, ValueError):
    """A model configuration that is inconsistent, or holds something that layerstep does not know."""


class CheckpointError(LayerstepError, ValueError):
    """A model folder or file that is missing, damaged, unsupported or unsafe."""


class TokenizerError(LayerstepError, ValueError):
    """A tokenizer that cannot be read, or that failed on a text."""


class PromptError(LayerstepError, ValueError):
    """A prompt that cannot be run: too long, empty, or not text."""


class SamplingError(LayerstepError, ValueError):
    """Sampling that is out of range, or scores from which no token can be chosen."""


class AddressError(LayerstepError, ValueError):
    """An address that cannot be read, or that names nothing in this trace."""


class EditError(LayerstepError, ValueError):
    """A what-if that cannot be read, or that would change nothing of what a model computes."""


class ArraysError(LayerstepError, ValueError):
    """Foreign arrays that cannot be read, or that are no recording of this model."""


class TraceFileError(LayerstepError, ValueError):
    """A trace file that is damaged, cut, or from a version that layerstep cannot read."""


class ExportError(LayerstepError, ValueError):
    """An export that cannot be made: too large, of what is not there, or of a place that has no such picture."""


class TourError(LayerstepError, ValueError):
    """A tour that cannot be walked: the file, the line, the stop and the key, and what is known."""


class MemoryLimitError(LayerstepError):
    """A run refused beforehand because it would need more memory than is allowed."""


class KernelError(LayerstepError):
    """A forced attention kernel that cannot run here, with the reason."""


class CompileError(LayerstepError):
    """A step that cannot be compiled on this machine, with the reason."""


class Cancelled(LayerstepError):
    """A run that the user stopped."""


class DeviceError(LayerstepError):
    """A device or dtype that this machine does not have."""


class NotKeptError(LayerstepError):
    """A tensor that was not kept and cannot be derived from what was."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is one of the ways in which memory runs out, torch's on the host (of Windows too) among them."""
    said = ("allocate memory", "not enough memory")
    return type(error).__name__ in ("MemoryError", "OutOfMemoryError") or any(words in str(error) for words in said)
