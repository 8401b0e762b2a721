"""Stores that lock, fill up or go away, settings too long to log, trials that go wrong."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator
from io import StringIO
from pathlib import Path

import optuna
import pytest
import stubs
from processes import stub_command
from ray import cloudpickle
from rich.console import Console
from stubs import DURABLE, STSB, counted, drive, scripted

from scd_core.mlflow_client import TrackingError
from scd_core.recipe import Recipe
from scd_core.settings import Data, Optim
from scd_core.tracking import Tracking
from search.machine import Share
from search.outcome import Outcome
from search.runner import run_search
from search.study import optuna_url
from search.trial import Report

cloudpickle.register_pickle_by_value(sys.modules["stubs"])
POINTS = 12


def talkative(recipe: Recipe, folder: Path, threads: int) -> Generator[Report]:
    """Two hundred evaluations at full speed."""
    for step in range(1, 201):
        yield Report(step, 200, {STSB: step / 10}, step / 10)


def locks(path: Path, seconds: float) -> threading.Thread:
    """Hold a write lock on an SQLite file for so long."""

    def hold() -> None:
        with sqlite3.connect(path, isolation_level=None, timeout=60) as connection:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            connection.execute("COMMIT")

    thread = threading.Thread(target=hold)
    thread.start()
    return thread


@pytest.mark.usefixtures("shared_ray")
@pytest.mark.parametrize(
    ("repeat", "seconds"),
    [(0, 10.0), *(pytest.param(n, 10.0, marks=pytest.mark.slow) for n in range(1, 5))],
)
def test_eight_talkative_trials_on_a_new_store_that_is_locked_meanwhile(
    repeat: int, seconds: float, own_home: Path
) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    share = Share(concurrent=4, cpus=0.5, gpus=0)
    plan = stubs.plan(tuple(n / 10 for n in range(1, 9)), share=share, steps=200)
    console = Console(file=StringIO())
    held: list[threading.Thread] = []

    def training(recipe: Recipe, folder: Path, threads: int) -> Generator[Report]:
        yield from talkative(recipe, folder, threads)

    def lock_both() -> None:
        while not (own_home / "optuna.db").exists():
            time.sleep(0.05)
        time.sleep(1)
        held.extend(locks(own_home / name, seconds) for name in ("mlflow.db", "optuna.db"))

    watcher = threading.Thread(target=lock_both)
    watcher.start()
    outcomes = run_search(plan, Tracking(), {STSB: 1.0}, console, training)
    watcher.join()
    for thread in held:
        thread.join()
    assert len(held) == 2
    assert [(o.status, o.score) for o in outcomes] == [("FINISHED", 20.0)] * 8
    store = Tracking()
    for run in store.find("trial"):
        assert run.status == "FINISHED"
        expected = [(step, step / 10) for step in range(1, 201)]
        assert store.history(run.run_id, STSB) == expected
    study = optuna.load_study(study_name=plan.name, storage=optuna_url())
    assert Counter(t.state.name for t in study.trials) == {"COMPLETE": 8}


def test_long_settings_are_kept_whole_beside_shortened_parameters(
    store: Tracking, tmp_path: Path
) -> None:
    alphas = tuple(round(0.001 * n, 3) for n in range(1, 1001))  # 7,000 characters as a list
    long = Recipe(data=Data(corpus="x" * 700, data_dir=tmp_path))
    plan = stubs.plan(
        alphas, recipe=long, sampler="random", budget=stubs.Budget(2), name="long", steps=20
    )
    for _ in range(2):
        drive(plan, store, scripted({alpha: [60.0] for alpha in alphas}))
        (parent,) = store.find("search")
        store.finish(parent.run_id, "KILLED")  # so that it is logged again
    shown = parent.params["space.alpha"]
    assert len(shown) <= 500
    assert "whole in" in shown
    files = store._client.list_artifacts(parent.run_id)
    assert {file.path for file in files} >= {"recipe.toml", "search.json"}
    for run in store.find("trial"):
        assert run.status == "FINISHED"
        assert "0x" not in " ".join(run.params.values())
        assert run.params["data.data_dir"] == str(tmp_path)
        assert run.params["model.revision"] == "None"


def test_the_same_settings_written_otherwise_are_the_same_search_and_others_are_not(
    store: Tracking, tmp_path: Path
) -> None:
    def plan(lr: float, alpha: float) -> stubs.Plan:
        recipe = Recipe(optim=Optim(lr=lr))
        return stubs.plan((alpha,), recipe=recipe, name="x")

    log = tmp_path / "log"
    first = drive(plan(1e-05, 0.3), store, counted(log))
    assert drive(plan(0.00001, 3 * 0.1), store, counted(log)) == first
    assert len(log.read_text().split()) == 1
    with pytest.raises(ValueError, match=r"belongs to another search.*recipe was"):
        drive(plan(1.1e-05, 0.3), store, counted(log))
    assert drive(plan(1e-05, 0.3), store, counted(log)) == first


@pytest.mark.usefixtures("shared_ray")
def test_a_tracking_failure_keeps_what_was_trained_and_says_how_to_go_on(
    store: Tracking, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan, log = stubs.plan((0.1, 0.2, 0.3), share=Share(1, 1, 0)), Tracking.log

    def fails_at_the_second(self: Tracking, run_id: str, metrics: object, step: int = 0) -> None:
        if self.get(run_id).params.get("alpha") == "0.2" and step == 20:
            raise TrackingError("the disk is full")
        log(self, run_id, metrics, step)  # type: ignore[arg-type]

    def run() -> list[Outcome]:
        console = Console(file=StringIO())
        return run_search(plan, store, {STSB: 50.0}, console, counted(tmp_path / "log"))

    with monkeypatch.context() as patch:
        patch.setattr(Tracking, "log", fails_at_the_second)
        with pytest.raises(ValueError, match=r"the disk is full\. What was trained is kept in"):
            run()
    assert "RUNNING" not in {found.status for found in store.find()}
    outcomes = run()
    assert [o.status for o in outcomes] == ["FINISHED"] * 3
    assert [step for step, _ in store.history(outcomes[1].run_id, STSB)] == [10, 20]


@pytest.fixture
def small_disk(tmp_path: Path, empty_store: Path) -> Iterator[Path]:
    """A home on a disk of 3 MB."""
    home = tmp_path / "small"
    home.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(home)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    shutil.copy(empty_store, home / "mlflow.db")
    yield home
    subprocess.run(["umount", "-l", str(home)], check=True)


def finished(home: Path) -> list[list[tuple[int, float]]]:
    """Histories of all runs, which are all finished."""
    store = Tracking(f"sqlite:///{home / 'mlflow.db'}")
    runs = store.find("trial")
    assert Counter(run.status for run in runs) == {"FINISHED": POINTS}
    assert len({run.tags["scd.identity"] for run in runs}) == POINTS
    alphas = [float(run.params["alpha"]) for run in runs]
    for run, alpha in zip(runs, alphas, strict=True):
        expected = [(step, score + alpha) for step, score in DURABLE.items()]
        assert store.history(run.run_id, STSB) == expected
    return [store.history(run.run_id, STSB) for run in runs]


def test_a_full_disk_is_told_and_the_search_goes_on_once_there_is_room(small_disk: Path) -> None:
    filler = small_disk / "filler"
    search = stub_command(small_disk, "durable", 1.0, "--preset", "quick")
    deadline = time.monotonic() + 90
    while not (small_disk / "log").exists():
        assert search.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"0" * 4096)
    assert shutil.disk_usage(small_disk).free == 0
    output, _ = search.communicate(timeout=200)
    assert search.returncode == 2, output
    said = " ".join(output.split())
    assert "disk" in said
    assert "Traceback" not in output, output
    filler.unlink()
    again = stub_command(small_disk, "durable", 0.1, "--preset", "quick")
    output, _ = again.communicate(timeout=200)
    assert again.returncode == 0, output
    finished(small_disk)


def serve(home: Path, port: int) -> subprocess.Popen[bytes]:
    """An MLflow server on this machine, once it answers."""
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"),
            *("--port", str(port), "--workers", "1"),
            *("--backend-store-uri", f"sqlite:///{home / 'mlflow.db'}"),
            *("--default-artifact-root", str(home / "artifacts")),
        ],
        env=dict(os.environ) | {"MLFLOW_DISABLE_TELEMETRY": "true"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return server
        time.sleep(0.5)
    raise AssertionError("the server did not start")


@pytest.mark.slow
def test_a_server_that_is_away_for_thirty_seconds_is_waited_for(
    tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "served"
    home.mkdir()
    shutil.copy(empty_store, home / "mlflow.db")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = serve(home, port)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    try:
        search = stub_command(home, "durable", 2.0, "--preset", "quick")
        deadline = time.monotonic() + 120
        while not ((home / "log").exists() and len((home / "log").read_text().split("\n")) > 4):
            assert search.poll() is None, search.stdout and search.stdout.read()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        time.sleep(30)
        server = serve(home, port)
        output, _ = search.communicate(timeout=300)
        assert search.returncode == 0, output
        assert f"{POINTS} of {POINTS} trials finished" in output
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    store = Tracking(f"sqlite:///{home / 'mlflow.db'}")
    assert Counter(r.status for r in store.find("trial"))["FINISHED"] == POINTS
    assert "RUNNING" not in {run.status for run in store.find()}


def test_undefined_and_raising_trials_do_not_stop_the_others(store: Tracking) -> None:
    script = {
        0.1: [60.0],
        0.2: [float("nan")],
        0.3: [50.0, RuntimeError("out of ideas")],
        0.4: [float("inf"), 55.0],
    }
    plan = stubs.plan(tuple(script), budget=stubs.Budget(retries=1))
    outcomes = drive(plan, store, scripted(script))
    assert [(o.status, o.score) for o in outcomes] == [
        ("FINISHED", 60.0),
        ("FAILED", None),
        ("FAILED", None),
        ("FINISHED", 55.0),
    ]
