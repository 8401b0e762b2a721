"""Training sentences: read, cleaned, tokenised once and dealt out in batches.

A corpus is identified by the hash of its sentences, not by where it lies. Its tokens are kept as a
memory-mapped Arrow data set that all trials on a machine share.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.progress import track

from scd_core import documentation
from scd_core.data import DataError, hub_file, local_file, read_lines

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

WIKI1M_FILE = "wiki1m_for_simcse.txt"
WIKI1M_LINES = 1_000_000
CHUNK = 10_000
"""Sentences tokenised at a time."""
LONG = 50_000
"""Sentences from which tokenising shows its progress."""
_TOKENS_FORMAT = 1

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Corpus:
    """Cleaned training sentences."""

    name: str
    """"wiki1m", "documentation", or the name of the file."""
    sentences: list[str]
    dropped: int
    """Blank lines left out."""

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256, hex, of the sentences joined by line feeds (none holds one), in UTF-8."""
        return hashlib.sha256("\n".join(self.sentences).encode()).hexdigest()


def load_corpus(source: str, data_dir: Path | None) -> Corpus:
    """The training sentences that ``--corpus`` names.

    Args:
        source: "wiki1m" (section 3.1: 10^6 sentences of Wikipedia), "documentation" (of the
            software on this machine), or a UTF-8 text file, one sentence a line.
        data_dir: folder that may hold ``wiki1m_for_simcse.txt``; default ``$SCD_DATA_DIR``. Where
            the file is not there it comes from the Hub.

    Raises:
        DataError: the file is missing, out of reach, not UTF-8 text, or not complete.
    """
    if source == "documentation":
        corpus = Corpus(source, documentation.sentences(), dropped=0)
    elif source == "wiki1m":
        file = _wiki1m_file(data_dir)
        corpus = Corpus(source, *read_sentences(file))
        lines = len(corpus.sentences) + corpus.dropped
        if lines != WIKI1M_LINES:
            raise DataError(
                f"{file} has {lines:,} lines and {WIKI1M_LINES:,} are expected: the copy is not "
                "complete or not the published file. Fetch it again, or to train on it as it is, "
                "name its path with --corpus"
            )
    else:
        file = Path(source).expanduser()
        if not file.is_file():
            what = "is a folder" if file.is_dir() else "does not exist"
            raise DataError(
                f"--corpus {source}: {file.absolute()} {what}. Give a UTF-8 text file with one "
                'sentence a line, or "wiki1m" or "documentation"'
            )
        corpus = Corpus(file.name, *read_sentences(file))
    kept = len(corpus.sentences)
    _log.info("corpus %s: %d sentences kept, %d blank dropped", corpus.name, kept, corpus.dropped)
    return corpus


def _wiki1m_file(data_dir: Path | None) -> Path:
    if file := local_file(WIKI1M_FILE, data_dir):
        return file
    try:
        return hub_file(WIKI1M_FILE)
    except DataError as error:
        raise DataError(
            f"--corpus wiki1m: {error} The folder of --data-dir must hold {WIKI1M_FILE}; other "
            "sentences can be had with --corpus FILE or --corpus documentation, without a network"
        ) from error


def read_sentences(path: Path) -> tuple[list[str], int]:
    r"""The sentences of a UTF-8 text file, one a line, and the number of blank lines left out.

    Only ``\n`` ends a line. Carriage returns at either end of a line and byte-order marks at its
    start are removed (files put together from several have them inside); everything else stays as
    it is, Unicode line separators and form feeds too.

    Raises:
        DataError: a byte is not UTF-8 text (with file and line), or there is no sentence.
    """
    lines = [line.strip("\r").lstrip("\ufeff") for line in read_lines(path)]
    sentences = [line for line in lines if line and not line.isspace()]
    if not sentences:
        raise DataError(f"{path} holds no sentence; give a text file with one sentence a line")
    for number, line in enumerate(lines, start=1):
        if "\0" in line:
            raise DataError(
                f"{path}, line {number}: byte {len(line[: line.index(chr(0))].encode()) + 1} is "
                "NUL, so this is no UTF-8 text; convert the file to UTF-8"
            )
    return sentences, len(lines) - len(sentences)


class TokenisedCorpus:
    """Token ids of a corpus, memory-mapped; special tokens included, not padded."""

    def __init__(self, folder: Path) -> None:
        from datasets import Dataset  # takes a second, and only training needs it

        self.folder = folder
        self._rows = Dataset.load_from_disk(str(folder))

    def __len__(self) -> int:
        """Number of sentences."""
        return len(self._rows)

    def batch(self, indices: Sequence[int] | np.ndarray) -> list[list[int]]:
        """Token ids of the sentences at these rows ``(batch,)``, in this order."""
        ids: list[list[int]] = self._rows[[int(i) for i in indices]]["input_ids"]
        return ids


def tokenise(
    corpus: Corpus, tokenizer: PreTrainedTokenizerBase, max_length: int, folder: Path
) -> TokenisedCorpus:
    """The corpus as token ids: opened if tokenised before, else tokenised and written first.

    The tokens lie in ``folder/tokens`` under the hash of the sentences, the tokenizer's content and
    ``max_length``. Several processes may call this at once, and one that is killed leaves no folder
    of that name.

    Args:
        corpus: the sentences.
        tokenizer: of the encoder that will be trained.
        max_length: tokens a sentence is cut to, its special tokens among them.
        folder: the cache.

    Raises:
        DataError: the stored tokens are damaged; the message names their folder.
    """
    parts = [corpus.fingerprint, tokenizer_fingerprint(tokenizer), max_length, _TOKENS_FORMAT]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]
    place = folder / "tokens" / key
    if not place.is_dir():
        _write_tokens(place, _token_chunks(corpus.sentences, tokenizer, max_length))
    try:
        tokens = TokenisedCorpus(place)
        complete = len(tokens) == len(corpus.sentences)
    except (OSError, ValueError) as error:
        raise DataError(f"the tokens in {place} cannot be read ({error}); delete it") from error
    if not complete:
        raise DataError(
            f"{place} holds {len(tokens)} sentences, the corpus {len(corpus.sentences)}; delete it"
        )
    return tokens


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """SHA-256, hex, of what a tokenizer does to text: vocabulary, rules and special tokens."""
    told: dict[str, Any] = {
        "side": tokenizer.truncation_side,
        "special": {name: str(token) for name, token in tokenizer.special_tokens_map.items()},
    }
    if tokenizer.is_fast:
        told["rules"] = json.loads(tokenizer.backend_tokenizer.to_str())
        # What the last call asked for, not what the tokenizer is.
        del told["rules"]["truncation"], told["rules"]["padding"]
    else:
        told["class"] = type(tokenizer).__name__
        with tempfile.TemporaryDirectory() as scratch:
            files = [Path(file) for file in tokenizer.save_vocabulary(scratch)]
            told["files"] = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _token_chunks(
    sentences: list[str], tokenizer: PreTrainedTokenizerBase, max_length: int
) -> Iterator[Dataset]:
    from datasets import Dataset, Features, Sequence, Value

    columns = Features({"input_ids": Sequence(Value("int32"))})

    starts = track(
        range(0, len(sentences), CHUNK),
        f"Tokenising {len(sentences):,} sentences",
        console=Console(stderr=True),
        disable=len(sentences) <= LONG,
    )
    for start in starts:
        encoded = tokenizer(
            sentences[start : start + CHUNK],
            truncation=True,
            max_length=max_length,
            return_attention_mask=False,
            return_token_type_ids=False,
        )
        yield Dataset.from_dict({"input_ids": encoded["input_ids"]}, columns)


def _write_tokens(place: Path, chunks: Iterator[Dataset]) -> None:
    import datasets

    part = place.with_name(f".part-{uuid.uuid4().hex}")
    shown = not datasets.are_progress_bars_disabled()
    try:
        tokens = datasets.concatenate_datasets(list(chunks))
        datasets.disable_progress_bars()
        tokens.save_to_disk(str(part))
        part.rename(place)
    except OSError:
        # Another process was sooner: a folder that is there cannot be renamed onto.
        if not place.is_dir():
            raise
    finally:
        if shown:
            datasets.enable_progress_bars()
        shutil.rmtree(part, ignore_errors=True)


def batch_indices(sentences: int, batch_size: int, seed: int, step: int) -> np.ndarray:
    """Rows of the corpus in training step ``step``.

    Each epoch goes through the corpus in an order of its own, drawn from the seed and the epoch's
    number; its last, partial batch is left out. A pure function, so a resumed run needs no state.

    Args:
        sentences: size of the corpus.
        batch_size: sentences a step.
        seed: the run's seed.
        step: counted from 0 over all epochs.

    Returns:
        Row numbers, ``(batch,)`` int64.

    Raises:
        ValueError: the corpus is smaller than one batch, or ``seed`` or ``step`` is negative.
    """
    per_epoch = sentences // batch_size
    if per_epoch < 1:
        raise ValueError(
            f"optim.batch_size = {batch_size} is more than the corpus has ({sentences} sentences); "
            "use a smaller batch or a larger corpus"
        )
    if seed < 0 or step < 0:
        raise ValueError(f"seed = {seed} and step = {step} must be at least 0")
    epoch, batch = divmod(step, per_epoch)
    return _epoch_order(sentences, seed, epoch)[batch * batch_size :][:batch_size].copy()


@lru_cache(maxsize=2)
def _epoch_order(sentences: int, seed: int, epoch: int) -> np.ndarray:
    # Sorting raw draws, since NumPy promises a bit generator's stream for good but not a shuffle's.
    source = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(epoch,)))
    return np.argsort(source.random_raw(sentences), kind="stable")
