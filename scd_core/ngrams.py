"""The head of IS-BERT: n-gram features of tokens by convolutions, and their mean as the sentence.

It is part of the encoder in training and in evaluation, so a model folder keeps its weights.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from scd_core.models import HEAD_FILE

WINDOWS = (1, 3, 5)
"""Tokens a convolution sees."""


class NgramHead(nn.Module):
    """Token states (batch, seq, hidden) to local features of the same form and their mean.

    ReLU of one convolution a window, hidden / 3 filters each, side by side; beyond a sentence there
    is 0, padding or not. The width is 3 * (hidden // 3), which for BERT is hidden.
    """

    def __init__(self, hidden: int) -> None:
        """Weights are drawn from torch's stream."""
        super().__init__()
        filters = hidden // len(WINDOWS)
        self.width = filters * len(WINDOWS)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(hidden, filters, window, padding=window // 2) for window in WINDOWS
        )

    def local(self, states: Tensor, mask: Tensor) -> Tensor:
        """Features (batch, seq, width), 0 at padding; states (batch, seq, hidden)."""
        real = mask.unsqueeze(1).to(states.dtype)
        channels = states.transpose(1, 2) * real
        found = torch.cat([convolve(channels).relu() for convolve in self.convolutions], dim=1)
        return (found * real).transpose(1, 2)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Sentence vectors (batch, width): the mean of the features over real tokens."""
        return sentence_mean(self.local(states, mask), mask)


def sentence_mean(features: Tensor, mask: Tensor) -> Tensor:
    """Mean over real tokens of features (batch, seq, width) that are 0 at padding."""
    return features.sum(1) / mask.sum(1, keepdim=True).to(features.dtype)


def save_head(head: NgramHead, folder: Path) -> None:
    """Write the head's weights into a model folder."""
    weights = {key: value.detach().cpu() for key, value in head.state_dict().items()}
    save_file(weights, folder / HEAD_FILE)


def load_head(folder: Path, hidden: int) -> NgramHead | None:
    """The head of a model folder, or None where it has none.

    Raises:
        RuntimeError: its weights are of another width.
    """
    if not (folder / HEAD_FILE).is_file():
        return None
    with torch.random.fork_rng():  # weights drawn here are replaced
        head = NgramHead(hidden)
    head.load_state_dict(load_file(folder / HEAD_FILE))
    return head
