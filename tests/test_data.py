"""Locating, reading and fetching evaluation data."""

from __future__ import annotations

import io
import tarfile
import threading
from pathlib import Path

import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from scd_core import data
from scd_core.data import DataError, read_lines, require_files, senteval_dir


@pytest.fixture(autouse=True)
def no_data_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCD_DATA_DIR", raising=False)


def test_only_newlines_separate_lines(tmp_path: Path) -> None:
    sentences = ["plain", "a\u2028b\x85c\x0cd\x1ee", "", "   ", "dos", "last"]
    path = tmp_path / "lines.txt"
    text = "plain\na\u2028b\x85c\x0cd\x1ee\n\n   \ndos\r\nlast"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_lines(path) == sentences
    path.write_bytes(text.encode() + b"\n")
    assert read_lines(path) == sentences
    path.write_bytes(b"")
    assert read_lines(path) == []


def test_a_byte_that_is_not_utf8_is_named_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(b"fine\nfine too\ncaf\xe9 closed\n")
    with pytest.raises(DataError, match=r"latin\.txt, line 3: byte 0xe9 is not UTF-8"):
        read_lines(path)


@pytest.mark.parametrize("below", ["", "senteval"])
def test_folder_given_directly_or_by_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    (tmp_path / below / "STS").mkdir(parents=True)
    monkeypatch.setenv("SCD_DATA_DIR", str(tmp_path / "not here"))
    assert senteval_dir(tmp_path) == tmp_path / below
    monkeypatch.setenv("SCD_DATA_DIR", str(tmp_path))
    assert senteval_dir(None) == tmp_path / below


def test_folder_is_absolute_wherever_a_worker_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d" / "senteval").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert senteval_dir(Path("d")) == tmp_path / "d" / "senteval"


def test_missing_folder_names_the_setting_it_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match=r"--data-dir: .*nowhere does not exist"):
        senteval_dir(tmp_path / "nowhere")
    monkeypatch.setenv("SCD_DATA_DIR", str(tmp_path / "elsewhere"))
    with pytest.raises(DataError, match=r"\$SCD_DATA_DIR: .*elsewhere does not exist"):
        senteval_dir(None)


def test_one_error_lists_every_missing_file(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    require_files(tmp_path, ["there"])
    with pytest.raises(DataError, match="2 of 3 evaluation files") as caught:
        require_files(tmp_path, ["a/one", "there", "two"])
    for needed in ("a/one", "two", "--data-dir", "SCD_DATA_DIR", data.HUB_DATASET):
        assert needed in str(caught.value)


def _archive(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("top", ["", "senteval/"])
def test_hub_copy_is_fetched_and_unpacked_once(
    tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch, top: str
) -> None:
    archive = _archive(tmp_path / "s.tar", {f"{top}STS/x.txt": b"a\tb\n", f"{top}SICK/y": b"c"})
    fetched: list[str] = []

    def download(repo: str, filename: str, **kwargs: object) -> str:
        assert (repo, kwargs["revision"]) == (data.HUB_DATASET, data.HUB_REVISION)
        fetched.append(filename)
        return str(archive)

    monkeypatch.setattr(data, "hf_hub_download", download)
    root = senteval_dir(None)
    assert root.is_relative_to(own_home / "cache")
    assert (root / "STS" / "x.txt").read_bytes() == b"a\tb\n"
    assert senteval_dir(None) == root
    assert fetched == ["senteval.tar"]
    assert [path.name for path in (own_home / "cache").iterdir()] == [
        f"senteval-{data.HUB_REVISION[:8]}"
    ]


@pytest.mark.parametrize("fault", ["outside", "truncated"])
def test_bad_archive_leaves_nothing_behind(
    tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    archive = _archive(tmp_path / "s.tar", {"STS/x.txt": b"a" * 5000, "../outside.txt": b"b"})
    if fault == "truncated":
        archive.write_bytes(archive.read_bytes()[:3000])
    monkeypatch.setattr(data, "hf_hub_download", lambda *_, **__: str(archive))
    with pytest.raises(DataError, match=r"s\.tar cannot be unpacked"):
        senteval_dir(None)
    assert list((own_home / "cache").iterdir()) == []
    assert not (own_home / "outside.txt").exists()


def test_processes_that_unpack_at_once_all_get_the_whole(tmp_path: Path) -> None:
    archive = _archive(tmp_path / "s.tar", {f"STS/{i}.txt": b"a" for i in range(200)})
    target, failures = tmp_path / "cache" / "senteval", []

    def unpack() -> None:
        try:
            data._unpack(archive, target)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=unpack) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(list((target / "STS").iterdir())) == 200
    assert [path.name for path in target.parent.iterdir()] == ["senteval"]


def test_without_a_network_one_question_and_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def download(*_: object, local_files_only: bool = False, **__: object) -> str:
        assert local_files_only, "the download retries for minutes without a network"
        raise LocalEntryNotFoundError("not in the cache")

    def question(url: str, timeout: float) -> None:
        asked.append(timeout)
        raise ConnectionError("no route to host")

    monkeypatch.setattr(data, "hf_hub_download", download)
    monkeypatch.setattr(data, "get_hf_file_metadata", question)
    with pytest.raises(DataError, match=r"senteval\.tar .*no route to host") as caught:
        senteval_dir(None)
    assert asked == [data.HUB_TIMEOUT]
    assert "--data-dir" in str(caught.value)
    assert "SCD_DATA_DIR" in str(caught.value)
