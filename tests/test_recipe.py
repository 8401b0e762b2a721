"""The recipe: defaults of the paper, strict files, one identity for equal settings."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from scd_core.recipe import Recipe, from_toml, preset, preset_names, preset_of
from scd_core.settings import Model, Objective, Optim, Projector, Selection, Views


def test_no_flags_is_the_paper() -> None:
    """Section 3.1 and released-code rows 8 to 15."""
    recipe = Recipe()
    assert recipe.views == Views(0.05, 0.15)
    assert recipe.objective == Objective(alpha=0.005, lam=0.013, temperature=1.0)
    assert recipe.projector == Projector(width=4096, layers=3)
    assert (recipe.optim.lr, recipe.optim.batch_size, recipe.optim.epochs) == (3e-5, 192, 1)
    assert recipe.optim.total_steps(1_000_000) == 5208
    assert recipe.model.pooling == "cls"
    assert preset("scd-bert-paper") == recipe


def test_presets_state_the_rows_they_come_from() -> None:
    released = preset("scd-bert-released")
    assert (released.objective.alpha, released.objective.lam) == (0.005225, 0.012)
    assert (released.objective.temperature, released.views.r_b) == (0.05, 0.155)
    assert (released.selection.metric, released.selection.every) == ("sickr", 250)
    roberta = preset("scd-roberta-paper")
    assert (roberta.objective.alpha, roberta.objective.lam) == (0.0033, 0.028)
    assert roberta.views == Views(0.065, 0.24)
    literal = preset("paper-literal").objective
    assert (literal.normaliser, literal.diagonal_sign) == ("printed", "minus")
    assert len({preset(name).hash for name in preset_names()}) == len(preset_names())


@pytest.mark.parametrize("name", preset_names())
def test_toml_round_trip(name: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(preset(name).to_toml(), encoding="utf-8")
    again = from_toml(path)
    assert again == preset(name)
    assert preset_of(again) == name


def test_a_preset_is_told_by_model_and_data_too() -> None:
    recipe = Recipe()
    assert preset_of(dataclasses.replace(recipe, seed=5)) == "scd-bert-paper"
    other = dataclasses.replace(recipe.data, corpus="mine.txt")
    assert preset_of(dataclasses.replace(recipe, data=other)) is None
    assert preset_of(dataclasses.replace(recipe, model=Model(revision="other"))) is None


def test_auto_is_resolved_before_it_identifies() -> None:
    """In bf16 and in fp32 a preset is two runs; both are that preset."""
    auto = Recipe()
    runs = {precision: auto.in_precision(precision) for precision in ("fp32", "bf16")}
    assert auto.optim.precision == "auto"
    assert [run.optim.precision for run in runs.values()] == ["fp32", "bf16"]
    assert auto.run_hashes == {run.hash for run in runs.values()}
    assert len(auto.run_hashes | {auto.hash}) == 3
    assert [preset_of(run) for run in runs.values()] == ["scd-bert-paper"] * 2
    assert runs["fp32"].in_precision("bf16") == runs["fp32"]
    assert runs["fp32"].run_hashes == {runs["fp32"].hash}


def test_paths_of_any_script_survive_toml(tmp_path: Path) -> None:
    data = dataclasses.replace(Recipe().data, corpus='d"a\\t/\u4f60\U0001f600.txt')
    path = tmp_path / "recipe.toml"
    path.write_text(dataclasses.replace(Recipe(), data=data).to_toml(), encoding="utf-8")
    assert from_toml(path).data.corpus == data.corpus


def test_equal_floats_are_one_identity() -> None:
    recipe = Recipe(views=Views(0.1, 0.1 + 0.2))
    assert recipe.views.r_b != 0.3
    assert recipe.hash == Recipe(views=Views(0.1, 0.3)).hash
    assert recipe.hash != Recipe(views=Views(0.1, 0.3001)).hash


OTHER_VALUES = {
    "model.pooling": "mean",
    "views.r_a": 0.06,
    "views.r_b": 0.25,
    "objective.alpha": 0.1,
    "objective.lam": 0.1,
    "objective.self_weight": 0.5,
    "objective.temperature": 0.05,
    "objective.reduction": "sum",
    "objective.normaliser": "printed",
    "objective.diagonal_sign": "minus",
    "projector.width": 1024,
    "projector.layers": 2,
    "optim.lr": 1e-5,
    "optim.batch_size": 64,
    "optim.epochs": 2,
    "optim.max_steps": 7,
    "optim.weight_decay": 0.1,
    "optim.clip_norm": 2.0,
    "optim.precision": "bf16",
    "optim.max_length": 64,
    "selection.metric": "sickr",
    "selection.every": 125,
}


@pytest.mark.parametrize("setting", OTHER_VALUES)
def test_every_setting_changes_the_hash(setting: str) -> None:
    group, name = setting.split(".")
    changed = dataclasses.replace(getattr(Recipe(), group), **{name: OTHER_VALUES[setting]})
    assert dataclasses.replace(Recipe(), **{group: changed}).hash != Recipe().hash


def test_no_setting_is_left_out_above() -> None:
    places = {"model.name", "model.revision", "data.corpus", "data.dev", "data.data_dir"}
    assert set(Recipe().flat()) == set(OTHER_VALUES) | places | {"seed", "method"}


def test_hashes_of_runs_before_there_were_methods_stay() -> None:
    """As they were when every run was SCD's: such runs are found again in MLflow."""
    assert Recipe().hash == "d8de236c4cc0"
    assert preset("quick").hash == "4a50c9ceb135"
    assert preset("scd-bert-released").hash == "ffebf30a5446"


def test_the_method_is_part_of_the_hash() -> None:
    # Equal rates only are SimCSE's, and unequal only are SCD's: views are made equal here by hand.
    one, other = Recipe(), dataclasses.replace(Recipe(), views=Views(0.05, 0.05), method="simcse")
    object.__setattr__(other, "views", one.views)
    assert one.hash != other.hash


def test_simcse_as_published() -> None:
    """Section 4.1 of the SimCSE paper and its published command."""
    recipe = preset("simcse-bert-paper")
    assert (recipe.method, recipe.views) == ("simcse", Views(0.1, 0.1))
    assert (recipe.optim.batch_size, recipe.optim.lr, recipe.optim.epochs) == (64, 3e-5, 1)
    assert recipe.objective.temperature == 0.05
    assert recipe.selection == Selection("primary", 125)
    assert (recipe.model.name, recipe.model.pooling) == ("bert-base-uncased", "cls")


def test_places_and_seed_do_not_change_the_hash() -> None:
    moved = dataclasses.replace(
        Recipe(),
        model=Model(name="/elsewhere/bert"),
        data=dataclasses.replace(Recipe().data, corpus="a.txt", dev="b.tsv", data_dir=Path("/d")),
        seed=7,
    )
    assert moved.hash == Recipe().hash


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[optim]\nlearning_rate = 3e-5\n", "optim.learning_rate"),
        ("[optimiser]\nlr = 3e-5\n", "optimiser"),
        ('[optim]\nlr = "fast"\n', "optim.lr"),
        ('[objective]\nnormaliser = "none"\n', "objective.normaliser"),
        ("[views]\nr_a = 0.2\n", "views.r_a"),
        ("[optim\n", "not TOML"),
    ],
)
def test_wrong_files_are_refused_by_name(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(problem)) as error:
        from_toml(path)
    assert str(path) in str(error.value)


def test_a_file_is_utf8_with_or_without_its_mark(tmp_path: Path) -> None:
    path, text = tmp_path / "recipe.toml", '[data]\ncorpus = "été.txt"\n'
    for encoding in ("utf-8", "utf-8-sig"):
        path.write_text(text, encoding=encoding)
        assert from_toml(path).data.corpus == "été.txt"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=r"is not UTF-8.*byte 0xe9 at 17.*save it") as error:
        from_toml(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("make", "setting"),
    [
        (lambda: Recipe(views=Views(0.3, 0.3)), "views.r_a"),
        (lambda: Recipe(views=Views(0.3, 0.2)), "views.r_a"),
        (lambda: Recipe(method="simcse"), "views.r_a"),
        (lambda: Views(0.1, 1.0), "views.r_b"),
        (lambda: Objective(alpha=-1), "objective.alpha"),
        (lambda: Objective(temperature=0), "objective.temperature"),
        (lambda: Objective(alpha=0, self_weight=0), "objective.alpha"),
        (lambda: Optim(batch_size=1), "optim.batch_size"),
        (lambda: Optim(lr=0), "optim.lr"),
        (lambda: Optim(lr=float("inf")), "optim.lr"),
        (lambda: Optim(weight_decay=-1), "optim.weight_decay"),
        (lambda: Objective(self_weight=float("nan")), "objective.self_weight"),
        (lambda: Selection(every=0), "selection.every"),
        (lambda: Recipe().optim.total_steps(191), "optim.batch_size"),
        (lambda: Recipe(seed=-1), "seed"),
    ],
)
def test_impossible_values_name_setting_and_value(make: object, setting: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{setting} = ")):
        make()  # type: ignore[operator]


def test_an_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="scd-bert-paper"):
        preset("scd-bert")
