"""Transfer scores: the stated protocol, and all classifiers at once as one after another."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.transfer import sequential, train_alone
from scd_core.encoder import SentenceEncoder
from scd_core.evaluation.classifier import Fit, Fitted, Schedule, fit_all, hold_out, predict
from scd_core.evaluation.labelled import (
    SPLITS,
    TRANSFER,
    Labelled,
    TransferData,
    load_transfer,
)
from scd_core.evaluation.protocols import PROTOCOLS, STRENGTHS, run
from scd_core.evaluation.transfer import (
    in_toolkit_order,
    prepare,
    protocol_fingerprint,
    score_transfer,
)
from scd_core.models import model_folder

BY_NAME = {task.name: task for task in TRANSFER}
KINDS = ["cr", "sst2", "trec", "mrpc"]
every_kind = pytest.mark.parametrize("name", KINDS)
every_protocol = pytest.mark.parametrize("protocol", list(PROTOCOLS))


def _problem(
    rows: int, width: int, classes: int, noise: float, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, width)).astype(np.float32)
    logits = x @ rng.normal(size=(width, classes)) + noise * rng.normal(size=(rows, classes))
    return x, logits.argmax(axis=1)


def _data(name: str, rows: int, seed: int = 0) -> TransferData:
    """The task's splits with ``rows`` items each, every class in turn; text "split i label"."""
    task, rng = BY_NAME[name], np.random.default_rng(seed)
    splits = {}
    for split in SPLITS[task.kind]:
        labels = rng.permutation(np.arange(rows) % len(task.classes))
        texts = [f"{split} {i} {label}" + " more" * (i % 3) for i, label in enumerate(labels)]
        splits[split] = Labelled(texts, [f"{t} x" for t in texts] if task.pairs else [], labels)
    return TransferData(task, splits)


def _knows(texts: Sequence[str]) -> np.ndarray:
    """The label of the text and nothing else; the second of a pair is told by its sign."""
    vectors = np.zeros((len(texts), 6, 10), dtype=np.float32)
    for row, text in enumerate(texts):
        vectors[row, int(text.split()[2])] = -1 if text.endswith("x") else 1
    return vectors.reshape(len(texts), 60)


def _noise(texts: Sequence[str]) -> np.ndarray:
    rows = [np.random.default_rng(list(text.encode())).normal(size=60) for text in texts]
    return np.array(rows, dtype=np.float32)


def _mixed(texts: Sequence[str]) -> np.ndarray:
    return _knows(texts) + 1.5 * _noise(texts)


@pytest.fixture
def few_folds(monkeypatch: pytest.MonkeyPatch) -> int:
    """For tests that train every classifier of a nested task in a slow way."""
    for module in ("scd_core.evaluation.protocols", "benchmarks.transfer"):
        monkeypatch.setattr(f"{module}.FOLDS", 3)
    return 3


class TestClassifier:
    """``fit_all`` against classifiers trained one at a time with torch's own parts."""

    @staticmethod
    def _compare(
        x: np.ndarray, y: np.ndarray, classes: int, fits: Sequence[Fit], schedule: Schedule
    ) -> tuple[list[Fitted], list[int]]:
        fitted = fit_all(x, y, classes, fits, 1111, schedule)
        steps = []
        for fit, got in zip(fits, fitted, strict=True):
            for i, strength in enumerate(fit.strengths):
                dev = x[fit.dev], y[fit.dev]
                alone = train_alone(
                    x[fit.train], y[fit.train], classes, strength, 1111, dev, schedule
                )
                expected = torch.cat(
                    [alone.layer.weight, alone.layer.bias.unsqueeze(1)], dim=1
                ).detach()
                np.testing.assert_allclose(got.weights[i], expected, rtol=1e-3, atol=2e-5)
                assert got.accuracy[i] == pytest.approx(alone.dev)
                steps.append(alone.steps)
        return fitted, steps

    @pytest.mark.parametrize("classes", [2, 3, 6])
    def test_equal_to_one_after_another(self, classes: int) -> None:
        x, y = _problem(230, 20, classes, 3.0)
        rng = np.random.default_rng(1)
        fits = []
        for train in (150, 151, 150, 128, 151):  # 128: the last batch is a whole one
            rows = rng.permutation(230)
            fits.append(Fit(np.sort(rows[:train]), rows[train:], (1e-4, 1e-2, 0.3)))
        schedule = Schedule(lr=0.02, max_epochs=60)
        _, steps = self._compare(x, y, classes, fits, schedule)
        # Early stopping took part, at different epochs within a fit and between fits.
        assert len(set(steps[:3])) > 1
        assert len(set(steps)) > 4
        assert min(steps) < 12 * 3 * 4

    def test_single_classifiers_that_draw_other_batches(self) -> None:
        x, y = _problem(150, 8, 2, 3.0)
        rows = np.arange(150)
        fits = [Fit(rows[:n], rows[n:], (1e-3,)) for n in (80, 90, 100)]
        self._compare(x, y, 2, fits, Schedule(lr=0.02, max_epochs=60))

    def test_the_bound_on_epochs(self) -> None:
        x, y = _problem(100, 6, 2, 0.1)
        fits = [Fit(np.arange(80), np.arange(80, 100), (0.0,))]
        schedule = Schedule(lr=1e-5, tenacity=1000, max_epochs=8)
        _, steps = self._compare(x, y, 2, fits, schedule)
        assert steps == [3 * 2 * 4]  # rounds of 4 epochs begin at 0, 4 and 8; 2 batches each

    def test_held_out_rows_and_their_batches(self) -> None:
        x, y = _problem(120, 10, 2, 2.0)
        rows = np.arange(10, 120)
        fit = hold_out(rows, 0.05, (1e-3,), 1111)
        assert (len(fit.train), len(fit.dev)) == (105, 5)
        assert sorted([*fit.train, *fit.dev]) == list(rows)
        (got,) = fit_all(x, y, 2, [fit], 1111)
        alone = train_alone(x[rows], y[rows], 2, 1e-3, 1111)
        np.testing.assert_allclose(
            got.weights[0, :, :-1], alone.layer.weight.detach(), rtol=1e-3, atol=2e-5
        )
        assert (predict(x, got.weights[0]) == alone.predict(x)).all()

    def test_company_does_not_change_a_fit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        x, y = _problem(300, 50, 2, 5.0)
        rng = np.random.default_rng(2)
        fits = [Fit(rng.permutation(300)[:200], np.arange(300), (1e-4, 1e-2)) for _ in range(7)]
        together = fit_all(x, y, 2, fits, 1111)
        monkeypatch.setattr("scd_core.evaluation.classifier._CACHE_BYTES", 60_000)
        few = fit_all(x, y, 2, fits, 1111)
        for fit, one, other in zip(fits, together, few, strict=True):
            (alone,) = fit_all(x, y, 2, [fit], 1111)
            for got in (one, other):
                np.testing.assert_allclose(got.weights, alone.weights, rtol=1e-3, atol=2e-5)
                np.testing.assert_array_equal(got.accuracy, alone.accuracy)

    def test_the_seed_is_the_only_source_of_chance(self) -> None:
        x, y = _problem(100, 6, 2, 2.0)
        fits = [Fit(np.arange(80), np.arange(80, 100), (1e-3,))]
        torch.manual_seed(5)
        np.random.seed(5)
        numpy_state, torch_state = np.random.get_state()[1], torch.get_rng_state()
        first = fit_all(x, y, 2, fits, 1)[0].weights
        assert (np.random.get_state()[1] == numpy_state).all()
        assert torch.equal(torch.get_rng_state(), torch_state)
        np.random.seed(6)
        assert (fit_all(x, y, 2, fits, 1)[0].weights == first).all()
        assert not (fit_all(x, y, 2, fits, 2)[0].weights == first).all()


@every_kind
@pytest.mark.usefixtures("few_folds")
def test_protocol_is_that_of_one_classifier_after_another(name: str) -> None:
    data = prepare(_data(name, 120), _mixed)
    together, (alone, _) = run(data, PROTOCOLS["senteval-default"]), sequential(data)
    assert (together.test, together.dev) == (alone.test, alone.dev)
    assert together.strengths == alone.strengths
    assert (together.predicted == alone.predicted).all()
    assert len(together.predicted) == 120
    assert 100 / data.classes < together.test < 100


def test_convex_is_the_optimum_of_the_same_loss() -> None:
    """The gradient, by autograd, of the mean cross-entropy with s/2 |W|^2 is 0 there."""
    for classes in (2, 4):
        x, y = _problem(200, 5, classes, 1.0)
        x += 3
        fit = Fit(np.arange(150), np.arange(150, 200), STRENGTHS)
        (fitted,) = PROTOCOLS["convex"].fit(x, y, classes, [fit], 0)
        for strength, found in zip(STRENGTHS, fitted.weights, strict=True):
            # With two classes scikit-learn's difference of rows stands for two opposite rows.
            found = found - found.mean(axis=0)
            weights = torch.tensor(found, dtype=torch.float64, requires_grad=True)
            logits = torch.from_numpy(x[:150]).double() @ weights[:, :-1].T + weights[:, -1]
            loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(y[:150]))
            (loss + strength / 2 * weights[:, :-1].square().sum()).backward()
            assert weights.grad is not None
            assert weights.grad.abs().max() < 2e-3
        wrong = (predict(x[150:], fitted.weights[0]) != y[150:]).mean()
        assert fitted.accuracy[0] == pytest.approx(1 - wrong)


def test_convex_never_predicts_a_class_it_has_not_seen() -> None:
    x, y = _problem(100, 5, 3, 1.0)
    fit = Fit(np.flatnonzero(y != 1), np.arange(100), (1e-3,))
    (fitted,) = PROTOCOLS["convex"].fit(x, y, 3, [fit], 0)
    assert set(predict(x, fitted.weights[0])) == {0, 2}


@pytest.mark.usefixtures("few_folds")
@every_protocol
@every_kind
def test_near_100_with_the_label_and_near_the_majority_with_noise(name: str, protocol: str) -> None:
    data = _data(name, 200)
    known = score_transfer(data, _knows, protocol)
    noise = score_transfer(data, _noise, protocol)
    majority = 100 / len(data.task.classes)
    assert known.value is not None
    assert noise.value is not None
    if data.task.pairs:  # |u - v| and u * v of two opposite vectors have the label too
        assert known.f1 == pytest.approx(100, abs=1)
    else:
        assert known.f1 is None
    assert known.value > 99
    assert abs(noise.value - majority) < 12
    again = score_transfer(data, _noise, protocol)
    assert again == noise
    assert (again.predicted == noise.predicted).all()
    assert noise.value == pytest.approx(100 * (noise.predicted == noise.labels).mean(), abs=0.1)


@every_protocol
@every_kind
def test_test_labels_choose_nothing(name: str, protocol: str, few_folds: int) -> None:
    data = prepare(_data(name, 120), _mixed)
    before = run(data, PROTOCOLS[protocol])
    labels = data.labels.copy()
    if "all" not in data.rows:
        labels[data.rows["test"]] = 0
        after = run(dataclasses.replace(data, labels=labels), PROTOCOLS[protocol])
        assert (after.strengths, after.dev) == (before.strengths, before.dev)
        assert (after.predicted == before.predicted).all()
        assert after.test != before.test
        return
    # A nested task's test rows train other folds, so only what its own fold sees is left alone.
    fits: list[Fit] = []

    def recording(x: np.ndarray, y: np.ndarray, classes: int, given: Sequence[Fit], seed: int):
        fits.extend(given)
        return PROTOCOLS[protocol].fit(x, y, classes, given, seed)

    run(data, dataclasses.replace(PROTOCOLS[protocol], fit=recording))
    assert len(fits) == few_folds * few_folds + few_folds
    tested = set(range(120))
    for outer in range(few_folds):
        inner, final = fits[few_folds * outer :][:few_folds], fits[few_folds**2 + outer]
        used = {*final.train.tolist(), *final.dev.tolist()}
        assert len(used) == 120 - 120 // few_folds
        tested &= used
        assert all({*fit.train.tolist(), *fit.dev.tolist()} == used for fit in inner)
        assert sorted(row for fit in inner for row in fit.dev.tolist()) == sorted(used)
    assert not tested


def test_toolkit_order_is_words_then_label_then_file() -> None:
    part = Labelled(["c c", "a", "b", "d d", "", "e"], [], np.array([1, 1, 0, 0, 1, 0]))
    assert in_toolkit_order(part).sentences == ["", "b", "e", "a", "d d", "c c"]
    assert in_toolkit_order(part).labels.tolist() == [1, 0, 0, 1, 0, 1]
    pairs = Labelled(["a", "a", "a"], ["b b", "c", "d"], np.array([0, 1, 0]))
    assert in_toolkit_order(pairs).second == ["d", "c", "b b"]


def test_a_pair_is_difference_and_product() -> None:
    data = _data("mrpc", 4)
    calls: list[list[str]] = []

    def encode(texts: Sequence[str]) -> np.ndarray:
        calls.append(list(texts))
        return _noise(texts)

    examples = prepare(data, encode)
    assert len(calls) == 1
    assert len(calls[0]) == len(set(calls[0])) == 16
    part = in_toolkit_order(data.splits["test"])
    u, v = _noise(part.sentences), _noise(part.second)
    np.testing.assert_array_equal(
        examples.features[examples.rows["test"]], np.c_[np.abs(u - v), u * v]
    )
    np.testing.assert_array_equal(examples.labels[examples.rows["test"]], part.labels)


def test_seed_and_protocol_are_of_the_score() -> None:
    data = _data("cr", 120)
    score = score_transfer(data, _mixed)
    assert score.key == "test.cr.accuracy_senteval-default"
    assert list(score.metrics) == [score.key, "dev.cr.accuracy_senteval-default"]
    assert score.metrics[score.key] == score.value
    assert (score.items, score.seed, len(score.strengths)) == (120, 1111, 10)
    other = score_transfer(data, _mixed, seed=1)
    assert other.seed == 1
    assert not (other.predicted == score.predicted).all()
    assert score_transfer(data, _mixed, "convex").key == "test.cr.accuracy_convex"
    assert json.loads(json.dumps(score.record()))["strengths"] == list(score.strengths)
    with pytest.raises(ValueError, match="protocol 'svm' is none of senteval-default, convex"):
        score_transfer(data, _mixed, "svm")
    pairs = score_transfer(_data("mrpc", 60), _mixed)
    assert pairs.metrics["test.mrpc.f1_senteval-default"] == pairs.f1


def test_a_damaged_score_has_another_name() -> None:
    data = dataclasses.replace(_data("cr", 120), damage=("CR/custrev.pos: found 60 rows",))
    score = score_transfer(data, _mixed)
    assert score.damaged
    assert score.text.endswith("(damaged data)")
    assert all(key.endswith("_damaged") for key in score.metrics)


def test_fingerprint_is_settings_and_data_in_any_order() -> None:
    one, two = _data("cr", 20), _data("trec", 20)
    base = protocol_fingerprint([one, two])
    assert base == protocol_fingerprint([two, one])
    others = [
        protocol_fingerprint([one]),
        protocol_fingerprint([one, two], "convex"),
        protocol_fingerprint([one, two], seed=1),
        protocol_fingerprint([one, _data("trec", 20, seed=1)]),
    ]
    assert len({base, *others}) == 5


def test_undefined_where_a_vector_is_not_finite() -> None:
    def encode(texts: Sequence[str]) -> np.ndarray:
        vectors = _mixed(texts)
        vectors[3, 2] = np.nan
        return vectors

    score = score_transfer(_data("mrpc", 40), encode)
    assert (score.value, score.dev, score.f1, score.text) == (None, None, None, "undefined")
    assert score.items == 40


def test_a_constant_encoder_gets_the_majority() -> None:
    data = _data("cr", 120)
    labels = np.array([1] * 90 + [0] * 30)
    part = Labelled(data.splits["all"].sentences, [], labels)
    data = TransferData(data.task, {"all": part})
    score = score_transfer(data, lambda texts: np.ones((len(texts), 4), np.float32))
    assert score.value == 75.0


@pytest.mark.parametrize("shape", [(5, 4), (41, 4), (40,), (40, 0)])
def test_an_encoder_that_returns_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"for 40 sentences; expected \(40, hidden\)"):
        score_transfer(_data("cr", 40), lambda _: np.ones(shape, np.float32))


@pytest.mark.shared
def test_damaged_subj_is_99_60_whatever_the_encoder(data_dir: Path, tmp_path: Path) -> None:
    damaged = data_dir / "senteval-damaged" / "SUBJ"
    if not damaged.is_dir():
        pytest.skip("no senteval-damaged/ beside senteval/")
    shutil.copytree(damaged, tmp_path / "senteval" / "SUBJ")
    (data,) = load_transfer(tmp_path, [BY_NAME["subj"]], allow_damaged=True)

    def encode(texts: Sequence[str]) -> np.ndarray:
        return np.random.default_rng(0).normal(size=(len(texts), 8)).astype(np.float32)

    score = score_transfer(data, encode)
    assert score.text == "99.60 (damaged data)"
    assert score.items == 5020


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "dev", "test", "f1"),
    [("cr", 79.26, 78.15, None), ("trec", 69.68, 74.00, None), ("mrpc", 71.17, 69.62, 79.75)],
)
def test_the_toolkits_own_figures_on_the_bundled_encoder(
    data_dir: Path, name: str, dev: float, test: float, f1: float | None
) -> None:
    folder = model_folder("bundled")
    (data,) = load_transfer(data_dir, [BY_NAME[name]])
    score = score_transfer(data, SentenceEncoder(folder, "cls").encode)
    assert (score.dev, score.value, score.f1) == (dev, test, f1)
