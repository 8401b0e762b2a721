"""MLflow as this project uses it: resumable runs, every page, absolute places, nothing lost."""

from __future__ import annotations

import dataclasses
import math
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import pytest

from scd_core.inputs import DataInput
from scd_core.mlflow_client import TrackingError
from scd_core.run_info import RunInfo
from scd_core.tracking import Kind, Tracking

ready = pytest.mark.usefixtures("ready_home")
TAGS = {"scd.identity": "abc-s0-12345678", "scd.method": "scd"}


@ready
def test_a_run_is_read_back_as_written() -> None:
    store = Tracking()
    run = store.start("train", "name", TAGS, {"alpha": 0.005, "r_A": 0.05})
    for step, value in ((10, 70.5), (20, 71.123456789012345)):
        store.log(run, {"dev.stsb.spearman_all": value, "dev.sickr.spearman_all": None}, step)
    store.inputs(run, [DataInput("corpus", "training", "a.txt", "f" * 64)])
    store.text(run, "seed = 0\n", "recipe.toml")
    store.finish(run, tags={"scd.best_step": "20"})
    info = store.get(run)
    assert (info.status, info.name, info.params["alpha"]) == ("FINISHED", "name", "0.005")
    assert info.metrics == {"dev.stsb.spearman_all": 71.123456789012345}
    assert store.history(run, "dev.stsb.spearman_all") == [(10, 70.5), (20, 71.123456789012345)]
    assert info.tags["scd.best_step"] == "20"
    assert store.find("train", scd__method="scd") == [info]
    assert store.find("train", scd__method="simcse") == store.find("trial") == []


@ready
def test_an_unfinished_run_is_reopened_and_a_finished_one_is_not() -> None:
    store = Tracking()
    first = store.start("train", "n", TAGS, {"optim.lr": 1e-05})
    store.finish(first, "KILLED")
    again = store.start("train", "n", TAGS, {"optim.lr": 0.00001, "added": 1})
    assert again == first
    assert store.get(first).status == "RUNNING"
    store.finish(first)
    assert store.start("train", "n", TAGS, {}) != first
    assert store.start("train", "n", TAGS | {"scd.identity": "other"}, {}) != first


@ready
def test_a_child_is_reopened_below_its_own_parent_only() -> None:
    store = Tracking()
    parents = [store.start("search", name, {"scd.identity": name}, {}) for name in ("a", "b")]
    child = store.start("trial", "t", TAGS, {}, parent=parents[0])
    assert store.start("trial", "t", TAGS, {}, parent=parents[1]) != child
    assert store.start("trial", "t", TAGS, {}, parent=parents[0]) == child


@ready
def test_more_runs_than_a_page() -> None:
    store = Tracking()
    for i in range(7):
        store.finish(store.start("trial", str(i), {"scd.identity": str(i), "scd.base": "b"}, {}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scd_core.tracking._PAGE", 3)
        found = store.find("trial", scd__base="b")
    assert sorted(run.name for run in found) == [str(i) for i in range(7)]


@ready
def test_a_whole_store_reads_as_mlflows_client_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Tracking()
    for i, kind in enumerate(get_args(Kind) * 2):
        run = store.start(kind, f"it's {i}", {"scd.identity": str(i)}, {"alpha": i, "none": None})
        store.log(run, {"a": 1 / 3, "b": math.inf, "gone": None}, step=1)
        store.log(run, {"a": -0.1 * i, "c": math.nan}, step=2)
        if i % 2:
            store.finish(run, "FAILED" if i % 3 else "FINISHED", {"scd.reason": "é\n☃"})
    store._client.delete_run(store.start("train", "deleted", TAGS, {}))
    store.start("evaluation", "bare", {}, {})
    questions: list[Kind | None] = [None, *get_args(Kind)]
    by_column = [_comparable(store.find(kind)) for kind in questions]

    def another_layout(*_: object) -> None:
        raise sqlite3.OperationalError("no such table: latest_metrics")

    monkeypatch.setattr("scd_core.tracking.read_sqlite", another_layout)
    assert by_column == [_comparable(store.find(kind)) for kind in questions]
    assert [len(runs) for runs in by_column] == [9, 2, 2, 2, 3]


def _comparable(runs: list[RunInfo]) -> list[str]:
    """In their order, as text, since NaN differs from itself."""
    fields = (
        [*dataclasses.astuple(run)[:4], run.end_time]
        + [sorted(pairs.items()) for pairs in (run.tags, run.params, run.metrics)]
        for run in runs
    )
    return [repr(one) for one in fields]


@ready
def test_an_address_with_options_is_the_same_store(ready_home: Path) -> None:
    Tracking().start("train", "n", TAGS, {})
    assert len(Tracking(f"sqlite:///{ready_home / 'mlflow.db'}?timeout=60").find("train")) == 1
    assert not [path for path in ready_home.iterdir() if "?" in path.name]


@ready
def test_a_moved_store_has_its_files(ready_home: Path, tmp_path: Path) -> None:
    store = Tracking()
    run = store.start("train", "n", TAGS, {})
    store.text(run, "here", "a.txt")
    ready_home.rename(tmp_path / "moved")
    moved = Tracking(f"sqlite:///{tmp_path / 'moved' / 'mlflow.db'}")
    file = moved.file(run, "a.txt")
    assert file is not None
    assert file.read_text(encoding="utf-8") == "here"
    assert moved.file(run, "b.txt") is None


@ready
def test_deleted_runs_are_left_out() -> None:
    store = Tracking()
    run = store.start("train", "n", TAGS, {})
    store._client.delete_run(run)
    assert store.find("train") == []


@ready
def test_a_deleted_experiment_gives_one_clear_message() -> None:
    store = Tracking()
    run = store.start("train", "n", TAGS, {})
    store._client.delete_experiment(store._client.get_run(run).info.experiment_id)
    with pytest.raises(ValueError, match="mlflow experiments restore"):
        Tracking().start("train", "n", TAGS, {})


@ready
def test_long_values_do_not_end_a_run_and_say_that_they_are_cut() -> None:
    store = Tracking()
    params = {"list": list(range(7000)), "none": None, "path": Path("/a"), "section": {"a": 1}}
    run = store.start("train", "n", TAGS | {"long": "x" * 9000}, params)
    found = store.get(run).params
    assert "whole in recipe.toml" in found["list"]
    assert (found["none"], found["path"], found["section"]) == ("None", "/a", "{'a': 1}")


def test_everything_lies_below_home(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    store = Tracking()
    store.text(store.start("train", "n", TAGS, {}), "text", "a.txt")
    assert (own_home / "mlflow.db").is_file()
    assert list((own_home / "mlartifacts").rglob("a.txt"))
    assert list(elsewhere.iterdir()) == []


def test_many_processes_may_make_the_store_at_once() -> None:
    """Each makes tables and experiment, then logs 200 values; all of it is there afterwards."""
    code = (
        "from scd_core.tracking import Tracking\n"
        "store = Tracking()\n"
        "run = store.start('train', 'n', {}, {})\n"
        "for step in range(200): store.log(run, {'a': step}, step)\n"
        "store.finish(run)\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(4)]
    assert [process.wait(120) for process in processes] == [0] * 4
    store = Tracking()
    runs = store.find("train")
    assert [run.status for run in runs] == ["FINISHED"] * 4
    assert all(len(store.history(run.run_id, "a")) == 200 for run in runs)


@ready
def test_tag_values_may_hold_quotes() -> None:
    store = Tracking()
    run = store.start("train", "n", {"scd.folder": "/it's/here"}, {})
    store.start("train", "n", {"scd.folder": "/elsewhere"}, {})
    assert [r.run_id for r in store.find("train", scd__folder="/it's/here")] == [run]


@ready
def test_a_nan_is_never_written_as_zero() -> None:
    """The database keeps NaN; the project never sends one, since undefined scores are None."""
    store = Tracking()
    run = store.start("train", "n", TAGS, {})
    store.log(run, {"a": None, "b": 0.0})
    assert store.get(run).metrics == {"b": 0.0}
    store.log(run, {"c": math.nan})
    assert math.isnan(store.get(run).metrics.get("c", math.nan))


def test_a_dead_server_is_one_error_within_seconds() -> None:
    started = time.monotonic()
    with pytest.raises(TrackingError, match="no MLflow server answers") as error:
        Tracking("http://me:secret@127.0.0.1:9/x")
    assert time.monotonic() - started < 10
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("uri", ["/some/path", "foo://x", "sqlite:///{home}/text.db"])
def test_what_is_no_store_is_one_error(uri: str, own_home: Path) -> None:
    own_home.mkdir()
    (own_home / "text.db").write_text("no database")
    with pytest.raises(TrackingError):
        Tracking(uri.format(home=own_home))


@ready
def test_an_unknown_run_is_one_error() -> None:
    with pytest.raises(TrackingError, match="0123456789abcdef"):
        Tracking().get("0123456789abcdef0123456789abcdef")


def test_the_address_shows_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scd_core.mlflow_client.MlflowClient", lambda uri: None)
    monkeypatch.setattr("scd_core.tracking.require_server", lambda host, port: None)
    assert Tracking("http://me:secret@127.0.0.1:5000/x").address == "http://127.0.0.1:5000/x"
    assert Tracking("http://127.0.0.1:5000").address == "http://127.0.0.1:5000"
