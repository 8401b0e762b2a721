"""Triplets of sentences for supervised training: premise, entailment, contradiction."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

from scd_core.corpus import Corpus
from scd_core.data import DataError, hub_file, local_file

NLI_FILE = "nli_for_simcse.csv"
NLI_TRIPLETS = 275_601
COLUMNS = ("sent0", "sent1", "hard_neg")


def load_triplets(source: str, data_dir: Path | None) -> Corpus:
    """A corpus whose sentences are premise, entailment, contradiction, triplet after triplet.

    Args:
        source: "nli" (the published SNLI and MNLI triplets), or a CSV file with a header and the
            columns sent0, sent1 and hard_neg.
        data_dir: folder that may hold ``nli_for_simcse.csv``; default ``$SCD_DATA_DIR``, then the
            Hub.

    Raises:
        DataError: the file is missing, out of reach, not UTF-8, lacks a column, has no triplet, or
            is not the whole published file where "nli" asks for that.
    """
    file = _nli_file(data_dir) if source == "nli" else Path(source).expanduser()
    if not file.is_file():
        raise DataError(
            f"--corpus {source}: {file.absolute()} is no file. Give a CSV file with the columns "
            f'{", ".join(COLUMNS)}, or "nli"'
        )
    sentences: list[str] = []
    dropped = 0
    try:
        with file.open(encoding="utf-8-sig", newline="") as content:
            reader = csv.DictReader(content)
            if missing := [c for c in COLUMNS if c not in (reader.fieldnames or ())]:
                raise DataError(f"{file} has no column {missing}; it has {reader.fieldnames}")
            for row in reader:
                triplet = [" ".join((row[column] or "").splitlines()) for column in COLUMNS]
                if all(text.strip() for text in triplet):
                    sentences += triplet
                else:
                    dropped += 1
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file} is no CSV file in UTF-8: {error}") from error
    found = len(sentences) // len(COLUMNS) + dropped
    if source == "nli" and found != NLI_TRIPLETS:
        raise DataError(
            f"{file} has {found:,} triplets and {NLI_TRIPLETS:,} are expected: the copy is not "
            "complete or not the published file. Fetch it again, or to read it as it is, name its "
            "path"
        )
    if not sentences:
        raise DataError(f"{file} holds no whole triplet; give one of {', '.join(COLUMNS)} a line")
    return Corpus("nli" if source == "nli" else file.name, sentences, dropped)


def nli_sentences(source: str, data_dir: Path | None) -> Corpus:
    """The distinct sentences of triplets in their order, for methods without supervision.

    Raises:
        DataError: as ``load_triplets``.
    """
    triplets = load_triplets(source, data_dir)
    return dataclasses.replace(triplets, sentences=list(dict.fromkeys(triplets.sentences)))


def _nli_file(data_dir: Path | None) -> Path:
    if file := local_file(NLI_FILE, data_dir):
        return file
    try:
        return hub_file(NLI_FILE)
    except DataError as error:
        raise DataError(
            f'"nli": {error} That folder must hold {NLI_FILE}; other triplets can be had by naming '
            "their CSV file instead"
        ) from error
