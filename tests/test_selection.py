"""Which step's model and scores are a training's result."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from scd_core import training
from scd_core.encoder import SentenceEncoder
from scd_core.evaluation.sts import Score
from scd_core.inputs import prepare
from scd_core.run_folder import Evaluation, model_path, read_result
from scd_core.training import StepRecord, train
from tests.tiny_trainings import CPU, STEPS, assert_same, make_recipe

Weights: TypeAlias = dict[str, Tensor]


def scripted(values: list[tuple[float | None, float]]) -> object:
    """Stands in for evaluation: (stsb, sickr) dev scores in turn, the first one selecting."""
    queue = iter(values)

    def score_all(pairs: object, encode: object) -> list[Score]:
        del pairs, encode
        first, second = next(queue)
        return [Score("pairs", "dev", first, 12), Score("sickr", "dev", second, 12)]

    return score_all


def test_the_best_scores_are_those_of_one_step(
    tiny_model: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The published failure: each metric's maximum from another step, the last model far below."""
    script = [(79.8, 72.9), (78.8, 73.2), (77.9, 73.6), (57.2, 61.2)]
    monkeypatch.setattr(training, "score_all", scripted(script))  # type: ignore[arg-type]
    inputs = prepare(make_recipe(tiny_model, texts))
    at_best = None
    for record in train(inputs, tmp_path, CPU):
        if isinstance(record, StepRecord) and record.step == 6:
            at_best = SentenceEncoder(model_path(tmp_path), "cls").encode(["the cat"])
    result = read_result(tmp_path)
    assert result is not None
    assert result.best is not None
    assert [s.value for s in result.best.scores] == [79.8, 72.9]
    assert result.best.step == 6
    assert [s.value for s in result.final.scores] == [57.2, 61.2]
    kept = SentenceEncoder(model_path(tmp_path), "cls").encode(["the cat"])
    np.testing.assert_array_equal(kept, at_best)


@pytest.mark.parametrize("order", list(itertools.permutations([None, 50.0, 60.0])))
def test_an_undefined_score_is_never_best(
    tiny_models: dict[str, Path],
    texts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    order: tuple[float | None, ...],
) -> None:
    script = [(value, 1.0) for value in (*order, -5.0)]
    monkeypatch.setattr(training, "score_all", scripted(script))  # type: ignore[arg-type]
    list(train(prepare(make_recipe(tiny_models["bert"], texts)), tmp_path, CPU))
    result = read_result(tmp_path)
    assert result is not None
    assert result.best is not None
    assert result.best.selected == 60.0


def test_zero_and_negative_scores_can_be_best(
    tiny_models: dict[str, Path], texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [(-3.0, 1.0), (0.0, 1.0), (-1.0, 1.0), (-2.0, 1.0)]
    monkeypatch.setattr(training, "score_all", scripted(script))  # type: ignore[arg-type]
    best = [
        r.best
        for r in train(prepare(make_recipe(tiny_models["bert"], texts)), tmp_path, CPU)
        if isinstance(r, Evaluation)
    ]
    assert best == [True, True, False, False]


def test_a_lost_model_is_trained_again_to_the_end(
    tiny_model: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where that is interrupted: the result of before is no sign of being finished."""
    script = [(70.0, 1.0), (71.0, 1.0), (72.0, 1.0), (60.0, 1.0)]
    monkeypatch.setattr(training, "score_all", scripted(script * 2))  # type: ignore[arg-type]
    inputs = prepare(make_recipe(tiny_model, texts))
    list(train(inputs, tmp_path, CPU))
    weights, result = load_file(model_path(tmp_path) / "model.safetensors"), read_result(tmp_path)
    assert result is not None
    shutil.rmtree(model_path(tmp_path))
    assert read_result(tmp_path) is None
    records = train(inputs, tmp_path, CPU)
    for record in records:
        if isinstance(record, StepRecord) and record.step == 7:  # a model is there, not the best
            records.close()
    assert model_path(tmp_path).is_dir()
    assert read_result(tmp_path) is None
    assert len(list(train(inputs, tmp_path, CPU))) == STEPS - 7 + 3
    assert read_result(tmp_path) == result
    assert_same(load_file(model_path(tmp_path) / "model.safetensors"), weights)


class KilledError(Exception):
    """Thrown into a training, it ends as by kill -9: nothing is saved."""


def model_after(records: Generator[StepRecord | Evaluation], folder: Path, step: int) -> Weights:
    """Train up to a step; the weights of the best model by then."""
    while not (isinstance(record := next(records), StepRecord) and record.step == step):
        pass
    return load_file(model_path(folder) / "model.safetensors")


def no_links(source: str, target: str) -> None:
    raise PermissionError(f"{target}: this file system has no links")


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("lost", [False, True])
def test_a_killed_attempt_leaves_no_model_of_another_step(
    tiny_models: dict[str, Path],
    texts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lost: bool,
    links: bool,
) -> None:
    """Step 12 is better before the kill and worse after it, as an evaluation on a GPU may be. Also
    where the kill comes while the model is replaced, so that there is none."""
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    script = [(50.0, 1.0), (60.0, 1.0), (40.0, 1.0), (30.0, 1.0), (20.0, 1.0)]
    monkeypatch.setattr(training, "score_all", scripted(script))  # type: ignore[arg-type]
    inputs = prepare(make_recipe(tiny_models["bert"], texts))
    records = train(inputs, tmp_path, CPU)
    expected = model_after(records, tmp_path, 7)
    records.close()  # a checkpoint of step 7, with the model of step 6
    records = train(inputs, tmp_path, CPU)
    killed = model_after(records, tmp_path, 13)
    assert any(not torch.equal(killed[name], expected[name]) for name in expected)
    with pytest.raises(KilledError):
        records.throw(KilledError())
    if lost:
        shutil.rmtree(model_path(tmp_path))
    list(train(inputs, tmp_path, CPU))
    result = read_result(tmp_path)
    assert result is not None
    assert result.best is not None
    assert (result.best.step, result.best.selected) == (6, 50.0)
    assert_same(load_file(model_path(tmp_path) / "model.safetensors"), expected)
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize("stop", [0, 2])
def test_without_a_best_step_there_is_no_model(
    tiny_models: dict[str, Path],
    texts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stop: int,
) -> None:
    """Killed after an evaluation that is undefined when it is done again; with a checkpoint of
    before, and without one."""
    script = [(60.0, 1.0), *[(None, 1.0)] * 4]
    monkeypatch.setattr(training, "score_all", scripted(script))  # type: ignore[arg-type]
    inputs = prepare(make_recipe(tiny_models["bert"], texts))
    if stop:
        records = train(inputs, tmp_path, CPU)
        list(itertools.islice(records, stop))
        records.close()
    records = train(inputs, tmp_path, CPU)
    model_after(records, tmp_path, 7)
    with pytest.raises(KilledError):
        records.throw(KilledError())
    list(train(inputs, tmp_path, CPU))
    result = read_result(tmp_path)
    assert result is not None
    assert result.best is None
    assert not model_path(tmp_path).exists()


def test_a_checkpoint_without_its_best_model_is_passed_over(
    tiny_models: dict[str, Path],
    texts: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As those are that were written before they kept it."""
    inputs = prepare(make_recipe(tiny_models["bert"], texts))
    records = train(inputs, tmp_path, CPU)
    model_after(records, tmp_path, 7)
    records.close()
    (place,) = (tmp_path / "checkpoints").iterdir()
    shutil.rmtree(place / "model")
    with caplog.at_level(logging.WARNING):
        assert len(list(train(inputs, tmp_path, CPU))) == STEPS + 4
    assert "its best model is not with it" in caplog.text
