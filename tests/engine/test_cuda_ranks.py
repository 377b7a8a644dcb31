"""What only GPUs can show of several ranks: that NCCL takes their gradients, and that a rank that hangs is still named.
What needs none is in tests/session/test_ranks_on_devices.py."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from meeting_places import meeting_places
from one_rank import one_rank

from gradstudio.core.experiment import Experiment
from gradstudio.core.ranks_allowed import RankFailure
from gradstudio.core.row import Row
from gradstudio.core.unknown import is_known
from gradstudio.engine.ranks import crew
from gradstudio.engine.ranks.ranked_trainer import RankedTrainer
from gradstudio.engine.trainer import Trainer
from gradstudio.program import script

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are no two GPUs here")

SMALL = Experiment().with_values(
    {
        "run.steps": 6, "run.device": "cuda", "model.width": 12, "problem.batch_size": 16, "accumulation.steps": 2,
        "distributed.ranks": 2,
    }
)  # fmt: skip
CASES = [
    "clipping.kind=norm clipping.max_norm=0.3 optimizer.kind=adam",
    "distributed.no_sync=false",
    "distributed.sync_batch_norm=true model.norm=batch",
    "distributed.uneven_every=2 distributed.weigh_shares=true",
    "distributed.unused_parameter=true distributed.find_unused=true",
]


def trained(*assignments: str, steps: int = 6) -> list[Row]:
    trainer = RankedTrainer(SMALL.with_texts(list(assignments)))
    try:
        return [row for _ in range(steps) for row in trainer.advance()]
    finally:
        trainer.close()


def assert_equal(rows: list[Row], others: list[Row], rel: float) -> None:
    for name in ("loss", "grad_norm", "clipped_norm", "weight_norm"):
        one, other = ([getattr(row, name) for row in each] for each in (rows, others))
        assert one == pytest.approx(other, rel=rel), name


def test_a_single_rank_over_nccl_is_one_process_on_the_gpu() -> None:
    given = ["run.steps=4", "run.device=cuda", "model.width=12", "problem.batch_size=16", "problem.nan_every=3"]
    told = one_rank("cuda:0", "nccl", *given)
    steps = Trainer(Experiment().with_texts(given)).steps()
    rows = [next(steps) for _ in range(4)]
    assert told["losses"] == pytest.approx([row.loss for row in rows], rel=1e-5, nan_ok=True)
    assert told["norms"] == pytest.approx([row.grad_norm for row in rows], rel=1e-5, nan_ok=True)
    assert (told["reductions"], told["found"], told["device"]) == (1, "data", "cuda")
    assert told["waited"] == 10 and told["seconds"] > 0 and told["computing"] > 0


@two_gpus
@pytest.mark.parametrize("case", CASES)
def test_equals_one_process_on_a_gpu_with_the_joined_batch(case: str) -> None:
    steps = Trainer(SMALL.with_texts([*case.split(), "distributed.ranks=1"])).steps()
    rows = trained(*case.split())
    assert_equal(rows, [next(steps) for _ in range(6)], 1e-5)
    assert {row.all_reduces for row in rows} == {2 if "no_sync" in case else 1}
    assert [row.rank_drift for row in rows if is_known(row.rank_drift)] == [0.0]


@two_gpus
def test_each_rank_is_on_a_gpu_of_its_own() -> None:
    trainer = RankedTrainer(SMALL)
    try:
        assert trainer.environment["device"] == "cuda:0 and cuda:1"
    finally:
        trainer.close()


@two_gpus
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("distributed.fault=stalls", "Rank 1 of 2 hangs in step 3: for "),
        ("distributed.fault=stalls model.norm=batch", "Rank 1 of 2 hangs in step 3: for "),
        ("distributed.fault=ends", "Rank 1 of 2 ended in step 3: it was ended by SIGKILL, as for want of memory."),
    ],
)
def test_who_ends_or_hangs_is_named_and_no_process_is_left(
    fault: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "stalls" in fault:
        monkeypatch.setattr(crew, "HANGS", 3.0)
    with pytest.raises(RankFailure) as failure:
        trained("distributed.fault_step=3", *fault.split())
    assert str(failure.value).startswith(told) and not multiprocessing.active_children()


@two_gpus
def test_the_rank_that_brought_a_nan_names_its_operation() -> None:
    trainer = RankedTrainer(SMALL.with_texts(["problem.nan_every=3", "distributed.nan_rank=1"]))
    try:
        for _ in range(4):
            trainer.advance()
        found = trainer.explain()
    finally:
        trainer.close()
    assert (found.rank, found.ranks, found.phase, found.step) == (1, (1,), "data", 3)


@two_gpus
@pytest.mark.parametrize("case", [*CASES, "distributed.clip_shards=true clipping.kind=norm"])
def test_the_program_prints_the_numbers_of_the_run(case: str, tmp_path: Path) -> None:
    program, helper = tmp_path / "train.py", Path(__file__).parent.parent / "session" / "ranks_by_torchrun.py"
    program.write_text(script(SMALL.with_texts(case.split())), encoding="utf-8")
    [place] = meeting_places(1)
    command, words = [sys.executable, str(helper)], ["2", str(place.port), str(program)]
    ranks = [subprocess.Popen([*command, str(rank), *words]) for rank in range(2)]
    assert [rank.wait() for rank in ranks] == [0, 0]
    printed = [[float(word) for word in line.split()] for line in program.with_suffix(".txt").read_text().splitlines()]
    rows = trained(*case.split())
    assert [[row.step, row.loss, row.grad_norm] for row in rows] == [pytest.approx(line, rel=1e-5) for line in printed]
