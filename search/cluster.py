"""Ray: one of our own on this machine, or the cluster at an address."""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

from scd_core import places
from search.machine import TRIAL_BYTES, Share, cpu_count, free_bytes, share_out

# Read by Ray on import, and by its workers. They keep it off the network, out of our terminal, away
# from the working directory and from packing up the checkout, and leave signals to us.
_RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
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
# Ray's own memory monitor counts the whole machine and kills trials for what others use; without
# it, the kernel ends the process that asks for memory that is not there, and the trial has failed.
_NO_MONITOR = "RAY_memory_monitor_refresh_ms"
_FOR_WORKERS = (
    *_RAY_SETTINGS,
    "SCD_DATA_DIR",
    "MLFLOW_TRACKING_URI",
    "HF_HOME",
    "HF_HUB_OFFLINE",
)
_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # "0" means loopback addresses, on Linux as well
_OBJECT_STORE_BYTES = (
    100 << 20
)  # trials exchange a few numbers; the default takes a third of memory
os.environ.update(_RAY_SETTINGS)

import ray  # noqa: E402
import ray.air.execution._internal.actor_manager as actor_manager  # noqa: E402
from ray._private import ray_constants  # noqa: E402
from ray._private.node import Node  # noqa: E402

T = TypeVar("T")
# On a cluster the monitor may be on. Tune takes a worker's death for a failed trial, but one by the
# monitor for a fault of its own, and ends the search (Ray 2.60).
actor_manager.RayActorError = (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError)


@contextlib.contextmanager
def connected(share: Share, address: str | None) -> Iterator[None]:
    """A Ray for the search: the cluster at ``address``, or our own, gone afterwards.

    One that this process is connected to already is used as it is.

    Raises:
        ValueError: no cluster answers at ``address``, or it can never run one trial.
    """
    if ray.is_initialized():  # somebody's, who will end it
        yield
        return
    if address is None:
        start(math.ceil(share.cpus * share.concurrent), math.ceil(share.gpus * share.concurrent))
    else:
        join(address)
    try:
        yield
    finally:
        ray.shutdown()


def start(cpus: int, gpus: int) -> None:
    """Start a Ray on this machine that listens on the loopback address and asks nobody else."""
    # Its import has read the variable, and the processes that it starts will.
    os.environ[_LOOPBACK], ray_constants.ENABLE_RAY_CLUSTER = "0", False
    os.environ[_NO_MONITOR] = "0"
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
    _quiet()


def join(address: str) -> None:
    """Connect to the cluster whose head node is at ``address`` ("HOST:PORT" or "auto").

    Raises:
        ValueError: none answers.
    """
    # Every node has the packages; what this process was told by its environment, workers are told.
    told = {name: os.environ[name] for name in _FOR_WORKERS if name in os.environ}
    told["SCD_HOME"] = str(places.home())
    try:
        ray.init(
            address=address,
            runtime_env={"env_vars": told},
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ConnectionError, RuntimeError, TimeoutError) as error:
        raise ValueError(
            f"no Ray cluster answers at --address {address} ({error}); start one with `ray start "
            "--head`, or leave --address out to use this machine"
        ) from error
    _quiet()


def resources(address: str | None) -> tuple[int, int, int] | None:
    """CPUs, GPUs and the CPUs of the largest node of the cluster at ``address``; None without."""
    if address is None:
        return None
    was_connected = ray.is_initialized()
    if not was_connected:
        join(address)
    found = ray.cluster_resources()
    nodes = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
    if not was_connected:
        ray.shutdown()
    return int(found.get("CPU", 0)), int(found.get("GPU", 0)), int(max(nodes, default=0))


def share_of(
    address: str | None,
    trials: int,
    concurrent: int | None,
    cpus_per_trial: float | None,
    gpus_per_trial: float | None,
    trial_bytes: int = TRIAL_BYTES,
) -> Share:
    """This machine, or the cluster at ``address``, divided among trials.

    Raises:
        ValueError: no cluster answers, or a trial is to have more than there is.
    """
    there = resources(address)
    if there is None:
        cpus, gpus, free, node = cpu_count(), torch.cuda.device_count(), free_bytes(), None
    else:  # the memory of its nodes is Ray's to watch
        (cpus, gpus, node), free = there, None
    flags = concurrent, cpus_per_trial, gpus_per_trial
    return share_out(trials, cpus, gpus, free, *flags, node, trial_bytes)


def call(address: str | None, share: Share, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function here, or with a trial's resources on the cluster at ``address``."""
    if address is None:
        return function(*arguments)
    with connected(share, address):
        # Work that a lost node takes along is done again; an error of its own is raised here.
        remote = ray.remote(num_cpus=share.cpus, num_gpus=share.gpus)(function)
        result: T = ray.get(remote.remote(*arguments))
        return result


def _quiet() -> None:
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
