"""A fitted method as a run of a table: scores, identity, once only, and the row it becomes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from reproduce.aggregate import Column, select
from reproduce.methods.base import target
from reproduce.methods.embedding import Embedding
from reproduce.methods.flow import Flow, FlowSettings
from reproduce.methods.measure import Fitting, measure_and_track
from reproduce.methods.whitening import Whitening
from scd_core.evaluation.sts import score_pairs
from scd_core.evaluation.suite import load_suite
from scd_core.evaluation.vectors import Encode
from scd_core.tracking import Tracking

pytestmark = pytest.mark.usefixtures("ready_home")


def test_a_run_is_written_once_and_found_by_the_tables(tiny_models: dict[str, Path]) -> None:
    suite = load_suite(("sample",), None)
    base = Embedding(tiny_models["bert"], "first_last")
    whitened = Fitting(
        Whitening(base, dimensions=3), target(suite.pairs), "bert-base-uncased", "first_last"
    )
    store = Tracking()
    assert whitened.finished(suite.protocols("senteval-default", 1111, None), store) is None
    run_id = measure_and_track(whitened, suite, store)
    assert measure_and_track(whitened, suite, store) == run_id
    run = store.get(run_id)
    (pairs,) = suite.pairs
    score = score_pairs(pairs, whitened.method.fit(whitened.corpus))
    assert run.metrics[score.key] == pytest.approx(score.value)
    assert run.params["method.dimensions"] == "3"
    assert run.params["data.corpus"] == whitened.corpus.name  # type: ignore[union-attr]
    (group,) = select([run], [Column("sample", (score.key,))]).groups
    found = group.setting
    assert (found.method, found.model, found.pooling) == (
        "whitening",
        "bert-base-uncased",
        "first_last",
    )
    other = dataclasses.replace(whitened, method=Whitening(base, dimensions=2))
    assert measure_and_track(other, suite, store) != run_id
    groups = select(store.find("evaluation"), [Column("sample", (score.key,))]).groups
    assert len(groups) == 2  # of other settings: never averaged


def test_all_that_is_undefined_is_named(tiny_models: dict[str, Path]) -> None:
    """The shape of vectors too, or Figure 2 would lose a seed that Table 1 shows as undefined."""

    class Nothing:
        name = "nothing"

        def fit(self, corpus: object) -> Encode:
            return lambda texts: np.full((len(texts), 4), np.nan, dtype=np.float32)

        def settings(self) -> dict[str, object]:
            return {}

    suite, store = load_suite(("sample",), None), Tracking()
    run = store.get(measure_and_track(Fitting(Nothing(), None, "none"), suite, store))
    (pairs,) = suite.pairs
    undefined = set(run.tags["scd.undefined"].split())
    wanted = {f"test.{pairs.name}.spearman_all", "test.geometry.uniformity"}
    assert wanted <= undefined
    assert not undefined & set(run.metrics)


def test_seeds_of_a_flow_are_one_row(tiny_models: dict[str, Path]) -> None:
    suite = load_suite(("sample",), None)
    base = Embedding(tiny_models["bert"], "first_last")
    store = Tracking()
    corpus = target(suite.pairs)
    for seed in (0, 1):
        settings = FlowSettings(couplings=2, width=8, epochs=1, seed=seed)
        measure_and_track(Fitting(Flow(base, settings), corpus, "bert", ""), suite, store)
    key = f"test.{suite.pairs[0].name}.spearman_all"
    (group,) = select(store.find("evaluation"), [Column("sample", (key,))]).groups
    assert group.seeds == (0, 1)
