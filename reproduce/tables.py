"""The paper's tables, measured beside published: ``python -m reproduce.tables``.

It reads MLflow and the published numbers, and writes only into the folder of ``--output``.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from reproduce import render
from reproduce.aggregate import UnknownProtocolError
from reproduce.claims import claims, claims_sheet
from reproduce.compare import Table, build
from reproduce.index import index
from reproduce.layouts import LAYOUTS, TRANSFER_PROTOCOL, Name
from reproduce.sheet import Sheet, sheet
from reproduce.significance import significance, significance_sheet
from reproduce.verify import TOLERANCE, verify
from scd_core import cli, places
from scd_core.cli import console

if TYPE_CHECKING:
    from scd_core.evaluation.uncertainty import Items
    from scd_core.run_info import RunInfo
    from scd_core.tracking import Tracking

_NAMES: dict[str, Name] = {"1": "table1", "2": "table2", "3": "table3", "fidelity": "fidelity"}
_FORMATS = {"markdown": render.markdown, "csv": render.csv, "latex": render.latex}
_TITLE = "SCD: published and measured"
_CAPTION = (
    "Figure 2: alignment against uniformity of STS-B's test sentences (the smaller, the better), "
    "average over the seven STS tasks as colour; bars are the standard deviation over seeds. The "
    "paper prints figures of SCD alone: the other points of its figure were taken from another "
    "paper's and are not drawn here."
)


@dataclass(frozen=True)
class Options:
    """Print tables of the paper: published rows beside the rows measured in MLflow. Examples:

    python -m reproduce.tables --table 1 3
    python -m reproduce.tables --table fidelity --claims --significance
    python -m reproduce.tables --output results
    python -m reproduce.tables --table 1 --verify bert-cls --data-dir data
    """

    table: tuple[Literal["1", "2", "3", "fidelity"], ...] = ()
    """Tables 1 to 3 of the paper, and fidelity: SCD with one difference between paper and released
    code switched at a time. Default: 1 2 3, and none where something else is asked for."""
    claims: bool = False
    """Also the claims of sections 3.3 and 3.4, from published and from measured numbers."""
    significance: bool = False
    """Also whether SCD's rows of Tables 1 and 2 differ from the others of their encoder, by paired
    bootstrap over test items."""
    format: Literal["terminal", "markdown", "csv", "latex", "html"] = "terminal"
    """What to print. csv is the whole frame with all digits, a blank line between tables."""
    protocol: Annotated[str | None, tyro.conf.arg(metavar="FINGERPRINT")] = None
    """Evaluation protocol of similarity, or the beginning of its fingerprint, whose runs are shown;
    default: the one with most runs. Runs of different protocols never share a table."""
    transfer_protocol: Annotated[str | None, tyro.conf.arg(metavar="FINGERPRINT")] = None
    """The same for the transfer tasks of Table 2."""
    output: Path | None = None
    """Write everything in every format into this folder, e.g. results, instead of printing."""
    verify: Annotated[str | None, tyro.conf.arg(metavar="ROW")] = None
    """Evaluate the runs of a row of that table again, by id or title, and compare the scores; the
    exit code is 1 where one differs."""
    data_dir: Path | None = None
    """For --verify: folder that holds senteval/; default $SCD_DATA_DIR, then the Hub."""


@dataclass(frozen=True)
class Source:
    """The runs of a store and the protocols asked for; every table is built once."""

    runs: list[RunInfo]
    store: Tracking | None = None
    """To read the items of runs; without it nothing is significant."""
    protocol: str | None = None
    transfer_protocol: str | None = None
    _built: dict[Name, Table] = field(default_factory=dict)

    def table(self, name: Name) -> Table:
        """One table."""
        if name not in self._built:
            self._built[name] = build(name, self.runs, self._asked(name))
        return self._built[name]

    def _asked(self, name: Name) -> str | None:
        of_transfer = LAYOUTS[name].protocol_tag == TRANSFER_PROTOCOL
        return self.transfer_protocol if of_transfer else self.protocol

    def tables(self, names: Iterable[Name]) -> dict[Name, Table]:
        """Several; one that lacks the protocol asked for is as if nothing were measured.

        Raises:
            UnknownProtocolError: all that could have it lack it.
            ValueError: several protocols begin so.
        """
        found: dict[Name, Table] = {}
        lacking: dict[Name, UnknownProtocolError] = {}
        names = list(names)
        for name in names:
            try:
                found[name] = self.table(name)
            except UnknownProtocolError as error:
                empty, lacking[name] = build(name, []), error
                notes = (*empty.layout.remarks, f"Nothing is measured: {error}.")
                found[name] = dataclasses.replace(empty, notes=notes)
        for name, why in lacking.items():
            tag = LAYOUTS[name].protocol_tag
            if all(other in lacking for other in names if LAYOUTS[other].protocol_tag == tag):
                raise why
        return found

    def claims(self) -> Sheet:
        """The claims of the paper."""
        return claims_sheet(claims(self.tables(LAYOUTS)))

    @cached_property
    def significances(self) -> list[Sheet]:
        """Of Table 1 and of Table 2."""
        tables = list(self.tables(("table1", "table2")).values())
        frame = significance(tables, self._items)
        titles = ("Table 1", "Table 2")
        return [
            significance_sheet(frame, table.layout.name, title, table.columns)
            for title, table in zip(titles, tables, strict=True)
        ]

    def _items(self, run_id: str) -> dict[str, Items] | None:
        from scd_core.evaluation.items import FILE, load_items

        path = self.store.file(run_id, FILE) if self.store else None
        return load_items(path) if path else None


def run(arguments: Sequence[str]) -> int:
    """Parse flags, build and print. Returns the exit code.

    Raises:
        ValueError: the protocol asked for is not that of any run, or there is no row to verify.
    """
    options = tyro.cli(Options, prog="python -m reproduce.tables", args=arguments)
    store = open_store()
    source = Source(tracked_runs(store), store, options.protocol, options.transfer_protocol)
    if options.verify is not None:
        return _verify(options, source)
    if options.output:
        for path in write(source, options.output):
            print(f"wrote {path}")
        where = store.address if store else "a store that is not there"
        print(f"from {len(source.runs):,} trainings and evaluations of {where}")
        return 0
    more = options.claims or options.significance
    names = [_NAMES[t] for t in options.table or ("123" if not more else "")]
    sheets = [sheet(table) for table in source.tables(names).values()]
    sheets += [source.claims()] if options.claims else []
    sheets += source.significances if options.significance else []
    _print(sheets, options.format)
    return 0


def write(source: Source, folder: Path) -> list[Path]:
    """Write everything in every format; the same runs give the same bytes, from the same working
    directory, as commands name files from there.

    Returns:
        The files written.
    """
    extra = [source.claims(), *source.significances]
    tables = source.tables(LAYOUTS)
    sheets = [*(sheet(tables[name]) for name in _NAMES.values()), *extra]
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, str] = {}
    for one in sheets:
        files[f"{one.name}.md"] = render.markdown(one)
        files[f"{one.name}.csv"] = render.csv(one)
        files[f"{one.name}.tex"] = render.latex(one)
    files["tables.tex"] = render.latex_document([one.name for one in sheets])
    files["tables.html"] = render.html(_TITLE, sheets, _drawings(folder, tables["figure2"]))
    files["README.md"] = index(tables, extra, source.runs)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in files]


def _drawings(folder: Path, table: Table) -> list[tuple[str, str]]:
    """Figure 2, where reproduce.figures has drawn it there from the same runs."""
    points, drawing = folder / "figure2.csv", folder / "figure2.svg"
    drawn = points.read_text(encoding="utf-8") if points.is_file() else ""
    if drawn != render.csv(sheet(table)) or not drawing.is_file():
        return []
    return [(_CAPTION, drawing.read_text(encoding="utf-8"))]


def open_store() -> Tracking | None:
    """The store; None where there is none yet, as reading makes nothing."""
    uri = places.tracking_uri()
    file = places.sqlite_file(uri)
    if file is not None and not file.exists():
        return None
    from scd_core.tracking import Tracking  # here: importing MLflow takes seconds

    return Tracking(uri)


def tracked_runs(store: Tracking | None) -> list[RunInfo]:
    """Every run that could enter a table."""
    return [*store.find("train"), *store.find("evaluation")] if store else []


def _verify(options: Options, source: Source) -> int:
    names, asked = options.table or ("1",), f"--verify {options.verify!r}"
    if source.store is None:
        raise ValueError(f"{asked}: the MLflow store {places.tracking_uri()} is not there")
    if len(names) != 1:
        raise ValueError(f"{asked} takes one --table; {len(names)} were named")
    table = source.table(_NAMES[names[0]])
    checks = verify(table, str(options.verify), source.store, options.data_dir)
    for check in checks:
        console.print(
            f"{check.run_id[:8]} {check.key}: tracked {check.tracked}, now {check.again}: "
            + ("agrees" if check.agrees else "DIFFERS"),
            soft_wrap=True,
            markup=False,
        )
    wrong = sum(not check.agrees for check in checks)
    console.print(f"{len(checks) - wrong} of {len(checks)} scores agree within {TOLERANCE} points")
    return 1 if wrong else 0


def _print(sheets: Sequence[Sheet], name: str) -> None:
    if name == "terminal":
        for one in sheets:
            render.terminal(one)
    elif name == "html":
        sys.stdout.write(render.html(_TITLE, sheets))
    else:
        sys.stdout.write("\n".join(_FORMATS[name](one) for one in sheets))


if __name__ == "__main__":
    cli.main(run)
