"""Progress on a terminal as a live table; elsewhere as occasional lines."""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from search.outcome import Outcome, ranked
from search.plan import Plan, Trial
from search.trial import Report

_LINE_SECONDS = 30.0


def duration(seconds: float) -> str:
    """Seconds for people: ``42 s``, ``3 min 05 s``, ``2 h 10 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class Display:
    """Shows a search while it runs. It reads what it is told and writes to ``console`` only."""

    def __init__(self, plan: Plan, console: Console, outcomes: Iterable[Outcome] = ()) -> None:
        """Begin with what is finished already, which counts as done and not as speed."""
        self._plan, self._console = plan, console
        self._outcomes = {o.trial.index: o for o in outcomes}
        self._ready = len(self._outcomes)
        self._running: dict[int, tuple[Trial, int, float | None]] = {}
        self._at = {index: outcome.steps for index, outcome in self._outcomes.items()}
        self._expected = plan.pruning.expected_steps(
            plan.size, plan.steps, plan.recipe.selection.every
        )
        self._steps = 0  # done in this process, the base of the estimate
        self._began = self._spoke = time.monotonic()
        self._live = Live(
            console=console, get_renderable=self._table, refresh_per_second=4, transient=True
        )

    def __enter__(self) -> Display:
        if self._console.is_terminal:
            self._live.start()
        else:
            self._console.print("starting the workers", highlight=False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def started(self, trial: Trial) -> None:
        """A trial has begun."""
        self._running[trial.index] = (trial, 0, None)

    def report(self, trial: Trial, report: Report) -> None:
        """A trial has come further."""
        _, before, score = self._running.get(trial.index, (trial, 0, None))
        # Steps of an earlier attempt that the first report includes were not done now.
        self._steps += report.step - before if before else 1
        score = report.selected if report.scores is not None else score
        self._running[trial.index] = (trial, report.step, score)
        self._at[trial.index] = report.step

    def paused(self, trial: Trial) -> None:
        """A worker has done with a trial, for now or for good."""
        self._running.pop(trial.index, None)

    def ended(self, outcome: Outcome) -> None:
        """A trial has ended."""
        trial = outcome.trial
        self._outcomes[trial.index] = outcome
        if outcome.pruned_by != "halving":
            self._expected -= self._plan.steps - max(self._at.get(trial.index, 0), outcome.steps)
        if self._console.is_terminal:
            return
        ending = "" if outcome.score is None else f"{outcome.score:.2f} at step {outcome.step}"
        if outcome.status != "FINISHED":
            ending = f"{outcome.status.lower()}: {outcome.reason}" + (ending and f"; {ending}")
        seed = f", seed {trial.recipe.seed}" if len(self._plan.seeds) > 1 else ""
        self._line(f"{trial.point}{seed}: {ending}")

    def tick(self) -> None:
        """Called often; says something at times where there is no live table."""
        if not self._console.is_terminal and time.monotonic() - self._spoke > _LINE_SECONDS:
            self._line(f"{len(self._running)} running")

    def _line(self, text: str) -> None:
        self._spoke = time.monotonic()
        self._console.print(
            f"[{self._counts()}] {text}", highlight=False, markup=False, soft_wrap=True
        )

    def _counts(self) -> str:
        done, total = len(self._outcomes), self._plan.size
        parts = [f"{done}/{total} trials", duration(time.monotonic() - self._began)]
        if left := self._left():
            parts.append(f"about {duration(left)} left")
        return ", ".join(parts)

    def _left(self) -> float | None:
        """Seconds to go, from the steps done in this process; None before the first trial's end."""
        if len(self._outcomes) == self._ready or not self._steps:
            return None
        to_go = self._expected - sum(self._at.values())
        return max(0, to_go) * (time.monotonic() - self._began) / self._steps

    def _table(self) -> RenderableType:
        best = next(iter(ranked(self._outcomes.values())), None)
        head = Text(self._counts())
        if best is not None:
            head.append(f"; best so far {best.mean:.2f}: {best.point}", style="bold")
        table = Table(box=None, padding=(0, 2, 0, 0))
        for name in ("running", "step", "", self._plan.metric):
            table.add_column(name)
        for trial, step, score in list(self._running.values()):
            bar = ProgressBar(total=self._plan.steps, completed=step, width=20)
            shown = "" if score is None else f"{score:.2f}"
            table.add_row(str(trial.point), f"{step}/{self._plan.steps}", bar, shown)
        return Group(head, table)
