"""Snapshots that were written: a branch made another day begins at one of them, and is the same to the last bit with
and without."""

from __future__ import annotations

import contextlib
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from waiting import PATIENCE, until

from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import COLUMNS
from gradstudio.core.presets import Preset
from gradstudio.engine.trainer import Trainer
from gradstudio.session.library import stored_snapshots
from gradstudio.session.library.store import Library
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.record.branches import fork
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.record.snapshots import KeptSnapshot, Snapshots
from gradstudio.session.running import foreground
from gradstudio.session.simulator import Simulator

SMALL = [
    "model.depth=1",
    "model.width=4",
    "problem.batch_size=4",
    "run.steps=40",
    "run.device=cpu",
    "optimizer.kind=adam",
]
PLANNED = (Change(6, "accumulation.steps", 2), Change(30, "optimizer.lr", 0.02))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "library.sqlite3"


@pytest.fixture(autouse=True)
def worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short runs too are worth some; and which of them are stored, which goes by time, is the same on every machine."""
    append = RunWriter.append
    monkeypatch.setattr(RunWriter, "append", lambda run, row: append(run, replace(row, step_seconds=0.01)))
    monkeypatch.setattr(stored_snapshots, "SECONDS", 1e-4)
    monkeypatch.setattr(stored_snapshots, "A_SECOND", 1 << 40)


@pytest.fixture
def steps_made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of every step that any trainer makes."""
    made: list[int] = []
    advance = Trainer.advance

    def counted(self: Trainer):
        made.append(self.step)
        return advance(self)

    monkeypatch.setattr(Trainer, "advance", counted)
    yield made


def trained(path: Path, run: Run, snapshots: Snapshots | None = None) -> Run:
    """The run, made here and written into the library."""
    snapshots = snapshots or Snapshots(gap=0.0, stored=lambda runs: stored_snapshots.read(path, runs))
    snapshots._gap, snapshots.due = 0.0, lambda seconds: True
    writing = LibraryWriter(path)
    writing.follow(run, snapshots)
    foreground.train(run, progress=False, snapshots=snapshots)
    assert run.over and run.status != "failed", run.message
    assert writing.close(), writing.problem
    return run


def root(path: Path, *knobs: str, id: str = "root", **more: float) -> Run:
    experiment = Experiment().with_texts([*SMALL, *knobs])
    of = Preset(id="small", title="Small", experiment=experiment, timeline=PLANNED)
    return trained(path, Run(of, experiment, PLANNED, id=id, **more))


def branch(path: Path, parent: str, step: int, id: str) -> Run:
    """One of a run in the library, as another program would make it."""
    with contextlib.closing(Library(path)) as library:
        run = fork(library.load(parent), step, changes=(Change(step, "optimizer.beta1", 0.5),))
    return trained(path, replace(run, id=id))


def content(path: Path) -> list[tuple[str, int, bytes]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT run, step, content FROM snapshots ORDER BY run, step").fetchall()


def put(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Something else into every stored snapshot."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for run, step, old in connection.execute("SELECT run, step, content FROM snapshots").fetchall():
            connection.execute("UPDATE snapshots SET content = ? WHERE run = ? AND step = ?", (change(old), run, step))


def same(one: Run, other: Run) -> None:
    for name in set(COLUMNS) - {"step_seconds"}:
        assert one.history.column(name).tobytes() == other.history.column(name).tobytes(), name
    assert one.findings == other.findings and one.differs_at is None is other.differs_at
    assert [event for event in one.events if event.kind != "branched"] == [
        event for event in other.events if event.kind != "branched"
    ]
    assert one.accuracy == other.accuracy


@pytest.mark.parametrize(
    "knobs",
    [[], ["model.norm=batch", "problem.noise=0.1", "gradients.noise_std=0.01"], ["precision.dtype=fp16", "precision.init_scale=1e7"],
     ["mistakes.never_zero_grad=true"], ["problem.outlier_every=7", "schedule.warmup_steps=20"]],
)  # fmt: skip
def test_a_branch_begins_at_a_stored_snapshot_and_is_the_same_without(
    knobs: list[str], path: Path, steps_made: list[int]
) -> None:
    root(path, *knobs)
    steps = [step for _, step, _ in content(path)]
    assert 2 <= len(steps) <= stored_snapshots.MOST and steps[-1] == 40 and min(steps) < 15
    steps_made.clear()
    step = steps[-2] + 1
    one = branch(path, "root", step, "one")
    assert steps_made[0] == steps[-2] and one.parent_step == step
    put(path, lambda content: b"")
    steps_made.clear()
    same(one, branch(path, "root", step, "again"))
    assert steps_made[0] == 0


def test_a_branch_of_a_branch_begins_at_the_snapshots_of_either(path: Path, steps_made: list[int]) -> None:
    root(path)
    one = branch(path, "root", 20, "one")
    own = [step for run, step, _ in content(path) if run == "one"]
    assert own and min(own) > 20, "what is before it belongs to the run that it branched from"
    steps_made.clear()
    branch(path, "one", own[-2], "late")
    assert steps_made[0] == own[-2]
    steps_made.clear()
    early = branch(path, "one", 15, "early")
    assert 0 < steps_made[0] <= 15 and early.ancestors == {"root": 15, "one": 15}
    with contextlib.closing(Library(path)) as library:
        library.delete(["root"])
        library.purge()
    assert {run for run, _, _ in content(path)} == {"one", "late", "early"}
    steps_made.clear()
    same(branch(path, "one", own[-2], "later"), branch(path, "one", own[-2], "latest"))
    assert len(one.history) == 40


def checked(state: bytes) -> bytes:
    return stored_snapshots._HEADER.pack(zlib.crc32(state), 0.1) + state


@pytest.mark.parametrize(
    "change",
    [lambda old: b"", lambda old: old[:7], lambda old: old[:-1], lambda old: old[:900] + b"x" + old[901:], lambda old: b"x" * 5000,
     lambda old: checked(b""), lambda old: checked(b"not a snapshot"), lambda old: checked(old[12 : len(old) // 2])],
)  # fmt: skip
def test_damage_costs_time_and_nothing_else(
    change: Callable[[bytes], bytes], path: Path, steps_made: list[int]
) -> None:
    root(path)
    put(path, change)
    steps_made.clear()
    one = branch(path, "root", 12, "one")
    assert steps_made[0] == 0 and one.differs_at is None and one.status == "finished"


@pytest.mark.parametrize(
    "knob",
    ["model.width=6", "model.depth=2", "optimizer.kind=sgd", "model.norm=batch", "problem.task=spirals", "run.seed=4"],
)
def test_the_snapshots_of_another_run_are_passed_over(
    knob: str, path: Path, tmp_path: Path, steps_made: list[int]
) -> None:
    root(path)
    root(tmp_path / "other", knob)
    others = dict(
        zip(
            [step for _, step, _ in content(path)], [state for _, _, state in content(tmp_path / "other")], strict=False
        )
    )
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM snapshots")
        connection.executemany("INSERT INTO snapshots VALUES ('root', ?, ?)", others.items())
    steps_made.clear()
    one = branch(path, "root", 12, "one")
    assert steps_made[0] == 0 and one.differs_at is None and one.status == "finished"


def test_a_snapshot_that_was_put_at_another_step_is_passed_over(path: Path, steps_made: list[int]) -> None:
    root(path)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE snapshots SET step = step + 100")
    steps_made.clear()
    assert branch(path, "root", 12, "one").differs_at is None and steps_made[0] == 0


def test_the_window_s_simulator_goes_back_to_them_too(path: Path, steps_made: list[int]) -> None:
    root(path)
    steps = [step for _, step, _ in content(path)]
    with contextlib.closing(Library(path)) as library:
        run = library.load("root")
    simulator = Simulator(run.preset, path)
    try:
        simulator.open(run)
        steps_made.clear()
        simulator.rewind(steps[-2] + 1)
        simulator.step()
        until(lambda: simulator.run.own == 1)
        assert steps_made[0] == steps[-2] and set(steps) <= set(simulator.snapshots.steps(run))
    finally:
        assert simulator.close(PATIENCE)


def test_of_a_run_that_broke_those_up_to_where_it_was_healthy_are_kept(path: Path) -> None:
    run = root(
        path,
        "run.stop_on_nonfinite=false",
        "problem.outlier_every=25",
        "problem.outlier_scale=1e30",
        "optimizer.kind=sgd",
        "model.activation=relu",
    )
    assert run.first_nonfinite_step is not None and len(run.history) == 40
    steps = [step for _, step, _ in content(path)]
    assert steps and max(steps) <= 25


def kept(run: Run, size: int = 1000) -> Snapshots:
    """A snapshot before each of its steps; only their sizes are real."""
    snapshots = Snapshots()
    seconds = np.cumsum(run.history.column("step_seconds"))

    class State:
        nbytes, on_disk = size, False

    for step in range(1, len(run.history) + 1):
        snapshots.add(KeptSnapshot(run.id, step, State(), None, {}, float(seconds[step - 1])), 0.0)
    return snapshots


def test_how_many_there_are_goes_by_time_and_size(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = root(path)
    run.history._rows[0][:, list(COLUMNS).index("step_seconds")] = 0.1  # 4 seconds
    monkeypatch.setattr(stored_snapshots, "A_SECOND", 512 << 10)
    for seconds, size, steps in (
        (1.0, 1000, [10, 20, 30, 40]), (2.0, 1000, [20, 40]), (5.0, 1000, []),
        (0.01, 1000, [5, 10, 15, 20, 25, 30, 35, 40]),
        (1.0, 1 << 20, [20, 40]), (1.0, 3 << 20, []), (0.01, 9 << 20, []),
    ):  # fmt: skip
        monkeypatch.setattr(stored_snapshots, "SECONDS", seconds)
        assert [each.step for each in stored_snapshots.chosen(run, kept(run, size))] == steps, (seconds, size)
    assert stored_snapshots.chosen(run, Snapshots()) == []


def test_the_oldest_go_where_all_of_them_are_too_large(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for began, name in enumerate(("one", "two", "three")):
        root(path, id=name, started=began)
    sizes = {
        name: sum(len(state) for run, _, state in content(path) if run == name) for name in ("one", "two", "three")
    }
    assert all(sizes.values())
    monkeypatch.setattr(stored_snapshots, "ALL", sum(sizes.values()) * 3 // 4)
    root(path, id="four")
    assert {run for run, _, _ in content(path)} == {"three", "four"}


def test_a_library_that_cannot_be_read_gives_none(tmp_path: Path) -> None:
    assert stored_snapshots.read(tmp_path / "nowhere", ["root"]) == [] and not (tmp_path / "nowhere").exists()
    (tmp_path / "text").write_text("not a database " * 100)
    assert stored_snapshots.read(tmp_path / "text", ["root"]) == []
    assert stored_snapshots.read(tmp_path, ["root"]) == []
