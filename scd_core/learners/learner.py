"""A learner: what the one loop needs to know of a method."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from scd_core.settings import Precision
from scd_core.two_view_model import outputs_in, views_in


class Losses(Protocol):
    """A named tuple of scalars; ``loss`` is minimised, the others are logged beside it."""

    @property
    def loss(self) -> Tensor:
        """What is minimised."""
        ...

    def __iter__(self) -> Iterator[Tensor]: ...

    def _asdict(self) -> dict[str, Tensor]: ...


@dataclass(frozen=True)
class Learner:
    """A model with an objective on its outputs."""

    model: nn.Module
    """Token ids of a batch to a tuple of tensors; its ``encoder`` is what training is for. All its
    children are trained and kept in checkpoints."""
    objective: Callable[..., Any]
    """The model's outputs to a named tuple of scalars, ``Losses``."""
    two_views: bool
    """Whether the model encodes a batch by ``SentenceEncoder.two_views`` only."""

    def __call__(self, rows: Sequence[Sequence[int]], precision: Precision) -> Losses:
        """The losses of a batch of token ids."""
        run = views_in if self.two_views else outputs_in
        losses: Losses = self.objective(*run(precision, self.model, rows))
        return losses
