"""The claims against the paper's own arithmetic, worked out by hand from its tables."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest

from reproduce import render
from reproduce.claims import claims, claims_sheet
from reproduce.compare import build
from reproduce.layouts import LAYOUTS
from reproduce.printed_claims import CLAIMS
from scd_core.recipe import preset
from scd_core.run_info import RunInfo
from tests.reproduce.conftest import KEYS, TRANSFER_KEYS
from tests.reproduce.test_tables import EMBEDDING

MakeRun = Callable[..., RunInfo]


def computed(runs: list[RunInfo]) -> pd.DataFrame:
    return claims({name: build(name, runs) for name in LAYOUTS})


def one(frame: pd.DataFrame, claim: str, model: str = "bert-base-uncased") -> pd.Series:
    (index,) = frame.index[(frame["claim"] == claim) & (frame["model"] == model)]
    return frame.loc[index]


@pytest.mark.parametrize(
    ("claim", "model", "difference", "verdict"),
    [
        ("BERT: better than the next best on STS-B", "bert-base-uncased", 1.19, "as printed"),
        ("BERT: better than the next best on SICK-R", "bert-base-uncased", 3.81, "as printed"),
        ("BERT: better than the next best on SUBJ", "bert-base-uncased", 4.60, "other row"),
        ("BERT: better than the next best on MRPC", "bert-base-uncased", 2.20, "other row"),
        ("RoBERTa: better than SimCSE on STS15", "roberta-base", 0.55, "as printed"),
        ("RoBERTa: better than SimCSE on SICK-R", "roberta-base", 3.80, "as printed"),
        ("RoBERTa: better than SimCSE on Avg.", "roberta-base", 2.61, "as printed"),
        ("RoBERTa: better than SimCSE on SUBJ", "roberta-base", -5.93, "does not hold"),
        ("RoBERTa: better than SimCSE on MPQA", "roberta-base", -0.94, "does not hold"),
        ("RoBERTa: better than SimCSE on TREC", "roberta-base", 2.60, "holds"),
        ("both terms are better than L_C alone on STS", "bert-base-uncased", 7.48, "holds"),
        ("SCD is higher on STS than BERT-flow", "bert-base-uncased", 7.64, "holds"),
    ],
)
def test_from_the_published_tables(claim: str, model: str, difference: float, verdict: str) -> None:
    found = one(computed([]), claim, model)
    assert found["published"] == pytest.approx(difference, abs=1e-9)
    assert found["verdict"] == verdict
    assert found["measured_verdict"] == ""


@pytest.mark.parametrize(
    ("column", "best", "title"),
    [("SUBJ", 4.08, "BERT [CLS]-embedding"), ("MRPC", 1.47, "IS-BERT_base")],
)
def test_the_next_best_is_not_the_row_compared_with(column: str, best: float, title: str) -> None:
    """released-code row 22"""
    found = one(computed([]), f"BERT: better than the next best on {column}")
    assert found["next_best"] == pytest.approx(best, abs=1e-9)
    assert found["next_best_title"] == title


def test_nothing_is_said_of_figures_that_the_paper_does_not_print() -> None:
    frame = computed([])
    some = frame[frame["table"] == "figure2"]
    assert len(some)
    assert set(some["verdict"]) == {"not computable"}
    assert some["published"].isna().all()


def test_five_of_seven_benchmarks_are_almost_all() -> None:
    frame = computed([])
    seven = frame[frame["section"] == "3.3.2, almost all benchmarks"]
    assert seven["verdict"].value_counts().to_dict() == {"holds": 5, "does not hold": 2}


def test_from_measured_rows_of_any_encoder(make_evaluation: MakeRun) -> None:
    recipe = preset("scd-bundled").in_precision("fp32")
    params = {k: str(v) for k, v in recipe.symbols().items()}
    bundled = {"model": "bundled", "params": params}
    low, high = dict.fromkeys((*KEYS, *TRANSFER_KEYS), 70.0), {KEYS[5]: 72.0}
    runs = [
        make_evaluation("scd", 71.0, recipe_hash=recipe.hash, **bundled),
        make_evaluation("other", 99.0, recipe_hash="9" * 12, **bundled),
        make_evaluation("cls", metrics=low | high, **EMBEDDING, model="bundled"),
        make_evaluation(
            "flow", 60.0, method="flow", pooling="first_last", recipe_hash="", model="bundled"
        ),
    ]
    frame = computed(runs)
    stsb = one(frame, "BERT: better than the next best on STS-B", "bundled")
    assert (stsb["measured"], stsb["measured_verdict"]) == (pytest.approx(-1.0), "does not hold")
    assert (stsb["measured_against"], stsb["runs"]) == ("bundled, cls pooling", "scd cls")
    flow = one(frame, "SCD is higher on STS than BERT-flow", "bundled")
    assert (flow["measured"], flow["measured_verdict"]) == (pytest.approx(11.0), "holds")
    alone = frame[frame["claim"] == "both terms are better than L_C alone on STS"]
    assert alone["model"].tolist() == ["bert-base-uncased"]
    assert alone["measured"].isna().all()
    assert set(frame.loc[frame["claim"].str.startswith("RoBERTa"), "model"]) == {"roberta-base"}


def test_in_print(make_evaluation: MakeRun) -> None:
    text = render.markdown(claims_sheet(computed([make_evaluation("scd", 71.0)])))
    assert "| +1.19 | +1.19 | +1.19 (SimCSE-BERT_base) | as printed |" in text
    assert "| +4.6 | +4.60 | +4.08 (BERT [CLS]-embedding) | other row |" in text
    assert "later figure of 93.57" in text
    assert len({(claim.section, claim.text) for claim in CLAIMS}) == len(CLAIMS)
