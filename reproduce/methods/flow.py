"""BERT-flow (Li et al. 2020, "On the Sentence Embeddings from Pre-trained Language Models").

A normalising flow f takes the vectors u of a frozen encoder to a standard Gaussian; it is trained
by maximum likelihood, their section 3.2: max E_u [log N(f(u); 0, I) + log |det df/du|], and the
sentence vector is f(u). The published row is SimCSE's (its Appendix C): vectors of the first and
the last layer averaged (SBERT's own for SBERT-flow), fitted on NLI. Fitted on each test set
("target") it has 66.31 there on the average of Table 1, and 66.55 on NLI.

Deviations: of NLI, the distinct sentences of SimCSE's triplets are read, not those of all pairs.
Their flow is Glow with additive couplings and learned per-dimension scales (actnorm); here vectors
are standardised by the fit sentences' mean and deviation, and the couplings are affine over random
halves of the dimensions (RealNVP, of the library zuko).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from zuko.flows import RealNVP

from reproduce.methods.base import Method, beneath, needed
from scd_core.corpus import Corpus
from scd_core.evaluation.vectors import Encode


@dataclass(frozen=True)
class FlowSettings:
    """Of the flow and its training."""

    couplings: int = 6
    """Coupling transforms, each over a random half of the dimensions."""
    width: int = 64
    """Units of the two hidden layers of each coupling's network."""
    epochs: int = 5
    """Passes over the fit sentences."""
    batch_size: int = 128
    """Vectors a step."""
    lr: float = 1e-3
    """Learning rate of Adam."""
    seed: int = 0
    """Of the flow's masks and weights and the order of vectors."""


class DensityFlow(nn.Module):
    """An invertible map of (n, hidden) vectors and the density it gives them."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, mean: Tensor, deviation: Tensor, couplings: int, width: int) -> None:
        """mean, deviation: (hidden,) that the vectors are standardised by."""
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)
        self.flow = RealNVP(
            len(mean), transforms=couplings, randmask=True, hidden_features=(width, width)
        )

    def forward(self, vectors: Tensor) -> Tensor:
        """f(u), (n, hidden): what a standard Gaussian is fitted to."""
        latent: Tensor = self.flow().transform((vectors - self.mean) / self.deviation)
        return latent

    def inverse(self, latent: Tensor) -> Tensor:
        """The vectors whose ``forward`` is ``latent``, both (n, hidden)."""
        vectors: Tensor = self.flow().transform.inv(latent) * self.deviation + self.mean
        return vectors

    def log_prob(self, vectors: Tensor) -> Tensor:
        """Log-density of each vector, (n,), in nats and the vectors' own units."""
        density: Tensor = self.flow().log_prob((vectors - self.mean) / self.deviation)
        return density - self.deviation.log().sum()


def fit_flow(vectors: np.ndarray, settings: FlowSettings) -> tuple[DensityFlow, list[float]]:
    """Fit a flow to ``vectors`` (n, hidden) by maximum likelihood.

    Returns:
        The flow, and the mean log-likelihood of ``vectors`` before training and after each epoch.

    Raises:
        ValueError: fewer than 2 dimensions or vectors, a dimension that does not vary, or a
            log-likelihood that is no longer finite.
    """
    if len(vectors) < 2 or vectors.shape[1] < 2:
        raise ValueError(f"a flow needs 2 vectors of 2 numbers or more, found {vectors.shape}")
    data = torch.from_numpy(np.array(vectors, dtype=np.float32))
    deviation, mean = torch.std_mean(data, 0, correction=0)
    if constant := (deviation == 0).nonzero().flatten().tolist():
        raise ValueError(f"dimensions {constant[:5]} are the same in all {len(data)} vectors")
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        flow = DensityFlow(mean, deviation, settings.couplings, settings.width)
        optimizer = torch.optim.Adam(flow.flow.parameters(), settings.lr)
        history = [_mean_log_prob(flow, data)]
        for epoch in range(settings.epochs):
            for rows in torch.randperm(len(data)).split(settings.batch_size):
                loss = -flow.log_prob(data[rows]).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            history.append(_mean_log_prob(flow, data))
            if not np.isfinite(history[-1]):
                raise ValueError(
                    f"the flow's log-likelihood is {history[-1]} after epoch {epoch + 1}; lower "
                    f"lr ({settings.lr})"
                )
    return flow.eval().requires_grad_(False), history


@torch.no_grad()
def _mean_log_prob(flow: DensityFlow, data: Tensor) -> float:
    return float(flow.log_prob(data).double().mean())


@dataclass(frozen=True)
class Flow:
    """Vectors of another method, the encoder frozen, taken through a flow fitted on the corpus."""

    base: Method
    """For the published rows an ``Embedding`` with pooling first_last, or ``sbert``. One that is
    fitted is fitted on the same corpus."""
    flow: FlowSettings = FlowSettings()
    name: str = "flow"

    def fit(self, corpus: Corpus | None) -> Encode:
        """Fit the flow to the vectors of the corpus's distinct sentences, on the CPU.

        Raises:
            ValueError: no corpus, or one that a flow cannot be fitted to.
        """
        encode = self.base.fit(corpus)
        sentences = list(dict.fromkeys(needed(self, corpus).sentences))
        flow, _ = fit_flow(encode(sentences), self.flow)

        def latent(texts: Sequence[str]) -> np.ndarray:
            found: np.ndarray = flow(torch.from_numpy(np.array(encode(texts)))).numpy()
            return found

        return latent

    def settings(self) -> dict[str, Any]:
        """The flow's, and the settings of the method beneath."""
        return {**beneath(self.base), **asdict(self.flow)}
