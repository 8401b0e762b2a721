"""Whole commands in processes of their own: train, resume after a kill, evaluate again."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from scd_core import evaluate, train
from scd_core.data import DataError
from scd_core.divergence import DivergedError
from scd_core.evaluation.items import FILE, load_items
from scd_core.mlflow_client import TrackingError
from scd_core.recipe import Recipe
from scd_core.run_folder import read_result, sole_user
from scd_core.run_info import Status
from scd_core.tracking import Tracking
from scd_core.training import StepRecord
from search import coarse_grid
from tests.test_training import texts  # noqa: F401  (a fixture)

pytestmark = pytest.mark.usefixtures("ready_home")

CHECKOUT = Path(__file__).resolve().parents[1]
# Any connection to another machine ends the process with this code.
NO_NETWORK = """
import os, socket, sys
def refuse(self, address):
    if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1"):
        sys.stderr.write(f"CONNECTED to {address}\\n"); sys.stderr.flush(); os._exit(99)
    return original(self, address)
original = socket.socket.connect
socket.socket.connect = refuse
"""


@pytest.fixture
def environment(tmp_path: Path, own_home: Path) -> dict[str, str]:
    """No offline variable set, no network, and a working folder with misleading names."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(NO_NETWORK)
    for name in ("datasets", "mlflow", "ray"):
        (tmp_path / "cwd" / name).mkdir(parents=True)
    path = os.pathsep.join([str(tmp_path / "site"), str(CHECKOUT)])
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "TRANSFORMERS_"))}
    return kept | {
        "PYTHONPATH": path,
        "SCD_HOME": str(own_home),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
        "HF_HOME": str(tmp_path / "hub"),
    }


def command(module: str, *flags: str) -> list[str]:
    return [sys.executable, "-m", module, *flags]


def run(
    environment: dict[str, str], tmp_path: Path, module: str, *flags: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(module, *flags),
        env=environment,
        cwd=tmp_path / "cwd",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def flags(model: Path, texts: Path, output: Path, steps: int = 12) -> list[str]:  # noqa: F811
    return [
        *("--model.name", str(model), "--output", str(output), "--projector.width", "64"),
        *("--corpus", str(texts / "corpus.txt"), "--dev", str(texts / "pairs.tsv")),
        *("--optim.batch-size", "8", "--optim.max-steps", str(steps), "--optim.lr", "1e-3"),
        *("--selection.every", "5"),
    ]


def test_train_then_evaluate_twice(
    environment: dict[str, str],
    tmp_path: Path,
    tiny_models: dict[str, Path],
    texts: Path,  # noqa: F811
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


def test_evaluating_the_saved_model_gives_the_same_number(
    environment: dict[str, str],
    tmp_path: Path,
    tiny_models: dict[str, Path],
    texts: Path,  # noqa: F811
) -> None:
    """Sample pairs in training and in two fresh processes; then another pooling; then damage."""
    output = tmp_path / "run"
    own = flags(tiny_models["roberta"], texts, output)
    own[own.index("--dev") + 1] = "sample"
    done = run(environment, tmp_path, "scd_core.train", *own)
    assert done.returncode == 0, done.stderr
    (info,) = Tracking().find("train")
    expected = info.metrics["test.sample.spearman_all"]

    def evaluate(*more: str) -> subprocess.CompletedProcess[str]:
        places = ("--tasks", "sample", "--json", str(tmp_path / "scores.json"))
        return run(environment, tmp_path, "scd_core.evaluate", *more, *places)

    for model in (str(output / "model"), info.run_id):
        assert evaluate(model).returncode == 0
        report = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
        assert report["scores"][0]["value"] == pytest.approx(expected, abs=0.01)
        assert report["pooling"] == "cls"
    mean = evaluate(str(output / "model"), "--pooling", "mean", "--track")
    assert mean.returncode == 0, mean.stderr
    report = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert report["pooling"] == "mean"
    assert report["scores"][0]["value"] != pytest.approx(expected, abs=0.01)
    assert Tracking().find("evaluation")[0].tags["scd.pooling"] == "mean"
    assert Tracking().find("evaluation")[0].tags["scd.method"] == "embedding"

    plain = tmp_path / "plain"
    shutil.copytree(tiny_models["roberta"], plain)
    asked = evaluate(str(plain))
    assert asked.returncode == 2
    assert "--pooling cls, mean or first_last" in asked.stderr
    weights = output / "model" / "model.safetensors"
    tensors = load_file(weights)
    del tensors["encoder.layer.0.output.dense.bias"]
    save_file(tensors, weights, {"format": "pt"})
    damaged = evaluate(str(output / "model"))
    assert damaged.returncode == 2
    assert "encoder.layer.0.output.dense.bias" in damaged.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_run_goes_on_from_the_same_command(
    environment: dict[str, str],
    tmp_path: Path,
    tiny_models: dict[str, Path],
    texts: Path,  # noqa: F811
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
    texts: Path,  # noqa: F811
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
    texts: Path,  # noqa: F811
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
    texts: Path,  # noqa: F811
) -> None:
    own = flags(tiny_models["bert"], texts, tmp_path / "run")
    with sole_user(tmp_path / "run"), pytest.raises(ValueError, match="another process"):
        train.run(own)
    assert train.run(own) == 0


def test_a_failing_store_loses_no_training(
    tmp_path: Path,
    tiny_models: dict[str, Path],
    texts: Path,  # noqa: F811
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
    texts: Path,  # noqa: F811
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


def test_preset_and_recipe_file_exclude_each_other(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(Recipe().to_toml())
    with pytest.raises(ValueError, match="leave one of them out"):
        train.run(["--preset", "quick", "--recipe", str(tmp_path / "r.toml")])


def test_evaluating_a_tracked_training_keeps_whose_it_is(
    tiny_models: dict[str, Path],
    texts: Path,  # noqa: F811
    tmp_path: Path,
    own_home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """So that its scores stand in that training's row of a table; and a second encoder beside."""
    assert train.run(flags(tiny_models["bert"], texts, tmp_path / "run")) == 0
    (training,) = Tracking().find("train")
    scores = tmp_path / "scores.json"
    other = ("--against", str(tiny_models["roberta"]), "--against-pooling", "mean")
    common = ("--tasks", "sample", "--keep-vectors", "--json", str(scores))
    assert evaluate.run([training.run_id, "--track", *other, *common]) == 0
    (info,) = Tracking().find("evaluation")
    for name in ("method", "model", "recipe_hash", "seed", "data_fingerprint", "pooling"):
        assert info.tags[f"scd.{name}"] == training.tags[f"scd.{name}"]
    assert info.tags["scd.trained_by"] == training.run_id
    assert info.params["alpha"] == training.params["alpha"]
    report = json.loads(scores.read_text(encoding="utf-8"))
    key = "test.sample.spearman_all"
    assert report["scores"][0]["key"] == key
    assert info.metrics[key] == report["scores"][0]["value"]
    assert {"test.geometry.alignment", "test.geometry.effective_rank"} < set(info.metrics)
    attached = Tracking().file(info.run_id, "items.safetensors")
    assert attached is not None
    items = load_items(attached)[key]
    assert items.scores(np.ones((1, items.count)))[0] == pytest.approx(info.metrics[key], abs=1e-9)
    assert Tracking().file(training.run_id, "items.safetensors") is None
    low, high = report["scores"][0]["interval"]
    assert low < info.metrics[key] < high
    (difference,) = report["differences"]
    b = report["against"]["scores"][0]["value"]
    assert difference["value"] == pytest.approx(info.metrics[key] - b)
    assert "A - B" in capsys.readouterr().out
    kept_vectors = sorted((own_home / "cache" / "vectors").glob("*/*.safetensors"))
    assert len(kept_vectors) == 2
    evaluate.run([training.run_id, *common])
    again = json.loads(scores.read_text(encoding="utf-8"))
    assert again["scores"] == report["scores"]
    assert sorted((own_home / "cache" / "vectors").glob("*/*.safetensors")) == kept_vectors


@pytest.mark.shared
def test_damaged_data_is_refused_or_marked(
    tiny_models: dict[str, Path], data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SUBJ of the known damaged copy is 99.60, whatever the encoder (released-code row 20)."""
    own = [str(tiny_models["bert"]), "--pooling", "cls", "--tasks", "subj", "--track"]
    own += ["--data-dir", str(data_dir / "senteval-damaged")]
    with pytest.raises(DataError, match=r"subjective: found 20 rows, expected 5000"):
        evaluate.run(own)
    assert evaluate.run([*own, "--allow-damaged", "--protocol", "convex"]) == 0
    assert "99.60 (damaged data)" in capsys.readouterr().out
    (info,) = Tracking().find("evaluation")
    assert info.metrics["test.subj.accuracy_convex_damaged"] == 99.6
    assert "test.subj.accuracy_convex" not in info.metrics
    assert "found 20 rows" in info.tags["scd.damaged"]


@pytest.mark.parametrize(
    "flag", [("--batch-tokens", "0"), ("--max-length", "-5"), ("--json", "/no/such/folder/a.json")]
)
def test_evaluate_refuses_impossible_flags_first(flag: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match=flag[0]):
        evaluate.run(["bundled", "--tasks", "sample", *flag])


@pytest.mark.parametrize("command", [train.run, coarse_grid.run])
def test_missing_data_is_one_error_before_any_model(
    command: Callable[[list[str]], int], tmp_path: Path, ready_home: Path
) -> None:
    """All missing files at once, with a model that does not exist either: it is not reached."""
    store = ready_home / "mlflow.db"
    store.unlink()
    (tmp_path / "empty" / "senteval").mkdir(parents=True)
    missing = {"STS/STSBenchmark/sts-dev.csv", "SICK/SICK_trial.txt"}
    if command is train.run:
        missing |= {"STS/STSBenchmark/sts-test.csv", "STS/STS12-en-test/STS.input.MSRpar.txt"}
    own = ["--data-dir", str(tmp_path / "empty"), "--model.name", "/no/such/model"]
    with pytest.raises(DataError) as error:
        command(["--preset", "scd-bert-paper", *own])
    assert all(name in str(error.value) for name in missing)
    assert "/no/such/model" not in str(error.value)
    assert not store.exists()


def test_a_loss_that_is_no_number_fails_the_run_with_its_step(
    tmp_path: Path,
    tiny_models: dict[str, Path],
    texts: Path,  # noqa: F811
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


def test_a_search_with_own_data_ends_in_a_recipe_that_trains_to_its_score(
    environment: dict[str, str],
    tmp_path: Path,
    tiny_models: dict[str, Path],
    texts: Path,  # noqa: F811
    own_home: Path,
) -> None:
    """Real trials on Ray, offline; the winner's recipe gives its score at its step again."""
    settings = flags(tiny_models["bert"], texts, tmp_path)
    del settings[settings.index("--output") : settings.index("--output") + 2]
    grid = ["--space.alpha", "0.1", "--space.lam", "0.01", "--space.r-a", "0", "0.1"]
    search = ["--preset", "quick", *settings, *grid, "--space.r-b", "0.1", "0.2"]
    done = run(environment, tmp_path, "search.coarse_grid", *search)
    assert done.returncode == 0, done.stderr
    assert "CONNECTED" not in done.stderr
    children = Tracking().find("trial")
    assert [child.status for child in children] == ["FINISHED"] * 3
    rates = {(child.params["r_A"], child.params["r_B"]) for child in children}
    assert rates == {("0.0", "0.1"), ("0.0", "0.2"), ("0.1", "0.2")}
    (parent,) = Tracking().find("search")
    assert {child.tags["mlflow.parentRunId"] for child in children} == {parent.run_id}
    assert "test." not in "".join(key for child in children for key in child.metrics)
    key = "best.dev.pairs.spearman_all"
    winner = max(children, key=lambda child: child.metrics[key])
    (best,) = (own_home / "searches").glob("*/best.toml")
    assert train.run(["--recipe", str(best), "--output", str(tmp_path / "again")]) == 0
    (again,) = Tracking().find("train")
    assert again.tags["scd.identity"] == winner.tags["scd.identity"]
    assert again.metrics[key] == winner.metrics[key]
    assert again.tags["scd.best_step"] == winner.tags["scd.best_step"]
    (card,) = (own_home / "searches").glob("*/trials/*/model/README.md")
    assert winner.tags["scd.identity"] in card.read_text(encoding="utf-8")


def test_a_hub_model_that_is_not_here_fails_by_name(
    environment: dict[str, str],
    tmp_path: Path,
    texts: Path,  # noqa: F811
) -> None:
    offline = environment | {"HF_HUB_OFFLINE": "1"}
    own = flags(Path("nobody/nothing"), texts, tmp_path / "run")
    done = run(offline, tmp_path, "scd_core.train", *own)
    assert done.returncode == 2
    assert "nobody/nothing" in done.stderr
    assert "--model.name" in done.stderr


@pytest.mark.parametrize(
    "module",
    [
        "scd_core.train",
        "scd_core.evaluate",
        "search.coarse_grid",
        "search.fine_grid",
        "search.refine_grid",
    ],
)
def test_help_teaches(environment: dict[str, str], tmp_path: Path, module: str) -> None:
    done = run(environment, tmp_path, module, "--help")
    assert done.returncode == 0
    assert re.search(rf"python -m {module}", done.stdout)
