"""A search that is killed at any moment, and started again, runs every point exactly once."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import optuna
import pytest
import torch
from processes import CHECKOUT, processes_of, stub_command, workers_of
from safetensors.torch import load_file
from stubs import DURABLE, STSB

from scd_core.tracking import Tracking
from tests.commands import flags

GRID = ["--preset", "quick", "--space.alpha", "0.1", "0.3", "0.5", "0.7"]
POINTS = 24
WORKERS = {2: [], 4: ["--concurrent", "4", "--cpus-per-trial", "0.5"]}
KILLS = ("driver", "worker", "everything", "ctrl-c", "sigterm")

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc")


def killed(home: Path, process: subprocess.Popen[str], how: str, delay: float) -> bool:
    """Whether it was still running after ``delay`` seconds and has been sent ``how``."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(delay)
    if process.poll() is not None:
        return False
    if how == "worker":
        for pid in workers_of(home)[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return True
    if how == "driver":
        process.kill()
    elif how == "everything":
        for pid in processes_of(home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    else:
        number = signal.SIGINT if how == "ctrl-c" else signal.SIGTERM
        os.killpg(process.pid, number)
    return True


def search_through(
    home: Path, plan: Sequence[tuple[str, float]], workers: int, seconds: float
) -> tuple[int, str]:
    """Search under one kill after another, then to the end. Returns the kills, and the last output.

    The next start does not wait for what a killed driver left running.
    """
    grid, kills = [*GRID, *WORKERS[workers]], 0
    process = stub_command(home, "durable", seconds, *grid)
    for how, delay in plan:
        hit = killed(home, process, how, delay)
        kills += hit
        if how == "worker" and hit:
            continue  # the driver goes on
        output, _ = process.communicate(timeout=120)
        if not hit and process.returncode == 0:
            return kills, output
        process = stub_command(home, "durable", seconds, *grid)
    output, _ = process.communicate(timeout=240)
    for _ in range(3):  # a worker that was killed twice fails its trial until the next command
        if process.returncode == 0 and f"{POINTS} of {POINTS} trials finished" in output:
            break
        process = stub_command(home, "durable", seconds, *grid)
        output, _ = process.communicate(timeout=240)
    return kills, output


def require_exactly_once(home: Path, output: str) -> None:
    """One finished run and one complete trial a point, all evaluations, and nothing left open."""
    assert f"{POINTS} of {POINTS} trials finished" in output, output
    store = Tracking(f"sqlite:///{home / 'mlflow.db'}")
    runs = store.find("trial")
    assert Counter(run.status for run in runs) == {"FINISHED": POINTS}
    identities = {run.tags["scd.identity"] for run in runs}
    assert len(identities) == POINTS
    assert [run.status for run in store.find("search")] == ["FINISHED"]
    for run in runs:
        alpha = float(run.params["alpha"])
        expected = [(step, score + alpha) for step, score in DURABLE.items()]
        assert store.history(run.run_id, STSB) == expected, run.name
        assert run.metrics[f"best.{STSB}"] == pytest.approx(55 + alpha)
        assert run.tags["scd.best_step"] == "20"
    (name,) = {run.tags["scd.search"] for run in runs}
    study = optuna.load_study(study_name=name, storage=f"sqlite:///{home / 'optuna.db'}")
    states = Counter(trial.state.name for trial in study.trials)
    assert states["COMPLETE"] == POINTS
    assert set(states) <= {"COMPLETE", "FAIL"}
    complete = {t.user_attrs["identity"] for t in study.trials if t.state.name == "COMPLETE"}
    assert complete == identities
    deadline = time.monotonic() + 120  # what a killed driver left notices that it is alone
    while processes_of(home):
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.fixture
def home(tmp_path: Path, empty_store: Path) -> Path:
    folder = tmp_path / "killed"
    folder.mkdir()
    shutil.copy(empty_store, folder / "mlflow.db")
    return folder


def test_kills_of_every_kind(home: Path) -> None:
    """Early, in the middle and late; the plan of delays is fixed, what they hit is not."""
    plan = [("everything", 9.0), ("worker", 9.0), ("driver", 1.0)]
    kills, output = search_through(home, plan, 2, 1.0)
    assert kills >= 2
    require_exactly_once(home, output)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("workers", [2, 4])
def test_fifty_kills_at_random_moments(workers: int, tmp_path: Path, empty_store: Path) -> None:
    chance = random.Random(workers)
    kills, searches = 0, 0
    while kills < 25:  # on 2 and on 4 workers, 50 in all
        home = tmp_path / f"search{searches}"
        home.mkdir()
        shutil.copy(empty_store, home / "mlflow.db")
        plan = [(chance.choice(KILLS), chance.uniform(0.5, 14.0)) for _ in range(25 - kills)]
        hit, output = search_through(home, plan, workers, 1.0)
        require_exactly_once(home, output)
        kills += hit
        searches += 1
        print(f"{kills} kills in {searches} searches")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_real_trainings_that_are_killed_end_in_the_weights_of_an_uninterrupted_search(
    tmp_path: Path,
    tiny_models: dict[str, Path],
    texts: Path,
) -> None:
    settings = flags(tiny_models["bert"], texts, tmp_path, steps=300)
    del settings[settings.index("--output") : settings.index("--output") + 2]
    grid = ["--space.alpha", "0.1", "0.2", "--space.lam", "0.01", "--space.r-a", "0", "0.1"]
    search = ["--preset", "quick", *settings, *grid, "--space.r-b", "0.1", "0.2"]

    def start(home: Path) -> subprocess.Popen[str]:
        told = {"SCD_HOME": str(home), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(CHECKOUT)}
        return subprocess.Popen(
            [sys.executable, "-m", "search.coarse_grid", *search],
            env=dict(os.environ) | told,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    chance, ends = random.Random(0), {}
    for name, kills in (("straight", 0), ("killed", 4)):
        home = tmp_path / name
        for _ in range(kills):
            process = start(home)
            killed(home, process, "everything", chance.uniform(20, 45))
            process.communicate(timeout=60)
        process = start(home)
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 0, output
        assert "6 of 6 trials finished" in output
        runs = Tracking(f"sqlite:///{home / 'mlflow.db'}").find("trial")
        assert Counter(run.status for run in runs) == {"FINISHED": 6}
        scores = {r.tags["scd.identity"]: r.metrics["best.dev.pairs.spearman_all"] for r in runs}
        (model,) = (home / "searches").glob("*/trials/*/model/model.safetensors")
        ends[name] = (scores, model.parent.parent.name, load_file(model))
    straight, interrupted = ends["straight"], ends["killed"]
    assert straight[:2] == interrupted[:2]
    assert all(torch.equal(straight[2][key], interrupted[2][key]) for key in straight[2])


def test_two_searches_of_the_same_points_at_once_are_refused(home: Path) -> None:
    """Also under another name and with another grid, since they would share points."""
    first = stub_command(home, "counted", 60, "--preset", "quick")
    try:
        deadline = time.monotonic() + 180
        while not (home / "log").exists():
            assert first.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        second = stub_command(home, "counted", 0, *GRID, "--name", "other")
        output, _ = second.communicate(timeout=180)
        assert second.returncode == 2
        said = " ".join(output.split())
        assert "a search of this recipe and data is running already" in said
        assert f"process {first.pid}" in said
    finally:
        os.killpg(first.pid, signal.SIGTERM)
        first.communicate(timeout=180)
    store = Tracking(f"sqlite:///{home / 'mlflow.db'}")
    assert {run.tags["scd.search"] for run in store.find("trial")} == {
        run.name for run in store.find("search")
    }
