"""Tables from runs, and the whole command on a real MLflow store."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
from mlflow import MlflowClient
from rich.console import Console

from reproduce import render
from reproduce.compare import Table, build
from reproduce.layouts import LAYOUTS
from reproduce.published import FOLDER, published_table
from reproduce.sheet import NO_COMMAND, Line, sheet
from reproduce.tables import Source, run
from scd_core.recipe import preset
from scd_core.run_info import RunInfo
from scd_core.tracking import Tracking

MakeRun = Callable[..., RunInfo]
EMBEDDING = {"kind": "evaluation", "method": "embedding", "recipe_hash": "", "seed": ""}


def shown(table: Table, what: str = "") -> list[Line]:
    """The printed lines of a kind."""
    return [line for line in sheet(table).lines if what in ("", line.kind)]


def cell(table: Table, row: str, column: str = "Avg.") -> pd.Series:
    frame = table.frame
    (index,) = frame.index[(frame["row"] == row) & (frame["column"] == column)]
    return frame.loc[index]


def test_columns_are_the_seven_tasks_and_their_average() -> None:
    tasks = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
    keys = tuple(f"test.{task}.spearman_all" for task in tasks)
    columns = LAYOUTS["table1"].columns
    assert tuple(c.title for c in columns) == published_table("table1").columns
    assert [c.keys for c in columns] == [*((key,) for key in keys), keys]


def test_nothing_measured_claims_nothing() -> None:
    table = build("table1", [])
    assert list(dict.fromkeys(table.frame["row"])) == [r.id for r in published_table("table1").rows]
    assert table.frame[["mean", "sd", "difference"]].isna().all(axis=None)
    assert (table.frame["n"] == 0).all()
    assert table.frame["published"].notna().all()
    assert table.protocol is None


def test_every_row_names_the_command_that_fills_it() -> None:
    table = build("table1", [])
    train = [f"python -m scd_core.train --preset scd-bert-paper --seed {s}" for s in (0, 1, 2)]
    assert cell(table, "scd-bert")["fill"].split(" && ") == train
    evaluate = "python -m scd_core.evaluate"
    assert cell(table, "bert-cls")["fill"] == f"{evaluate} bert-base-uncased --pooling cls --track"
    assert (
        cell(table, "roberta-first-last")["fill"]
        == f"{evaluate} roberta-base --pooling first_last --track"
    )
    evidence = dict(sheet(table).evidence)
    fitted = "python -m reproduce.runs --table 1 --backbone bert-base-uncased --methods flow"
    assert cell(table, "bert-flow")["fill"] == fitted
    glove = "python -m reproduce.runs --table 1 --backbone bundled --methods glove --glove FILE"
    assert evidence["GloVe embeddings (avg.)"] == (f"to fill: {glove}",)
    of_table_2 = dict(sheet(build("table2", [])).evidence)
    assert of_table_2["Skip-thought"] == (f"to fill: {NO_COMMAND}",)
    loop = train[0].replace("--seed 0", "--seed $seed")
    assert evidence["SCD-BERT_base"] == (f"to fill: for seed in 0 1 2; do {loop}; done",)


def test_e6_in_the_table(e6_store: list[RunInfo]) -> None:
    table = build("table1", e6_store)
    average = cell(table, "scd-bert")
    assert (average["published"], average["n"]) == (74.19, 3)
    assert average["mean"] == pytest.approx(71.0)
    assert average["sd"] == pytest.approx(1.0)
    assert average["difference"] == pytest.approx(71.0 - 74.19)
    assert (average["seeds"], average["runs"], average["fill"]) == (
        "0 1 2",
        "seed0 seed1 seed2",
        "",
    )
    (repeat,) = [note for note in table.notes if "run again" in note]
    assert "seed 0 " in repeat
    assert "seed0, started last, counts; repeat-old does not" in repeat
    smoke = cell(table, f"scd/bert-base-uncased/cls/{'0' * 12}/{'d' * 12}")
    assert (smoke["section"], smoke["mean"], smoke["n"]) == ("other", 15.0, 1)
    assert "other" not in " ".join(table.frame["runs"]).split()
    assert "99" not in " ".join(f"{v:.0f}" for v in table.frame["mean"].dropna())


def test_a_missing_seed_is_named(e6_store: list[RunInfo]) -> None:
    table = build("table1", [run for run in e6_store if run.run_id != "seed1"])
    average = cell(table, "scd-bert")
    assert (average["n"], average["seeds"]) == (2, "0 2")
    train = "python -m scd_core.train --preset scd-bert-paper --optim.precision fp32"
    assert average["fill"] == f"{train} --seed 1"
    rows = list(dict.fromkeys(table.frame["row"]))
    assert rows == list(dict.fromkeys(build("table1", e6_store).frame["row"]))


def everything(table: Table) -> list[str]:
    """A table in every format that is written."""
    one = sheet(table)
    return [
        *(make(one) for make in (render.csv, render.markdown, render.latex)),
        render.html("", [one]),
    ]


def test_any_order_of_runs_gives_the_same_bytes(e6_store: list[RunInfo]) -> None:
    expected = everything(build("table1", e6_store))
    for seed in range(10):
        table = build("table1", random.Random(seed).sample(e6_store, len(e6_store)))
        assert everything(table) == expected


@pytest.mark.parametrize(
    ("setting", "value"), [("data.corpus", "documentation"), ("data.dev", "sample")]
)
def test_the_recipe_on_other_data_is_not_the_published_row(
    make_run: MakeRun, setting: str, value: str
) -> None:
    params = {k: str(v) for k, v in preset("scd-bert-paper").symbols().items()}
    table = build("table1", [make_run("a", params=params | {setting: value})])
    assert cell(table, "scd-bert")["n"] == 0
    assert set(table.frame.loc[table.frame["n"] == 1, "section"]) == {"other"}


def test_a_preset_in_either_precision_is_the_published_row(make_run: MakeRun) -> None:
    """A preset leaves the precision to the machine; two precisions are never averaged."""
    bf16 = preset("scd-bert-paper").in_precision("bf16")
    runs = [make_run("a", 70.0), make_run("b", 71.0, 1)]
    half = make_run("c", 80.0, recipe_hash=bf16.hash)
    assert cell(build("table1", [half]), "scd-bert")["mean"] == pytest.approx(80.0)
    assert cell(build("table1", [*runs, half]), "scd-bert")["mean"] == pytest.approx(70.5)


def test_of_two_data_sets_the_one_with_most_seeds_is_the_published_row(make_run: MakeRun) -> None:
    runs = [make_run("a", 70.0, 0), make_run("b", 71.0, 1)]
    runs.append(make_run("c", 80.0, 2, start_time=9000, data_fingerprint="e" * 64))
    table = build("table1", runs)
    assert cell(table, "scd-bert")["runs"] == "a b"
    assert table.frame.loc[table.frame["section"] == "other", "runs"].unique().tolist() == ["c"]


def test_evaluated_models_find_their_row_or_their_own(make_run: MakeRun) -> None:
    runs = [
        make_run("a", 31.0, **EMBEDDING),
        make_run("b", 56.0, **EMBEDDING | {"pooling": "first_last"}),
        make_run("c", 77.0, **EMBEDDING | {"model": "bundled", "pooling": "mean"}),
    ]
    table = build("table1", runs)
    assert (cell(table, "bert-cls")["runs"], cell(table, "bert-cls")["fill"]) == ("a", "")
    assert cell(table, "bert-first-last")["runs"] == "b"
    other = table.frame[table.frame["section"] == "other"]
    assert other["title"].unique().tolist() == ["bundled, mean pooling"]
    assert other["published"].isna().all()


def test_an_evaluation_of_cut_sentences_is_no_repeat_of_a_whole_one(make_run: MakeRun) -> None:
    whole = make_run("whole", 31.0, **EMBEDDING, params={"evaluation.max_length": "512"})
    cut = make_run("cut", 20.0, **EMBEDDING, params={"evaluation.max_length": "8"}, start_time=9000)
    table = build("table1", [whole, cut])
    assert cell(table, "bert-cls")["runs"] == "whole"
    assert table.frame.loc[table.frame["section"] == "other", "runs"].unique().tolist() == ["cut"]


def test_an_undefined_score_is_an_empty_cell_in_print(make_run: MakeRun) -> None:
    key = "test.sickr.spearman_all"
    run = make_run("a", 70.0, undefined=key)
    table = build("table1", [run])
    (line,) = [li for li in shown(table, "measured") if li.cells[-1] == "1"]
    assert line.cells[2:-1] == ("70.00",) * 6 + ("", "")
    assert "SICK-R is empty: undefined in 1 of 1 runs" in render.markdown(sheet(table))


def test_numbers_are_rounded_in_print_only(make_run: MakeRun) -> None:
    table = build("table1", [make_run("a", 70.126), make_run("b", 70.133, seed=1)])
    frame = pd.read_csv(StringIO(render.csv(sheet(table))))
    assert frame.loc[frame["n"] == 2, "mean"].tolist() == pytest.approx([70.1295] * 8, abs=1e-9)
    (deviation,) = shown(table, "sd")
    assert deviation.cells[2] == "0.00"
    assert "70.13" in render.markdown(sheet(table))


def test_a_narrow_terminal_cuts_no_digit(e6_store: list[RunInfo]) -> None:
    table, stream = build("table1", e6_store), StringIO()
    render.terminal(sheet(table), Console(file=stream, width=40))
    text = stream.getvalue()
    assert "…" not in text
    for line in shown(table):
        assert all(number in text for number in line.cells[1:])
    assert "BERT_base [CLS]-embedding" in text


def test_ten_thousand_runs_take_seconds(make_run: MakeRun) -> None:
    runs = [make_run(f"{i}", 70.0, i % 5, recipe_hash=f"{i // 5:012x}") for i in range(10_000)]
    started = time.perf_counter()
    build("table1", runs)
    assert time.perf_counter() - started < 10


@pytest.fixture
def store(make_run: MakeRun) -> tuple[Tracking, dict[str, str]]:
    """The store of case E6 in SQLite, and the run ids by what they are."""
    tracking, ids = Tracking(), {}

    def add(what: str, score: float, status: str = "FINISHED", **changes: object) -> None:
        run = make_run(what, score, **changes)
        kind = run.tags["scd.kind"]
        ids[what] = tracking.start(kind, what, run.tags, run.params)
        tracking.log(ids[what], run.metrics)
        tracking.finish(ids[what], status)
        time.sleep(0.002)  # start times in whole milliseconds tell repeats apart

    add("repeat-old", 60.0)
    for seed, score in enumerate((70.0, 71.0, 72.0)):
        add(f"seed{seed}", score, seed=seed)
    add("failed", 20.0, status="FAILED", seed=2)
    add("deleted", 10.0, seed=1)
    add("parent", 72.0, kind="search")
    add("smoke", 15.0, recipe_hash="0" * 12)
    MlflowClient(tracking.uri).delete_run(ids["deleted"])
    return tracking, ids


def test_the_command_on_a_real_store(
    store: tuple[Tracking, dict[str, str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, ids = store
    assert run(["--table", "1", "--format", "csv"]) == 0
    printed = capsys.readouterr().out
    frame = pd.read_csv(StringIO(printed))
    row = frame[(frame["row"] == "scd-bert") & (frame["column"] == "Avg.")].iloc[0]
    assert row["mean"] == pytest.approx(71.0)
    assert row["sd"] == pytest.approx(1.0)
    assert row["runs"].split() == [ids["seed0"], ids["seed1"], ids["seed2"]]
    assert run(["--output", str(tmp_path / "results")]) == 0
    assert (tmp_path / "results" / "table1.csv").read_text(encoding="utf-8") == printed
    assert "trainings and evaluations of sqlite:///" in capsys.readouterr().out
    text = (tmp_path / "results" / "table1.md").read_text(encoding="utf-8")
    assert ids["seed0"] in text
    assert f"{ids['seed0']}, started last, counts; {ids['repeat-old']} does not" in text
    assert ids["deleted"] not in text
    assert ids["parent"] not in text
    assert f"FAILED, not FINISHED: 1 ({ids['failed']})" in text
    with pytest.raises(ValueError, match="protocol-a"):
        run(["--protocol", "unknown"])
    # no run of it has Figure 2's values: that table is empty and the others are not
    assert run(["--protocol", "protocol-a", "--claims", "--table", "1"]) == 0


def test_a_beginning_of_several_protocols_is_refused_everywhere(
    make_run: MakeRun, make_evaluation: MakeRun
) -> None:
    """Also where one table has only one of them."""
    runs = [make_evaluation("a"), make_run("b", protocol="protocol-b")]
    with pytest.raises(ValueError, match="fits 2 protocols"):
        Source(runs, protocol="protocol").tables(LAYOUTS)


def test_an_unknown_protocol_is_refused_whatever_else_is_asked(make_evaluation: MakeRun) -> None:
    source = Source([make_evaluation("a")], protocol="typo", transfer_protocol="transfer-a")
    with pytest.raises(ValueError, match="'typo' fits 0 protocols"):
        source.tables(("table1", "table2"))


def test_a_table_without_the_protocol_says_so(make_run: MakeRun, make_evaluation: MakeRun) -> None:
    runs = [make_evaluation("a"), make_run("b", protocol="protocol-b")]
    found = Source(runs, protocol="protocol-b").tables(("table1", "figure2"))
    assert cell(found["table1"], "scd-bert")["runs"] == "b"
    assert (found["figure2"].frame["n"] == 0).all()
    assert any("'protocol-b' fits 0 protocols" in note for note in found["figure2"].notes)


def test_without_a_store_nothing_is_written(
    own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([]) == 0
    assert "Nothing is measured" in capsys.readouterr().out
    assert not own_home.exists()


def test_published_numbers_print_as_the_paper_prints_them() -> None:
    text = (FOLDER / "table1.csv").read_text(encoding="utf-8")
    printed = [line.split(",")[-8:] for line in text.splitlines()[1:]]
    lines = shown(build("table1", []), "published")
    assert [list(line.cells[2:-1]) for line in lines] == printed
