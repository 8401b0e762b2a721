"""The command: which preset and why, its plan, and what an interruption leaves behind."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import optuna
import pytest
import stubs
import torch
from rich.console import Console
from stub_command import stub_inputs

from scd_core.tracking import Tracking
from search import coarse_grid
from search.ledger import optuna_url
from search.runner import run_search

STOP_SECONDS = 15


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, store: Tracking) -> Console:
    """The command's console, with inputs that need no file."""
    console = Console(record=True, width=200, file=StringIO())
    monkeypatch.setattr(coarse_grid, "console", console)
    monkeypatch.setattr(coarse_grid, "prepare", stub_inputs)
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


def start(log: Path, home: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(Path(__file__).with_name("stub_command.py"))]
    return subprocess.Popen(
        [*command, str(log), "60", "--preset", "quick"],
        env=dict(os.environ) | {"SCD_HOME": str(home), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def processes_of(home: Path) -> list[int]:
    """Processes that inherited this home in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"SCD_HOME={home}\0".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


@pytest.mark.usefixtures("shared_ray")
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="lists processes through /proc")
@pytest.mark.parametrize(
    ("signals", "code"),
    [([signal.SIGINT, signal.SIGINT], 130), ([signal.SIGTERM], 143)],
    ids=["ctrl-c twice", "sigterm"],
)
def test_interrupted_search_ends_soon_leaves_nothing_and_resumes(
    signals: list[int],
    code: int,
    said: Console,
    store: Tracking,
    tmp_path: Path,
    own_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = tmp_path / "log"
    process = start(log, own_home)
    deadline = time.monotonic() + 120
    while not (log.exists() and len(log.read_text().split()) == 2):  # two trials are running
        assert process.poll() is None, process.stdout and process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    interrupted = time.monotonic()
    for number in signals:
        os.killpg(process.pid, number)  # as a terminal does: to all of its foreground processes
        time.sleep(0.3)
    output, _ = process.communicate(timeout=60)
    assert time.monotonic() - interrupted < STOP_SECONDS
    assert process.returncode == code
    assert "0 of 12 points finished. Go on with:" in output
    assert "Traceback" not in output
    while processes_of(own_home) and time.monotonic() - interrupted < STOP_SECONDS:
        time.sleep(0.1)
    assert processes_of(own_home) == []
    statuses = Counter((run.tags["scd.kind"], run.status) for run in store.find())
    assert statuses == {("search", "KILLED"): 1, ("trial", "KILLED"): 2}

    with_stubs = functools.partial(run_search, training=stubs.counted(log))
    monkeypatch.setattr(coarse_grid, "run_search", with_stubs)
    monkeypatch.setattr(coarse_grid, "untrained_scores", lambda inputs: ())
    assert coarse_grid.run(["--preset", "quick"]) == 0
    assert "12 of 12 trials finished" in said.export_text()
    runs = store.find("trial")
    assert Counter(run.status for run in runs) == {"FINISHED": 12}
    study = optuna.load_study(study_name=runs[0].tags["scd.search"], storage=optuna_url())
    assert Counter(t.state.name for t in study.trials)["COMPLETE"] == 12
