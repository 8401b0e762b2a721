"""The command: which preset and why, its plan, and what an interruption leaves behind."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import optuna
import pytest
import stubs
import torch
from processes import processes_of, stub_command
from rich.console import Console
from stub_command import stub_cost, stub_inputs

from scd_core.data import DataError
from scd_core.recipe import Recipe, from_toml
from scd_core.tracking import Tracking
from search import coarse_grid, command
from search.interrupt import Interrupted
from search.outcome import Outcome
from search.plan import Plan
from search.runner import run_search
from search.study import optuna_url
from search.trial import Training

RunSearch = Callable[..., list[Outcome]]
STOP_SECONDS = 60


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, store: Tracking) -> Console:
    """The command's console, with inputs that need no file."""
    console = Console(record=True, width=200, file=StringIO())
    monkeypatch.setattr(command, "console", console)
    monkeypatch.setattr(command, "prepare", stub_inputs)
    monkeypatch.setattr(command, "measure", stub_cost)
    return console


@pytest.mark.parametrize(("gpu", "preset", "points"), [(False, "quick", 12), (True, "paper", 450)])
def test_preset_follows_the_gpu_and_the_first_line_says_why(
    gpu: bool, preset: str, points: int, said: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Stub GPU")
    assert coarse_grid.run(["--dry-run"]) == 0
    first, *plan = said.export_text().splitlines()
    reason = "a GPU is visible (Stub GPU)" if gpu else "no GPU is visible"
    assert first == f"preset {preset}, because {reason}; --preset chooses another"
    assert any(line.startswith("points") and f"{points}:" in line for line in plan)


def test_dry_run_says_steps_and_what_is_done_and_writes_no_search(
    said: Console, own_home: Path
) -> None:
    flags = ["--preset", "quick", "--optim.max-steps", "77", "--space.alpha", "0.1", "0.3", "0.9"]
    assert coarse_grid.run([*flags, "--dry-run"]) == 0
    text = said.export_text()
    assert "alpha 0.1 0.3 0.9" in text
    assert "77 each" in text
    assert "0 already, 18 to run" in text
    assert not (own_home / "searches").exists()


@pytest.mark.parametrize(
    ("flags", "trials"),
    [
        (["--preset", "paper"], 450),
        (["--preset", "paper", "--sampler", "tpe"], 60),
        (["--preset", "paper", "--sampler", "random", "--max-trials", "70"], 70),
        (["--preset", "quick", "--sampler", "tpe"], 8),
    ],
)
def test_dry_run_without_data_says_the_same_size_as_with_data(
    flags: Sequence[str], trials: int, said: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(recipe: Recipe) -> None:
        raise DataError("wiki1m_for_simcse.txt is missing")

    assert coarse_grid.run([*flags, "--dry-run"]) == 0
    monkeypatch.setattr(command, "prepare", missing)
    assert coarse_grid.run([*flags, "--dry-run"]) == 0
    sizes = [line.split()[1] for line in said.export_text().splitlines() if line[:6] == "trials"]
    assert [size.rstrip(",") for size in sizes] == [str(trials)] * 2


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--preset", "quikc"], "preset 'quikc' does not exist"),
        (["--preset", "quick", "--objective.alpha", "0.3"], "--space.alpha"),
        (["--preset", "quick", "--views.r-b", "0.3"], "--space.r-b"),
    ],
)
def test_wrong_flags_are_refused_with_the_remedy(
    flags: Sequence[str], message: str, said: Console
) -> None:
    with pytest.raises(ValueError, match=message):
        coarse_grid.run([*flags, "--dry-run"])


@dataclass
class Interruption:
    """A search that two trials of 60 seconds were running in when signals came."""

    home: Path
    code: int
    output: str
    seconds: float
    """From the first signal until no process of the search was left."""


SIGNALS = {"ctrl-c twice": [signal.SIGINT, signal.SIGINT], "sigterm": [signal.SIGTERM]}


@pytest.fixture(scope="module")
def interruptions(
    tmp_path_factory: pytest.TempPathFactory, empty_store: Path
) -> dict[str, Interruption]:
    """Both at once, since starting takes most of the time."""
    started = {}
    for case in SIGNALS:
        home = tmp_path_factory.mktemp("home")
        shutil.copy(empty_store, home / "mlflow.db")
        process = stub_command(home, "counted", 60, "--preset", "quick")
        started[case] = (home, process)
    return {case: _interrupt(*started[case], SIGNALS[case]) for case in SIGNALS}


def _interrupt(home: Path, process: subprocess.Popen[str], signals: list[int]) -> Interruption:
    log, deadline = home / "log", time.monotonic() + 120
    while not (log.exists() and len(log.read_text().split()) == 2):  # two trials are running
        assert process.poll() is None, process.stdout and process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    interrupted = time.monotonic()
    for number in signals:
        os.killpg(process.pid, number)  # as a terminal does: to all of its foreground processes
        time.sleep(0.3)
    output, _ = process.communicate(timeout=60)
    while processes_of(home) and time.monotonic() < deadline:
        time.sleep(0.1)
    return Interruption(home, process.returncode, output, time.monotonic() - interrupted)


@pytest.mark.usefixtures("shared_ray")
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="lists processes through /proc")
@pytest.mark.parametrize(("case", "code"), [("ctrl-c twice", 130), ("sigterm", 143)])
def test_interrupted_search_ends_soon_leaves_nothing_and_resumes(
    case: str,
    code: int,
    interruptions: dict[str, Interruption],
    said: Console,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = interruptions[case]
    assert found.code == code
    assert found.seconds < STOP_SECONDS
    assert "0 of 12 points finished. Go on with:" in found.output
    assert "Traceback" not in found.output
    monkeypatch.setenv("SCD_HOME", str(found.home))
    store = Tracking()
    statuses = Counter((run.tags["scd.kind"], run.status) for run in store.find())
    assert statuses == {("search", "KILLED"): 1, ("trial", "KILLED"): 2}

    with_stubs = functools.partial(run_search, training=stubs.counted(found.home / "log"))
    monkeypatch.setattr(command, "run_search", with_stubs)
    assert coarse_grid.run(["--preset", "quick"]) == 0
    assert "12 of 12 trials finished" in said.export_text()
    runs = store.find("trial")
    assert Counter(run.status for run in runs) == {"FINISHED": 12}
    study = optuna.load_study(study_name=runs[0].tags["scd.search"], storage=optuna_url())
    assert Counter(t.state.name for t in study.trials)["COMPLETE"] == 12


@pytest.mark.usefixtures("shared_ray", "store")
def test_the_winner_is_trained_on_fresh_seeds_where_that_is_asked(
    said: Console, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_stubs = functools.partial(run_search, training=stubs.counted(tmp_path / "log"))
    monkeypatch.setattr(command, "run_search", with_stubs)
    flags = ["--preset", "quick", "--space.alpha", "0.1", "0.2", "--space.lam", "0.01"]
    flags += ["--space.r-a", "0", "--space.r-b", "0.1"]
    assert coarse_grid.run([*flags, "--confirm", "2"]) == 0
    store = Tracking()
    (run,) = store.find("search", scd__stage="coarse")
    assert run.metrics["confirmed.mean"] == pytest.approx(50 + 10 * 0.2 + 0.2)
    assert run.metrics["spent.steps"] == 40
    trials = store.find("trial", scd__stage="coarse-confirm")
    assert sorted(trial.tags["scd.seed"] for trial in trials) == ["1", "2"]
    assert {trial.params["alpha"] for trial in trials} == {"0.2"}
    text = said.export_text()
    assert "the winner on 2 fresh seeds: 52.20" in text
    assert "forecast about" in text
    assert "40 of the 32" in text  # the stubs take 20 steps and the plan has 16
    files = {file.path for file in store._client.list_artifacts(run.run_id)}
    assert files == {"recipe.toml", "search.json", "best.toml", "report.html"}
    assert "alpha = 0.2 is the highest of its values" in text
    assert "--space.alpha 0.1 0.2 0.3 0.4" in text


def as_driven(training: Training, stop_after: int = -1) -> RunSearch:
    """``run_search`` without workers."""

    def run(
        plan: Plan, store: Tracking, untrained: Any, console: Console, address: str | None
    ) -> list[Outcome]:
        return stubs.drive(plan, store, training, stop_after)

    return run


NAMED = ["--preset", "quick", "--name", "mine", "--space.alpha", "0.1", "0.2", "--space.lam"]
NAMED += ["0.01", "--space.r-a", "0", "--space.r-b", "0.1", "--retries", "0"]


def test_another_winner_or_more_seeds_of_a_named_search_are_confirmed_too(
    said: Console, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own_home: Path
) -> None:
    training = stubs.counted(tmp_path / "log", fail_once=0.2)
    monkeypatch.setattr(command, "run_search", as_driven(training))
    best = own_home / "searches" / "coarse-mine" / "best.toml"
    for winner, seeds in ((0.1, 1), (0.2, 1), (0.2, 2)):
        assert coarse_grid.run([*NAMED, "--confirm", str(seeds)]) == 0
        assert from_toml(best).objective.alpha == winner
        assert f"on {seeds} fresh seed{'s' if seeds > 1 else ''}: 5{10 * winner:.0f}.20" in (
            said.export_text()
        )
    trained = (tmp_path / "log").read_text().split()
    assert sorted(trained) == ["0.1"] * 2 + ["0.2"] * 4  # of which one failed
    confirmed = Tracking().find("search", scd__stage="coarse-confirm")
    assert len({run.name for run in confirmed if run.name.startswith("coarse-confirm-mine-")}) == 3


@pytest.mark.parametrize("error", [Interrupted(signal.SIGINT), ValueError("another runs")])
def test_a_search_is_concluded_whatever_becomes_of_its_winner_s_fresh_seeds(
    error: BaseException,
    said: Console,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    own_home: Path,
) -> None:
    search = as_driven(stubs.counted(tmp_path / "log"))

    def run(plan: Plan, *more: Any, **named: Any) -> list[Outcome]:
        if plan.stage == "coarse-confirm":
            raise error
        return search(plan, *more, **named)

    monkeypatch.setattr(command, "run_search", run)
    if isinstance(error, Interrupted):
        assert coarse_grid.run([*NAMED, "--confirm", "1"]) == 130
        assert "stopped by SIGINT: 2 of 2 points finished. Go on with:" in said.export_text()
    else:
        with pytest.raises(ValueError, match="another runs"):
            coarse_grid.run([*NAMED, "--confirm", "1"])
    folder = own_home / "searches" / "coarse-mine"
    assert (folder / "best.toml").is_file()
    assert (folder / "report.html").is_file()


def test_fresh_seeds_share_the_hours_and_wait_until_all_trials_have_ended(
    said: Console, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    training = stubs.counted(tmp_path / "log")
    flags = [*NAMED, "--confirm", "1", "--max-hours", "2"]
    monkeypatch.setattr(command, "run_search", as_driven(training, stop_after=1))
    assert coarse_grid.run(flags) == 0
    assert "--confirm waits: 1 of 2 trials left to run" in said.export_text()
    hours = []

    def run(plan: Plan, *more: Any, **named: Any) -> list[Outcome]:
        hours.append(plan.budget.hours)
        return as_driven(training)(plan, *more, **named)

    monkeypatch.setattr(command, "run_search", run)
    assert coarse_grid.run(flags) == 0
    assert hours[0] == 2
    assert 1.9 < hours[1] < 2
    assert "the winner on 1 fresh seed" in said.export_text()
    assert coarse_grid.run([*flags[:-1], "1e-9"]) == 0
    assert "--confirm waits: --max-hours are over" in said.export_text()
