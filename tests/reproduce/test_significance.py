"""Differences of rows from kept items: against plain loops, and what enters."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import norm, spearmanr

from reproduce import render
from reproduce.compare import Table, build
from reproduce.significance import significance, significance_sheet
from scd_core.evaluation.uncertainty import Items, Judged, Ranked, holm
from scd_core.recipe import preset
from scd_core.run_info import RunInfo
from tests.reproduce.conftest import KEYS, TRANSFER_KEYS
from tests.reproduce.test_tables import EMBEDDING

MakeRun = Callable[..., RunInfo]
SIZES = dict(zip(KEYS, (40, 50, 60, 70, 80, 90, 100), strict=True))
RECIPE = preset("scd-bundled").in_precision("fp32")


def ranked(seed: int, noise: float) -> dict[str, Items]:
    """Items of the seven tasks; gold scores and their order are the same for every seed."""
    found: dict[str, Items] = {}
    for i, (key, size) in enumerate(SIZES.items()):
        gold = np.random.default_rng(i).integers(0, 6, size).astype(float)
        cosines = gold / 5 + noise * np.random.default_rng(100 * seed + i).normal(size=size)
        found[key] = Ranked(cosines, gold)
    return found


ITEMS = {"s0": ranked(1, 0.3), "s1": ranked(2, 0.3), "cls": ranked(3, 0.9), "mean": ranked(4, 0.4)}


def scores(name: str) -> dict[str, float]:
    found = {}
    for key, items in ITEMS[name].items():
        cosines, gold = items.arrays["cosines"], items.arrays["gold"]
        found[key] = 100 * float(spearmanr(cosines, gold).statistic)
    return found


@pytest.fixture
def table(make_evaluation: MakeRun) -> Table:
    own = {"model": "bundled", "recipe_hash": RECIPE.hash}
    other = EMBEDDING | {"model": "bundled"}
    runs = [make_evaluation(f"s{i}", seed=i, metrics=scores(f"s{i}"), **own) for i in (0, 1)]
    runs.append(make_evaluation("cls", metrics=scores("cls"), **other))
    runs.append(make_evaluation("mean", metrics=scores("mean"), **other | {"pooling": "mean"}))
    runs.append(make_evaluation("bare", **other | {"pooling": "first_last"}))
    return build("table1", runs)


def test_seeds_are_averaged_within_a_resample(table: Table) -> None:
    frame = significance([table], ITEMS.get)
    assert set(frame["against"].str.split("/").str[2]) == {"cls", "mean"}  # "bare" kept no items
    assert len(frame) == 2 * 8
    line = frame[(frame["column"] == "STS-B") & frame["against"].str.contains("/cls/")].iloc[0]
    a, b, c = (ITEMS[name][KEYS[5]].arrays for name in ("s0", "s1", "cls"))
    rng, expected = np.random.default_rng(7), []
    for _ in range(2000):
        drawn = rng.integers(90, size=90)
        one, two, three = (
            100 * spearmanr(x["cosines"][drawn], x["gold"][drawn]).statistic for x in (a, b, c)
        )
        expected.append((one + two) / 2 - three)
    low, high = np.quantile(expected, [0.025, 0.975])
    width = high - low
    assert line["low"] == pytest.approx(low, abs=0.1 * width)
    assert line["high"] == pytest.approx(high, abs=0.1 * width)
    seeds = (scores("s0")[KEYS[5]] + scores("s1")[KEYS[5]]) / 2
    assert line["difference"] == pytest.approx(seeds - scores("cls")[KEYS[5]], abs=1e-9)
    assert line["runs"] == "s0 s1"


def test_an_average_draws_each_task_for_itself(table: Table) -> None:
    """The variance of a mean over independent tasks is the mean of theirs over their number."""
    frame = significance([table], ITEMS.get)
    pair = frame[frame["against"].str.contains("/cls/")].set_index("column")
    widths = (pair["high"] - pair["low"]).drop("Avg.")
    expected = np.sqrt((widths**2).sum()) / 7
    assert pair.loc["Avg.", "high"] - pair.loc["Avg.", "low"] == pytest.approx(expected, rel=0.1)


def test_p_is_small_enough_for_a_large_table(table: Table) -> None:
    """Against the exact sign test where one side is right in 60 of 60 items that differ."""
    first, second = np.arange(400) < 300, np.arange(400) < 240
    items = dict(ITEMS)
    for name, right in (("s0", first), ("s1", first), ("cls", second), ("mean", second)):
        items[name] = {key: Judged(right) for key in KEYS}
    frame = significance([table], items.get)
    found = frame[frame["column"] == "STS12"].iloc[0]
    z = found["difference"] / (100 * np.sqrt(0.15 * 0.85 / 400))
    assert norm.isf(found["p"] / 2) == pytest.approx(z, rel=0.1)
    assert found["p"] < 2 / 4001


def test_holm_is_over_the_whole_table_and_the_next_best_is_marked(table: Table) -> None:
    frame = significance([table], ITEMS.get)
    assert frame["p_holm"].tolist() == holm(frame["p"].tolist())
    best = frame[frame["next_best"]]
    assert set(best["against"].str.split("/").str[2]) == {"mean"}
    text = render.markdown(significance_sheet(frame, "table1", "Table 1", table.columns))
    assert "over the table's 16 differences" in text
    assert "‡" in text
    assert "*" in text


def test_a_better_row_without_items_leaves_no_mark(table: Table) -> None:
    frame = table.frame.copy()
    frame.loc[frame["runs"] == "bare", "mean"] = 99.0
    found = significance([dataclasses.replace(table, frame=frame)], ITEMS.get)
    assert len(found) == 2 * 8
    assert not found["next_best"].any()


def test_the_same_vectors_twice_take_nothing_from_the_others(make_evaluation: MakeRun) -> None:
    """Another recipe may select the same checkpoint: no difference, and no p of 0 / 0."""
    own = {"model": "bundled", "recipe_hash": RECIPE.hash}
    runs = [make_evaluation("s0", metrics=scores("s0"), **own)]
    runs.append(make_evaluation("twin", metrics=scores("s0"), **own | {"recipe_hash": "t" * 12}))
    cls = EMBEDDING | {"model": "bundled"}
    runs.append(make_evaluation("cls", metrics=scores("cls"), **cls))
    frame = significance([build("table1", runs)], (ITEMS | {"twin": ITEMS["s0"]}).get)
    twin = frame["against_runs"] == "twin"
    assert (frame.loc[twin, "p"] == 1).all()
    assert (frame.loc[twin, "p_holm"] == 1).all()
    assert (frame.loc[~twin & (frame["column"] == "Avg."), "p_holm"] < 1e-6).all()


def test_without_items_nothing_is_claimed(table: Table) -> None:
    frame = significance([table], lambda run_id: None)
    assert frame.empty
    text = render.markdown(significance_sheet(frame, "table1", "Table 1", table.columns))
    assert "Nothing to compare" in text


def test_other_numbers_of_items_are_refused(table: Table) -> None:
    odd = ITEMS | {"cls": {key: Judged(np.ones(7)) for key in (*KEYS, *TRANSFER_KEYS)}}
    with pytest.raises(ValueError, match=r"run cls has 7 items of test\.sts12"):
        significance([table], odd.get)
