"""The end of a search: best recipe, page, table and what MLflow keeps of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from rich.console import Console

from scd_core.inputs import Inputs
from scd_core.tracking import Tracking
from search import report
from search.analysis import Confirmation
from search.outcome import Outcome
from search.page import write_page
from search.plan import Plan


def conclude(
    plan: Plan,
    inputs: Inputs,
    store: Tracking,
    outcomes: Sequence[Outcome],
    untrained: Mapping[str, float | None],
    costs: Sequence[str],
    confirmation: Confirmation | None,
    console: Console,
) -> int:
    """Write the best recipe, the page and the table. Returns the exit code."""
    best = report.write_best(plan, outcomes, untrained.get(plan.metric))
    if best is not None:
        report.write_model_card(plan, inputs, outcomes)
    page = write_page(plan, outcomes, untrained, best, costs, confirmation)
    figures = {"spent.steps": float(sum(outcome.steps for outcome in outcomes))}
    if confirmation and confirmation.scores:
        figures["confirmed.mean"] = statistics.fmean(confirmation.scores)
    report.attach(plan, store, [page] if best is None else [best, page], figures)
    notes = [str(confirmation)] if confirmation else []
    notes += [*costs, f"report: {page}"]
    report.print_report(plan, outcomes, untrained, best, store, console, notes)
    return 1 if best is None else 0
