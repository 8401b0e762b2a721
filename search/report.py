"""A search's end: the ranked table, and the best recipe as a file that training takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from scd_core.export import write_card
from scd_core.inputs import Inputs
from scd_core.provenance import collect
from scd_core.run_folder import model_path, read_result
from scd_core.tracking import Tracking
from search.advice import wider
from search.analysis import edges
from search.outcome import Outcome, ranked
from search.plan import Plan

_ROWS = 30


def write_best(plan: Plan, outcomes: Sequence[Outcome], untrained: float | None) -> Path | None:
    """Write the winner's recipe to ``best.toml`` in the search's folder; None without one.

    With several seeds, it is that of the winning point's best trial. The recipe plans the trial's
    whole training, since the learning rate falls over all planned steps; trained with it, the best
    evaluation comes at the same step again.
    """
    winner = next(iter(ranked(outcomes)), None)
    if winner is None:
        return None
    best, path = winner.best, plan.folder / "best.toml"
    mean = f"# Mean of {winner.n} seeds {number(winner.mean)}; of this seed:\n"
    path.write_text(
        f"# Best of {plan.size} trials of the search {plan.name}: {winner.point}\n"
        f"{mean if winner.n > 1 else ''}"
        f"# {plan.metric} {number(best.score)} at step {best.step} of {plan.steps}; "
        f"untrained {number(untrained)}\n{best.trial.recipe.to_toml()}",
        encoding="utf-8",
    )
    return path


def write_model_card(plan: Plan, inputs: Inputs, outcomes: Sequence[Outcome]) -> None:
    """Write the card of the best trial's model, where that model was kept."""
    best = ranked(outcomes)[0].best
    folder = plan.folder_of(best.trial)
    result = read_result(folder)
    if result is None or result.best is None:
        return
    own = dataclasses.replace(inputs, recipe=best.trial.recipe)
    write_card(model_path(folder), own, result.best.scores, result.best.step, (), collect())


def attach(
    plan: Plan, store: Tracking, files: Iterable[Path], figures: Mapping[str, float]
) -> None:
    """Keep files and figures with the search's own MLflow run."""
    runs = store.find("search", scd__identity=plan.identity, scd__search=plan.name)
    run_id = max(runs, key=lambda run: run.start_time).run_id
    for path in files:
        store.artifact(run_id, path)
    store.log(run_id, figures)


def table(plan: Plan, outcomes: Sequence[Outcome], untrained: Mapping[str, float | None]) -> Table:
    """Points by best dev evaluation under the untrained encoder; then what failed, and why."""
    before, several = untrained.get(plan.metric), len(plan.seeds) > 1
    title = f"search {plan.name}, ranked by {plan.metric}"
    view = Table(title=title, title_justify="left")
    numbers = ("n", "mean", "spread") if several else ("step", "score")
    for name in ("", "alpha", "lambda", "r_A", "r_B", *numbers, "gain"):
        view.add_column(name, justify="right")
    view.add_column("status", overflow="fold")
    blank = [""] * (len(numbers) - (2 if several else 1))
    score = [number(before), *blank] if several else [*blank, number(before)]
    view.add_row(*[""] * 5, *([""] if several else []), *score, "", "untrained encoder")
    view.add_section()
    best = ranked(outcomes)
    for rank, standing in enumerate(best[:_ROWS], 1):
        own = standing.best
        values = [str(standing.n), number(standing.mean), number(standing.spread, "")]
        status = "pruned" if own.status == "PRUNED" else "finished"
        view.add_row(
            str(rank),
            *cells(own),
            *(values if several else [str(own.step), number(own.score)]),
            _gain(standing.mean, before),
            ("best" if rank == 1 else status) + (f": {own.reason}" if own.reason else ""),
            style="bold" if rank == 1 else None,
        )
    if len(best) > _ROWS:
        view.add_row("...", *[""] * (5 + len(numbers)), f"{len(best) - _ROWS} more in MLflow")
    view.add_section()
    for outcome in outcomes:
        if outcome.score is None:
            seed = f" (seed {outcome.trial.recipe.seed})" if several else ""
            status = f"{outcome.status.lower()}{seed}: {outcome.reason}"
            view.add_row("", *cells(outcome), *[""] * (1 + len(numbers)), status)
    return view


def print_report(
    plan: Plan,
    outcomes: Sequence[Outcome],
    untrained: Mapping[str, float | None],
    best: Path | None,
    store: Tracking,
    console: Console,
    notes: Sequence[str] = (),
) -> None:
    """Print the table, where the best recipe lies, and what to do next.

    Args:
        notes: Lines said before those.
    """
    console.print(table(plan, outcomes, untrained))
    settled = [outcome for outcome in outcomes if outcome.settled]
    pruned = [outcome for outcome in settled if outcome.status == "PRUNED"]
    said = f"{len(settled) - len(pruned)} of {plan.size} trials finished"
    say(console, said + (f", {len(pruned)} pruned." if pruned else "."))
    if len(settled) < plan.size:
        say(console, f"The same command tries the others again:\n  {plan.command}")
    standings = ranked(outcomes)
    if best is None or not standings:
        say(console, "no valid trial: no point of the grid has a defined dev score")
    else:
        before = untrained.get(plan.metric)
        if before is not None and standings[0].mean <= before:
            say(console, "no point of this grid is better than the untrained encoder")
        for edge in edges(plan, standings[0].point):
            say(console, f"{edge}:\n  {wider(plan.command, edge)}")
        for note in notes:
            say(console, note)
        say(console, f"best recipe: {best}\n  python -m scd_core.train --recipe {best}")
        model = model_path(plan.folder_of(standings[0].best.trial))
        if model.is_dir():
            say(console, f"its model: {model}")
    address = f"mlflow ui --host 127.0.0.1 --backend-store-uri {store.address}"
    say(console, f"to inspect the trials: make ui, which is\n  {address}")


def say(console: Console, text: str) -> None:
    """Print plain text whose long lines, commands and paths, can be copied whole."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def cells(outcome: Outcome) -> tuple[str, ...]:
    """alpha, lambda, r_A and r_B as they are printed."""
    point = outcome.trial.point
    rates = f"{100 * point.r_a:g}%", f"{100 * point.r_b:g}%"
    return f"{point.alpha:g}", f"{point.lam:g}", *rates


def number(score: float | None, undefined: str = "undefined") -> str:
    """A score as it is printed."""
    return undefined if score is None else f"{score:.2f}"


def _gain(score: float | None, before: float | None) -> str:
    return "" if score is None or before is None else f"{score - before:+.2f}"
