"""Trained methods behind the common interface: every one of them, fitted once and then opened."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from reproduce.methods.base import Method, record
from reproduce.methods.trained import Trained
from reproduce.methods.whitening import Whitening
from scd_core import places
from scd_core.corpus import load_corpus
from scd_core.encoder import SentenceEncoder
from scd_core.inputs import prepare
from scd_core.run_folder import model_path
from scd_core.settings import METHODS, MethodName
from tests.tiny_trainings import make_recipe, of_method


@pytest.mark.parametrize("name", METHODS)
def test_fit_trains_once_and_encodes(
    tiny_models: dict[str, Path],
    texts: Path,
    name: MethodName,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = of_method(make_recipe(tiny_models["bert"], texts, max_steps=4), name)
    method: Method = Trained(recipe)
    sentences = ["the cat sat", "a red dog", "the cat sat"]
    found = method.fit(None)(sentences)
    folder = places.runs() / prepare(recipe).identity.key
    kept = SentenceEncoder(model_path(folder), "cls").encode(sentences)
    np.testing.assert_array_equal(found, kept)
    assert not np.allclose(
        found[:, :30], SentenceEncoder(tiny_models["bert"], "cls").encode(sentences)[:, :30]
    )
    monkeypatch.setattr("scd_core.training.build", lambda *_: pytest.fail("trained again"))
    np.testing.assert_array_equal(method.fit(None)(sentences), found)
    told = record(method, None)
    assert (told["method"], told["optim.max_steps"]) == (name, 4)


def test_another_corpus_is_another_run(
    tiny_models: dict[str, Path],
    texts: Path,
) -> None:
    recipe = make_recipe(tiny_models["bert"], texts, max_steps=2)
    corpus = load_corpus(recipe.data.corpus, None)
    half = dataclasses.replace(corpus, sentences=corpus.sentences[:40])
    Trained(recipe).fit(corpus)
    assert len(list(places.runs().iterdir())) == 1  # the same content: the recipe's own run
    Trained(recipe).fit(half)
    assert len(list(places.runs().iterdir())) == 2


def test_whitening_takes_any_method_beneath(
    tiny_models: dict[str, Path],
    texts: Path,
) -> None:
    recipe = make_recipe(tiny_models["bert"], texts, max_steps=2)
    corpus = load_corpus(recipe.data.corpus, None)
    method = Whitening(Trained(recipe), dimensions=4)
    assert method.fit(corpus)(corpus.sentences).shape == (90, 4)
    told = record(method, corpus)
    assert (told["method"], told["base.method"], told["fit.name"]) == (
        "whitening",
        "scd",
        "corpus.txt",
    )
