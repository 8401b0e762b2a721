"""What a run reads, and its identity."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
import torch

from scd_core.inputs import model_label, prepare
from scd_core.settings import (
    Model,
    Selection,
)
from tests.tiny_trainings import make_recipe


def test_what_two_recipes_share_is_read_once_and_is_the_same(
    tiny_model: Path, texts: Path, tmp_path: Path
) -> None:
    recipe = make_recipe(tiny_model, texts)
    other = dataclasses.replace(recipe, seed=1, optim=dataclasses.replace(recipe.optim, lr=1.0))
    first = prepare(recipe)
    again = prepare(other, first)
    assert again.corpus is first.corpus
    assert again.identity == prepare(other).identity
    copy = tmp_path / "copy.txt"
    copy.write_text(Path(recipe.data.corpus).read_text(encoding="utf-8") + "One more.\n", "utf-8")
    elsewhere = dataclasses.replace(other, data=dataclasses.replace(other.data, corpus=str(copy)))
    assert prepare(elsewhere, first).identity == prepare(elsewhere).identity
    assert prepare(elsewhere, first).identity.data_fingerprint != first.identity.data_fingerprint


def test_precision_auto_is_what_the_processor_has(
    tiny_models: dict[str, Path], texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is resolved before the run has an identity, and the record tells what it became."""
    recipe = make_recipe(tiny_models["bert"], texts, precision="auto")
    found = {}
    for name, can in (("fp32", {}), ("bf16", {"avx512_bf16": True})):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda can=can: can)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        inputs = prepare(recipe)
        assert inputs.recipe.optim.precision == name
        assert f'precision = "{name}"' in inputs.recipe.to_toml()
        assert inputs.recipe.symbols()["optim.precision"] == name
        found[name] = inputs.identity
        explicit = make_recipe(tiny_models["bert"], texts, precision=name)
        assert prepare(explicit).identity == inputs.identity
    assert found["fp32"] != found["bf16"]


def test_identity_follows_the_content_of_the_inputs(
    tiny_models: dict[str, Path], texts: Path, tmp_path: Path
) -> None:
    recipe = make_recipe(tiny_models["bert"], texts)
    moved = tmp_path / "elsewhere.txt"
    moved.write_bytes((texts / "corpus.txt").read_bytes())
    same = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, corpus=str(moved)))
    assert prepare(same).identity == prepare(recipe).identity
    moved.write_text(moved.read_text(encoding="utf-8") + "a new cat\n", encoding="utf-8")
    assert prepare(same).identity != prepare(recipe).identity
    other = dataclasses.replace(recipe, model=Model(name=str(tiny_models["roberta"])))
    assert prepare(other).identity != prepare(recipe).identity


def test_places_are_recorded_whole(
    tiny_model: Path, texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named from the folder that they are in or from the root, they are one run."""
    whole = prepare(make_recipe(tiny_model, texts))
    monkeypatch.chdir(texts)
    near = Path(os.path.relpath(tiny_model))
    here = prepare(make_recipe(near, Path()))
    assert (here.identity, here.recipe, here.tags()) == (whole.identity, whole.recipe, whole.tags())
    assert model_label(str(near), "main") == str(tiny_model)
    assert model_label("bundled") == "bundled"


def test_a_selection_metric_the_dev_set_lacks_is_refused(tiny_model: Path, texts: Path) -> None:
    recipe = dataclasses.replace(make_recipe(tiny_model, texts), selection=Selection("sickr", 5))
    with pytest.raises(ValueError, match=r"selection\.metric = 'sickr'"):
        prepare(recipe)
