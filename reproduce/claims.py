"""The claims of sections 3.3 and 3.4 of the paper, recomputed from published and measured numbers.

A claim is a difference between SCD and another row of a table. Those "of the next best" are
computed against the row that the paper compares with and against the best of all rows that it
prints for the encoder, which is not always the same (released-code row 22).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Literal

import pandas as pd

from reproduce.compare import Table
from reproduce.fidelity import base_recipes
from reproduce.layouts import Name
from reproduce.printed_claims import BERT, CLAIMS, REMARKS, ROBERTA, Claim
from reproduce.published import OTHER, published_table
from reproduce.rows import UNTRAINED, known_preset, role
from reproduce.sheet import Line, Sheet, number
from scd_core.settings import Data

Verdict = Literal[
    "as printed", "other row", "not as printed", "holds", "does not hold", "not computable", ""
]


_Measured = dict[Hashable, Any]
"""A measured row in one column, by the names of ``Table.frame``."""


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
            "Measured: difference of means, to the best measured row of the methods that the paper "
            "prints where the claim is of the next best; trained rows only of the same sentences "
            "and precision. The verdict is its sign, whatever the spread. Significance has tests.",
            *(f"{table}, {column}: {text}." for (table, column, _), text in REMARKS.items()),
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
    own = {BERT: "bert-base-uncased", ROBERTA: "roberta-base"}
    measured = cells[cells["mean"].notna()].to_dict("records")
    found = {row["model"] for row in measured if row["role"] == "scd"}
    others = sorted(found - set(own.values())) if claim.row == BERT else []
    for model in (own[claim.row], *others):
        rows = [row for row in measured if row["model"] in (model, "")]
        if model == own[claim.row]:  # of the paper's encoder, what stands in the paper's rows
            rows = [row for row in rows if row["section"] != OTHER]
        line: dict[str, object] = {
            "model": model,
            "measured": None,
            "measured_against": "",
            "measured_verdict": "",
            "runs": "",
        }
        pairs = ((scd, _rival(claim, scd, rows)) for scd in _of_role(rows, "scd"))
        scd, other = next(((scd, other) for scd, other in pairs if other), (None, None))
        if scd and other:
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


def _rival(claim: Claim, scd: _Measured, rows: Sequence[_Measured]) -> _Measured | None:
    """What SCD's row is compared with: the row of the claim's role with most seeds, or the best of
    all that the paper prints. Of trained rows only those that read the same sentences, as far as
    they do in the paper, in the same precision: another difference would say nothing of the
    method."""
    alike = [
        row
        for row in rows
        if row["method"] in UNTRAINED
        or (
            row["precision"] == scd["precision"]
            and (row["content"] == scd["content"] or (row["section"], row["role"]) in _OTHER_TEXT)
        )
    ]
    if not claim.next_best:
        return next(iter(_of_role(alike, _ROLES[claim.against])), None)
    printed = {_ROLES[row.id] for row in published_table(claim.table).rows}
    found = [r for r in alike if r["role"] in printed and not r["role"].startswith("scd")]
    return max(found, key=lambda row: row["mean"], default=None)


def _of_role(rows: Sequence[_Measured], role: str) -> list[_Measured]:
    """The rows of a role, those with most seeds first; SCD's and its ablations' are those of a base
    recipe."""
    known = base_recipes()
    found = [
        row
        for row in rows
        if row["role"] == role and (row["recipe_hash"] in known or not role.startswith("scd"))
    ]
    return sorted(found, key=lambda row: row["n"], reverse=True)


_PRINTED = [r for name in ("table1", "table2", "table3") for r in published_table(name).rows]
_ROLES = {row.id: role(row, None) for row in _PRINTED}
_OTHER_TEXT = {
    (row.section, _ROLES[row.id])
    for row in _PRINTED
    if row.preset and known_preset(row.preset).data != Data()
}
"""Rows of the paper that were trained on other sentences than SCD's."""
