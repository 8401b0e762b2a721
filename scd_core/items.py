"""What a training step draws from a corpus: sentences, triplets, or sentences with neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scd_core.settings import MethodName


@dataclass(frozen=True)
class Items:
    """Runs of ``width`` sentences that follow each other, one beginning at every ``stride``-th."""

    width: int = 1
    stride: int = 1

    def count(self, sentences: int) -> int:
        """Items of a corpus with that many sentences."""
        return max(0, (sentences - self.width) // self.stride + 1)

    def rows(self, items: np.ndarray) -> np.ndarray:
        """Sentences of those items (batch,), item after item: (batch * width,)."""
        return (items[:, None] * self.stride + np.arange(self.width)).ravel()


TRIPLETS = Items(width=3, stride=3)
NEIGHBOURS = Items(width=3, stride=1)
"""A sentence with those before and after it."""
_OF_METHOD: dict[MethodName, Items] = {"simcse-supervised": TRIPLETS, "skip-thought": NEIGHBOURS}


def items_of(method: MethodName) -> Items:
    """The items that a method is trained on."""
    return _OF_METHOD.get(method, Items())
