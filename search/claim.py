"""Whose a search's name is: one name means one search."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scd_core.run_folder import write_json
from scd_core.tracking import Tracking
from search.plan import Plan


def described_in(plan: Plan) -> Path:
    """The file that says which search the plan's folder belongs to."""
    return plan.folder / "search.json"


def write_description(plan: Plan) -> Path:
    """Write down which search the plan's folder belongs to. Returns the file."""
    path = described_in(plan)
    write_json(path, {"name": plan.name, **plan.description})
    return path


def refuse_another(plan: Plan, store: Tracking) -> None:
    """Check that the plan's name is free or means this very search, in this home and in the store.

    In the store, which several homes may share, a name belongs to the search that took it first: of
    two that took it at once, one can go on.

    Raises:
        ValueError: another search has that name, and what differs; or what says so is damaged.
    """
    path = described_in(plan)
    if path.is_file() and (differing := _differing(plan, _read(path))):
        raise _refusal(plan, str(path), differing)
    named = store.find("search", scd__search=plan.name)
    owner = min(named, key=lambda run: (run.start_time, run.run_id), default=None)
    if owner is None or (theirs := owner.tags["scd.identity"]) == plan.identity:
        return
    attached = store.file(owner.run_id, path.name)  # soon after the run was made, not with it
    identities = [f"identity was {theirs}, now {plan.identity}"]
    differing = _differing(plan, _read(attached)) if attached else identities
    raise _refusal(plan, f"MLflow run {owner.run_id} in {store.address}", differing)


def _differing(plan: Plan, there: Mapping[str, Any]) -> list[str]:
    return [
        f"{name} was {there.get(name)}, now {value}"
        for name, value in plan.description.items()
        if there.get(name) != value
    ]


def _refusal(plan: Plan, place: str, differing: Sequence[str]) -> ValueError:
    return ValueError(
        f"the name {plan.name} belongs to another search ({place}): {'; '.join(differing)}. "
        "Choose another --name; points that both have are run once and shared"
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{path}, which says whose folder this is, is damaged ({error}); delete that file, and "
            "the search that runs there next writes it again"
        ) from error
    return content
