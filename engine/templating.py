"""Renders chat templates, as a process of its own.

A template is code from outside. Jinja's sandbox keeps it from Python and from files, but not from running for ever or
from filling the memory, so it runs where it can be stopped: `engine.chat` starts this file as a script, which imports
nothing else of layerstep.

The settings are those of transformers' `_cached_compile_jinja_template`, since templates are written for them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, NoReturn

MEMORY = 1024**3
"""Bytes that a template may fill."""


class TooLong(Exception):
    """A text that grew beyond the limit."""


def renderer(template: str) -> Callable[[Mapping[str, Any], int], str]:
    """A function that renders this template with variables, up to a number of characters."""
    import jinja2
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    now = datetime.now()

    class Generation(Extension):
        """`{% generation %}` marks the assistant's words for training; here it is only passed over."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.Scope(body, lineno=line)

    def raise_exception(message: str) -> NoReturn:
        raise jinja2.exceptions.TemplateError(message)

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        # Jinja's own escapes HTML.
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = now.strftime
    compiled = environment.from_string(template)

    def render(variables: Mapping[str, Any], limit: int) -> str:
        parts, length = [], 0
        for part in compiled.generate(**variables):
            parts.append(part)
            length += len(part)
            if length > limit:
                raise TooLong
        return "".join(parts)

    return render


def answer(job: Mapping[str, Any]) -> dict[str, Any]:
    """The texts of a template rendered with each of several sets of variables, or in one line why there are none."""
    try:
        render = renderer(job["template"])
        return {"texts": [render(variables, job["limit"]) for variables in job["renders"]]}
    except TooLong:
        return {"error": f"writes more than {job['limit']:,} characters"}
    except MemoryError:
        return {"error": f"needs more than {MEMORY >> 20:,} MiB of memory"}
    except Exception as error:
        kind = type(error).__name__
        if kind == "TemplateSyntaxError":
            return {"error": f"cannot be read, line {getattr(error, 'lineno', '?')}: {error}"}
        return {"error": f"refuses these messages: {error}" if kind == "TemplateError" else f"fails: {kind}: {error}"}


def main() -> None:
    """Reads a job from stdin and writes its answer to stdout, both as JSON."""
    job = json.load(sys.stdin.buffer)
    with suppress(ImportError, ValueError, OSError):  # where the system knows no such limits, the time limit is left
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (job["seconds"], job["seconds"]))
    sys.stdout.buffer.write(json.dumps(answer(job)).encode())


if __name__ == "__main__":
    main()
