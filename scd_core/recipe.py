"""The recipe: one run, completely described, with its identity, and recipes as TOML.

A recipe is a tree of frozen dataclasses, the groups of ``scd_core.settings``. Presets are partial
recipes in TOML (``scd_core/presets``).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import pydantic
import tyro

from scd_core.settings import (
    STRICT,
    Data,
    MethodName,
    Model,
    Objective,
    Optim,
    Precision,
    Projector,
    Selection,
    Views,
    require,
)

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


@dataclass(frozen=True)
class Recipe:
    """One run, completely described. No flags is the paper's SCD-BERT."""

    __pydantic_config__ = STRICT

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
        require(self.seed >= 0, "seed", self.seed, "a seed is a whole number from 0")
        r_a, r_b = self.views.r_a, self.views.r_b
        if self.method == "scd":
            remedy = f"SCD needs r_A < r_B, and views.r_b is {r_b}; lower r_a or raise r_b"
            require(r_a < r_b, "views.r_a", r_a, remedy)
        else:
            remedy = f"{self.method} has one dropout rate; give views.r_b = {r_b} the same value"
            require(r_a == r_b, "views.r_a", r_a, remedy)

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
        ValueError: an unknown setting or a value of the wrong kind, with file and setting; or a
            file that is not TOML in UTF-8.
    """
    layers = dataclasses.asdict(Recipe())
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors put a mark before UTF-8
        for key, value in tomllib.loads(text).items():
            known = isinstance(value, dict) and isinstance(layers.get(key), dict)
            layers[key] = layers[key] | value if known else value
        return pydantic.TypeAdapter(Recipe).validate_python(layers)
    except UnicodeDecodeError as error:
        byte = f"byte 0x{error.object[error.start]:02x} at {error.start}"
        raise ValueError(f"{path} is not UTF-8 ({byte}); save it in that encoding") from error
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
