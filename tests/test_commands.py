"""What all commands have in common, and a search from data to a trained winner."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from scd_core import train
from scd_core.data import DataError
from scd_core.tracking import Tracking
from search import coarse_grid
from tests.commands import flags, run

pytestmark = pytest.mark.usefixtures("ready_home")


@pytest.mark.parametrize("command", [train.run, coarse_grid.run])
def test_missing_data_is_one_error_before_any_model(
    command: Callable[[list[str]], int], tmp_path: Path, ready_home: Path
) -> None:
    """All missing files at once, with a model that does not exist either: it is not reached."""
    store = ready_home / "mlflow.db"
    store.unlink()
    (tmp_path / "empty" / "senteval").mkdir(parents=True)
    missing = {"STS/STSBenchmark/sts-dev.csv", "SICK/SICK_trial.txt"}
    if command is train.run:
        missing |= {"STS/STSBenchmark/sts-test.csv", "STS/STS12-en-test/STS.input.MSRpar.txt"}
    own = ["--data-dir", str(tmp_path / "empty"), "--model.name", "/no/such/model"]
    with pytest.raises(DataError) as error:
        command(["--preset", "scd-bert-paper", *own])
    assert all(name in str(error.value) for name in missing)
    assert "/no/such/model" not in str(error.value)
    assert not store.exists()


def test_a_search_with_own_data_ends_in_a_recipe_that_trains_to_its_score(
    environment: dict[str, str],
    tmp_path: Path,
    tiny_models: dict[str, Path],
    texts: Path,
    own_home: Path,
) -> None:
    """Real trials on Ray, offline; the winner's recipe gives its score at its step again."""
    settings = flags(tiny_models["bert"], texts, tmp_path)
    del settings[settings.index("--output") : settings.index("--output") + 2]
    grid = ["--space.alpha", "0.1", "--space.lam", "0.01", "--space.r-a", "0", "0.1"]
    search = ["--preset", "quick", *settings, *grid, "--space.r-b", "0.1", "0.2"]
    done = run(environment, tmp_path, "search.coarse_grid", *search)
    assert done.returncode == 0, done.stderr
    assert "CONNECTED" not in done.stderr
    children = Tracking().find("trial")
    assert [child.status for child in children] == ["FINISHED"] * 3
    rates = {(child.params["r_A"], child.params["r_B"]) for child in children}
    assert rates == {("0.0", "0.1"), ("0.0", "0.2"), ("0.1", "0.2")}
    (parent,) = Tracking().find("search")
    assert {child.tags["mlflow.parentRunId"] for child in children} == {parent.run_id}
    assert "test." not in "".join(key for child in children for key in child.metrics)
    key = "best.dev.pairs.spearman_all"
    winner = max(children, key=lambda child: child.metrics[key])
    (best,) = (own_home / "searches").glob("*/best.toml")
    assert train.run(["--recipe", str(best), "--output", str(tmp_path / "again")]) == 0
    (again,) = Tracking().find("train")
    assert again.tags["scd.identity"] == winner.tags["scd.identity"]
    assert again.metrics[key] == winner.metrics[key]
    assert again.tags["scd.best_step"] == winner.tags["scd.best_step"]
    (card,) = (own_home / "searches").glob("*/trials/*/model/README.md")
    assert winner.tags["scd.identity"] in card.read_text(encoding="utf-8")


def test_a_hub_model_that_is_not_here_fails_by_name(
    environment: dict[str, str],
    tmp_path: Path,
    texts: Path,
) -> None:
    offline = environment | {"HF_HUB_OFFLINE": "1"}
    own = flags(Path("nobody/nothing"), texts, tmp_path / "run")
    done = run(offline, tmp_path, "scd_core.train", *own)
    assert done.returncode == 2
    assert "nobody/nothing" in done.stderr
    assert "--model.name" in done.stderr


@pytest.mark.parametrize(
    "module",
    [
        "scd_core.train",
        "scd_core.evaluate",
        "search.coarse_grid",
        "search.fine_grid",
        "search.refine_grid",
    ],
)
def test_help_teaches(environment: dict[str, str], tmp_path: Path, module: str) -> None:
    done = run(environment, tmp_path, module, "--help")
    assert done.returncode == 0
    assert re.search(rf"python -m {module}", done.stdout)
