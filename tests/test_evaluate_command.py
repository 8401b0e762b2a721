"""``scd_core.evaluate``: the same scores in every process, and whose they are."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from scd_core import evaluate, train
from scd_core.data import DataError
from scd_core.evaluation.items import load_items
from scd_core.tracking import Tracking
from tests.commands import flags, run

pytestmark = pytest.mark.usefixtures("ready_home")


def test_evaluating_the_saved_model_gives_the_same_number(
    environment: dict[str, str],
    tmp_path: Path,
    tiny_models: dict[str, Path],
    texts: Path,
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


def test_evaluating_a_tracked_training_keeps_whose_it_is(
    tiny_models: dict[str, Path],
    texts: Path,
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
