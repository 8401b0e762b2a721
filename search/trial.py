"""What runs in a worker: one recipe, trained and reported. It writes neither MLflow nor Optuna."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scd_core.recipe import Recipe
from search.space import without_point

if TYPE_CHECKING:
    from scd_core.inputs import Inputs
    from scd_core.run_folder import Evaluation

REPORT_SECONDS = 1.0
"""Shortest time between two reports of mere progress; dev evaluations are always reported."""


@dataclass(frozen=True)
class Report:
    """What a trial says to the driver, in plain values."""

    step: int
    """Training steps done."""
    total: int
    scores: dict[str, float | None] | None = None
    """Dev scores by metric name, undefined ones None; None where this is progress only."""
    selected: float | None = None
    """The score that ranks; larger is better; None where undefined."""
    terms: dict[str, float] = field(default_factory=dict)
    """The loss and its parts at this step."""


Training = Callable[[Recipe, Path, int], Iterator[Report]]
"""Trains a recipe in a folder with so many threads, and reports; raises with the reason where that
cannot go on."""


def train_recipe(recipe: Recipe, folder: Path, threads: int) -> Iterator[Report]:
    """Train with ``scd_core``, continuing from what ``folder`` holds of the same run.

    Raises:
        ValueError: an input is missing or the folder belongs to another run.
        RuntimeError: the loss is no longer a number.
    """
    # Workers alone pay for torch: the driver plans and resumes without it.
    import torch

    from scd_core.run_folder import Evaluation
    from scd_core.training import train

    torch.set_num_threads(threads)
    inputs = dataclasses.replace(_inputs(without_point(recipe)), recipe=recipe)
    evaluation: Evaluation | None = None
    reported: float | None = None
    for record in train(inputs, folder):
        if isinstance(record, Evaluation):
            evaluation = record  # its step's losses follow
            continue
        if evaluation is not None:
            terms = {f"train.{n}": float(v) for n, v in record.terms._asdict().items()}
            yield _evaluated(evaluation, terms)
            evaluation = None
        elif reported is None or time.monotonic() - reported > REPORT_SECONDS:
            yield Report(record.step, record.total)
        else:
            continue
        reported = time.monotonic()
    if reported is None:
        yield from _finished_before(folder)


def _evaluated(evaluation: Evaluation, terms: dict[str, float]) -> Report:
    step, total = evaluation.step, evaluation.total
    return Report(step, total, evaluation.metrics(), evaluation.selected, terms)


def _finished_before(folder: Path) -> Iterator[Report]:
    """The end of a run that finished unheard, as when the driver was killed a moment too soon."""
    from scd_core.run_folder import read_result

    result = read_result(folder)
    if result is None:
        return
    if result.best is not None:
        yield _evaluated(result.best, {})
    if result.best is None or result.final.step > result.best.step:
        yield _evaluated(result.final, {})


def trainable(training: Training) -> Callable[[dict[str, Any]], None]:
    """A Ray Tune function trainable around ``training``.

    Its config: ``recipe``, ``folder`` (absolute) and ``cpus``, as many as torch may use threads.
    """

    def trial(config: dict[str, Any]) -> None:
        from ray import tune

        threads = max(1, int(config["cpus"]))
        for report in training(config["recipe"], Path(config["folder"]), threads):
            tune.report(to_wire(report))

    return trial


def to_wire(report: Report) -> dict[str, Any]:
    """A report as the dictionary that travels to the driver."""
    return {"report": dataclasses.asdict(report)}


def from_wire(result: Mapping[str, Any]) -> Report | None:
    """The report in a result of Tune; NaN and infinite scores, which are none, become None."""
    if "report" not in result:
        return None
    report = Report(**result["report"])
    scores = report.scores and {k: _defined(v) for k, v in report.scores.items()}
    return dataclasses.replace(report, scores=scores, selected=_defined(report.selected))


def _defined(score: float | None) -> float | None:
    return score if score is not None and math.isfinite(score) else None


@lru_cache(maxsize=1)
def _inputs(recipe: Recipe) -> Inputs:
    """Read once a worker, not once a trial."""
    from scd_core.inputs import prepare

    return prepare(recipe)
