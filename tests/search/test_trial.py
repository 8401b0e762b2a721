"""Real trainings of a tiny encoder in pieces: to a rung, dropped, resumed, and had again."""

from __future__ import annotations

import dataclasses
import functools
import shutil
from collections.abc import Generator
from io import StringIO
from pathlib import Path

import pytest
import stubs
import torch
from rich.console import Console
from safetensors.torch import load_file
from stubs import drive

import search.trial
from scd_core import train
from scd_core.forecast import measure
from scd_core.inputs import prepare
from scd_core.recipe import Recipe
from scd_core.run_folder import model_path
from scd_core.settings import Data, Model, Optim, Projector, Selection
from scd_core.tracking import Tracking
from search import report
from search.outcome import ranked
from search.plan import Budget, Plan
from search.pruning import Pruning
from search.runner import run_search
from search.space import Space
from search.trial import Contents, Job, Report, run_job, train_recipe

KEY = "dev.pairs.spearman_all"


@pytest.fixture(autouse=True)
def no_geometry_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """With random weights all vectors of a tiny model point one way from the start."""
    monkeypatch.setattr("search.pruning._COSINE", 2.0)
    monkeypatch.setattr("search.pruning._RANK", 0.0)


@pytest.fixture
def recipe(tiny_models: dict[str, Path], texts: Path) -> Recipe:
    return Recipe(
        model=Model(name=str(tiny_models["bert"])),
        projector=Projector(width=64),
        optim=Optim(batch_size=8, max_steps=32, lr=1e-3, precision="fp32"),
        selection=Selection(every=4),
        data=Data(corpus=str(texts / "corpus.txt"), dev=str(texts / "pairs.tsv")),
    )


def job(recipe: Recipe, folder: Path, until: int | None, bar: float | None = None) -> Job:
    return Job(recipe, folder, 1, until, Pruning("halving", drop=100.0), bar)


def evaluations(reports: list[Report]) -> dict[int, float | None]:
    return {report.step: report.selected for report in reports if report.scores is not None}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(model_path(folder) / "model.safetensors")


def test_a_trial_in_pieces_is_the_trial_in_one(recipe: Recipe, tmp_path: Path) -> None:
    straight = list(run_job(job(recipe, tmp_path / "straight", None), train_recipe))
    assert list(evaluations(straight)) == [4, 8, 12, 16, 20, 24, 28, 32]
    folder = tmp_path / "pieces"
    for until in (8, 20):
        piece = list(run_job(job(recipe, folder, until), train_recipe))
        assert piece[-1].step == until
        newest = max(place.name for place in (folder / "checkpoints").iterdir())
        assert newest == f"step-{until:08d}"
        assert evaluations(piece).items() <= evaluations(straight).items()
    last = list(run_job(job(recipe, folder, None), train_recipe))
    assert evaluations(last) == evaluations(straight)
    one, other = weights(tmp_path / "straight"), weights(folder)
    assert all(torch.equal(one[name], other[name]) for name in one)
    told_again = list(run_job(job(recipe, folder, None), train_recipe))  # finished, unheard
    assert evaluations(told_again) == evaluations(straight)


def test_a_trial_that_will_not_go_on_saves_no_checkpoint(recipe: Recipe, tmp_path: Path) -> None:
    hopeless = list(run_job(job(recipe, tmp_path / "a", 8, bar=101.0), train_recipe))
    assert hopeless[-1].step == 8
    assert not (tmp_path / "a" / "checkpoints").exists()
    list(run_job(job(recipe, tmp_path / "b", 8, bar=-101.0), train_recipe))
    assert (tmp_path / "b" / "checkpoints").exists()


def halving_plan(recipe: Recipe) -> Plan:
    inputs = prepare(recipe)
    return stubs.plan(
        (0.001, 0.01, 0.1, 0.5),
        recipe=recipe,
        data_fingerprint=inputs.identity.data_fingerprint,
        tags={"scd.data_fingerprint": inputs.identity.data_fingerprint},
        metric=KEY,
        steps=32,
        pruning=Pruning("halving", keep=2, drop=100.0),
        name="halved",
    )


def test_winner_of_a_halved_search_is_had_again_to_the_bit_at_its_own_step(
    recipe: Recipe, store: Tracking, tmp_path: Path
) -> None:
    """Its training was interrupted at three rungs; its recipe plans all steps at once."""
    plan = halving_plan(recipe)
    outcomes = drive(plan, store, train_recipe)
    assert sum(o.steps for o in outcomes) == plan.pruning.expected_steps(4, 32, 4) < 4 * 32
    winner = ranked(outcomes)[0].best
    best = report.write_best(plan, outcomes, None)
    assert best is not None
    assert train.run(["--recipe", str(best), "--output", str(tmp_path / "again")]) == 0
    (again,) = store.find("train")
    assert again.tags["scd.identity"] == winner.trial.identity
    assert again.tags["scd.best_step"] == str(winner.step)
    assert again.metrics[f"best.{KEY}"] == winner.score
    assert store.history(again.run_id, KEY) == store.history(winner.run_id, KEY)
    one, other = weights(tmp_path / "again"), weights(plan.folder_of(winner.trial))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_pruned_trial_is_had_again_at_its_own_step(
    recipe: Recipe, store: Tracking, tmp_path: Path
) -> None:
    plan = halving_plan(recipe)
    pruned = next(o for o in drive(plan, store, train_recipe) if o.status == "PRUNED")
    place = tmp_path / "pruned.toml"
    place.write_text(pruned.trial.recipe.to_toml())
    assert train.run(["--recipe", str(place), "--output", str(tmp_path / "again")]) == 0
    (again,) = store.find("train")
    own = store.history(pruned.run_id, KEY)
    assert store.history(again.run_id, KEY)[: len(own)] == own
    assert dict(own)[pruned.step or 0] == pruned.score


def test_a_failed_worker_s_trial_goes_on_from_its_checkpoint_and_tells_all(
    recipe: Recipe, store: Tracking, tmp_path: Path
) -> None:
    plan = dataclasses.replace(halving_plan(recipe), pruning=Pruning())
    plan = dataclasses.replace(plan, space=Space((0.01,), (0.01,), (0.1,), (0.2,)))
    plan = dataclasses.replace(plan, budget=Budget(retries=1))
    begun: list[int] = []

    def dies_once(recipe: Recipe, folder: Path, threads: int) -> Generator[Report]:
        reports = train_recipe(recipe, folder, threads)
        begun.append(0)
        for said in reports:
            begun[-1] = begun[-1] or said.step
            yield said
            if said.step == 16 and len(begun) == 1:
                reports.close()  # which saves a checkpoint of step 16
                raise RuntimeError("the worker died")

    (outcome,) = drive(plan, store, dies_once)
    assert begun[1] > 16
    straight = list(run_job(job(plan.trials[0].recipe, tmp_path / "one", None), train_recipe))
    assert dict(store.history(outcome.run_id, KEY)) == evaluations(straight)
    one, other = weights(tmp_path / "one"), weights(plan.folder_of(plan.trials[0]))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def planned(recipe: Recipe, tiny_models: dict[str, Path], texts: Path, tmp_path: Path) -> Plan:
    """Of two trials that read copies, which a test may replace."""
    for folder in (texts, tiny_models["bert"]):
        shutil.copytree(folder, tmp_path / "read", dirs_exist_ok=True)
    read = tmp_path / "read"
    data = Data(corpus=str(read / "corpus.txt"), dev=str(read / "pairs.tsv"))
    inputs = prepare(dataclasses.replace(recipe, model=Model(name=str(read)), data=data))
    return stubs.plan(
        (0.01, 0.1),
        recipe=inputs.recipe,
        data_fingerprint=inputs.identity.data_fingerprint,
        data=tuple(inputs.data_inputs()),
        tags=inputs.tags(),
        metric=KEY,
        steps=32,
    )


@pytest.mark.parametrize(
    ("name", "added", "what"),
    [
        ("corpus.txt", "the cat ran fast\n", "training data"),
        ("pairs.tsv", "a cat ran\ta dog ran\t3\n", "dev data"),
        ("config.json", "\n", "encoder"),
    ],
)
def test_a_trial_whose_machine_has_other_content_fails_and_says_of_what(
    name: str, added: str, what: str, planned: Plan, tmp_path: Path
) -> None:
    training = functools.partial(train_recipe, planned=Contents.of(planned))
    one, other = (job(t.recipe, tmp_path / t.identity, None) for t in planned.trials)
    assert evaluations(list(run_job(one, training)))
    with (tmp_path / "read" / name).open("a") as file:
        file.write(added)
    search.trial._inputs.cache_clear()  # as of another worker
    with pytest.raises(ValueError, match=rf"other content .*: the {what} \([^;]*\. Give every"):
        list(run_job(other, training))
    assert not other.folder.exists()


@pytest.mark.usefixtures("shared_ray")
def test_a_search_whose_corpus_was_replaced_records_no_trial_under_its_fingerprint(
    planned: Plan, store: Tracking, tmp_path: Path
) -> None:
    with (tmp_path / "read" / "corpus.txt").open("a") as file:
        file.write("the cat ran fast\n")
    outcomes = run_search(planned, store, {}, Console(file=StringIO()))
    assert [outcome.status for outcome in outcomes] == ["FAILED", "FAILED"]
    assert "the training data" in outcomes[0].reason
    assert {run.status for run in store.find("trial")} == {"FAILED"}


@pytest.mark.shared
def test_a_search_reads_no_test_set(
    tiny_models: dict[str, Path],
    texts: Path,
    data_dir: Path,
    tmp_path: Path,
    store: Tracking,
) -> None:
    """Only the dev files are there, and everything a search does with data works."""
    for name in ("STS/STSBenchmark/sts-dev.csv", "SICK/SICK_trial.txt"):
        place = tmp_path / "data" / "senteval" / name
        place.parent.mkdir(parents=True)
        place.symlink_to(data_dir / "senteval" / name)
    recipe = Recipe(
        model=Model(name=str(tiny_models["bert"])),
        projector=Projector(width=64),
        optim=Optim(batch_size=8, max_steps=4),
        selection=Selection(every=4),
        data=Data(corpus=str(texts / "corpus.txt"), data_dir=tmp_path / "data"),
    )
    inputs = prepare(recipe)
    assert {data.context for data in inputs.data_inputs()} == {"training", "dev"}
    assert {score.key.split(".")[0] for score in measure(inputs).untrained} == {"dev"}
    plan = stubs.plan(
        (0.1,),
        recipe=inputs.recipe,
        data_fingerprint=inputs.identity.data_fingerprint,
        metric="dev.stsb.spearman_all",
        steps=4,
        tags={"scd.data_fingerprint": inputs.identity.data_fingerprint},
        data=tuple(inputs.data_inputs()),
    )
    (outcome,) = drive(plan, store, train_recipe)
    assert outcome.status == "FINISHED"
    assert not [name for name in store.get(outcome.run_id).metrics if "test" in name]
