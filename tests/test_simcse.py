"""SimCSE: InfoNCE against a plain loop and its known values; the layer of the training only."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from scd_core import triplets
from scd_core.data import DataError
from scd_core.encoder import SentenceEncoder
from scd_core.items import TRIPLETS, Items
from scd_core.learners import build
from scd_core.objectives import info_nce
from scd_core.recipe import Recipe, preset
from scd_core.settings import Objective, Views
from scd_core.triplets import load_triplets, nli_sentences
from scd_core.two_view import UnplacedDropoutError, set_rate, set_rates


def drawn(count: int, rows: int = 5, width: int = 7) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(rows, width, dtype=torch.float64) for _ in range(count)]


@pytest.mark.parametrize("with_negatives", [False, True])
def test_info_nce_in_a_plain_loop(with_negatives: bool) -> None:
    a, b, *rest = drawn(3 if with_negatives else 2)
    temperature, total, right = 0.3, 0.0, 0

    def similarity(x: Tensor, y: Tensor) -> float:
        dot = sum(float(i) * float(j) for i, j in zip(x, y, strict=True))
        return dot / math.sqrt(float((x * x).sum()) * float((y * y).sum())) / temperature

    for i in range(len(a)):
        found = [similarity(a[i], other) for part in (b, *rest) for other in part]
        total -= found[i] - math.log(sum(math.exp(s) for s in found))
        right += found.index(max(found)) == i
    terms = info_nce(a, b, *rest, temperature=temperature)
    assert float(terms.loss) == pytest.approx(total / len(a), rel=1e-9)
    assert float(terms.accuracy) == pytest.approx(right / len(a))


def test_identical_views_at_a_high_temperature_give_log_n() -> None:
    (a,) = drawn(1, rows=16)
    assert float(info_nce(a, a, temperature=1e7).loss) == pytest.approx(math.log(16), abs=1e-6)
    same = torch.ones(16, 4)  # and at any temperature where all sentences are one
    assert float(info_nce(same, same, temperature=0.05).loss) == pytest.approx(math.log(16))
    negatives = info_nce(a, a, a, temperature=1e7)
    assert float(negatives.loss) == pytest.approx(math.log(32), abs=1e-6)


def test_orthogonal_sentences_by_hand() -> None:
    """Own cosine 1, all others 0: log(1 + (N - 1) exp(-1 / tau))."""
    eye = torch.eye(4, dtype=torch.float64)
    expected = math.log(1 + 3 * math.exp(-2))
    assert float(info_nce(eye, eye, temperature=0.5).loss) == pytest.approx(expected)
    assert float(info_nce(eye, eye, temperature=0.5).accuracy) == 1


def test_scale_of_vectors_and_half_precision_do_not_matter() -> None:
    a, b = drawn(2)
    exact = info_nce(a, b).loss
    torch.testing.assert_close(info_nce(a * 100, b / 7).loss, exact)
    with torch.autocast("cpu", torch.bfloat16):
        assert info_nce(a.float(), b.float()).loss.dtype == torch.float32
        torch.testing.assert_close(info_nce(a.float(), b.float()).loss.double(), exact)


def test_shapes_that_differ_are_refused() -> None:
    a, b = drawn(2)
    with pytest.raises(ValueError, match=r"\(5, 7\), \(4, 7\)"):
        info_nce(a, b[:4])


ROWS = [[2, 5, 6, 7, 3], [2, 8, 3], [2, 9, 10, 3]]


def test_the_two_passes_are_the_encoder_and_a_tanh_layer(tiny_models: dict[str, Path]) -> None:
    """Without dropout both are tanh(W h + b); with it they differ. Only the encoder is kept."""
    encoder = SentenceEncoder(tiny_models["bert"], "cls")
    recipe = Recipe(method="simcse", views=Views(0.1, 0.1), objective=Objective(temperature=0.05))
    learner = build(encoder, recipe)
    with torch.no_grad():
        a, b = learner.model(ROWS)
        h = encoder(*encoder.pad(ROWS))
        layer = learner.model.head[0]  # type: ignore[index,union-attr]
        expected = torch.tanh(h @ layer.weight.T + layer.bias)
        torch.testing.assert_close(a, expected)
        torch.testing.assert_close(b, expected)
        learner.model.train()
        a, b = learner.model(ROWS)
    assert not torch.allclose(a, b, atol=1e-3)
    assert [name for name, _ in learner.model.named_children()] == ["encoder", "head"]
    assert learner(ROWS, "fp32").loss.item() > 0


def test_triplets_of_a_batch_are_told_apart(tiny_models: dict[str, Path]) -> None:
    encoder = SentenceEncoder(tiny_models["bert"], "cls")
    recipe = Recipe(method="simcse-supervised", views=Views(0.1, 0.1), objective=Objective())
    learner = build(encoder, recipe)
    rows = [*ROWS, [2, 11, 3], [2, 12, 13, 3], [2, 5, 13, 3]]
    with torch.no_grad():
        premises, entailments, contradictions = learner.model(rows)
        alone = learner.model.head(encoder(*encoder.pad(rows[4:5])))  # type: ignore[operator]
        torch.testing.assert_close(entailments[1:2], alone)
        expected = info_nce(premises, entailments, contradictions, temperature=1.0).loss
        torch.testing.assert_close(learner(rows, "fp32").loss, expected)


@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_one_rate_for_every_dropout(tiny_model: Path, rate: float) -> None:
    encoder = SentenceEncoder(tiny_model, "cls")
    still = encoder(*encoder.pad(ROWS))
    set_rate(encoder.backbone, rate)
    encoder.train()
    assert torch.allclose(encoder(*encoder.pad(ROWS)), still, atol=1e-5) == (rate == 0)
    set_rates(encoder.backbone, 0.1, 0.2)
    with pytest.raises(UnplacedDropoutError, match="two-view dropout"):
        set_rate(encoder.backbone, 0.1)


def test_items_of_a_corpus() -> None:
    assert TRIPLETS.count(9) == TRIPLETS.count(11) == 3
    assert TRIPLETS.rows(np.array([2, 0])).tolist() == [6, 7, 8, 0, 1, 2]
    assert [Items(3, 1).count(n) for n in (2, 3, 10)] == [0, 1, 8]
    assert Items(3, 1).rows(np.array([4, 1])).tolist() == [4, 5, 6, 1, 2, 3]
    assert Items().rows(np.array([3, 1])).tolist() == [3, 1]


def test_triplet_files(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        'sent0,sent1,hard_neg\n"a, b",c,d\ne,,f\n"g\nh","i ""j""",k\n', encoding="utf-8-sig"
    )
    corpus = load_triplets(str(path), None)
    assert corpus.sentences == ["a, b", "c", "d", "g h", 'i "j"', "k"]
    assert (corpus.name, corpus.dropped) == ("t.csv", 1)
    for content, problem in (
        (b"sent0,sent1\na,b\n", r"no column \['hard_neg'\]"),
        (b"sent0,sent1,hard_neg\na,b,\n", "no whole triplet"),
        (b"sent0,sent1,hard_neg\na,b,\xff\n", "no CSV file in UTF-8"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=problem):
            load_triplets(str(path), None)
    with pytest.raises(DataError, match=r"--corpus wiki1m: .* is no file"):
        load_triplets("wiki1m", None)


def test_triplets_out_of_reach_name_what_else_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(name: str) -> Path:
        raise DataError(f"{name} cannot be fetched. Give a folder with --data-dir.")

    monkeypatch.setattr(triplets, "hub_file", unreachable)
    with pytest.raises(DataError, match=r"nli_for_simcse\.csv cannot .*naming their CSV file"):
        nli_sentences("nli", tmp_path)


def test_the_published_triplets_are_all_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "nli_for_simcse.csv"
    file.write_text("sent0,sent1,hard_neg\na,b,c\na,c,d\ne,,f\n", encoding="utf-8")
    with pytest.raises(DataError, match="has 3 triplets and 275,601 are expected"):
        load_triplets("nli", tmp_path)
    assert load_triplets(str(file), None).sentences == ["a", "b", "c", "a", "c", "d"]
    monkeypatch.setattr(triplets, "NLI_TRIPLETS", 3)
    assert load_triplets("nli", tmp_path).name == "nli"
    distinct = nli_sentences("nli", tmp_path)
    assert (distinct.sentences, distinct.name) == (["a", "b", "c", "d"], "nli")


@pytest.mark.shared
def test_shared_triplets_are_all_read(data_dir: Path) -> None:
    corpus = load_triplets(str(data_dir / "nli" / "snli_triplets.csv"), None)
    assert (len(corpus.sentences), corpus.dropped) == (3 * 6339, 0)


def test_supervised_as_published() -> None:
    optim = preset("simcse-supervised-bert-paper").optim
    assert (optim.batch_size, optim.lr, optim.epochs) == (512, 5e-5, 3)
