"""Trainings of the tiny models on a few sentences, for tests."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor

from scd_core import training
from scd_core.inputs import Inputs
from scd_core.recipe import Recipe
from scd_core.settings import (
    Data,
    MethodName,
    Model,
    Objective,
    Optim,
    Projector,
    Selection,
    Views,
)
from scd_core.training import StepRecord, train

CPU = torch.device("cpu")
STEPS = 20


def make_recipe(model: Path, texts: Path, **optim: object) -> Recipe:
    settings = {
        "batch_size": 8,
        "max_steps": STEPS,
        "lr": 1e-3,
        "max_length": 10,
        "precision": "fp32",
    } | optim
    return Recipe(
        model=Model(name=str(model)),
        projector=Projector(width=64, layers=3),
        optim=Optim(**settings),  # type: ignore[arg-type]
        selection=Selection(every=6),
        data=Data(corpus=str(texts / "corpus.txt"), dev=str(texts / "pairs.tsv")),
    )


def of_method(recipe: Recipe, method: MethodName) -> Recipe:
    """The recipe for another method, with the one dropout rate that it takes."""
    if method == "scd":
        return recipe
    data = recipe.data
    if method == "simcse-supervised":
        data = dataclasses.replace(data, corpus=data.corpus.replace("corpus.txt", "triplets.csv"))
    return dataclasses.replace(
        recipe,
        method=method,
        views=Views(0.1, 0.1),
        objective=Objective(temperature=0.05),
        data=data,
    )


def weights_at_end(inputs: Inputs, folder: Path) -> dict[str, Tensor]:
    """Train to the end and return the final state of everything that was trained."""
    state: dict[str, Tensor] = {}
    original = training.remove_checkpoints
    with pytest.MonkeyPatch.context() as patch:
        # The final state is not kept by a finished run, so it is read where the loop ends.
        patch.setattr(training, "remove_checkpoints", lambda f: None)
        records = train(inputs, folder, CPU)
        for record in records:
            if isinstance(record, StepRecord) and record.step == record.total:
                local = records.gi_frame.f_locals  # type: ignore[union-attr]
                values = local["learner"].model.state_dict()
                state |= {name: value.clone() for name, value in values.items()}
    original(folder)
    return state


def assert_same(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)
