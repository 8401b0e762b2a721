"""Jobs on Ray: side by side, in order, one that fails alone; Ctrl-C keeps what was trained."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from ray import cloudpickle

from reproduce.jobs import Job, Tasks
from reproduce.pool import alone, run_all
from scd_core import provenance
from scd_core.tracking import Tracking
from search.machine import Share
from tests.conftest import WORDS

CHECKOUT = Path(__file__).resolve().parents[2]
BOTH = Tasks(("sts", "transfer"), {}, None, 0)
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@dataclass(frozen=True)
class Stub(Job):
    """A job that writes down when it ran; ``what`` says how it ends."""

    log: Path
    what: str = ""

    def finished(self, group: str, store: Tracking) -> str | None:
        done = self.log / f"{self.title}-{group}"
        return "there" if done.exists() else None

    def measure(self, group: str, store: Tracking) -> int:
        began = time.time()
        time.sleep(0.3)
        if self.what == "raise":
            raise ValueError(f"no {group} here")
        if self.what == "assert":
            raise AssertionError
        if self.what == "stop":
            return 130
        if self.what == "die once" and not (self.log / "died").exists():
            (self.log / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        (self.log / f"{self.title}-{group}").write_text(f"{began} {time.time()}")
        (self.log / "command").write_text(provenance.command())
        return 0

    def span(self, group: str) -> tuple[float, float]:
        began, ended = (self.log / f"{self.title}-{group}").read_text().split()
        return float(began), float(ended)


@pytest.mark.usefixtures("shared_ray")
def test_two_at_a_time_in_order_and_what_fails_fails_alone(tmp_path: Path) -> None:
    jobs = [
        Stub("a", BOTH, tmp_path),
        Stub("b", BOTH, tmp_path, "raise"),
        Stub("c", BOTH, tmp_path, "die once"),
        Stub("d", BOTH, tmp_path),
    ]
    ended: dict[str, str] = {}
    most = 0

    def tick(running: int) -> None:
        nonlocal most
        most = max(most, running)

    share = Share(concurrent=2, cpus=1, gpus=0)
    run_all(jobs, share, None, lambda job, why: ended.update({job.title: why}), tick)
    assert ended == {"a": "", "b": "no sts here", "c": "", "d": ""}
    assert most == 2
    assert (tmp_path / "command").read_text() == provenance.command()  # not that of a worker
    assert jobs[0].span("sts")[1] <= jobs[0].span("transfer")[0]  # one training, one worker
    assert jobs[0].span("sts")[0] < jobs[3].span("sts")[0]
    again: dict[str, str] = {}
    run_all([jobs[0]], share, None, lambda job, why: again.update({job.title: why}))
    assert again == {"a": ""}


def test_one_command_at_a_time(own_home: Path) -> None:
    with alone():
        pass
    with (
        FileLock(own_home / "runs" / "jobs.lock"),
        pytest.raises(ValueError, match=r"another reproduce\.runs is at work"),
        alone(),
    ):
        pass


@pytest.mark.usefixtures("shared_ray")
def test_what_stopped_or_failed_without_a_word_has_failed(tmp_path: Path) -> None:
    """A worker that was told to stop, and an error that has no text."""
    ended: dict[str, str] = {}
    jobs = [Stub("a", BOTH, tmp_path, "stop"), Stub("b", BOTH, tmp_path, "assert")]
    share = Share(concurrent=1, cpus=1, gpus=0)
    run_all(jobs, share, None, lambda job, why: ended.update({job.title: why}))
    assert ended == {
        "a": "its worker was told to stop; what it did is kept",
        "b": "AssertionError",
    }


@pytest.fixture(scope="module")
def flags(tmp_path_factory: pytest.TempPathFactory, tiny_models: dict[str, Path]) -> list[str]:
    """Two trainings of many short steps."""
    draw = np.random.default_rng(0)
    corpus = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    lines = [" ".join(draw.choice(WORDS, 6)) for _ in range(64 * 250)]
    corpus.write_text("\n".join(lines) + "\n", encoding="utf-8")
    model = str(tiny_models["bert"])
    chosen = ["--table", "1", "--methods", "simcse", "--seeds", "0", "1"]
    return ["--backbone", model, "--corpus", str(corpus), *chosen]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, flags: list[str], data_dir: Path) -> Path:
    """The home of a command that nothing stopped."""
    home = tmp_path_factory.mktemp("whole")
    assert _ended(_start(home, flags, data_dir)) == 0
    return home


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_command_goes_on_to_the_same_weights(
    number: signal.Signals, tmp_path: Path, whole: Path, flags: list[str], data_dir: Path
) -> None:
    stopped = _start(tmp_path, flags, data_dir)
    _until(lambda: len(list(tmp_path.glob("runs/*/lock"))) == 2)
    time.sleep(4.0)  # into the steps
    if number == signal.SIGINT:  # Ctrl-C reaches all processes of the terminal
        os.killpg(stopped.pid, number)
    else:
        stopped.send_signal(number)
    codes = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}
    assert _ended(stopped) == codes[number]
    assert not list(tmp_path.glob("runs/*/model/README.md"))  # the last thing that a run writes
    if number != signal.SIGKILL:
        statuses = [run.status for run in _store(tmp_path).find("train")]
        assert statuses == ["KILLED"] * 2
        assert len(list(tmp_path.glob("runs/*/checkpoint*"))) == 2
    assert _ended(_start(tmp_path, flags, data_dir)) == 0
    weights = [path.relative_to(whole) for path in whole.glob("runs/*/model/model.safetensors")]
    assert len(weights) == 2
    for path in weights:
        assert (tmp_path / path).read_bytes() == (whole / path).read_bytes()
    assert [run.status for run in _store(tmp_path).find("train")] == ["FINISHED"] * 2


def _start(home: Path, flags: list[str], data_dir: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "reproduce.runs", "--data-dir", str(data_dir), *flags],
        cwd=CHECKOUT,
        env=dict(os.environ) | {"SCD_HOME": str(home), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def _ended(command: subprocess.Popen[str]) -> int:
    printed, _ = command.communicate(timeout=600)
    print(printed)
    return command.returncode


def _store(home: Path) -> Tracking:
    return Tracking(f"sqlite:///{home / 'mlflow.db'}")


def _until(reached: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.05)
