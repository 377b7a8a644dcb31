"""Runs that nobody can reach any more are freed, with their threads, rows and snapshots; a family holds so many runs."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import ENDLESS, PATIENCE, hold, until

from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.engine.trainer import Trainer
from gradstudio.session import undo
from gradstudio.session.library.store import Library
from gradstudio.session.record import branches
from gradstudio.session.record.run import Run
from gradstudio.session.simulator import Simulator

SMALL = {"model.width": 4, "model.depth": 1, "problem.batch_size": 4, "run.steps": 20, "run.device": "cpu"}


def preset(**knobs: object) -> Preset:
    values = SMALL | {name.replace("__", "."): value for name, value in knobs.items()}
    return Preset(id="small", title="Small", experiment=Experiment().with_values(values))


@pytest.fixture
def simulator(tmp_path: Path) -> Iterator[Simulator]:
    made = Simulator(preset(), tmp_path / "library.sqlite3")
    yield made
    assert made.close(PATIENCE)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What is freed now was in no circle: in the window, circles are collected only twice a minute."""
    gc.collect()
    was_on = gc.isenabled()  # a window that several tests share may have switched it off
    gc.disable()
    yield
    if was_on:
        gc.enable()


def parts(simulator: Simulator) -> dict[str, weakref.ref]:
    """What a run in training consists of."""
    worker = simulator._worker
    assert worker is not None
    until(lambda: worker._drivers[0].trainer is not None and len(simulator.run.history) > 3)
    trainer = worker._drivers[0].trainer
    assert isinstance(
        trainer, Trainer
    )  # imported early: torch's import leaves a circle behind with the frames above it
    held = {
        "run": simulator.run,
        "history": simulator.run.history,
        "snapshots": simulator.snapshots,
        "family": simulator.family,
        "worker": worker,
        "trainer": trainer,
        "weight": next(iter(trainer.model.parameters())),
    }
    return {name: weakref.ref(part) for name, part in held.items()}


def left(found: dict[str, weakref.ref]) -> list[str]:
    return [name for name, part in found.items() if part() is not None]


def branch_off(simulator: Simulator, step: int, lr: float) -> Run:
    """Go back to a step and on from there with another learning rate."""
    simulator.rewind(step)
    until(lambda: simulator.run.status == "paused")
    simulator.set("optimizer.lr", lr)
    hold(simulator, step + 2)
    return simulator.run


LEAVINGS: dict[str, Callable[[Simulator], object]] = {
    "another preset": lambda one: one.load(preset(model__width=5)),
    "a restart": lambda one: one.restart(),
    "twins": lambda one: one.start_twins("optimizer.lr", 0.25),
    "a run of the library": lambda one: one.open(Run(preset(), preset().experiment)),
}


@pytest.mark.parametrize(
    ("leaving", "stopped"), [*((leaving, False) for leaving in LEAVINGS), ("another preset", True)]
)
@pytest.mark.usefixtures("no_collector")
def test_nothing_of_a_run_is_left_once_it_is_left_for(simulator: Simulator, leaving: str, stopped: bool) -> None:
    simulator.load(preset(run__steps=ENDLESS))
    simulator.play()
    found = parts(simulator)
    if stopped:
        simulator.stop()
        until(lambda: simulator.run.over and not simulator.busy)
    LEAVINGS[leaving](simulator)
    until(lambda: not left(found))


@pytest.mark.usefixtures("no_collector")
def test_nothing_of_a_branch_is_left_once_it_is_deleted(simulator: Simulator) -> None:
    hold(simulator, 8)
    root = simulator.run
    branch = branch_off(simulator, 4, 0.2)
    simulator.show(root)
    branch_off(simulator, 4, 0.3)  # with the trainer of the first branch, which was kept for that
    simulator.remove(branch)
    gone = weakref.ref(branch)
    del branch
    until(lambda: gone() is None)


def test_a_run_that_is_over_takes_no_commands(simulator: Simulator) -> None:
    simulator.play()
    until(lambda: simulator.run.over and not simulator.busy)
    worker = simulator._worker
    assert worker is not None
    for speed in range(1, 50):
        simulator.set_speed(speed)
        simulator.watch_gauges(["sharpness"] if speed % 2 else [])
        simulator.pause()
    assert worker._commands.empty()


def test_undoing_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undo, "MOST", 5)
    simulator = Simulator(preset())
    for count in range(8):
        simulator.set("optimizer.lr", 0.1 + count / 100)
    assert [bool(simulator.undo()) for _ in range(7)] == [True] * 5 + [False] * 2
    assert simulator.requested.optimizer.lr == 0.1 + 2 / 100


def test_a_family_lets_go_of_the_branches_that_were_shown_longest_ago(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(branches, "MOST", 4)
    hold(simulator, 6)
    root = simulator.run
    made = []
    for count in range(3):
        made.append(branch_off(simulator, 4, 0.1 + count / 100))
        simulator.show(root)
    simulator.show(made[0])  # now it was shown latest
    simulator.show(root)
    assert simulator.notices() == []
    made += [branch_off(simulator, 3, 0.2), branch_off(simulator, 2, 0.3)]
    assert list(simulator.family.members) == [each.id for each in (root, made[0], made[3], made[4])]
    [told] = simulator.notices()  # once
    assert told.startswith(f"“{made[1].title}” is kept in the library only")
    gone = weakref.ref(made[1])
    name, losses = made[1].id, made[1].history.column("loss").tolist()
    del made[1]
    until(lambda: gc.collect() >= 0 and gone() is None)
    library = Library(tmp_path / "library.sqlite3")
    assert library.load(name).history.column("loss").tolist() == losses
    library.close()


def test_a_long_line_of_branches_of_branches_lets_go_of_its_middle(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(branches, "MOST", 3)
    hold(simulator, 4)
    losses = simulator.run.history.column("loss").tolist()
    line = [simulator.run, *(branch_off(simulator, 3 + count, 0.1 + count / 100) for count in range(5))]
    assert list(simulator.family.members) == [each.id for each in (line[0], line[4], line[5])]
    simulator.rewind(2)  # before the branches that are gone: the rows are all there
    until(lambda: simulator.run.status == "paused")
    hold(simulator, 4)
    assert simulator.run.history.column("loss").tolist() == losses


def test_without_a_library_no_branch_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "MOST", 2)
    simulator = Simulator(preset())
    hold(simulator, 4)
    for count in range(3):
        branch_off(simulator, 2, 0.1 + count / 100)
    assert len(simulator.family.members) == 4
    assert simulator.close(PATIENCE)


def test_after_a_damaged_library_was_repaired_branches_are_let_go_of(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(branches, "MOST", 2)
    hold(simulator, 4)
    simulator._library_writer.notice = "The run library was damaged; 1 run could be saved"
    for count in range(3):
        branch_off(simulator, 2, 0.1 + count / 100)
    assert len(simulator.family.members) == 2 and simulator.library_problem == ""
