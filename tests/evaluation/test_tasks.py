"""The declared tasks: whole, readable, and refused where the data is not what is declared."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest

from scd_core.data import DataError
from scd_core.evaluation.pairs import PairFile, Pairs, read_files
from scd_core.evaluation.suite import Suite, load_suite
from scd_core.evaluation.tasks import (
    STS_DEV,
    STS_TEST,
    StsTask,
    load_dev,
    load_sample_test,
    read_task,
)

TASKS = STS_TEST + STS_DEV
every_task = pytest.mark.parametrize("task", TASKS, ids=lambda t: f"{t.split}.{t.name}")


def _write(root: Path, file: PairFile) -> None:
    """A stand-in with the declared lines and scores, in the declared columns, with CRLF ends."""
    width = max(file.columns) + 2
    lines = ["\t".join(["head"] * width)] * file.header
    scores = []
    for i in range(file.lines):
        cells, score = ["x"] * width, f"{i % 6}.5" if i < file.pairs else ""
        cells[file.columns[0]], cells[file.columns[1]] = f'"a {i}', f"b {i}\u2028"
        if file.scores:
            scores.append(score)
        else:
            cells[file.columns[2]] = score
        lines.append("\t".join(cells))
    for name, content in ((file.path, lines), (file.scores, scores)):
        if name:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes("".join(f"{line}\r\n" for line in content).encode())


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for task in TASKS:
        for file in task.files:
            _write(folder / "senteval", file)
    return folder


@pytest.fixture
def copy(stand_in: Path, tmp_path: Path) -> Path:
    return shutil.copytree(stand_in, tmp_path / "copy")


def test_table_1_is_declared_in_its_order_with_the_published_counts() -> None:
    titles = ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R"]
    assert [task.title for task in STS_TEST] == titles
    assert [task.pairs for task in STS_TEST] == [3108, 1500, 3750, 3000, 1186, 1379, 4927]
    assert [task.lines for task in STS_TEST] == [3108, 1500, 3750, 8500, 9183, 1379, 4927]
    assert [(task.name, task.pairs) for task in STS_DEV] == [("stsb", 1500), ("sickr", 500)]
    assert not any("SMT" in path for path in STS_TEST[1].paths)
    assert all(task.citation for task in TASKS)
    assert {task.split for task in STS_TEST} == {"test"}
    assert {task.split for task in STS_DEV} == {"dev"}


@every_task
def test_columns_quotes_and_line_ends(stand_in: Path, task: StsTask) -> None:
    pairs = read_task(stand_in / "senteval", task)
    assert (pairs.name, pairs.split) == (task.name, task.split)
    assert (len(pairs.first), len(pairs.second), len(pairs.gold)) == (task.pairs,) * 3
    assert (pairs.lines, pairs.unscored) == (task.lines, task.lines - task.pairs)
    assert (pairs.first[0], pairs.second[1]) == ('"a 0', "b 1\u2028")
    assert set(pairs.gold) == {0.5, 1.5, 2.5, 3.5, 4.5, 5.5}


# A row as the toolkit's files have it, and the scores of its other file where there is one.
LAYOUT = {
    "stsb": ("genre\tfile\tyear\t0001\t2.5\tone\ttwo\tsource\tsource", None),
    "sickr": ("pair_ID\tsentence_A\tsentence_B\tscore\tlabel\n6\tone\ttwo\t2.5\tNEUTRAL\r", None),
    "year": ("one\ttwo\tsource", "2.5"),
}


@every_task
def test_a_row_of_the_published_layout(tmp_path: Path, task: StsTask) -> None:
    row, score = LAYOUT.get(task.name, LAYOUT["year"])
    for file in task.files:
        (tmp_path / file.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file.path).write_bytes(f"{row}\n".encode())
        if file.scores:
            (tmp_path / file.scores).write_text(f"{score}\n")
    files = [dataclasses.replace(file, lines=1, pairs=1) for file in task.files]
    pairs = read_files(tmp_path, files, task.name, task.split)
    n = len(files)
    assert (pairs.first, pairs.second) == (["one"] * n, ["two"] * n)
    assert pairs.gold.tolist() == [2.5] * n


@pytest.mark.shared
@every_task
def test_real_data_has_every_declared_pair(data_dir: Path, task: StsTask) -> None:
    pairs = read_task(data_dir / "senteval", task)
    assert (len(pairs.first), len(pairs.second), len(pairs.gold)) == (task.pairs,) * 3
    assert pairs.lines == task.lines
    assert pairs.gold.min() >= 0
    assert pairs.gold.max() == 5
    assert all(text.strip() and not set(text) & set("\r\n\t") for text in pairs.first)
    assert all(text.strip() and not set(text) & set("\r\n\t") for text in pairs.second)


@pytest.mark.shared
def test_real_data_loads_in_table_order(data_dir: Path) -> None:
    found = load_suite(("sts",), data_dir).pairs
    assert [pairs.name for pairs in found] == [task.name for task in STS_TEST]
    assert [pairs.name for pairs in load_dev("sts", data_dir)] == ["stsb", "sickr"]


@every_task
def test_a_cut_file_is_refused_by_name_and_counts(copy: Path, task: StsTask) -> None:
    root = copy / "senteval"
    for file in task.files:
        for name in filter(None, (file.path, file.scores)):
            whole = (root / name).read_bytes()
            (root / name).write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
            with pytest.raises(DataError) as caught:
                read_task(root, task)
            assert str(root / name) in str(caught.value)
            assert str(file.lines) in str(caught.value)
            assert str(file.lines - 1) in str(caught.value)
            (root / name).write_bytes(whole)


@every_task
def test_sentences_and_scores_cut_alike_are_refused(copy: Path, task: StsTask) -> None:
    root, file = copy / "senteval", task.files[0]
    for name in filter(None, (file.path, file.scores)):
        content = (root / name).read_bytes().splitlines(keepends=True)
        (root / name).write_bytes(b"".join(content[:-1]))
    with pytest.raises(DataError) as caught:
        read_task(root, task)
    expected = f"{root / file.path} has {file.lines - 1} lines, expected {file.lines}"
    assert expected in str(caught.value)


@every_task
def test_a_lost_score_is_refused_by_name_and_counts(copy: Path, task: StsTask) -> None:
    root, file = copy / "senteval", task.files[0]
    path = root / (file.scores or file.path)
    path.write_bytes(path.read_bytes().replace(b"2.5", b"", 1))
    with pytest.raises(DataError) as caught:
        read_task(root, task)
    assert f"{path} has {file.pairs - 1} scores, expected {file.pairs}" in str(caught.value)


@every_task
def test_every_missing_file_is_listed_at_once(copy: Path, task: StsTask) -> None:
    load = _load_test if task.split == "test" else lambda folder: load_dev("sts", folder)
    for path in task.paths:
        (copy / "senteval" / path).unlink()
    with pytest.raises(DataError, match=f"^{len(task.paths)} of") as caught:
        load(copy)
    assert all(path in str(caught.value) for path in task.paths)
    assert "--data-dir" in str(caught.value)


def _load_test(folder: Path) -> Suite:
    return load_suite(("sts",), folder)


def test_an_empty_folder_lists_every_file_of_the_sets_that_are_read(tmp_path: Path) -> None:
    for load, tasks in (
        (_load_test, STS_TEST),
        (lambda folder: load_dev("sts", folder), STS_DEV),
    ):
        with pytest.raises(DataError) as caught:
            load(tmp_path)
        assert all(path in str(caught.value) for task in tasks for path in task.paths)


def _toy(root: Path, scores: str, lines: int = 4, pairs: int = 2) -> Pairs:
    (root / "in.txt").write_text("a\tb\nc\td\ne\tf\ng\th\n")
    (root / "gs.txt").write_text(scores)
    file = PairFile("in.txt", lines, pairs, columns=(0, 1, 0), scores="gs.txt")
    return read_files(root, [file], "toy", "test")


def test_blank_is_missing_and_zero_is_a_score(tmp_path: Path) -> None:
    pairs = _toy(tmp_path, "5\n\n \n0\n")
    assert (pairs.first, pairs.second) == (["a", "g"], ["b", "h"])
    assert pairs.gold.tolist() == [5.0, 0.0]
    assert (pairs.lines, pairs.unscored) == (4, 2)


def test_sentences_and_scores_of_different_length_name_both_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"in\.txt has 4 lines .*gs\.txt have 3"):
        _toy(tmp_path, "5\n\n0\n")


def test_files_of_a_task_are_pooled_in_order(tmp_path: Path) -> None:
    for name, row in (("one", "a\tb\t3\n"), ("two", "c\td\t1\n")):
        (tmp_path / name).write_text(row)
    pairs = read_files(tmp_path, [PairFile("one", 1, 1), PairFile("two", 1, 1)], "toy", "test")
    assert (pairs.first, pairs.gold.tolist()) == (["a", "c"], [3.0, 1.0])


def test_fingerprint_follows_content_only() -> None:
    def pairs(first: list[str], second: list[str], gold: list[float], name: str = "x") -> str:
        return Pairs(name, "dev", first, second, np.array(gold), len(gold)).fingerprint

    base = pairs(["a", "b"], ["c", "d"], [1.0, 2.0])
    assert len(base) == 64
    assert base == pairs(["a", "b"], ["c", "d"], [1, 2], name="y")
    others = [
        pairs(["a", "b"], ["c", "d"], [1.0, 2.0 + 1e-15]),
        pairs(["b", "a"], ["c", "d"], [1.0, 2.0]),
        pairs(["c", "d"], ["a", "b"], [1.0, 2.0]),
        pairs(["a\nb", ""], ["c", "d"], [1.0, 2.0]),
        pairs(["a", "b"], ["c", "d "], [1.0, 2.0]),
    ]
    assert len({base, *others}) == 6


class TestOwnPairs:
    ROWS = "a\tb\t10\nc\td\t\ne\tf\t-3.5\textra\ng\th\t100\n"

    def load(self, folder: Path, text: str | bytes) -> Pairs:
        path = folder / "own.tsv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        [pairs] = load_dev(str(path), None)
        return pairs

    @pytest.mark.parametrize(
        "head", ["", "sentence1\tsentence2\tscore\n", "s1\ts2\tSimilarity\tkind\n", "\ufeff"]
    )
    def test_any_scale_with_or_without_header(self, tmp_path: Path, head: str) -> None:
        for text in (head + self.ROWS, head + self.ROWS.replace("\n", "\r\n") + "\n"):
            pairs = self.load(tmp_path, text)
            assert (pairs.name, pairs.split) == ("pairs", "dev")
            assert (pairs.first, pairs.second) == (["a", "e", "g"], ["b", "f", "h"])
            assert pairs.gold.tolist() == [10, -3.5, 100]
            assert (pairs.lines, pairs.unscored) == (4, 1)

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            (ROWS + "i\tj\tnan\n", "line 5: found the score 'nan', expected a finite number"),
            (ROWS + "i\tj\tinf\n", "line 5: found the score 'inf', expected a finite number"),
            (ROWS + "i\tj\tscore\n", "line 5: found the score 'score'"),
            ("s1\ts2\tlikeness\n" + ROWS, "line 1: found the score 'likeness'.* or a header"),
            (ROWS + "i\tj\n", "line 5: found 2 tab-separated columns, expected at least 3"),
            (ROWS + "one, two, 3\n", "line 5: found 1 tab-separated columns"),
            (ROWS + "i\t \t3\n", "line 5: a sentence is empty"),
            (ROWS.encode() + b"caf\xe9\tj\t1\n", "line 5: byte 0xe9 is not UTF-8"),
            ("a\tb\t1\nc\td\t2\ne\tf\t\n", r"found 2 pairs .*\(1 lines without\), expected .* 3"),
            ("", "found 0 pairs"),
            ("a\tb\t1\nc\td\t1\ne\tf\t1\n", "all 3 scores are 1; expected scores that differ"),
        ],
    )
    def test_faults_are_named(self, tmp_path: Path, text: str | bytes, complaint: str) -> None:
        with pytest.raises(DataError, match=rf"own\.tsv.*{complaint}"):
            self.load(tmp_path, text)

    def test_a_source_that_is_nothing_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"dev = .*gone\.tsv' is neither 'sts' nor 'sample'"):
            load_dev(str(tmp_path / "gone.tsv"), None)


def test_sample_halves_cover_the_range_and_share_no_pair() -> None:
    [dev], [test] = load_dev("sample", None), load_sample_test()
    assert [(dev.name, dev.split), (test.name, test.split)] == [
        ("sample", "dev"),
        ("sample", "test"),
    ]
    for half in (dev, test):
        assert len(half.gold) >= 200
        assert half.unscored == 0
        assert half.gold.min() < 0.5
        assert half.gold.max() > 4.5
    assert not set(zip(dev.first, dev.second, strict=True)) & set(
        zip(test.first, test.second, strict=True)
    )
