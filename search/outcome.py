"""What became of a trial, and which is best: one rule for the summary, the table and the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from search.plan import Trial


@dataclass(frozen=True)
class Outcome:
    """A trial's end: its best dev evaluation, whole, or why it has none."""

    trial: Trial
    status: str
    """MLflow's word: FINISHED, FAILED or KILLED."""
    run_id: str
    step: int | None = None
    """Of the best evaluation; the first of equals."""
    score: float | None = None
    """The ranking dev score there."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """All dev scores of that one evaluation by metric name; never a mix of several steps."""
    reason: str = ""
    """Why it failed."""

    @property
    def valid(self) -> bool:
        """Whether it finished with a defined score."""
        return self.status == "FINISHED" and self.score is not None


def best_step(selected: Mapping[int, float | None]) -> int | None:
    """The step whose score is largest, the first of equals; None where no score is defined."""
    defined = {step: score for step, score in selected.items() if score is not None}
    return min(defined, key=lambda step: (-defined[step], step), default=None)


def ranked(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Valid outcomes by their best dev evaluation, equal ones by their place in the grid."""
    valid = [outcome for outcome in outcomes if outcome.valid]
    return sorted(valid, key=lambda o: (-(o.score or 0.0), o.trial.index))
