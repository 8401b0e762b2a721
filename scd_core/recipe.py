"""The recipe: every setting of one SCD run, with its symbol, unit and source.

A recipe is a tree of frozen dataclasses. Its defaults are the paper's SCD-BERT with the objective
as it must have been meant; the places where the paper and its authors' released code disagree are
named settings. Presets are partial recipes in TOML (``scd_core/presets``).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import tyro

PRESETS = Path(__file__).parent / "presets"
# The four searched settings are known everywhere (MLflow, tables, plots) by the paper's symbols.
SYMBOLS = {
    "objective.alpha": "alpha",
    "objective.lam": "lambda",
    "views.r_a": "r_A",
    "views.r_b": "r_B",
}
# Where the inputs lie is not what they are: their content enters a run's identity as a fingerprint.
_LOCATIONS = {"model.name", "model.revision", "data.corpus", "data.dev", "data.data_dir"}
_STRICT = pydantic.ConfigDict(extra="forbid")
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
        _require(finite, f"{group}.{name}", value, "give a finite number")


def _require(ok: bool, setting: str, value: object, remedy: str) -> None:
    if not ok:
        raise ValueError(f"{setting} = {value!r} is not possible: {remedy}")


@dataclass(frozen=True)
class Model:
    """The encoder that is trained."""

    __pydantic_config__ = _STRICT

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

    __pydantic_config__ = _STRICT

    r_a: float = 0.05
    """r_A, rate of the low view, as a fraction."""
    r_b: float = 0.15
    """r_B, rate of the high view, as a fraction; r_A < r_B for SCD."""

    def __post_init__(self) -> None:
        _require_finite("views", self)
        _require(0 <= self.r_a < 1, "views.r_a", self.r_a, "a dropout rate lies in [0, 1)")
        _require(0 <= self.r_b < 1, "views.r_b", self.r_b, "a dropout rate lies in [0, 1)")


@dataclass(frozen=True)
class Objective:
    """L = self_weight * L_S + alpha * L_C (Eq. 1 to 4; released-code rows 1 to 5)."""

    __pydantic_config__ = _STRICT

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
        _require(
            self.self_weight >= 0,
            "objective.self_weight",
            self.self_weight,
            "a weight is at least 0",
        )
        _require(self.alpha >= 0, "objective.alpha", self.alpha, "a weight is at least 0")
        _require(self.lam >= 0, "objective.lam", self.lam, "a weight is at least 0")
        _require(
            self.temperature > 0, "objective.temperature", self.temperature, "it must be above 0"
        )
        _require(
            self.alpha > 0 or self.self_weight > 0,
            "objective.alpha",
            self.alpha,
            "with self_weight 0 as well nothing is left to minimise; raise one of them",
        )


@dataclass(frozen=True)
class Projector:
    """MLP from the sentence vector to the space in which features are decorrelated."""

    __pydantic_config__ = _STRICT

    width: int = 4096
    """Output units of every layer (section 3.1)."""
    layers: int = 3
    """Linear layers, with BatchNorm and ReLU between (section 3.1); only the first has a bias
    (released-code row 8)."""

    def __post_init__(self) -> None:
        _require(self.width >= 1, "projector.width", self.width, "at least 1 unit is needed")
        _require(self.layers >= 1, "projector.layers", self.layers, "at least 1 layer is needed")


@dataclass(frozen=True)
class Optim:
    """AdamW with linear decay to 0, no warm-up (released-code row 12)."""

    __pydantic_config__ = _STRICT

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
        _require(
            self.weight_decay >= 0,
            "optim.weight_decay",
            self.weight_decay,
            "it must be at least 0",
        )
        _require(self.lr > 0, "optim.lr", self.lr, "it must be above 0")
        _require(
            self.batch_size >= 2,
            "optim.batch_size",
            self.batch_size,
            "a correlation over the batch needs at least 2 sentences",
        )
        _require(self.epochs >= 1, "optim.epochs", self.epochs, "at least 1 pass is needed")
        _require(
            self.max_steps is None or self.max_steps >= 1,
            "optim.max_steps",
            self.max_steps,
            "at least 1 step is needed; leave it out to train for whole epochs",
        )
        _require(self.clip_norm > 0, "optim.clip_norm", self.clip_norm, "it must be above 0")
        _require(
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
        _require(
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

    __pydantic_config__ = _STRICT

    metric: str = "primary"
    """Dev score that chooses the checkpoint: "primary" (the dev set's first: STS-B for "sts"), or
    its name, e.g. "stsb" or "sickr" (released: SICK-R; paper: not stated). Larger is better; the
    first of equals is kept."""
    every: int = 250
    """Steps between dev evaluations (released). The last step is always evaluated."""

    def __post_init__(self) -> None:
        _require(self.every >= 1, "selection.every", self.every, "at least 1 step is needed")


@dataclass(frozen=True)
class Data:
    """Where sentences and scores come from. Their content, not their place, identifies a run."""

    __pydantic_config__ = _STRICT

    corpus: str = "wiki1m"
    """Training sentences: "wiki1m" (10^6 Wikipedia sentences, section 3.1), "documentation" (of the
    software on this machine), or a UTF-8 text file, one sentence a line. Supervised SimCSE takes
    triplets: "nli", or a CSV file with the columns sent0, sent1 and hard_neg."""
    dev: str = "sts"
    """Dev scores: "sts" (STS-B dev and SICK-R dev), "sample" (the pairs that come with the
    project), or a tab-separated file: two sentences and a score a line."""
    data_dir: Path | None = None
    """Folder with senteval/ (and optionally wiki1m_for_simcse.txt); default $SCD_DATA_DIR, then the
    Hub."""


@dataclass(frozen=True)
class Recipe:
    """One run, completely described. No flags is the paper's SCD-BERT."""

    __pydantic_config__ = _STRICT

    model: Model = field(default_factory=Model)
    views: Views = field(default_factory=Views)
    objective: Objective = field(default_factory=Objective)
    projector: Projector = field(default_factory=Projector)
    optim: Optim = field(default_factory=Optim)
    selection: Selection = field(default_factory=Selection)
    data: Annotated[Data, tyro.conf.arg(name="")] = field(default_factory=Data)
    method: MethodName = "scd"
    """What is trained; the other methods of the tables take what they need of these settings."""
    seed: int = 0
    """Of the projector's weights, the order of sentences and every dropout mask."""

    def __post_init__(self) -> None:
        _require(self.seed >= 0, "seed", self.seed, "a seed is a whole number from 0")
        r_a, r_b = self.views.r_a, self.views.r_b
        if self.method == "scd":
            remedy = f"SCD needs r_A < r_B, and views.r_b is {r_b}; lower r_a or raise r_b"
            _require(r_a < r_b, "views.r_a", r_a, remedy)
        else:
            remedy = f"{self.method} has one dropout rate; give views.r_b = {r_b} the same value"
            _require(r_a == r_b, "views.r_a", r_a, remedy)

    @cached_property
    def hash(self) -> str:
        """Twelve hex digits over every setting except the seed and the places of inputs.

        Floats are compared at 12 significant digits, so 0.15 and 3 * 0.05 are the same setting. A
        run's recipe has its precision resolved before (``inputs.prepare``): in bf16 and in fp32 it
        is two runs. The method is left out where it is SCD, as it was before there were others.
        """
        left_out = _LOCATIONS | {"seed"} | ({"method"} if self.method == "scd" else set())
        settings = {k: v for k, v in self.flat().items() if k not in left_out}
        text = json.dumps(settings, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def in_precision(self, precision: Precision) -> Recipe:
        """The recipe with this precision where it leaves the choice to the machine ("auto")."""
        if self.optim.precision != "auto":
            return self
        return dataclasses.replace(self, optim=dataclasses.replace(self.optim, precision=precision))

    @cached_property
    def run_hashes(self) -> set[str]:
        """Of the runs of this recipe: with "auto", one for each precision that it may become."""
        return {self.in_precision(precision).hash for precision in ("fp32", "bf16")}

    def flat(self) -> dict[str, Any]:
        """Every setting by its dotted name, e.g. ``objective.alpha``; floats made canonical."""
        return {
            f"{group}.{name}" if isinstance(value, dict) else group: _canonical(inner)
            for group, value in dataclasses.asdict(self).items()
            for name, inner in (value.items() if isinstance(value, dict) else [("", value)])
        }

    def symbols(self) -> dict[str, Any]:
        """Like ``flat``, with the searched settings under the paper's symbols (``SYMBOLS``)."""
        return {SYMBOLS.get(name, name): value for name, value in self.flat().items()}

    def to_toml(self) -> str:
        """The whole recipe as TOML that ``from_toml`` reads, less the settings that are None."""
        lines, flat = [f'method = "{self.method}"', f"seed = {self.seed}"], self.flat()
        groups = (f.name for f in dataclasses.fields(self) if f.name not in ("method", "seed"))
        for group in groups:
            lines += ["", f"[{group}]"]
            for name, value in flat.items():
                if name.startswith(f"{group}.") and value is not None:
                    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
                    lines.append(f"{name.removeprefix(f'{group}.')} = {text}")
        return "\n".join(lines) + "\n"


def _canonical(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.12g}") + 0.0  # -0.0 is 0.0
    return str(value) if isinstance(value, Path) else value


def from_toml(path: Path) -> Recipe:
    """The recipe of a TOML file; what it leaves out is as in the paper's SCD-BERT.

    Raises:
        ValueError: an unknown setting or a value of the wrong kind, with file and setting.
    """
    layers = dataclasses.asdict(Recipe())
    try:
        for key, value in tomllib.loads(path.read_text(encoding="utf-8")).items():
            known = isinstance(value, dict) and isinstance(layers.get(key), dict)
            layers[key] = layers[key] | value if known else value
        return pydantic.TypeAdapter(Recipe).validate_python(layers)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    except pydantic.ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, e['loc']))}: {e['msg']} (found {e['input']!r})"
            for e in error.errors()
        )
        raise ValueError(f"{path}: {problems}") from error


def preset_names() -> list[str]:
    """The presets that come with the project."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def preset(name: str) -> Recipe:
    """A preset by name.

    Raises:
        ValueError: there is none of that name; the message lists those there are.
    """
    path = PRESETS / f"{name}.toml"
    if not path.is_file():
        raise ValueError(f"preset {name!r} does not exist; choose one of {preset_names()}")
    return from_toml(path)


def preset_of(recipe: Recipe) -> str | None:
    """The preset that a recipe is, whatever its seed, data folder and "auto" became, or None."""

    def said(r: Recipe) -> tuple[object, ...]:
        resolved = r.in_precision(recipe.optim.precision)
        return resolved.hash, r.model, r.data.corpus, r.data.dev

    return next((name for name in preset_names() if said(preset(name)) == said(recipe)), None)
