"""Tasks by name, one call of the encoder for all, averages of whole groups only."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from scd_core.data import DataError
from scd_core.evaluation import sts
from scd_core.evaluation.labelled import TRANSFER
from scd_core.evaluation.pairs import Pairs
from scd_core.evaluation.suite import GROUPS, Suite, load_suite, measure
from scd_core.evaluation.tasks import STS_TEST
from tests.evaluation.test_transfer import _data as labelled

NAMES = GROUPS["sts"]


def hashed(texts: Sequence[str]) -> np.ndarray:
    """Different, repeatable vectors for different sentences."""
    rows = [np.random.default_rng(list(text.encode())).normal(size=8) for text in texts]
    return np.array(rows, dtype=np.float32)


def toy_pairs(name: str, damage: tuple[str, ...] = ()) -> Pairs:
    first, second = ([f"{name} {side}{i}" for i in range(9)] for side in "ab")
    return Pairs(name, "test", first, second, np.arange(9.0) % 6, 9, damage)


def toy(*names: str, damage: tuple[str, ...] = ()) -> Suite:
    pairs = [toy_pairs(name, damage) for name in names if name in NAMES]
    data = [labelled(name, 90) for name in names if name not in NAMES]
    return Suite(names, tuple(pairs), tuple(data))


@pytest.mark.shared
def test_names_and_groups(data_dir: Path) -> None:
    suite = load_suite(["mrpc", "sickr-dev", "sts", "stsb"], data_dir)
    assert suite.names == (*NAMES, "sickr-dev", "mrpc")
    assert [p.name for p in suite.pairs] == [*NAMES, "sickr"]
    assert [p.split for p in suite.pairs] == [*["test"] * 7, "dev"]
    assert [d.name for d in suite.transfer] == ["mrpc"]
    everything = load_suite(["sts", "transfer"], data_dir)
    assert everything.names == (*NAMES, *GROUPS["transfer"])
    assert [d.name for d in everything.transfer] == list(GROUPS["transfer"])


@pytest.mark.parametrize("names", [["stsB"], ["sts", "mr2"], []])
def test_an_unknown_name_is_answered_with_those_there_are(names: list[str]) -> None:
    with pytest.raises(ValueError, match=r"--tasks .*sts, transfer, sts-dev, sample.*sickr-dev"):
        load_suite(names, None)


def test_all_missing_files_of_all_tasks_in_one_error(tmp_path: Path) -> None:
    (tmp_path / "senteval").mkdir()
    with pytest.raises(DataError) as caught:
        load_suite(["sts", "transfer"], tmp_path)
    files = [path for task in STS_TEST for path in task.paths]
    files += [file.path for task in TRANSFER for file in task.files]
    assert all(f"\n  {path}" in str(caught.value) for path in files)


def test_one_call_gives_what_single_ones_would() -> None:
    calls = []

    def encode(texts: Sequence[str]) -> np.ndarray:
        calls.append(len(texts))
        return hashed(texts)

    suite, started = toy("sts12", "stsb", "cr", "mrpc"), list[str]()
    found = measure(suite, encode, "convex", starting=started.append)
    assert calls == [len(set(suite.texts))]
    assert started == ["cr", "mrpc"]
    assert [one.score.task for one in found.results] == ["sts12", "stsb", "cr", "mrpc"]
    alone = sts.score_pairs(suite.pairs[1], hashed)
    assert found.results[1].score == alone
    assert list(found.geometry) == ["test"]
    metrics = found.metrics()
    assert metrics["test.stsb.spearman_all"] == alone.value
    assert {"test.cr.accuracy_convex", "dev.cr.accuracy_convex", "test.mrpc.f1_convex"} < set(
        metrics
    )
    assert "test.geometry.uniformity" in metrics
    for one in found.results:
        assert one.items is not None
        once = one.items.scores(np.ones((1, one.items.count)))[0]
        assert once == pytest.approx(one.score.value, abs=0.01)


def test_only_whole_groups_have_an_average() -> None:
    part = measure(toy("sts12", "cr"), hashed, "convex")
    assert part.averages == {}
    whole = measure(toy(*NAMES, *GROUPS["transfer"]), hashed, "convex")
    values = [one.score.value for one in whole.results]
    assert None not in values
    assert (
        whole.averages
        == {
            "test.average": pytest.approx(np.mean(values[:7])),  # type: ignore[arg-type]
            "test.average_convex": pytest.approx(np.mean(values[7:])),  # type: ignore[arg-type]
        }
    )


def test_an_undefined_score_has_no_items_and_no_average() -> None:
    def encode(texts: Sequence[str]) -> np.ndarray:
        vectors = hashed(texts)
        vectors[list(texts).index("sts13 a0")] = np.nan
        return vectors

    found = measure(toy(*NAMES), encode)
    assert [one.items is None for one in found.results] == [n == "sts13" for n in NAMES]
    assert found.averages == {"test.average": None}


def test_damage_marks_scores_and_average() -> None:
    suite = toy(*NAMES, damage=("x: found 1 rows",))
    assert suite.damage == ["x: found 1 rows"] * 7
    metrics = measure(suite, hashed).metrics()
    assert {name for name in metrics if "geometry" not in name} == {
        *(f"test.{name}.spearman_all_damaged" for name in NAMES),
        "test.average_damaged",
    }


def test_protocols_tell_data_classifier_seed_and_cut_apart() -> None:
    suite = toy("sts12", "cr")
    base = suite.protocols("convex", 1111, None)
    assert set(base) == {"sts", "transfer"}
    assert suite.protocols("convex", 1, None)["transfer"] != base["transfer"]
    assert suite.protocols("convex", 1, None)["sts"] == base["sts"]
    assert suite.protocols("senteval-default", 1111, None)["transfer"] != base["transfer"]
    assert suite.protocols("convex", 1111, 32) == {k: f"{v}-cut32" for k, v in base.items()}
    assert toy("sts13", "cr").protocols("convex", 1111, None)["sts"] != base["sts"]


@pytest.mark.shared
def test_a_cut_similarity_file_stops_or_is_marked(data_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(data_dir / "senteval" / "STS", tmp_path / "senteval" / "STS")
    path = tmp_path / "senteval" / "STS" / "STSBenchmark" / "sts-test.csv"
    path.chmod(0o644)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:900]))
    with pytest.raises(DataError, match=r"sts-test\.csv has 900 lines, expected 1379.*--allow-dam"):
        load_suite(["stsb"], tmp_path)
    suite = load_suite(["stsb"], tmp_path, allow_damaged=True)
    (one,) = measure(suite, hashed).results
    assert one.score.text.endswith("(damaged data)")
    assert suite.protocols("convex", 0, None) != load_suite(["stsb"], data_dir).protocols(
        "convex", 0, None
    )
