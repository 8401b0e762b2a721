"""What measures a row of a table: a training, an evaluation, or a method fitted on sentences."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from reproduce.layouts import STS_PROTOCOL, TRANSFER_PROTOCOL
from reproduce.methods.base import Method, target
from reproduce.methods.embedding import encoder
from reproduce.methods.flow import Flow, FlowSettings
from reproduce.methods.glove import Glove
from reproduce.methods.measure import Fitting, measure_and_track
from reproduce.methods.whitening import Whitening
from reproduce.published import PublishedRow
from scd_core import evaluate, places, train
from scd_core.encoder import Pooling
from scd_core.evaluation.protocols import DEFAULT, SEED
from scd_core.evaluation.suite import Suite
from scd_core.inputs import Inputs, prepare
from scd_core.models import BUNDLED, model_fingerprint, model_folder
from scd_core.recipe import Recipe, preset
from scd_core.tracking import RunInfo, Tracking, latest_finished

_SHORT = "scd-bundled"
_POOLING: Pooling = "first_last"
"""Of the vectors beneath BERT-flow and BERT-whitening in the published rows."""


@dataclass(frozen=True)
class Context:
    """What the jobs of one table have in common."""

    store: Tracking
    suite: Suite
    """The table's test tasks: all of similarity, or all of transfer."""
    backbone: str
    seeds: tuple[int, ...]
    corpus: str | None
    """In place of the presets' own."""
    glove: Path | None
    data_dir: Path | None

    @property
    def group(self) -> str:
        """As ``--tasks`` of scd_core.evaluate names the tasks."""
        return "transfer" if self.suite.transfer else "sts"

    @property
    def protocol(self) -> tuple[str, str]:
        """Tag of a run with these scores, and its value."""
        tag = TRANSFER_PROTOCOL if self.suite.transfer else STS_PROTOCOL
        return tag, self.suite.protocols(DEFAULT, SEED, None)[self.group]

    @property
    def data_flags(self) -> list[str]:
        """For the commands of ``scd_core``."""
        return ["--data-dir", str(self.data_dir)] if self.data_dir else []


@dataclass(frozen=True)
class Job:
    """One run of a table."""

    title: str
    done: Callable[[], str | None]
    """The finished run with these scores and this identity, if there is one."""
    run: Callable[[], int]
    """Measure it. Returns an exit code, 0 where it is there now."""
    inputs: Inputs | None = None
    """Of a training."""


def jobs_of(row: PublishedRow, context: Context) -> list[Job]:
    """The jobs behind a row for the context's encoder; none where nothing here measures it."""
    if row.method == "embedding":
        return [_embedding(row, context)]
    if row.method in ("glove", "whitening", "flow"):
        return list(_fitted(row, context))
    recipe = recipe_of(row, context)
    return [_training(recipe, seed, context) for seed in context.seeds] if recipe else []


def recipe_of(row: PublishedRow, context: Context) -> Recipe | None:
    """The training behind a row, on the context's encoder and corpus; None where there is none.

    On the bundled encoder, batch, steps and dev evaluations are those of the preset scd-bundled.
    """
    if not row.preset:
        return None
    recipe = preset(row.preset)
    recipe = dataclasses.replace(
        recipe, model=dataclasses.replace(recipe.model, name=context.backbone)
    )
    if context.backbone == BUNDLED:
        short = preset(_SHORT)
        optim = dataclasses.replace(
            recipe.optim, batch_size=short.optim.batch_size, max_steps=short.optim.max_steps
        )
        recipe = dataclasses.replace(
            recipe, optim=optim, selection=short.selection, data=short.data
        )
    data = dataclasses.replace(recipe.data, data_dir=context.data_dir)
    if context.corpus:
        data = dataclasses.replace(data, corpus=context.corpus)
    return dataclasses.replace(recipe, data=data)


def _training(recipe: Recipe, seed: int, context: Context) -> Job:
    inputs = prepare(dataclasses.replace(recipe, seed=seed))
    identity = inputs.identity.key

    def trained() -> RunInfo | None:
        return latest_finished(context.store.find("train", **{"scd.identity": identity}))

    def done() -> str | None:
        tag, value = context.protocol
        run = trained()
        if run is None:
            return None
        tests = context.store.find("evaluation", **{"scd.trained_by": run.run_id, tag: value})
        carrier = run if run.tags.get(tag) == value else latest_finished(tests)
        return carrier.run_id if carrier else None

    def execute() -> int:
        place = places.cache() / "recipes" / f"{identity}.toml"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(inputs.recipe.to_toml(), encoding="utf-8")
        if trained() is None and (code := train.run(["--recipe", str(place)])):
            return code
        run = trained()
        if run is None:
            raise ValueError(f"the training {identity} left no finished run in MLflow")
        if done() is not None:
            return 0
        return evaluate.run([run.run_id, "--tasks", context.group, "--track", *context.data_flags])

    objective = recipe.objective
    terms = " (L_S)" * (objective.alpha == 0) + " (L_C)" * (objective.self_weight == 0)
    title = f"{context.group}: {recipe.method}{terms} {context.backbone} seed {seed}"
    return Job(title, done, execute, inputs)


def _embedding(row: PublishedRow, context: Context) -> Job:
    folder = model_folder(context.backbone)
    tag, value = context.protocol
    told = {
        "scd.method": "embedding",
        "scd.pooling": row.pooling,
        "scd.model_fingerprint": model_fingerprint(folder),
        tag: value,
    }
    flags = [context.backbone, "--pooling", row.pooling, "--tasks", context.group, "--track"]

    def done() -> str | None:
        run = latest_finished(context.store.find("evaluation", **told))
        return run.run_id if run else None

    title = f"{context.group}: {context.backbone} {row.pooling}"
    return Job(title, done, partial(evaluate.run, [*flags, *context.data_flags]))


def _fitted(row: PublishedRow, context: Context) -> Iterator[Job]:
    """BERT-whitening and BERT-flow on the sentences of the test sets ("target"), and GloVe."""
    store, suite = context.store, context.suite
    corpus = target(suite.pairs) if row.method != "glove" else None
    methods: list[Method] = []
    if row.method == "glove":
        methods = [Glove(context.glove)] if context.glove else []
    elif suite.pairs:
        base = encoder(context.backbone, _POOLING)
        methods = (
            [Whitening(base)]
            if row.method == "whitening"
            else [Flow(base, FlowSettings(seed=seed)) for seed in context.seeds]
        )
    for method in methods:
        model, pooling = (context.backbone, str(_POOLING)) if corpus else ("", "mean")
        fitting = Fitting(method, corpus, model, pooling)

        def execute(fitting: Fitting = fitting) -> int:
            measure_and_track(fitting, suite, store)
            return 0

        seed = f" seed {method.flow.seed}" if isinstance(method, Flow) else ""
        title = f"{context.group}: {method.name} {model}".rstrip() + seed
        yield Job(title, partial(fitting.finished, suite, store), execute)
