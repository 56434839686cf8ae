"""`python -m samples.training`: prepares the text, trains, exports and measures the sample models."""

import argparse
from pathlib import Path

from samples.training import export, measure, prepare, train
from samples.training.models import Classic, Modern
from samples.training.recipe import RECIPES

CORPUS_HELP = "folder with the plain-text files that NOTICE names"
MODELS = Path(__file__).parents[1] / "models"


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m samples.training", description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)

    step = steps.add_parser("all", help="everything, from a folder of texts to measured model folders")
    step.add_argument("--corpus", type=Path, required=True, help=CORPUS_HELP)

    step = steps.add_parser("prepare", help="text to tokenizer and token files")
    step.add_argument("--corpus", type=Path, required=True, help=CORPUS_HELP)

    step = steps.add_parser("train", help="train a model, or go on with it")
    step.add_argument("model", choices=RECIPES)
    step.add_argument("--run", help="name of the run's folder (default: the model's name)")
    step.add_argument("--seed", type=int, help="default: the shipped model's")

    step = steps.add_parser("export", help="write a run's last checkpoint as a model folder")
    step.add_argument("model", choices=RECIPES)
    step.add_argument("--run", help="name of the run's folder (default: the model's name)")
    step.add_argument("--to", type=Path, help="model folder (default: samples/models/MODEL)")
    step.add_argument("--dtype", choices=export.DTYPES, default=export.SHIPPED_DTYPE)

    step = steps.add_parser("measure", help="all figures of a model folder; writes figures.json into it")
    step.add_argument("folder", type=Path)
    return parser


def write(model: Classic | Modern, folder: Path, dtype: str) -> None:
    """Write a model folder in `dtype`, or in float32 if rounding would change what comes after a sample prompt."""
    tokenizer = prepare.DATA / "tokenizer.json"
    export.write(model, folder, tokenizer, dtype)
    try:
        print(f"{folder.name} as {dtype}: {measure.check_rounding(model, folder)}")
    except ValueError as changed:
        print(f"{folder.name} as float32, since in {dtype} {changed}")
        export.write(model, folder, tokenizer, "float32")


def main() -> None:
    a = arguments().parse_args()
    if a.step in ("all", "prepare"):
        prepare.prepare(a.corpus)
    if a.step == "all":
        for name in RECIPES:
            run = train.train(name)
            write(run.model, MODELS / name, export.SHIPPED_DTYPE)
            measure.measure_and_write(MODELS / name)
    elif a.step == "train":
        train.train(a.model, run=a.run, seed=a.seed)
    elif a.step == "export":
        model = train.checkpoint_model(a.model, train.RUNS / (a.run or a.model))
        write(model, a.to or MODELS / a.model, a.dtype)
    elif a.step == "measure":
        measure.measure_and_write(a.folder)


if __name__ == "__main__":
    main()
