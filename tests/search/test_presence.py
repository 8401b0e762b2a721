"""Drivers of different homes that meet on one MLflow store."""

from __future__ import annotations

import time
from io import StringIO
from pathlib import Path

import pytest
import stubs
from rich.console import Console
from stubs import STSB, counted

from scd_core.tracking import Tracking
from search import presence
from search.ledger import Ledger
from search.plan import Plan
from search.presence import Presence
from search.runner import run_search


def opened(plan: Plan, store: Tracking, home: Path, patch: pytest.MonkeyPatch) -> Ledger:
    """A search that a driver in another home has begun."""
    with patch.context() as elsewhere:
        elsewhere.setenv("SCD_HOME", str(home))
        ledger = Ledger(plan, store)
        ledger.open({STSB: 50.0}, Presence(plan, store).tags)
    return ledger


def test_a_second_home_is_refused_while_the_first_lives(
    store: Tracking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = stubs.plan((0.1, 0.2), name="shared")
    first = opened(plan, store, tmp_path / "first", monkeypatch)
    log = tmp_path / "log"
    with pytest.raises(ValueError, match=r"coarse-shared, is running from another folder"):
        run_search(plan, store, {STSB: 50.0}, Console(file=StringIO()), counted(log))
    assert not log.exists()
    assert [run.status for run in store.find("search")] == ["RUNNING"]
    other = stubs.plan((0.1, 0.2), name="other", data_fingerprint="e" * 64)
    Presence(other, store).refuse()  # other points
    first.close("KILLED")
    Presence(plan, store).refuse()


def test_a_driver_that_is_silent_for_long_is_dead(
    store: Tracking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = stubs.plan((0.1, 0.2))
    first = opened(plan, store, tmp_path / "first", monkeypatch)
    mine = Presence(plan, store)
    for silent, alive in ((290, True), (310, False)):
        store.tag(first.parent, {"scd.alive": str(time.time() - silent)})
        if alive:
            with pytest.raises(ValueError, match="5 minutes"):
                mine.refuse()
        else:
            mine.refuse()


def test_of_two_that_open_at_once_one_goes_on(
    store: Tracking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = [stubs.plan((0.1, 0.2), name=name) for name in ("a", "b")]
    homes = [tmp_path / "a", tmp_path / "b"]
    parents = [
        opened(plan, store, home, monkeypatch).parent
        for plan, home in zip(plans, homes, strict=True)
    ]
    refused = []
    for plan, home, parent in zip(plans, homes, parents, strict=True):
        with monkeypatch.context() as patch:
            patch.setenv("SCD_HOME", str(home))
            try:
                Presence(plan, store).settle(parent)
            except ValueError:
                refused.append(parent)
    assert refused == [max(parents)]
    statuses = {run.run_id: run.status for run in store.find("search")}
    assert statuses == {min(parents): "RUNNING", max(parents): "KILLED"}


def test_of_two_that_open_the_same_run_the_last_goes_on(
    store: Tracking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command in two homes at once, resumed: one run, which both have read before."""
    plan = stubs.plan((0.1, 0.2))
    opened(plan, store, tmp_path / "first", monkeypatch).close("KILLED")
    homes = [tmp_path / name for name in ("a", "b")]
    ledgers, presences = [], []
    for home in homes:
        with monkeypatch.context() as patch:
            patch.setenv("SCD_HOME", str(home))
            ledgers.append(Ledger(plan, store))
            presences.append(Presence(plan, store))
            presences[-1].refuse()
    for ledger, mine, home in zip(ledgers, presences, homes, strict=True):
        with monkeypatch.context() as patch:
            patch.setenv("SCD_HOME", str(home))
            ledger.open({STSB: 50.0}, mine.tags)
    assert ledgers[0].parent == ledgers[1].parent
    with pytest.raises(ValueError, match="is running from another folder"):
        presences[0].settle(ledgers[0].parent)
    presences[1].settle(ledgers[1].parent)
    assert store.get(ledgers[1].parent).status == "RUNNING"


def test_it_says_that_it_is_alive(store: Tracking, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = stubs.plan((0.1, 0.2))
    ledger, mine = Ledger(plan, store), Presence(plan, store)
    ledger.open({STSB: 50.0}, mine.tags)
    store.tag(ledger.parent, {"scd.alive": "1"})
    mine.beat(ledger.parent)
    assert store.get(ledger.parent).tags["scd.alive"] == "1"  # it has said so just now
    monkeypatch.setattr(presence, "_BEAT_SECONDS", -1.0)
    mine.beat(ledger.parent)
    assert float(store.get(ledger.parent).tags["scd.alive"]) > time.time() - 60
