"""Two processes with half a batch each compute what one computes with all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

from scd_core import distributed
from scd_core.distributed import gather_rows, refuse_several_processes, sum_gradients
from scd_core.objectives import scd
from scd_core.projector import build_projector
from scd_core.settings import Objective, Projector

BATCH, FEATURES, HIDDEN = 12, 7, 6
SETTINGS = [Objective(alpha=0.3, lam=0.7, normaliser=n) for n in ("standard", "printed")]


def parts() -> tuple[nn.Module, nn.Module, Tensor, Tensor]:
    """An encoder, a projector with BatchNorm, and the inputs of both views; the same every time."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh()).double()
    projector = build_projector(HIDDEN, Projector(width=10, layers=3)).double()
    a, b = torch.randn(2, BATCH, FEATURES, dtype=torch.float64)
    return encoder, projector, a, b


def results(loss: Tensor, encoder: nn.Module, projector: nn.Module) -> list[Tensor]:
    return [loss.detach(), *(p.grad for m in (encoder, projector) for p in m.parameters())]


def joint(settings: Objective) -> list[Tensor]:
    encoder, projector, a, b = parts()
    h_a, h_b = encoder(a), encoder(b)
    loss = scd(h_a, h_b, *projector(torch.cat([h_a, h_b])).chunk(2), settings).loss
    loss.backward()
    return results(loss, encoder, projector)


def one_of_several(rank: int, world: int, folder: str, bucket: int) -> None:
    distributed.BUCKET_BYTES = bucket
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=world)
    found = []
    for settings in SETTINGS:
        encoder, projector, a, b = parts()
        own = slice(rank * BATCH // world, (rank + 1) * BATCH // world)
        h_a, h_b = gather_rows(encoder(a[own])), gather_rows(encoder(b[own]))
        loss = scd(h_a, h_b, *projector(torch.cat([h_a, h_b])).chunk(2), settings).loss
        loss.backward()
        sum_gradients(encoder.parameters())
        found.append(results(loss, encoder, projector))
    torch.save(found, f"{folder}/{rank}.pt")
    dist.barrier()  # one that leaves while the other still talks to it may abort
    dist.destroy_process_group()


@pytest.mark.parametrize("bucket", [distributed.BUCKET_BYTES, 1])
def test_two_processes_are_one_on_the_joint_batch(tmp_path: Path, bucket: int) -> None:
    """Loss, and the gradient of every weight of encoder and projector."""
    mp.spawn(one_of_several, (2, str(tmp_path), bucket), nprocs=2)
    for rank in range(2):
        for settings, found in zip(SETTINGS, torch.load(tmp_path / f"{rank}.pt"), strict=True):
            for value, expected in zip(found, joint(settings), strict=True):
                torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-12)


def test_a_half_batch_alone_is_another_loss() -> None:
    """So the test above can fail: own rows only, as released-code row 6, give something else."""
    encoder, projector, a, b = parts()
    half = slice(0, BATCH // 2)
    h_a, h_b = encoder(a[half]), encoder(b[half])
    own = scd(h_a, h_b, *projector(torch.cat([h_a, h_b])).chunk(2), SETTINGS[0]).loss
    assert own.item() != pytest.approx(joint(SETTINGS[0])[0].item(), rel=1e-3)


def test_training_as_one_of_several_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_several_processes()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(ValueError, match="WORLD_SIZE = 2"):
        refuse_several_processes()
