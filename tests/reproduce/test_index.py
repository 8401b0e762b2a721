"""The index claims what runs say and nothing else."""

from __future__ import annotations

from collections.abc import Callable

from reproduce.compare import build
from reproduce.index import index
from reproduce.layouts import LAYOUTS
from reproduce.sheet import NO_COMMAND
from scd_core.run_info import RunInfo

MakeRun = Callable[..., RunInfo]


def page(runs: list[RunInfo]) -> str:
    return index({name: build(name, runs) for name in LAYOUTS}, [], runs)


def test_an_empty_store_claims_nothing() -> None:
    text = page([])
    assert "Nothing: the store has no finished run" in text
    assert "| [table1.md](table1.md) |" in text
    assert "| 0 of 13 | none |" in text
    measured, missing = text.split("## Not measured")
    assert "scd-bert" not in measured.split("## Measured")[1]
    train = "python -m scd_core.train --preset scd-bert-paper --seed $seed"
    assert f"  - SCD-BERT_base: `for seed in 0 1 2; do {train}; done`" in missing
    assert f"  - Skip-thought: {NO_COMMAND}" in missing
    loop = "  - scd-bundled: lambda 0.012: `for seed in 0 1 2; do python -m scd_core.train "
    assert f"{loop}--preset scd-bundled " in missing


def test_a_measured_row_says_when_where_and_how(make_evaluation: MakeRun) -> None:
    runs = [
        make_evaluation("a", seed=0, start_time=1_790_000_000_000, command="first"),
        make_evaluation("b", seed=1, start_time=1_790_100_000_000, command="python -m x | y"),
        make_evaluation("c", seed=1, start_time=1_000, command="replaced"),
    ]
    for run, device in zip(runs, ("cpu: x, 2 cores", "cuda: y", "z"), strict=True):
        run.tags.update({"provenance.device": device, "provenance.commit": "0123456789abcdef"})
    (line,) = [li for li in page(runs).splitlines() if li.startswith("| SCD-BERT_base |")]
    assert line == (
        "| SCD-BERT_base | table1, table2, table3, fidelity, figure2 | 2 | "
        "2026-09-21 to 2026-09-22 | cpu: x, 2 cores, cuda: y | 0123456789ab | "
        "`python -m x \\| y` |"
    )
    assert "SCD-BERT_base (n = 2): `python -m scd_core.train" in page(runs)
