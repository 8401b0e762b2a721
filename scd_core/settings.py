"""The settings of a recipe in their groups, each with its symbol, unit and source.

The defaults are the paper's SCD-BERT with the objective as it must have been meant; the places
where the paper and its authors' released code disagree are named settings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pydantic

STRICT = pydantic.ConfigDict(extra="forbid")
"""Of every part of a recipe: what is not known is refused."""
Precision = Literal["auto", "fp32", "bf16", "fp16"]
MethodName = Literal["scd", "simcse", "simcse-supervised", "ct", "is", "skip-thought"]
METHODS: dict[MethodName, str] = {
    "scd": "Self-Contrastive Decorrelation (SCD, ACL 2022)",
    "simcse": "unsupervised SimCSE (Gao et al. 2021)",
    "simcse-supervised": "supervised SimCSE (Gao et al. 2021)",
    "ct": "Contrastive Tension (CT, Carlsson et al. 2021)",
    "skip-thought": "neighbouring sentences (Skip-thought, Kiros et al. 2015)",
    "is": "mutual information maximisation (IS-BERT, Zhang et al. 2020)",
}
"""What the loop can train, for people; ``learners`` has what each one computes."""


def _require_finite(group: str, settings: Any) -> None:
    for name, value in vars(settings).items():
        finite = not isinstance(value, float) or math.isfinite(value)
        require(finite, f"{group}.{name}", value, "give a finite number")


def require(ok: bool, setting: str, value: object, remedy: str) -> None:
    """Raise ``ValueError`` with setting, value and remedy where ``ok`` is false."""
    if not ok:
        raise ValueError(f"{setting} = {value!r} is not possible: {remedy}")


@dataclass(frozen=True)
class Model:
    """The encoder that is trained."""

    __pydantic_config__ = STRICT

    name: str = "bert-base-uncased"
    """A Hub name, a local model folder, or "bundled" (the 6-layer BERT of the `offline` extra)."""
    revision: str | None = None
    """Hub revision; the known base models are pinned where none is given."""
    pooling: Literal["cls", "mean"] = "cls"
    """Sentence vector: the last layer's first token, without a pooler layer (section 3.1,
    released-code row 9), or the last layer's mean over real tokens."""


@dataclass(frozen=True)
class Views:
    """Dropout rates of the two views (section 2), for every dropout of the encoder.

    Methods other than SCD take one rate: r_a = r_b.
    """

    __pydantic_config__ = STRICT

    r_a: float = 0.05
    """r_A, rate of the low view, as a fraction."""
    r_b: float = 0.15
    """r_B, rate of the high view, as a fraction; r_A < r_B for SCD."""

    def __post_init__(self) -> None:
        _require_finite("views", self)
        require(0 <= self.r_a < 1, "views.r_a", self.r_a, "a dropout rate lies in [0, 1)")
        require(0 <= self.r_b < 1, "views.r_b", self.r_b, "a dropout rate lies in [0, 1)")


@dataclass(frozen=True)
class Objective:
    """L = self_weight * L_S + alpha * L_C (Eq. 1 to 4; released-code rows 1 to 5)."""

    __pydantic_config__ = STRICT

    alpha: float = 0.005
    """alpha, weight of the decorrelation L_C in Eq. 1 (released: task_beta)."""
    lam: float = 0.013
    """lambda, weight of the off-diagonal sum in Eq. 4."""
    self_weight: float = 1.0
    """Weight of the self-contrast L_S (released: task_alpha). 0 is the ablation "L_C only"."""
    temperature: float = 1.0
    """tau, divides the cosine in Eq. 2. Paper: none (1). Released: 0.05. Also that of InfoNCE."""
    reduction: Literal["mean", "sum"] = "mean"
    """Over the batch in Eq. 2. Paper and released: mean. An earlier release: sum."""
    normaliser: Literal["standard", "printed"] = "standard"
    """Of C in Eq. 3: "standard" cross-correlation of batch-standardised columns (released), or
    "printed": divided by the root of the summed products of squares."""
    diagonal_sign: Literal["plus", "minus"] = "plus"
    """Sign of sum_j (1 - C_jj)^2 in Eq. 4: "plus" pulls the views together (released, and the
    paper's text), "minus" is the equation as printed."""

    def __post_init__(self) -> None:
        _require_finite("objective", self)
        require(
            self.self_weight >= 0,
            "objective.self_weight",
            self.self_weight,
            "a weight is at least 0",
        )
        require(self.alpha >= 0, "objective.alpha", self.alpha, "a weight is at least 0")
        require(self.lam >= 0, "objective.lam", self.lam, "a weight is at least 0")
        require(
            self.temperature > 0, "objective.temperature", self.temperature, "it must be above 0"
        )
        require(
            self.alpha > 0 or self.self_weight > 0,
            "objective.alpha",
            self.alpha,
            "with self_weight 0 as well nothing is left to minimise; raise one of them",
        )


@dataclass(frozen=True)
class Projector:
    """MLP from the sentence vector to the space in which features are decorrelated."""

    __pydantic_config__ = STRICT

    width: int = 4096
    """Output units of every layer (section 3.1)."""
    layers: int = 3
    """Linear layers, with BatchNorm and ReLU between (section 3.1); only the first has a bias
    (released-code row 8)."""

    def __post_init__(self) -> None:
        require(self.width >= 1, "projector.width", self.width, "at least 1 unit is needed")
        require(self.layers >= 1, "projector.layers", self.layers, "at least 1 layer is needed")


@dataclass(frozen=True)
class Optim:
    """AdamW with linear decay to 0, no warm-up (released-code row 12)."""

    __pydantic_config__ = STRICT

    lr: float = 3e-5
    """Peak learning rate (section 3.1)."""
    batch_size: int = 192
    """Sentences (or triplets) a step; also the batch of the correlation. There is no accumulation:
    BatchNorm and C would see micro-batches only."""
    epochs: int = 1
    """Passes over the corpus (section 3.1); the last, partial batch of a pass is left out."""
    max_steps: int | None = None
    """Planned steps; None takes them from epochs. The learning rate reaches 0 there."""
    weight_decay: float = 0.0
    """Decoupled weight decay (released: none)."""
    clip_norm: float = 1.0
    """Largest gradient norm over encoder and projector (released)."""
    precision: Precision = "auto"
    """Of the encoder's and projector's matrix products; weights, statistics and loss stay fp32.
    "auto" is bf16 where the processor or GPU has matrix products of bf16, else fp32; a run's
    identity and record hold what it became. Paper: not stated. Released: 16 bit."""
    max_length: int = 32
    """Tokens a training sentence is cut to (released; paper: not stated), not in evaluation."""

    def __post_init__(self) -> None:
        _require_finite("optim", self)
        require(
            self.weight_decay >= 0,
            "optim.weight_decay",
            self.weight_decay,
            "it must be at least 0",
        )
        require(self.lr > 0, "optim.lr", self.lr, "it must be above 0")
        require(
            self.batch_size >= 2,
            "optim.batch_size",
            self.batch_size,
            "a correlation over the batch needs at least 2 sentences",
        )
        require(self.epochs >= 1, "optim.epochs", self.epochs, "at least 1 pass is needed")
        require(
            self.max_steps is None or self.max_steps >= 1,
            "optim.max_steps",
            self.max_steps,
            "at least 1 step is needed; leave it out to train for whole epochs",
        )
        require(self.clip_norm > 0, "optim.clip_norm", self.clip_norm, "it must be above 0")
        require(
            self.max_length >= 3,
            "optim.max_length",
            self.max_length,
            "a sentence with its two special tokens needs at least 3",
        )

    def total_steps(self, sentences: int) -> int:
        """Planned optimiser steps for a corpus of that many sentences (or triplets).

        Raises:
            ValueError: the corpus is smaller than one batch.
        """
        per_epoch = sentences // self.batch_size
        require(
            per_epoch >= 1,
            "optim.batch_size",
            self.batch_size,
            f"the corpus has {sentences} sentences (or triplets) only; use a smaller batch or a "
            "larger corpus",
        )
        return self.max_steps or per_epoch * self.epochs


@dataclass(frozen=True)
class Selection:
    """Which checkpoint is kept (released-code row 15)."""

    __pydantic_config__ = STRICT

    metric: str = "primary"
    """Dev score that chooses the checkpoint: "primary" (the dev set's first: STS-B for "sts"), or
    its name, e.g. "stsb" or "sickr" (released: SICK-R; paper: not stated). Larger is better; the
    first of equals is kept."""
    every: int = 250
    """Steps between dev evaluations (released). The last step is always evaluated."""

    def __post_init__(self) -> None:
        require(self.every >= 1, "selection.every", self.every, "at least 1 step is needed")


@dataclass(frozen=True)
class Data:
    """Where sentences and scores come from. Their content, not their place, identifies a run."""

    __pydantic_config__ = STRICT

    corpus: str = "wiki1m"
    """Training sentences: "wiki1m" (10^6 Wikipedia sentences, section 3.1), "documentation" (of the
    software on this machine), or a UTF-8 text file, one sentence a line. Supervised SimCSE takes
    triplets: "nli" (published SNLI and MNLI triplets), or a CSV file with the columns sent0, sent1
    and hard_neg; of these, any other method takes the distinct sentences."""
    dev: str = "sts"
    """Dev scores: "sts" (STS-B dev and SICK-R dev), "sample" (the pairs that come with the
    project), or a tab-separated file: two sentences and a score a line."""
    data_dir: Path | None = None
    """Folder with senteval/ (and optionally wiki1m_for_simcse.txt); default $SCD_DATA_DIR, then the
    Hub."""
