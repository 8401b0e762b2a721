"""Which trials are not worth finishing: successive halving, and embeddings that have collapsed.

Both rules are functions of recorded dev evaluations, so a search that was killed and resumed prunes
what it would have pruned without. They know neither Ray nor MLflow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

# Of all random pairs of dev sentences: vectors that all point one way, or span next to nothing.
_COSINE, _RANK = 0.995, 1.5


@dataclass(frozen=True)
class Pruning:
    """How a search saves steps; by default it does not."""

    rule: Literal["none", "collapse", "halving"] = "none"
    """"collapse" ends a trial whose dev score has fallen or whose vectors have become one.
    "halving" does so too, and trains on only the best of all trials after each rung (successive
    halving, Jamieson & Talwalkar 2016)."""
    keep: int = 4
    """halving: one of so many trials goes on at each rung, and the rungs' steps grow so."""
    drop: float = 5.0
    """collapse: points below the trial's own best dev score at which it has collapsed."""

    def __post_init__(self) -> None:
        if self.keep < 2:
            raise ValueError(f"pruning.keep = {self.keep} is not possible: give at least 2")
        if not self.drop > 0:
            raise ValueError(f"pruning.drop = {self.drop:g} is not possible: give more than 0")

    def rungs(self, steps: int, every: int) -> tuple[int, ...]:
        """Steps at which trials are compared: ``steps`` / keep, / keep^2, ... as evaluations fall.

        Args:
            steps: Planned steps of a trial.
            every: Steps between two dev evaluations.
        """
        found: set[int] = set()
        share = steps / self.keep
        while self.rule == "halving" and round(share / every) >= 1:
            found.add(round(share / every) * every)
            share /= self.keep
        return tuple(sorted(rung for rung in found if rung < steps))

    def expected_steps(self, trials: int, steps: int, every: int) -> int:
        """Training steps of a search in which no trial collapses or fails."""
        total, before = 0, 0
        for rung in (*self.rungs(steps, every), steps):
            total += trials * (rung - before)
            trials, before = self.kept(trials), rung
        return total

    def kept(self, trials: int) -> int:
        """How many of ``trials`` go beyond a rung."""
        return math.ceil(trials / self.keep)

    def collapsed(
        self, selected: Mapping[int, float | None], scores: Mapping[str, float | None]
    ) -> str:
        """Why a trial has collapsed at its newest evaluation; empty where it has not.

        Args:
            selected: Ranking dev score (x 100) by step, the newest included.
            scores: All dev metrics of the newest evaluation.
        """
        if self.rule == "none":
            return ""
        for name, value in scores.items():
            if value is None or ".geometry." not in name:
                continue
            if "cosine" in name and value > _COSINE:
                return f"collapsed: {name} is {value:.4f}, all vectors point one way"
            if "rank" in name and value < _RANK:
                return f"collapsed: {name} is {value:.2f}, the vectors span one direction"
        now = selected[max(selected)]
        defined = [score for score in selected.values() if score is not None]
        if now is None:
            return "collapsed: no correlation exists, the vectors are constant" if defined else ""
        if now < max(defined) - self.drop:
            return f"collapsed: the dev score fell from {max(defined):.2f} to {now:.2f}"
        return ""


@dataclass(frozen=True)
class Progress:
    """What halving needs to know of one trial."""

    selected: Mapping[int, float | None]
    """Ranking dev score by step."""
    over: bool = False
    """Whether it will not train on for a reason of its own: finished, collapsed or failed."""

    def best_until(self, step: int) -> float | None:
        """Its best dev score up to a step; None where it has none."""
        found = [v for s, v in self.selected.items() if s <= step and v is not None]
        return max(found, default=None)

    def at(self, step: int) -> bool:
        """Whether all is known that can be known of it at a step."""
        return self.over or max(self.selected, default=0) >= step


@dataclass(frozen=True)
class Verdict:
    """What halving says now."""

    target: Mapping[int, int]
    """Trials that are to train, and to which step. Lower steps first."""
    out: Mapping[int, str]
    """Trials that are not to train on, with the reason."""
    bar: Mapping[int, float]
    """By rung: the score without which a trial will not go beyond it. Rises as trials arrive."""


def halve(
    trials: Mapping[int, Progress], size: int, rungs: Sequence[int], steps: int, pruning: Pruning
) -> Verdict:
    """Successive halving over whatever is known so far.

    A trial goes beyond a rung when no score that is still to come can take its place, and is out
    when its place is taken. So workers need not wait for the last of a rung, and the trials that go
    on are those that would if they had: they do not depend on the order in which scores arrive.

    Args:
        trials: Trials that have begun or are to begin, by index.
        size: How many there will be at the first rung, those not proposed yet included.
        rungs: Ascending steps below ``steps``.
    """
    target: dict[int, int] = {}
    out: dict[int, str] = {}
    bar: dict[int, float] = {}
    members, size = set(trials), max(size, len(trials))
    for rung in rungs:
        there = {i: trials[i].best_until(rung) for i in members if trials[i].at(rung)}
        target |= {i: rung for i in members if i not in there}
        order = sorted(there, key=lambda i: (-_or_least(there[i]), i))
        keep, awaited = pruning.kept(size), size - len(there)
        if len(order) >= keep and (least := there[order[keep - 1]]) is not None:
            bar[rung] = least
        for place, index in enumerate(order):
            if place >= keep and not trials[index].over:
                out[index] = f"not among the best {keep} of {size} at step {rung}"
        members = set(order[: max(0, keep - awaited)])
        size = keep
    target |= {i: steps for i in members if not trials[i].over}
    return Verdict(target, out, bar)


def _or_least(score: float | None) -> float:
    return -math.inf if score is None else score
