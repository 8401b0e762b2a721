"""Whose a search's name is: what is written down of it, and who is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import stubs
from stubs import counted, drive

from scd_core.tracking import Tracking
from search.claim import described_in, refuse_another, write_description
from search.ledger import Ledger
from search.plan import Plan


def test_a_description_is_never_half_written(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = stubs.plan((0.1,), name="x")
    whole = write_description(plan).read_text()

    def full_disk(path: Path, text: str, encoding: str) -> None:
        path.write_bytes(text.encode(encoding)[:20])
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full_disk)
        with pytest.raises(OSError, match="no space left"):
            write_description(plan)
    assert described_in(plan).read_text() == whole


@pytest.mark.parametrize("content", [b"", b'{"name": "coarse-x", "sta', b"\xff"])
def test_a_damaged_description_is_named_with_the_remedy(
    content: bytes, store: Tracking, tmp_path: Path
) -> None:
    plan = stubs.plan((0.1,), name="x")
    drive(plan, store, counted(tmp_path / "log"))
    path = described_in(plan)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{path}, .* is damaged .*; delete that file"):
        refuse_another(plan, store)
    path.unlink()
    (outcome,) = drive(plan, store, counted(tmp_path / "log"))
    assert outcome.settled
    assert (tmp_path / "log").read_text().split() == ["0.1"]


@pytest.fixture
def theirs() -> Plan:
    """Of another home: the same name, and a grid of its own."""
    return stubs.plan((0.1, 0.2, 0.3), name="x")


@pytest.fixture
def mine() -> Plan:
    """Of other data too, so that the two may run at once."""
    other = "e" * 64
    tags = {"scd.data_fingerprint": other}
    return stubs.plan((0.4, 0.5), name="x", data_fingerprint=other, tags=tags)


def test_a_name_that_another_home_took_on_the_same_store_is_refused(
    theirs: Plan, mine: Plan, store: Tracking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("SCD_HOME", str(tmp_path / "theirs"))
        first = drive(theirs, store, counted(tmp_path / "log"), stop_after=1)
    (parent,) = store.find("search")
    runs = store.find("trial")
    with pytest.raises(
        ValueError, match=rf"another search \(MLflow run {parent.run_id}"
    ) as refused:
        drive(mine, store, counted(tmp_path / "log"))
    assert "space.alpha was [0.1, 0.2, 0.3], now [0.4, 0.5]" in str(refused.value)
    assert "Choose another --name" in str(refused.value)
    assert store.find("trial") == runs
    store.create(
        "search", mine.name, {**mine.tags, "scd.search": mine.name, "scd.identity": "i"}, {}
    )
    outcomes = drive(theirs, store, counted(tmp_path / "log"))  # whose name it was first
    assert outcomes[0] == first[0]
    assert all(outcome.settled for outcome in outcomes)


def test_of_two_homes_that_took_a_name_at_once_none_touches_the_other_s_trials(
    theirs: Plan, mine: Plan, store: Tracking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(mine, store)  # when the name was free
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("SCD_HOME", str(tmp_path / "theirs"))
        running = Ledger(theirs, store)
        running.open({})
        for trial in theirs.trials:
            running.start(trial)
    ledger.open({})
    ledger.close("KILLED")
    assert {run.status for run in store.find("trial")} == {"RUNNING"}
    monkeypatch.setattr("search.ledger.refuse_another", lambda plan, store: None)
    assert Ledger(mine, store).begun == []
    assert len(Ledger(theirs, store).begun) == 3
