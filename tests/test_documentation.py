"""Sentences out of installed documentation: what is kept, what is dropped, and that it repeats."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scd_core import documentation, places
from scd_core.data import DataError
from scd_core.documentation import clean, is_prose, paragraphs, python_files, select, split

PACKAGE = {
    "__init__.py": '"""The package counts the apples of a garden.\n\nIt is small."""\n',
    "core.py": '''
raise RuntimeError("reading must not import")

class Tree:
    r"""A tree holds its apples in the order of their ripeness.

    It was described in ``Tree.__init__`` and never anywhere else again.
    The weight is kept by :class:`~garden.Apple`, e.g. in a *short* list [1]_.
    See http://example.org for the description of the method.

    Parameters
    ----------
    height : float
        The height of the tree as it was measured in the garden.

    Notes
    -----
    The oldest apples are to be found at the top of the tree.

    >>> print("The doctest is not a sentence of the text.")
    The output of the doctest is not kept by the cleaning.

    The code that follows is left out of the sentences::

        The indented block is code and not a part of it.

    - The first item of a list is not taken as prose.
    """

    def pick(self):
        """Return the apples that are ripe, in the order of their weight."""

        async def inner():
            """Wait for the apple that is the last to fall."""
''',
    "latin.py": '# coding: latin-1\n"""The caf\xe9 in the garden is open to all of them."""\n',
    "broken.py": '"""The file cannot be parsed by the language it is in."""\ndef (\n',
    "plain.py": 'VALUE = """The text of a value is not the documentation of it."""\n',
    "tests/test_core.py": '"""The documentation of a test is not taken into the corpus."""\n',
    "_vendor/other.py": '"""The code of another project is not read by the package."""\n',
    "notice.py": '"""The software is under the licence that is found in the file."""\n',
}
KEPT = [
    "A tree holds its apples in the order of their ripeness.",
    "Return the apples that are ripe, in the order of their weight.",
    "The café in the garden is open to all of them.",
    "The oldest apples are to be found at the top of the tree.",
    "The package counts the apples of a garden.",
    "The weight is kept by garden.Apple, e.g. in a short list.",
    "Wait for the apple that is the last to fall.",
]


def make_package(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="latin-1" if name == "latin.py" else "utf-8")
    return root


@pytest.fixture
def garden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up package in the place of every real one."""
    folder = make_package(tmp_path / "garden", PACKAGE)
    monkeypatch.setattr(documentation, "package_folder", lambda name: folder)
    return folder


def test_a_package_yields_its_prose_and_nothing_else(garden: Path) -> None:
    found = documentation.read_package("garden")
    expected = [s for s in KEPT if "garden.Apple" not in s]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("The ``value`` is given to the function.", "The value is given to the function."),
        ("The `value` is given to the function.", "The value is given to the function."),
        ("The :class:`Value` is given to it.", "The Value is given to it."),
        ("The :py:meth:`~Value` is given to it.", "The Value is given to it."),
        ("The `value <http://a.b>`_ is given to it.", "The value is given to it."),
        ("The [`~Value`] is given to the function.", "The Value is given to the function."),
        ("The [value](http://a.b/c) is given to it.", "The value is given to it."),
        ("The *value* is **given** to the function.", "The value is given to the function."),
        ("The value is given to it [1]_.", "The value is given to it."),
        (
            "The “value” of it is given\nto the function.",
            'The "value" of it is given to the function.',
        ),
    ],
)
def test_markup_is_removed(text: str, sentence: str) -> None:
    assert clean(text) == [sentence]


@pytest.mark.parametrize(
    "sentence",
    [
        "The values are in the list.",
        "Is the value in the list that was given?",
        'The word "value" is in the list (and in the table).',
        "The value (e.g. a number) is in the well-known list; it is not in the table.",
    ],
)
def test_prose_is_kept(sentence: str) -> None:
    assert is_prose(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "",
        "It is small.",
        "the sentence starts in the middle of another.",
        "The sentence has no end and is cut",
        "The list is as follows, in the order of it:",
        "The value of x_1 is in the list of the function.",
        "The value of os.path is in the list of the function.",
        "The method .Value is in the list of the class.",
        "The class TreeNode of camelCase is in the list of it.",
        "The call of value() is in the list of the function.",
        "The option -v is in the list of the program.",
        "The option --verbose is in the list of the program.",
        "The file /etc/hosts is in the list of the program.",
        "The page http://example.org is in the list of it.",
        "The result is x = y in the list of the function.",
        "The :math:x of it is in the list of the function.",
        "The (bracket of it is never closed in the list.",
        'The "quote of it is never closed in the list.',
        "The 1 2 3 4 5 6 7 8 9 10 11 12 of it.",
        "THE SOFTWARE IS PROVIDED TO YOU AS IT IS.",
        "The copyright of the text is held by the authors of it.",
        "Apples, pears, plums, cherries, quinces, medlars.",
        "The " + "very " * 40 + "long sentence is in the list.",
    ],
)
def test_what_is_no_prose_is_dropped(sentence: str) -> None:
    assert not is_prose(sentence)


@pytest.mark.parametrize(
    "block",
    [
        "Heading of it\n=============",
        "- an item of a list\n- another",
        "* an item of a list",
        "1. an item of a list",
        "(a) an item of a list",
        ".. note:: of a directive",
        ":param value: of a field",
        "@param value of a field",
        ">>> doctest()\nits output",
        "| table | of | it |",
        "+-----+-----+",
        "    indented code",
        "name : type\n    its description",
        "Args:\n    name: its description",
        "```\nA fenced block.\n\nAnother line of it.\n```",
        "```python\nA fenced block that never ends.\n\nAnother line.",
    ],
)
def test_blocks_that_are_no_paragraphs_are_left_out(block: str) -> None:
    assert paragraphs(f"The first one.\n\n{block}\n\nThe last\none.")[:1] == ["The first one."]
    assert paragraphs(f"{block}\n\nThe last\none.") in (["The last one."], [])
    assert block.split("\n")[0] not in " ".join(paragraphs(block))


def test_sentences_are_split_at_their_ends_only() -> None:
    text = (
        'See Fig. 2 of A. Turing, e.g. The paper. It says "yes." Then? No! (Not now.) 3 are left.'
    )
    assert split(text) == [
        "See Fig. 2 of A. Turing, e.g. The paper.",
        'It says "yes."',
        "Then?",
        "No!",
        "(Not now.)",
        "3 are left.",
    ]


def test_the_same_sentence_with_other_names_numbers_or_case_is_taken_once() -> None:
    found = {
        "a": ["Build the Tree of depth 3.", "build the Forest of depth 12.", "Fell the Tree."],
        "b": ["Build the Garden of depth 5.", "Water the Garden."],
    }
    assert sorted(select(found)) == [
        "Build the Tree of depth 3.",
        "Fell the Tree.",
        "Water the Garden.",
    ]


def test_no_package_takes_more_than_its_share() -> None:
    letters = [f"{'abcdefghij'[i // 10]}{'abcdefghij'[i % 10]}" for i in range(100)]
    found = {
        "large": [f"The large one is {w}." for w in letters],
        "small": ["The small one is it."],
    }
    chosen = select(found, per_package=10, total=100)
    assert len(chosen) == 11
    assert "The small one is it." in chosen
    assert select(found, per_package=10, total=5) == chosen[:5]


def test_the_order_of_the_file_system_plays_no_part(
    garden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = documentation.read_package("garden")
    listed = list(python_files(garden))

    def backward(folder: Path) -> Iterator[tuple[str, Path]]:
        return reversed(listed)

    monkeypatch.setattr(documentation, "python_files", backward)
    assert documentation.read_package("garden") == forward


def test_the_place_of_the_package_plays_no_part(garden: Path, tmp_path: Path) -> None:
    here = documentation.read_package("garden")
    moved = make_package(tmp_path / "tests" / "elsewhere", PACKAGE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documentation, "package_folder", lambda name: moved)
        assert documentation.read_package("garden") == here


def test_the_second_call_reads_the_cache(garden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documentation, "PACKAGES", ("rich",))
    monkeypatch.setattr(documentation, "STANDARD_LIBRARY", "none")
    first = documentation.sentences()
    assert set(first) >= {KEPT[0], KEPT[1]}
    monkeypatch.setattr(documentation, "collect", lambda: pytest.fail("read again"))
    assert documentation.sentences() == first
    assert len(list((places.cache() / "documentation").iterdir())) == 1


def test_the_cache_is_of_these_versions_and_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [documentation.cache_key()]
    monkeypatch.setattr(documentation, "CLEANING", documentation.CLEANING + 1)
    keys.append(documentation.cache_key())
    monkeypatch.setattr(documentation.platform, "python_version", lambda: "3.99.0")
    keys.append(documentation.cache_key())
    assert len(set(keys)) == 3


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documentation, "PACKAGES", ("no-such-package",))
    with pytest.raises(DataError, match=r"'no-such-package', which is not installed: .*--corpus"):
        documentation.sentences()


def test_a_folder_of_the_same_name_is_not_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_package(
        tmp_path / "rich", {"__init__.py": '"""The wrong folder is read by the project."""'}
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert documentation.package_folder("rich").parent != tmp_path


def test_real_documentation_is_the_same_in_every_process(tmp_path: Path) -> None:
    code = (
        "from scd_core import documentation as d\n"
        "d.PACKAGES, d.FILES_PER_PACKAGE = ('rich', 'tyro'), 20\n"
        "print(*d.sentences(), sep='\\n')"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed, "SCD_HOME": str(tmp_path / seed)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert outputs[0].count(b"\n") > 500
