"""Whose a search's name is: what is written down of it, and who is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import stubs
from stubs import counted, drive

from scd_core.tracking import Tracking
from search.claim import described_in, refuse_another, write_description


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
        refuse_another(plan)
    path.unlink()
    (outcome,) = drive(plan, store, counted(tmp_path / "log"))
    assert outcome.settled
    assert (tmp_path / "log").read_text().split() == ["0.1"]
