"""The files of published numbers agree with themselves, with each other and with the presets."""

from __future__ import annotations

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

SHAPES = {1: (13, 8), 2: (10, 8), 3: (4, 3)}
ROUNDED = 0.005 + 1e-9


@pytest.mark.parametrize("number", SHAPES)
def test_shape(number: int) -> None:
    table = published_table(number)
    assert (len(table.rows), len(table.columns)) == SHAPES[number]


@pytest.mark.parametrize("number", [1, 2])
def test_printed_averages_are_the_mean_of_their_cells(number: int) -> None:
    off = [
        (f"table{number}", row.id)
        for row in published_table(number).rows
        if abs(mean_of_cells(row) - row.scores[AVERAGE]) > ROUNDED
    ]
    assert off == [entry for entry in MISPRINTED_AVERAGES if entry[0] == f"table{number}"]


def test_the_one_misprint_stays_as_printed() -> None:
    row = next(r for r in published_table(2).rows if r.id == "bert-avg")
    assert row.scores[AVERAGE] == 84.94
    assert round(mean_of_cells(row), 2) == 84.95


@pytest.mark.parametrize("row_id", ["bert-cls", "scd-bert"])
def test_table_3_sts_is_the_mean_of_sts12_to_sts16(row_id: str) -> None:
    first = next(r for r in published_table(1).rows if r.id == row_id).scores
    third = next(r for r in published_table(3).rows if r.id == row_id).scores
    mean = sum(first[f"STS{year}"] for year in range(12, 17)) / 5
    assert abs(mean - third["STS"]) <= ROUNDED
    assert (first["STS-B"], first["SICK-R"]) == (third["STS-B"], third["SICK-R"])


@pytest.mark.parametrize("number", SHAPES)
def test_presets_train_the_model_of_their_row(number: int) -> None:
    rows = [row for row in published_table(number).rows if row.preset]
    assert rows
    for row in rows:
        model = preset(row.preset).model
        assert (model.name, model.pooling) == (row.model, row.pooling)


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
        published_table(4)
