"""Jobs side by side on Ray: on this machine, or on the cluster at an address."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from filelock import FileLock, Timeout

from reproduce.jobs import Job
from scd_core import places, provenance
from scd_core.tracking import Tracking
from search.cluster import connected
from search.interrupt import Interrupts
from search.machine import Share

# isort: split
import ray  # its settings are read on import: search.cluster comes first

_POLL_SECONDS = 0.5
_GRACE_SECONDS = 120.0
"""For a training that is told to stop: a step and a checkpoint of a large encoder on a CPU."""
_LOST = 3
"""Times that a job is begun again whose worker or node was lost: it goes on where it was."""
Ended = Callable[[Job, str], None]
"""Told of each job that ended, and why it failed; empty where it did not."""


def run_all(
    jobs: Sequence[Job],
    share: Share,
    address: str | None,
    ended: Ended,
    tick: Callable[[int], None] = lambda running: None,
) -> None:
    """Run every job in its order, ``share.concurrent`` at a time; one that fails stops no other.

    Args:
        address: Of a Ray cluster; None for this machine.
        tick: Told how many are running, about twice a second.

    Raises:
        Interrupted: a signal asked to stop; what was running was given two minutes to save its
            work.
        ValueError: no cluster answers at ``address``.
    """
    waiting = list(reversed(jobs))
    running: dict[Any, Job] = {}
    with Interrupts() as interrupts, connected(share, address):
        interrupts.listen()  # Ray has put its own handlers in their place
        start = ray.remote(num_cpus=share.cpus, num_gpus=share.gpus, max_retries=_LOST)(work)
        threads, asked = max(1, int(share.cpus)), provenance.command()
        try:
            while waiting or running:
                while waiting and len(running) < share.concurrent:
                    job = waiting.pop()
                    running[start.remote(job, threads, asked)] = job
                done, _ = ray.wait(list(running), timeout=_POLL_SECONDS)
                for reference in done:
                    ended(running.pop(reference), _failure(reference))
                tick(len(running))
                interrupts.check()
        except BaseException:
            _stop(list(running))
            raise


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One command at a time in this home: two would measure the same rows. Ends with the process.

    Raises:
        ValueError: there is another.
    """
    places.runs().mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(places.runs() / "jobs.lock", timeout=0):
            yield
    except Timeout as error:
        raise ValueError(
            f"another reproduce.runs is at work in {places.runs()}; wait for it, or stop it"
        ) from error


def work(job: Job, threads: int, asked: str) -> None:
    """In a worker: whatever the job lacks; ``asked`` is the command that it is recorded with."""
    import torch

    from scd_core import cli

    cli.quiet_libraries()
    torch.set_num_threads(threads)
    store = Tracking()
    with provenance.asked_by(asked):
        for group in job.tests.groups:
            if job.finished(group, store) is None and job.measure(group, store):
                raise RuntimeError("its worker was told to stop; what it did is kept")


def _failure(reference: Any) -> str:
    try:
        ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        return str(error.cause).strip() or type(error.cause).__name__
    except ray.exceptions.RayError as error:
        return str(error).strip().partition("\n")[0] or type(error).__name__
    return ""


def _stop(running: Sequence[Any]) -> None:
    """Interrupt what is running, as Ctrl-C would, and wait until it has saved its work."""
    for reference in running:
        ray.cancel(reference)
    ray.wait(running, num_returns=len(running), timeout=_GRACE_SECONDS)
