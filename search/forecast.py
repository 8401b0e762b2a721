"""What a search will cost, from the measured parts of one trial; and what it did cost."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from scd_core.corpus import WIKI1M_LINES
from scd_core.forecast import Cost
from scd_core.recipe import Recipe
from search.display import duration
from search.outcome import Outcome
from search.plan import Plan
from search.pruning import Pruning

_STATE_BYTES = 16  # of a parameter in training: weight, gradient and Adam's two moments, fp32
# BERT-base and RoBERTa-base: layers, hidden units, units between, parameters with embeddings.
_BASE = (12, 768, 3072, 110_000_000)
_BASE_MODELS = {"bert-base-uncased", "roberta-base"}


@dataclass(frozen=True)
class Forecast:
    """Of what is left of a search."""

    trials: int
    steps: int
    """Training steps of all trials."""
    wall_seconds: float
    device_hours: float
    """Of GPUs, or of CPUs where trials have no GPU."""
    device: str
    """GPU or CPU."""
    disk: int
    """Bytes at most, at one time."""

    def __str__(self) -> str:
        return (
            f"about {duration(self.wall_seconds)}: {self.trials:,} trials, {self.steps:,} steps, "
            f"{self.device_hours:.3g} {self.device}-hours; at most {_bytes(self.disk)} of disk"
        )


def forecast(plan: Plan, cost: Cost, outcomes: Iterable[Outcome] = ()) -> Forecast:
    """What the plan will cost beyond the outcomes that it has already.

    Trials that collapse or fail and end early are not foreseen, nor that trials side by side slow
    each other down.
    """
    settled = [outcome for outcome in outcomes if outcome.settled]
    every, share = plan.recipe.selection.every, plan.share
    trials = max(0, plan.size - len(settled))
    all_steps = plan.pruning.expected_steps(plan.size, plan.steps, every)
    steps = max(0, all_steps - sum(outcome.steps for outcome in settled)) if trials else 0
    rungs = plan.pruning.rungs(plan.steps, every)
    jobs, going_on = trials, trials
    for _ in rungs:
        going_on = plan.pruning.kept(going_on)
        jobs += going_on
    seconds = cost.seconds(steps, every, jobs)
    side_by_side = max(1, min(share.concurrent, trials))
    waiting = plan.pruning.kept(trials) * cost.checkpoint if rungs else 0
    return Forecast(
        trials=trials,
        steps=steps,
        wall_seconds=seconds / side_by_side,
        device_hours=seconds * (share.gpus or share.cpus) / 3600,
        device="GPU" if share.gpus else "CPU",
        disk=(side_by_side * cost.disk + cost.model + waiting) if trials else 0,
    )


def spent(plan: Plan, outcomes: Iterable[Outcome], wall_seconds: float, before: int = 0) -> str:
    """What a search did cost.

    Args:
        before: Steps that earlier commands had done.
    """
    done = list(outcomes)
    steps = sum(outcome.steps for outcome in done)
    planned = plan.size * plan.steps
    return (
        f"took {duration(wall_seconds)}: {steps - before:,} steps; in all commands {steps:,} of "
        f"the {planned:,} ({100 * steps / planned:.1f}%) that training every trial to its end takes"
    )


def needs(recipe: Recipe, trials: int) -> list[str]:
    """What a search of so many trials needs, from the sizes of encoder and batch.

    For BERT-base and RoBERTa-base on the paper's corpus, which can be told without having them;
    for others nothing.
    """
    if recipe.model.name not in _BASE_MODELS or recipe.data.corpus != "wiki1m":
        return []
    layers, hidden, between, parameters = _BASE
    optim, width = recipe.optim, recipe.projector.width
    projector = hidden * width + (recipe.projector.layers - 1) * width**2
    encoder = layers * (4 * hidden**2 + 2 * hidden * between)
    rows = 2 * optim.batch_size  # two views
    # Forward 2 and backward 4 operations for each weight and row it meets; full-length sentences.
    step = 6 * (encoder * rows * optim.max_length + projector * rows)
    steps = optim.total_steps(WIKI1M_LINES)
    hours = step / 10e12 / 3600
    halved = Pruning("halving").expected_steps(trials, steps, recipe.selection.every)
    state = (parameters + projector) * _STATE_BYTES
    return [
        "a CUDA GPU (none is visible) with "
        f"{_bytes(state)} for weights, gradients and Adam, and room for the activations of "
        f"{rows} sentences of {optim.max_length} tokens",
        f"time: {steps:,} steps a trial of {step / 1e12:.1f} x 10^12 operations; for {trials:,} "
        f"trials {trials * steps * hours:,.0f} GPU-hours on a GPU that sustains 10 x 10^12 a "
        f"second ({halved * hours:,.0f} with --pruning.rule halving), a tenth at 100 x 10^12",
        f"disk: {_bytes(3 * 4 * (parameters + projector))} for each checkpoint of a running trial, "
        f"{_bytes(4 * parameters)} for the best model",
    ]


def _bytes(size: float) -> str:
    if size < 1e6:
        return f"{math.ceil(size / 1e3)} kB"
    return f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"
