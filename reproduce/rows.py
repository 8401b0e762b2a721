"""Names, titles and order of the rows that the paper does not have."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from reproduce.aggregate import Group, Setting
from reproduce.fidelity import ABLATIONS, BASES, Variant, variants
from reproduce.published import FITTED_POOLING, OTHER, OVER_ENCODER, PublishedRow
from scd_core.recipe import Recipe, preset, preset_names
from scd_core.settings import Model

known_preset = functools.cache(preset)
"""A preset, read once."""
_NAMES = {
    "glove": "GloVe",
    "embedding": "",
    "flow": "flow",
    "whitening": "whitening",
    "is": "IS",
    "ct": "CT",
    "skip-thought": "Skip-thought",
    "simcse": "SimCSE",
    "simcse-supervised": "supervised SimCSE",
    "scd": "SCD",
}
"""Methods as titles have them, in the order of the paper's tables; an encoder as it is has none."""
_ORDER = list(_NAMES)
FITTED = ("glove", "flow", "whitening")
"""Methods that are fitted, or read, and not trained: their runs name no recipe of a preset."""
UNTRAINED = (*FITTED, "embedding")


def unpublished(groups: Sequence[Group]) -> Iterator[tuple[PublishedRow, Group]]:
    """A row without published scores for each group: by model, then as the paper orders methods.

    Titles that several groups would have are told apart by what differs between them.
    """
    titles = {group.setting: title(group) for group in groups}
    details = {group.setting: _details(group) for group in groups}
    alike: dict[str, list[tuple[str, ...]]] = {}
    for setting, told in details.items():
        alike.setdefault(titles[setting], []).append(told)
    differ = {
        shown: [len(set(every)) > 1 for every in zip(*same, strict=True)]
        for shown, same in alike.items()
    }

    def place(group: Group) -> tuple[str, int, str, Setting]:
        method = group.setting.method
        at = _ORDER.index(method) if method in _ORDER else len(_ORDER)
        return group.setting.model, at, titles[group.setting], group.setting

    for group in sorted(groups, key=place):
        setting, shown = group.setting, titles[group.setting]
        pairs = zip(details[setting], differ[shown], strict=True)
        shown = ", ".join([shown, *(own for own, telling in pairs if telling and own)])
        yield (
            PublishedRow(
                id="/".join(part for part in _parts(setting) if part),
                title=shown,
                section=OTHER,
                source="",
                method=setting.method,
                model=setting.model,
                pooling=setting.pooling,
                preset="",
                scores={},
            ),
            group,
        )


def title(group: Group) -> str:
    """What a group is called where the paper has no row for it."""
    setting, params = group.setting, group.latest.params
    model = _short(setting.model)
    method = " ".join(filter(None, (_NAMES.get(setting.method, setting.method), terms(params))))
    named = ", ".join(filter(None, (model, method)))
    if not setting.recipe_hash:
        return f"{named}, {setting.pooling} pooling"
    if setting.method in FITTED:
        read = params.get("method.vectors") or _corpus(params)
        return f"{named}, {setting.pooling} pooling" + (f", on {read}" if read else "")
    known = preset_by_hash().get(setting.recipe_hash)
    pooling = known_preset(known).model.pooling if known else Model().pooling
    corpus = Path(params.get("data.corpus", "")).name
    steps, batch = params.get("optim.max_steps", "None"), params.get("optim.batch_size", "?")
    length = f"{params.get('optim.epochs', '?')} epochs" if steps == "None" else f"{steps} steps"
    parts = (
        named,
        _named(setting.recipe_hash) or f"{length} of {batch}",
        f"{setting.pooling} pooling" if setting.pooling != pooling else "",
        f"on {corpus}" if corpus else "",
    )
    return ", ".join(filter(None, parts))


def _short(model: str) -> str:
    """Of a folder its name is enough to tell the row; the whole path is in the run."""
    return Path(model).name if Path(model).is_absolute() else model


def terms(params: Mapping[str, str]) -> str:
    """Which term of Eq. 1 a run trains where it is only one."""
    if params.get("alpha") == "0.0":
        return "(L_S)"
    return "(L_C)" if params.get("objective.self_weight") == "0.0" else ""


def role(row: PublishedRow, group: Group | None) -> str:
    """What a row is whatever its encoder, e.g. "embedding cls", "flow" or "scd (L_C)"."""
    params = group.latest.params if group else {}
    if row.preset:
        params = {k: str(v) for k, v in known_preset(row.preset).symbols().items()}
    pooling = row.pooling if row.method == "embedding" else ""
    if row.method in OVER_ENCODER:
        pooling = group.setting.pooling if group else FITTED_POOLING
        pooling += " on target" if group and _corpus(params) == "target" else ""
    return " ".join(filter(None, (row.method, pooling, terms(params))))


def _corpus(params: Mapping[str, str]) -> str:
    """What a method was fitted on: a file's name, a keyword, or "target"."""
    return Path(params.get("data.corpus", "").partition(" (")[0]).name


@functools.cache
def preset_by_hash() -> dict[str, str]:
    """Names of presets by the hash of their recipe; an ablation has the name of its base."""
    bases = {name: known_preset(name) for name in BASES}
    recipes = [(v.of(base), name) for name, base in bases.items() for v in ABLATIONS]
    recipes += [(known_preset(name), name) for name in reversed(preset_names())]
    return {run_hash: name for recipe, name in recipes for run_hash in recipe.run_hashes}


@functools.cache
def variant_by_hash() -> dict[str, str]:
    """Titles of the fidelity table's recipes by their hash."""
    bases = ((name, known_preset(name)) for name in BASES)
    return {
        run_hash: f"{name}, {variant.title}"
        for name, base in bases
        for variant in variants(name)
        for run_hash in variant.of(base).run_hashes
    }


def _named(recipe_hash: str) -> str:
    """What a known recipe is called; empty for any other."""
    return preset_by_hash().get(recipe_hash) or variant_by_hash().get(recipe_hash, "")


def fidelity(base: str, recipe: Recipe, variant: Variant | None) -> PublishedRow:
    """A row of the fidelity table: the base, on its own encoder or another, or a variant of it."""
    name, first, block = recipe.model.name, base, base
    if name != known_preset(base).model.name:
        first, block = f"{base}/{name}", f"{base}, {_short(name)}"
    return PublishedRow(
        id=f"{first}/{variant.id}" if variant else first,
        title=variant.title if variant else block,
        section=block,
        source="",
        method="scd",
        model=recipe.model.name,
        pooling=recipe.model.pooling,
        preset="" if variant else base,
        scores={},
    )


def _details(group: Group) -> tuple[str, ...]:
    """What may tell groups of one title apart."""
    setting, precision = group.setting, group.latest.params.get("optim.precision", "")
    length = f"at {setting.max_length} tokens" if setting.max_length else ""
    recipe = "" if _named(setting.recipe_hash) else setting.recipe_hash[:8]
    return setting.content[:8], recipe, precision, length


def _parts(setting: Setting) -> tuple[str, ...]:
    return (
        setting.method,
        setting.model,
        setting.pooling,
        setting.recipe_hash,
        setting.content[:12],
        str(setting.max_length or ""),
    )
