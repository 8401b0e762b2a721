"""Runs that look like a row's and are not, and rows that must not be compared."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reproduce.claims import claims
from reproduce.compare import Table, build
from reproduce.fidelity import ABLATIONS, variants
from reproduce.layouts import LAYOUTS
from scd_core.recipe import Recipe, preset
from scd_core.run_info import RunInfo
from tests.reproduce.conftest import KEYS, PAPER
from tests.reproduce.test_layouts import BUNDLED, FITTED, ON_NLI, VECTORS, rows
from tests.reproduce.test_tables import EMBEDDING, cell

MakeRun = Callable[..., RunInfo]
BASE = preset("scd-bundled").in_precision("fp32")
SIMCSE = preset("simcse-bert-paper").in_precision("fp32")
FLOW = {"recipe_hash": "f" * 12, "params": {"data.corpus": "nli"}}


def of(recipe: Recipe, **changes: Any) -> dict[str, Any]:
    """Tags and parameters of runs of a recipe."""
    params = {k: str(v) for k, v in recipe.symbols().items()} | changes.pop("params", {})
    told = {"method": recipe.method, "model": recipe.model.name, "recipe_hash": recipe.hash}
    return told | {"params": params} | changes


def measured(table: Table, row: str) -> tuple[str, int]:
    found = cell(table, row)
    return found["runs"], found["n"]


def test_another_pooling_is_another_row(make_run: MakeRun, make_evaluation: MakeRun) -> None:
    trained = [make_run(f"t{s}", 74.0, s) for s in range(3)]
    mean = [
        make_evaluation(f"m{s}", 60.0, s, pooling="mean", trained_by=f"t{s}", start_time=2000)
        for s in range(3)
    ]
    table = build("table1", [*trained, *mean])
    assert measured(table, "scd-bert") == ("t0 t1 t2", 3)
    assert rows(table, "other") == [
        "bert-base-uncased, SCD, scd-bert-paper, mean pooling, on wiki1m"
    ]


@pytest.mark.parametrize("status", ["KILLED", "RUNNING", "FAILED", None])
def test_an_evaluation_of_an_unfinished_training_does_not_count(
    make_run: MakeRun, make_evaluation: MakeRun, status: str | None
) -> None:
    runs = [make_run(f"t{s}", 70.0 + s, s) for s in range(2)]
    runs += [make_run("t2", None, 2, status=status)] if status else []  # None: deleted
    runs.append(make_evaluation("e2", 55.0, 2, trained_by="t2", start_time=2000))
    table = build("table1", runs)
    assert measured(table, "scd-bert") == ("t0 t1", 2)
    assert any("a training that is not FINISHED" in note and "e2" in note for note in table.notes)


def test_a_row_of_an_encoder_of_its_own_takes_no_training(make_evaluation: MakeRun) -> None:
    """Skip-thought's published row is of a GRU: neither ours nor a rival of every encoder."""
    recipe = of(BASE, method="skip-thought", recipe_hash="5" * 12)
    runs = [make_evaluation("k", 99.0, **recipe), make_evaluation("s", 80.0, **of(PAPER))]
    tables = {name: build(name, runs) for name in LAYOUTS}
    assert measured(tables["table2"], "skip-thought") == ("", 0)
    assert "k" not in set(claims(tables)["runs"].str.split().sum())


def test_only_the_published_vectors_are_the_published_glove(make_evaluation: MakeRun) -> None:
    def glove(name: str, score: float, file: str, **changes: Any) -> RunInfo:
        told = FITTED | {"method": "glove", "model": "", "pooling": "mean"} | changes
        return make_evaluation(name, score, params={"method.vectors": file}, **told)

    small = glove("small", 40.0, "glove.6B.50d.txt", recipe_hash="6" * 12, start_time=2000)
    table = build("table1", [glove("whole", 61.0, VECTORS["method.vectors"]), small])
    assert measured(table, "glove") == ("whole", 1)
    assert rows(table, "other") == ["GloVe, mean pooling, on glove.6B.50d.txt"]


@pytest.mark.parametrize(("score", "verdict"), [(66.28, "within"), (50.0, "outside")])
def test_what_has_no_seed_has_a_verdict(
    make_evaluation: MakeRun, score: float, verdict: str
) -> None:
    run = make_evaluation("w", score, method="whitening", pooling="first_last", **ON_NLI)
    assert cell(build("table1", [run]), "bert-whitening")["verdict"] == verdict


def test_published_flow_and_whitening_are_fitted_on_nli(
    make_run: MakeRun, make_evaluation: MakeRun
) -> None:
    """Of first-last average vectors, in all their dimensions; and no other one is SCD's rival."""

    def whitened(name: str, corpus: str, pooling: str = "first_last", **params: str) -> RunInfo:
        told = {"params": {"data.corpus": corpus, "method.dimensions": "None"} | params}
        changes = FITTED | told | {"recipe_hash": name.ljust(12, "0")}
        return make_evaluation(name, 79.0, method="whitening", pooling=pooling, **changes)

    others = [
        whitened("a", "target (sts12 test, stsb test)"),
        whitened("b", "tweets.csv"),
        whitened("c", "nli", "cls"),
        whitened("d", "nli", **{"method.dimensions": "8"}),
    ]
    scd = make_run("scd", 74.0)
    table = build("table1", [scd, *others])
    assert measured(table, "bert-whitening") == ("", 0)
    title = "bert-base-uncased, whitening, first_last pooling, on"
    assert {f"{title} target", f"{title} tweets.csv"} < set(rows(table, "other"))
    published = whitened("e", "nli")
    assert measured(build("table1", [*others, published]), "bert-whitening") == ("e", 1)
    claim = "SCD is higher on STS than BERT-whitening"
    assert claimed([scd, *others, published], claim) == (-5.0, "scd e")


def test_a_claim_takes_no_flow_of_other_vectors(
    make_run: MakeRun, make_evaluation: MakeRun
) -> None:
    told = BUNDLED | {"params": {"data.corpus": "nli"}, "seed": ""}
    runs = [make_run("scd", 75.0, **of(BASE, **BUNDLED))]
    for pooling, score in (("cls", 79.0), ("first_last", 70.0)):
        changes = told | {"recipe_hash": pooling[0] * 12, "pooling": pooling}
        runs.append(make_evaluation(pooling, score, method="whitening", **changes))
    assert claimed(runs, "SCD is higher on STS than BERT-whitening") == (5.0, "scd first_last")


def test_what_a_flow_lacks_is_fitted(make_evaluation: MakeRun) -> None:
    runs = [make_evaluation("f", 66.0, 0, method="flow", pooling="first_last", **FLOW)]
    fill = "python -m reproduce.runs --table 1 --backbone bert-base-uncased --methods flow"
    assert cell(build("table1", runs), "bert-flow")["fill"] == fill
    runs += [
        make_evaluation(f"f{s}", 66.0, s, method="flow", pooling="first_last", **FLOW)
        for s in (1, 2)
    ]
    assert cell(build("table1", runs), "bert-flow")["fill"] == ""


def test_one_content_by_two_names_is_one_row(make_run: MakeRun) -> None:
    """A seed that named the published sentences by their path takes no other seed's row away."""
    path = {"data.corpus": "data/wiki1m_for_simcse.txt"}
    runs = [make_run("a", 70.0, 0), make_run("b", 71.0, 1)]
    for start in (1, 9000):
        run = make_run("c", 72.0, 2, start_time=start, **of(PAPER, params=path))
        assert measured(build("table1", [*runs, run]), "scd-bert") == ("a b c", 3)


def test_a_setting_is_judged_in_the_precision_of_its_base(make_run: MakeRun) -> None:
    (variant,) = [v for v in variants("scd-bundled") if v.id == "temperature"]
    fp32 = of(BASE, **BUNDLED)
    bf16 = of(variant.of(preset("scd-bundled").in_precision("bf16")), **BUNDLED)
    runs = [make_run(f"b{s}", 77.0, s, **fp32) for s in range(3)]
    runs += [make_run(f"v{s}", 75.0, s, **bf16) for s in range(3)]
    table = build("fidelity", runs)
    assert measured(table, "scd-bundled")[1] == 3
    assert measured(table, "scd-bundled/temperature")[1] == 0
    assert (
        cell(table, "scd-bundled/temperature")["fill"]
        .split(" && ")[0]
        .endswith("--objective.temperature 0.05 --optim.precision fp32 --seed 0")
    )


def test_what_fills_a_row_reads_what_its_base_read(make_run: MakeRun) -> None:
    told = of(BASE, params={"data.corpus": "documentation"}, **BUNDLED)
    table = build("fidelity", [make_run(f"b{s}", 77.0, s, **told) for s in range(3)])
    assert cell(table, "scd-bundled")["fill"] == ""
    fill = cell(table, "scd-bundled/lambda")["fill"].split(" && ")
    assert len(fill) == 3
    assert all("--objective.lam 0.012" in one and "--corpus documentation" in one for one in fill)


def test_a_seed_in_another_precision_is_trained_and_not_evaluated(make_run: MakeRun) -> None:
    bf16 = of(preset("scd-bert-paper").in_precision("bf16"))
    runs = [make_run("a", 70.0, 0), make_run("b", 71.0, 1), make_run("c", 72.0, 2, **bf16)]
    found = cell(build("table1", runs), "scd-bert")
    assert found["runs"] == "a b"
    assert found["fill"] == (
        "python -m scd_core.train --preset scd-bert-paper --optim.precision fp32 --seed 2"
    )


def test_precisions_have_titles_of_their_own(make_run: MakeRun) -> None:
    bf16 = of(preset("scd-bundled").in_precision("bf16"), **BUNDLED)
    runs = [make_run("a", 77.0, **of(BASE, **BUNDLED)), make_run("b", 75.0, **bf16)]
    title = "bundled, SCD, scd-bundled, on wiki1m"
    assert sorted(rows(build("table1", runs), "other")) == [f"{title}, bf16", f"{title}, fp32"]


def claimed(runs: list[RunInfo], claim: str) -> tuple[float | None, str]:
    frame = claims({name: build(name, runs) for name in LAYOUTS})
    (found,) = frame[(frame["claim"] == claim) & frame["measured"].notna()].to_dict("records")
    return round(found["measured"], 6), found["runs"]


def test_a_claim_is_of_the_row_that_the_table_shows(
    make_run: MakeRun, make_evaluation: MakeRun
) -> None:
    """A smoke test of the same recipe on other sentences has more seeds."""
    smoke = of(PAPER, params={"data.corpus": "smoke.txt"}, data_fingerprint="s" * 64)
    runs = [make_run("paper", 74.0), *(make_run(f"smoke{s}", 40.0, s, **smoke) for s in range(2))]
    runs.append(make_evaluation("flow", 66.0, method="flow", pooling="first_last", **ON_NLI))
    assert claimed(runs, "SCD is higher on STS than BERT-flow") == (8.0, "paper flow")


def test_terms_are_compared_on_the_same_sentences(make_run: MakeRun) -> None:
    alone = preset("scd-bert-decorrelation").in_precision("fp32")
    other = of(alone, data_fingerprint="o" * 64)
    claim = "both terms are better than L_C alone on STS"
    runs = [make_run("both", 74.0), make_run("other", 90.0, 0, **other)]
    frame = claims({name: build(name, runs) for name in LAYOUTS})
    assert frame.loc[frame["claim"] == claim, "measured"].isna().all()
    runs.append(make_run("same", 70.0, 1, **of(alone)))
    assert claimed(runs[:1] + runs[2:], claim) == (4.0, "both same")


def test_no_other_row_stands_in_for_one_that_cannot_be_compared(make_run: MakeRun) -> None:
    """SimCSE in another precision is no rival, and a smoke test in SCD's own is none either."""
    scd = preset("scd-roberta-paper").in_precision("fp32")
    simcse = preset("simcse-roberta-paper")
    smoke = of(simcse.in_precision("fp32"), recipe_hash="9" * 12)
    runs = [
        make_run("scd", 74.0, **of(scd)),
        make_run("simcse", 76.0, **of(simcse.in_precision("bf16"))),
        make_run("smoke", 15.0, **smoke),
    ]
    frame = claims({name: build(name, runs) for name in LAYOUTS})
    own = frame[frame["model"] == "roberta-base"]
    assert len(own)
    assert own["measured"].isna().all()


def test_of_two_precisions_the_one_with_a_rival_is_compared(make_run: MakeRun) -> None:
    both, alone = preset("scd-bundled"), variant_of("decorrelation")
    told = BUNDLED
    runs = [make_run(f"f{s}", 77.0, s, **of(both.in_precision("fp32"), **told)) for s in range(3)]
    runs += [make_run(f"b{s}", 78.0, s, **of(both.in_precision("bf16"), **told)) for s in range(2)]
    runs += [make_run(f"c{s}", 70.0, s, **of(alone.in_precision("bf16"), **told)) for s in range(2)]
    assert claimed(runs, "both terms are better than L_C alone on STS") == (8.0, "b0 b1 c0 c1")


def variant_of(name: str) -> Recipe:
    (variant,) = [v for v in ABLATIONS if v.id == name]
    return variant.of(preset("scd-bundled"))


def test_together_changed_settings_stay_in_the_tables(make_run: MakeRun) -> None:
    (released,) = [v for v in variants("scd-bundled") if v.id == "released"]
    (single,) = [v for v in variants("scd-bundled") if v.id == "lambda"]
    told = [of(BASE, **BUNDLED), *(of(v.of(BASE), **BUNDLED) for v in (released, single))]
    runs = [make_run(str(i), 70.0, **one) for i, one in enumerate(told)]
    table = build("table1", runs)
    assert set(table.frame.loc[table.frame["section"] == "other", "runs"]) == {"0", "1"}
    assert set(build("fidelity", runs).frame["runs"]) >= {"0", "1", "2"}


def test_without_the_base_in_a_table_its_variants_stand_there(
    make_run: MakeRun, make_evaluation: MakeRun
) -> None:
    """The base has no transfer scores, so that the other precision is not excluded by it."""
    (single,) = [v for v in variants("scd-bundled") if v.id == "lambda"]
    bf16 = of(single.of(preset("scd-bundled").in_precision("bf16")), **BUNDLED)
    runs = [make_run("base", 77.0, **of(BASE, **BUNDLED)), make_evaluation("v", 70.0, **bf16)]
    table = build("table2", runs)
    assert set(table.frame.loc[table.frame["section"] == "other", "runs"]) == {"v"}
    assert not any("fidelity table alone" in note for note in table.notes)


def test_commands_can_be_pasted(make_run: MakeRun) -> None:
    told = of(BASE, params={"data.corpus": "/a b/it's.txt"}, **BUNDLED)
    fill = cell(build("fidelity", [make_run("b", 77.0, **told)]), "scd-bundled/lambda")["fill"]
    words = shlex.split(fill.split(" && ")[0])
    place = words[words.index("--corpus") + 1]
    assert not Path(place).is_absolute()
    assert Path(place).resolve() == Path("/a b/it's.txt").resolve()


def test_data_of_another_content_are_trained_on_again(make_run: MakeRun) -> None:
    """A training on a file of that name whose content has changed since fills no seed."""
    runs = [make_run("a", 70.0, 0), make_run("b", 71.0, 1)]
    runs.append(make_run("changed", None, 2, data_fingerprint="c" * 64))
    fill = cell(build("table1", runs), "scd-bert")["fill"]
    assert fill.startswith("python -m scd_core.train")


def test_the_same_data_in_another_place_is_the_same_data(make_run: MakeRun) -> None:
    """A training whose file lay elsewhere is only to be scored."""
    runs = [make_run("a", 70.0, 0), make_run("b", 71.0, 1)]
    runs.append(make_run("moved", None, 2, params={"data.corpus": "elsewhere/wiki1m.txt"}))
    fill = cell(build("table1", runs), "scd-bert")["fill"]
    assert fill == "python -m scd_core.evaluate moved --track"


def test_lengths_have_titles_of_their_own(make_evaluation: MakeRun) -> None:
    runs = [
        make_evaluation(str(n), **EMBEDDING | BUNDLED, params={"evaluation.max_length": str(n)})
        for n in (32, 512)
    ]
    title = "bundled, cls pooling"
    wanted = [f"{title}, at 32 tokens", f"{title}, at 512 tokens"]
    assert sorted(rows(build("table1", runs), "other")) == wanted


def test_the_next_best_is_of_the_methods_that_the_paper_prints(make_run: MakeRun) -> None:
    supervised = preset("simcse-supervised-bert-paper").in_precision("fp32")
    runs = [
        make_run("scd", 74.0),
        make_run("simcse", 73.0, **of(SIMCSE)),
        make_run("supervised", 81.0, **of(supervised)),
    ]
    claim = "BERT: better than the next best on STS-B"
    assert claimed(runs, claim) == (1.0, "scd simcse")


def test_an_undefined_shape_is_an_empty_cell_and_not_a_seed_less(make_evaluation: MakeRun) -> None:
    shapeless = dict.fromkeys(KEYS, 70.0)
    names = "test.geometry.alignment test.geometry.uniformity"
    runs = [make_evaluation(f"g{s}", 70.0, s) for s in range(2)]
    other = make_evaluation("g2", 70.0, 2, undefined=names)
    for name in names.split():
        del other.metrics[name]
    assert set(shapeless) <= set(other.metrics)
    found = cell(build("figure2", [*runs, other]), "scd-bert", "uniformity")
    assert (found["n"], found["undefined"]) == (3, 1)
    assert found["mean"] is None or found["mean"] != found["mean"]
