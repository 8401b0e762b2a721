"""The search's harness alone: stub trials that take no time, so all that is measured is overhead.

    python benchmarks/search_overhead.py --trials 250 500 1000
    python benchmarks/search_overhead.py --trials 24 --seconds 60

Each size is a search of its own, in a process of its own, with two workers. Reported are the
trials a second of the whole command and of the running search, the driver's memory at its end, and
the seconds of the second half of the trials against the first: 1 where time grows linearly. With
``--seconds``, a trial sleeps so long, and what the command takes beyond the sleep of its trials is
the harness's share: Ray, the workers' start, reports, MLflow, Optuna.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from scd_core.cli import quiet_libraries
from scd_core.recipe import Recipe
from scd_core.settings import Selection
from search.machine import Share
from search.plan import Budget, Plan
from search.space import Space
from search.trial import Report

METRIC = "dev.stub.spearman_all"
_ONE = "measure"
_WORKERS = 2
_SECONDS = "SCD_STUB_SECONDS"


def stub(recipe: Recipe, folder: Path, threads: int) -> Generator[Report]:
    """Two evaluations, and no time but what it is told to sleep."""
    for step in (10, 20):
        time.sleep(float(os.environ[_SECONDS]) / 2)
        score = 50 + recipe.objective.alpha + step / 100
        yield Report(step, 20, {METRIC: score}, score)


@dataclass(frozen=True)
class Command:
    """Measure the harness at these sizes."""

    trials: tuple[int, ...] = (250, 500, 1000)
    seconds: float = 0.0
    """That a trial sleeps."""


def measure(trials: int) -> dict[str, float]:
    """One search of so many stub trials in this process."""
    from scd_core.tracking import Tracking
    from search.runner import run_search

    quiet_libraries()
    plan = Plan(
        stage="coarse",
        recipe=Recipe(selection=Selection(every=10)),
        space=Space(tuple(n / 1000 for n in range(1, trials + 1)), (0.01,), (0.1,), (0.2,)),
        data_fingerprint="d" * 64,
        metric=METRIC,
        steps=20,
        share=Share(concurrent=_WORKERS, cpus=1, gpus=0),
        budget=Budget(retries=0),
        tags={"scd.data_fingerprint": "d" * 64},
    )
    store = Tracking()
    store.find("trial")  # MLflow makes its tables
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    outcomes = run_search(plan, store, {METRIC: 50.0}, Console(file=StringIO()), stub)
    took = time.monotonic() - began
    ends = sorted(o.seconds[1] for o in outcomes if o.seconds)
    half = ends[len(ends) // 2]
    began = time.monotonic()
    run_search(plan, store, {METRIC: 50.0}, Console(file=StringIO()), stub)
    return {
        "finished": len([o for o in outcomes if o.status == "FINISHED"]),
        "command": took,
        "searching": ends[-1] - ends[0],
        "halves": (ends[-1] - half) / (half - ends[0]),
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "grown": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
        "again": time.monotonic() - began,
    }


def main(command: Command) -> None:
    """Print one row a size."""
    table = Table(
        title=f"harness of the search, {_WORKERS} workers, trials of {command.seconds:g} s"
    )
    for name in (
        *("trials", "command s", "harness", "trials a s", "ms a trial", "2nd half / 1st"),
        *("driver MB", "of it grown", "read again s"),
    ):
        table.add_column(name, justify="right")
    for trials in command.trials:
        with tempfile.TemporaryDirectory() as home:
            done = subprocess.run(
                [sys.executable, __file__, _ONE, str(trials)],
                env=_environment(home, command.seconds),
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
        found = json.loads(done.stdout.splitlines()[-1])
        if found["finished"] != trials:
            raise SystemExit(f"{found['finished']} of {trials} trials finished")
        asleep = command.seconds * -(-trials // _WORKERS)
        table.add_row(
            str(trials),
            f"{found['command']:.1f}",
            f"{1 - asleep / found['command']:.1%}",
            f"{trials / found['searching']:.1f}",
            f"{1000 * found['searching'] / trials:.0f}",
            f"{found['halves']:.2f}",
            f"{found['memory']:.0f}",
            f"{found['grown']:.0f}",
            f"{found['again']:.1f}",
        )
    Console().print(table)


def _environment(home: str, seconds: float) -> dict[str, str]:
    path = str(Path(__file__).resolve().parents[1])
    return dict(os.environ) | {"SCD_HOME": home, "PYTHONPATH": path, _SECONDS: str(seconds)}


if __name__ == "__main__":
    if sys.argv[1:2] == [_ONE]:  # a process of its own for each size
        print(json.dumps(measure(int(sys.argv[2]))))
    else:
        main(tyro.cli(Command))
