"""Terminal, Markdown, CSV, LaTeX and HTML of a sheet."""

from __future__ import annotations

import html as html_text
import re
from collections.abc import Sequence

import pandas as pd
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from reproduce.sheet import PUBLISHED, VERDICT, Line, Sheet

_SHORT_ID = 8  # characters of a run id in the terminal: enough to find it, and it fits a line
_RUN_ID = re.compile(r"\b[0-9a-f]{32}\b")
_TITLE_WIDTH = 40  # characters after which running text is folded
_LATEX = {
    "♣": r"$\clubsuit$",
    "♡": r"$\heartsuit$",
    "◊": r"$\lozenge$",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "±": r"$\pm$",
}
_BEYOND_LATIN = "\u0180"
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem;
  color: #1b1f24; background: #fff }
h2 { margin-top: 3rem } .scroll { overflow-x: auto }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums }
th, td { padding: .15rem .6rem; text-align: right; white-space: nowrap }
th { border-bottom: 2px solid #1b1f24 } th.col0 { text-align: left }
td { vertical-align: top } .text { text-align: left; white-space: normal }
.block { border-top: 1px solid #8a929a } .published { color: #667 }
.outside { color: #9a3412 } .within { color: #166534 }
.notes, .evidence { font-size: 13px; color: #444 } code { overflow-wrap: anywhere }
"""


def terminal(sheet: Sheet, console: Console | None = None) -> None:
    """Print a sheet and its evidence; lines are as long as its digits need."""
    console = console or Console()
    grid = Grid(box=box.SIMPLE_HEAD, title=sheet.title, title_justify="left", padding=(0, 1, 0, 0))
    for name in sheet.header:
        if name in sheet.texts:
            grid.add_column(name, max_width=_TITLE_WIDTH, overflow="fold")
        else:
            grid.add_column(name, justify="right", no_wrap=True)
    block = None
    for line in sheet.lines:
        if block not in (None, line.block):
            grid.add_section()
        block = line.block
        style = "dim" if line.kind == PUBLISHED else ""
        grid.add_row(*(Text(text, style=style) for text in line.cells))  # "[CLS]" is no markup
    needed = Measurement.get(console, console.options.update(max_width=1000), grid).maximum
    console.width = max(console.width, needed)  # a digit is never cut off to save space
    console.print(grid)
    for sentence in sheet.notes:
        console.print(Text(sentence), soft_wrap=True)
    console.print()
    for row, texts in sheet.evidence:
        console.print(Text(row), style="bold", soft_wrap=True)
        for text in texts:
            short = _RUN_ID.sub(lambda found: found[0][:_SHORT_ID], text)
            shown = text if text.startswith("to fill") else short  # commands can be copied
            console.print(Text(f"  {shown}"), soft_wrap=True)


def markdown(sheet: Sheet) -> str:
    """A sheet and its evidence, with whole run ids."""
    rules = ["---" if name in sheet.texts else "---:" for name in sheet.header]
    text = [f"## {sheet.title}", "", _row(sheet.header), _row(rules)]
    text += [_row(line.cells) for line in sheet.lines]
    text += ["", *(f"{sentence}  " for sentence in sheet.notes), ""]
    for row, texts in sheet.evidence:
        text.append(f"- {_escape(row)}")
        text += [f"  - {_escape(what)}" for what in texts]
    return "\n".join(text).rstrip("\n") + "\n"


def csv(sheet: Sheet) -> str:
    """The whole frame with all digits."""
    return str(sheet.frame.to_csv(index=False, lineterminator="\n"))


def latex(sheet: Sheet) -> str:
    """A longtable with its notes, for ``\\input`` into ``latex_document``."""
    grid = _grid(sheet)
    style = grid.style.format(escape="latex").format_index(escape="latex", axis=1)
    wide = [name in sheet.texts for name in sheet.header]
    width = {1: 4.6, 2: 4.2}.get(sum(wide), 3.0)
    body = style.hide(axis="index").to_latex(
        column_format="".join(
            f">{{\\raggedright\\arraybackslash}}p{{{width}cm}}" if w else "r" for w in wide
        ),
        environment="longtable",
        hrules=True,
    )
    lines = body.splitlines()
    # where a block begins; the table's lines are those that end in \\ after the last head
    start = max(i for i, line in enumerate(lines) if line.startswith(r"\endlastfoot")) + 1
    rows = list(lines[start:])
    for i in reversed(range(1, len(sheet.lines))):
        if sheet.lines[i].block != sheet.lines[i - 1].block:
            rows.insert(i, r"\midrule")
    notes = "\n".join(f"{_tex(sentence)}\\\\" for sentence in sheet.notes)
    # after the \\ of the line before, a [ would begin a length
    rows = [f"{{}}{line}" if line.startswith("[") else line for line in rows]
    text = _symbols("\n".join([*lines[:start], *rows]))
    return (
        f"\\section*{{{_tex(sheet.title)}}}\n{{\\footnotesize\n{text}\n\\par\\raggedright\n"
        f"{notes}\n}}\n"
    )


def latex_document(names: Sequence[str]) -> str:
    """A document that compiles beside the sheets' ``.tex`` files of those names."""
    inputs = "\n".join(f"\\input{{{name}.tex}}\n\\clearpage" for name in names)
    return (
        "\\documentclass[a4paper]{article}\n"
        "\\usepackage[utf8]{inputenc}\n\\usepackage[T1]{fontenc}\n\\usepackage{lmodern}\n"
        "\\usepackage{amssymb,array,booktabs,longtable}\n"
        "\\usepackage[margin=1.5cm,landscape]{geometry}\n"
        "\\setlength{\\tabcolsep}{4pt}\n\\setlength{\\parindent}{0pt}\n"
        f"\\begin{{document}}\n{inputs}\n\\end{{document}}\n"
    )


def html(title: str, sheets: Sequence[Sheet], images: Sequence[tuple[str, str]] = ()) -> str:
    """One page that needs nothing but itself.

    Args:
        title: of the page.
        sheets: in their order.
        images: caption and SVG text of each figure, shown last.
    """
    contents = "".join(
        f'<li><a href="#{sheet.name}">{html_text.escape(sheet.title)}</a></li>' for sheet in sheets
    )
    body = "".join(_section(sheet) for sheet in sheets)
    for caption, svg in images:
        drawing = svg[svg.index("<svg") :]
        body += f"<figure>{drawing}<figcaption>{html_text.escape(caption)}</figcaption></figure>"
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{html_text.escape(title)}'
        f"</title><style>{_STYLE}</style></head><body><h1>{html_text.escape(title)}</h1>"
        f"<ul>{contents}</ul>\n{body}</body></html>\n"
    )


def _section(sheet: Sheet) -> str:
    grid = _grid(sheet)
    marks = [[_classes(sheet, i, name) for name in sheet.header] for i in range(len(sheet.lines))]
    style = grid.style.format(escape="html").format_index(escape="html", axis=1)
    style = style.set_uuid(sheet.name).hide(axis="index")
    table = style.set_td_classes(pd.DataFrame(marks, columns=grid.columns)).to_html(
        table_uuid=sheet.name, cell_ids=False
    )
    notes = "".join(f"<p>{html_text.escape(sentence)}</p>" for sentence in sheet.notes)
    evidence = "".join(
        f"<dt>{html_text.escape(row)}</dt>"
        + "".join(f"<dd><code>{html_text.escape(text)}</code></dd>" for text in texts)
        for row, texts in sheet.evidence
    )
    details = f"<details><summary>Runs and commands</summary><dl>{evidence}</dl></details>"
    return (
        f'<h2 id="{sheet.name}">{html_text.escape(sheet.title)}</h2><div class="scroll">{table}'
        f'</div><div class="notes">{notes}</div>'
        + (f'<div class="evidence">{details}</div>' if evidence else "")
        + "\n"
    )


def _classes(sheet: Sheet, i: int, name: str) -> str:
    line: Line = sheet.lines[i]
    first = i > 0 and sheet.lines[i - 1].block != line.block
    cell = line.cells[sheet.header.index(name)]
    marks = {
        "text": name in sheet.texts,
        "block": first,
        PUBLISHED: line.kind == PUBLISHED,
        cell: line.kind == VERDICT and cell in ("within", "outside"),
    }
    return " ".join(mark for mark, on in marks.items() if on)


def _grid(sheet: Sheet) -> pd.DataFrame:
    return pd.DataFrame([line.cells for line in sheet.lines], columns=list(sheet.header))


def _tex(text: str) -> str:
    (escaped,) = re.findall(
        r"BEGIN(.*)END", pd.DataFrame([f"BEGIN{text}END"]).style.format(escape="latex").to_latex()
    )
    return _symbols(escaped)


def _symbols(text: str) -> str:
    """With a command, or its number, in place of what the document's fonts do not have."""
    for symbol, command in _LATEX.items():
        text = text.replace(symbol, command)
    return "".join(c if c < _BEYOND_LATIN else f"U+{ord(c):04X}" for c in text)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_escape(cell) for cell in cells) + " |"


def _escape(text: str) -> str:
    return text.replace("|", "\\|")
