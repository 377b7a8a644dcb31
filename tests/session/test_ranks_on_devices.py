"""Where several ranks train, and over what they talk. Two gloo groups on the CPU stand here for gloo and NCCL: the same
calls in the same order, all but NCCL's own. What needs a GPU is in tests/engine/test_cuda_ranks.py."""

from __future__ import annotations

import json
import multiprocessing
import os
import selectors
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rank_server
import torch
from waiting import PATIENCE, until

from gradstudio.core import process_server
from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError
from gradstudio.core.presets import Preset
from gradstudio.core.rank_placement import Placement, place
from gradstudio.core.ranks_allowed import RankFailure
from gradstudio.core.row import Row
from gradstudio.engine.ranks import collectives, crew
from gradstudio.engine.ranks.crew import Crew
from gradstudio.engine.ranks.rank_process import _refusing
from gradstudio.engine.ranks.ranked_trainer import RankedTrainer
from gradstudio.engine.trainer import Trainer
from gradstudio.program import script
from gradstudio.session.machine.device_search import Machine
from gradstudio.session.record.run import Run
from gradstudio.session.running.worker import Worker

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="ranks are begun by a server, which Windows lacks")

SMALL = Experiment().with_values(
    {
        "run.steps": 6, "run.device": "cpu", "model.width": 12, "problem.batch_size": 16, "accumulation.steps": 2,
        "distributed.ranks": 2,
    }
)  # fmt: skip
TWO_GROUPS = Placement(("cpu", "cpu"), "gloo")


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    with rank_server.shared():
        yield


# ---- the choice


@pytest.mark.parametrize(
    ("choice", "ranks", "gpus", "devices"),
    [
        ("cpu", 2, 8, ("cpu", "cpu")),
        ("auto", 2, 0, ("cpu", "cpu")),
        ("auto", 2, 2, ("cuda:0", "cuda:1")),
        ("auto", 3, 8, ("cuda:0", "cuda:1", "cuda:2")),
        ("cuda", 2, 2, ("cuda:0", "cuda:1")),
        ("cuda:0", 2, 2, ("cuda:0", "cuda:1")),
        ("cuda:2", 2, 4, ("cuda:2", "cuda:3")),
    ],
)
def test_each_rank_has_a_gpu_of_its_own_or_all_have_the_cpu(
    choice: str, ranks: int, gpus: int, devices: tuple[str, ...]
) -> None:
    assert place(choice, ranks, gpus, nccl=True) == Placement(devices, "nccl" if "cuda:" in devices[0] else "")


@pytest.mark.parametrize(
    ("ranks", "gpus", "nccl", "notice"),
    [
        (4, 1, True, "The 4 ranks train on the CPU: each rank takes a GPU of its own, and 1 GPU is here."),
        (
            2, 2, False,
            "The 2 ranks train on the CPU: this build of torch has no NCCL, which takes gradients from GPU to GPU.",
        ),
        (2, 0, True, ""),
    ],
)  # fmt: skip
def test_auto_means_the_cpu_where_not_every_rank_can_have_a_gpu(ranks: int, gpus: int, nccl: bool, notice: str) -> None:
    assert place("auto", ranks, gpus, nccl=nccl) == Placement(("cpu",) * ranks, "", notice)


@pytest.mark.parametrize(
    ("choice", "ranks", "gpus", "nccl", "told"),
    [
        ("cuda", 4, 3, True, "each rank takes a GPU of its own, and 3 GPUs are here; allowed: distributed.ranks = 1 "
         "to 3, run.device=cpu"),
        ("cuda", 2, 1, True, "each rank takes a GPU of its own, and 1 GPU is here; allowed: distributed.ranks = 1, "
         "run.device=cpu"),
        ("cuda:1", 2, 2, True, "each rank takes a GPU of its own, and 1 GPU is here from cuda:1 on; allowed: "
         "distributed.ranks = 1, run.device=cpu"),
        ("cuda:3", 2, 2, True, "there is no cuda:3 here; allowed: run.device=cpu"),
        ("cuda", 2, 0, True, "there is no CUDA device here; allowed: run.device=cpu"),
        ("cuda", 2, 2, False, "this build of torch has no NCCL, which takes gradients from GPU to GPU; allowed: "
         "distributed.ranks = 1, run.device=cpu"),
    ],
)  # fmt: skip
def test_a_gpu_that_is_asked_for_and_not_there_is_refused(
    choice: str, ranks: int, gpus: int, nccl: bool, told: str
) -> None:
    with pytest.raises(KnobError) as refused:
        place(choice, ranks, gpus, nccl=nccl)
    assert str(refused.value) == f"run.device = {choice} is not allowed with distributed.ranks = {ranks}: {told}"


def test_apple_gpus_are_refused_before_anything_is_begun() -> None:
    with pytest.raises(KnobError, match=r"^run\.device = mps is not allowed with distributed\.ranks = 2: neither"):
        SMALL.with_value("run.device", "mps")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_run_on_gpus_that_are_not_there_fails_in_a_line() -> None:
    experiment = SMALL.with_value("run.device", "cuda")
    run = Run(Preset(id="p", title="P", experiment=experiment), experiment)
    Worker(run).run()
    assert run.status == "failed" and "there is no CUDA device here; allowed: run.device=cpu" in run.events[-1].text


def test_why_the_ranks_train_on_the_cpu_is_told_in_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    told = place("auto", 2, 1, nccl=True)
    monkeypatch.setattr(collectives, "placement", lambda *_: told)
    for _ in range(2):
        run = Run(Preset(id="p", title="P", experiment=SMALL), SMALL)
        Worker(run).run()
        assert told.notice in [event.text for event in run.events if event.kind == "notice"]


@pytest.mark.parametrize(
    ("accelerators", "nccl", "alone", "of_two"),
    [
        ([], True, "cpu", "cpu"),
        (["cuda:0"], True, "cuda:0", "cpu"),
        (["cuda:0", "cuda:1"], True, "cuda:0", "cuda:0"),
        (["cuda:0", "cuda:1"], False, "cuda:0", "cpu"),
        (["mps"], False, "mps", "cpu"),
    ],
)
def test_the_window_shows_what_auto_means(accelerators: list[str], nccl: bool, alone: str, of_two: str) -> None:
    machine = Machine()
    assert machine.automatic() == machine.automatic(2) == ""
    machine.devices, machine.nccl = tuple((device, "") for device in ["cpu", *accelerators]), nccl
    assert (machine.automatic(), machine.automatic(2)) == (alone, of_two)


# ---- a group that does not start


@pytest.mark.parametrize(
    ("placement", "told"),
    [
        (Placement(("cpu", "cpu"), "nccl"), "NCCL, which takes gradients from GPU to GPU, does not start on cpu: "),
        (Placement(("cuda:98", "cuda:99"), "nccl"), "cuda:9"),
    ],
)
def test_what_does_not_start_is_refused_in_a_line_and_no_process_is_left(placement: Placement, told: str) -> None:
    with pytest.raises(KnobError) as refused:
        Crew(SMALL, lambda: False, placement)
    assert str(refused.value).startswith(told) and "\n" not in str(refused.value)
    assert str(refused.value).endswith("; allowed: run.device=cpu, or distributed.ranks=1")
    assert not multiprocessing.active_children()


def test_what_a_rank_has_said_is_read_though_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine both are found at one look."""
    look = selectors.DefaultSelector.select

    def later(selector: selectors.DefaultSelector, timeout: float | None = None) -> list[Any]:
        for process in multiprocessing.active_children():
            process.join(PATIENCE)
        return sorted(look(selector, timeout), key=lambda found: not isinstance(found[0].fileobj, int))

    monkeypatch.setattr(selectors.DefaultSelector, "select", later)
    with pytest.raises(KnobError, match=r"^cuda:9"):
        Crew(SMALL, lambda: False, Placement(("cuda:98", "cuda:99"), "nccl"))


def test_what_takes_too_long_to_start_is_refused_though_it_never_returns() -> None:
    own, end = multiprocessing.Pipe()
    with _refusing(end, 0.01, "why"):
        until(own.poll)
    assert own.recv() == ("refused", "why")
    with _refusing(end, 0.2, "why"):
        pass
    assert not own.poll(0.4)


def test_of_an_error_of_nccl_its_last_line_is_told() -> None:
    """As torch words it, with NCCL's own last line."""
    fault = RuntimeError(
        "NCCL error in: NCCLUtils.cpp:94, invalid usage (run with NCCL_DEBUG=WARN for details)\nncclInvalidUsage: This "
        "usually reflects invalid usage of NCCL library.\nLast error:\nDuplicate GPU detected : rank 1 and rank 0\n"
    )
    assert collectives._in_one_line(fault) == "Duplicate GPU detected : rank 1 and rank 0"
    assert collectives._in_one_line(RuntimeError()) == "RuntimeError"


# ---- two groups


def trained(*assignments: str, steps: int = 6) -> list[Row]:
    trainer = RankedTrainer(SMALL.with_texts(list(assignments)))
    try:
        return [row for _ in range(steps) for row in trainer.advance()]
    finally:
        trainer.close()


@pytest.mark.parametrize(
    "case",
    [
        "clipping.kind=norm clipping.max_norm=0.3 optimizer.kind=adam",
        "model.norm=batch distributed.no_sync=false",
        "model.norm=batch distributed.sync_batch_norm=true precision.dtype=bf16",
        "distributed.clip_before_all_reduce=true clipping.kind=norm",
        "distributed.unused_parameter=true distributed.find_unused=true",
    ],
)
def test_a_second_group_for_what_is_on_the_devices_changes_no_number(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = trained(*case.split())
    monkeypatch.setattr(collectives, "placement", lambda *_: TWO_GROUPS)
    two = trained(*case.split())
    for row, other in zip(one, two, strict=True):
        for name in (
            "loss",
            "grad_norm",
            "clipped_norm",
            "weight_norm",
            "update_ratio",
            "all_reduces",
            "reduced_bytes",
        ):
            assert getattr(row, name) == getattr(other, name)
        assert row.ranks is not None and other.ranks is not None
        assert row.ranks[:, 0].tolist() == other.ranks[:, 0].tolist() and (other.ranks[:, 1] > 0).all()


@pytest.mark.parametrize(
    ("by", "told"),
    [
        ("distributed.fault=stalls", "Rank 1 of 2 hangs in step 3: for "),
        ("distributed.fault=stalls model.norm=batch distributed.sync_batch_norm=true", "Rank 1 of 2 hangs in step 3: "),
        ("distributed.fault=ends", "Rank 1 of 2 ended in step 3: it was ended by SIGKILL, as for want of memory."),
        ("distributed.runs_out_at=3", "Rank 1 of 2 has no batch for step 3"),
        (signal.SIGKILL, "Rank 1 of 2 ended in step "),
    ],
)
def test_with_two_groups_the_same_rank_is_named(by: int | str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "placement", lambda *_: TWO_GROUPS)
    faults = by.split() if isinstance(by, str) else []
    trainer = RankedTrainer(SMALL.with_texts(["run.steps=9999", "distributed.fault_step=3", *faults]))
    with pytest.raises(RankFailure) as failure:
        while True:
            trainer.advance()
            if "hangs" in told and trainer.step == 3:  # not before, as a busy machine lets a rank wait too
                monkeypatch.setattr(crew, "HANGS", 0.3)
            if isinstance(by, int) and trainer.step == 3:
                os.kill(trainer._crew._processes[1].pid or 0, by)
    assert str(failure.value).startswith(told) and not multiprocessing.active_children()


def test_with_two_groups_the_folder_of_the_ranks_goes_when_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "placement", lambda *_: TWO_GROUPS)
    trainer = RankedTrainer(SMALL)
    assert trainer._crew._folder.is_dir()
    trainer.close()
    assert not trainer._crew._folder.exists()


def test_a_single_rank_is_one_process(tmp_path: Path) -> None:
    """The same is asked of NCCL where there is a GPU."""
    given = ["run.steps=4", "run.device=cpu", "model.width=12", "problem.batch_size=16", "problem.nan_every=3"]
    context: Any = process_server.context(crew.PRELOADED)
    words = tmp_path / "told", "one_rank", "cpu", "gloo", *given
    process = context.Process(target=rank_server.print_into, args=words)
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == 0
    told = json.loads((tmp_path / "told").read_text())
    steps = Trainer(Experiment().with_texts(given)).steps()
    rows = [next(steps) for _ in range(4)]
    assert told["losses"] == pytest.approx([row.loss for row in rows], rel=1e-6, nan_ok=True)
    assert told["norms"] == pytest.approx([row.grad_norm for row in rows], rel=1e-6, nan_ok=True)
    assert (told["reductions"], told["found"], told["device"]) == (1, "data", "cpu") and told["waited"] == 10


# ---- programs


def test_the_program_takes_nccl_where_the_run_does() -> None:
    texts = {choice: script(SMALL.with_value("run.device", choice)) for choice in ("cpu", "auto", "cuda", "cuda:2")}
    assert 'dist.init_process_group("gloo")' in texts["cpu"] and "LOCAL_RANK" not in texts["cpu"]
    assert "cuda" not in texts["cpu"]
    for choice, device in (("cuda", "local_rank"), ("cuda:2", "2 + local_rank")):
        lines = texts[choice].splitlines()
        first = lines.index('local_rank = int(os.environ["LOCAL_RANK"])')
        assert lines[first + 1 : first + 4] == [
            f'device = torch.device("cuda", {device})  # each rank has a GPU of its own',
            "torch.cuda.set_device(device)",
            'dist.init_process_group("nccl")',
        ]
    assert 'dist.init_process_group("nccl" if on_gpus else "gloo")' in texts["auto"]
    for text in texts.values():
        assert "figures = torch.tensor(figures, dtype=torch.float64, device=device)" in text


def test_the_program_syncs_batch_norms_with_torchs_own_on_gpus() -> None:
    synced = SMALL.with_texts(["model.norm=batch", "distributed.sync_batch_norm=true"])
    on_gpus = script(synced.with_value("run.device", "cuda"))
    assert "model = nn.SyncBatchNorm.convert_sync_batchnorm(model)\nparallel = Dist" in on_gpus
    assert "def forward_of_all" not in on_gpus and "all_reduce(inputs" not in on_gpus
    for choice in ("cpu", "auto"):
        assert "norm.forward = forward_of_all(norm)" in script(synced.with_value("run.device", choice))


# ---- the end of the server, after which no other test here needs one


def test_where_the_server_of_the_ranks_ends_no_rank_is_blamed_and_none_outlives_the_program() -> None:
    """Though one of them is stopped, and so does nothing of its own. The server ends with the program, when its pipe is
    closed."""
    trainer, other = RankedTrainer(SMALL), RankedTrainer(SMALL)
    processes = [*trainer._crew._processes, *other._crew._processes]
    trainer.advance()
    os.kill(processes[-1].pid or 0, signal.SIGSTOP)
    rank_server.end()
    with pytest.raises(RankFailure, match=r"^The server that began the 2 ranks has ended in step "):
        while True:
            trainer.advance()
    until(lambda: not any(_lives(process.pid or 0) for process in processes))
    other.close()


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
