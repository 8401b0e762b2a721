"""What a run costs on this machine, from a few real steps and one dev evaluation."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from scd_core.evaluation.sts import Score
from scd_core.inputs import Inputs
from scd_core.settings import Selection
from scd_core.training import StepRecord, train, untrained_scores

_STEPS = 4
_ENOUGH_SECONDS = 30.0  # of steps: a large encoder on a CPU takes a minute for each


class _EnoughError(Exception):
    pass


@dataclass(frozen=True)
class Cost:
    """Seconds and bytes of the parts of a run."""

    step: float
    """Seconds of a training step."""
    evaluation: float
    """Seconds of a dev evaluation."""
    setup: float
    """Seconds before the first step."""
    checkpoint: int
    """Bytes of one checkpoint: weights and two moments of encoder and projector."""
    model: int
    """Bytes of the exported encoder."""
    untrained: tuple[Score, ...]
    """Dev scores of the encoder as it comes, which the evaluation gave."""

    def seconds(self, steps: int, every: int, runs: int = 1) -> float:
        """Of ``runs`` runs with so many steps in all and an evaluation every so many."""
        return runs * self.setup + steps * self.step + -(-steps // every) * self.evaluation

    @property
    def disk(self) -> int:
        """Bytes that a run takes at most: its best model, and two checkpoints with theirs."""
        return self.model + 2 * (self.checkpoint + self.model)


def measure(inputs: Inputs, threads: int | None = None) -> Cost:
    """Time a dev evaluation and a few steps, in a folder that is gone afterwards.

    Args:
        threads: Of torch, while it measures; default: as they are.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        return _measure(inputs)
    finally:
        torch.set_num_threads(before)


def _measure(inputs: Inputs) -> Cost:
    began = time.monotonic()
    untrained = untrained_scores(inputs)
    evaluation = time.monotonic() - began
    rare = dataclasses.replace(inputs.recipe, selection=Selection(every=10**9))
    began, times = time.monotonic(), list[float]()
    with (
        tempfile.TemporaryDirectory() as scratch,
        contextlib.closing(
            train(dataclasses.replace(inputs, recipe=rare), Path(scratch))
        ) as records,
    ):
        for record in records:
            times += [time.monotonic()] if isinstance(record, StepRecord) else []
            if len(times) > _STEPS or (times and times[-1] - times[0] > _ENOUGH_SECONDS):
                with contextlib.suppress(_EnoughError):  # closed, it would save a checkpoint
                    records.throw(_EnoughError())
    # The first step also warms up; where it is the only one, nothing better is known.
    step = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else times[0] - began
    encoder = sum(path.stat().st_size for path in inputs.model.glob("model*.safetensors"))
    width, layers = inputs.recipe.projector.width, inputs.recipe.projector.layers
    return Cost(
        step=step,
        evaluation=evaluation,
        setup=max(0.0, times[0] - began - step),
        checkpoint=3 * (encoder + 4 * width * width * (layers - 1)),
        model=encoder,
        untrained=untrained,
    )
