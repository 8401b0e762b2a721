"""Whose a search's name is: one name means one search."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scd_core.run_folder import write_json
from search.plan import Plan


def described_in(plan: Plan) -> Path:
    """The file that says which search the plan's folder belongs to."""
    return plan.folder / "search.json"


def write_description(plan: Plan) -> Path:
    """Write down which search the plan's folder belongs to. Returns the file."""
    path = described_in(plan)
    write_json(path, {"name": plan.name, **plan.description})
    return path


def refuse_another(plan: Plan) -> None:
    """Check that the plan's name is free or means this very search.

    Raises:
        ValueError: another search has that name, and what differs; or what says so is damaged.
    """
    path = described_in(plan)
    if path.is_file():
        _refuse(plan, _read(path), str(path))


def _refuse(plan: Plan, there: Mapping[str, Any], place: str) -> None:
    differing = [
        f"{name} was {there.get(name)}, now {value}"
        for name, value in plan.description.items()
        if there.get(name) != value
    ]
    if differing:
        raise ValueError(
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
