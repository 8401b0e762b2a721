"""Trials on shares of GPUs, and on a cluster of several nodes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
import stubs
from ray import cloudpickle
from rich.console import Console
from stubs import STSB, placed

from scd_core.tracking import Tracking
from search import cluster
from search.machine import Share
from search.runner import run_search

CHECKOUT = Path(__file__).resolve().parents[2]
cloudpickle.register_pickle_by_value(sys.modules["stubs"])

ON_THE_CLUSTER = """
import sys
from pathlib import Path
import ray, stubs
from rich.console import Console
from scd_core.tracking import Tracking
from search import cluster
from search.machine import Share
from search.runner import run_search

address, log = sys.argv[1], Path(sys.argv[2])
print(cluster.resources(address))
share = Share(concurrent=3, cpus=1, gpus=0)
print(cluster.call(address, share, lambda n: 2**n, 5))
plan = stubs.plan(tuple(n / 10 for n in range(1, 10)), share=share, name="far")
run_search(plan, Tracking(), {}, Console(), stubs.placed(log, 0.5, 3), address)
"""


def overlaps(log: Path) -> int:
    """The most trials that ran at one time."""
    spans = [tuple(map(float, line.split(",")[2:4])) for line in log.read_text().splitlines()]
    return max(sum(a <= moment < b for a, b in spans) for moment, _ in spans)


@pytest.mark.usefixtures("shared_ray")
@pytest.mark.parametrize(("gpus", "at_once"), [(0.5, 2), (1.0, 1)])
def test_trials_share_a_gpu_by_their_fractions(
    gpus: float, at_once: int, store: Tracking, tmp_path: Path
) -> None:
    """Ray's logical GPU: two halves run side by side on it, two wholes one after the other."""
    log = tmp_path / "log"
    plan = stubs.plan((0.1, 0.2, 0.3, 0.4), share=Share(concurrent=2, cpus=1, gpus=gpus))
    outcomes = run_search(
        plan, store, {STSB: 50.0}, Console(file=StringIO()), placed(log, 0.5, at_once)
    )
    assert [o.status for o in outcomes] == ["FINISHED"] * 4
    assert overlaps(log) == at_once
    assert {line.split(",")[1] for line in log.read_text().splitlines()} == {"0"}


@pytest.fixture
def settings(request: pytest.FixtureRequest) -> dict[str, str]:
    """More of the cluster's environment."""
    return dict(getattr(request, "param", {}))


@pytest.fixture
def far(own_home: Path, settings: dict[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Address of a cluster of three nodes, and the environment of commands that use it."""
    paths = (CHECKOUT, CHECKOUT / "tests" / "search")
    environment = dict(os.environ) | {
        "SCD_HOME": str(own_home),
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    # Set in this process by the Ray on loopback that other tests share.
    for name in ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "RAY_memory_monitor_refresh_ms"):
        environment.pop(name, None)
    script = Path(__file__).with_name("stub_cluster.py")
    with subprocess.Popen(
        [sys.executable, str(script), "3"],
        env=environment | settings,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as nodes:
        assert nodes.stdout is not None
        yield nodes.stdout.readline().strip(), environment
        nodes.communicate(timeout=60)


@pytest.mark.usefixtures("store")
def test_a_search_runs_on_all_nodes_of_a_cluster(
    far: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    (address, environment), log = far, tmp_path / "log"
    (tmp_path / "elsewhere").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", ON_THE_CLUSTER, address, str(log)],
        env=environment,
        cwd=tmp_path / "elsewhere",
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == ["(3, 2, 1)", "32"]
    lines = [line.split(",") for line in log.read_text().splitlines()]
    assert len(lines) == 9
    assert len({node for node, *_ in lines}) == 3
    runs = Tracking().find("trial")
    assert Counter(run.status for run in runs) == {"FINISHED": 9}
    assert not list((tmp_path / "elsewhere").iterdir())


KILLED_FOR_MEMORY = """
import sys
from pathlib import Path
import stubs
from rich.console import Console
from scd_core.tracking import Tracking
from search.machine import Share
from search.runner import run_search

plan = stubs.plan((0.1, 0.2), share=Share(concurrent=2, cpus=1, gpus=0), name="oom")
run_search(plan, Tracking(), {}, Console(), stubs.placed(Path(sys.argv[2]), 30), sys.argv[1])
"""


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("settings", [{"RAY_memory_usage_threshold": "0.01"}], indirect=True)
def test_trials_that_the_cluster_kills_for_memory_have_failed_and_say_so(
    far: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    """Nodes whose memory counts as full at 1%."""
    address, environment = far
    done = subprocess.run(
        [sys.executable, "-c", KILLED_FOR_MEMORY, address, str(tmp_path / "log")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    runs = Tracking().find("trial")
    assert Counter(run.status for run in runs) == {"FAILED": 2}
    assert {run.tags["scd.reason"] for run in runs} == {
        "its worker process was killed: the machine ran out of memory"
    }


def test_an_address_where_no_cluster_is_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(**settings: object) -> None:
        raise ConnectionError("nobody there")

    monkeypatch.setattr(cluster.ray, "init", nobody)
    with pytest.raises(ValueError, match=r"--address 10\.0\.0\.1:6379 \(nobody there\); start one"):
        cluster.join("10.0.0.1:6379")
