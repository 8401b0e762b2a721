"""Runs a plan's trials with Ray Tune. The driver alone decides and keeps the books."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from scd_core import places
from scd_core.divergence import DivergedError
from scd_core.mlflow_client import TrackingError
from scd_core.run_info import Status
from scd_core.tracking import Tracking
from search.cluster import connected
from search.display import Display
from search.interrupt import Interrupts
from search.ledger import Ledger
from search.outcome import Outcome, ranked
from search.plan import Plan, Trial
from search.presence import Presence
from search.schedule import Schedule
from search.trial import Contents, Job, Training, from_wire, train_recipe, trainable

# isort: split
import ray  # its settings are read on import: search.cluster comes first
from ray import tune
from ray.tune.search import Searcher

_MODELS = 3  # that are kept while the seeds of points are still being trained


def run_search(
    plan: Plan,
    store: Tracking,
    untrained: Mapping[str, float | None],
    console: Console,
    training: Training | None = None,
    address: str | None = None,
) -> list[Outcome]:
    """Run what is missing of ``plan`` and return what became of every trial, in grid order.

    A trial that fails does not stop the others; running the same plan again tries it again.

    Args:
        untrained: Dev scores before training, by metric name, recorded with the search.
        training: What a trial does instead of training on the plan's inputs: a test's stub, that
            workers can import.
        address: Of a Ray cluster; None for this machine.

    Raises:
        ValueError: the name belongs to another search, or a process is running this one, on this
            store or in this folder.
        Interrupted: a signal asked to stop; all books are closed.
    """
    training = training or functools.partial(train_recipe, planned=Contents.of(plan))
    with _locked(plan), Interrupts() as interrupts:
        ledger = Ledger(plan, store)
        schedule = Schedule(plan, ledger)
        if not (ledger.closed and schedule.idle):
            presence = Presence(plan, store)
            presence.refuse()
            ledger.open(untrained, presence.tags)
            presence.settle(ledger.parent)
            try:
                if not schedule.idle:
                    ended = list(ledger.outcomes.values())
                    with connected(plan.share, address), Display(plan, console, ended) as display:
                        interrupts.listen()  # Ray has put its own handlers in their place
                        books = _Books(plan, ledger, schedule, presence, display, interrupts)
                        _tune(plan, schedule, books, training)
                        interrupts.check()
            except TrackingError as error:
                with contextlib.suppress(TrackingError):
                    ledger.close("KILLED")
                kept = f"What was trained is kept in {plan.folder}; go on with:\n  {plan.command}"
                raise ValueError(f"{error}. {kept}") from error
            except BaseException:
                ledger.close("KILLED")
                raise
            ledger.close(_status(schedule))
        return [ledger.outcomes[index] for index in sorted(ledger.outcomes)]


def _status(schedule: Schedule) -> Status:
    if schedule.out_of_time:
        return "KILLED"
    return "FAILED" if schedule.failed else "FINISHED"


def _tune(plan: Plan, schedule: Schedule, books: _Books, training: Training) -> None:
    """Let Tune run what the schedule says, ``plan.share.concurrent`` at a time, on reused workers.

    A trial that goes on beyond a rung is another job for Tune, which knows no more than jobs.
    """
    scratch = plan.folder / "ray"
    shutil.rmtree(scratch, ignore_errors=True)  # Tune's state of earlier processes is not used
    try:
        tune.run(
            trainable(training),
            name=scratch.name,
            storage_path=str(scratch.parent),
            search_alg=_Jobs(plan, schedule),
            num_samples=-1,
            max_concurrent_trials=plan.share.concurrent,
            resources_per_trial={"cpu": plan.share.cpus, "gpu": plan.share.gpus},
            callbacks=[books],
            trial_dirname_creator=lambda t: f"{t.config['index']:05d}-{t.trial_id}",
            # Loading torch and transformers takes a worker longer than a short trial does.
            reuse_actors=True,
            raise_on_failed_trial=False,
            verbose=0,
        )
    except _BooksError as error:
        raise error.cause from None


class _Jobs(Searcher):
    """Hands the schedule's jobs to Tune. It keeps no state: the ledger does."""

    def __init__(self, plan: Plan, schedule: Schedule) -> None:
        super().__init__()
        self._plan, self._schedule = plan, schedule

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        given = self._schedule.next()
        if given == "wait":
            return None
        if given == "finished":
            return str(Searcher.FINISHED)
        plan, trial = self._plan, given.trial
        threads = max(1, int(plan.share.cpus))
        folder = plan.folder_of(trial)
        job = Job(trial.recipe, folder, threads, given.until, plan.pruning, given.bar)
        return {"index": trial.index, "job": job}

    def on_trial_complete(
        self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False
    ) -> None:
        """Left to ``_Books``, which sees failures with their reason."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to restore."""


class _BooksError(BaseException):
    """Carries an error of the books past Tune, which would take an Exception for the trial's."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


@contextlib.contextmanager
def _ends_the_search() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise _BooksError(error) from error


class _Books(tune.Callback):
    """Passes what Tune sees to schedule and display, all in the driver's main thread."""

    def __init__(
        self,
        plan: Plan,
        ledger: Ledger,
        schedule: Schedule,
        presence: Presence,
        display: Display,
        interrupts: Interrupts,
    ) -> None:
        self._plan, self._ledger, self._schedule = plan, ledger, schedule
        self._presence, self._display, self._interrupts = presence, display, interrupts
        self._kept = set(ledger.outcomes)

    def on_step_begin(self, iteration: int, trials: Sequence[Any], **info: Any) -> None:
        self._interrupts.check()
        self._presence.beat(self._ledger.parent)
        self._display.tick()

    def on_trial_start(
        self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any
    ) -> None:
        with _ends_the_search():
            self._schedule.started(self._of(trial))
            self._display.started(self._of(trial))

    def on_trial_result(
        self, iteration: int, trials: Sequence[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        with _ends_the_search():
            if report := from_wire(result):
                self._schedule.report(self._of(trial), report)
                self._display.report(self._of(trial), report)

    def on_trial_complete(
        self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any
    ) -> None:
        with _ends_the_search():
            self._display.paused(self._of(trial))
            self._end(self._schedule.ended(self._of(trial)))

    def on_trial_error(
        self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any
    ) -> None:
        with _ends_the_search():
            mine, why = self._of(trial), _error(trial)
            again = not isinstance(why, DivergedError)  # it would diverge again, to the bit
            self._display.paused(mine)
            self._end(self._schedule.failed_with(mine, *_reason(why), again=again))

    def _of(self, trial: Any) -> Trial:
        return self._plan.trials[trial.config["index"]]

    def _end(self, ended: Sequence[Outcome]) -> None:
        """Show ends, and keep only the best models: a grid of BERTs would fill the disk.

        Checkpoints of unfinished trials stay.
        """
        for outcome in ended:
            self._display.ended(outcome)
        self._kept |= {o.trial.index for o in ended if o.settled}
        standings = ranked(self._ledger.outcomes.values())
        best = {standing.best.trial.index for standing in standings[:1]}
        if len(self._plan.seeds) > 1:
            by_score = sorted((s.best for s in standings), key=lambda o: -(o.score or 0.0))
            best |= {outcome.trial.index for outcome in by_score[:_MODELS]}
        for index in self._kept - best:
            shutil.rmtree(self._plan.folder_of(self._plan.trials[index]), ignore_errors=True)
        self._kept &= best


def _error(trial: Any) -> Exception | None:
    if trial.pickled_error_file is None:  # of a kind that Tune does not know
        return RuntimeError(Path(trial.error_file).read_text()) if trial.error_file else None
    error: Exception = ray.cloudpickle.loads(Path(trial.pickled_error_file).read_bytes())
    return error


def _reason(error: Exception | None) -> tuple[str, str]:
    """Why a trial failed: the last line of its error, and the whole of it."""
    if error is None:
        return "Tune gives no reason", ""
    if "low on memory" in str(error):
        return "its worker process was killed: the machine ran out of memory", str(error)
    if isinstance(error, ray.exceptions.RayActorError):
        return "its worker process died (killed, or out of memory)", str(error)
    lines = str(error).strip().splitlines() or ["no message"]
    return lines[-1], str(error)


@contextlib.contextmanager
def _locked(plan: Plan) -> Iterator[None]:
    """One process at a time on a recipe and its data; the lock ends with the process.

    Searches that could share points exclude each other, or both would train them.

    Raises:
        ValueError: another process holds it.
    """
    places.searches().mkdir(parents=True, exist_ok=True)
    with (places.searches() / f"{plan.base}.lock").open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise ValueError(
                f"a search of this recipe and data is running already ({file.read().strip()}), and "
                f"{plan.name} could train the same points; wait for it, or stop it"
            ) from error
        file.truncate(0)
        file.write(f"{plan.name}, process {os.getpid()}")
        file.flush()
        yield
