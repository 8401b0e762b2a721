"""What is known before a search: identities, names and the share of the machine."""

from __future__ import annotations

import pytest
import stubs

from search.machine import Share, share_out

GIB = 1 << 30


def test_identities_are_unique_and_do_not_depend_on_the_order_of_the_grid() -> None:
    one, other = stubs.plan((0.1, 0.2), (0.1, 0.01)), stubs.plan((0.2, 0.1), (0.01, 0.1))
    assert [t.identity for t in one.trials] == [t.identity for t in other.trials]
    assert len({t.identity for t in one.trials}) == 4
    assert one.identity == other.identity


@pytest.mark.parametrize("other", [stubs.plan((0.1, 0.3)), stubs.plan((0.1, 0.2), seed=1)])
def test_another_search_has_another_identity_and_by_itself_another_name(other: object) -> None:
    mine = stubs.plan((0.1, 0.2))
    assert mine.identity != other.identity  # type: ignore[attr-defined]
    assert mine.name != other.name  # type: ignore[attr-defined]


def test_a_grid_that_grows_keeps_the_identity_of_its_points() -> None:
    small, large = stubs.plan((0.1, 0.2)), stubs.plan((0.1, 0.15, 0.2, 0.3))
    assert {t.identity for t in small.trials} < {t.identity for t in large.trials}


def test_trial_folders_are_short_and_unique() -> None:
    plan = stubs.plan((0.1, 0.2), (0.1, 0.01), (0.0, 0.1), (0.2, 0.3))
    names = [plan.folder_of(trial).name for trial in plan.trials]
    assert len(set(names)) == len(names) == 16
    assert max(map(len, names)) < 40


@pytest.mark.parametrize(
    ("arguments", "share"),
    [
        ((12, 2, 0, 64 * GIB), Share(2, 1, 0)),
        ((12, 16, 0, 8 * GIB), Share(4, 4, 0)),
        ((3, 16, 0, None), Share(3, 5, 0)),
        ((12, 1, 0, 1 * GIB), Share(1, 1, 0)),
        ((450, 16, 2, 8 * GIB), Share(2, 8, 1)),
        ((450, 16, 1, 8 * GIB, None, None, 0.5), Share(2, 8, 0.5)),
        ((12, 4, 0, 64 * GIB, 2, 1.0), Share(2, 1, 0)),
    ],
)
def test_share_of_the_machine(arguments: tuple[int, ...], share: Share) -> None:
    assert share_out(*arguments) == share


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        ((12, 2, 0, None, 0), "--concurrent"),
        ((12, 2, 0, None, None, 3.0), "--cpus-per-trial"),
        ((12, 2, 0, None, None, None, 1.0), "--gpus-per-trial"),
    ],
)
def test_more_than_the_machine_is_refused_by_the_flag(
    arguments: tuple[int, ...], flag: str
) -> None:
    with pytest.raises(ValueError, match=flag):
        share_out(*arguments)
