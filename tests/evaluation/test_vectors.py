"""Vectors belong to their sentences, are made once, and survive on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from scd_core.evaluation.vectors import Encode, encode_once, kept


def counting(calls: list[list[str]]) -> Encode:
    """Two numbers that tell the sentence, and a note of what was asked for."""

    def encode(sentences: Sequence[str]) -> np.ndarray:
        calls.append(list(sentences))
        return np.array([[len(s), sum(map(ord, s))] for s in sentences], dtype=np.float32)

    return encode


def test_each_distinct_sentence_is_encoded_once_and_found_again() -> None:
    calls: list[list[str]] = []
    look_up = encode_once(["b", "a", "b", "cc"], counting(calls))
    assert calls == [["b", "a", "cc"]]
    assert look_up(["cc", "a", "a"]).tolist() == [[2, 198], [1, 97], [1, 97]]
    with pytest.raises(KeyError):
        look_up(["never given"])
    encode_once([], counting(calls))
    assert len(calls) == 1


@pytest.mark.parametrize("shape", [(1, 4), (3, 4), (2,), (2, 0)])
def test_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"for 2 sentences; expected \(2, hidden\)"):
        encode_once(["a", "b"], lambda _: np.ones(shape, np.float32))


def test_kept_vectors_are_not_made_again(tmp_path: Path) -> None:
    calls: list[list[str]] = []
    encode = kept(tmp_path / "model", counting(calls))
    first = encode(["a", "bb", "a"])
    again = kept(tmp_path / "model", counting(calls))
    np.testing.assert_array_equal(again(["bb", "a", "a"]), first[[1, 0, 2]])
    assert calls == [["a", "bb"]]
    more = again(["new", "bb"])
    assert calls[1:] == [["new"]]
    assert more.tolist() == [[3, 330], [2, 196]]
    kept(tmp_path / "other model", counting(calls))(["a"])
    assert calls[2:] == [["a"]]


def test_a_write_that_was_cut_off_is_not_read(tmp_path: Path) -> None:
    calls: list[list[str]] = []
    (tmp_path / "0123.9.tmp").write_bytes(b"half a file")
    assert kept(tmp_path, counting(calls))(["a"]).tolist() == [[1, 97]]
