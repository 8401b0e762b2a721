"""Everything one run reads, loaded and fingerprinted before any model is built."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from scd_core.corpus import Corpus, load_corpus
from scd_core.device import default_device, resolve_precision
from scd_core.evaluation.tasks import Pairs, load_dev
from scd_core.items import TRIPLETS, Items, items_of
from scd_core.models import BUNDLED, PINNED, model_fingerprint, model_folder
from scd_core.recipe import Recipe, preset_of
from scd_core.triplets import load_triplets, nli_sentences

_KEYWORDS = {"documentation", "sample", "sts", "wiki1m", "nli"}
"""Of ``data.corpus`` and ``data.dev``: no files."""


@dataclass(frozen=True)
class Identity:
    """What makes two runs the same run: recipe, seed and the content of their inputs."""

    recipe_hash: str
    seed: int
    data_fingerprint: str
    """SHA-256 (hex) over weights, sentences and dev pairs."""

    @property
    def key(self) -> str:
        """Short text form, e.g. ``156a4fbcc661-s0-1f0c9e2b``; names folders and tags runs."""
        return f"{self.recipe_hash}-s{self.seed}-{self.data_fingerprint[:8]}"


@dataclass(frozen=True)
class DataInput:
    """A data set that a run reads: its name, what it is for, its place and its content's hash."""

    name: str
    context: str
    """training, dev or test."""
    source: str
    fingerprint: str
    """SHA-256 of the content, hex."""


@dataclass(frozen=True)
class Inputs:
    """A recipe with what it names: sentences, dev pairs and the folder of the encoder."""

    recipe: Recipe
    corpus: Corpus
    dev: tuple[Pairs, ...]
    model: Path
    model_hash: str

    @property
    def total_steps(self) -> int:
        """Planned optimiser steps."""
        return self.recipe.optim.total_steps(self.items.count(len(self.corpus.sentences)))

    @property
    def items(self) -> Items:
        """What a step draws from the corpus."""
        return items_of(self.recipe.method)

    @property
    def selection_key(self) -> str:
        """Metric name of the dev score that chooses the checkpoint."""
        return f"dev.{self._selected}.spearman_all"

    @property
    def _selected(self) -> str:
        metric = self.recipe.selection.metric
        return self.dev[0].name if metric == "primary" else metric

    @cached_property
    def identity(self) -> Identity:
        """The run's identity; needs no model in memory."""
        parts = [self.model_hash, self.corpus.fingerprint, *(d.fingerprint for d in self.dev)]
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        return Identity(self.recipe.hash, self.recipe.seed, digest)

    def tags(self) -> dict[str, str]:
        """What a run of these inputs says of itself in MLflow."""
        recipe, identity = self.recipe, self.identity
        tags = {
            "scd.method": recipe.method,
            "scd.identity": identity.key,
            "scd.recipe_hash": identity.recipe_hash,
            "scd.seed": str(identity.seed),
            "scd.data_fingerprint": identity.data_fingerprint,
            "scd.model": model_label(recipe.model.name, recipe.model.revision),
            "scd.model_fingerprint": self.model_hash,
            "scd.pooling": recipe.model.pooling,
            "scd.planned_steps": str(self.total_steps),
            "scd.selection_metric": self.selection_key,
        }
        name = preset_of(recipe)
        return tags | ({"scd.preset": name} if name else {})

    def data_inputs(self) -> list[DataInput]:
        """The data sets a training reads."""
        data = self.recipe.data
        return [
            DataInput(self.corpus.name, "training", data.corpus, self.corpus.fingerprint),
            *(DataInput(p.name, "dev", data.dev, p.fingerprint) for p in self.dev),
        ]


def model_label(name: str, revision: str | None = None) -> str:
    """How runs name an encoder: one at a revision of its own is not the pinned one, and a folder is
    named by its absolute place."""
    if name == BUNDLED:
        return name
    if name not in PINNED and Path(name).expanduser().is_dir():
        return str(Path(name).expanduser().resolve())
    return f"{name}@{revision}" if revision else name


def source_label(source: str) -> str:
    """How runs name sentences or pairs: a file by its absolute place, a keyword as it is."""
    if source not in _KEYWORDS and Path(source).expanduser().is_file():
        return str(Path(source).expanduser().resolve())
    return source


def prepare(recipe: Recipe, like: Inputs | None = None) -> Inputs:
    """Find and read what the recipe names: dev pairs first, then sentences, then the encoder.

    The precision "auto" becomes what this machine has, so that identity and record tell it. Files
    and folders get their absolute place, for workers and for whoever reads the record elsewhere.

    Args:
        like: of another recipe, just prepared: sentences and encoder that both name are not read
            again.

    Raises:
        ValueError: anything missing, damaged or inconsistent, by name and with the remedy.
    """
    recipe = _absolute(recipe)
    recipe = recipe.in_precision(resolve_precision(recipe.optim.precision, default_device()))
    dev = tuple(load_dev(recipe.data.dev, recipe.data.data_dir))
    metric, names = recipe.selection.metric, [pairs.name for pairs in dev]
    if metric != "primary" and metric not in names:
        raise ValueError(
            f"selection.metric = {metric!r} is not a score of the dev set "
            f"{recipe.data.dev!r}; choose 'primary' or one of {names}"
        )
    items = items_of(recipe.method)
    if like and (like.items, like.recipe.data) == (items, recipe.data):
        corpus = like.corpus
    else:
        corpus = _corpus(recipe, items)
    recipe.optim.total_steps(items.count(len(corpus.sentences)))
    model = model_folder(recipe.model.name, recipe.model.revision)
    known = like.model_hash if like and like.model == model else model_fingerprint(model)
    return Inputs(recipe, corpus, dev, model, known)


def _corpus(recipe: Recipe, items: Items) -> Corpus:
    source = recipe.data.corpus
    if items == TRIPLETS:
        load = load_triplets
    else:
        load = nli_sentences if source == "nli" or source.endswith(".csv") else load_corpus
    return load(source, recipe.data.data_dir)


def _absolute(recipe: Recipe) -> Recipe:
    data = recipe.data
    folder = data.data_dir.expanduser().resolve() if data.data_dir else None
    corpus, dev = source_label(data.corpus), source_label(data.dev)
    data = dataclasses.replace(data, data_dir=folder, corpus=corpus, dev=dev)
    model = dataclasses.replace(recipe.model, name=model_label(recipe.model.name))
    return dataclasses.replace(recipe, model=model, data=data)
