"""Evaluation data on disk: where it lies, how its text is read, how it comes from the Hub."""

from __future__ import annotations

import codecs
import os
import tarfile
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
from huggingface_hub.errors import LocalEntryNotFoundError

from scd_core.places import cache

HUB_DATASET = "princeton-nlp/datasets-for-simcse"
# The last commit of that repository ("update senteval data", 3 September 2021).
HUB_REVISION = "e145e8bb659b2aa2669f32ef79cb4cdef6c58fef"
HUB_TIMEOUT = 5
"""Seconds the Hub has to answer a first question before it counts as out of reach."""
HOW_TO_GET = (
    "Give a folder that holds senteval/ with --data-dir or $SCD_DATA_DIR; with neither, and with a "
    f"network, senteval.tar comes from the Hub data set {HUB_DATASET}."
)


class DataError(ValueError):
    """Input data is missing, unreadable or not what it is declared to be."""


def read_lines(path: Path, encoding: str = "utf-8") -> list[str]:
    r"""The lines of a text file, without their ends. ``encoding`` is UTF-8 or one of single bytes.

    Only ``\n`` separates lines, so that a Unicode line separator stays inside its sentence; one
    ``\r`` before it belongs to the line end. A byte-order mark at the start is dropped. Blank lines
    are kept: whether they mean something is the caller's business.

    Raises:
        DataError: a byte is not of that encoding; the message has file and line.
    """
    raw = path.read_bytes().removeprefix(codecs.BOM_UTF8).split(b"\n")
    if not raw[-1]:
        raw.pop()
    lines = []
    for number, line in enumerate(raw, start=1):
        try:
            lines.append(line.removesuffix(b"\r").decode(encoding))
        except UnicodeDecodeError as error:
            name = encoding.upper()
            raise DataError(
                f"{path}, line {number}: byte {line[error.start]:#04x} is not {name}; "
                f"convert the file to {name}"
            ) from error
    return lines


def senteval_dir(data_dir: Path | None) -> Path:
    """The absolute folder that holds ``STS/``, ``MR/`` ... in the layout of the SentEval toolkit.

    It is ``data_dir/senteval`` (or ``data_dir`` itself where there is no such folder); with no
    ``data_dir``, the same of ``$SCD_DATA_DIR``; with neither, the Hub's copy, unpacked once into
    the cache. That the files are there and complete is not checked here: see ``require_files``.

    Raises:
        DataError: the folder does not exist, or there is none and the Hub cannot be reached.
    """
    named = os.environ.get("SCD_DATA_DIR")
    if data_dir is not None:
        return _layout(data_dir, "--data-dir")
    return _layout(Path(named), "$SCD_DATA_DIR") if named else _from_hub()


def require_files(root: Path, files: Iterable[str]) -> None:
    """Check that every file is there before any work is begun.

    Raises:
        DataError: one error that lists every missing file and how to get it.
    """
    wanted = list(dict.fromkeys(files))
    missing = [file for file in wanted if not (root / file).is_file()]
    if missing:
        listed = "".join(f"\n  {file}" for file in missing)
        raise DataError(
            f"{len(missing)} of {len(wanted)} evaluation files are missing in {root}:{listed}\n"
            f"{HOW_TO_GET}"
        )


def local_file(filename: str, data_dir: Path | None) -> Path | None:
    """A file of the Hub data set where the data folder, or ``$SCD_DATA_DIR``, holds it."""
    folder = data_dir or os.environ.get("SCD_DATA_DIR")
    file = Path(folder).expanduser() / filename if folder else None
    return file if file and file.is_file() else None


def hub_file(filename: str) -> Path:
    """A file of the Hub data set at its pinned revision, downloaded once into the Hub's cache.

    Raises:
        DataError: it is not in the cache and the Hub does not answer; within seconds.
    """
    fetch = partial(
        hf_hub_download, HUB_DATASET, filename, repo_type="dataset", revision=HUB_REVISION
    )
    try:
        return Path(fetch(local_files_only=True))
    except LocalEntryNotFoundError:
        pass
    url = hf_hub_url(HUB_DATASET, filename, repo_type="dataset", revision=HUB_REVISION)
    try:
        # Without a network the download itself retries for minutes; one plain question does not.
        get_hf_file_metadata(url, timeout=HUB_TIMEOUT)
        return Path(fetch())
    except Exception as error:  # the Hub client hands on its HTTP library's errors, which change
        raise DataError(
            f"{filename} of the Hub data set {HUB_DATASET} cannot be fetched ({error}). "
            "Give a folder that holds the data with --data-dir or $SCD_DATA_DIR, or run this once "
            "with a network."
        ) from error


def _layout(folder: Path, setting: str) -> Path:
    folder = folder.expanduser().resolve()
    if not folder.is_dir():
        raise DataError(f"{setting}: the folder {folder} does not exist. {HOW_TO_GET}")
    return folder / "senteval" if (folder / "senteval").is_dir() else folder


def _from_hub() -> Path:
    target = cache() / f"senteval-{HUB_REVISION[:8]}"
    if not target.is_dir():
        _unpack(hub_file("senteval.tar"), target)
    return _layout(target, "cache")


def _unpack(archive: Path, target: Path) -> None:
    """Unpack so that ``target`` is there completely or not at all, however many try at once."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="unpacking-") as scratch:
        content = Path(scratch) / "content"
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(content, filter="data")
        except (tarfile.TarError, EOFError) as error:
            raise DataError(
                f"{archive} cannot be unpacked ({error}); delete it and run again, "
                "or give the data with --data-dir"
            ) from error
        try:
            content.rename(target)
        except OSError:
            if not target.is_dir():  # else another process has just finished the same work
                raise
