"""Imports go one way, and only one module speaks to MLflow."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
FORBIDDEN = {
    "scd_core": {"search", "reproduce", "ray", "optuna"},
    "search": {"reproduce"},
    "reproduce": set[str](),
}


def imported(path: Path) -> set[str]:
    """Top-level names of the modules that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("package", FORBIDDEN)
def test_imports_go_one_way(package: str) -> None:
    files = sorted((CHECKOUT / package).rglob("*.py"))
    assert files
    wrong = {str(f): imported(f) & FORBIDDEN[package] for f in files}
    assert not any(wrong.values()), wrong


def test_only_tracking_and_its_client_import_mlflow() -> None:
    files = [f for package in FORBIDDEN for f in (CHECKOUT / package).rglob("*.py")]
    users = [f.relative_to(CHECKOUT).as_posix() for f in files if "mlflow" in imported(f)]
    assert sorted(users) == ["scd_core/mlflow_client.py", "scd_core/tracking.py"]
