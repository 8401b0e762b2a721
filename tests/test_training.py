"""The loop: exact resume from any step, the same run twice, selection, divergence."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from scd_core import learners, training
from scd_core.divergence import DivergedError, LossWatch
from scd_core.encoder import SentenceEncoder
from scd_core.evaluation.sts import Score
from scd_core.inputs import Inputs, model_label, prepare
from scd_core.objectives import Terms
from scd_core.recipe import Recipe
from scd_core.run_folder import Evaluation, model_path, read_result
from scd_core.settings import (
    METHODS,
    Data,
    MethodName,
    Model,
    Objective,
    Optim,
    Projector,
    Selection,
    Views,
)
from scd_core.training import StepRecord, train
from tests.conftest import WORDS

CPU = torch.device("cpu")
STEPS = 20


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 90 sentences and 12 graded pairs of the tiny models' words."""
    folder = tmp_path_factory.mktemp("texts")
    draw = np.random.default_rng(0)

    def sentence() -> str:
        return " ".join(draw.choice(WORDS, draw.integers(3, 12)))

    lines = [sentence() for _ in range(90)]
    (folder / "corpus.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    pairs = [f"{sentence()}\t{sentence()}\t{i % 6}" for i in range(12)]
    (folder / "pairs.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    triplets = [f"{line},{line} {WORDS[i % 13]},{sentence()}" for i, line in enumerate(lines[:80])]
    header = "sent0,sent1,hard_neg"
    (folder / "triplets.csv").write_text("\n".join([header, *triplets]) + "\n", encoding="utf-8")
    return folder


def make_recipe(model: Path, texts: Path, **optim: object) -> Recipe:
    settings = {
        "batch_size": 8,
        "max_steps": STEPS,
        "lr": 1e-3,
        "max_length": 10,
        "precision": "fp32",
    } | optim
    return Recipe(
        model=Model(name=str(model)),
        projector=Projector(width=64, layers=3),
        optim=Optim(**settings),  # type: ignore[arg-type]
        selection=Selection(every=6),
        data=Data(corpus=str(texts / "corpus.txt"), dev=str(texts / "pairs.tsv")),
    )


def weights_at_end(inputs: Inputs, folder: Path) -> dict[str, Tensor]:
    """Train to the end and return the final state of everything that was trained."""
    state: dict[str, Tensor] = {}
    original = training.remove_checkpoints
    with pytest.MonkeyPatch.context() as patch:
        # The final state is not kept by a finished run, so it is read where the loop ends.
        patch.setattr(training, "remove_checkpoints", lambda f: None)
        records = train(inputs, folder, CPU)
        for record in records:
            if isinstance(record, StepRecord) and record.step == record.total:
                local = records.gi_frame.f_locals  # type: ignore[union-attr]
                values = local["learner"].model.state_dict()
                state |= {name: value.clone() for name, value in values.items()}
    original(folder)
    return state


def assert_same(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)


def test_what_two_recipes_share_is_read_once_and_is_the_same(
    tiny_model: Path, texts: Path, tmp_path: Path
) -> None:
    recipe = make_recipe(tiny_model, texts)
    other = dataclasses.replace(recipe, seed=1, optim=dataclasses.replace(recipe.optim, lr=1.0))
    first = prepare(recipe)
    again = prepare(other, first)
    assert again.corpus is first.corpus
    assert again.identity == prepare(other).identity
    copy = tmp_path / "copy.txt"
    copy.write_text(Path(recipe.data.corpus).read_text(encoding="utf-8") + "One more.\n", "utf-8")
    elsewhere = dataclasses.replace(other, data=dataclasses.replace(other.data, corpus=str(copy)))
    assert prepare(elsewhere, first).identity == prepare(elsewhere).identity
    assert prepare(elsewhere, first).identity.data_fingerprint != first.identity.data_fingerprint


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


def of_method(recipe: Recipe, method: MethodName) -> Recipe:
    """The recipe for another method, with the one dropout rate that it takes."""
    if method == "scd":
        return recipe
    data = recipe.data
    if method == "simcse-supervised":
        data = dataclasses.replace(data, corpus=data.corpus.replace("corpus.txt", "triplets.csv"))
    return dataclasses.replace(
        recipe,
        method=method,
        views=Views(0.1, 0.1),
        objective=Objective(temperature=0.05),
        data=data,
    )


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


def test_precision_auto_is_what_the_processor_has(
    tiny_models: dict[str, Path], texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is resolved before the run has an identity, and the record tells what it became."""
    recipe = make_recipe(tiny_models["bert"], texts, precision="auto")
    found = {}
    for name, can in (("fp32", {}), ("bf16", {"avx512_bf16": True})):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda can=can: can)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        inputs = prepare(recipe)
        assert inputs.recipe.optim.precision == name
        assert f'precision = "{name}"' in inputs.recipe.to_toml()
        assert inputs.recipe.symbols()["optim.precision"] == name
        found[name] = inputs.identity
        explicit = make_recipe(tiny_models["bert"], texts, precision=name)
        assert prepare(explicit).identity == inputs.identity
    assert found["fp32"] != found["bf16"]


def test_identity_follows_the_content_of_the_inputs(
    tiny_models: dict[str, Path], texts: Path, tmp_path: Path
) -> None:
    recipe = make_recipe(tiny_models["bert"], texts)
    moved = tmp_path / "elsewhere.txt"
    moved.write_bytes((texts / "corpus.txt").read_bytes())
    same = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, corpus=str(moved)))
    assert prepare(same).identity == prepare(recipe).identity
    moved.write_text(moved.read_text(encoding="utf-8") + "a new cat\n", encoding="utf-8")
    assert prepare(same).identity != prepare(recipe).identity
    other = dataclasses.replace(recipe, model=Model(name=str(tiny_models["roberta"])))
    assert prepare(other).identity != prepare(recipe).identity


def test_places_are_recorded_whole(
    tiny_model: Path, texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named from the folder that they are in or from the root, they are one run."""
    whole = prepare(make_recipe(tiny_model, texts))
    monkeypatch.chdir(texts)
    near = Path(os.path.relpath(tiny_model))
    here = prepare(make_recipe(near, Path()))
    assert (here.identity, here.recipe, here.tags()) == (whole.identity, whole.recipe, whole.tags())
    assert model_label(str(near), "main") == str(tiny_model)
    assert model_label("bundled") == "bundled"


def test_a_selection_metric_the_dev_set_lacks_is_refused(tiny_model: Path, texts: Path) -> None:
    recipe = dataclasses.replace(make_recipe(tiny_model, texts), selection=Selection("sickr", 5))
    with pytest.raises(ValueError, match=r"selection\.metric = 'sickr'"):
        prepare(recipe)
