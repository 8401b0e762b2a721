"""Which runs enter an average (cases E6, C2), and what the average is."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from reproduce.aggregate import Column, Group, Selection, select, summarise
from scd_core.recipe import preset
from scd_core.run_info import RunInfo

TASKS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
KEYS = [f"test.{task}.spearman_all" for task in TASKS]
STS12, AVERAGE = Column("STS12", (KEYS[0],)), Column("Avg.", tuple(KEYS))
COLUMNS = [*(Column(key, (key,)) for key in KEYS), AVERAGE]
MakeRun = Callable[..., RunInfo]


def ids(group: Group) -> list[str]:
    return [run.run_id for run in group.runs]


def paper_group(selection: Selection) -> Group:
    wanted = preset("scd-bert-paper").in_precision("fp32").hash
    (group,) = [g for g in selection.groups if g.setting.recipe_hash == wanted]
    return group


def test_e6(e6_store: list[RunInfo]) -> None:
    group = paper_group(select(e6_store, COLUMNS))
    cell = summarise(group, AVERAGE)
    assert ids(group) == ["seed0", "seed1", "seed2"]
    assert [run.run_id for run in group.replaced] == ["repeat-old"]
    assert (cell.mean, cell.sd, cell.n) == (pytest.approx(71.0), pytest.approx(1.0), 3)
    assert group.seeds == (0, 1, 2)


def test_a_later_repeat_counts_even_if_it_is_worse(e6_store: list[RunInfo]) -> None:
    runs = [replace(r, start_time=3000) if r.run_id == "repeat-old" else r for r in e6_store]
    group = paper_group(select(runs, COLUMNS))
    assert ids(group)[0] == "repeat-old"
    assert summarise(group, STS12).mean == pytest.approx((60 + 71 + 72) / 3)


def test_repeats_of_one_millisecond_are_decided_by_id(make_run: MakeRun) -> None:
    runs = [make_run("a", 1.0), make_run("b", 2.0)]
    assert ids(select(runs, COLUMNS).groups[0]) == ["b"]
    assert ids(select(runs[::-1], COLUMNS).groups[0]) == ["b"]


def test_what_is_left_out_is_listed_with_its_reason(e6_store: list[RunInfo]) -> None:
    assert select(e6_store, COLUMNS).left_out == {
        "FAILED, not FINISHED": ("failed",),
        "RUNNING, not FINISHED": ("running",),
        "of another protocol, protocol-b": ("other",),
        "of kind search": ("parent",),
        "of kind trial": ("trial",),
    }


def test_a_missing_seed_is_n_2(e6_store: list[RunInfo]) -> None:
    group = paper_group(select([r for r in e6_store if r.run_id != "seed2"], COLUMNS))
    cell = summarise(group, AVERAGE)
    assert (cell.mean, cell.n, group.seeds) == (pytest.approx(70.5), 2, (0, 1))


def test_one_seed_has_no_spread(make_run: MakeRun) -> None:
    cell = summarise(select([make_run("a", 70.0)], COLUMNS).groups[0], AVERAGE)
    assert (cell.mean, cell.sd, cell.n) == (70.0, None, 1)


def test_the_order_of_runs_does_not_matter(e6_store: list[RunInfo]) -> None:
    expected = select(e6_store, COLUMNS)
    for seed in range(20):
        shuffled = random.Random(seed).sample(e6_store, len(e6_store))
        assert select(shuffled, COLUMNS) == expected


@pytest.mark.parametrize(
    ("tag", "other"),
    [
        ("recipe_hash", "f" * 12),
        ("data_fingerprint", "e" * 64),
        ("model", "bundled"),
        ("method", "simcse"),
        ("pooling", "mean"),
    ],
)
def test_different_settings_are_never_averaged(make_run: MakeRun, tag: str, other: str) -> None:
    runs = [make_run("a", 70.0, seed=0), make_run("b", 80.0, seed=1, **{tag: other})]
    groups = select(runs, COLUMNS).groups
    assert sorted(ids(group)[0] for group in groups) == ["a", "b"]


def test_trained_seeds_are_one_row_though_their_weights_differ(make_run: MakeRun) -> None:
    runs = [make_run("a", seed=0), make_run("b", seed=1, model_fingerprint="9" * 64)]
    assert len(select(runs, COLUMNS).groups) == 1


def test_one_name_with_other_weights_is_another_row(make_run: MakeRun) -> None:
    def evaluation(run_id: str, weights: str) -> RunInfo:
        tags = {"kind": "evaluation", "method": "embedding", "model_fingerprint": weights}
        return make_run(run_id, recipe_hash=run_id, **tags)

    runs = [evaluation("a", "1" * 64), evaluation("b", "2" * 64), evaluation("c", "2" * 64)]
    assert [ids(group) for group in select(runs, COLUMNS).groups] == [["a"], ["c"]]


def test_the_protocol_with_most_runs_then_the_latest(make_run: MakeRun) -> None:
    two = [make_run("a", seed=0, protocol="p1"), make_run("b", seed=1, protocol="p1")]
    late = [make_run("c", seed=0, protocol="p0", start_time=9000)]
    assert select(two + late, COLUMNS).protocol == "p1"
    assert select(two[:1] + late, COLUMNS).protocol == "p0"


def test_a_protocol_can_be_asked_for_by_its_beginning(e6_store: list[RunInfo]) -> None:
    selection = select(e6_store, COLUMNS, protocol="protocol-b")
    assert [ids(group) for group in selection.groups] == [["other"]]
    with pytest.raises(ValueError, match=r"fits 2 protocols.*protocol-a.*protocol-b"):
        select(e6_store, COLUMNS, protocol="proto")
    with pytest.raises(ValueError, match="fits 0 protocols"):
        select(e6_store, COLUMNS, protocol="x")


@pytest.mark.parametrize("undefined", [KEYS[6], f"{KEYS[0]}, {KEYS[6]}"])
def test_an_undefined_score_empties_its_cell_and_the_average(
    make_run: MakeRun, undefined: str
) -> None:
    lacking = undefined.split(", ")
    scores = {key: 70.0 for key in KEYS if key not in lacking}
    runs = [make_run("a", 70.0, 0), make_run("b", None, 1, metrics=scores, undefined=undefined)]
    (group,) = select(runs, COLUMNS).groups
    for column in COLUMNS:
        cell = summarise(group, column)
        empty = any(key in lacking for key in column.keys)
        assert (cell.mean is None, cell.sd is None) == (empty, empty)
        assert (cell.n, cell.undefined) == (2, int(empty))


def test_a_run_that_silently_lacks_a_score_is_left_out(make_run: MakeRun) -> None:
    scores = dict.fromkeys(KEYS[:6], 70.0)
    selection = select([make_run("a", None, metrics=scores)], COLUMNS)
    assert (selection.groups, selection.protocol) == ((), None)
    assert selection.left_out == {f"without {KEYS[6]}": ("a",)}


@pytest.mark.parametrize("stored", [float("nan"), float("inf"), 1.7976931348623157e308])
def test_a_number_that_is_no_score_is_undefined(make_run: MakeRun, stored: float) -> None:
    scores = dict.fromkeys(KEYS, 70.0) | {KEYS[0]: stored}
    (group,) = select([make_run("a", None, metrics=scores)], COLUMNS).groups
    assert summarise(group, STS12).mean is None
    assert summarise(group, AVERAGE).mean is None


def test_a_stored_zero_that_is_tagged_undefined_is_no_zero(make_run: MakeRun) -> None:
    scores = dict.fromkeys(KEYS, 70.0) | {KEYS[0]: 0.0}
    (group,) = select([make_run("a", None, metrics=scores, undefined=KEYS[0])], COLUMNS).groups
    assert summarise(group, STS12).mean is None


def test_the_average_is_of_unrounded_scores(make_run: MakeRun) -> None:
    scores = dict(zip(KEYS, [70.004, 70.004, 70.004, 70.004, 70.004, 70.004, 70.004], strict=True))
    (group,) = select([make_run("a", None, metrics=scores)], COLUMNS).groups
    assert summarise(group, AVERAGE).mean == pytest.approx(70.004, abs=1e-9)
