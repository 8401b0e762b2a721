"""An MLflow store whose schema is made only once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from scd_core.cli import quiet_libraries
from scd_core.tracking import Tracking


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that MLflow has set up; its migrations take seconds."""
    quiet_libraries()
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    Tracking(f"sqlite:///{path}").find("trial")
    return path


@pytest.fixture
def store(own_home: Path, empty_store: Path) -> Tracking:
    """A new MLflow store in the test's own home."""
    own_home.mkdir(parents=True)
    shutil.copy(empty_store, own_home / "mlflow.db")
    return Tracking()
