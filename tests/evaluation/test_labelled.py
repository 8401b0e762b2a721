"""The transfer tasks: whole, readable, and refused where the data is not what is declared."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from scd_core.data import DataError
from scd_core.evaluation.labelled import (
    SPLITS,
    TRANSFER,
    LabelledFile,
    TransferTask,
    load_transfer,
)

FILES = [file for task in TRANSFER for file in task.files]
BY_NAME = {task.name: task for task in TRANSFER}
every_task = pytest.mark.parametrize("task", TRANSFER, ids=lambda task: task.name)


def _line(file: LabelledFile, label: str, i: int) -> str:
    folder = file.path.split("/")[0]
    return {
        "TREC": f'{label}:fine Who  said " {i} : \xf0 ?',
        "MRPC": f'{label}\t{i}\t{i}\tHe said " {i}\tShe  said {i} .',
        "SST": f'said " {i} . \t{label}',
    }.get(folder, f'said  " {i} . ')


def _content(file: LabelledFile) -> list[str]:
    labels = [label for label, count in file.rows.items() for _ in range(count)]
    head = ["\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"] * file.header
    return head + [_line(file, label, i) for i, label in enumerate(labels)]


def _write(root: Path, file: LabelledFile, lines: list[str]) -> None:
    path = root / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("\n".join(lines).encode(file.encoding))  # no newline after the last line


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for file in FILES:
        _write(folder / "senteval", file, _content(file))
    return folder


@pytest.fixture
def copy(stand_in: Path, tmp_path: Path) -> Path:
    return shutil.copytree(stand_in, tmp_path / "copy")


def test_table_2_is_declared_in_its_order_with_the_published_counts() -> None:
    assert [task.title for task in TRANSFER] == ["MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC"]
    rows = {
        task.name: [sum(sum(f.rows.values()) for f in task.files if f.split == split)
                    for split in SPLITS[task.kind]]
        for task in TRANSFER
    }  # fmt: skip
    assert rows == {
        "mr": [10662],
        "cr": [3775],
        "subj": [10000],
        "mpqa": [10606],
        "sst2": [67349, 872, 1821],
        "trec": [5452, 500],
        "mrpc": [4076, 1725],
    }
    for task in TRANSFER:
        assert task.citation
        assert {file.split for file in task.files} == set(SPLITS[task.kind])
        assert {label for file in task.files for label in file.rows} == set(task.classes)
    assert [task.name for task in TRANSFER if task.pairs] == ["mrpc"]


@every_task
def test_rows_labels_and_quotes(stand_in: Path, task: TransferTask) -> None:
    (data,) = load_transfer(stand_in, [task])
    assert data.damage == ()
    for split, part in data.splits.items():
        expected = Counter[str]()
        for file in task.files:
            if file.split == split:
                expected.update(file.rows)
        assert Counter(task.classes[label] for label in part.labels) == expected
        assert len(part.sentences) == len(part.labels) == expected.total()
        assert len(part.second) == (expected.total() if task.pairs else 0)
        assert all('said "' in sentence for sentence in part.sentences)
        assert not any("  " in s or s != s.strip() for s in [*part.sentences, *part.second])
        assert part.labels.dtype == np.int64


def test_each_form_is_read(stand_in: Path) -> None:
    first = {data.name: next(iter(data.splits.values())) for data in load_transfer(stand_in)}
    assert (first["cr"].sentences[0], first["cr"].labels[0]) == ('said " 0 .', 1)
    assert (first["sst2"].sentences[0], first["sst2"].labels[0]) == ('said " 0 .', 0)
    assert (first["trec"].sentences[0], first["trec"].labels[0]) == ('Who said " 0 : \xf0 ?', 0)
    assert first["mrpc"].sentences[0] == 'He said " 0'
    assert first["mrpc"].second[0] == "She said 0 ."


def test_a_blank_line_is_an_empty_sentence(copy: Path) -> None:
    file = BY_NAME["cr"].files[0]
    lines = _content(file)
    lines[3] = " "
    _write(copy / "senteval", file, lines)
    (data,) = load_transfer(copy, [BY_NAME["cr"]])
    assert data.splits["all"].sentences[3] == ""


def test_every_bad_file_is_in_one_error(copy: Path) -> None:
    subj, trec, mrpc = (BY_NAME[name].files[1] for name in ("subj", "trec", "mrpc"))
    root = copy / "senteval"
    _write(root, subj, _content(subj)[:20])
    _write(root, trec, [line.replace("NUM:", "ABBR:") for line in _content(trec)])
    _write(root, mrpc, [*_content(mrpc)[:-1], "1\t2\t3\tcut in the mid"])
    with pytest.raises(DataError) as caught:
        load_transfer(copy)
    message = str(caught.value)
    assert "SUBJ/subj.subjective: found 20 rows, expected 5000" in message
    assert "TREC/TREC_10.label: found 122 rows of label ABBR, expected 9" in message
    assert "TREC/TREC_10.label: found 0 rows of label NUM, expected 113" in message
    assert "MRPC/msr_paraphrase_test.txt: found 1724 rows, expected 1725" in message
    assert "the first is line 1726" in message
    assert "--allow-damaged" in message
    assert "MR/" not in message


def test_every_missing_file_is_in_one_error_whatever_is_allowed(copy: Path) -> None:
    for file in (FILES[0], FILES[-1]):
        (copy / "senteval" / file.path).unlink()
    with pytest.raises(DataError, match="2 of 15 evaluation files are missing") as caught:
        load_transfer(copy, allow_damaged=True)
    assert FILES[0].path in str(caught.value)
    assert FILES[-1].path in str(caught.value)


def test_damaged_data_is_loaded_when_allowed_and_says_so(copy: Path) -> None:
    file = BY_NAME["sst2"].files[2]
    _write(copy / "senteval", file, [*_content(file)[:-1], "cut in the mid"])
    whole, cut = load_transfer(copy, [BY_NAME["mr"], BY_NAME["sst2"]], allow_damaged=True)
    assert whole.damage == ()
    assert len(cut.splits["test"].labels) == 1820
    assert len(cut.damage) == 3
    assert all("sentiment-test: found" in problem for problem in cut.damage)


def test_too_few_rows_are_refused_whatever_is_allowed(copy: Path) -> None:
    file = BY_NAME["trec"].files[1]
    _write(copy / "senteval", file, _content(file)[:9])
    with pytest.raises(DataError, match=r"TREC/TREC_10.label hold 9 rows, too few"):
        load_transfer(copy, [BY_NAME["trec"]], allow_damaged=True)


def test_fingerprint_is_of_sentences_labels_and_order(copy: Path) -> None:
    def fingerprint() -> str:
        (data,) = load_transfer(copy, [BY_NAME["trec"]], allow_damaged=True)
        return data.fingerprint

    file = BY_NAME["trec"].files[1]
    lines, seen = _content(file), [fingerprint()]
    assert seen == [fingerprint()]
    for changed in (
        [lines[0].replace("Who", "What"), *lines[1:]],
        [lines[0].replace("ABBR", "HUM"), *lines[1:]],
        lines[::-1],
    ):
        _write(copy / "senteval", file, changed)
        seen.append(fingerprint())
    assert len(set(seen)) == 4


@pytest.mark.shared
def test_the_real_data_is_whole(data_dir: Path) -> None:
    loaded = load_transfer(data_dir)
    assert [data.damage for data in loaded] == [()] * 7
    by_name = {data.name: data.splits for data in loaded}
    assert {name: len(p.labels) for name, p in by_name["trec"].items()} == {
        "train": 5452,
        "test": 500,
    }
    assert "sister\xf0city" in " ".join(by_name["trec"]["train"].sentences)
    assert by_name["cr"]["all"].sentences.count("") == 4
    assert by_name["mrpc"]["train"].sentences[0].startswith("Amrozi accused his brother , whom")
    assert not any("\r" in text or "\ufeff" in text for data in loaded for text in data.texts)


@pytest.mark.shared
def test_the_known_damaged_copy_is_refused(data_dir: Path, tmp_path: Path) -> None:
    if not (data_dir / "senteval-damaged").is_dir():
        pytest.skip("no senteval-damaged/ beside senteval/")
    root = tmp_path / "senteval"
    for name in ("MR", "SUBJ"):
        shutil.copytree(data_dir / "senteval-damaged" / name, root / name)
    tasks = [BY_NAME["mr"], BY_NAME["subj"]]
    with pytest.raises(DataError) as caught:
        load_transfer(tmp_path, tasks)
    for found in ("pos: found 43 rows, expected 5331", "neg: found 31 rows, expected 5331"):
        assert f"MR/rt-polarity.{found}" in str(caught.value)
    assert "SUBJ/subj.subjective: found 20 rows, expected 5000" in str(caught.value)
    mr, subj = load_transfer(tmp_path, tasks, allow_damaged=True)
    assert (len(mr.damage), len(subj.damage)) == (2, 1)
    assert Counter(subj.splits["all"].labels.tolist()) == {1: 5000, 0: 20}
