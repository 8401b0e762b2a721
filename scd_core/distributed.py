"""The objective of one batch that is spread over several processes.

Every process encodes its own sentences and calls ``gather_rows`` on each view's sentence vectors.
All of them compute projector, BatchNorm, correlation and loss on the joint rows alike, so C is the
joint batch's and no SyncBatchNorm is needed (the bug this avoids is released-code row 6: own rows,
divided by the joint batch). After backward the projector has the joint batch's gradients in every
process, and the encoder has them after ``sum_gradients``.

These are parts. ``scd_core.train`` trains in one process and refuses to be one of several.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

BUCKET_BYTES = 32 * 2**20
"""Gradients are reduced in buckets of this size: few messages, bounded memory."""


def gather_rows(x: Tensor) -> Tensor:
    """(batch, ...) of this process to (processes * batch, ...) of all, in the order of their ranks.

    The batch is the same in every process. Backward gives this process's rows the gradient of its
    own loss, which is all of it where every process computes the same loss from the joint rows.
    """
    joint: Tensor = _Gather.apply(x)
    return joint


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.rows = x.shape[0]
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0].narrow(0, dist.get_rank() * ctx.rows, ctx.rows)


def sum_gradients(parameters: Iterable[Tensor]) -> None:
    """Add up the gradients of all processes, in place.

    Every process gives the same parameters in the same order, and none of them, or all, have a
    gradient for each.
    """
    bucket: list[Tensor] = []
    size = 0
    for gradient in (p.grad for p in parameters if p.grad is not None):
        if bucket and size + gradient.nbytes > BUCKET_BYTES:
            _sum(bucket)
            bucket, size = [], 0
        bucket.append(gradient)
        size += gradient.nbytes
    if bucket:
        _sum(bucket)


def _sum(gradients: list[Tensor]) -> None:
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    for gradient, total in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(total.view_as(gradient))


def refuse_several_processes() -> None:
    """Raise ValueError where this process is one of several, as started by ``torchrun``."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1 and "RANK" in os.environ:
        raise ValueError(
            f"WORLD_SIZE = {world} is not possible: a training runs in one process; start it "
            "without torchrun, and give several GPUs to several trials of a search"
        )
