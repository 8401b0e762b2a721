"""Sentence files, their tokens and the order of batches."""

from __future__ import annotations

import codecs
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import BertTokenizer

from scd_core import corpus as corpus_module
from scd_core import documentation
from scd_core.corpus import (
    Corpus,
    batch_indices,
    load_corpus,
    read_sentences,
    tokenise,
    tokenizer_fingerprint,
)
from scd_core.data import DataError

# Everything that str.splitlines, but not a text file, takes for the end of a line.
ODD_SEPARATORS = ["\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r"]
WORDS = ["the", "cat", "dog", "sat", "ran", "."]


def written(folder: Path, content: bytes, name: str = "text.txt") -> Path:
    file = folder / name
    file.write_bytes(content)
    return file


def bert(words: list[str] = WORDS) -> BertTokenizer:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return BertTokenizer(vocab={token: i for i, token in enumerate([*special, *words])})


def small(*sentences: str) -> Corpus:
    return Corpus("small", list(sentences or ["the cat sat .", "dog", "the dog ran ."]), 0)


class NoTokenizer:
    """Answers for the tokenizer it stands for, and refuses to tokenise."""

    def __init__(self, tokenizer: BertTokenizer) -> None:
        self.tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("tokenised again")


# Reading


def test_one_file_with_every_kind_of_line(tmp_path: Path) -> None:
    parts = ["A plain one.", "Odd\u2028inside\x85and\fhere.", "", "   ", "With a carriage.\r"]
    content = codecs.BOM_UTF8 + "\n".join([*parts, "No line feed at the end."]).encode()

    sentences, dropped = read_sentences(written(tmp_path, content))

    assert sentences == [
        "A plain one.",
        "Odd\u2028inside\x85and\fhere.",
        "With a carriage.",
        "No line feed at the end.",
    ]
    assert dropped == 2


@pytest.mark.parametrize("separator", ODD_SEPARATORS, ids=ascii)
def test_only_a_line_feed_ends_a_line(tmp_path: Path, separator: str) -> None:
    line = f"left{separator}right"
    assert read_sentences(written(tmp_path, f"{line}\nnext\n".encode())) == ([line, "next"], 0)


@pytest.mark.parametrize(
    ("content", "sentences", "dropped"),
    [
        (b"a\r\nb\r\n", ["a", "b"], 0),
        (b"a\r\r\nb\r", ["a", "b"], 0),
        (b"a\n\rb\n\r", ["a", "b"], 1),
        (b"a\n\n \r\n\t\n\r\nb\n", ["a", "b"], 4),
        ("a\n\u3000\u2028\nb".encode(), ["a", "b"], 1),
        ("\ufeffa\n\ufeffb\n\ufeff\n".encode(), ["a", "b"], 1),
        (b" kept as it is \n", [" kept as it is "], 0),
    ],
)
def test_line_ends_blanks_and_marks(
    tmp_path: Path, content: bytes, sentences: list[str], dropped: int
) -> None:
    assert read_sentences(written(tmp_path, content)) == (sentences, dropped)


@pytest.mark.parametrize("content", [b"", b"\n\n", b" \r\n\t", codecs.BOM_UTF8])
def test_a_file_without_a_sentence_is_refused(tmp_path: Path, content: bytes) -> None:
    file = written(tmp_path, content)
    with pytest.raises(DataError, match=f"{file.name} holds no sentence"):
        read_sentences(file)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("one\ntwo\ncaf\u00e9\n".encode("latin-1"), 3),
        ("one\u2028\ncut".encode() + "\u2028".encode()[:2], 2),
        ("one\ntwo\n".encode("utf-16"), 1),
        ("one\ntwo\n".encode("utf-16-le"), 1),
        (bytes(range(256)), 2),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 1),
    ],
)
def test_what_is_not_utf8_text_is_named_by_file_and_line(
    tmp_path: Path, content: bytes, line: int
) -> None:
    file = written(tmp_path, content)
    with pytest.raises(DataError, match=rf"{file.name}, line {line}: byte .* convert .* UTF-8"):
        read_sentences(file)


# Sources


def test_a_path_is_a_source_and_its_counts_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = written(tmp_path, b"one\n\ntwo\n", "own.txt")
    with caplog.at_level("INFO", logger="scd_core.corpus"):
        corpus = load_corpus(str(file), None)
    assert (corpus.name, corpus.sentences, corpus.dropped) == ("own.txt", ["one", "two"], 1)
    assert "2 sentences kept, 1 blank dropped" in caplog.text


@pytest.mark.parametrize(("name", "why"), [("missing.txt", "does not exist"), ("", "is a folder")])
def test_a_wrong_path_names_the_other_sources(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(DataError, match=rf'--corpus .* {why}.*"wiki1m" or "documentation"'):
        load_corpus(str(tmp_path / name), None)


def test_wiki1m_is_taken_from_the_data_folder_then_the_variable_then_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("given", "variable", "hub"):
        (tmp_path / folder).mkdir()
        written(tmp_path / folder, f"{folder}\nb\n".encode(), "wiki1m_for_simcse.txt")
    monkeypatch.setattr(corpus_module, "WIKI1M_LINES", 2)
    monkeypatch.setattr(corpus_module, "hub_file", lambda name: tmp_path / "hub" / name)

    monkeypatch.setenv("SCD_DATA_DIR", str(tmp_path / "variable"))
    assert load_corpus("wiki1m", tmp_path / "given").sentences[0] == "given"
    assert load_corpus("wiki1m", None).sentences[0] == "variable"
    assert load_corpus("wiki1m", tmp_path).sentences[0] == "hub"
    monkeypatch.delenv("SCD_DATA_DIR")
    assert load_corpus("wiki1m", None).sentences[0] == "hub"


@pytest.mark.parametrize(
    ("content", "ok"),
    [(b"a\n\nb\n", True), (b"a\n\nb", True), (b"a\nb\n", False), (b"a\nb\n\nc\n", False)],
)
def test_wiki1m_must_have_all_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, ok: bool
) -> None:
    written(tmp_path, content, "wiki1m_for_simcse.txt")
    monkeypatch.setattr(corpus_module, "WIKI1M_LINES", 3)
    if ok:
        assert load_corpus("wiki1m", tmp_path).sentences == ["a", "b"]
    else:
        with pytest.raises(DataError, match=r"wiki1m_for_simcse\.txt has [24] lines and 3 are"):
            load_corpus("wiki1m", tmp_path)


def test_wiki1m_out_of_reach_names_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(name: str) -> Path:
        raise DataError(f"{name} cannot be fetched.")

    monkeypatch.delenv("SCD_DATA_DIR", raising=False)
    monkeypatch.setattr(corpus_module, "hub_file", unreachable)
    with pytest.raises(DataError, match=r"--corpus wiki1m: .*--data-dir .*--corpus documentation"):
        load_corpus("wiki1m", tmp_path)


def test_documentation_is_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documentation, "sentences", lambda: ["One.", "Two."])
    corpus = load_corpus("documentation", None)
    assert (corpus.name, corpus.sentences, corpus.dropped) == ("documentation", ["One.", "Two."], 0)


@pytest.mark.shared
def test_the_head_of_the_published_file(data_dir: Path) -> None:
    corpus = load_corpus(str(data_dir / "wiki" / "wiki_head.txt"), None)
    assert (len(corpus.sentences), corpus.dropped) == (11_913, 0)


# Identity


def test_the_fingerprint_is_of_the_sentences_only(tmp_path: Path) -> None:
    plain = load_corpus(str(written(tmp_path, b"a\nb\n")), None)
    other = load_corpus(str(written(tmp_path, b"\xef\xbb\xbfa\r\n\r\nb", "other.txt")), None)
    assert plain.fingerprint == other.fingerprint
    # printf 'a\nb' | sha256sum
    assert plain.fingerprint.startswith("7e18f737311b2dc3")


@pytest.mark.parametrize("other", [["b", "a"], ["a b"], ["ab"], ["a", "b", "b"], ["a", "b "]])
def test_the_fingerprint_sees_every_change(other: list[str]) -> None:
    assert small("a", "b").fingerprint != small(*other).fingerprint


def test_a_tokenizer_is_identified_by_its_content() -> None:
    tokenizer = bert()
    before = tokenizer_fingerprint(tokenizer)
    tokenizer(["the cat"], truncation=True, max_length=3, padding="max_length")
    assert tokenizer_fingerprint(tokenizer) == before == tokenizer_fingerprint(bert())
    assert tokenizer_fingerprint(bert([*WORDS, "new"])) != before
    assert tokenizer_fingerprint(bert(WORDS[::-1])) != before
    cased = BertTokenizer(vocab=dict(tokenizer.get_vocab()), do_lower_case=False)
    assert tokenizer_fingerprint(cased) != before


# Tokens


def test_tokens_are_those_of_the_tokenizer_in_the_order_asked_for(tmp_path: Path) -> None:
    tokens = tokenise(small(), bert(), 32, tmp_path)
    assert len(tokens) == 3
    assert tokens.batch(np.array([2, 0, 2])) == [
        [2, 5, 7, 9, 10, 3],
        [2, 5, 6, 8, 10, 3],
        [2, 5, 7, 9, 10, 3],
    ]


def test_a_long_sentence_is_cut_and_keeps_its_special_tokens(tmp_path: Path) -> None:
    tokens = tokenise(small("the cat " * 50, "dog"), bert(), 5, tmp_path)
    assert tokens.batch([0, 1]) == [[2, 5, 6, 5, 3], [2, 7, 3]]


def test_the_second_time_nothing_is_tokenised(tmp_path: Path) -> None:
    first = tokenise(small(), bert(), 32, tmp_path)
    again: Any = NoTokenizer(bert())
    second = tokenise(dataclasses.replace(small(), name="elsewhere"), again, 32, tmp_path)
    assert second.folder == first.folder
    assert second.batch(range(3)) == first.batch(range(3))
    assert [p.name for p in (tmp_path / "tokens").iterdir()] == [first.folder.name]


def test_other_sentences_lengths_and_tokenizers_have_other_tokens(tmp_path: Path) -> None:
    folders = [
        tokenise(small(), bert(), 32, tmp_path).folder,
        tokenise(small(), bert(), 16, tmp_path).folder,
        tokenise(small("other"), bert(), 32, tmp_path).folder,
        tokenise(small(), bert([*WORDS, "new"]), 32, tmp_path).folder,
    ]
    assert len(set(folders)) == 4


def test_many_chunks_are_one_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "CHUNK", 2)
    tokens = tokenise(small("cat", "dog", "sat", "ran", "the"), bert(), 32, tmp_path)
    assert tokens.batch(range(5)) == [[2, i, 3] for i in (6, 7, 8, 9, 5)]


def test_tokenising_that_was_cut_off_leaves_nothing_that_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: BertTokenizer, sentences: list[str], **_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(BertTokenizer, "__call__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tokenise(small(), bert(), 32, tmp_path)
    assert not (tmp_path / "tokens").exists() or not list((tmp_path / "tokens").iterdir())

    # What a killed process leaves: a folder under a temporary name, without its last files.
    half = tmp_path / "tokens" / ".part-killed"
    half.mkdir(parents=True)
    written(half, b"", "data-00000-of-00001.arrow")
    assert len(tokenise(small(), bert(), 32, tmp_path)) == 3


def test_a_process_that_comes_second_takes_the_first_ones_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = corpus_module._token_chunks

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr(corpus_module, "_token_chunks", chunks)
        tokenise(small(), bert(), 32, tmp_path)
        yield from chunks(*arguments)

    monkeypatch.setattr(corpus_module, "_token_chunks", overtaken)
    tokens = tokenise(small(), bert(), 32, tmp_path)
    assert len(tokens) == 3
    assert [p.name for p in (tmp_path / "tokens").iterdir()] == [tokens.folder.name]


def test_damaged_tokens_are_named_not_used(tmp_path: Path) -> None:
    folder = tokenise(small(), bert(), 32, tmp_path).folder
    (folder / "state.json").unlink()
    with pytest.raises(DataError, match=f"{folder.name} cannot be read .* delete it"):
        tokenise(small(), bert(), 32, tmp_path)


# Batches


@pytest.mark.parametrize(("sentences", "batch_size"), [(10, 3), (12, 4), (7, 7), (1000, 64)])
def test_an_epoch_holds_each_row_at_most_once(sentences: int, batch_size: int) -> None:
    per_epoch = sentences // batch_size
    for epoch in range(3):
        steps = range(epoch * per_epoch, (epoch + 1) * per_epoch)
        rows = np.concatenate([batch_indices(sentences, batch_size, 0, step) for step in steps])
        assert rows.shape == (per_epoch * batch_size,)
        assert len(np.unique(rows)) == len(rows)
        assert rows.min() >= 0
        assert rows.max() < sentences


def test_the_order_depends_on_seed_and_epoch_and_nothing_else() -> None:
    wanted = [batch_indices(100, 10, 5, step) for step in range(30)]
    corpus_module._epoch_order.cache_clear()
    for step in reversed(range(30)):
        batch_indices(100, 10, 6, step)
        assert np.array_equal(batch_indices(100, 10, 5, step), wanted[step])
    assert not np.array_equal(batch_indices(100, 10, 6, 0), wanted[0])
    assert not np.array_equal(wanted[10], wanted[0])
    assert not np.array_equal(batch_indices(100, 10, 2**32, 0), batch_indices(100, 10, 0, 10))


def test_the_order_is_the_same_in_every_version() -> None:
    assert batch_indices(10, 5, 0, 0).tolist() == [6, 3, 8, 1, 4]


def test_changing_a_batch_does_not_change_the_next_one() -> None:
    wanted = batch_indices(100, 10, 0, 1).tolist()
    batch_indices(100, 10, 0, 1)[:] = 0
    assert batch_indices(100, 10, 0, 1).tolist() == wanted


def test_impossible_batches_are_refused() -> None:
    with pytest.raises(ValueError, match=r"optim\.batch_size = 8 is more than .*7 sentences"):
        batch_indices(7, 8, 0, 0)
    with pytest.raises(ValueError, match="seed = -1 and step = 0"):
        batch_indices(7, 2, -1, 0)
