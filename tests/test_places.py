"""Addresses of stores: shown without password, and the same from every folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from scd_core import cli, places


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://u:p@host:5000/a", "http://host:5000/a"),
        ("http://u:p@ss@host", "http://host"),
        ("https://token@host no server", "https://host no server"),
        ("from http://u:p@ss@a/x to http://v:@@b", "from http://a/x to http://b"),
        ("http://host:5000/a@b of me@work", "http://host:5000/a@b of me@work"),
        ("sqlite:////home/me@work/mlflow.db", "sqlite:////home/me@work/mlflow.db"),
    ],
)
def test_no_part_of_a_password_is_shown(text: str, shown: str) -> None:
    assert places.without_password(text) == shown


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("sqlite:///rel.db", "sqlite:///{folder}/rel.db"),
        ("sqlite:///../rel.db?timeout=9", "sqlite:///{above}/rel.db?timeout=9"),
        ("sqlite:////some/where.db?timeout=9", "sqlite:////some/where.db?timeout=9"),
        ("http://host:5000", "http://host:5000"),
        ("postgresql://u:p@host/db", "postgresql://u:p@host/db"),
    ],
)
def test_a_command_and_its_workers_use_one_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, expected: str
) -> None:
    """Also where these work in another folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    absolute = expected.format(folder=tmp_path.resolve(), above=tmp_path.resolve().parent)
    assert places.tracking_uri() == absolute

    def command(arguments: Sequence[str]) -> int:
        (tmp_path / "elsewhere").mkdir()
        os.chdir(tmp_path / "elsewhere")
        assert places.tracking_uri() == absolute
        return 7

    with pytest.raises(SystemExit) as ended:
        cli.main(command)
    assert ended.value.code == 7
