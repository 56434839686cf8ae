"""The attention pattern of one head as a small table: who looks at whom, in percent.

python samples/scripts/attention_of_a_head.py "The server crashed because the disk was full" --layer 1 --head 3
"""

import argparse

from engine import load_model, trace


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prompt", nargs="?", default="The server crashed because the disk was full")
    parser.add_argument("--model", default="modern")
    parser.add_argument("--layer", type=int, default=0)
    parser.add_argument("--head", type=int, default=0)
    args = parser.parse_args(argv)

    t = trace(load_model(args.model), args.prompt)
    pattern = t[f"blocks.{args.layer}.attn.pattern[b=0,h={args.head}]"]  # [query, key]
    labels = [token.label for token in t.tokens[0]]
    width = max(map(len, labels))

    print(f"{t.config.name}, layer {args.layer}, head {args.head}: each row is a token, each column what it looks at")
    print(" " * width + "".join(f"{label[:4]:>5}" for label in labels))
    for label, row in zip(labels, pattern.tolist(), strict=True):
        cells = "".join(f"{100 * weight:5.0f}" if weight >= 0.005 else "    ·" for weight in row)
        print(f"{label:>{width}}{cells}")

    strongest = pattern.argmax(-1).tolist()
    print("\nstrongest:", ", ".join(f"{labels[q]}→{labels[k]}" for q, k in enumerate(strongest)))


if __name__ == "__main__":
    main()
