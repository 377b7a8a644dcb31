"""A run that broke is told where and why; and twins, which is what a person makes to see it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from waiting import ENDLESS, PATIENCE, join, until

from gradstudio.core import presets
from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError
from gradstudio.core.presets import Preset
from gradstudio.session.files.summary import summarize, to_json
from gradstudio.session.library.store import Library
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.record.branches import last_healthy_step
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.record.twins import twin_of
from gradstudio.session.running.investigation import growth_factor, sentence
from gradstudio.session.running.worker import Worker
from gradstudio.session.simulator import Simulator

SMALL = {"model.width": 8, "model.depth": 1, "problem.batch_size": 16, "run.steps": 60, "run.device": "cpu"}


def trained(run: Run, snapshots: Snapshots | None = None) -> Run:
    worker = Worker(run, snapshots=snapshots)
    worker.start()
    join(worker)
    assert not worker.failure, worker.failure
    return run


def small(planned: tuple[Change, ...] = (), **values: object) -> Run:
    experiment = Experiment().with_values(SMALL | {name.replace("__", "."): value for name, value in values.items()})
    return Run(Preset(id="small", title="Small", experiment=experiment), experiment, planned)


def test_of_a_run_that_broke_the_summary_names_the_operation_and_what_led_up_to_it() -> None:
    preset = presets.load("rnn-explosion")
    run = trained(Run(preset, preset.experiment))
    found = run.provenance
    assert (
        found is not None
        and found.step == run.first_nonfinite_step
        and found.module == "rnn"
        and found.phase == "forward"
    )
    assert f"rnn, time step {found.time_step + 1} of the sequence" in sentence(found)
    assert "Before it the gradient norm went from" in found.led_up and "moved the weights by" in found.led_up
    told = json.loads(to_json(summarize(run)))["provenance"]
    assert (told["step"], told["phase"], told["module"], told["operation"]) == (
        found.step,
        "forward",
        "rnn",
        found.operation,
    )
    assert told["chain"][0]["produced"] is True and told["cause"]


def test_a_run_that_did_not_break_has_none() -> None:
    run = trained(small())
    assert run.provenance is None and summarize(run)["provenance"] is None


def test_a_change_of_a_knob_shortly_before_is_told() -> None:
    run = trained(small((Change(20, "optimizer.lr", 1e6),), model__activation="leaky_relu", model__depth=3))
    assert run.provenance is not None and "optimizer.lr became 1e6" in run.provenance.led_up
    healthy = last_healthy_step(run)
    assert healthy is not None and healthy <= 21


def test_weights_that_an_update_broke_are_followed_back_to_it() -> None:
    run = trained(
        small(
            (Change(10, "optimizer.weight_decay", 1e3), Change(10, "optimizer.lr", 1e6)),
            optimizer__lr=0.1,
            model__width=4,
        )
    )
    assert run.first_nonfinite_step is not None and run.provenance is not None
    assert run.provenance.step <= run.first_nonfinite_step and run.provenance.chain[0].is_birth


@pytest.mark.parametrize("budget", [1 << 28, 0])
def test_a_run_that_goes_on_after_its_first_nan_is_not_changed_by_the_search_for_it(budget: int) -> None:
    values = {"loss__kind": "naive_log", "problem__input_scale": 1e3, "run__stop_on_nonfinite": False, "run__steps": 30}
    run = trained(small(**values), Snapshots(budget))
    assert run.first_nonfinite_step is not None and len(run.history) == 30
    assert (run.provenance is None) == (budget == 0)
    plain = trained(small(**values), Snapshots(0))
    for name in ("loss", "grad_norm", "weight_norm"):
        assert run.history.column(name).tobytes() == plain.history.column(name).tobytes()


def test_the_library_keeps_it(tmp_path: Path) -> None:
    keeper = LibraryWriter(tmp_path / "runs.sqlite3")
    run = small(loss__kind="naive_log", problem__input_scale=1e3)
    keeper.follow(run)
    trained(run)
    assert keeper.close(PATIENCE)
    assert run.provenance is not None
    assert repr(Library(tmp_path / "runs.sqlite3").load(run.id).provenance) == repr(
        run.provenance
    )  # in which NaN is NaN


def test_growth_is_told_only_where_there_is_one() -> None:
    preset = presets.load("gan-ring")
    run = trained(Run(preset, preset.experiment))
    assert run.provenance is not None and run.provenance.growth_along == "layers"
    factor = growth_factor(run.provenance)
    assert factor is None or factor > 1


# ---- twins


def test_twins_are_each_what_it_would_be_alone() -> None:
    base = small()
    one = Simulator(base.preset)
    one.start_twins("optimizer.lr", 0.03)
    twins = one.twins
    assert twins is not None
    until(lambda: twins.one.over and twins.other.over)
    for run, lr in ((twins.one, 0.1), (twins.other, 0.03)):
        alone = trained(small(optimizer__lr=lr))
        for name in ("loss", "grad_norm", "weight_norm", "update_ratio"):
            assert run.history.column(name).tobytes() == alone.history.column(name).tobytes()
        assert run.accuracy == alone.accuracy and run.findings == alone.findings
    assert twins.look() == 1 and one.close(PATIENCE)
    difference = twins.difference("loss", twins.one.history, 0, 60)
    assert difference[0] == 0 and np.array_equal(
        difference, np.abs(twins.one.history.column("loss") - twins.other.history.column("loss"))
    )


def test_twins_go_in_lockstep_and_share_every_change_but_that_of_their_knob() -> None:
    one = Simulator(small(run__steps=ENDLESS).preset)
    one.start_twins("clipping.kind", "norm")
    twins = one.twins
    assert twins is not None
    until(lambda: len(twins.one.history) > 10)
    one.pause()
    until(lambda: twins.one.status == twins.other.status == "paused")
    assert len(twins.one.history) == len(twins.other.history)
    one.set("optimizer.lr", 0.02)
    one.set("clipping.kind", "value")
    until(lambda: twins.one.in_force.clipping.kind == "value")
    until(lambda: twins.other.in_force.optimizer.lr == 0.02)
    assert twins.one.in_force.optimizer.lr == 0.02 and twins.other.in_force.clipping.kind == "norm"
    count = len(twins.one.history) + 1
    one.step()
    until(lambda: len(twins.one.history) == len(twins.other.history) == count)
    one.rewind(5)
    until(lambda: one.run.status == "paused" and len(one.run.history) == 5)
    assert twins.one.over and twins.other.over and one.run.parent == twins.one.id
    assert one.close(PATIENCE)


def test_a_twin_goes_on_alone_where_the_other_broke() -> None:
    preset = presets.load("log-of-zero")
    one = Simulator(preset)
    one.start_twins("loss.eps", 1e-7)
    twins = one.twins
    assert twins is not None
    until(lambda: twins.one.over)
    assert twins.one.status == "nonfinite" and (one.going is twins.other or twins.other.over)
    until(lambda: twins.other.over)
    assert twins.other.status == "finished" and twins.steps == len(twins.one.history) < len(twins.other.history)
    assert one.close(PATIENCE)


@pytest.mark.parametrize(
    ("knob", "value"),
    [("run.seed", 3), ("problem.batch_size", 8), ("optimizer.lr", 0.1), ("run.steps", 9), ("optimizer.lr", -1.0)],
)
def test_what_would_be_no_twin_is_refused(knob: str, value: float) -> None:
    run = small()
    with pytest.raises(KnobError, match=knob.partition(".")[2]):
        twin_of(run.preset, run.experiment, knob, value)


def test_a_step_that_is_too_large_to_be_made_again_is_said_to_be_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradstudio.engine import operation_watcher

    monkeypatch.setattr(operation_watcher, "MOST_OPERATIONS", 5)
    run = trained(small(optimizer__lr=1e6, problem__input_scale=1e20, run__steps=3))
    assert run.status == "nonfinite" and run.provenance is None
    (told,) = [event.text for event in run.events if event.kind == "notice"]
    assert told.startswith("Where the first NaN or Inf was born is unknown: the step is too large to be made again")
