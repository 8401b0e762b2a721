"""English sentences out of the documentation that is installed with this project anyway.

They let the project train without a network: the help topics and docstrings of the standard library
and the docstrings of the packages below, read from their files without importing them, cut into
sentences and reduced to plain prose. The same versions give the same sentences on every machine:
only packages that an installation always holds are read, and every choice goes by a hash of a
relative path or of the text.

This is technical prose, much narrower than Wikipedia; scores after training on it compare with
nothing published.
"""

from __future__ import annotations

import ast
import hashlib
import heapq
import importlib.metadata
import importlib.util
import os
import platform
import re
import sys
import sysconfig
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import track

from scd_core import places
from scd_core.data import DataError

# Distributions: the hard dependencies in pyproject.toml and packages that these always pull in; an
# optional package would make the sentences differ between machines.
PACKAGES = (
    "datasets", "fsspec", "huggingface-hub", "jinja2", "matplotlib", "mlflow", "networkx", "numpy",
    "optuna", "pandas", "pyarrow", "pydantic", "ray", "rich", "safetensors", "scikit-learn",
    "scipy", "sqlalchemy", "sympy", "torch", "transformers", "tyro",
)  # fmt: skip
STANDARD_LIBRARY = "python"
TOTAL = 20_000
"""Most sentences in all."""
PER_PACKAGE = 1_500
"""Most sentences of one package, the standard library among them."""
FILES_PER_PACKAGE = 200
"""Most files read of one package, in the order of a hash of their relative path. Reading stops
sooner when there are twice ``PER_PACKAGE`` sentences; both bound the time."""
WORDS = range(6, 41)
"""Words of a sentence that is kept."""
CLEANING = 1
"""Version of the rules below; part of the cache's name, so raise it with every change to them."""

# Left out of the standard library: what distributors leave out or ship apart, its tests, and
# the help topics, which are read by name.
_SKIPPED_MODULES = {
    "distutils", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "this", "tkinter",
    "turtle", "turtledemo", "venv",
}  # fmt: skip
# Tests, and other projects' code that some builds carry inside a package.
_SKIPPED_FOLDERS = {
    "_test", "_vendor", "extern", "externals", "test", "tests", "testing", "third_party",
    "thirdparty", "thirdparty_files", "vendored",
}  # fmt: skip

_FENCED = re.compile(r"^ *(```|~~~).*?(^ *\1|\Z)", re.MULTILINE | re.DOTALL)
# First characters of lines that are lists, directives, field lists, tables, doctests or headings.
_NOT_PROSE_LINE = re.compile(r">>>|\.\.|[-*+•#|:@=~^_`%$\\<\[({]|\(?(\d{1,3}|[a-zA-Z])[.)] ")
_UNDERLINE = re.compile(r"([=\-~^*#\"'`])\1{2,}$")
_MARKUP = [
    (re.compile(r":(?!math)[a-zA-Z:+-]+:`~?!?([^`<]+?)(?: *<[^`]*>)?`"), r"\1"),  # :class:`x <y>`
    (re.compile(r"\[`~?!?([^`]+)`\](?:\([^)\s]*\))?"), r"\1"),  # [`x`], [`x`](y)
    (re.compile(r"``([^`]+)``"), r"\1"),
    (re.compile(r"`([^`<]+?)(?: *<[^`]*>)?`_{0,2}"), r"\1"),  # `x`, `x <y>`_
    (re.compile(r" ?\[[#*]?[\w.+-]*\]_"), ""),  # citations
    (re.compile(r"\[([^][]+)\]\([^)\s]*\)"), r"\1"),  # [x](y)
    (re.compile(r"(?<![\w*])(\*{1,3})(\w(?:[^*]*\w)?)\1(?![\w*])"), r"\2"),  # *x*, **x**
]  # fmt: skip
_TYPOGRAPHY = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "…": "...", "\u00a0": " "})
_ABBREVIATION = re.compile(
    r"\b(?:e\.g|i\.e|etc|cf|vs|al|resp|approx|incl|[Ee]q|[Ff]ig|[Ss]ec|Ref|No|Dr|Mr|Prof|St|Ch|pp?"
    r"|[A-Z])\.$"
)
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')]?\s+(?=[\"'(]?[A-Z0-9])")
# Dotted, underscored and camel-case names, calls, paths, options, operators, leftover mark-up.
_CODE = re.compile(
    r"[][{}<>=|@#$^&*~\\`+_]|\w\.(?!g\.|e\.)[A-Za-z]|(?<!\w)\.\w|[a-z][A-Z]|\w\(|:\w|::|//|--|\.\."
    r"|(?<!\w)[/-]\w|\w/\w+/|[:;]$"
)
_NO_LETTER = re.compile(r"[^\w ]|\d")
_NOTICE = re.compile(r"licen[cs]e|copyright|warrant|redistribut|all rights reserved", re.IGNORECASE)
# A run of words with none of these is a label or a list of names.
_GLUE = frozenset(
    """a an the of to in on for with by from as at is are was be been being that this these those it
    its if or and not can will may must should has have had when which who whose you your we they
    do does no any all each into than then there so but only""".split()  # noqa: SIM905
)


def sentences() -> list[str]:
    """The sentences, from the cache where these versions have been read before.

    Raises:
        DataError: a package that belongs to the project's dependencies is missing.
    """
    file = places.cache() / "documentation" / f"{cache_key()}.txt"
    if not file.is_file():
        _write_atomically(file, "".join(f"{s}\n" for s in select(collect())))
    return file.read_text(encoding="utf-8").split("\n")[:-1]


def cache_key() -> str:
    """Sixteen hex digits over the versions of Python, the packages and the cleaning rules."""
    versions = [f"cleaning {CLEANING}", f"python {platform.python_version()}"]
    versions += [f"{name} {_distribution(name).version}" for name in PACKAGES]
    return hashlib.sha256("\n".join(versions).encode()).hexdigest()[:16]


def _write_atomically(file: Path, text: str) -> None:
    """Write UTF-8 text so that a reader, at any moment, sees the whole file or none."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".part-{uuid.uuid4().hex}")
    try:
        part.write_text(text, encoding="utf-8", newline="")
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def collect() -> dict[str, list[str]]:
    """Clean sentences by package, in a fixed order; shows its progress on stderr."""
    bar = track(
        [STANDARD_LIBRARY, *PACKAGES],
        "Reading installed documentation",
        console=Console(stderr=True),
    )
    return {name: read_package(name) for name in bar}


def read_package(name: str) -> list[str]:
    """Clean sentences of a package (or ``STANDARD_LIBRARY``), duplicates included."""
    if name == STANDARD_LIBRARY:
        files, texts = _standard_library(), _help_topics()
    else:
        files, texts = python_files(package_folder(name)), []
    found = [sentence for text in texts for sentence in clean(text)]
    for _, file in heapq.nsmallest(FILES_PER_PACKAGE, files, key=lambda item: _digest(item[0])):
        if len(found) >= 2 * PER_PACKAGE:
            break
        found += [sentence for text in docstrings(file) for sentence in clean(text)]
    return found


def select(
    found: dict[str, list[str]], per_package: int = PER_PACKAGE, total: int = TOTAL
) -> list[str]:
    """At most ``total`` sentences, at most ``per_package`` of one package, in a hash's order.

    Sentences that differ only in case, names or numbers count as the same; the first package in
    the order of ``found`` keeps it.
    """
    seen: set[str] = set()
    chosen: list[str] = []
    for all_found in found.values():
        own = []
        for sentence in all_found:
            if (key := _skeleton(sentence)) not in seen:
                seen.add(key)
                own.append(sentence)
        chosen += heapq.nsmallest(per_package, own, key=_digest)
    return heapq.nsmallest(total, chosen, key=_digest)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _skeleton(sentence: str) -> str:
    first, *rest = re.findall(r"[^\W\d_]+", sentence)
    return " ".join([first.casefold(), *(w for w in rest if w.islower())])


def _distribution(name: str) -> importlib.metadata.Distribution:
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError as error:
        raise DataError(
            f"data.corpus = 'documentation' reads the package {name!r}, which is not "
            "installed: install the project's dependencies, or give a text file with --corpus"
        ) from error


def package_folder(name: str) -> Path:
    """Folder of an installed distribution's package, found without importing it."""
    module = "sklearn" if name == "scikit-learn" else name.replace("-", "_")
    # By its metadata first: a folder of the same name in the working directory is not the package.
    folder = Path(str(_distribution(name).locate_file(module)))
    if folder.is_dir():
        return folder
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            f"data.corpus = 'documentation': the folder of the package {module!r} is not found; "
            "install it again, or give a text file with --corpus"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def python_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """(relative name, file) of the Python files below a folder, without tests and foreign code."""
    for parent, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if f not in _SKIPPED_FOLDERS]
        for file in files:
            if file.endswith(".py") and not file.startswith("test_") and "_pb2" not in file:
                path = Path(parent, file)
                yield path.relative_to(folder).as_posix(), path


def _standard_library() -> Iterator[tuple[str, Path]]:
    root = Path(sysconfig.get_path("stdlib"))
    for module in sys.stdlib_module_names - _SKIPPED_MODULES:
        if (root / f"{module}.py").is_file():
            yield f"{module}.py", root / f"{module}.py"
        elif (root / module).is_dir():
            yield from ((f"{module}/{n}", p) for n, p in python_files(root / module))


def _help_topics() -> list[str]:
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some distributors leave it out
        return []
    return [topics[name] for name in sorted(topics)]


def docstrings(file: Path) -> Iterator[str]:
    """Docstrings of a file's module, classes and functions, in the order of the source.

    A file that this Python cannot parse has none.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    waiting: list[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef] = [tree]
    while waiting:
        node = waiting.pop()
        if text := ast.get_docstring(node):
            yield text
        waiting += [
            child
            for child in reversed(node.body)
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        ]


def clean(text: str) -> list[str]:
    """The prose sentences of a docstring or help topic, mark-up removed."""
    return [
        sentence
        for paragraph in paragraphs(text.translate(_TYPOGRAPHY))
        for sentence in split(_without_markup(paragraph))
        if is_prose(sentence)
    ]


def paragraphs(text: str) -> list[str]:
    """Unindented running text, one string a paragraph: no headings, lists, tables, code, fields."""
    found = []
    for block in re.split(r"\n\s*\n", _FENCED.sub("\n\n", text)):
        lines = block.strip("\n").splitlines()
        if len(lines) > 1 and _UNDERLINE.match(lines[1].strip()):
            lines = lines[2:]
        if lines and not any(line[:1].isspace() or _NOT_PROSE_LINE.match(line) for line in lines):
            found.append(" ".join(" ".join(lines).split()))
    return found


def _without_markup(text: str) -> str:
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return text


def split(paragraph: str) -> list[str]:
    """A paragraph's sentences; a full stop after an abbreviation or an initial ends none."""
    found, start = [], 0
    for match in _SENTENCE_END.finditer(paragraph):
        end = match.start() + len(match.group().rstrip())
        if not _ABBREVIATION.search(paragraph[start:end]):
            found.append(paragraph[start:end])
            start = match.end()
    return [*found, paragraph[start:]]


def is_prose(sentence: str) -> bool:
    """Whether a sentence is plain English prose rather than code, a label, a table or a notice."""
    words = sentence.split()
    return (
        len(words) in WORDS
        and sentence[0].isupper()
        and sentence[-1] in ".!?"
        and not _CODE.search(sentence)
        and not _NOTICE.search(sentence)
        and len(_NO_LETTER.findall(sentence)) <= 0.1 * len(sentence)
        and sentence.count("(") == sentence.count(")")
        and sentence.count('"') % 2 == 0
        and sum(w.isupper() and len(w) > 1 for w in words) <= 0.2 * len(words)
        and sum(w.strip("(),.;:").lower() in _GLUE for w in words) >= 2
    )
