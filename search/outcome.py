"""What became of a trial, and which point is best: one rule for the summary, table and file."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from search.plan import Trial
from search.space import Point

Rule = Literal["collapse", "halving"]


@dataclass(frozen=True)
class Outcome:
    """A trial's end: its best dev evaluation, whole, or why it has none."""

    trial: Trial
    status: Literal["FINISHED", "PRUNED", "FAILED", "KILLED"]
    run_id: str
    step: int | None = None
    """Of the best evaluation; the first of equals."""
    score: float | None = None
    """The ranking dev score there."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """All dev metrics of that one evaluation by name; never a mix of several steps."""
    reason: str = ""
    """Why it failed or was pruned."""
    pruned_by: Rule | None = None
    steps: int = 0
    """Training steps done, of which the last is evaluated."""
    seconds: tuple[float, float] | None = field(default=None, compare=False)
    """Beginning and end of its last attempt, since 1970."""

    @property
    def settled(self) -> bool:
        """Whether there is nothing left to do for it."""
        return self.status in ("FINISHED", "PRUNED")

    @property
    def whole(self) -> bool:
        """Whether its best evaluation is the best of its whole training.

        A collapsed trial counts: the checkpoint before the fall is what its training gives.
        """
        return self.score is not None and (
            self.status == "FINISHED" or self.pruned_by == "collapse"
        )


@dataclass(frozen=True)
class Standing:
    """A point in the ranking: the mean over its seeds."""

    point: Point
    outcomes: tuple[Outcome, ...]
    """Of its seeds, those that enter the mean; best score first."""
    mean: float
    whole: bool
    """Whether they are whole trainings; if not, halving ended all of them early."""

    @property
    def n(self) -> int:
        """Seeds in the mean."""
        return len(self.outcomes)

    @property
    def spread(self) -> float | None:
        """Sample standard deviation over seeds; None for one seed."""
        scores = [o.score for o in self.outcomes if o.score is not None]
        return statistics.stdev(scores) if len(scores) > 1 else None

    @property
    def best(self) -> Outcome:
        """Its best single trial; of equals, the first."""
        return self.outcomes[0]


def best_step(selected: Mapping[int, float | None]) -> int | None:
    """The step whose score is largest, the first of equals; None where no score is defined."""
    defined = {step: score for step, score in selected.items() if score is not None}
    return min(defined, key=lambda step: (-defined[step], step), default=None)


def ranked(outcomes: Iterable[Outcome]) -> list[Standing]:
    """Points by the mean over seeds of the best dev evaluation, best first.

    Points with more seeds come before those that lack some, and whole trainings before pruned ones;
    equal means go by the place in the grid.
    """
    points: dict[Point, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.settled and outcome.score is not None:
            points.setdefault(outcome.trial.point, []).append(outcome)
    standings = []
    for point, found in points.items():
        counted = [o for o in found if o.whole] or found
        counted.sort(key=lambda o: (-(o.score or 0.0), o.trial.index))
        mean = statistics.fmean(o.score or 0.0 for o in counted)
        standings.append(Standing(point, tuple(counted), mean, counted[0].whole))
    return sorted(
        standings,
        key=lambda s: (not s.whole, -s.n, -s.mean, min(o.trial.index for o in s.outcomes)),
    )
