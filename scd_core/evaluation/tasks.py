"""The STS tasks of the paper, declared as data, and the sentence pairs they consist of.

STS12 to STS16 are the files of a year pooled; STS13 is without its SMT part, which its licence
keeps out of public copies. Lines with a blank score, most of STS15's and STS16's, were never
annotated and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scd_core.data import DataError, require_files, senteval_dir
from scd_core.evaluation.pairs import PairFile, Pairs, read_files, read_own_pairs

__all__ = [
    "STS_DEV",
    "STS_TEST",
    "Pairs",
    "StsTask",
    "load_dev",
    "load_sample_test",
    "read_task",
    "require_tasks",
]

SAMPLE = Path(__file__).resolve().parents[1] / "sample"


@dataclass(frozen=True)
class StsTask:
    """One column of Table 1 or one dev set: what it is called, which files it is, who made it."""

    name: str
    """As in metric names, e.g. "stsb"."""
    title: str
    """As in the paper's Table 1, e.g. "STS-B"."""
    split: str
    """"dev" or "test"."""
    files: tuple[PairFile, ...]
    citation: str

    @property
    def lines(self) -> int:
        """Lines of all files, with and without a score."""
        return sum(file.lines for file in self.files)

    @property
    def pairs(self) -> int:
        """Scored pairs of all files: those the correlation is over."""
        return sum(file.pairs for file in self.files)

    @property
    def paths(self) -> list[str]:
        """Every file that must be there, below ``senteval/``."""
        return [path for file in self.files for path in (file.path, file.scores) if path]


def _year(year: int, counts: dict[str, tuple[int, int]]) -> tuple[PairFile, ...]:
    folder = f"STS/STS{year}-en-test"
    return tuple(
        PairFile(
            f"{folder}/STS.input.{part}.txt",
            lines,
            pairs,
            columns=(0, 1, 0),
            scores=f"{folder}/STS.gs.{part}.txt",
        )
        for part, (lines, pairs) in counts.items()
    )


def _stsb(file: str, pairs: int) -> tuple[PairFile, ...]:
    return (PairFile(f"STS/STSBenchmark/{file}", pairs, pairs, columns=(5, 6, 4)),)


def _sick(file: str, pairs: int) -> tuple[PairFile, ...]:
    return (PairFile(f"SICK/{file}", pairs, pairs, columns=(1, 2, 3), header=True),)


_CER_2017 = (
    "Cer et al. (2017), SemEval-2017 Task 1: Semantic Textual Similarity Multilingual and "
    "Crosslingual Focused Evaluation"
)
_MARELLI_2014 = (
    "Marelli et al. (2014), A SICK cure for the evaluation of compositional distributional "
    "semantic models"
)

STS_TEST: tuple[StsTask, ...] = (
    StsTask(
        "sts12",
        "STS12",
        "test",
        _year(
            12,
            {
                "MSRpar": (750, 750),
                "MSRvid": (750, 750),
                "SMTeuroparl": (459, 459),
                "surprise.OnWN": (750, 750),
                "surprise.SMTnews": (399, 399),
            },
        ),
        "Agirre et al. (2012), SemEval-2012 Task 6: A Pilot on Semantic Textual Similarity",
    ),
    StsTask(
        "sts13",
        "STS13",
        "test",
        _year(13, {"FNWN": (189, 189), "headlines": (750, 750), "OnWN": (561, 561)}),
        "Agirre et al. (2013), *SEM 2013 shared task: Semantic Textual Similarity",
    ),
    StsTask(
        "sts14",
        "STS14",
        "test",
        _year(
            14,
            {
                "deft-forum": (450, 450),
                "deft-news": (300, 300),
                "headlines": (750, 750),
                "images": (750, 750),
                "OnWN": (750, 750),
                "tweet-news": (750, 750),
            },
        ),
        "Agirre et al. (2014), SemEval-2014 Task 10: Multilingual Semantic Textual Similarity",
    ),
    StsTask(
        "sts15",
        "STS15",
        "test",
        _year(
            15,
            {
                "answers-forums": (2000, 375),
                "answers-students": (1500, 750),
                "belief": (2000, 375),
                "headlines": (1500, 750),
                "images": (1500, 750),
            },
        ),
        "Agirre et al. (2015), SemEval-2015 Task 2: Semantic Textual Similarity, English, Spanish "
        "and Pilot on Interpretability",
    ),
    StsTask(
        "sts16",
        "STS16",
        "test",
        _year(
            16,
            {
                "answer-answer": (1572, 254),
                "headlines": (1498, 249),
                "plagiarism": (1271, 230),
                "postediting": (3287, 244),
                "question-question": (1555, 209),
            },
        ),
        "Agirre et al. (2016), SemEval-2016 Task 1: Semantic Textual Similarity, Monolingual and "
        "Cross-Lingual Evaluation",
    ),
    StsTask("stsb", "STS-B", "test", _stsb("sts-test.csv", 1379), _CER_2017),
    StsTask("sickr", "SICK-R", "test", _sick("SICK_test_annotated.txt", 4927), _MARELLI_2014),
)
"""The seven columns of Table 1, in its order."""

STS_DEV: tuple[StsTask, ...] = (
    StsTask("stsb", "STS-B", "dev", _stsb("sts-dev.csv", 1500), _CER_2017),
    StsTask("sickr", "SICK-R", "dev", _sick("SICK_trial.txt", 500), _MARELLI_2014),
)
"""The dev sets that may choose a checkpoint; the first is the primary one."""


def require_tasks(data_dir: Path | None, tasks: Sequence[StsTask]) -> Path:
    """The ``senteval`` folder, once every file of ``tasks`` is known to be in it.

    A command that will read several sets calls this first with all of them.

    Raises:
        DataError: one error that lists every missing file and how to get it.
    """
    root = senteval_dir(data_dir)
    require_files(root, (path for task in tasks for path in task.paths))
    return root


def load_dev(source: str, data_dir: Path | None) -> list[Pairs]:
    """The dev sets of ``source``; the first is the primary one.

    ``source`` is "sts" (STS-B dev and SICK-R dev), "sample" (the pairs that come with the project,
    whose scores compare with nothing published) or a file for ``read_own_pairs``, named "pairs".

    Raises:
        DataError: files are missing (all are listed), damaged or not as declared.
    """
    if source == "sts":
        root = require_tasks(data_dir, STS_DEV)
        return [read_task(root, task) for task in STS_DEV]
    if source == "sample":
        return [read_own_pairs(SAMPLE / "pairs-dev.tsv", "sample", "dev")]
    path = Path(source).expanduser()
    if not path.is_file():
        raise DataError(
            f"dev = {source!r} is neither 'sts' nor 'sample' nor a file; name a tab-separated file "
            "with two sentences and a score a line"
        )
    return [read_own_pairs(path, "pairs", "dev")]


def load_sample_test() -> list[Pairs]:
    """The test half of the pairs that come with the project; comparable with nothing published."""
    return [read_own_pairs(SAMPLE / "pairs-test.tsv", "sample", "test")]


def read_task(root: Path, task: StsTask, allow_damaged: bool = False) -> Pairs:
    """One declared task from the ``senteval`` folder; see ``read_files`` for what it raises."""
    return read_files(root, task.files, task.name, task.split, allow_damaged)
