"""Trainings without a model: each says what a test tells it to say."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scd_core.recipe import Recipe
from scd_core.settings import Selection
from scd_core.tracking import Tracking
from search.ledger import Ledger
from search.machine import Share
from search.outcome import Outcome
from search.plan import Budget, Plan
from search.schedule import Schedule
from search.space import Space
from search.trial import Job, Report, Training, from_wire, run_job, to_wire

STSB, SICKR = "dev.stsb.spearman_all", "dev.sickr.spearman_all"
Scores = Sequence[float | tuple[float | None, float | None] | Exception | None]


def scripted(by_alpha: Mapping[float, Scores]) -> Training:
    """Evaluations by the point's alpha: a score, a pair (STS-B, SICK-R), or an error to raise."""

    def training(recipe: Recipe, folder: Path, threads: int) -> Generator[Report]:
        script = by_alpha[recipe.objective.alpha]
        for number, said in enumerate(script, 1):
            if isinstance(said, Exception):
                raise said
            stsb, sickr = said if isinstance(said, tuple) else (said, 50.0)
            scores = {STSB: stsb, SICKR: sickr}
            yield Report(10 * number, 10 * len(script), scores, stsb, {"train.loss": 1 / number})

    return training


def counted(
    log: Path, fail_once: float | None = None, die: float | None = None, seconds: float = 0.0
) -> Training:
    """Notes every start in a file.

    The point with alpha ``fail_once`` fails the first time, that with ``die`` ends its process.
    """

    def training(recipe: Recipe, folder: Path, threads: int) -> Generator[Report]:
        (folder / "model").mkdir(parents=True, exist_ok=True)
        alpha = recipe.objective.alpha
        with log.open("a", encoding="ascii") as file:
            file.write(f"{alpha:g}\n")
        yield Report(1, 20)
        time.sleep(seconds)
        if alpha == die:
            os.kill(os.getpid(), signal.SIGKILL)
        if alpha == fail_once and not log.with_suffix(".failed").exists():
            log.with_suffix(".failed").touch()
            raise RuntimeError("the loss is nan at step 15 of 20")
        for step in (10, 20):
            score = 50 + 10 * alpha + step / 100
            yield Report(step, 20, {STSB: score}, score)

    return training


DURABLE = {4 * n: 50.0 + n for n in range(1, 6)}
"""Evaluations of ``durable`` at alpha 0, by step."""


def durable(log: Path, seconds: float) -> Training:
    """Twenty steps that take so long together, with a checkpoint after each and 5 evaluations."""

    def training(recipe: Recipe, folder: Path, threads: int) -> Generator[Report]:
        folder.mkdir(parents=True, exist_ok=True)
        place = folder / "checkpoint"
        start = int(place.read_text()) if place.exists() else 0
        with log.open("a", encoding="ascii") as file:
            file.write(f"{recipe.objective.alpha:g} {start}\n")
        for step in range(start + 1, 21):
            time.sleep(seconds / 20)
            if step in DURABLE:
                score = DURABLE[step] + recipe.objective.alpha
                yield Report(step, 20, {STSB: score}, score)
            elif step == start + 1:
                yield Report(step, 20)
            fresh = place.with_suffix(f".{os.getpid()}")
            fresh.write_text(str(step))
            fresh.replace(place)

    return training


def placed(log: Path, seconds: float, together: int = 1) -> Training:
    """Notes where and when each trial ran: node, visible GPUs, beginning and end.

    The first trials wait, up to a minute, until so many have begun: on a busy machine one worker
    may have done them all before another is there.
    """

    def training(recipe: Recipe, folder: Path, threads: int) -> Generator[Report]:
        import ray

        began = time.time()
        arrived = log.with_suffix(".begun")
        with arrived.open("a", encoding="ascii") as file:
            file.write(".")
        while arrived.stat().st_size < together and time.time() < began + 60:
            time.sleep(0.05)
        time.sleep(seconds)
        node = ray.get_runtime_context().get_node_id()
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        with log.open("a", encoding="ascii") as file:
            file.write(f"{node},{gpus or '-'},{began},{time.time()},{Path.cwd()}\n")
        yield Report(20, 20, {STSB: 60.0}, 60.0)

    return training


def plan(
    alpha: tuple[float, ...],
    lam: tuple[float, ...] = (0.01,),
    r_a: tuple[float, ...] = (0.1,),
    r_b: tuple[float, ...] = (0.2,),
    name: str | None = None,
    seed: int = 0,
    **more: Any,
) -> Plan:
    """A search over a grid, two stubs at a time; without a second try of what fails."""
    return Plan(
        **{
            "stage": "coarse",
            "recipe": Recipe(selection=Selection(every=10)),
            "space": Space(alpha, lam, r_a, r_b),
            "data_fingerprint": "d" * 64,
            "metric": STSB,
            "steps": 20,
            "share": Share(concurrent=2, cpus=1, gpus=0),
            "seeds": (seed,),
            "budget": Budget(retries=0),
            "chosen_name": name,
            "preset": "stub",
            "tags": {"scd.data_fingerprint": "d" * 64},
            "command": "python -m search.coarse_grid",
            **more,
        }
    )


def drive(plan: Plan, store: Tracking, training: Training, stop_after: int = -1) -> list[Outcome]:
    """What the runner does with ledger and schedule, one trial after another, without workers.

    Args:
        stop_after: Stop as an interrupted command does once so many trials have ended.
    """
    ledger = Ledger(plan, store)
    schedule = Schedule(plan, ledger)
    if ledger.closed and schedule.idle:
        return [ledger.outcomes[index] for index in sorted(ledger.outcomes)]
    ledger.open({STSB: 50.0})
    ended = 0
    while ended != stop_after:
        given = schedule.next()
        assert given != "wait"
        if given == "finished":
            break
        trial = given.trial
        schedule.started(trial)
        job = Job(trial.recipe, plan.folder_of(trial), 1, given.until, plan.pruning, given.bar)
        try:
            for report in run_job(job, training):
                received = from_wire(to_wire(report))
                assert received is not None
                schedule.report(trial, received)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[-1]
            ended += len(schedule.failed_with(trial, reason))
        else:
            ended += len(schedule.ended(trial))
    finished = schedule.idle and not schedule.failed
    ledger.close("FINISHED" if finished else "KILLED" if ended == stop_after else "FAILED")
    return [ledger.outcomes[index] for index in sorted(ledger.outcomes)]
