"""One Ray for all tests of the search, and an MLflow store whose schema is made only once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
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


@pytest.fixture(scope="session")
def shared_ray() -> Iterator[None]:
    """Two CPUs and a logical GPU of Ray, started once."""
    import search.cluster as cluster

    cluster.start(cpus=2, gpus=1)
    yield
    cluster.ray.shutdown()
