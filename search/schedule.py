"""What a free worker does next: a new trial, a half-done one, one that goes on, or nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from search.ledger import Ledger
from search.outcome import Outcome
from search.plan import Plan, Trial
from search.proposals import proposals
from search.pruning import Progress, Verdict, halve
from search.trial import Report

Nothing = Literal["wait", "finished"]


@dataclass(frozen=True)
class Assignment:
    """A trial, and how far it is to train."""

    trial: Trial
    until: int | None
    """The step of a rung; None for the end."""
    bar: float | None
    """Dev score below which the trial will not go on behind ``until``."""


class Schedule:
    """Decides, from what the ledger holds and what runs now, and tells the ledger how trials end.

    It keeps nothing that the next process would need.
    """

    def __init__(
        self, plan: Plan, ledger: Ledger, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin with what an earlier command left half done."""
        self._plan, self._ledger = plan, ledger
        self._clock, self._began = clock, clock()
        self._rungs = plan.pruning.rungs(plan.steps, plan.recipe.selection.every)
        self._proposals = proposals(plan)
        self._tries: Counter[int] = Counter()
        self._running: dict[int, int | None] = {}  # and to which rung
        self._given_up: set[int] = set()
        self._last: dict[int, Report] = {}
        # In the order of their proposal; a dictionary for its order.
        self._members = dict.fromkeys([*sorted(ledger.outcomes), *ledger.begun])
        self._verdict: Verdict | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing is left to do."""
        return not self._judge().target and len(self._members) >= self._plan.size

    @property
    def out_of_time(self) -> bool:
        """Whether --max-hours are over."""
        hours = self._plan.budget.hours
        return hours is not None and self._clock() - self._began > 3600 * hours

    @property
    def failed(self) -> bool:
        """Whether a trial was given up in this command."""
        return bool(self._given_up)

    def next(self) -> Assignment | Nothing:
        """What to run now; "wait" where that depends on trials that run."""
        if self.out_of_time:
            return "wait" if self._running else "finished"
        target = self._judge().target
        ready = sorted(
            (step, self._tries[index], order, index)
            for order, index in enumerate(self._members)
            if (step := target.get(index)) is not None and index not in self._running
        )
        first = (*self._rungs, self._plan.steps)[0]
        if not (ready and ready[0][0] == first) and len(self._members) < self._plan.size:
            scores = self._scores()
            drawn = self._proposals.next(scores, set(self._members) - scores.keys())
            if drawn is not None:
                self._members[drawn] = None
                self._verdict = None
                ready = [(first, 0, 0, drawn)]
        if not ready:
            return "wait" if self._running else "finished"
        until, _, _, index = ready[0]
        rung = until if until in self._rungs else None
        self._running[index] = rung
        return Assignment(self._plan.trials[index], rung, self._judge().bar.get(until))

    def started(self, trial: Trial) -> None:
        """A worker has begun."""
        self._ledger.start(trial)

    def report(self, trial: Trial, report: Report) -> None:
        """A trial has come further."""
        self._last[trial.index] = report
        self._ledger.report(trial, report)
        if report.scores is not None:
            self._verdict = None

    def ended(self, trial: Trial) -> list[Outcome]:
        """A worker has done what it was to do. Returns the trials that this brought to an end."""
        index = trial.index
        last = self._last.pop(index, None)
        rung = self._running.pop(index)
        self._verdict = None
        if last is not None and last.collapsed:
            return self._done(self._ledger.prune(trial, "collapse", last.collapsed))
        if rung is not None and last is not None and last.step < last.total:
            return self._done()
        return self._done(self._ledger.complete(trial))

    def failed_with(
        self, trial: Trial, reason: str, detail: str = "", again: bool = True
    ) -> list[Outcome]:
        """A worker has failed. Returns the trials that this brought to an end.

        Args:
            again: Whether another try could end otherwise.
        """
        index = trial.index
        self._running.pop(index)
        self._last.pop(index, None)
        self._verdict = None
        self._tries[index] += 1
        outcome = self._ledger.fail(trial, reason, detail)
        if again and self._tries[index] <= self._plan.budget.retries:
            return []
        return self._done(outcome)

    def _done(self, *outcomes: Outcome) -> list[Outcome]:
        for outcome in outcomes:
            if not outcome.settled:
                self._given_up.add(outcome.trial.index)
        pruned = [
            self._ledger.prune(self._plan.trials[index], "halving", reason)
            for index, reason in self._judge().out.items()
            if index not in self._running and not self._pruned(index)
        ]
        if pruned:
            self._verdict = None
        return [*outcomes, *pruned]

    def _pruned(self, index: int) -> bool:
        outcome = self._ledger.outcomes.get(index)
        return outcome is not None and outcome.status == "PRUNED"

    def _judge(self) -> Verdict:
        if self._verdict is None:
            trials = {index: self._progress(index) for index in self._members}
            plan = self._plan
            self._verdict = halve(trials, plan.size, self._rungs, plan.steps, plan.pruning)
        return self._verdict

    def _progress(self, index: int) -> Progress:
        outcome = self._ledger.outcomes.get(index)
        over = index in self._given_up or (outcome is not None and outcome.whole)
        return Progress(self._ledger.selected.get(index, {}), over)

    def _scores(self) -> dict[int, float | None]:
        """Scores of all members that can be compared: at the first rung, where there are rungs."""
        found: dict[int, float | None] = {}
        for index in self._members:
            progress = self._progress(index)
            if index in self._given_up:
                found[index] = None
            elif self._rungs and progress.at(self._rungs[0]):
                found[index] = progress.best_until(self._rungs[0])
            elif not self._rungs and progress.over:
                found[index] = self._ledger.outcomes[index].score
        return found
