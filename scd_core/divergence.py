"""A loss that is no number stops a run at its step, without the GPU having to wait for the look."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class DivergedError(RuntimeError):
    """The loss is no longer a number; the message names the step."""


class LossWatch:
    """Looks at the loss of every step: on the CPU at once, on a GPU one step later.

    To look at a GPU's number is to wait for all it has to do; a step later there is nothing to wait
    for. ``settle`` makes up for the delay before anything is evaluated or kept.
    """

    def __init__(self, total: int, remedy: str, late: bool) -> None:
        """total: planned steps; remedy: what to change, for the message; late: as on a GPU."""
        self._total, self._remedy, self._late = total, remedy, late
        self._unseen: tuple[int, Tensor, torch.cuda.Event | None] | None = None

    def see(self, step: int, loss: Tensor) -> None:
        """Take the loss of ``step``, counted from 1, and look at the one that is due.

        Raises:
            DivergedError: that loss is NaN or infinite.
        """
        copy, event = loss.detach(), None
        if loss.is_cuda:
            copy, event = copy.to("cpu", non_blocking=True), torch.cuda.Event()
            event.record()
        if self._late:
            self.settle()
        self._unseen = (step, copy, event)
        if not self._late:
            self.settle()

    def settle(self) -> None:
        """Look at what has not been looked at, waiting for it if need be; raises as ``see``."""
        if self._unseen is None:
            return
        (step, loss, event), self._unseen = self._unseen, None
        if event is not None:
            event.synchronize()
        if not math.isfinite(loss.item()):
            raise DivergedError(
                f"the loss is {loss.item()} at step {step} of {self._total}; {self._remedy}"
            )
