"""Which runs a table needs, which of them are there, and what is run of the rest."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from reproduce import jobs, needs, pool, runs
from reproduce.fidelity import variants
from reproduce.jobs import Job
from scd_core import places
from scd_core.device import default_device
from scd_core.evaluation.suite import Suite, load_suite
from scd_core.evaluation.tasks import load_sample_test
from scd_core.evaluation_run import protocol_tags
from scd_core.forecast import Cost
from scd_core.inputs import prepare
from scd_core.models import model_fingerprint, model_folder
from scd_core.recipe import from_toml
from scd_core.tracking import Tracking
from search.interrupt import Interrupted
from search.machine import Share
from tests.conftest import WORDS

pytestmark = pytest.mark.usefixtures("ready_home")

SAMPLE = Suite(("sample",), tuple(load_sample_test()), ())
PROTOCOL = SAMPLE.protocols("senteval-default", 1111, None)["sts"]
COST = Cost(1.0, 1.0, 1.0, 1, 1, ())
Ran = list[str]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """The commands that were run; each leaves a finished run in MLflow and computes nothing."""
    calls: Ran = []

    def train(arguments: Sequence[str]) -> int:
        inputs = prepare(from_toml(Path(arguments[1])))
        calls.append(f"train {inputs.recipe.method} {inputs.recipe.seed}")
        store, folder = Tracking(), places.runs() / inputs.identity.key
        (folder / "model").mkdir(parents=True)
        tags = inputs.tags() | {"scd.protocol": PROTOCOL, "scd.folder": str(folder)}
        store.finish(store.start("train", "stub", tags, {}))
        return 0

    def evaluate(arguments: Sequence[str]) -> int:
        calls.append("evaluate " + " ".join(arguments[1:5]))
        store = Tracking()
        if arguments[1] == "--pooling":
            fingerprint = model_fingerprint(model_folder(arguments[0]))
            tags = {
                "scd.method": "embedding",
                "scd.model": arguments[0],
                "scd.pooling": arguments[2],
                "scd.model_fingerprint": fingerprint,
            }
        else:
            pooling = store.get(arguments[0]).tags["scd.pooling"]
            tags = {"scd.trained_by": arguments[0], "scd.pooling": pooling}
        group = arguments[arguments.index("--tasks") + 1]
        suite = SAMPLE if group == "sts" else load_suite((group,), Path(arguments[-1]))
        protocols = suite.protocols("senteval-default", 1111, None)
        store.finish(store.start("evaluation", "stub", tags | protocol_tags(protocols), {}))
        return 0

    monkeypatch.setattr(jobs.train, "run", train)
    monkeypatch.setattr(jobs.evaluate, "run", evaluate)
    real = load_suite

    def suite(names: Sequence[str], data_dir: Path | None) -> Suite:
        return SAMPLE if names == ("sts",) else real(names, data_dir)

    for module in (needs, jobs):
        monkeypatch.setattr(module, "load_suite", suite)
    monkeypatch.setattr(runs, "run_all", in_this_process)
    monkeypatch.setattr(runs.forecast, "measure", lambda inputs, threads: COST)
    return calls


def in_this_process(
    missing: Sequence[Job],
    share: Share,
    address: str | None,
    ended: Callable[[Job, str], None],
    tick: Callable[[int], None],
) -> None:
    """In place of workers, one job after another."""
    for job in missing:
        why = ""
        try:
            pool.work(job, 1, "the command")
        except ValueError as error:
            why = str(error)
        ended(job, why)


@pytest.fixture
def flags(tiny_models: dict[str, Path], data_dir: Path, tmp_path: Path) -> list[str]:
    draw = np.random.default_rng(0)
    corpus = tmp_path / "corpus.txt"
    lines = [" ".join(draw.choice(WORDS, 6)) for _ in range(600)]
    corpus.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [
        *("--backbone", str(tiny_models["bert"]), "--data-dir", str(data_dir)),
        *("--corpus", str(corpus), "--table", "1"),
    ]


@pytest.mark.shared
def test_only_what_is_missing_is_run(
    ran: Ran, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = [*flags, "--methods", "embedding", "scd", "simcse", "glove"]
    assert runs.run([*chosen, "--seeds", "0"]) == 0
    first = [
        "evaluate --pooling cls --tasks sts",
        "evaluate --pooling first_last --tasks sts",
        "train simcse 0",
        "train scd 0",
    ]
    assert ran == first
    printed = capsys.readouterr().out
    assert "4 encoders: 0 are measured, 4 to do" in printed
    assert "not measured here: table 1: GloVe embeddings (avg.), for want of --glove" in printed
    assert "simcse, fp32: 1.00 s a step" in printed or "simcse, bf16: 1.00 s a step" in printed
    assert runs.run([*chosen, "--seeds", "0"]) == 0
    assert ran == first
    assert "4 encoders: 4 are measured, 0 to do" in capsys.readouterr().out
    assert runs.run([*chosen, "--seeds", "0", "1"]) == 0
    assert ran[4:] == ["train simcse 1", "train scd 1"]


@pytest.mark.shared
def test_a_dry_run_computes_and_writes_nothing(
    ran: Ran, flags: list[str], nli: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ["--methods", "embedding", "flow", "--nli", str(nli), "--dry-run"]
    assert runs.run([*flags, *chosen]) == 0
    assert ran == []
    assert Tracking().find() == []
    assert "5 encoders: 0 are measured, 5 to do" in capsys.readouterr().out


@pytest.mark.shared
def test_the_forecast_counts_the_sentences_of_the_test_sets(
    ran: Ran,
    flags: list[str],
    data_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A dev evaluation of an hour and nothing else: one, then as many hours as test sets are larger
    than dev sets; two seeds, of which as many run at once as the plan says."""
    hour = Cost(0.0, 3600.0, 0.0, 1, 1, ())
    monkeypatch.setattr(runs.forecast, "measure", lambda inputs, threads: hour)
    chosen = [*flags, "--methods", "scd", "--seeds", "0", "1", "--concurrent", "1"]
    assert runs.run([*chosen, "--dry-run"]) == 0
    test, dev = (len(set(s.texts)) for s in (SAMPLE, load_suite(("sts-dev",), data_dir)))
    printed = capsys.readouterr().out
    assert f"about {1 + test / dev:.2f} h each, 2 of them" in printed
    assert f"forecast: about {2 * (1 + test / dev):.2f} h" in printed


@pytest.mark.shared
def test_an_interruption_stops_and_the_rest_is_kept(
    ran: Ran, flags: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = [*flags, "--methods", "scd", "simcse", "--seeds", "0"]

    def stopped(missing: Sequence[Job], *others: object) -> None:
        pool.work(missing[0], 1, "the command")
        raise Interrupted(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(runs, "run_all", stopped)
        assert runs.run(chosen) == 143
    assert "the same command goes on" in capsys.readouterr().err
    assert ran == ["train simcse 0"]
    assert runs.run(chosen) == 0
    assert ran == ["train simcse 0", "train scd 0"]


@pytest.mark.shared
def test_one_that_fails_stops_no_other(
    ran: Ran, flags: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stub = jobs.train.run

    def diverges(arguments: Sequence[str]) -> int:
        if from_toml(Path(arguments[1])).method == "simcse":
            raise ValueError("the loss is no number at step 3")
        return stub(arguments)

    monkeypatch.setattr(jobs.train, "run", diverges)
    assert runs.run([*flags, "--methods", "scd", "simcse", "--seeds", "0"]) == 1
    assert ran == ["train scd 0"]
    printed = capsys.readouterr()
    assert "failed: the loss is no number at step 3" in printed.err
    assert "1 of 2 failed" in printed.out


@pytest.mark.shared
def test_a_training_of_several_tables_is_one_job(
    ran: Ran, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Two workers must not train it at once. In fp16 nothing is trained on a CPU."""
    without_gpu = default_device().type == "cpu"
    chosen = [*flags[:-1], "1", "2", "3", "fidelity", "--methods", "scd", "--seeds", "0"]
    assert runs.run(chosen) == 0
    trained = [call for call in ran if call.startswith("train")]
    in_fp16 = [v for v in variants("scd-bert-paper") if "optim.precision" in v.settings]
    assert len(trained) == 1 + 2 + len(variants("scd-bert-paper")) - len(in_fp16) * without_gpu
    left_out = capsys.readouterr().out.count("for want of a GPU")
    assert left_out == len(in_fp16) * without_gpu == 2 * without_gpu
    assert sum(call.startswith("evaluate --tasks transfer") for call in ran) == 1
    capsys.readouterr()
    assert runs.run(chosen) == 0
    assert "0 to do" in capsys.readouterr().out
    assert [call for call in ran if call.startswith("train")] == trained


@pytest.mark.shared
def test_table_2_has_skip_thought_on_this_encoder(ran: Ran, flags: list[str]) -> None:
    chosen = [*flags[:-1], "2", "--methods", "skip-thought", "is", "--seeds", "0"]
    assert runs.run(chosen) == 0
    trainings = [call for call in ran if call.startswith("train")]
    assert trainings == ["train skip-thought 0", "train is 0"]
    assert sum(call.startswith("evaluate --tasks transfer") for call in ran) == 2


@pytest.mark.shared
def test_figure_2_has_encoders_that_table_1_has_not(
    ran: Ran, flags: list[str], nli: Path, tmp_path: Path, tiny_models: dict[str, Path]
) -> None:
    """An encoder that states its pooling, and triplets."""
    model = shutil.copytree(tiny_models["bert"], tmp_path / "sbert")
    (model / "1_Pooling").mkdir()
    stated = json.dumps({"pooling_mode_mean_tokens": True})
    (model / "1_Pooling" / "config.json").write_text(stated, encoding="utf-8")
    chosen = ["--backbone", str(model), *flags[2:-1], "figure2", "--nli", str(nli)]
    chosen += ["--seeds", "0", "--methods", "embedding", "flow", "simcse-supervised"]
    assert runs.run(chosen) == 0
    assert ran == [
        "evaluate --pooling cls --tasks sts",
        "evaluate --pooling first_last --tasks sts",
        "evaluate --pooling mean --tasks sts",
        "train simcse-supervised 0",
    ]
    flows = Tracking().find("evaluation", scd__method="flow")
    made = [(run.tags["scd.pooling"], run.params["method.fit.name"][:6]) for run in flows]
    poolings = ("first_last", "mean")
    assert sorted(made) == [(p, on) for p in poolings for on in ("nli.cs", "target")]


def test_workers_elsewhere_need_a_server(ran: Ran) -> None:
    with pytest.raises(ValueError, match="MLFLOW_TRACKING_URI"):
        runs.run(["--backbone", "bundled", "--address", "auto"])


@pytest.mark.shared
def test_flow_and_whitening_are_fitted_on_nli_and_for_figure_2_on_the_test_sets(
    ran: Ran, flags: list[str], nli: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = [*flags, "--methods", "flow", "whitening", "--seeds", "0"]
    assert runs.run(chosen) == 0  # without triplets
    assert (
        "not measured here: table 1: BERT_base-flow, for want of --nli" in capsys.readouterr().out
    )
    assert not Tracking().find()
    chosen += ["--nli", str(nli)]
    assert runs.run(chosen) == runs.run(chosen) == 0
    fitted = Tracking().find("evaluation")
    assert sorted(run.tags["scd.method"] for run in fitted) == ["flow", "whitening"]
    assert {run.params["data.corpus"] for run in fitted} == {str(nli)}
    assert {run.params["method.fit.name"] for run in fitted} == {"nli.csv"}
    chosen[chosen.index("--table") + 1] = "figure2"
    assert runs.run(chosen) == 0
    on = [run.params["data.corpus"].partition(" (")[0] for run in Tracking().find("evaluation")]
    assert sorted(on) == [str(nli)] * 2 + ["target"] * 2
    assert not ran


@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        (["--methods", "ct-bert"], r"--methods \['ct-bert'\] .* choose from .*simcse"),
        (["--table", "2", "--methods", "ct"], r"--table 2 has no row of --methods ct"),
    ],
)
@pytest.mark.shared
def test_a_choice_that_holds_nothing_is_refused(
    ran: Ran, flags: list[str], chosen: list[str], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        runs.run([*flags, *chosen])
    assert not ran


@pytest.mark.shared
def test_rows_are_those_of_the_family(
    ran: Ran, flags: list[str], tiny_models: dict[str, Path]
) -> None:
    roberta = ["--backbone", str(tiny_models["roberta"]), *flags[2:]]
    assert runs.run([*roberta, "--methods", "scd", "ct", "--seeds", "0"]) == 0
    assert ran == ["train scd 0"]  # the paper has no CT-RoBERTa
    (run,) = Tracking().find("train")
    assert run.tags["scd.model"] == str(tiny_models["roberta"])


@pytest.mark.shared
def test_a_run_of_another_protocol_does_not_count(ran: Ran, flags: list[str]) -> None:
    chosen = [*flags, "--methods", "scd", "--seeds", "0"]
    assert runs.run(chosen) == 0
    (run,) = Tracking().find("train")
    Tracking().tag(run.run_id, {"scd.protocol": "other"})
    assert runs.run(chosen) == 0  # trained already: only evaluated
    assert runs.run(chosen) == 0
    expected = ["train scd 0", "evaluate --tasks sts --track --data-dir"]
    assert ran == expected
    for one in Tracking().find():
        Tracking().tag(one.run_id, {"scd.protocol": "other"})
    shutil.rmtree(run.tags["scd.folder"])
    assert runs.run(chosen) == 0  # there is nothing to evaluate any more
    assert ran == [*expected, "train scd 0"]


@pytest.mark.shared
def test_scores_of_another_pooling_or_name_are_not_the_rows(ran: Ran, flags: list[str]) -> None:
    chosen = [*flags, "--methods", "scd", "embedding", "--seeds", "0"]
    assert runs.run(chosen) == 0
    first = list(ran)
    store = Tracking()
    (training,) = store.find("train")
    # the training has lost its scores, and was evaluated with another pooling
    store.tag(training.run_id, {"scd.protocol": "other"})
    tags = {"scd.trained_by": training.run_id, "scd.pooling": "mean", "scd.protocol": PROTOCOL}
    store.finish(store.start("evaluation", "mean", tags, {}))
    # the same weights have been evaluated by another name
    (cls,) = store.find("evaluation", scd__method="embedding", scd__pooling="cls")
    store.tag(cls.run_id, {"scd.model": "/elsewhere/copy"})
    assert runs.run(chosen) == 0
    assert ran[len(first) :] == [
        "evaluate --pooling cls --tasks sts",
        "evaluate --tasks sts --track --data-dir",
    ]


@pytest.mark.shared
def test_a_training_whose_model_is_lost_is_forecast_and_trained(
    ran: Ran, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = [*flags, "--methods", "scd", "--seeds", "0"]
    assert runs.run(chosen) == 0
    (training,) = Tracking().find("train")
    shutil.rmtree(training.tags["scd.folder"])
    both = [*chosen[:-4], "2", *chosen[-4:]]
    capsys.readouterr()
    assert runs.run([*both, "--dry-run"]) == 0
    assert "forecast: about" in capsys.readouterr().out
    assert runs.run(both) == 0
    assert [call.split(" --")[0] for call in ran] == ["train scd 0", "train scd 0", "evaluate"]


def test_the_sample_suite_is_what_load_suite_gives() -> None:
    assert load_suite(("sample",), None).protocols("senteval-default", 1111, None) == {
        "sts": PROTOCOL
    }


def test_seeds_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="--seeds"):
        runs.run(["--seeds", "-1"])
