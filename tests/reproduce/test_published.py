"""The files of published numbers agree with themselves, with each other and with the presets."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from reproduce.published import (
    AVERAGE,
    FOLDER,
    MISPRINTED_AVERAGES,
    mean_of_cells,
    published_table,
    read_table,
)
from scd_core.recipe import preset

SHAPES = {
    "table1": (13, 8),
    "table2": (10, 8),
    "table3": (4, 3),
    "table2-later": (1, 8),
    "figure2": (1, 2),
}
ROUNDED = 0.005 + 1e-9


@pytest.mark.parametrize("name", SHAPES)
def test_shape(name: str) -> None:
    table = published_table(name)
    assert (len(table.rows), len(table.columns)) == SHAPES[name]


@pytest.mark.parametrize("name", ["table1", "table2", "table2-later"])
def test_printed_averages_are_the_mean_of_their_cells(name: str) -> None:
    off = [
        (name, row.id)
        for row in published_table(name).rows
        if abs(mean_of_cells(row) - row.scores[AVERAGE]) > ROUNDED
    ]
    assert off == [entry for entry in MISPRINTED_AVERAGES if entry[0] == name]


def test_the_one_misprint_stays_as_printed() -> None:
    row = next(r for r in published_table("table2").rows if r.id == "bert-avg")
    assert row.scores[AVERAGE] == 84.94
    assert round(mean_of_cells(row), 2) == 84.95


@pytest.mark.parametrize("row_id", ["bert-cls", "scd-bert"])
def test_table_3_sts_is_the_mean_of_sts12_to_sts16(row_id: str) -> None:
    first = next(r for r in published_table("table1").rows if r.id == row_id).scores
    third = next(r for r in published_table("table3").rows if r.id == row_id).scores
    mean = sum(first[f"STS{year}"] for year in range(12, 17)) / 5
    assert abs(mean - third["STS"]) <= ROUNDED
    assert (first["STS-B"], first["SICK-R"]) == (third["STS-B"], third["SICK-R"])


@pytest.mark.parametrize("name", SHAPES)
def test_presets_train_the_model_of_their_row(name: str) -> None:
    rows = [row for row in published_table(name).rows if row.preset]
    assert rows
    for row in rows:
        model = preset(row.preset).model
        assert model.name == row.model
        assert row.pooling in ("", model.pooling)
        assert preset(row.preset).method == row.method


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("66.94", "69.64", "average"),
        ("66.94", "166.94", "0 to 100"),
        ("66.94", "", "0 to 100"),
        ("66.94", "nan", "0 to 100"),
        ("66.94,", "", "values found"),
        ("scd-bert-paper", "scd-bert", "preset"),
        ("ct-bert,", "is-bert,", "twice"),
        ("♡", "♠", "source"),
        ("bert,♡", "albert,♡", "section"),
        ("id,title", "title,id", "header"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = (FOLDER / "table1.csv").read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "table1.csv"
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(ValueError, match=message) as error:
        read_table(path)
    assert "table1.csv" in str(error.value)


def test_an_unknown_table_names_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"table1.*table2.*table3"):
        published_table("table4")


def test_every_cell_is_the_papers(data_dir: Path) -> None:
    """Against the text of the paper, where it lies beside the project."""
    paper = data_dir.parent / "seeds" / "scd-paper.txt"
    if not paper.is_file():
        pytest.skip("the paper's text is not beside the project")
    number = re.compile(r"\d+\.\d+")
    printed = [
        tuple(map(float, cells))
        for line in paper.read_text(encoding="utf-8").splitlines()
        if len(cells := line.split("\t")[1:]) in (3, 8) and all(map(number.fullmatch, cells))
    ]
    files = [
        tuple(row.scores.values())
        for name in ("table1", "table2", "table3")
        for row in published_table(name).rows
    ]
    assert files == printed


def test_figure_2_is_the_papers(data_dir: Path) -> None:
    paper = data_dir.parent / "seeds" / "scd-paper.txt"
    if not paper.is_file():
        pytest.skip("the paper's text is not beside the project")
    (row,) = published_table("figure2").rows
    text = paper.read_text(encoding="utf-8")
    assert f"supervised counterparts ({row.scores['uniformity']})" in text
    assert f"inferior to other counterparts ({row.scores['alignment']})" in text


def test_the_later_figures_are_of_the_same_run() -> None:
    (later,) = published_table("table2-later").rows
    row = next(r for r in published_table("table2").rows if r.id == "scd-bert")
    assert (later.method, later.model, later.pooling, later.preset) == (
        row.method,
        row.model,
        row.pooling,
        row.preset,
    )
    assert list(later.scores) == list(row.scores)


@pytest.mark.parametrize(
    ("preset_name", "weight"),
    [
        ("scd-bert-self-contrast", "alpha"),
        ("scd-bert-decorrelation", "self_weight"),
    ],
)
def test_an_ablation_is_the_papers_recipe_without_one_term(preset_name: str, weight: str) -> None:
    paper, ablated = preset("scd-bert-paper"), preset(preset_name)
    assert replace(ablated, objective=replace(paper.objective, **{weight: 0.0})) == ablated
    assert replace(ablated, objective=paper.objective) == paper
