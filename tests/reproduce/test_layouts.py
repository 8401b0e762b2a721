"""Tables 2 and 3 and Figure 2's columns from runs: which enter, and what stands where."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reproduce.compare import Table, build
from reproduce.layouts import CLASSIFIER, LAYOUTS, Name
from reproduce.published import published_table
from scd_core.evaluation.protocols import DEFAULT
from scd_core.recipe import preset
from scd_core.run_info import RunInfo
from tests.reproduce.conftest import KEYS, TRANSFER_KEYS
from tests.reproduce.test_tables import EMBEDDING, cell

MakeRun = Callable[..., RunInfo]
FITTED = {"recipe_hash": "f" * 12, "seed": ""}
ON_NLI = FITTED | {"params": {"data.corpus": "nli"}}
VECTORS = {"method.vectors": "glove.840B.300d.txt"}
BUNDLED = {"model": "bundled", "data_fingerprint": "b" * 64}


def rows(table: Table, section: str) -> list[str]:
    frame = table.frame
    return list(dict.fromkeys(frame.loc[frame["section"] == section, "title"]))


@pytest.mark.parametrize("name", ["table1", "table2", "table3", "figure2"])
def test_measured_columns_are_the_published_ones(name: Name) -> None:
    titles = [column.title for column in LAYOUTS[name].columns]
    for file in LAYOUTS[name].published:
        printed = list(published_table(file).columns)
        assert titles[: len(printed)] == printed


def test_table_2_is_of_transfer_metrics_alone() -> None:
    assert CLASSIFIER == DEFAULT
    columns = LAYOUTS["table2"].columns
    assert [c.keys for c in columns] == [*((key,) for key in TRANSFER_KEYS), TRANSFER_KEYS]


def test_table_3_takes_the_years_and_not_all_seven(make_run: MakeRun) -> None:
    """released-code row 25"""
    scores = dict(zip(KEYS, [10.0, 20.0, 30.0, 40.0, 50.0, 90.0, 80.0], strict=True))
    table = build("table3", [make_run("a", None, metrics=scores)])
    found = [cell(table, "scd-bert", c)["mean"] for c in ("STS", "STS-B", "SICK-R")]
    assert found == pytest.approx([30.0, 90.0, 80.0])


def test_a_training_is_in_tables_1_and_3_and_its_evaluation_in_all(
    make_run: MakeRun, make_evaluation: MakeRun
) -> None:
    runs = [make_run("t0", 70.0), make_evaluation("e0", 70.5, start_time=2000)]
    for name in ("table1", "table2", "table3", "figure2"):
        first = LAYOUTS[name].columns[0].title
        assert cell(build(name, runs), "scd-bert", first)["runs"] == "e0"
    assert cell(build("table1", runs[:1]), "scd-bert")["runs"] == "t0"
    assert cell(build("table2", runs[:1]), "scd-bert")["n"] == 0


def test_table_2_goes_by_the_transfer_protocol(make_evaluation: MakeRun) -> None:
    runs = [make_evaluation("a", 80.0), make_evaluation("b", 90.0, 1, **{"protocol.transfer": "x"})]
    runs.append(make_evaluation("c", 82.0, 2))
    table = build("table2", runs)
    assert (table.protocol, cell(table, "scd-bert")["runs"]) == ("transfer-a", "a c")
    assert cell(build("table1", runs), "scd-bert")["runs"] == "a b c"
    assert cell(build("table2", runs, "x"), "scd-bert")["mean"] == 90.0


def test_scores_on_damaged_data_enter_no_table(make_evaluation: MakeRun) -> None:
    run = make_evaluation("a")
    run.metrics["test.subj.accuracy_senteval-default_damaged"] = run.metrics.pop(TRANSFER_KEYS[2])
    table = build("table2", [run])
    assert (table.frame["n"] == 0).all()
    assert f"Left out, without {TRANSFER_KEYS[2]}: 1 (a)." in table.notes


def test_the_later_figures_stand_beside_the_same_runs(make_evaluation: MakeRun) -> None:
    table = build("table2", [make_evaluation("a", 80.0)])
    later, printed = cell(table, "scd-bert-later"), cell(table, "scd-bert")
    assert (later["section"], later["published"], later["runs"]) == ("later", 84.35, "a")
    assert (printed["published"], printed["mean"]) == (85.52, later["mean"])


def test_a_training_without_transfer_scores_is_only_to_be_evaluated(make_run: MakeRun) -> None:
    table = build("table2", [make_run("f" * 32, seed=1)])
    train = "python -m scd_core.train --preset scd-bert-paper --seed"
    assert cell(table, "scd-bert")["fill"].split(" && ") == [
        f"{train} 0",
        "python -m scd_core.evaluate RUN_ID --tasks transfer --track",
        f"python -m scd_core.evaluate {'f' * 32} --tasks transfer --track",
        f"{train} 2",
        "python -m scd_core.evaluate RUN_ID --tasks transfer --track",
    ]


def test_the_ablation_presets_are_its_rows(make_run: MakeRun) -> None:
    names = {
        "scd-bert-self": "scd-bert-self-contrast",
        "scd-bert-decorrelation": "scd-bert-decorrelation",
    }
    for row, name in names.items():
        recipe = preset(name).in_precision("bf16")
        params = {k: str(v) for k, v in recipe.symbols().items()}
        table = build("table3", [make_run("a", 50.0, recipe_hash=recipe.hash, params=params)])
        assert cell(table, row, "STS")["n"] == 1
        assert (table.frame["n"] > 0).sum() == 3


def test_other_encoders_stand_below_by_model_as_the_paper_orders_them(make_run: MakeRun) -> None:
    recipe = preset("scd-bundled").in_precision("fp32")

    def trained(run_id: str, hashed: str = recipe.hash, **settings: str) -> RunInfo:
        params = {k: str(v) for k, v in recipe.symbols().items()} | settings
        return make_run(run_id, recipe_hash=hashed, params=params, **BUNDLED)

    runs = [
        trained("scd"),
        trained("self", hashed="1" * 12, alpha="0.0"),
        trained("corr", hashed="2" * 12, **{"objective.self_weight": "0.0"}),
        make_run("whitening", method="whitening", recipe_hash="", **BUNDLED),
        make_run("cls", **EMBEDDING | BUNDLED),
        make_run("mean", **EMBEDDING | BUNDLED | {"pooling": "mean"}),
        make_run("zeta", **EMBEDDING | {"model": "zeta"}),
    ]
    assert rows(build("table1", runs), "other") == [
        "bundled, cls pooling",
        "bundled, mean pooling",
        "bundled, whitening, cls pooling",
        "bundled, SCD (L_C), 150 steps of 64, on wiki1m",
        "bundled, SCD (L_S), 150 steps of 64, on wiki1m",
        "bundled, SCD, scd-bundled, on wiki1m",
        "zeta, cls pooling",
    ]
    assert rows(build("table3", runs), "other") == [
        "bundled, cls pooling",
        "bundled, SCD (L_C), 150 steps of 64, on wiki1m",
        "bundled, SCD (L_S), 150 steps of 64, on wiki1m",
        "bundled, SCD, scd-bundled, on wiki1m",
        "zeta, cls pooling",
    ]


def test_other_methods_find_their_published_row(make_evaluation: MakeRun) -> None:
    simcse = preset("simcse-bert-paper").in_precision("fp32").hash
    runs = [
        make_evaluation("w", method="whitening", pooling="first_last", **ON_NLI),
        make_evaluation("s", method="simcse", recipe_hash=simcse),
        make_evaluation("g", method="glove", model="", pooling="mean", params=VECTORS, **FITTED),
    ]
    table = build("table1", runs)
    assert cell(table, "bert-whitening")["runs"] == "w"
    assert cell(table, "simcse-bert")["runs"] == "s"
    assert cell(table, "glove")["runs"] == "g"
    assert rows(table, "other") == []
