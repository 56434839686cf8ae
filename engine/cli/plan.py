"""``layerstep plan``: what a run would cost, before it runs."""

from __future__ import annotations

import click

from engine.cli.options import DTYPES, json_option, keep_of, keep_option, pickle_option
from engine.cli.options import command as make_command
from engine.cli.progress import Progress
from engine.cli.streams import say, say_json
from engine.dtypes import ITEMSIZE, dtype_name


@make_command(name="plan", help="Print bytes per site, peak memory, weights and FLOPs of recording N tokens.")
@click.argument("model")
@click.option("--tokens", "-n", type=click.IntRange(1, 2**31), metavar="N", required=True, help="Tokens of the prompt.")
@click.option("--batch", type=click.IntRange(1, 2**31), metavar="N", default=1, show_default=True)
@keep_option
@click.option("--dtype", type=click.Choice(DTYPES), default="auto", help="Default: the model file's own.")
@pickle_option
@json_option
def command(
    model: str, tokens: int, batch: int, keep: tuple[str, ...], dtype: str, allow_pickle: bool, as_json: bool
) -> int:
    wanted = keep_of(keep)
    from engine.checkpoints.lookup import find

    with Progress() as progress:
        folder = find(model, progress.loading, allow_pickle)
    from engine import build_program
    from engine.cli.layout import columns
    from engine.errors import PromptError
    from engine.plan import human, plan_pass, prompt_sizes
    from engine.prompts import check_length

    if dtype == "auto":
        from engine.model import own_dtype

        dtype = dtype_name(own_dtype(folder, allow_pickle=allow_pickle))
    config = folder.config
    plan = plan_pass(build_program(config), prompt_sizes(config, tokens, batch), ITEMSIZE[dtype], wanted)
    try:
        notices = check_length(config, tokens)
    except PromptError as error:
        notices = [f"a run would be refused: {error}"]
    if as_json:
        head = {"model": config.name, "tokens": tokens, "batch": batch, "dtype": dtype}
        say_json(head | {"keep": wanted, "notices": notices} | plan.to_json())
        return 0
    table: dict[tuple[object, ...], list[int]] = {}
    for row in plan.rows:
        name = row.site.name.replace(f"blocks.{row.site.block}.", "blocks.*.", 1)
        state = "kept" if row.kept else "" if row.on_path else "on demand"
        table.setdefault((name, "×".join(map(str, row.shape)), state), []).append(row.bytes)
    rows = [
        [str(name), str(shape), str(len(sizes)), human(max(sizes)) if any(sizes) else "shared", str(state)]
        for (name, shape, state), sizes in table.items()
    ]
    shown = wanted if isinstance(wanted, str) else ", ".join(wanted)
    read = f"{tokens} tokens" + (" in the encoder and 1 in the decoder" if config.encoder_layers else "")
    say(f"{config.name} · {batch} × {read} · {dtype} · keep {shown}", "")
    say(*columns([["site", "shape", "×", "bytes each", ""], *rows], numbers=(2, 3)), "")
    totals = [["kept", human(plan.kept)], ["peak of the run", human(plan.peak)], ["weights", human(plan.weights)],
              ["work", flops(plan.flops)]]  # fmt: skip
    say(*columns(totals, numbers=(1,)))
    say(*notices)
    return 0


def flops(number: int) -> str:
    """Floating-point operations as people read them: 1.24 GFLOP."""
    value = float(number)
    for unit in ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} PFLOP"
