"""The page that says what the other files of ``results/`` rest on, and what was not measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from reproduce.compare import Table
from reproduce.layouts import Name
from reproduce.sheet import NO_COMMAND, Sheet, row_name, rows, sheet

if TYPE_CHECKING:
    from scd_core.run_info import RunInfo

_HEAD = """# Results

Made by these two commands from one MLflow store; edits are lost. Nothing here is typed in but the
published figures (`reproduce/published`).

```
python -m reproduce.figures --output results
python -m reproduce.tables --output results
```

Each table is there as Markdown, CSV (all digits) and LaTeX (`tables.tex` compiles them together),
and all of them on one page, `tables.html`.
"""


def index(tables: Mapping[Name, Table], extra: Sequence[Sheet], runs: Sequence[RunInfo]) -> str:
    """The page in Markdown.

    Args:
        tables: in their order.
        extra: the other sheets that are written.
        runs: those of the store; when, where and by which command a row was measured.
    """
    by_id = {run.run_id: run for run in runs}
    text = [_HEAD, "| file | what | rows measured | evaluation protocol |", "|---|---|---|---|"]
    for table in tables.values():
        measured = [bool(first["n"]) for first, *_ in rows(table.frame)]
        name, count = table.layout.name, f"{sum(measured)} of {len(measured)}"
        link = f"[{name}.md]({name}.md)"
        text.append(f"| {link} | {table.layout.title} | {count} | {table.protocol or 'none'} |")
    text += [f"| [{one.name}.md]({one.name}.md) | {one.title} | | |" for one in extra]
    text += ["", "## Measured", ""]
    text += list(_measured(tables, by_id)) or [
        "Nothing: the store has no finished run that a table could take."
    ]
    text += ["", "## Not measured", ""]
    text += list(_missing(tables)) or ["Every row of these tables is measured."]
    return "\n".join(text) + "\n"


def _measured(tables: Mapping[Name, Table], runs: Mapping[str, RunInfo]) -> Iterator[str]:
    """A row of any table, with the tables it stands in, when, on what and by which command."""
    titles: dict[str, str] = {}
    where: dict[str, list[str]] = {}
    for name, table in tables.items():
        for first, *_ in rows(table.frame):
            if first["n"]:
                titles.setdefault(first["runs"], row_name(first))
                where.setdefault(first["runs"], []).append(name)
    if where:
        yield "| row | in | n | when (UTC) | on | code | command of the latest run |"
        yield "|---|---|---|---|---|---|---|"
    for ids, names in where.items():
        found = sorted((runs[i] for i in ids.split() if i in runs), key=lambda r: r.start_time)
        days = list(dict.fromkeys(_day(run) for run in found))
        devices = dict.fromkeys(run.tags.get("provenance.device", "") for run in found)
        commits = dict.fromkeys(run.tags.get("provenance.commit", "")[:12] for run in found)
        command = found[-1].tags.get("scd.command", "") if found else ""
        line = [
            titles[ids],
            ", ".join(dict.fromkeys(names)),
            str(len(ids.split())),
            " to ".join(days[:1] + days[-1:] if len(days) > 1 else days),
            ", ".join(filter(None, devices)),
            ", ".join(filter(None, commits)),
            f"`{command}`" if command else "",
        ]
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |"


def _missing(tables: Mapping[Name, Table]) -> Iterator[str]:
    """Published rows and fidelity rows without a run, and those that lack seeds."""
    for name, table in tables.items():
        lines = []
        for (row, texts), (first, *_) in zip(sheet(table).evidence, rows(table.frame), strict=True):
            commands = [t.removeprefix("to fill: ") for t in texts if t.startswith("to fill: ")]
            shown = "; ".join(c if c == NO_COMMAND else f"`{c}`" for c in commands)
            n = first["n"]
            lines += [f"  - {row}{f' (n = {n})' if n else ''}: {shown}"] if commands else []
        if lines:
            yield f"- {name}:"
            yield from lines


def _day(run: RunInfo) -> str:
    return datetime.fromtimestamp(run.start_time / 1000, UTC).strftime("%Y-%m-%d")
