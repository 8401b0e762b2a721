"""GloVe average (Pennington et al. 2014): the mean of a sentence's word vectors.

Tokens are what white space parts. A token is looked up as it stands, then in lower case, and if
neither is known in its parts, runs of letters and digits or single signs ("road." is "road" and
"."). Unknown parts are skipped; a sentence with no known word is the zero vector, whose cosine with
anything counts as 0. The SentEval toolkit, behind the published row, tokenises beforehand and takes
tokens as they stand, so it skips more.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from reproduce.published import GLOVE_VECTORS
from scd_core.corpus import Corpus
from scd_core.data import DataError
from scd_core.evaluation.vectors import Encode
from scd_core.places import cache

_PARTS = re.compile(r"\w+|[^\w\s]")
_CHUNK = 20_000  # lines turned into numbers at a time


@dataclass(frozen=True)
class Glove:
    """Average of the vectors of a text file: a word and its numbers a line, blanks between.

    The format of the GloVe project; a first line of two whole numbers (word2vec) is passed over.
    """

    path: Path
    name: str = "glove"

    def fit(self, corpus: Corpus | None = None) -> Encode:
        """Open the vectors; ``corpus`` plays no part.

        The first time, the file is rewritten as an array in the cache, which is memory-mapped.

        Raises:
            DataError: the file is missing, or a line of it is no word with numbers.
        """
        _require(self.path)
        row_of, vectors = _open(self.path, cache() / "glove" / self._fingerprint[:24])

        def encode(sentences: Sequence[str]) -> np.ndarray:
            means = np.zeros((len(sentences), vectors.shape[1]), dtype=np.float32)
            for place, sentence in enumerate(sentences):
                if rows := list(_rows(sentence, row_of)):
                    means[place] = vectors[rows].mean(0, dtype=np.float64)
            return means

        return encode

    def settings(self) -> dict[str, Any]:
        """The vectors, by their content.

        Raises:
            DataError: the file is missing.
        """
        _require(self.path)
        return {"vectors": self.path.name, "vectors_fingerprint": self._fingerprint}

    @cached_property
    def _fingerprint(self) -> str:
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def _require(path: Path) -> None:
    if not path.is_file():
        raise DataError(
            f"the GloVe vectors {path} do not exist; the published row is of {GLOVE_VECTORS}, "
            "from https://nlp.stanford.edu/projects/glove/ (2 GB, unpacked 5.6 GB)"
        )


def _rows(sentence: str, row_of: dict[str, int]) -> Iterator[int]:
    for token in sentence.split():
        for word in (token,) if _known(token, row_of) is not None else _PARTS.findall(token):
            row = _known(word, row_of)
            if row is not None:
                yield row


def _known(word: str, row_of: dict[str, int]) -> int | None:
    row = row_of.get(word)
    return row_of.get(word.lower()) if row is None else row


def _open(path: Path, place: Path) -> tuple[dict[str, int], np.ndarray]:
    if not (place / "vectors.npy").is_file():
        _rewrite(path, place)
    words = (place / "words.txt").read_bytes().decode().split("\n")
    # The first of equal words counts.
    row_of = {word: row for row, word in reversed(list(enumerate(words)))}
    return row_of, np.load(place / "vectors.npy", mmap_mode="r")


def _rewrite(path: Path, place: Path) -> None:
    """Write words and vectors to ``place``; it is there whole or not at all."""
    place.parent.mkdir(parents=True, exist_ok=True)
    words: list[str] = []
    with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
        fresh = Path(scratch) / "whole"
        fresh.mkdir()
        width = 0
        with (fresh / "raw").open("wb") as raw:
            for names, numbers in _chunks(path):
                width = numbers.shape[1]
                words += names
                numbers.tofile(raw)
        if not words:
            raise DataError(f"{path} holds no word vector; give a file of the GloVe project")
        rows = np.memmap(fresh / "raw", np.float32, "r", shape=(len(words), width))
        np.save(fresh / "vectors.npy", rows)
        (fresh / "raw").unlink()
        (fresh / "words.txt").write_bytes("\n".join(words).encode())
        try:
            fresh.rename(place)
        except OSError:  # another process was sooner
            if not (place / "vectors.npy").is_file():
                raise


def _chunks(path: Path) -> Iterator[tuple[list[str], np.ndarray]]:
    words: list[str] = []
    numbers: list[list[str]] = []
    width = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                parts = line.decode().rstrip("\r\n").split(" ")
            except UnicodeDecodeError as error:
                raise DataError(f"{path} is not UTF-8 in line {number}: {error}") from error
            if number == 1 and len(parts) == 2:
                continue
            width = width or len(parts) - 1
            # A few words of the 840B file hold blanks, so the numbers are told from the right.
            if len(parts) <= width or width < 1:
                raise DataError(
                    f"{path}, line {number}: {len(parts) - 1} numbers after the word, {width} "
                    "expected; the file is cut or damaged, fetch it again"
                )
            words.append(" ".join(parts[:-width]))
            numbers.append(parts[-width:])
            if len(words) == _CHUNK:
                yield words, _floats(numbers, path, number)
                words, numbers = [], []
    if words:
        yield words, _floats(numbers, path, number)


def _floats(numbers: list[list[str]], path: Path, last: int) -> np.ndarray:
    try:
        return np.array(numbers, dtype=np.float32)
    except ValueError as error:
        first = last - len(numbers) + 1
        raise DataError(
            f"{path}, lines {first} to {last}: {error}; the file is damaged, fetch it again"
        ) from error
