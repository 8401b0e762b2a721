"""The claims of sections 3.3 and 3.4 of the paper, as it prints them."""

from __future__ import annotations

from dataclasses import dataclass

from reproduce.layouts import Name


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


BERT, ROBERTA = "scd-bert", "scd-roberta"


def _next_best(
    section: str, table: Name, column: str, against: str, printed: float, digits: int
) -> Claim:
    text = f"BERT: better than the next best on {column}"
    return Claim(section, text, table, column, BERT, against, printed, digits, next_best=True)


def _simcse(section: str, table: Name, column: str, printed: float | None, digits: int) -> Claim:
    text = f"RoBERTa: better than SimCSE on {column}"
    return Claim(section, text, table, column, ROBERTA, "simcse-roberta", printed, digits)


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
            BERT,
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
            BERT,
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
            BERT,
            row,
        )
        for name, row in (("flow", "bert-flow"), ("whitening", "bert-whitening"))
    ),
    *(
        Claim("3.4.2", f"SCD is higher on STS than BERT-{name}", "table1", "Avg.", BERT, row)
        for name, row in (("flow", "bert-flow"), ("whitening", "bert-whitening"))
    ),
)
"""In the paper's order. It prints no figures of the other methods' uniformity and alignment, so
those claims can be computed from measured numbers alone."""

REMARKS = {
    ("table2", "SUBJ", BERT): "SCD-BERT's SUBJ is, by all signs, of damaged data; with the "
    "authors' later figure of 93.57 the difference to the best row is -1.91",
    ("table2", "SUBJ", ROBERTA): "SimCSE-RoBERTa's SUBJ is, by all signs, of damaged data",
    ("table2", "MR", ROBERTA): "SimCSE-RoBERTa's MR is, by all signs, of damaged data",
    ("table2", "Avg.", ROBERTA): "SimCSE-RoBERTa's MR and SUBJ are, by all signs, of damaged data",
}
