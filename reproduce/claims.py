"""The claims of sections 3.3 and 3.4 of the paper, recomputed from published and measured numbers.

A claim is a difference between SCD and another row of a table. Those "of the next best" are
computed against the row that the paper compares with and against the best of all rows that it
prints for the encoder, which is not always the same (released-code row 22).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from reproduce.compare import Table
from reproduce.fidelity import base_recipes
from reproduce.layouts import Name
from reproduce.published import published_table
from reproduce.rows import role
from reproduce.sheet import Line, Sheet, number

Verdict = Literal[
    "as printed", "other row", "not as printed", "holds", "does not hold", "not computable", ""
]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper about a column of a table."""

    section: str
    text: str
    table: Name
    column: str
    row: str
    """Id of SCD's published row."""
    against: str
    """Id of the row that the printed figure is the difference to."""
    printed: float | None = None
    """Points, as printed; None where the paper gives no figure."""
    digits: int = 2
    """Decimals it is printed with."""
    next_best: bool = False
    """The paper speaks of the next best of all rows of the encoder."""
    less: bool = False
    """The claim is that SCD's value is the smaller one."""


_BERT, _ROBERTA = "scd-bert", "scd-roberta"


def _next_best(
    section: str, table: Name, column: str, against: str, printed: float, digits: int
) -> Claim:
    text = f"BERT: better than the next best on {column}"
    return Claim(section, text, table, column, _BERT, against, printed, digits, next_best=True)


def _simcse(section: str, table: Name, column: str, printed: float | None, digits: int) -> Claim:
    text = f"RoBERTa: better than SimCSE on {column}"
    return Claim(section, text, table, column, _ROBERTA, "simcse-roberta", printed, digits)


CLAIMS: tuple[Claim, ...] = (
    _next_best("3.3.1", "table1", "STS-B", "simcse-bert", 1.19, 2),
    _next_best("3.3.1", "table1", "SICK-R", "simcse-bert", 3.81, 2),
    _simcse("3.3.1", "table1", "STS15", 0.55, 2),
    _simcse("3.3.1", "table1", "SICK-R", 3.8, 1),
    _next_best("3.3.2", "table2", "SUBJ", "is-bert", 4.6, 1),
    _next_best("3.3.2", "table2", "MRPC", "simcse-bert", 2.2, 1),
    _simcse("3.3.2", "table2", "Avg.", 2.61, 2),
    *(
        _simcse("3.3.2, almost all benchmarks", "table2", column, None, 2)
        for column in ("MR", "CR", "SUBJ", "MPQA", "SST", "TREC", "MRPC")
    ),
    *(
        Claim(
            "3.4.1",
            f"both terms are better than {term} alone on {column}",
            "table3",
            column,
            _BERT,
            row,
        )
        for term, row in (("L_S", "scd-bert-self"), ("L_C", "scd-bert-decorrelation"))
        for column in ("STS", "STS-B", "SICK-R")
    ),
    *(
        Claim(
            "3.4.2",
            f"SCD has the least uniformity, less than {name}'s",
            "figure2",
            "uniformity",
            _BERT,
            row,
            less=True,
        )
        for name, row in (
            ("SimCSE", "simcse-bert"),
            ("flow", "bert-flow"),
            ("whitening", "bert-whitening"),
        )
    ),
    *(
        Claim(
            "3.4.2",
            f"SCD's alignment is inferior to that of {name}",
            "figure2",
            "alignment",
            _BERT,
            row,
        )
        for name, row in (("flow", "bert-flow"), ("whitening", "bert-whitening"))
    ),
    *(
        Claim("3.4.2", f"SCD is higher on STS than BERT-{name}", "table1", "Avg.", _BERT, row)
        for name, row in (("flow", "bert-flow"), ("whitening", "bert-whitening"))
    ),
)
"""In the paper's order. It prints no figures of the other methods' uniformity and alignment, so
those claims can be computed from measured numbers alone."""

_REMARKS = {
    ("table2", "SUBJ", _BERT): "SCD-BERT's SUBJ is, by all signs, of damaged data; with the "
    "authors' later figure of 93.57 the difference to the best row is -1.91",
    ("table2", "SUBJ", _ROBERTA): "SimCSE-RoBERTa's SUBJ is, by all signs, of damaged data",
    ("table2", "MR", _ROBERTA): "SimCSE-RoBERTa's MR is, by all signs, of damaged data",
    ("table2", "Avg.", _ROBERTA): "SimCSE-RoBERTa's MR and SUBJ are, by all signs, of damaged data",
}


def claims(tables: Mapping[Name, Table]) -> pd.DataFrame:
    """Every claim by encoder, a line each.

    Columns: section, claim, table, column, printed; published (difference to the row that the
    paper compares with), against (that row's title), next_best and next_best_title (of all rows
    that the paper prints for the encoder), verdict; model, measured (difference to the same row, or
    to the best measured one where the claim is of the next best), measured_against,
    measured_verdict, runs. Points, unrounded; NaN is what cannot be computed.
    """
    return pd.DataFrame(
        [line for claim in CLAIMS for line in _lines(claim, tables[claim.table].frame)]
    )


def claims_sheet(frame: pd.DataFrame) -> Sheet:
    """The claims as they are printed."""
    lines = []
    for (section, claim), same in frame.groupby(["section", "claim"], sort=False):
        for i, (_, cell) in enumerate(same.iterrows()):
            digits = f"+.{cell['digits']}f"
            first = (
                section,
                claim,
                number(cell["printed"], digits),
                number(cell["published"], "+.2f"),
                _against(cell["next_best"], cell["next_best_title"]),
                cell["verdict"],
            )
            measured = (
                cell["model"],
                number(cell["measured"], "+.2f"),
                cell["measured_against"],
                cell["measured_verdict"] or "not measured",
            )
            lines.append(Line(str(section)[:5], (*(first if i == 0 else ("",) * 6), *measured)))
    return Sheet(
        name="claims",
        title="Claims of sections 3.3 and 3.4, in points",
        header=(
            "section",
            "claim",
            "printed",
            "published",
            "to the next best",
            "verdict",
            "encoder",
            "measured",
            "against",
            "measured verdict",
        ),
        lines=tuple(lines),
        notes=(
            "Printed: what the text says. Published: recomputed from the printed table, against "
            "the row that gives the printed figure. Verdict: as printed; other row: the figure is "
            "right, and another row that the paper prints is better than the one compared with; "
            "holds or does not hold: a claim without a figure.",
            "Measured: difference of means, to the best measured row where the claim is of the "
            "next best; the verdict is its sign, whatever the spread. Significance has tests.",
            *(f"{table}, {column}: {text}." for (table, column, _), text in _REMARKS.items()),
        ),
        frame=frame,
        texts=frozenset({"section", "claim", "to the next best", "encoder", "against"}),
    )


def _against(difference: float, title: str) -> str:
    return f"{number(difference, '+.2f')} ({title})" if title else ""


def _lines(claim: Claim, frame: pd.DataFrame) -> Iterator[dict[str, object]]:
    cells = frame[frame["column"] == claim.column].set_index("row")
    best, title = _published_best(claim, cells)
    published = _difference(claim, cells["published"])
    shared = {
        "section": claim.section,
        "claim": claim.text,
        "table": claim.table,
        "column": claim.column,
        "printed": claim.printed,
        "digits": claim.digits,
        "published": published,
        "against": cells["title"].get(claim.against, ""),
        "next_best": best,
        "next_best_title": title,
        "verdict": _verdict(claim, published, best),
    }
    for measured in _measured(claim, cells):
        yield shared | measured


def _difference(claim: Claim, values: pd.Series) -> float | None:
    if claim.row not in values or claim.against not in values:
        return None
    difference = values[claim.row] - values[claim.against]
    return None if pd.isna(difference) else float(difference)


def _published_best(claim: Claim, cells: pd.DataFrame) -> tuple[float | None, str]:
    """SCD less the best other row of its part of the table; only for claims of the next best."""
    if not claim.next_best:
        return None, ""
    same = cells[cells["section"] == cells["section"][claim.row]]
    best = same["published"].drop(claim.row).idxmax()
    return float(same["published"][claim.row] - same["published"][best]), str(same["title"][best])


def _verdict(claim: Claim, published: float | None, best: float | None) -> Verdict:
    if published is None:
        return "not computable"
    if claim.printed is None:
        return "holds" if (published < 0) == claim.less else "does not hold"
    if abs(published - claim.printed) > 0.5 * 10**-claim.digits + 1e-9:
        return "not as printed"
    return "other row" if best is not None and best < published - 1e-9 else "as printed"


def _measured(claim: Claim, cells: pd.DataFrame) -> Iterator[dict[str, object]]:
    """The claim on its own encoder, and what is said of BERT on every other with an SCD row."""
    own = {_BERT: "bert-base-uncased", _ROBERTA: "roberta-base"}
    measured = cells[cells["mean"].notna()].to_dict("records")
    found = {row["model"] for row in measured if row["role"] == "scd"}
    others = sorted(found - set(own.values())) if claim.row == _BERT else []
    wanted = _ROLES[claim.against]
    for model in (own[claim.row], *others):
        rows = [row for row in measured if row["model"] in (model, "")]
        scd = _pick(rows, "scd")
        if claim.next_best:
            rivals = [row for row in rows if not row["role"].startswith("scd")]
            other = max(rivals, key=lambda row: row["mean"], default=None)
        else:
            other = _pick(rows, wanted)
        line: dict[str, object] = {
            "model": model,
            "measured": None,
            "measured_against": "",
            "measured_verdict": "",
            "runs": "",
        }
        if scd is not None and other is not None:
            difference = scd["mean"] - other["mean"]
            good = difference < 0 if claim.less else difference > 0
            line |= {
                "measured": difference,
                "measured_against": other["title"],
                "measured_verdict": "holds" if good else "does not hold",
                "runs": f"{scd['runs']} {other['runs']}",
            }
        if model == own[claim.row] or line["measured_verdict"]:
            yield line


def _pick(rows: Sequence[dict[Hashable, Any]], role: str) -> dict[Hashable, Any] | None:
    """The row of that role with most seeds; SCD's and its ablations' are those of a base recipe."""
    known = base_recipes()
    found = [
        row
        for row in rows
        if row["role"] == role and (row["recipe_hash"] in known or not role.startswith("scd"))
    ]
    return max(found, key=lambda row: row["n"], default=None)


_ROLES = {
    row.id: role(row, None)
    for name in ("table1", "table2", "table3")
    for row in published_table(name).rows
}
