"""A run that is over goes on behind its last step, and is then what a longer plan would have made of it, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from waiting import ENDLESS, PATIENCE, until

from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.session.library.store import Library
from gradstudio.session.record.run import Run
from gradstudio.session.running.worker import Worker
from gradstudio.session.simulator import Simulator

SMALL = {"model.width": 8, "model.depth": 1, "problem.batch_size": 8, "run.steps": 12, "run.device": "cpu"}


def preset(**values: object) -> Preset:
    knobs = SMALL | {name.replace("__", "."): value for name, value in values.items()}
    return Preset(id="small", title="Small", experiment=Experiment().with_values(knobs))


@pytest.fixture
def simulator(tmp_path: Path) -> Iterator[Callable[[Preset], Simulator]]:
    made: list[Simulator] = []

    def make(of: Preset) -> Simulator:
        made.append(Simulator(of, tmp_path / "runs.sqlite3"))
        return made[-1]

    yield make
    for one in made:
        assert one.close(PATIENCE)


def planned(of: Preset, steps: int) -> Run:
    """The run of a preset with so many steps in its plan."""
    run = Run(of, of.experiment.with_value("run.steps", steps))
    Worker(run).run()
    return run


def over(one: Simulator) -> bool:
    return one.run.over and not one.busy


@pytest.mark.parametrize(
    "knobs",
    [
        {"problem__noise": 0.1, "optimizer__momentum": 0.9, "accumulation__steps": 2},
        {"schedule__kind": "cosine", "schedule__total_steps": 18, "optimizer__kind": "adamw"},
        {"precision__dtype": "fp16", "precision__growth_interval": 3, "precision__init_scale": 1e6},
    ],
    ids=["noise", "a schedule that goes on", "fp16"],
)
def test_a_finished_run_is_lengthened(simulator: Callable[[Preset], Simulator], knobs: dict[str, object]) -> None:
    of = preset(**knobs)
    one = simulator(of)
    one.play()
    until(lambda: over(one))
    first = one.run
    assert first.status == "finished" and one.steps_to_go == 12
    one.go_on()
    until(lambda: one.run is not first and over(one))
    assert one.run.status == "finished" and (one.run.parent, one.run.parent_step) == (first.id, 12)
    assert len(one.run.history) == one.run.experiment.run.steps == 24 and len(first.history) == 12
    whole = planned(of, 24)
    timed = [place for place, name in enumerate(whole.history.row(0)) if name == "step_seconds"]
    rows = [np.delete(run.history.table(), timed, axis=1).view(np.int64) for run in (one.run, whole)]
    assert np.array_equal(*rows)
    assert one.run.findings == whole.findings and one.run.accuracy == whole.accuracy
    assert one.run.what_changed == "run.steps = 24"
    assert one.requested.run.steps == 24 and not one.waiting()


def test_a_longer_plan_in_the_form_is_carried_out(simulator: Callable[[Preset], Simulator]) -> None:
    one = simulator(preset())
    one.play()
    until(lambda: over(one))
    one.set("run.steps", 20)
    one.set("optimizer.lr", 0.05)
    assert one.steps_to_go == 8
    one.go_on()
    until(lambda: one.run.parent and over(one))
    assert len(one.run.history) == 20 and [(c.step, c.value) for c in one.run.timeline] == [(12, 0.05)]


def test_a_run_of_the_library_that_was_stopped_goes_on(
    simulator: Callable[[Preset], Simulator], tmp_path: Path
) -> None:
    one = simulator(of := preset(run__steps=ENDLESS))
    one.play()
    until(lambda: len(one.run.history) > 5)
    one.stop()
    until(lambda: over(one))
    id, rows = one.run.id, len(one.run.history)
    assert one.steps_to_go == ENDLESS - rows
    assert one.close(PATIENCE)
    other = simulator(of)
    library = Library(tmp_path / "runs.sqlite3")
    other.open(library.load(id))
    library.close()
    assert other.steps_to_go == ENDLESS - rows
    other.go_on()
    until(lambda: other.run.own > 3)
    other.stop()
    until(lambda: over(other))
    made = other.run.history.column("loss")
    assert other.run.parent == id and np.array_equal(made, planned(of, len(made)).history.column("loss"))


def test_what_cannot_go_on_says_so(simulator: Callable[[Preset], Simulator]) -> None:
    one = simulator(preset(optimizer__lr=1e6, model__activation="leaky_relu", model__depth=3, run__steps=200))
    assert one.steps_to_go == 0
    one.play()
    until(lambda: over(one))
    assert one.run.status == "nonfinite" and one.steps_to_go == 0
    diverged = one.run
    one.go_on()
    assert one.run is diverged
