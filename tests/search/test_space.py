"""The grid: exactly the allowed points, in one order, however its values were computed."""

from __future__ import annotations

import itertools
import math

import pytest

from scd_core.recipe import Recipe
from search.space import COARSE, QUICK, Point, Space, point_of

RATES = (0.0, 0.05, 0.1, 0.15, 0.2)


def test_grid_has_exactly_the_pairs_with_r_a_below_r_b() -> None:
    space = Space((0.1, 0.2), (0.01,), RATES, RATES)
    expected = [
        Point(alpha, 0.01, r_a, r_b)
        for alpha in (0.1, 0.2)
        for r_a, r_b in itertools.combinations(RATES, 2)
    ]
    assert list(space.points) == expected


def test_one_allowed_pair_is_a_grid_of_one() -> None:
    assert Space((0.1,), (0.01,), (0.1, 0.2), (0.1, 0.2)).points == (Point(0.1, 0.01, 0.1, 0.2),)


@pytest.mark.parametrize(("r_a", "r_b"), [((0.2,), (0.1,)), ((0.1,), (0.1,)), ((0.3, 0.2), (0.2,))])
def test_space_without_an_allowed_pair_is_refused_at_once(
    r_a: tuple[float, ...], r_b: tuple[float, ...]
) -> None:
    with pytest.raises(ValueError, match="the space is empty"):
        Space((0.1,), (0.01,), r_a, r_b)


@pytest.mark.parametrize("values", [(), (math.nan,), (0.1, math.inf)])
def test_values_must_be_numbers_and_there(values: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"space\.alpha"):
        Space(values, (0.01,), (0.1,), (0.2,))


def test_order_and_identity_do_not_depend_on_how_values_are_written() -> None:
    written = Space((0.3, 0.1, 0.2), (0.01, 0.1), (0.1, 0.0), (0.2, 0.1))
    computed = Space((0.1, 2 * 0.1, 3 * 0.1), (0.1, 1e-2, 0.1), (0.0, 0.1), (0.1, 0.1 + 0.1))
    assert written == computed
    assert written.points == computed.points == tuple(sorted(written.points))


def test_point_is_what_the_recipe_gets_and_nothing_else_changes() -> None:
    point, base = Point(0.3, 0.001, 0.1, 0.4), Recipe(seed=7)
    changed = {k: v for k, v in point.apply(base).symbols().items() if base.symbols()[k] != v}
    assert changed == point.symbols()
    assert point_of(point.symbols()) == point


def test_paper_grid_has_the_steps_of_the_paper() -> None:
    assert COARSE.lam == (0.001, 0.01, 0.1)
    for values in (COARSE.alpha, COARSE.r_a, COARSE.r_b):
        assert {round(b - a, 9) for a, b in itertools.pairwise(values)} == {0.1}
    assert len(COARSE.points) == 10 * 3 * 15


def test_quick_grid_is_part_of_the_paper_grid() -> None:
    assert len(QUICK.points) >= 12
    assert set(QUICK.points) <= set(COARSE.points)
