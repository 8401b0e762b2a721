"""Vectors of sentences: each distinct sentence encoded once, and kept on disk when asked for."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

Encode = Callable[[Sequence[str]], np.ndarray]
"""From n sentences to their vectors, (n, hidden) float32, row i of sentence i."""


def encode_once(texts: Iterable[str], encode: Encode) -> Encode:
    """Encode the distinct ones of ``texts`` in one call.

    The result is itself an ``Encode`` that looks vectors up, for these texts only; with no texts
    there is nothing to look up, and nothing is encoded.

    Raises:
        ValueError: ``encode`` returned something other than (sentences, hidden).
    """
    row_of = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    vectors = np.asarray(encode(list(row_of))) if row_of else np.zeros((0, 1), np.float32)
    if vectors.ndim != 2 or len(vectors) != len(row_of) or vectors.shape[1] == 0:
        raise ValueError(
            f"encode returned an array of shape {vectors.shape} for {len(row_of)} sentences; "
            f"expected ({len(row_of)}, hidden), one row a sentence"
        )
    return lambda sentences: vectors[[row_of[sentence] for sentence in sentences]]


def kept(folder: Path, encode: Encode) -> Encode:
    """``encode``, with its vectors kept in ``folder``: a sentence found there is not encoded again.

    The folder belongs to one encoder, whose weights, pooling and length its name has to hold. Each
    call with new sentences adds one file; a file is there whole or not at all. Vectors from another
    call were padded in other batches, which moves them by about 1e-6.
    """

    def look_up(sentences: Sequence[str]) -> np.ndarray:
        known: dict[bytes, np.ndarray] = {}
        for path in sorted(folder.glob("*.safetensors")):
            content = load_file(path)
            stored = [row.tobytes() for row in content["sentences"]]
            known |= dict(zip(stored, content["vectors"], strict=True))
        digests = {text: hashlib.sha256(text.encode()).digest() for text in sentences}
        new = [text for text, digest in digests.items() if digest not in known]
        if new:
            vectors = encode(new)
            keys = [digests[text] for text in new]
            _write(folder, keys, vectors)
            known |= dict(zip(keys, vectors, strict=True))
        return np.stack([known[digests[text]] for text in sentences])

    return look_up


def _write(folder: Path, digests: Sequence[bytes], vectors: np.ndarray) -> None:
    """Add the vectors (n, hidden) of n sentences, under a name that their set decides."""
    folder.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(b"".join(sorted(digests))).hexdigest()[:16]
    fresh = folder / f"{name}.{os.getpid()}.tmp"
    keys = np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(len(digests), -1)
    save_file({"sentences": keys, "vectors": np.ascontiguousarray(vectors)}, fresh)
    fresh.replace(folder / f"{name}.safetensors")
