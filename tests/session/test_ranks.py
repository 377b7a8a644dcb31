"""Several ranks, each a real process: what they train, what is counted, and that none of them is left."""

from __future__ import annotations

import html
import math
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import rank_server
import torch
import written_remedies
from meeting_places import meeting_places
from waiting import PATIENCE, until

from gradstudio.core.experiment import KNOBS, Experiment
from gradstudio.core.knobs import KnobError
from gradstudio.core.presets import Preset
from gradstudio.core.provenance import ProvenanceUnknown
from gradstudio.core.ranks_allowed import RankFailure
from gradstudio.core.row import Row
from gradstudio.core.unknown import is_known
from gradstudio.engine.ranks import crew
from gradstudio.engine.ranks.ranked_trainer import RankedTrainer
from gradstudio.engine.trainer import Trainer
from gradstudio.program import script
from gradstudio.session.files import report
from gradstudio.session.files.output import write
from gradstudio.session.files.report.blocks import Prose, Table
from gradstudio.session.files.report.ranks_section import ranks
from gradstudio.session.files.summary import summarize
from gradstudio.session.record.branches import fork
from gradstudio.session.record.ranked_findings import as_shown
from gradstudio.session.record.run import Run
from gradstudio.session.record.twins import twin_of
from gradstudio.session.running.investigation import sentence
from gradstudio.session.running.worker import Worker

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="ranks are begun by a server, which Windows lacks")

STEPS = 24
FEW = 8  # where nothing comes later
SMALL = Experiment().with_values(
    {
        "run.steps": STEPS, "run.device": "cpu", "model.width": 12, "problem.batch_size": 16, "accumulation.steps": 4,
        "clipping.kind": "norm", "clipping.max_norm": 0.3, "distributed.ranks": 2,
    }
)  # fmt: skip
ENTRIES = 64 * 12 + 12 + 12 * 12 + 12 + 12 * 10 + 10  # of the gradient

Rows = list[Row]


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    with rank_server.shared():
        yield


def trained(*assignments: str, steps: int = STEPS) -> Rows:
    """The rows of an experiment on ranks."""
    trainer = RankedTrainer(SMALL.with_texts(list(assignments)))
    try:
        return [row for _ in range(steps) for row in trainer.advance()]
    finally:
        trainer.close()


def joined(*assignments: str, steps: int = STEPS) -> Rows:
    """The rows of the same in one process, with the joined batch."""
    found = Trainer(SMALL.with_texts([*assignments, "distributed.ranks=1"])).steps()
    return [next(found) for _ in range(steps)]


@pytest.fixture(scope="module")
def right() -> Rows:
    return trained()


def assert_equal(rows: Rows, others: Rows) -> None:
    """Equal but for rounding."""
    for name in ("loss", "grad_norm", "clipped_norm", "weight_norm", "test_accuracy", "update_ratio"):
        one, other = ([getattr(row, name) for row in each] for each in (rows, others))
        assert one == pytest.approx(other, rel=1e-6, nan_ok=True), name


def test_equals_one_process_with_the_joined_batch(right: Rows) -> None:
    assert_equal(right, joined())
    assert {(row.all_reduces, row.reduced_bytes) for row in right} == {(1, 4 * ENTRIES)}
    drifts = [row.rank_drift for row in right]
    assert [drift for drift in drifts if is_known(drift)] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        (["model.norm=batch", "distributed.sync_batch_norm=true"], "distributed.sync_batch_norm=false"),
        (["distributed.uneven_every=2", "distributed.weigh_shares=true"], "distributed.weigh_shares=false"),
    ],
)
def test_what_makes_up_for_shares(given: list[str], wrong: str) -> None:
    whole = joined(*given, steps=FEW)
    assert_equal(trained(*given, steps=FEW), whole)
    assert abs(trained(*given, wrong, steps=2)[1].grad_norm / whole[1].grad_norm - 1) > 0.01


def test_a_rank_without_batches_gives_zeros_where_the_ranks_join(right: Rows) -> None:
    rows = trained("distributed.runs_out_at=2", "distributed.join=true", "clipping.kind=none", steps=4)
    assert [row.loss for row in rows[:2]] == [row.loss for row in trained("clipping.kind=none", steps=2)]
    assert [row.ranks[1, 0] > 0 for row in rows] == [True, True, False, False]
    assert rows[2].grad_norm == pytest.approx(rows[2].ranks[0, 0] / 2, rel=1e-6), "still divided by 2"
    assert {(row.all_reduces, row.reduced_bytes) for row in rows} == {(1, 4 * ENTRIES)}
    assert [row.ranks[:, 5].tolist() for row in rows] == [[left, left] for left in (STEPS - 1, 22, 21, 20)]


def test_an_order_of_its_own_and_what_is_unused(right: Rows) -> None:
    [first] = trained("distributed.own_order=true", steps=1)
    assert first.ranks[0, 0] == right[0].ranks[0, 0] and first.ranks[1, 0] != right[0].ranks[1, 0]
    found = trained("distributed.unused_parameter=true", "distributed.find_unused=true", steps=2)
    assert found[1].loss == right[1].loss


def test_no_sync_saves_calls_and_changes_no_number(right: Rows) -> None:
    for case in ("distributed.no_sync=false", "distributed.forward_outside_no_sync=true"):
        rows = trained(case, steps=FEW)
        assert {(row.all_reduces, row.reduced_bytes) for row in rows} == {(4, 16 * ENTRIES)}
        assert_equal(rows, right[:FEW])
        for row, other in zip(rows, right[:FEW], strict=True):
            assert row.ranks[:, 0] == pytest.approx(other.ranks[:, 0], rel=1e-4), "what is a rank's own stays its own"


def test_what_the_mistakes_do(right: Rows) -> None:
    never = trained("distributed.never_synced=true", steps=21)
    assert {row.all_reduces for row in never} == {0}
    assert never[0].rank_drift == 0 and never[20].rank_drift > 1e-3
    doubled = trained("distributed.divide_by_world_size=true", steps=1)
    assert doubled[0].grad_norm == pytest.approx(right[0].grad_norm / 2, rel=1e-6)
    same = trained("distributed.same_data=true", steps=1)
    assert same[0].ranks is not None and same[0].ranks[0, 0] == same[0].ranks[1, 0] == pytest.approx(same[0].grad_norm)


def test_a_nan_is_the_own_of_the_rank_that_has_it() -> None:
    rows = trained("problem.nan_every=3", "distributed.nan_rank=1", "distributed.no_sync=false", steps=4)
    norms = [row.ranks[:, 0] for row in rows if row.ranks is not None]
    assert math.isfinite(norms[3][0]) and math.isnan(norms[3][1]) and math.isnan(rows[3].loss)
    assert np.isfinite(norms[:3]).all()


def test_live_knobs_reach_every_rank_and_a_refused_one_none(right: Rows) -> None:
    trainer = RankedTrainer(SMALL)
    try:
        rows = [row for _ in range(10) for row in trainer.advance()]
        with pytest.raises(KnobError, match=r"optimizer\.kind acts on restart"):
            trainer.change("optimizer.kind", "adam")
        with pytest.raises(KnobError, match="not allowed"):
            trainer.change("optimizer.lr", -1.0)
        trainer.change("accumulation.steps", 2)
        trainer.change("optimizer.lr", 0.01)
        trainer.requests.compare = True
        rows += [row for _ in range(11) for row in trainer.advance()]
    finally:
        trainer.close()
    assert rows[9].loss == right[9].loss and rows[9].lr == 0.1
    assert rows[10].lr == 0.01 and rows[20].rank_drift == 0 and rows[10].joined_problem.startswith("not compared")


# ---- programs for torchrun

# Few, for each costs a second.
CASES = (
    "distributed.no_sync=false problem.nan_every=3 distributed.nan_rank=1",
    "distributed.forward_outside_no_sync=true optimizer.kind=adam",
    "distributed.never_synced=true",
    "distributed.clip_before_all_reduce=true problem.noise=0.1 problem.outlier_every=3",
    "distributed.divide_by_world_size=true model.norm=batch accumulation.steps=1",
    "distributed.same_data=true precision.dtype=bf16 mistakes.drop_last_micro_batches=true",
    "distributed.own_order=true distributed.find_unused=true accumulation.steps=1",
    "distributed.uneven_every=2 distributed.weigh_shares=true distributed.fault_rank=1 distributed.fault_step=9",
    "distributed.sync_batch_norm=true model.norm=batch",
    "distributed.sync_batch_norm=true model.norm=batch precision.dtype=bf16",
    "distributed.clip_shards=true optimizer.kind=adamw",
    "distributed.runs_out_at=2 distributed.join=true model.norm=batch",
    "distributed.runs_out_at=2 distributed.join=true distributed.no_sync=false",
    "distributed.unused_parameter=true accumulation.steps=1 distributed.fault=none",
    "precision.dtype=fp16 precision.init_scale=1e30 run.stop_on_nonfinite=false problem.nan_every=3",
)
if not torch.cuda.is_available():  # where it would print other numbers
    CASES += ("run.device=auto distributed.unused_parameter=true distributed.find_unused=true",)


# Both ranks as copies of one process, which has imported what each of them needs. Where one fails, the other would wait.
BY_TORCHRUN = """import os, runpy, signal, sys
import torch.distributed
torch.compile(abs)  # imports the compiler of torch, as DistributedDataParallel does
helper, *asked = sys.argv[1:]
ranks = []
for rank in range(2):
    ranks.append(os.fork())
    if not ranks[-1]:
        sys.argv = [helper, str(rank), "2", *asked]
        runpy.run_path(helper, run_name="__main__")
        os._exit(0)
for _ in range(2):
    ended, status = os.wait()
    if status:
        for rank in {*ranks} - {ended}:
            os.kill(rank, signal.SIGKILL)
        sys.exit(1)
"""


def test_the_programs_print_the_numbers_of_the_ranks(tmp_path: Path) -> None:
    assert all(
        knob.name in " ".join([*CASES, *SMALL.changed_knobs()])
        for knob in KNOBS.values()
        if knob.section == "distributed"
    )
    programs = []
    for number, case in enumerate(CASES):
        programs.append(tmp_path / f"{number}.py")
        experiment = SMALL.with_texts([*case.split(), "run.steps=5"])
        programs[-1].write_text(script(experiment), encoding="utf-8")
    places = meeting_places(len(CASES))
    asked = [word for place, program in zip(places, programs, strict=True) for word in (str(place.port), str(program))]
    command = [sys.executable, "-c", BY_TORCHRUN, str(Path(__file__).parent / "ranks_by_torchrun.py"), *asked]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    for case, program in zip(CASES, programs, strict=True):
        if "unused_parameter" in case and "find_unused" not in case:
            with pytest.raises(RankFailure, match="failed in step 1: RuntimeError") as failure:
                trained(*case.split(), steps=5)
            _, fault = program.with_suffix(".txt").read_text().splitlines()
            assert fault in str(failure.value)
            continue
        rows, stops = trained(*case.split(), steps=5), "stop_on_nonfinite=false" not in case
        broke = [row.step for row in rows if row.went_nonfinite]
        rows = rows[: broke[0] + 1] if broke and stops else rows
        printed = [line.split() for line in program.with_suffix(".txt").read_text().splitlines()]
        assert [int(step) for step, _, _ in printed] == [row.step for row in rows], case
        for row, (_, loss, norm) in zip(rows, printed, strict=True):
            rel = 1e-5 if "fp16" in case else 1e-6 if "shards" in case else 1e-7
            assert [row.loss, row.grad_norm] == pytest.approx([float(loss), float(norm)], rel=rel, nan_ok=True), case


# ---- runs


def run_of(*assignments: str) -> Run:
    experiment = SMALL.with_texts(list(assignments))
    return Run(Preset(id="p", title="P", experiment=experiment), experiment)


OF_RANKS = {
    "reduced_too_often", "ranks_apart", "nan_on_a_rank", "clip_before_reduction", "ranks_alike", "uneven_shares",
    "clip_without_effect", "rank_ran_out",
}  # fmt: skip
TOLD: list[tuple[list[str], str, str]] = [
    (["distributed.no_sync=false"], "reduced_too_often", f"4 all-reduces, of {4 * 4 * ENTRIES:,} bytes"),
    (["distributed.forward_outside_no_sync=true"], "reduced_too_often", "4 all-reduces"),
    (["distributed.same_data=true"], "ranks_alike", "all 2 ranks had a gradient of the same norm"),
    (["distributed.never_synced=true", "run.steps=41"], "ranks_apart", "every backward pass stood within no_sync()"),
    (["distributed.clip_before_all_reduce=true"], "clip_before_reduction", "the limit is 0.3"),
    (
        ["distributed.clip_shards=true"],
        "clip_without_effect",
        "2 shards that each have the limit have a norm of 0.424",
    ),
    (["distributed.uneven_every=4"], "uneven_shares", "example of rank 1 weighed 3 times"),
    (["problem.nan_every=5", "distributed.nan_rank=1"], "nan_on_a_rank", "At step 5,"),
    (["distributed.runs_out_at=5"], "rank_ran_out", "Step 4 is the last one that rank 1 has a batch for."),
]


@pytest.mark.parametrize(("assignments", "rule", "told"), TOLD)
def test_a_rule_names_what_the_ranks_do_and_each_remedy_ends_it(assignments: list[str], rule: str, told: str) -> None:
    run = run_of(*assignments)
    Worker(run).run()
    assert told.replace(",", "") in run.findings[rule].evidence.replace(",", "")
    assert run.findings.keys() & OF_RANKS == {rule}
    for remedy in as_shown(run.findings[rule], run).remedies:
        healed = run_of(*assignments, remedy)
        Worker(healed).run()
        assert healed.status == "finished" and not healed.findings.keys() & OF_RANKS, remedy


def test_each_remedy_for_ranks_is_tried() -> None:
    written = written_remedies.of_rules()
    names = {remedy.partition("=")[0] for remedies in written.values() for remedy in remedies}
    mended = {knob.partition("=")[0] for assignments, _, _ in TOLD for knob in assignments}
    beside = {"distributed.join", "distributed.weigh_shares"}  # offered beside what mends the same
    assert {name for name in names if name.startswith("distributed.")} == {*mended, *beside} - {
        "problem.nan_every", "distributed.nan_rank", "run.steps",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("assignments", "rank", "ranks", "phase", "told"),
    [
        (
            ["problem.nan_every=5", "distributed.nan_rank=1", "model.norm=batch"], 1, (1,), "data",
            "The first NaN came with the data of step 5 (rank 1, micro-batch 1 of 4): the batch holds 1 value",
        ),
        (
            ["loss.kind=naive_exp", "problem.input_scale=1000"], 0, (0, 1), "loss",
            "The first Inf was born in the loss of step 0 (rank 0, micro-batch 1 of 4), in exp: exp(",
        ),
        (["optimizer.lr=1e6", "clipping.kind=none", "problem.input_scale=1e6"], 0, (0, 1),
         "forward", "(rank 0, "),
        (["optimizer.lr=1e6", "clipping.kind=none", "problem.input_scale=1e5", "loss.weight=1e30"], 0, (),
         "update", "in the update of step 0 (rank 0), in add_: inputs up to "),
    ],
)  # fmt: skip
def test_the_rank_that_brought_a_nan_names_its_operation(
    assignments: list[str], rank: int, ranks: tuple[int, ...], phase: str, told: str
) -> None:
    run = run_of(*assignments)
    Worker(run).run()
    found = run.provenance
    broke = run.first_nonfinite_step
    assert found is not None and broke is not None and told in sentence(found)
    assert (found.rank, found.ranks, found.phase, found.step) == (rank, ranks, phase, broke - (phase == "update"))
    assert ("Ranks 0 and 1 each had one in that step." in sentence(found)) == (len(ranks) > 1)
    summary = summarize(run)
    assert (summary["provenance"]["rank"], summary["provenance"]["ranks"]) == (rank, list(ranks))
    assert html.escape(sentence(found)) in report.content(run, "html")
    named = [each["evidence"] for each in summary["findings"] if each["rule"] == "nan_on_a_rank"]
    assert [text.partition(" On rank 1 it ")[2] for text in named] == (
        [f"came with the data: {found.cause}."] if phase == "data" else []
    )
    assert not multiprocessing.active_children()


def test_a_step_that_no_rank_can_make_again_is_told_in_a_line() -> None:
    run = run_of("problem.nan_every=2", "model.norm=batch", "distributed.sync_batch_norm=true")
    Worker(run).run()
    notices = [event.text for event in run.events if event.kind == "notice"]
    assert run.status == "nonfinite" and run.provenance is None
    assert [text for text in notices if text.startswith("Where the first NaN or Inf was born is unknown: its batch")]


def test_to_make_a_step_again_leaves_no_trace(right: Rows) -> None:
    trainer = RankedTrainer(SMALL)
    try:
        rows = [row for _ in range(5) for row in trainer.advance()]
        with pytest.raises(ProvenanceUnknown, match="stays finite"):
            trainer.explain()
        rows += [row for _ in range(16) for row in trainer.advance()]
    finally:
        trainer.close()
    assert [(row.loss, row.grad_norm, row.weight_norm) for row in rows] == [
        (row.loss, row.grad_norm, row.weight_norm) for row in right[:21]
    ]
    assert rows[20].rank_drift == 0


def test_a_run_on_ranks_is_kept_as_any_other_and_not_gone_on_with(tmp_path: Path) -> None:
    run = run_of()
    Worker(run).run()
    assert (run.status, len(run.history), run.environment["ranks"]) == ("finished", STEPS, "2")
    assert not {"reduced_too_often", "ranks_apart", "clip_before_reduction", "ranks_alike"} & run.findings.keys()
    assert run.accuracy is not None and not multiprocessing.active_children()
    write(run, tmp_path)
    with np.load(tmp_path / "ranks.npz") as found:
        assert found["norms"].shape == found["seconds"].shape == (STEPS, 2)
        assert all((found[name] > 0).all() for name in ("norms", "seconds", "computing")) and not found["drift"].any()
        spent = found["seconds"] + found["computing"]
    assert (spent[:, 0] <= run.history.column("step_seconds") * 1.000001).all()
    told = ranks(run)
    assert told is not None and isinstance(told.blocks[0], Prose) and isinstance(told.blocks[1], Table)
    assert told.blocks[0].text.startswith(f"2 processes trained together. All-reduces a step: 1, of {4 * ENTRIES:,} ")
    assert [row[0] for row in told.blocks[1].rows] == ["rank 0", "rank 1"]
    assert "Ranks × steps" in report.content(run, "html")
    head = (tmp_path / "metrics.csv").read_text().splitlines()[0]
    assert head.endswith(
        ",rank_drift,loss_spread,attention_logit,attention_entropy,time_gradient,policy_ratio,policy_kl,policy_entropy,policy_reward"
    )
    for refused in (
        lambda: fork(run, 5),
        lambda: twin_of(run.preset, run.experiment, "optimizer.lr", 1.0),
        lambda: Trainer(run.experiment),
    ):
        with pytest.raises(KnobError, match=r"with distributed\.ranks = 2"):
            refused()


@pytest.mark.parametrize(
    ("by", "told"),
    [
        (signal.SIGKILL, "Rank 1 of 2 ended in step 3: it was ended by SIGKILL, as for want of memory."),
        (signal.SIGSTOP, "Rank 1 of 2 hangs in step 3: for "),
        ("model.norm=batch distributed.fault=stalls distributed.fault_rank=0", "Rank 0 of 2 hangs in step 3: for "),
        (
            "distributed.fault=stalls distributed.never_synced=true",
            r"Rank 1 of 2 hangs in step 3: for \d+ s it has not ended the step",
        ),
        (
            "distributed.runs_out_at=3",
            "Rank 1 of 2 has no batch for step 3 and has left the training loop. Rank 0 waits for it in the",
        ),
        ("distributed.fault=ends", "Rank 1 of 2 ended in step 3: it was ended by SIGKILL, as for want of memory."),
    ],
)
def test_who_ends_or_hangs_is_named_and_no_process_is_left(
    by: int | str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = by.split() if isinstance(by, str) else []
    trainer = RankedTrainer(SMALL.with_texts(["distributed.fault_step=3", *faults]))
    for _ in range(3):
        trainer.advance()
    if "hangs" in told:  # not before, as a busy machine lets a rank wait too
        monkeypatch.setattr(crew, "HANGS", 0.3)
    if isinstance(by, int):
        os.kill(trainer._crew._processes[1].pid or 0, by)
    with pytest.raises(RankFailure) as failure:
        for _ in range(3):
            trainer.advance()
    assert re.match(told.replace("step 3", f"step {trainer.step}"), str(failure.value))
    assert not multiprocessing.active_children() and trainer.evaluate() is None


def test_one_that_is_stopped_within_a_call_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """There it counts as one that waits for the others."""
    monkeypatch.setattr(crew, "STILL", 3.0)
    trainer = RankedTrainer(SMALL.with_texts(["distributed.ranks=3", "problem.batch_size=15", "run.steps=100000"]))
    places, process = trainer._crew._places, trainer._crew._processes[2].pid or 0

    def stop() -> bool:
        if places[2] > 0:
            os.kill(process, signal.SIGSTOP)
            if places[2] > 0:
                return True
            os.kill(process, signal.SIGCONT)
        return False

    stopper = threading.Thread(target=until, args=(stop,))
    stopper.start()
    with pytest.raises(RankFailure, match=r"^Rank 2 of 3 hangs in step \d+: for 3 s its process has stood still"):
        while True:
            trainer.advance()
    stopper.join()
    assert not multiprocessing.active_children()
