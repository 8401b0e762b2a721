"""``scd_core.train``: the same run again, after a stop, a kill or a failing store."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from scd_core import train
from scd_core.divergence import DivergedError
from scd_core.evaluation.items import FILE, load_items
from scd_core.mlflow_client import TrackingError
from scd_core.recipe import Recipe
from scd_core.run_folder import read_result, sole_user
from scd_core.run_info import Status
from scd_core.tracking import Tracking
from scd_core.training import StepRecord
from tests.commands import command, flags, run

pytestmark = pytest.mark.usefixtures("ready_home")


def test_train_then_evaluate_twice(
    environment: dict[str, str],
    tmp_path: Path,
    tiny_models: dict[str, Path],
    texts: Path,
) -> None:
    """Offline with nothing set; the model's dev score is had again by another process."""
    output = tmp_path / "run"
    done = run(environment, tmp_path, "scd_core.train", *flags(tiny_models["bert"], texts, output))
    assert done.returncode == 0, done.stderr
    assert "untrained: pairs" in done.stdout
    (info,) = Tracking().find("train")
    best = info.metrics["best.dev.pairs.spearman_all"]
    assert info.status == "FINISHED"
    assert info.params["r_A"] == "0.05"
    steps = dict(Tracking().history(info.run_id, "dev.pairs.spearman_all"))
    assert list(steps) == [5, 10, 12]
    assert best == max(steps.values()) == steps[int(info.tags["scd.best_step"])]
    card = (output / "model" / "README.md").read_text(encoding="utf-8")
    assert "python -m scd_core.train --model.name" in card
    assert f"| dev | pairs | {best:.2f} | 12 |" in card
    again = run(environment, tmp_path, "scd_core.train", *flags(tiny_models["bert"], texts, output))
    assert "nothing was trained again" in again.stdout
    assert len(Tracking().find("train")) == 1
    shutil.rmtree(output / "model")
    assert read_result(output) is None
    lost = run(environment, tmp_path, "scd_core.train", *flags(tiny_models["bert"], texts, output))
    assert lost.returncode == 0
    assert (output / "model" / "model.safetensors").is_file()
    retrained = {run.metrics["best.dev.pairs.spearman_all"] for run in Tracking().find("train")}
    assert retrained == {best}
    other = run(
        environment,
        tmp_path,
        "scd_core.train",
        *(*flags(tiny_models["bert"], texts, output), "--seed", "3"),
    )
    assert other.returncode == 2
    assert "Choose another --output" in other.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_run_goes_on_from_the_same_command(
    environment: dict[str, str],
    tmp_path: Path,
    tiny_models: dict[str, Path],
    texts: Path,
    number: signal.Signals,
) -> None:
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    model = tiny_models["bert"]
    run(environment, tmp_path, "scd_core.train", *flags(model, texts, straight, steps=400))
    call = command("scd_core.train", *flags(model, texts, stopped, steps=400))
    with subprocess.Popen(
        call,
        env=environment,
        cwd=tmp_path / "cwd",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        deadline = time.monotonic() + 60
        while not (stopped / "model").is_dir() and time.monotonic() < deadline:
            time.sleep(0.02)  # an evaluation is behind it: training is under way
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == (-9 if number == signal.SIGKILL else 130), output
    if number != signal.SIGKILL:
        assert "The same command goes on from here" in output
        runs = Tracking().find("train", scd__folder=str(stopped))
        assert [r.status for r in runs] == ["KILLED"]
        assert list((stopped / "checkpoints").iterdir())
    again = subprocess.run(
        call, env=environment, cwd=tmp_path / "cwd", capture_output=True, text=True, check=False
    )
    assert again.returncode == 0, again.stderr
    ends = [load_file(folder / "model" / "model.safetensors") for folder in (straight, stopped)]
    assert all(bool((ends[0][key] == ends[1][key]).all()) for key in ends[0])
    (resumed,) = Tracking().find("train", scd__folder=str(stopped))
    assert resumed.status == "FINISHED"


@pytest.mark.parametrize("status", ["FINISHED", "KILLED"])
def test_a_run_that_lacks_its_test_scores_gets_them(
    tmp_path: Path,
    tiny_models: dict[str, Path],
    texts: Path,
    status: Status,
) -> None:
    """Trained to the end without test, or stopped before it: the command adds only the test."""
    own = flags(tiny_models["bert"], texts, tmp_path / "run")
    own[own.index("--dev") + 1] = "sample"
    assert train.run([*own, "--no-test"]) == 0
    store = Tracking()
    (info,) = store.find("train")
    assert not any(name.startswith("test.") for name in info.metrics)
    store.finish(info.run_id, status)
    assert train.run(own) == 0
    (info,) = store.find("train")
    assert info.status == "FINISHED"
    assert {"test.sample.spearman_all", "test.geometry.alignment"} <= info.metrics.keys()
    items = store.file(info.run_id, FILE)
    assert items is not None
    assert list(load_items(items)) == ["test.sample.spearman_all"]
    assert train.run(own) == 0
    assert len(store.find("train")) == 1


def test_a_folder_that_is_not_a_runs_is_left_alone(
    tmp_path: Path,
    tiny_models: dict[str, Path],
    texts: Path,
) -> None:
    mine = tmp_path / "mine" / "model" / "thesis.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("years of work")
    with pytest.raises(ValueError, match="holds files that are not a run's"):
        train.run(flags(tiny_models["bert"], texts, tmp_path / "mine"))
    assert mine.read_text() == "years of work"
    shutil.copytree(tiny_models["bert"], tmp_path / "run" / "model")
    with pytest.raises(ValueError, match="holds the encoder"):
        train.run(flags(tmp_path / "run" / "model", texts, tmp_path / "run"))
    with pytest.raises(ValueError, match="is a file"):
        train.run(flags(tiny_models["bert"], texts, mine))


def test_two_processes_do_not_share_a_folder(
    tmp_path: Path,
    tiny_models: dict[str, Path],
    texts: Path,
) -> None:
    own = flags(tiny_models["bert"], texts, tmp_path / "run")
    with sole_user(tmp_path / "run"), pytest.raises(ValueError, match="another process"):
        train.run(own)
    assert train.run(own) == 0


def test_a_failing_store_loses_no_training(
    tmp_path: Path,
    tiny_models: dict[str, Path],
    texts: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = flags(tiny_models["bert"], texts, tmp_path / "run")
    log = Tracking.log

    def fails_at_ten(store: Tracking, run_id: str, metrics: object, step: int = 0) -> None:
        if step == 10:
            raise TrackingError("the disk is full")
        log(store, run_id, metrics, step)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Tracking, "log", fails_at_ten)
        with pytest.raises(ValueError, match="the same command goes on from there"):
            train.run(own)
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-00000010"]
    assert train.run(own) == 0
    (info,) = Tracking().find("train")
    assert info.status == "FINISHED"


def test_a_dry_run_leaves_nothing(
    tmp_path: Path,
    tiny_models: dict[str, Path],
    texts: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    own = flags(tiny_models["bert"], texts, tmp_path / "run")
    assert train.run([*own, "--dry-run"]) == 0
    assert "s a step" in capsys.readouterr().out
    assert not list((tmp_path / "scratch").iterdir())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("precision", ["fp16", "fp32", "auto"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_plan_warns_of_fp16_on_a_cpu(
    tmp_path: Path,
    tiny_models: dict[str, Path],
    texts: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    precision: str,
    device: str,
) -> None:
    monkeypatch.setattr(train, "default_device", lambda: torch.device(device))
    monkeypatch.setattr(train, "_print_forecast", lambda inputs: None)
    own = flags(tiny_models["bert"], texts, tmp_path / "run")
    assert train.run([*own, "--optim.precision", precision, "--dry-run"]) == 0
    (warning,) = [s for s in capsys.readouterr().out.splitlines() if "slow:" in s] or [""]
    assert warning.startswith("slow: optim.precision fp16 takes") == (
        (precision, device) == ("fp16", "cpu")
    )


def test_preset_and_recipe_file_exclude_each_other(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(Recipe().to_toml())
    with pytest.raises(ValueError, match="leave one of them out"):
        train.run(["--preset", "quick", "--recipe", str(tmp_path / "r.toml")])


def test_a_loss_that_is_no_number_fails_the_run_with_its_step(
    tmp_path: Path,
    tiny_models: dict[str, Path],
    texts: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def diverge(*arguments: object) -> Iterator[StepRecord]:
        raise DivergedError("the loss is nan at step 3 of 12")
        yield

    monkeypatch.setattr(train, "train", diverge)
    with pytest.raises(ValueError, match="step 3 of 12"):
        train.run(flags(tiny_models["bert"], texts, tmp_path / "run"))
    (info,) = Tracking().find("train")
    assert info.status == "FAILED"
    assert "step 3" in info.tags["scd.reason"]
