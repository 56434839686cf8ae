"""Two models on one prompt: the likeliest next tokens of each side by side, and what each of them is made of.

python samples/scripts/compare_models.py "The keys to the cabinet" --models classic modern
"""

import argparse
from itertools import zip_longest

from engine import load_model, trace


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prompt", nargs="?", default="The server crashed because the disk was full")
    parser.add_argument("--models", nargs=2, default=["classic", "modern"])
    args = parser.parse_args(argv)

    traces = [trace(load_model(name), args.prompt) for name in args.models]

    def row(title: str, *cells: object) -> None:
        print(f"{title:12}" + "".join(f"{cell!s:<28}" for cell in cells).rstrip())

    row("", *(t.config.name for t in traces))
    for field in ("positions", "norm", "norm_place", "activation", "n_layers", "n_heads", "n_kv_heads", "d_model"):
        row(field, *(getattr(t.config, field) for t in traces))
    row("weights", *(f"{t.program.n_params:,}" for t in traces))
    row("kernel", *("+".join(t.kernels) for t in traces))
    row("checks", *(f"{sum(c.ok for c in t.checks())} of {len(t.checks())} hold" for t in traces))

    print("\nnext token")
    for place, candidates in enumerate(zip_longest(*(t.top(5) for t in traces)), start=1):
        row(f"{place}", *(f"{c.prob:.3f}  {c.label}" if c else "" for c in candidates))


if __name__ == "__main__":
    main()
