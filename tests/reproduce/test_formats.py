"""LaTeX that compiles, HTML that needs nothing else, and the same content in every format."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from reproduce import figures, render
from reproduce.compare import build
from reproduce.layouts import LAYOUTS
from reproduce.sheet import Sheet, sheet
from reproduce.tables import Source, write
from scd_core.run_info import RunInfo
from tests.reproduce.test_tables import EMBEDDING

MakeRun = Callable[..., RunInfo]


@pytest.fixture
def runs(e6_store: list[RunInfo], make_evaluation: MakeRun) -> list[RunInfo]:
    awkward = {"model": "50%_model & {x}~^$#", "scd.command": "python <b> | & \\ {y}"}
    foreign = {"model": "/m/[mine] λ 模型", "model_fingerprint": "f" * 64}
    return [
        *e6_store,
        make_evaluation("ev", 66.0, **EMBEDDING | awkward),
        make_evaluation("foreign", 66.0, **EMBEDDING | foreign),
    ]


@pytest.fixture
def every(runs: list[RunInfo]) -> list[Sheet]:
    return [sheet(build(name, runs)) for name in LAYOUTS]


def test_latex_compiles(runs: list[RunInfo], tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("no pdflatex: apt-get install texlive-latex-recommended lmodern")
    write(Source(runs), tmp_path)
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "tables.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Missing character" not in (tmp_path / "tables.log").read_text(errors="replace")
    assert (tmp_path / "tables.pdf").stat().st_size > 10_000


def test_latex_is_whole_without_a_compiler(every: list[Sheet]) -> None:
    for one in every:
        text = render.latex(one)
        assert text.count(r"\begin{longtable}") == text.count(r"\end{longtable}") == 1
        assert text.isascii()
        body = text.split(r"\endlastfoot")[1].split(r"\end{longtable}")[0]
        body = body.replace(r"\&", "")
        lines = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert [line.count("&") for line in lines] == [len(one.header) - 1] * len(one.lines)
        unescaped = re.sub(r"\\[_%&#$]|\$\\[a-z]+\$", "", body)
        assert not re.search(r"[_%#$]", unescaped.replace("&", ""))


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "td":
            self.cells[-1] += data


def test_the_page_needs_nothing_else_and_holds_every_cell(every: list[Sheet]) -> None:
    page = _Page()
    text = render.html("Tables", every)
    page.feed(text)
    assert page.open == []
    assert all(address.startswith("#") for address in page.addresses)
    assert "<script" not in text
    assert "@import" not in text
    assert page.cells == [cell for one in every for line in one.lines for cell in line.cells]


def test_markdown_rows_have_a_cell_a_column(every: list[Sheet]) -> None:
    for one in every:
        rows = [line for line in render.markdown(one).splitlines() if line.startswith("| ")]
        assert len(rows) == len(one.lines) + 2
        assert {line.replace("\\|", "").count("|") for line in rows} == {len(one.header) + 1}


def test_the_same_runs_give_the_same_files(runs: list[RunInfo], tmp_path: Path) -> None:
    """Figures, page and index, whatever the order of runs."""
    for name, some in (("a", runs), ("b", runs[::-1])):
        figures.write(build("figure2", some), tmp_path / name)
        write(Source(some), tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert {"README.md", "tables.html", "tables.tex", "figure2.svg", "figure2.png"} < set(files)
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file
