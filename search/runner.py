"""Runs a plan's trials with Ray Tune. Optuna proposes; the driver alone keeps the books."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from scd_core.tracking import Tracking
from search.display import Display
from search.interrupt import Interrupts
from search.ledger import Ledger
from search.outcome import Outcome, ranked
from search.plan import Plan, Share, Trial
from search.trial import Training, from_wire, train_recipe, trainable

# Read by Ray on import, and by its workers. They keep it off the network, out of our terminal, away
# from the working directory and from packing up the checkout, and leave signals to us.
_RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # loopback addresses, on Linux as well
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_THRESHOLD_S": "10",
    # Tune trains each trial in a new thread, and each would keep a heap of its own: a reused worker
    # grew from 1.6 to 3.4 GB over six trials of the quick preset; with one heap it stays at 1.6.
    "MALLOC_ARENA_MAX": "1",
}
_OBJECT_STORE_BYTES = (
    100 << 20
)  # trials exchange a few numbers; the default takes a third of memory
os.environ.update(_RAY_SETTINGS)

import ray  # noqa: E402
from ray import tune  # noqa: E402
from ray._private.node import Node  # noqa: E402
from ray.tune.search import Searcher  # noqa: E402


def run_search(
    plan: Plan,
    store: Tracking,
    untrained: Mapping[str, float | None],
    console: Console,
    training: Training = train_recipe,
) -> list[Outcome]:
    """Run what is missing of ``plan`` and return what became of every trial, in grid order.

    A trial that fails does not stop the others; running the same plan again retries it.

    Args:
        untrained: Dev scores before training, by metric name, recorded with the search.
        training: What a trial does; tests put a stub here. It must be importable by workers.

    Raises:
        ValueError: the name belongs to another search, or a process is running this one.
        Interrupted: a signal asked to stop; all books are closed.
    """
    with _locked(plan), Interrupts() as interrupts:
        ledger = Ledger(plan, store)
        if not ledger.settled:
            ledger.open(untrained)
            done = False
            try:
                if ledger.pending:
                    ended = ledger.outcomes.values()
                    with _ray(plan.share), Display(plan, console, ended) as display:
                        interrupts.listen()  # Ray has put its own handlers in their place
                        _tune(plan, ledger, display, interrupts, training)
                done = True
            finally:
                ledger.close(interrupted=not done)
        return [ledger.outcomes[index] for index in sorted(ledger.outcomes)]


def _tune(
    plan: Plan, ledger: Ledger, display: Display, interrupts: Interrupts, training: Training
) -> None:
    """Let Tune run the pending trials, ``plan.share.concurrent`` at a time, on reused workers."""
    try:
        _run_tune(plan, ledger, _Books(plan, ledger, display, interrupts), trainable(training))
    except _BooksError as error:
        raise error.cause from None
    interrupts.check()


def _run_tune(plan: Plan, ledger: Ledger, books: _Books, function: Any) -> None:
    scratch = plan.folder / "ray"
    shutil.rmtree(scratch, ignore_errors=True)  # Tune's state of earlier processes is not used
    tune.run(
        function,
        name=scratch.name,
        storage_path=str(scratch.parent),
        search_alg=_Proposals(plan, ledger),
        num_samples=ledger.pending,
        max_concurrent_trials=plan.share.concurrent,
        resources_per_trial={"cpu": plan.share.cpus, "gpu": plan.share.gpus},
        callbacks=[books],
        trial_dirname_creator=lambda t: f"{t.config['index']:05d}-{t.trial_id}",
        # Loading torch and transformers takes a worker longer than a short trial does.
        reuse_actors=True,
        raise_on_failed_trial=False,
        verbose=0,
    )


class _Proposals(Searcher):
    """Hands Optuna's proposals to Tune. It keeps no state: the ledger does."""

    def __init__(self, plan: Plan, ledger: Ledger) -> None:
        super().__init__()
        self._plan, self._ledger = plan, ledger

    def suggest(self, trial_id: str) -> dict[str, Any] | str:
        trial = self._ledger.propose()
        if trial is None:
            return str(Searcher.FINISHED)
        return {
            "index": trial.index,
            "recipe": trial.recipe,
            "folder": str(self._plan.folder_of(trial)),
            "cpus": self._plan.share.cpus,
        }

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
    """Passes what Tune sees to the ledger and the display, all in the driver's main thread."""

    def __init__(
        self, plan: Plan, ledger: Ledger, display: Display, interrupts: Interrupts
    ) -> None:
        self._plan, self._ledger = plan, ledger
        self._display, self._interrupts = display, interrupts

    def on_step_begin(self, iteration: int, trials: Sequence[Any], **info: Any) -> None:
        self._interrupts.check()
        self._display.tick()

    def on_trial_start(
        self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any
    ) -> None:
        with _ends_the_search():
            self._ledger.start(self._of(trial))
            self._display.started(self._of(trial))

    def on_trial_result(
        self, iteration: int, trials: Sequence[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        with _ends_the_search():
            if report := from_wire(result):
                self._ledger.report(self._of(trial), report)
                self._display.report(self._of(trial), report)

    def on_trial_complete(
        self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any
    ) -> None:
        with _ends_the_search():
            self._display.ended(self._ledger.complete(self._of(trial)))
            self._keep_best_model_only()

    def on_trial_error(
        self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any
    ) -> None:
        with _ends_the_search():
            self._display.ended(self._ledger.fail(self._of(trial), *_reason(trial)))

    def _of(self, trial: Any) -> Trial:
        return self._plan.trials[trial.config["index"]]

    def _keep_best_model_only(self) -> None:
        """A grid of BERT models would fill the disk; checkpoints of unfinished trials stay."""
        for outcome in ranked(self._ledger.outcomes.values())[1:]:
            shutil.rmtree(self._plan.folder_of(outcome.trial), ignore_errors=True)


def _reason(trial: Any) -> tuple[str, str]:
    """Why a trial failed: the last line of its error, and the whole of it."""
    if trial.pickled_error_file is None:
        return "Tune gives no reason", ""
    error = ray.cloudpickle.loads(Path(trial.pickled_error_file).read_bytes())
    if isinstance(error, ray.exceptions.RayActorError):
        return "its worker process died (killed, or out of memory)", str(error)
    lines = str(error).strip().splitlines() or ["no message"]
    return lines[-1], str(error)


@contextlib.contextmanager
def _ray(share: Share) -> Iterator[None]:
    """A Ray of our own on this machine, only as large as the search needs; gone afterwards.

    One that this process is connected to already is used as it is.
    """
    if ray.is_initialized():  # somebody's, who will end it
        yield
        return
    start_ray(math.ceil(share.cpus * share.concurrent), math.ceil(share.gpus * share.concurrent))
    try:
        yield
    finally:
        ray.shutdown()


def start_ray(cpus: int, gpus: int) -> None:
    """Start a Ray on this machine that listens on the loopback address and asks nobody else."""
    with _no_api_server():
        ray.init(
            address="local",
            num_cpus=cpus,
            num_gpus=gpus,
            object_store_memory=_OBJECT_STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _node_ip_address="127.0.0.1",
        )
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # failures are in our own report


@contextlib.contextmanager
def _no_api_server() -> Iterator[None]:
    """Keep Ray from starting its API server.

    Without the dashboard, all that it does is usage reports, and even with those switched off it
    asks the cloud's metadata address where it is (Ray 2.60, no setting turns that off).
    """
    original = Node.start_api_server

    def start_nothing(node: Any, **settings: Any) -> None:
        node._webui_url = ""

    Node.start_api_server = start_nothing
    try:
        yield
    finally:
        Node.start_api_server = original


@contextlib.contextmanager
def _locked(plan: Plan) -> Iterator[None]:
    """One process at a time on a search; the lock ends with the process, however it ends.

    Raises:
        ValueError: another process is running it.
    """
    plan.folder.mkdir(parents=True, exist_ok=True)
    path: Path = plan.folder / "lock"
    with path.open("a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise ValueError(
                f"the search {plan.name} is running already (process {file.read().strip()}); wait "
                "for it, stop it, or choose another --name"
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
