"""Faults in mid-run: the library is held, replaced, deleted, damaged or full, the worker raises at every stage, a step
does not end, the program is killed. Training goes on or fails in one line, and what was measured is kept.

GRADSTUDIO_TORTURE=1 makes more of each."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from waiting import ENDLESS, PATIENCE, HeldStep, hold, join, until

from gradstudio.core.experiment import Experiment
from gradstudio.core.history import History
from gradstudio.core.presets import Preset
from gradstudio.core.spill import SpillFile
from gradstudio.engine import models
from gradstudio.engine.snapshot import Snapshot
from gradstudio.engine.trainer import Trainer
from gradstudio.session.library import followed_run, schema, writer
from gradstudio.session.library.library_faults import LibraryError
from gradstudio.session.library.store import Library
from gradstudio.session.record import run_writer
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.running.rewind import Rewinder
from gradstudio.session.simulator import Simulator

LONG = os.environ.get("GRADSTUDIO_TORTURE", "") not in ("", "0")
ROOT = Path(__file__).parents[2]
SMALL = ["model.width=8", "model.depth=1", "problem.batch_size=8", "run.device=cpu"]


def small(steps: int = 90) -> Preset:
    experiment = Experiment().with_texts([*SMALL, f"run.steps={steps}"])
    return Preset(id="small", title="Small", experiment=experiment)


@pytest.fixture
def simulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulator]:
    monkeypatch.setattr(writer, "INTERVAL", 0.005)
    monkeypatch.setattr(schema, "PATIENCE", 0.01)
    made = Simulator(small(), tmp_path / "disk" / "library.sqlite3")
    yield made
    made.close(PATIENCE)


def finish(simulator: Simulator) -> None:
    simulator.play()
    until(lambda: simulator.run.over)


def rows_kept(path: Path, run: Run) -> int:
    """Rows that the library has of a run, each of them as it was measured; 0 where it does not have the run."""
    try:
        library = Library(path)
    except LibraryError:  # it is held
        return 0
    try:
        if run.id not in [entry.id for entry in library.entries()]:
            return 0
        history = library.load(run.id).history
        assert np.array_equal(history.table(), run.history.table(0, len(history)), equal_nan=True)
        return len(history)
    finally:
        library.close()


# ---- the library


@contextlib.contextmanager
def held(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield "locked"
        other.execute("ROLLBACK")


@contextlib.contextmanager
def full(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """See also test_a_small_disk."""
    with refusing_changes("database or disk is full", monkeypatch) as told:
        yield told


@contextlib.contextmanager
def read_only(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """No mode of the file, for root may write what is read-only."""
    with refusing_changes("attempt to write a readonly database", monkeypatch) as told:
        yield told


@contextlib.contextmanager
def refusing_changes(told: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """SQLite refuses every change of a line, with these words."""

    def change(*given: object) -> None:
        raise sqlite3.OperationalError(told)

    with monkeypatch.context() as patches:
        patches.setattr(followed_run, "change_run", change)
        yield told


@contextlib.contextmanager
def deleted(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for file in path.parent.iterdir():
        file.unlink()
    yield ""


@contextlib.contextmanager
def folder_gone(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    away = path.parent.rename(path.parent.parent / "away")
    path.parent.write_text("a file")
    yield "cannot be opened"
    path.parent.unlink()
    while True:
        with contextlib.suppress(OSError):  # the library may be begun anew between the two
            away.rename(path.parent)
            break
        shutil.rmtree(path.parent)


@contextlib.contextmanager
def replaced(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    other = path.with_name("other")
    Library(other).close()
    os.replace(other, path)
    yield ""


@contextlib.contextmanager
def damaged(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(path.stat().st_size - 4096))
    yield ""


FAULTS = [held, full, read_only, deleted, folder_gone, replaced, damaged]


def about_library(simulator: Simulator) -> str:
    return simulator.library_problem or simulator.library_notice


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_library_fails_in_mid_run(
    simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable
) -> None:
    path = tmp_path / "disk" / "library.sqlite3"
    hold(simulator, 20)
    until(lambda: path.exists() and rows_kept(path, simulator.run) == 20)
    with fault(path, monkeypatch) as told:
        hold(simulator, 40)  # training does not wait for it
        if told:
            until(lambda: told in about_library(simulator))
            assert len(about_library(simulator)) <= 300 and "\n" not in about_library(simulator)
    finish(simulator)
    assert simulator.run.status == "finished" and len(simulator.run.history) == 90
    assert simulator.close(PATIENCE)
    assert rows_kept(path, simulator.run) == 90


def test_a_small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real one, where this process may mount it: it fills up in mid-run, and there is room again later."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can mount a disk")
    monkeypatch.setattr(writer, "INTERVAL", 0.005)
    path = disk / "library.sqlite3"
    simulator = Simulator(small(), path)
    try:
        hold(simulator, 20)
        until(lambda: path.exists() and rows_kept(path, simulator.run) == 20)
        ballast = disk / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(b"0" * 1024):
                pass
        finish(simulator)
        until(lambda: "full" in simulator.library_problem or "disk" in simulator.library_problem)
        ballast.unlink()
        until(lambda: not simulator.library_problem)
        assert simulator.close(PATIENCE) and rows_kept(path, simulator.run) == 90
    finally:
        simulator.close(PATIENCE)
        subprocess.run(["umount", "-l", disk], check=True)


def test_the_disk_for_old_rows_is_full(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(self: SpillFile, array: np.ndarray) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for module in ("history", "row_blocks"):
        monkeypatch.setattr(f"gradstudio.core.{module}.BLOCK", 16)
    monkeypatch.setattr(SpillFile, "_write", write)
    finish(simulator)
    history: History = simulator.run.history
    assert simulator.run.status == "finished" and history.layer_metric("grad_norm").shape == (90, len(history.layers))


# ---- the worker

KINDS: list[BaseException] = [
    RuntimeError("a sentence\nand a stack of C++ frames"),
    MemoryError(),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    OSError(errno.ENOSPC, "No space left on device"),
    KeyError("weight"),
    RecursionError("maximum recursion depth exceeded"),
    SystemExit(3),
    AssertionError(),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x" * 5000),
]
# Where it is raised, and after how many calls that went well.
STAGES: dict[str, tuple[object, str, int]] = {
    "building the model": (models, "named_parameters", 0),
    "checking the device": (Trainer, "check", 0),
    "drawing a batch": (Trainer, "next_batches", 2),
    "the forward pass": (Trainer, "compute", 1),
    "unscaling": (Trainer, "_unscale", 0),
    "clipping": (Trainer, "_clip", 2),
    "the learning rate": (Trainer, "_set_learning_rate", 1),
    "the step as a whole": (Trainer, "advance", 40),
    "reading the rows": (Trainer, "settle", 0),
    "appending a row": (RunWriter, "append", 3),
    "the rules": (RunWriter, "look", 1),
    "the test set": (Trainer, "evaluate", 0),
}


@pytest.mark.parametrize("stage", STAGES)
def test_the_worker_raises(simulator: Simulator, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    owner, name, before = STAGES[stage]
    original = getattr(owner, name)
    place = list(STAGES).index(stage)
    for kind in KINDS if LONG else [KINDS[(place + turn) % len(KINDS)] for turn in (0, 4)]:
        calls = []

        def broken(*given: object, kind: BaseException = kind, calls: list[int] = calls, **named: object) -> object:
            calls.append(1)
            if len(calls) > before:
                raise kind
            return original(*given, **named)

        simulator.load(small())
        with monkeypatch.context() as patches:
            patches.setattr(owner, name, broken)
            patches.setattr(Rewinder, "due", lambda *given: True)  # every row is read, however fast the machine is
            finish(simulator)
        run = simulator.run
        assert run.status == "failed" and run.message, (stage, kind)
        assert "\n" not in run.message and len(run.message) < 600, (stage, kind)
    simulator.load(small())
    finish(simulator)  # nothing is left that hinders the next run
    assert simulator.run.status == "finished" and len(simulator.run.history) == 90


# ---- a step that does not end


def test_a_step_that_does_not_end_holds_up_nobody(simulator: Simulator, tmp_path: Path) -> None:
    simulator.load(small(ENDLESS))
    first = simulator.run
    hold(simulator, 5)  # the rows of fast steps are shown together, so a run that plays may have shown fewer by then
    with HeldStep(25) as step:
        simulator.play()
        until(step.reached.is_set)
        simulator.set("optimizer.lr", 0.2)
        simulator.pause()
        simulator.step()
        simulator.rewind(5)
        assert simulator.run is not first and simulator.run.parent == first.id
        simulator.play()
        simulator.stop()
        simulator.load(small(7))
        simulator.play()
        last = simulator.run
        assert not simulator.close(0.01)
        assert first.status == "stopped" and last.status in ("starting", "stopped")
        until(lambda: rows_kept(tmp_path / "disk" / "library.sqlite3", first))
        assert rows_kept(tmp_path / "disk" / "library.sqlite3", first) <= 25
    until(lambda: not simulator.busy)


# ---- killed

NURSERY = """
import os, sys, threading, time
from pathlib import Path
from gradstudio.core import jit
from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.engine.trainer import Trainer
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.record import run_writer
from gradstudio.session.record.run import Run
from gradstudio.session.running.worker import Worker
jit.compile_all()
experiment = Experiment().with_texts(sys.argv[2:])
for line in sys.stdin:
    child = os.fork()
    if not child:
        run = Run(Preset(id="small", title="Small", experiment=experiment), experiment, id=f"small-{line.strip()}")
        writer = LibraryWriter(Path(sys.argv[1]))
        writer.follow(run)
        Worker(run).start()
        while True:
            print(os.getpid(), len(run.history), time.monotonic(), flush=True)
            threading.Event().wait(0.002)
    os.waitpid(child, 0)
"""


@pytest.mark.thorough  # tests/session/library/test_library.py kills one
def test_killed_at_any_moment(tmp_path: Path) -> None:
    path, chance = tmp_path / "library.sqlite3", random.Random(int(os.environ.get("GRADSTUDIO_SEED", "1")))
    words = [sys.executable, "-c", NURSERY, str(path), *SMALL, f"run.steps={ENDLESS}"]
    killed: dict[str, list[tuple[int, float]]] = {}
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as nursery:
        assert nursery.stdin is not None and nursery.stdout is not None
        for number in range(60 if LONG else 3):
            nursery.stdin.write(f"{number}\n")
            nursery.stdin.flush()
            told, pid = killed.setdefault(f"small-{number}", []), 0
            enough = chance.choice((1, 3, 50, 200, 400)) + chance.randrange(100)
            while len(told) < enough:
                pid, rows, at = nursery.stdout.readline().split()
                if not any(line[0] == int(pid) for line in told):
                    told.append((int(rows), float(at)))
            os.kill(int(pid), signal.SIGKILL)
            told.append((int(rows), time.monotonic()))
        nursery.stdin.close()
    library = Library(path)
    entries = library.entries()
    whole = max((library.load(entry.id).history for entry in entries), key=len, default=History())
    for entry in entries:
        history = library.load(entry.id).history
        assert entry.outcome == "interrupted" and entry.steps == len(history)
        # the same run each time, so a row that is wrong would differ
        assert np.array_equal(history.column("loss"), whole.column("loss", 0, len(history)))
        if LONG:
            told = killed[entry.id]
            sure = max((rows for rows, at in told if at < told[-1][1] - 1.0), default=0)
            assert len(history) >= sure, "more than a second is lost"
    assert library.check() == "ok"
    library.close()


# ---- again and again


def census() -> tuple[list[str], int, dict[str, int]]:
    """Threads by name, number of descriptors, and the objects that hold memory, by class."""
    gc.collect()
    kinds = (Trainer, Snapshot, History, Run, Simulator, RunWriter, SpillFile)
    counts = dict.fromkeys((kind.__name__ for kind in kinds), 0)
    for found in gc.get_objects():
        if type(found) in kinds:
            counts[type(found).__name__] += 1
    names = sorted(thread.name.partition(" small-")[0] for thread in threading.enumerate())
    return names, len(os.listdir("/proc/self/fd")), counts


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are counted as Linux shows them")
def test_train_stop_rewind_and_branch_again_and_again(tmp_path: Path) -> None:
    def cycle(number: int) -> None:
        simulator = Simulator(small(), tmp_path / f"library-{number % 2}.sqlite3")
        simulator.play()
        until(lambda: len(simulator.run.history) > 10)
        simulator.stop()
        until(lambda: simulator.run.over)
        simulator.rewind(6)
        simulator.set("optimizer.lr", 0.2)
        finish(simulator)
        simulator.start_twins("optimizer.lr", 0.3)
        until(lambda: simulator.run.over and simulator.twins.other.over)
        assert simulator.close(PATIENCE)
        for thread in threading.enumerate():
            if thread.name.startswith("training "):
                join(thread)

    for number in range(3):
        cycle(number)
    before = census()
    for number in range(100 if LONG else 4):
        cycle(number)
    after = census()
    assert after[0] == before[0] and after[1] == before[1]
    assert after[2] == before[2], {name: count - before[2][name] for name, count in after[2].items()}


def test_events_that_every_step_brings_about_are_bounded(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_writer, "MOST_ALIKE", 12)
    experiment = simulator.preset.experiment.with_texts(["problem.outlier_every=1", "problem.outlier_scale=0"])
    simulator.load(Preset(id="small", title="Small", experiment=experiment))
    finish(simulator)
    told = [event for event in simulator.run.events if event.kind == "outlier"]
    assert [event.step for event in told] == list(range(1, 13)) and told[-1].text.endswith(
        "; later ones are not listed"
    )
    assert not any("later" in event.text for event in told[:-1])
