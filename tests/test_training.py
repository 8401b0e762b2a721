"""The loop: exact resume from any step, the same run twice."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from scd_core.inputs import prepare
from scd_core.run_folder import Evaluation, model_path, read_result
from scd_core.settings import (
    METHODS,
    MethodName,
    Selection,
)
from scd_core.training import StepRecord, train
from tests.conftest import WORDS
from tests.tiny_trainings import CPU, STEPS, assert_same, make_recipe, of_method, weights_at_end


def test_same_seed_twice_and_other_seed(tiny_model: Path, texts: Path, tmp_path: Path) -> None:
    recipe = make_recipe(tiny_model, texts)
    first = weights_at_end(prepare(recipe), tmp_path / "a")
    assert_same(first, weights_at_end(prepare(recipe), tmp_path / "b"))
    other = weights_at_end(prepare(dataclasses.replace(recipe, seed=1)), tmp_path / "c")
    assert not torch.equal(
        first["encoder.backbone.embeddings.word_embeddings.weight"],
        other["encoder.backbone.embeddings.word_embeddings.weight"],
    )


def test_evaluation_frequency_does_not_change_training(
    tiny_model: Path, texts: Path, tmp_path: Path
) -> None:
    recipe = make_recipe(tiny_model, texts)
    ends = [
        weights_at_end(
            prepare(dataclasses.replace(recipe, selection=Selection(every=every))),
            tmp_path / str(every),
        )
        for every in (1, 7, 100)
    ]
    assert_same(ends[0], ends[1])
    assert_same(ends[0], ends[2])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("stops", [(7,), (1, 6, 12, 19)], ids=str)
def test_interrupted_and_resumed_is_the_same_run(
    tiny_model: Path,
    texts: Path,
    tmp_path: Path,
    stops: tuple[int, ...],
    method: MethodName,
    precision: str,
) -> None:
    """Several epochs; closed at these steps, also right at an evaluation."""
    inputs = prepare(of_method(make_recipe(tiny_model, texts, precision=precision), method))
    straight = list(train(inputs, tmp_path / "straight", CPU))
    seen: list[StepRecord | Evaluation] = []
    for stop in stops:
        records = train(inputs, tmp_path / "resumed", CPU)
        for record in records:
            seen.append(record)
            if record.step == stop and isinstance(record, StepRecord):
                records.close()
    seen += list(train(inputs, tmp_path / "resumed", CPU))
    assert [r.step for r in seen] == [r.step for r in straight]
    for a, b in zip(straight, seen, strict=True):
        if isinstance(a, StepRecord) and isinstance(b, StepRecord):
            assert a.learning_rate == b.learning_rate
            assert list(a.terms) == list(b.terms)
        else:
            assert a == b
    assert read_result(tmp_path / "straight") == read_result(tmp_path / "resumed")
    assert_same(
        load_file(model_path(tmp_path / "straight") / "model.safetensors"),
        load_file(model_path(tmp_path / "resumed") / "model.safetensors"),
    )


def test_closing_at_an_evaluation_loses_nothing(
    tiny_model: Path, texts: Path, tmp_path: Path
) -> None:
    inputs = prepare(make_recipe(tiny_model, texts))
    straight = [r for r in train(inputs, tmp_path / "a", CPU) if isinstance(r, Evaluation)]
    seen: list[Evaluation] = []
    while read_result(tmp_path / "b") is None:
        records = train(inputs, tmp_path / "b", CPU)
        for record in records:
            if isinstance(record, Evaluation):
                seen.append(record)
                if record.step < record.total:
                    records.close()
    assert seen == straight


def test_a_damaged_checkpoint_is_passed_over(
    tiny_model: Path, texts: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inputs = prepare(make_recipe(tiny_model, texts))
    straight = weights_at_end(inputs, tmp_path / "straight")
    records = train(inputs, tmp_path / "cut", CPU, checkpoint_seconds=0)  # one at every step
    list(itertools.islice((r for r in records if isinstance(r, StepRecord)), 9))
    records.close()
    kept = sorted((tmp_path / "cut" / "checkpoints").glob("step-*"))
    assert [p.name for p in kept] == ["step-00000008", "step-00000009"]
    newest = kept[-1] / "state.safetensors"
    newest.write_bytes(newest.read_bytes()[:-100])
    (kept[-1].parent / "step-00000010.1.tmp").mkdir()  # what a kill in mid-write leaves
    with caplog.at_level(logging.WARNING):
        assert_same(straight, weights_at_end(inputs, tmp_path / "cut"))
    assert "step-00000009 is damaged" in caplog.text


def test_a_finished_run_yields_nothing_and_another_is_refused(
    tiny_model: Path, texts: Path, tmp_path: Path
) -> None:
    recipe = make_recipe(tiny_model, texts)
    steps = list(train(prepare(recipe), tmp_path, CPU))
    assert len(steps) == STEPS + 4  # evaluations at 6, 12, 18 and the end
    assert list(train(prepare(recipe), tmp_path, CPU)) == []
    assert not (tmp_path / "checkpoints").exists()
    with pytest.raises(ValueError, match=r"optim\.lr"):
        next(iter(train(prepare(make_recipe(tiny_model, texts, lr=1e-4)), tmp_path, CPU)))


def test_sentences_longer_than_the_encoder_takes_are_refused(
    tiny_model: Path, texts: Path, tmp_path: Path
) -> None:
    """Both families take 64 tokens, RoBERTa of 66 positions."""
    long = tmp_path / "long.txt"
    long.write_text("\n".join(f"{word} " * 100 for word in WORDS) + "\n", encoding="utf-8")
    for length in (64, 65):
        recipe = make_recipe(tiny_model, texts, max_length=length, max_steps=1)
        recipe = dataclasses.replace(
            recipe, data=dataclasses.replace(recipe.data, corpus=str(long))
        )
        records = train(prepare(recipe), tmp_path / str(length), CPU)
        if length == 64:
            assert [record.step for record in records] == [1, 1]
        else:
            with pytest.raises(ValueError, match=r"optim\.max_length = 65 .* at most 64"):
                next(records)


def test_learning_rate_falls_linearly_to_zero(
    tiny_model: Path, texts: Path, tmp_path: Path
) -> None:
    rates = [
        r.learning_rate
        for r in train(prepare(make_recipe(tiny_model, texts)), tmp_path, CPU)
        if isinstance(r, StepRecord)
    ]
    assert rates == pytest.approx([1e-3 * (20 - i) / 20 for i in range(20)])


@pytest.mark.parametrize("method", METHODS)
def test_training_lowers_its_loss(
    tiny_model: Path, texts: Path, tmp_path: Path, method: MethodName
) -> None:
    recipe = of_method(make_recipe(tiny_model, texts, max_steps=60), method)
    losses = [
        r.terms.loss.item()
        for r in train(prepare(recipe), tmp_path, CPU)
        if isinstance(r, StepRecord)
    ]
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
