"""A run in a worker is the run in this process: every row and every list, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from waiting import until

from gradstudio.core import presets
from gradstudio.core.columns import COLUMNS, LAYER_METRICS
from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.session.record.run import Run
from gradstudio.session.remote.run_document import LISTS, list_of
from gradstudio.session.running.backend import LocalBackend
from gradstudio.session.simulator import Simulator

Make = Callable[..., Simulator]
SMALL = {"model.width": 8, "model.depth": 2, "problem.batch_size": 8, "run.steps": 130, "run.device": "cpu"}
CASES = {
    "plain": {},
    "loss scaling that overflows": {"precision.dtype": "fp16", "precision.init_scale": 1e6},
    "accumulation": {"accumulation.steps": 3, "clipping.kind": "norm"},
    "a mistake": {"mistakes.never_zero_grad": True, "optimizer.lr": 0.5},
}


def same(one: Run, other: Run) -> None:
    """All that two runs measured, and all that was made of it."""
    assert (one.status, one.message, len(one.history)) == (other.status, other.message, len(other.history))
    for name in COLUMNS:
        if name != "step_seconds":
            columns = [run.history.column(name).view(np.uint64) for run in (one, other)]
            assert (columns[0] == columns[1]).all(), name
    for name in LAYER_METRICS:
        assert one.history.layer_metric(name).tobytes() == other.history.layer_metric(name).tobytes(), name
    for kind in LISTS:
        assert repr(list_of(one, kind)) == repr(list_of(other, kind)), kind
    assert one.findings == other.findings and repr(one.provenance) == repr(other.provenance)
    assert one.in_force == other.in_force and one.first_nonfinite_step == other.first_nonfinite_step
    assert repr(one.accuracy) == repr(other.accuracy) and one.environment == other.environment
    assert [type(value) for value in other.environment.values()] == [str] * len(other.environment)


def both(make: Callable[[object], Simulator], act: Callable[[Simulator], None]) -> None:
    runs = []
    for where in ("here", "there"):
        one = make(where)
        act(one)
        until(lambda one=one: one.run.over)
        runs.append(one.run)
    same(*runs)


@pytest.mark.parametrize("values", CASES.values(), ids=list(CASES))
def test_a_run_with_changes_and_gauges(simulator: Make, values: dict[str, object]) -> None:
    timeline = (Change(40, "optimizer.lr", 0.02), Change(70, "clipping.max_norm", 0.5))
    of = Preset(id="small", title="Small", experiment=Experiment().with_values(SMALL | values), timeline=timeline)
    both(lambda where: simulator(of) if where == "there" else Simulator(of, backend=LocalBackend()), Simulator.play)


def test_a_run_that_diverges_with_where_it_was_born(simulator: Make) -> None:
    of = presets.load("rnn-explosion")
    both(lambda where: simulator(of) if where == "there" else Simulator(of, backend=LocalBackend()), Simulator.play)


def test_a_branch_with_a_change(simulator: Make) -> None:
    of = Preset(id="small", title="Small", experiment=Experiment().with_values(SMALL))

    def act(one: Simulator) -> None:
        one.play()
        until(lambda: one.run.over)
        parent = one.run
        one.rewind(57)
        until(lambda: one.run.status == "paused" and one.run.replayed is None)
        one.set("optimizer.lr", 0.3)
        one.play()
        until(lambda: one.run.over and len(one.run.history) == 130)
        assert one.run.parent == parent.id and one.run.differs_at is None
        assert [change.step for change in one.run.timeline] == [57]

    both(partial(_either, simulator, of), act)


def test_twins(simulator: Make) -> None:
    of = Preset(id="small", title="Small", experiment=Experiment().with_values(SMALL))
    others = []

    def act(one: Simulator) -> None:
        one.start_twins("optimizer.lr", 0.25)
        until(lambda: one.run.over and one.twins is not None and one.twins.other.over)
        others.append(one.twins.other)

    both(partial(_either, simulator, of), act)
    same(*others)


def _either(simulator: Make, of: Preset, where: object) -> Simulator:
    return simulator(of) if where == "there" else Simulator(of, backend=LocalBackend())
