"""Commands that are suggested: they say what the given one said, and can be run as they stand."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path

import pytest
import stubs
from rich.console import Console
from stub_command import stub_cost, stub_inputs
from stubs import STSB, drive, scripted

from scd_core.tracking import Tracking
from search import coarse_grid, command, fine_grid, refine_grid, report
from search.advice import stage_before, wider
from search.analysis import Edge
from search.page import write_page


@pytest.mark.parametrize("name", ["--name mine", "--name=mine"])
def test_a_wider_grid_is_another_search_of_the_same_base(name: str) -> None:
    given = f"python -m search.coarse_grid --corpus 'my corpus.txt' {name} --space.r_b 0.1 0.2"
    edge = Edge("r_B", 0.2, "highest", "--space.r-b 0.1 0.2 0.3")
    for command_line in (given, f"{given} --optim.max-steps 9"):
        more = " --optim.max-steps 9" if command_line != given else ""
        expected = f"python -m search.coarse_grid --corpus 'my corpus.txt'{more} {edge.flags}"
        assert wider(command_line, edge) == expected


def test_the_edge_of_a_named_search_can_be_moved_by_the_command_that_is_printed(
    store: Tracking,
) -> None:
    script = {0.1: [60.0], 0.2: [62.0]}
    given = "python -m search.coarse_grid --name x --space.alpha 0.1 0.2"
    plan = stubs.plan((0.1, 0.2), name="x", command=given)
    outcomes = drive(plan, store, scripted(script))
    best = report.write_best(plan, outcomes, 55.0)
    text = StringIO()
    report.print_report(plan, outcomes, {STSB: 55.0}, best, store, Console(file=text, width=200))
    page = write_page(plan, outcomes, {STSB: 55.0}, best, []).read_text()
    moved = "python -m search.coarse_grid --space.alpha 0.1 0.2 0.3 0.4"
    assert f"beyond:\n  {moved}\n" in text.getvalue()
    assert f"<pre>{moved}</pre>" in page


def test_the_stage_before_is_of_the_same_base_and_has_grid_and_budget_of_its_own() -> None:
    given = "--corpus c.txt --around.alpha-reach 2 --seeds 0 1 --sampler grid --name x --depth 3"
    given += " --dry-run --data-dir=d --max_trials 9 --optim.lr 1e-4"
    shared = "--preset quick --corpus c.txt --seeds 0 1 --name x --data-dir=d --optim.lr 1e-4"
    for stage, expected in (
        ("coarse", f"coarse_grid {shared}"),
        ("fine", f"fine_grid {shared}"),
        ("refine", f"refine_grid {shared}"),
        ("refine2", f"refine_grid {shared} --depth 2"),
    ):
        assert stage_before(stage, "quick", given.split()) == f"python -m search.{expected}"


@pytest.mark.usefixtures("store")
def test_a_stage_can_start_once_the_commands_that_it_asks_for_have_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    training = stubs.counted(tmp_path / "log")
    monkeypatch.setattr(command, "console", Console(file=StringIO()))
    monkeypatch.setattr(command, "prepare", stub_inputs)
    monkeypatch.setattr(command, "measure", stub_cost)
    monkeypatch.setattr(
        command, "run_search", lambda plan, store, *_, **__: drive(plan, store, training)
    )
    flags = ["--name", "mine", "--optim.max-steps", "77", "--max-trials", "2"]
    flags += ["--projector.width=64", "--around.rate-reach", "1"]

    def asked_for(run: Callable[[Sequence[str]], int]) -> list[str]:
        with pytest.raises(ValueError, match="run it first") as missing:
            run(flags)
        return shlex.split(str(missing.value).splitlines()[-1])

    fine = asked_for(refine_grid.run)
    assert fine[:3] == ["python", "-m", "search.fine_grid"]
    coarse = asked_for(functools.partial(fine_grid.run))
    assert coarse[:3] == ["python", "-m", "search.coarse_grid"]
    assert coarse_grid.run(coarse[3:]) == 0
    assert fine_grid.run([*fine[3:], "--max-trials", "2"]) == 0
    assert refine_grid.run(flags) == 0
