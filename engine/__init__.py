"""layerstep's engine: runs a transformer as a program of named steps and hands over every intermediate tensor.

    from engine import load_model, trace
    t = trace(load_model("modern"), "The server crashed because the disk was full")
    t["blocks.2.attn.pattern"]

The public names are imported when they are first used, so that ``import engine`` does not import torch. The first
one that needs torch settles how threads wait and how memory is kept for the process (`engine.runtime.prepare`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.analysis.drift import drift as drift
    from engine.analysis.kvcache import cache_report as cache_report
    from engine.analysis.lens import lens as lens
    from engine.analysis.looks import look as look
    from engine.analysis.neighbours import neighbours as neighbours
    from engine.analysis.pages import pages as pages
    from engine.analysis.quantised import quantised as quantised
    from engine.architecture import build_program as build_program
    from engine.branches import compare as compare
    from engine.branches import tree as tree
    from engine.checks import Check as Check
    from engine.config import ModelConfig as ModelConfig
    from engine.decoding import branch as branch
    from engine.decoding import crop as crop
    from engine.decoding import extend as extend
    from engine.edits import Edit as Edit
    from engine.edits import ablate as ablate
    from engine.edits import scale as scale
    from engine.errors import LayerstepError as LayerstepError
    from engine.explanation import Explanation as Explanation
    from engine.explanation import explain as explain
    from engine.export.saving import save_as as save_as
    from engine.generating import Generated as Generated
    from engine.generating import generate as generate
    from engine.importing import import_cache as import_cache
    from engine.importing import import_file as import_file
    from engine.importing import import_transformers as import_transformers
    from engine.model import Model as Model
    from engine.model import load_model as load_model
    from engine.opening import open_trace as open_trace
    from engine.program import Program as Program
    from engine.program import Step as Step
    from engine.recording import plan_trace as plan_trace
    from engine.recording import trace as trace
    from engine.sampling import Sampling as Sampling
    from engine.shown import Shown as Shown
    from engine.shown import show as show
    from engine.sites import Address as Address
    from engine.text import Token as Token
    from engine.traces import Trace as Trace

_HOME = {
    "Address": "sites",
    "Check": "checks",
    "Explanation": "explanation",
    "Edit": "edits",
    "Generated": "generating",
    "LayerstepError": "errors",
    "Model": "model",
    "ModelConfig": "config",
    "Program": "program",
    "Step": "program",
    "Sampling": "sampling",
    "Shown": "shown",
    "Token": "text",
    "Trace": "traces",
    "build_program": "architecture",
    "ablate": "edits",
    "branch": "decoding",
    "cache_report": "analysis.kvcache",
    "compare": "branches",
    "crop": "decoding",
    "drift": "analysis.drift",
    "explain": "explanation",
    "extend": "decoding",
    "generate": "generating",
    "import_cache": "importing",
    "import_file": "importing",
    "import_transformers": "importing",
    "lens": "analysis.lens",
    "load_model": "model",
    "look": "analysis.looks",
    "neighbours": "analysis.neighbours",
    "open_trace": "opening",
    "pages": "analysis.pages",
    "plan_trace": "recording",
    "quantised": "analysis.quantised",
    "save_as": "export.saving",
    "scale": "edits",
    "show": "shown",
    "trace": "recording",
    "tree": "branches",
}

_WITHOUT_TORCH = frozenset(["config", "edits", "errors", "sites", "text"])

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    if _HOME[name] not in _WITHOUT_TORCH:
        from engine.runtime import prepare

        prepare()  # before torch is imported
    value = globals()[name] = getattr(import_module(f"engine.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
