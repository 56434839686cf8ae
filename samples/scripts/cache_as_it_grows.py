"""Generation, and the KV cache as it grows: one token a line, with what was likeliest and the bytes that are held.

python samples/scripts/cache_as_it_grows.py "Once upon a time"
"""

import argparse

from engine import drift, generate, load_model


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prompt", nargs="?", default="Once upon a time")
    parser.add_argument("--model", default="modern")
    parser.add_argument("-n", type=int, default=12)
    args = parser.parse_args(argv)

    for step in generate(load_model(args.model), args.prompt, max_new_tokens=args.n):
        t = step.trace
        print(f"{t.length:4} positions  {t.cache.bytes:9,} B  then {step.token.label} {step.prob:.2f}")
    print(f"stopped: {step.stopped}")
    layer, head, query = t.config.n_layers - 1, 0, t.length - 1
    row = t[f"blocks.{layer}.attn.pattern[b=0,h={head},q={query}]"]  # [key], over prompt and continuation
    print(f"layer {layer}, head {head}, looks most at {t.tokens[0][int(row.argmax())].label}")
    print(drift(t).text)  # the cached passes beside one pass over the whole text


if __name__ == "__main__":
    main()
