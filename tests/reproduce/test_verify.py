"""Evaluations run again: the same scores agree, others do not, and what cannot be run is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reproduce.needs import Needs
from reproduce.tables import run
from reproduce.verify import Check, arguments_of
from scd_core import evaluate
from scd_core.run_info import RunInfo
from scd_core.tracking import Tracking
from tests.reproduce.test_tables import EMBEDDING

ready = pytest.mark.usefixtures("ready_home")
MakeRun = Callable[..., RunInfo]
ROW = ("--table", "1", "--verify")


@pytest.mark.shared
@ready
def test_a_row_is_evaluated_again(
    tiny_models: dict[str, Path], data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = str(tiny_models["bert"]), ("--data-dir", str(data_dir))
    flags = ["--pooling", "mean", "--tasks", "sts", "--track", "--no-intervals"]
    assert evaluate.run([model, *flags, *data]) == 0
    (info,) = Tracking().find("evaluation")
    title = f"{tiny_models['bert'].name}, mean pooling"
    capsys.readouterr()
    assert run([*ROW, title, *data]) == 0
    assert "7 of 7 scores agree" in capsys.readouterr().out
    key = "test.stsb.spearman_all"
    Tracking().log(info.run_id, {key: info.metrics[key] + 0.02}, 1)
    assert run([*ROW, title, *data]) == 1
    shown = capsys.readouterr().out
    assert "6 of 7 scores agree" in shown
    assert f"{info.run_id[:8]} {key}: tracked {info.metrics[key] + 0.02}" in shown
    Tracking().tag(info.run_id, {"scd.model_fingerprint": "0" * 64})
    with pytest.raises(ValueError, match=r"its weights is 0000.*not the same thing is measured"):
        run([*ROW, title, *data])


@pytest.mark.shared
@ready
def test_what_was_fitted_is_fitted_again(
    tiny_models: dict[str, Path], data_dir: Path, nli: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, store = str(tiny_models["bert"]), Tracking()
    needs = Needs(model, (3,), None, None, str(nli), data_dir)
    jobs, _ = needs.jobs(("figure2",), ("flow",))
    assert [job.measure("sts", store) for job in jobs] == [0, 0]
    for info in store.find("evaluation"):
        on = info.params["method.fit.name"].partition(" (")[0]
        title = f"{tiny_models['bert'].name}, flow, first_last pooling, on {on}"
        flags = [*ROW, title, "--data-dir", str(data_dir)]
        assert run(flags) == 0
        assert "7 of 7 scores agree" in capsys.readouterr().out
    store.tag(info.run_id, {"scd.identity": "another"})
    with pytest.raises(ValueError, match=r"not those that reproduce\.runs would fit now"):
        run(flags)


def test_what_is_run_for_a_run(make_run: MakeRun, make_evaluation: MakeRun) -> None:
    assert arguments_of(make_run("t" * 32)) == ["t" * 32, "--pooling", "cls"]
    of_training = make_evaluation("e", trained_by="t" * 32, params={"evaluation.max_length": "64"})
    assert arguments_of(of_training) == ["t" * 32, "--pooling", "cls", "--max-length", "64"]
    tags = EMBEDDING | {"model": "some/bert@v2", "pooling": "mean"}
    encoder = make_evaluation("e", params={"evaluation.seed": "7"}, **tags)
    expected = ["some/bert", "--revision", "v2", "--pooling", "mean", "--seed", "7"]
    assert arguments_of(encoder) == expected
    with pytest.raises(ValueError, match=r"'whitening'.*made by: python -m there"):
        arguments_of(make_evaluation("w", method="whitening", command="python -m there"))


@pytest.mark.parametrize(
    ("tracked", "again", "agrees"),
    [(70.0, 70.009, True), (70.0, 70.011, False), (None, None, True), (None, 70.0, False)],
)
def test_agreement(tracked: float | None, again: float | None, agrees: bool) -> None:
    assert Check("r", "k", tracked, again).agrees is agrees


def test_a_row_that_is_not_there(make_evaluation: MakeRun) -> None:
    with pytest.raises(ValueError, match=r"store .* is not there"):
        run([*ROW, "scd-bert"])
    store = Tracking()
    info = make_evaluation("a", 70.0)
    run_id = store.start("evaluation", "a", info.tags, info.params)
    store.log(run_id, info.metrics)
    store.finish(run_id)
    with pytest.raises(ValueError, match=r"names 0 rows.*\['scd-bert'\]"):
        run([*ROW, "scd"])
    with pytest.raises(ValueError, match=r"nothing is measured.*--pooling cls --track"):
        run([*ROW, "bert-cls"])
    with pytest.raises(ValueError, match="takes one --table"):
        run(["--table", "1", "2", "--verify", "scd-bert"])
