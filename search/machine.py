"""What this machine has, and how a search divides it among its trials."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

TRIAL_BYTES = 2 << 30
"""One CPU trial of a small encoder with its optimizer, rounded up."""


@dataclass(frozen=True)
class Share:
    """What the trials of a search may use at the same time."""

    concurrent: int
    """Trials side by side."""
    cpus: float
    """CPUs, and so threads, of each trial."""
    gpus: float
    """GPUs of each trial; fractions share one."""


def cpu_count() -> int:
    """CPUs this process may use: its affinity, and its container's quota where there is one."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        limit = int(quota) // int(period)
    except (OSError, ValueError):  # no such container, or "max"
        return allowed or 1
    return max(1, min(allowed or 1, limit))


def free_bytes() -> int | None:
    """Memory that is free for trials, in bytes; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return found[0] if found else None


def share_out(
    points: int,
    cpus: int,
    gpus: int,
    free: int | None,
    concurrent: int | None = None,
    cpus_per_trial: float | None = None,
    gpus_per_trial: float | None = None,
    node_cpus: int | None = None,
    trial_bytes: int = TRIAL_BYTES,
) -> Share:
    """Divide a machine among trials; what is given is taken, the rest follows.

    With a GPU, a trial has one and the GPUs say how many run at a time. Without, one trial a CPU
    runs, as far as memory allows: two trials with a thread each finish sooner than one with two.

    Args:
        points: Trials there are; more at a time are not planned.
        free: Memory in bytes; None for no limit.
        node_cpus: Of the largest node, where the machine is a cluster: no trial has more.
        trial_bytes: Memory that a CPU trial is planned.

    Raises:
        ValueError: a trial is to have more than the machine, or less than nothing.
    """
    each_gpu = gpus_per_trial if gpus_per_trial is not None else (1.0 if gpus else 0.0)
    for flag, value, there in (
        ("--cpus-per-trial", cpus_per_trial, node_cpus or cpus),
        ("--gpus-per-trial", gpus_per_trial, gpus),
    ):
        if value is not None and not 0 <= value <= there:
            raise ValueError(f"{flag} {value:g} is not possible: this machine has {there}")
    if cpus_per_trial is not None and cpus_per_trial <= 0:
        raise ValueError(f"--cpus-per-trial {cpus_per_trial:g} is not possible: give at least 1")
    if concurrent is not None and concurrent < 1:
        raise ValueError(f"--concurrent {concurrent} is not possible: give at least 1")
    room = [points, int(cpus // (cpus_per_trial or 1))]
    if each_gpu:
        room.append(int(gpus // each_gpu))
    elif free is not None:
        room.append(free // trial_bytes)
    side_by_side = concurrent or max(1, min(room))
    each_cpu = cpus_per_trial or float(max(1, min(cpus // side_by_side, node_cpus or cpus)))
    return Share(side_by_side, each_cpu, each_gpu)
