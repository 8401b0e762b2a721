"""What every method in the tables is: fitted on a corpus, it encodes sentences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from scd_core.corpus import Corpus
from scd_core.evaluation.pairs import Pairs
from scd_core.evaluation.vectors import Encode


class Method(Protocol):
    """A method with its settings; it keeps nothing of what it was fitted on."""

    @property
    def name(self) -> str:
        """As the published tables name it (``published.PublishedRow.method``)."""
        ...

    def fit(self, corpus: Corpus | None) -> Encode:
        """The encoder that the method makes of ``corpus``.

        Methods that fit nothing take None, and pay no heed to a corpus.

        Raises:
            ValueError: it needs a corpus and there is none, or one that it cannot be fitted on.
        """
        ...

    def settings(self) -> dict[str, Any]:
        """Everything that decides the vectors besides the corpus, by name."""
        ...


def record(method: Method, corpus: Corpus | None) -> dict[str, Any]:
    """What a run of a fitted method says of itself: method, settings, and what it was fitted on."""
    fitted = {"name": corpus.name, "fingerprint": corpus.fingerprint} if corpus else {}
    told = {**method.settings(), "method": method.name}
    return told | {f"fit.{key}": value for key, value in fitted.items()}


def beneath(method: Method) -> dict[str, Any]:
    """The settings of a method that another one is fitted over, each as ``base.`` its name."""
    told = {**method.settings(), "method": method.name}
    return {f"base.{key}": value for key, value in told.items()}


def needed(method: Method, corpus: Corpus | None) -> Corpus:
    """``corpus``, if there is one.

    Raises:
        ValueError: there is none.
    """
    if corpus is None or not corpus.sentences:
        raise ValueError(
            f"{method.name} is fitted on sentences and was given none; give a training corpus, or "
            "those of the test sets (base.target)"
        )
    return corpus


def target(pairs: Iterable[Pairs]) -> Corpus:
    """The sentences of evaluation sets without their scores, as in the papers' "target" variant.

    Each distinct sentence once, in the order given; all sets together, where the papers fit on each
    by itself. It is transductive: a table must show such a row apart from those fitted on other
    text.
    """
    sets = list(pairs)
    sentences = dict.fromkeys(text for one in sets for text in one.texts)
    name = f"target ({', '.join(f'{one.name} {one.split}' for one in sets)})"
    return Corpus(name, list(sentences), dropped=0)
