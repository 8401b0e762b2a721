"""A loss that is no number ends a training at its step."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest

from scd_core import learners, training
from scd_core.divergence import DivergedError, LossWatch
from scd_core.inputs import prepare
from scd_core.objectives import Terms
from scd_core.run_folder import Evaluation, model_path, read_result
from scd_core.settings import (
    Objective,
    Selection,
)
from scd_core.training import StepRecord, train
from tests.tiny_trainings import CPU, make_recipe


def test_a_loss_that_is_no_number_stops_at_its_step(
    tiny_models: dict[str, Path], texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = itertools.count(1)
    original = learners.scd.scd

    def third_is_nan(*args: object, settings: Objective) -> Terms:
        terms = original(*args, settings)  # type: ignore[arg-type]
        return terms._replace(loss=terms.loss * float("nan")) if next(calls) == 3 else terms

    monkeypatch.setattr(learners.scd, "scd", third_is_nan)
    with pytest.raises(DivergedError, match="step 3 of 20"):
        list(train(prepare(make_recipe(tiny_models["bert"], texts)), tmp_path, CPU))
    assert not model_path(tmp_path).exists()
    assert read_result(tmp_path) is None


@pytest.mark.parametrize("every", [1, 2, 3, 6])
def test_a_loss_seen_late_is_named_by_its_step(
    tiny_models: dict[str, Path],
    texts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    every: int,
) -> None:
    """As on a GPU. Nothing of the third step or later is evaluated or kept."""
    original, calls = learners.scd.scd, itertools.count(1)

    def third_is_nan(*args: object, settings: Objective) -> Terms:
        terms = original(*args, settings)  # type: ignore[arg-type]
        return terms._replace(loss=terms.loss * float("nan")) if next(calls) == 3 else terms

    monkeypatch.setattr(learners.scd, "scd", third_is_nan)
    monkeypatch.setattr(
        training, "LossWatch", lambda total, remedy, late: LossWatch(total, remedy, late=True)
    )
    recipe = dataclasses.replace(
        make_recipe(tiny_models["bert"], texts), selection=Selection(every=every)
    )
    seen: list[StepRecord | Evaluation] = []
    with pytest.raises(DivergedError, match=r"nan at step 3 of 20.*optim\.lr"):
        seen.extend(train(prepare(recipe), tmp_path, CPU, checkpoint_seconds=0))
    evaluated = [record.step for record in seen if isinstance(record, Evaluation)]
    assert evaluated == [step for step in (1, 2) if step % every == 0]
    assert model_path(tmp_path).exists() == bool(evaluated)
    assert {p.name for p in tmp_path.glob("checkpoints/*")} == {"step-00000001", "step-00000002"}
    assert read_result(tmp_path) is None


def test_closing_on_a_loss_not_yet_seen_keeps_nothing_of_it(
    tiny_models: dict[str, Path], texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = learners.scd.scd
    monkeypatch.setattr(
        learners.scd,
        "scd",
        lambda *a, settings: (t := original(*a, settings))._replace(loss=t.loss * float("inf")),
    )
    monkeypatch.setattr(
        training, "LossWatch", lambda total, remedy, late: LossWatch(total, remedy, late=True)
    )
    records = train(prepare(make_recipe(tiny_models["bert"], texts)), tmp_path, CPU)
    next(records)
    with pytest.raises(DivergedError, match="step 1 of 20"):
        records.close()
    assert not list(tmp_path.glob("checkpoints/*"))
