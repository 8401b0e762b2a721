"""Which runs a table needs, which of them are there, and what is run of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from reproduce import jobs, runs
from scd_core.evaluation.suite import Suite, load_suite
from scd_core.evaluation.tasks import load_sample_test
from scd_core.inputs import prepare
from scd_core.models import model_fingerprint, model_folder
from scd_core.recipe import from_toml
from scd_core.tracking import Tracking
from tests.conftest import WORDS

SAMPLE = Suite(("sample",), tuple(load_sample_test()), ())
PROTOCOL = SAMPLE.protocols("senteval-default", 1111, None)["sts"]
Ran = list[str]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """The commands that were run; each leaves a finished run in MLflow and computes nothing."""
    calls: Ran = []

    def train(arguments: Sequence[str]) -> int:
        inputs = prepare(from_toml(Path(arguments[1])))
        calls.append(f"train {inputs.recipe.method} {inputs.recipe.seed}")
        store = Tracking()
        tags = inputs.tags() | {"scd.protocol": PROTOCOL}
        store.finish(store.start("train", "stub", tags, {}))
        return 0

    def evaluate(arguments: Sequence[str]) -> int:
        calls.append("evaluate " + " ".join(arguments[1:5]))
        store = Tracking()
        if arguments[1] == "--pooling":
            fingerprint = model_fingerprint(model_folder(arguments[0]))
            tags = {
                "scd.method": "embedding",
                "scd.pooling": arguments[2],
                "scd.model_fingerprint": fingerprint,
            }
        else:
            tags = {"scd.trained_by": arguments[0]}
        store.finish(store.start("evaluation", "stub", tags | {"scd.protocol": PROTOCOL}, {}))
        return 0

    monkeypatch.setattr(jobs.train, "run", train)
    monkeypatch.setattr(jobs.evaluate, "run", evaluate)
    monkeypatch.setattr(runs, "load_suite", lambda names, data_dir: SAMPLE)
    return calls


@pytest.fixture
def flags(tiny_models: dict[str, Path], data_dir: Path, tmp_path: Path) -> list[str]:
    draw = np.random.default_rng(0)
    corpus = tmp_path / "corpus.txt"
    lines = [" ".join(draw.choice(WORDS, 6)) for _ in range(600)]
    corpus.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [
        *("--backbone", str(tiny_models["bert"]), "--data-dir", str(data_dir)),
        *("--corpus", str(corpus), "--table", "1"),
    ]


@pytest.mark.shared
def test_only_what_is_missing_is_run(
    ran: Ran, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = [*flags, "--methods", "embedding", "scd", "simcse", "glove"]
    assert runs.run([*chosen, "--seeds", "0"]) == 0
    first = [
        "evaluate --pooling cls --tasks sts",
        "evaluate --pooling first_last --tasks sts",
        "train simcse 0",
        "train scd 0",
    ]
    assert ran == first
    printed = capsys.readouterr().out
    assert "4 runs: 0 are there, 4 to run" in printed
    assert "not measured here: table1: GloVe embeddings (avg.)" in printed
    assert runs.run([*chosen, "--seeds", "0"]) == 0
    assert ran == first
    assert "4 runs: 4 are there, 0 to run" in capsys.readouterr().out
    assert runs.run([*chosen, "--seeds", "0", "1"]) == 0
    assert ran[4:] == ["train simcse 1", "train scd 1"]


@pytest.mark.shared
def test_a_dry_run_computes_and_writes_nothing(
    ran: Ran, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert runs.run([*flags, "--methods", "embedding", "flow", "--dry-run"]) == 0
    assert ran == []
    assert Tracking().find() == []
    assert "5 runs: 0 are there, 5 to run" in capsys.readouterr().out


@pytest.mark.shared
def test_an_interruption_stops_and_the_rest_is_kept(
    ran: Ran, flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = [*flags, "--methods", "scd", "simcse", "--seeds", "0"]
    stub = jobs.train.run
    with monkeypatch.context() as patch:
        answers = iter([stub, lambda arguments: 130])
        patch.setattr(jobs.train, "run", lambda arguments: next(answers)(arguments))
        assert runs.run(chosen) == 130
    assert ran == ["train simcse 0"]
    assert runs.run(chosen) == 0
    assert ran == ["train simcse 0", "train scd 0"]


@pytest.mark.shared
def test_a_flow_is_fitted_on_the_test_sentences(ran: Ran, flags: list[str]) -> None:
    chosen = [*flags, "--methods", "flow", "--seeds", "0"]
    assert runs.run(chosen) == runs.run(chosen) == 0
    (run,) = Tracking().find("evaluation")
    assert run.tags["scd.method"] == "flow"
    assert run.params["data.corpus"].startswith("target (")
    assert not ran


@pytest.mark.shared
def test_rows_are_those_of_the_family(
    ran: Ran, flags: list[str], tiny_models: dict[str, Path]
) -> None:
    roberta = ["--backbone", str(tiny_models["roberta"]), *flags[2:]]
    assert runs.run([*roberta, "--methods", "scd", "ct", "--seeds", "0"]) == 0
    assert ran == ["train scd 0"]  # the paper has no CT-RoBERTa
    (run,) = Tracking().find("train")
    assert run.tags["scd.model"] == str(tiny_models["roberta"])


@pytest.mark.shared
def test_a_run_of_another_protocol_does_not_count(ran: Ran, flags: list[str]) -> None:
    chosen = [*flags, "--methods", "scd", "--seeds", "0"]
    assert runs.run(chosen) == 0
    (run,) = Tracking().find("train")
    Tracking().tag(run.run_id, {"scd.protocol": "other"})
    assert runs.run(chosen) == 0  # trained already: only evaluated
    assert runs.run(chosen) == 0
    assert ran == ["train scd 0", "evaluate --tasks sts --track --data-dir"]


def test_the_sample_suite_is_what_load_suite_gives() -> None:
    assert load_suite(("sample",), None).protocols("senteval-default", 1111, None) == {
        "sts": PROTOCOL
    }


def test_seeds_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="--seeds"):
        runs.run(["--seeds", "-1"])
