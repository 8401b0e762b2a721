"""Figure 2: which points there are, and that the drawing shows them as what they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from reproduce import figures
from reproduce.compare import build
from scd_core.run_info import RunInfo
from tests.reproduce.test_tables import EMBEDDING

MakeRun = Callable[..., RunInfo]


def measured(make_evaluation: MakeRun) -> list[RunInfo]:
    def shape(alignment: float, uniformity: float) -> dict[str, float]:
        return {"test.geometry.alignment": alignment, "test.geometry.uniformity": uniformity}

    return [
        make_evaluation("a", 71.0, 0, metrics=shape(0.4, -2.0)),
        make_evaluation("b", 73.0, 1, metrics=shape(0.6, -3.0)),
        make_evaluation("c", 31.0, **EMBEDDING, metrics=shape(0.2, -1.0)),
        make_evaluation(
            "d", 31.0, **EMBEDDING | {"pooling": "mean"}, metrics=shape(float("nan"), 0)
        ),
    ]


def test_the_points(make_evaluation: MakeRun) -> None:
    found = figures.points(build("figure2", measured(make_evaluation)))
    columns = ["title", "kind", "alignment", "uniformity", "average"]
    expected = [
        ["SCD-BERT_base", "published", 0.84, -3.83, 74.19],
        ["SCD-BERT_base", "measured", 0.5, -2.5, 72.0],
        ["bert-base-uncased, cls pooling", "measured", 0.2, -1.0, 31.0],
    ]
    assert found[columns].to_numpy().tolist() == expected
    assert found["alignment_sd"].tolist()[1] == pytest.approx(np.sqrt(0.02))


def test_the_drawing(make_evaluation: MakeRun) -> None:
    axes = figures.draw(figures.points(build("figure2", measured(make_evaluation)))).axes[0]
    published, own = (c for c in axes.collections if c.get_label() and "(" in str(c.get_label()))
    assert (published.get_label(), own.get_label()) == ("published (1)", "measured (2)")
    np.testing.assert_allclose(published.get_offsets(), [[-3.83, 0.84]])
    np.testing.assert_allclose(own.get_offsets(), [[-2.5, 0.5], [-1.0, 0.2]])
    np.testing.assert_allclose(own.get_array(), [72.0, 31.0])
    assert published.get_clim() == own.get_clim()
    assert not np.array_equal(published.get_paths()[0].vertices, own.get_paths()[0].vertices)


def test_without_a_store_only_the_published_point_is_drawn(
    tmp_path: Path, own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert figures.run(["--output", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "figure2.png").stat().st_size > 1000
    assert "measured (0)" in (tmp_path / "out" / "figure2.svg").read_text(encoding="utf-8")
    assert not own_home.exists()
