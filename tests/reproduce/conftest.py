"""Runs as MLflow would hand them back, made without MLflow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scd_core.recipe import preset
from scd_core.run_info import RunInfo
from tests.conftest import WORDS

TASKS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
KEYS = tuple(f"test.{task}.spearman_all" for task in TASKS)
TRANSFER_TASKS = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")
TRANSFER_KEYS = tuple(f"test.{task}.accuracy_senteval-default" for task in TRANSFER_TASKS)
PROTOCOL = "protocol-a"
PAPER = preset("scd-bert-paper").in_precision("fp32")


def make_run(run_id: str, score: float | None = 70.0, seed: int = 0, **changes: Any) -> RunInfo:
    """A finished run of the paper's SCD-BERT whose seven test scores are all ``score``.

    ``changes``: ``status``, ``start_time``, ``params`` and ``metrics`` by their names, any tag
    without its "scd.".
    """
    metrics = {} if score is None else dict.fromkeys(KEYS, score)
    tags = {
        "kind": "train",
        "method": "scd",
        "model": PAPER.model.name,
        "pooling": "cls",
        "recipe_hash": PAPER.hash,
        "data_fingerprint": "d" * 64,
        "model_fingerprint": "m" * 64,
        "protocol": PROTOCOL,
        "seed": str(seed),
    }
    known = {
        "status": "FINISHED",
        "start_time": 1000,
        "params": {k: str(v) for k, v in PAPER.symbols().items()},
        "metrics": metrics,
    }
    fields = {name: changes.pop(name, value) for name, value in known.items()}
    tags |= changes
    return RunInfo(
        run_id=run_id, name=run_id, tags={f"scd.{k}": v for k, v in tags.items()}, **fields
    )


def make_evaluation(run_id: str, score: float = 80.0, seed: int = 0, **changes: Any) -> RunInfo:
    """An evaluation of that training, with similarity, transfer and geometry."""
    metrics = dict.fromkeys((*KEYS, *TRANSFER_KEYS), score)
    metrics |= {"test.geometry.alignment": 0.5, "test.geometry.uniformity": -3.0}
    metrics |= changes.pop("metrics", {})
    tags = {"kind": "evaluation", "protocol.transfer": "transfer-a"}
    return make_run(run_id, score, seed, metrics=metrics, **tags | changes)


@pytest.fixture(name="make_evaluation")
def make_evaluation_fixture() -> Callable[..., RunInfo]:
    return make_evaluation


@pytest.fixture(name="make_run")
def make_run_fixture() -> Callable[..., RunInfo]:
    return make_run


@pytest.fixture
def nli(tmp_path: Path) -> Path:
    """A file of triplets, of some hundred distinct sentences."""
    draw = np.random.default_rng(1)
    lines = [",".join(" ".join(draw.choice(WORDS, 5)) for _ in range(3)) for _ in range(780)]
    file = tmp_path / "nli.csv"
    file.write_text("\n".join(["sent0,sent1,hard_neg", *lines]) + "\n", encoding="utf-8")
    return file


@pytest.fixture
def e6_store() -> list[RunInfo]:
    """Three seeds at 70, 71 and 72, and everything beside them that must not count."""
    smoke = "0" * 12
    return [
        make_run("repeat-old", 60.0, seed=0, start_time=500),
        make_run("seed0", 70.0, seed=0, start_time=1000),
        make_run("seed1", 71.0, seed=1, start_time=1001),
        make_run("seed2", 72.0, seed=2, start_time=1002),
        make_run("failed", 20.0, seed=2, start_time=2000, status="FAILED"),
        make_run("running", 20.0, seed=1, start_time=2000, status="RUNNING"),
        make_run("parent", 72.0, seed=0, start_time=2000, kind="search"),
        make_run("trial", 72.0, seed=0, start_time=2000, kind="trial"),
        make_run("smoke", 15.0, seed=0, start_time=2000, recipe_hash=smoke),
        make_run("other", 99.0, seed=0, start_time=2000, protocol="protocol-b"),
    ]
