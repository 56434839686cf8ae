"""The logit lens: what would the model say next if it stopped after each block?

The residual stream after every block goes through the model's own last steps, as if no block came after it. They are
the program's steps, run from another starting point: nothing here knows what a norm or an unembedding is.

    python samples/scripts/logit_lens.py "The server crashed because the disk was full"
"""

import argparse

from engine import load_model, trace
from engine.runner import run


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prompt", nargs="?", default="The server crashed because the disk was full")
    parser.add_argument("--model", default="modern")
    args = parser.parse_args(argv)

    t = trace(load_model(args.model), args.prompt, keep="residual")
    *stream, last, logits = t.program.edges  # the stream before each block, after the last one, and the logits

    print(f"{t.config.name} after …")
    for layer, site in enumerate([*stream, last]):
        lens = run(t.program, t.weights, {last: t[site]}, [logits], t.passes[0].info)[logits]
        probs = lens[0, -1].float().softmax(-1)  # [d_vocab]
        best = probs.topk(4)
        says = "  ".join(
            f"{t.label(i)} {p:.2f}" for p, i in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        )
        print(f"{'the embedding' if layer == 0 else f'block {layer - 1}':>13}  {says}")
    assert lens.equal(t[logits])  # after the last block the lens is the model


if __name__ == "__main__":
    main()
