"""Which jobs the tables need, for one encoder."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, cast

from reproduce import fidelity
from reproduce.jobs import Fitted, Job, Tasks, Training, Untrained
from reproduce.methods.base import Method, target
from reproduce.methods.embedding import encoder
from reproduce.methods.flow import Flow, FlowSettings
from reproduce.methods.glove import Glove
from reproduce.methods.measure import Fitting
from reproduce.methods.whitening import Whitening
from reproduce.published import FITTED_POOLING, OVER_ENCODER, PublishedRow, published_table
from scd_core.corpus import Corpus
from scd_core.evaluation.protocols import DEFAULT, SEED
from scd_core.evaluation.suite import Suite, load_suite
from scd_core.inputs import Inputs, prepare
from scd_core.models import BUNDLED, model_folder
from scd_core.pooling import Pooling, saved_pooling
from scd_core.recipe import Recipe, preset
from scd_core.settings import Views
from scd_core.triplets import nli_sentences

Name = Literal["1", "2", "3", "fidelity", "figure2"]
"""A table as ``--table`` names it."""
_SHORT, _SUPERVISED = "scd-bundled", "simcse-supervised-bert-paper"
_WANTS = {
    "glove": "for want of --glove",
    "flow": "for want of --nli",
    "whitening": "for want of --nli",
}
"""Why there is no job for a method's row."""


@dataclass(frozen=True)
class Needs:
    """For which encoder, and with what."""

    backbone: str
    """A Hub name, a folder, or "bundled"."""
    seeds: tuple[int, ...]
    """Of trained rows, and of BERT-flow."""
    corpus: str | None
    """In place of the presets' own."""
    glove: Path | None
    """A file of word vectors; without it there is no such row."""
    nli: str | None
    """Triplets, as ``Data.corpus`` names them; without them there is no supervised SimCSE, nor what
    is fitted on NLI."""
    data_dir: Path | None
    gpu: bool = False
    """Whether trainings run on GPUs: on a CPU a step in fp16 took 40 times that of one in bf16, so
    those are left out."""
    _last: list[Inputs] = field(default_factory=list, init=False, repr=False, compare=False)
    """Of the training before: most share their sentences, a million of them."""

    def jobs(self, tables: Sequence[Name], methods: Sequence[str]) -> tuple[list[Job], list[str]]:
        """The jobs of all tables, each once, and the titles of rows that no job measures.

        Args:
            methods: only rows of these, e.g. "scd"; all where there are none.

        Raises:
            DataError: test files are missing or damaged.
            ValueError: an encoder or a corpus that cannot be read.
        """
        found: dict[str, Job] = {}
        left_out: list[str] = []
        for table in dict.fromkeys(tables):
            tests = self._tests("transfer" if table == "2" else "sts")
            jobs: list[Job] = []
            for row in self._rows(table, methods):
                # the published row is of an encoder of its own: trained only where it is asked for
                asked = row.method != "skip-thought" or row.method in methods
                of_row = list(self._of_row(row, tests)) if asked else []
                why = _WANTS.get(row.method, "as its encoder is one of its own")
                left_out += [] if of_row else [f"table {table}: {row.title}, {why}"]
                jobs += of_row
            jobs += self._extra(table, tests, methods)
            if table == "fidelity":
                left_out += [f"fidelity: {v.title}, for want of a GPU" for v in self._on_gpus]
            for job in jobs:
                known = found.get(job.key, job)
                found[job.key] = dataclasses.replace(known, tests=known.tests | job.tests)
        return list(found.values()), left_out

    def _tests(self, group: str) -> Tasks:
        suite = self._sts if group == "sts" else load_suite((group,), self.data_dir)
        protocols, sentences = suite.protocols(DEFAULT, SEED, None), len(set(suite.texts))
        return Tasks((group,), protocols, self.data_dir, sentences)

    @cached_property
    def _sts(self) -> Suite:
        return load_suite(("sts",), self.data_dir)

    @cached_property
    def _nli(self) -> Corpus | None:
        return nli_sentences(self.nli, self.data_dir) if self.nli else None

    def _rows(self, table: Name, methods: Sequence[str]) -> Iterator[PublishedRow]:
        """Of Figure 2, the rows of Table 1."""
        if table == "fidelity":
            return
        for row in published_table("table1" if table == "figure2" else f"table{table}").rows:
            if row.section == family(self.backbone) and _asked(row.method, methods):
                yield row

    def _of_row(self, row: PublishedRow, tests: Tasks) -> Iterator[Job]:
        if row.method == "embedding":
            yield self._untrained(cast(Pooling, row.pooling), tests)
        elif row.method == "glove":
            if self.glove:
                glove = Fitting(Glove(self.glove), None, "", "mean")
                yield Fitted(f"GloVe {self.glove.name}", tests, glove)
        elif row.method in OVER_ENCODER:
            if self._nli:
                yield from self._fitted(row.method, FITTED_POOLING, self._nli, tests)
        elif row.method == "skip-thought":
            recipe = dataclasses.replace(
                preset(self._base), method="skip-thought", views=Views(0.1, 0.1)
            )
            yield from self._trainings(self.adapted(recipe), tests)
        elif row.preset:
            yield from self._trainings(self.adapted(preset(row.preset)), tests)

    def _extra(self, table: Name, tests: Tasks, methods: Sequence[str]) -> Iterator[Job]:
        """Rows that the paper does not have."""
        if table == "fidelity" and _asked("scd", methods):
            yield from self._of_fidelity(tests)
        elif table == "figure2":
            yield from self._of_figure(tests, methods)

    def _of_fidelity(self, tests: Tasks) -> Iterator[Job]:
        """The base recipe and its variants, one after another."""
        name = self._base
        base = self.adapted(preset(name))
        yield from self._trainings(base, tests)
        for variant in fidelity.variants(name):
            if variant not in self._on_gpus:
                yield from self._trainings(variant.of(base), tests, f", {variant.title}")

    @property
    def _on_gpus(self) -> list[fidelity.Variant]:
        """Rows of the fidelity table that are not to be trained here."""
        found = fidelity.variants(self._base)
        return [v for v in found if v.settings.get("optim.precision") == "fp16" and not self.gpu]

    def _of_figure(self, tests: Tasks, methods: Sequence[str]) -> Iterator[Job]:
        """The average of the last layer; flow and whitening fitted on the test sets, and of the
        vectors that an encoder is meant to give, where it says which (SBERT); supervised SimCSE,
        where there are triplets."""
        if _asked("embedding", methods):
            yield self._untrained("mean", tests)
        on_tests, own = target(self._sts.pairs), saved_pooling(model_folder(self.backbone))
        fits: list[tuple[Pooling, Corpus]] = [(FITTED_POOLING, on_tests)]
        if own:
            fits += [(own, corpus) for corpus in (on_tests, self._nli) if corpus]
        for method in OVER_ENCODER:
            if _asked(method, methods):
                for pooling, corpus in fits:
                    yield from self._fitted(method, pooling, corpus, tests)
        supervised = preset(_SUPERVISED)
        if self.nli and _asked(supervised.method, methods):
            recipe = self.adapted(supervised)
            data = dataclasses.replace(recipe.data, corpus=self.nli)
            yield from self._trainings(dataclasses.replace(recipe, data=data), tests)

    def adapted(self, recipe: Recipe) -> Recipe:
        """A preset's recipe on this encoder and corpus.

        On the bundled encoder, batch, steps and dev evaluations are those of the preset
        scd-bundled.
        """
        model = dataclasses.replace(recipe.model, name=self.backbone)
        data = dataclasses.replace(recipe.data, data_dir=self.data_dir)
        own = self.nli if data.corpus == "nli" else None
        if corpus := self.corpus or own:
            data = dataclasses.replace(data, corpus=corpus)
        recipe = dataclasses.replace(recipe, model=model, data=data)
        if self.backbone != BUNDLED:
            return recipe
        short = preset(_SHORT)
        size, steps = short.optim.batch_size, short.optim.max_steps
        optim = dataclasses.replace(recipe.optim, batch_size=size, max_steps=steps)
        return dataclasses.replace(recipe, optim=optim, selection=short.selection)

    @property
    def _base(self) -> str:
        if self.backbone == BUNDLED:
            return _SHORT
        return "scd-roberta-paper" if family(self.backbone) == "roberta" else "scd-bert-paper"

    def _untrained(self, pooling: Pooling, tests: Tasks) -> Job:
        return Untrained(f"{self.backbone} {pooling}", tests, self.backbone, pooling)

    def _fitted(self, method: str, pooling: Pooling, corpus: Corpus, tests: Tasks) -> Iterator[Job]:
        """BERT-whitening or BERT-flow on these sentences."""
        base = encoder(self.backbone, pooling)
        seeds = self.seeds if method == "flow" else (None,)
        for seed in seeds:
            made: Method = Whitening(base) if seed is None else Flow(base, FlowSettings(seed=seed))
            on = corpus.name.partition(" (")[0]
            title = f"{method} {self.backbone} {pooling}, on {on}"
            title += f" seed {seed}" * (seed is not None)
            source = self.nli or "" if corpus is self._nli else ""
            yield Fitted(title, tests, Fitting(made, corpus, self.backbone, pooling, source))

    def _trainings(self, recipe: Recipe, tests: Tasks, what: str = "") -> Iterator[Job]:
        objective = recipe.objective
        terms = " (L_S)" * (objective.alpha == 0) + " (L_C)" * (objective.self_weight == 0)
        inputs = prepare(recipe, *self._last)
        self._last[:] = [inputs]
        for seed in self.seeds:
            of_seed = dataclasses.replace(
                inputs, recipe=dataclasses.replace(inputs.recipe, seed=seed)
            )
            title = f"{recipe.method}{terms} {self.backbone}{what} seed {seed}"
            yield Training(title, tests, of_seed.recipe, of_seed.identity.key)


def _asked(method: str, methods: Sequence[str]) -> bool:
    return not methods or method in methods


def family(backbone: str) -> Literal["bert", "roberta"]:
    """The part of the tables that an encoder belongs to, by its configuration."""
    config = model_folder(backbone) / "config.json"
    kind = json.loads(config.read_text(encoding="utf-8")).get("model_type")
    return "roberta" if kind == "roberta" else "bert"
