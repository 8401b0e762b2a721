"""The fidelity recipes and their table: one setting at a time, found by hash, worth in points."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest
import tyro

from reproduce.compare import build
from reproduce.fidelity import ABLATIONS, BASES, Variant, singles, variants
from scd_core.recipe import Recipe, preset
from scd_core.run_info import RunInfo
from scd_core.train import Command
from tests.reproduce.test_layouts import BUNDLED, rows
from tests.reproduce.test_tables import cell

MakeRun = Callable[..., RunInfo]


def changed(recipe: Recipe, base: Recipe) -> set[str]:
    flat = base.flat()
    return {name for name, value in recipe.flat().items() if flat[name] != value}


@pytest.mark.parametrize("base", BASES)
def test_each_row_changes_one_setting_and_all_are_different(base: str) -> None:
    recipe = preset(base)
    for variant in singles(base):
        assert changed(variant.of(recipe), recipe) == set(variant.settings)
        assert len(variant.settings) == 1
    every = [recipe, *(variant.of(recipe) for variant in variants(base))]
    assert len({one.hash for one in every}) == len(every)


@pytest.mark.parametrize(
    ("base", "variant", "name"),
    [
        ("scd-bert-paper", "printed", "paper-literal"),
        ("scd-bert-paper", "released", "scd-bert-released"),
        ("scd-roberta-paper", "released", "scd-roberta-released"),
    ],
)
def test_all_together_is_the_preset(base: str, variant: str, name: str) -> None:
    (whole,) = [v for v in variants(base) if v.id == variant]
    assert whole.of(preset(base)) == preset(name)


def test_the_ablations_are_the_presets() -> None:
    base = preset("scd-bert-paper")
    assert [v.of(base) for v in ABLATIONS] == [
        preset("scd-bert-self-contrast"),
        preset("scd-bert-decorrelation"),
    ]


@pytest.mark.parametrize("variant", [*variants("scd-bert-paper"), *ABLATIONS], ids=lambda v: v.id)
def test_its_flags_train_it(variant: Variant) -> None:
    base = preset("scd-bert-paper")
    command = tyro.cli(Command, args=variant.flags.split(), default=Command(settings=base))
    assert command.settings == variant.of(base)


def test_an_unknown_base_is_answered_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="scd-bert-paper"):
        variants("quick")


def test_any_encoder_has_its_block(make_run: MakeRun) -> None:
    """Trained by the recipe of a base, on whichever sentences; its commands name it."""
    base = preset("scd-bert-paper").in_precision("fp32")
    (variant,) = [v for v in variants("scd-bert-paper") if v.id == "temperature"]
    own = {"model": "lab/tiny-bert", "params": {"data.corpus": "tweets.txt"}}
    runs = [make_run(f"b{s}", 60.0 + s, s, recipe_hash=base.hash, **own) for s in range(3)]
    runs += [make_run("v", 50.0, 0, recipe_hash=variant.of(base).hash, **own)]
    table = build("fidelity", runs)
    block = "scd-bert-paper/lab/tiny-bert"
    assert cell(table, block)["runs"] == "b0 b1 b2"
    assert cell(table, block)["section"] == "scd-bert-paper, lab/tiny-bert"
    changed = cell(table, f"{block}/temperature")
    assert changed["difference"] == pytest.approx(50.0 - 61.0)
    fill = "--preset scd-bert-paper --model.name lab/tiny-bert --objective.temperature 0.05"
    assert changed["fill"].startswith(f"python -m scd_core.train {fill} ")
    assert cell(table, "scd-bert-paper")["n"] == 0


def test_what_a_setting_is_worth(make_run: MakeRun) -> None:
    base = preset("scd-bundled").in_precision("fp32")
    (variant,) = [v for v in variants("scd-bundled") if v.id == "temperature"]
    other = variant.of(base).hash
    runs = [make_run(f"b{s}", 77.0 + s / 10, s, recipe_hash=base.hash, **BUNDLED) for s in range(3)]
    runs += [make_run(f"v{s}", 75.0 + s / 10, s, recipe_hash=other, **BUNDLED) for s in range(3)]
    foreign = BUNDLED | {"data_fingerprint": "c" * 64}
    runs += [make_run(f"f{s}", 60.0, s, recipe_hash=other, **foreign) for s in range(4)]
    table = build("fidelity", runs)
    first, found = cell(table, "scd-bundled"), cell(table, "scd-bundled/temperature")
    assert (first["runs"], found["runs"]) == ("b0 b1 b2", "v0 v1 v2")
    assert pd.isna(first["difference"])
    assert found["difference"] == pytest.approx(-2.0)
    assert found["verdict"] == "outside"
    assert cell(table, "scd-bundled/lambda")["n"] == 0
    assert cell(table, "scd-bundled/lambda")["fill"].split(" && ")[2] == (
        "python -m scd_core.train --preset scd-bundled --objective.lam 0.012 "
        "--optim.precision fp32 --seed 2"
    )
    shown = build("table1", runs)
    # of other data: compared with nothing
    elsewhere = f"bundled, SCD, scd-bundled, {variant.title}, on wiki1m"
    assert rows(shown, "other") == [elsewhere, "bundled, SCD, scd-bundled, on wiki1m"]
    assert "In the fidelity table alone: 1 of one changed setting." in shown.notes
