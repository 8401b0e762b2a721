"""What runs in a worker: one recipe, trained and reported. It writes neither MLflow nor Optuna."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scd_core.recipe import Recipe
from search.pruning import Pruning
from search.space import without_point

if TYPE_CHECKING:
    from scd_core.inputs import Inputs
    from scd_core.run_folder import Evaluation
    from search.plan import Plan

REPORT_SECONDS = 1.0
"""Shortest time between two reports of mere progress; dev evaluations are always reported."""
_JOURNAL = "evaluations.jsonl"


@dataclass(frozen=True)
class Report:
    """What a trial says to the driver, in plain values."""

    step: int
    """Training steps done."""
    total: int
    scores: dict[str, float | None] | None = None
    """Dev metrics by name, undefined ones None; None where this is progress only."""
    selected: float | None = None
    """The score that ranks; larger is better; None where undefined."""
    terms: dict[str, float] = field(default_factory=dict)
    """The loss and its parts at this step."""
    collapsed: str = ""
    """Why the trial ends here before its last step; empty where it does not."""


@dataclass(frozen=True)
class Job:
    """A trial's training up to a step; picklable, for a worker."""

    recipe: Recipe
    folder: Path
    """Absolute; a worker's working directory is its own."""
    threads: int
    until: int | None
    """Step at which to stop; None for the end."""
    pruning: Pruning
    bar: float | None = None
    """Dev score below which the trial will certainly not go on behind ``until``."""


class DroppedError(Exception):
    """Thrown into a training that will not go on: nothing needs to be saved."""


Training = Callable[[Recipe, Path, int], Generator[Report]]
"""Trains a recipe in a folder with so many threads, and reports; raises with the reason where that
cannot go on. Closing it keeps what was done; throwing ``DroppedError`` into it does not."""


def run_job(job: Job, training: Training) -> Iterator[Report]:
    """Train and report, each attempt telling all dev evaluations of the trial from the first.

    The trial writes its evaluations down before it tells them, so that those which a killed driver
    did not hear are told by the next attempt.
    """
    history: dict[int, float | None] = {}
    past = _read(job.folder)
    begun = False
    reports = training(job.recipe, job.folder, job.threads)
    try:
        for report in reports:
            if report.scores is not None:
                report = _definite(report)
                _append(job.folder, report)  # first: a checkpoint may hold its step already
            for known in () if begun else [r for r in past if r.step < report.step]:
                history[known.step] = known.selected
                yield known
            begun = True
            if report.scores is not None:
                history[report.step] = report.selected
                why = job.pruning.collapsed(history, report.scores)
                report = dataclasses.replace(report, collapsed=why)
            at_rung = job.until is not None and job.until <= report.step < report.total
            over = at_rung or bool(report.collapsed)
            if over and (report.collapsed or _hopeless(history, job.bar)):
                with contextlib.suppress(DroppedError):
                    reports.throw(DroppedError())
            elif over:
                reports.close()
            yield report
            if over:
                return
        yield from () if begun else past
    finally:
        reports.close()


def _hopeless(history: Mapping[int, float | None], bar: float | None) -> bool:
    best = max((score for score in history.values() if score is not None), default=-math.inf)
    return bar is not None and best < bar


def _append(folder: Path, report: Report) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _JOURNAL).open("a", encoding="utf-8") as file:
        file.write(json.dumps(dataclasses.asdict(report)) + "\n")


def _read(folder: Path) -> list[Report]:
    """Evaluations of earlier attempts by step; of one step, the last."""
    found: dict[int, Report] = {}
    with contextlib.suppress(FileNotFoundError):
        for line in (folder / _JOURNAL).read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):  # cut off by a kill or a full disk
                report = Report(**json.loads(line))
                found[report.step] = report
    return [found[step] for step in sorted(found)]


@dataclass(frozen=True)
class Contents:
    """What the trials of a search read, by content, as it was when the search was planned.

    A trial's identity holds it, but a worker reads files anew, later, and maybe on another machine.
    """

    data_fingerprint: str
    """SHA-256 (hex) over all of it."""
    parts: frozenset[str]
    """SHA-256 (hex) of the encoder, the sentences and each dev set."""

    @classmethod
    def of(cls, plan: Plan) -> Contents:
        """Those of a plan."""
        encoder = plan.tags.get("scd.model_fingerprint", "")
        return cls(plan.data_fingerprint, frozenset({encoder, *(d.fingerprint for d in plan.data)}))

    def check(self, inputs: Inputs) -> None:
        """Compare with what a worker has read.

        Raises:
            ValueError: it is another content; says of what.
        """
        if inputs.identity.data_fingerprint == self.data_fingerprint:
            return
        found = {f"the encoder ({inputs.recipe.model.name})": inputs.model_hash} | {
            f"the {data.context} data ({data.source})": data.fingerprint
            for data in inputs.data_inputs()
        }
        other = [f"{k}, SHA-256 {v[:12]}" for k, v in found.items() if v not in self.parts]
        raise ValueError(
            f"the trial's machine has other content than the search was planned with: "
            f"{'; '.join(other)}. Give every machine the same, and run the command again; it plans "
            "with what it finds"
        )


def train_recipe(
    recipe: Recipe, folder: Path, threads: int, planned: Contents | None = None
) -> Generator[Report]:
    """Train with ``scd_core``, continuing from what ``folder`` holds of the same run.

    Args:
        planned: What the inputs must be; None takes them as they are.

    Raises:
        ValueError: an input is missing or not the planned one, or the folder belongs to another
            run.
        RuntimeError: the loss is no longer a number.
    """
    # Workers alone pay for torch: the driver plans and resumes without it.
    import torch

    from scd_core.run_folder import Evaluation
    from scd_core.training import train

    torch.set_num_threads(threads)
    shared = dataclasses.replace(without_point(recipe), seed=0)
    inputs = dataclasses.replace(_inputs(shared), recipe=recipe)
    if planned is not None:
        planned.check(inputs)
    evaluation: Evaluation | None = None
    reported: float | None = None
    records = train(inputs, folder)
    try:
        for record in records:
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
    except DroppedError as dropped:
        records.throw(dropped)
    finally:
        records.close()


def _evaluated(evaluation: Evaluation, terms: dict[str, float]) -> Report:
    step, total = evaluation.step, evaluation.total
    return Report(step, total, evaluation.metrics(), evaluation.selected, terms)


def trainable(training: Training) -> Callable[[dict[str, Any]], None]:
    """A Ray Tune function trainable around ``training``; its config holds a ``job``."""

    def trial(config: dict[str, Any]) -> None:
        from ray import tune

        for report in run_job(config["job"], training):
            tune.report(to_wire(report))

    return trial


def to_wire(report: Report) -> dict[str, Any]:
    """A report as the dictionary that travels to the driver."""
    return {"report": dataclasses.asdict(report)}


def from_wire(result: Mapping[str, Any]) -> Report | None:
    """The report in a result of Tune, if it holds one."""
    return Report(**result["report"]) if "report" in result else None


def _definite(report: Report) -> Report:
    """The report with NaN and infinite scores, which are none, as None."""
    scores = report.scores and {k: _defined(v) for k, v in report.scores.items()}
    return dataclasses.replace(report, scores=scores, selected=_defined(report.selected))


def _defined(score: float | None) -> float | None:
    return score if score is not None and math.isfinite(score) else None


@lru_cache(maxsize=1)
def _inputs(recipe: Recipe) -> Inputs:
    """Read once a worker, not once a trial."""
    from scd_core.inputs import prepare

    return prepare(recipe)
