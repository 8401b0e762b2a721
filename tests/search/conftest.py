"""The store that searches are tracked in."""

from __future__ import annotations

from pathlib import Path

import pytest

from scd_core.tracking import Tracking


@pytest.fixture
def store(ready_home: Path) -> Tracking:
    """A new MLflow store in the test's own home."""
    return Tracking()
