"""The training loop: `python -m samples.training train NAME`. Started again, it goes on from its checkpoint.

Everything is counted in tokens, nothing in minutes, so a run that was stopped for a while or shared its
machine is the same run.
"""

import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from samples.training.batches import SHARES, Batches, validation
from samples.training.models import SHAPES, Classic, Modern, build
from samples.training.prepare import DATA
from samples.training.recipe import RECIPES, Phase, Recipe

RUNS = Path(__file__).parent / "runs"
LOG_EVERY = 100  # steps
SAVE_EVERY = 100  # steps


def optimisers(model: nn.Module, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon for the blocks' matrices, AdamW for the rest; or AdamW alone."""
    matrices = [p for name, p in model.named_parameters() if p.dim() == 2 and name.startswith("blocks.")]
    if recipe.optimiser == "adamw":
        matrices = []
    in_matrices = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in in_matrices]
    groups = [
        {"params": [p for p in rest if p.dim() == 2], "weight_decay": recipe.weight_decay},
        {"params": [p for p in rest if p.dim() < 2], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=recipe.rate, betas=(0.9, 0.98), fused=True)
    if not matrices:
        return [adamw]
    muon = torch.optim.Muon(matrices, lr=recipe.rate, weight_decay=recipe.weight_decay, adjust_lr_fn="match_rms_adamw")
    return [adamw, muon]


def rate_at(recipe: Recipe, step: int, tokens: int) -> float:
    done = tokens / recipe.tokens
    fall = 1.0 if done < recipe.hold else 0.02 + 0.98 * (1 - done) / (1 - recipe.hold)
    return recipe.rate * fall * min(1.0, (step + 1) / recipe.warmup)


def phase_at(recipe: Recipe, tokens: int) -> Phase:
    for phase in recipe.phases:
        if tokens < phase.tokens:
            return phase
        tokens -= phase.tokens
    return recipe.phases[-1]


def masked_loss(logits: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
    """Mean cross-entropy of `logits` [row, pos, d_vocab] for the ids that follow, by `weights` [row, pos]."""
    loss = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return (loss * weights.flatten()).sum() / weights.sum()


@torch.no_grad()
def validation_losses(model: nn.Module, data: Path, window: int) -> dict[str, float]:
    losses = {}
    for name in SHARES:
        ids = validation(data, name, window, n_rows=24)
        losses[name] = float(masked_loss(model(ids[:, :-1]), ids, torch.ones(ids.shape[0], window)))
    return losses


class Run:
    """A training run in a folder of its own: model, optimisers, data order and log, saved together."""

    def __init__(self, name: str, recipe: Recipe, folder: Path, data: Path, seed: int) -> None:
        torch.manual_seed(seed)
        self.name, self.recipe, self.folder, self.data = name, recipe, folder, data
        self.model: Classic | Modern = build(SHAPES[name])
        self.optimisers = optimisers(self.model, recipe)
        self.batches = Batches(data, SHAPES[name].d_vocab, seed)
        self.step = self.tokens = 0
        self.cpu_seconds = 0.0
        folder.mkdir(parents=True, exist_ok=True)
        self.checkpoint = folder / "checkpoint.pt"
        if self.checkpoint.exists():
            self.load()

    def load(self) -> None:
        state = torch.load(self.checkpoint, weights_only=True)
        self.model.load_state_dict(state["model"])
        for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)
        self.batches.rng.bit_generator.state = state["rng"]
        self.step, self.tokens, self.cpu_seconds = state["step"], state["tokens"], state["cpu_seconds"]

    def save(self) -> None:
        """Write the checkpoint whole or not at all."""
        state = {
            "model": self.model.state_dict(),
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
            "rng": self.batches.rng.bit_generator.state,
            "step": self.step,
            "tokens": self.tokens,
            "cpu_seconds": self.cpu_seconds,
        }
        unfinished = self.checkpoint.with_suffix(".part")
        torch.save(state, unfinished)
        unfinished.replace(self.checkpoint)

    def say(self, line: str) -> None:
        print(line, flush=True)
        with (self.folder / "log.txt").open("a", encoding="utf-8") as log:
            log.write(line + "\n")

    def train_step(self, phase: Phase) -> float:
        """One batch through the model, one step of the optimisers; returns the loss."""
        rate = rate_at(self.recipe, self.step, self.tokens)
        for optimiser in self.optimisers:
            for parameters in optimiser.param_groups:
                parameters["lr"] = rate
        n_rows = self.recipe.tokens_per_step // phase.window
        ids, weights = self.batches.draw(n_rows, phase.window, phase.repeats)
        with torch.autocast("cpu", torch.bfloat16):
            logits = self.model(ids[:, :-1])  # [row, pos, d_vocab]
        loss = masked_loss(logits, ids, weights)
        self.model.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimiser in self.optimisers:
            optimiser.step()
        self.step += 1
        self.tokens += n_rows * phase.window
        return loss.item()

    def train(self) -> None:
        if self.step == 0:
            n_parameters = sum(p.numel() for p in self.model.parameters())
            self.say(f"{self.name}: {n_parameters} parameters, {self.recipe.tokens / 1e6:.1f}M tokens")
        started, recent = time.process_time() - self.cpu_seconds, []
        while self.tokens < self.recipe.tokens:
            phase = phase_at(self.recipe, self.tokens)
            recent.append(self.train_step(phase))
            self.cpu_seconds = time.process_time() - started
            if not math.isfinite(recent[-1]):
                raise SystemExit(f"loss is {recent[-1]} at step {self.step}")
            if self.step % LOG_EVERY == 0:
                self.report(phase, sum(recent) / len(recent))
                recent = []
            if self.step % SAVE_EVERY == 0:
                self.save()
        self.save()

    def report(self, phase: Phase, loss: float) -> None:
        held_out = " ".join(f"{k} {v:.3f}" for k, v in validation_losses(self.model, self.data, 128).items())
        self.say(
            f"{self.cpu_seconds / 60:5.1f} cpu-min  step {self.step:5d}  {self.tokens / 1e6:5.2f}M tokens  "
            f"{phase.name:12s}  loss {loss:.3f}  held out: {held_out}"
        )


def checkpoint_model(name: str, folder: Path) -> Classic | Modern:
    """The model in a run's last checkpoint."""
    model = build(SHAPES[name])
    model.load_state_dict(torch.load(folder / "checkpoint.pt", weights_only=True)["model"])
    return model


def train(name: str, run: str | None = None, seed: int | None = None, data: Path = DATA) -> Run:
    """Train the model `name`, or go on with it, in `runs/<run>`."""
    recipe = RECIPES[name]
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    current = Run(name, recipe, RUNS / (run or name), data, recipe.seed if seed is None else seed)
    current.train()
    return current
