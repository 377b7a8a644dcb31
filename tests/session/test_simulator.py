"""The simulator and its worker: knobs, pause, step, restart, failures. Real training on a small network."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from waiting import ENDLESS, PATIENCE, hold, until

from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError
from gradstudio.core.presets import Preset
from gradstudio.session.library.store import Library
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.running import trainer_making
from gradstudio.session.running.worker import Worker
from gradstudio.session.simulator import Simulator

SMALL = {"model.width": 8, "model.depth": 1, "problem.batch_size": 16, "run.steps": 60, "run.device": "cpu"}


def preset(**values: object) -> Preset:
    knobs = SMALL | {name.replace("__", "."): value for name, value in values.items()}
    return Preset(id="small", title="Small", experiment=Experiment().with_values(knobs))


@pytest.fixture
def simulator() -> Iterator[Callable[..., Simulator]]:
    made: list[Simulator] = []

    def make(**values: object) -> Simulator:
        made.append(Simulator(preset(**values)))
        return made[-1]

    yield make
    for one in made:
        assert one.close(PATIENCE)


def trained(experiment: Experiment, planned: tuple[Change, ...] = ()) -> Run:
    run = Run(Preset(id="small", title="Small", experiment=experiment), experiment, planned)
    Worker(run).run()
    return run


GATED = {"model__kind": "lstm", "problem__task": "sequential_digits", "problem__seq_len": 8}


@pytest.mark.usefixtures("an_lstm_knows_only_fp32")
def test_a_live_change_that_the_device_refuses_does_not_end_the_run(simulator: Callable[..., Simulator]) -> None:
    one = simulator(**GATED)
    hold(one, 1)
    one.set("precision.dtype", "bf16")
    until(lambda: bool(one.run.refusals))
    assert one.waiting() == {"precision.dtype"}
    [told] = one.refusals()
    assert (
        told.startswith("precision.dtype = bf16 is not allowed with model.kind = lstm on cpu") and one.refusals() == []
    )
    assert one.requested.precision.dtype == "fp32" == one.run.in_force.precision.dtype and one.waiting() == set()
    [event] = [event for event in one.run.events if event.kind == "knob_refused"]
    assert (event.step, event.knob, event.before, event.value, event.text) == (
        1,
        "precision.dtype",
        "fp32",
        "bf16",
        told,
    )
    one.play()
    until(lambda: one.run.over)
    assert one.run.status == "finished" and one.run.timeline == []


def test_changes_without_end_are_refused_and_the_run_goes_on(
    simulator: Callable[..., Simulator], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_making, "MOST_CHANGES", 2)
    one = simulator()
    for step in (1, 2, 3):
        hold(one, step)
        one.set("optimizer.lr", 0.5 * step)
    until(lambda: bool(one.run.refusals))
    assert [event.text for event in one.run.refusals] == [
        "a run has at most 2 changes, and this one has; restart it to change more"
    ]
    assert [change.value for change in one.run.timeline] == [0.5, 1.0]


@pytest.mark.usefixtures("an_lstm_knows_only_fp32")
def test_another_wish_made_meanwhile_is_not_taken_back(simulator: Callable[..., Simulator]) -> None:
    one = simulator(**GATED)
    hold(one, 1)
    one.set("precision.dtype", "bf16")
    until(lambda: bool(one.run.refusals))
    one.requested = one.requested.with_value("precision.dtype", "fp16")
    assert len(one.refusals()) == 1 and one.requested.precision.dtype == "fp16"


@pytest.mark.usefixtures("an_lstm_knows_only_fp32")
def test_a_planned_change_that_the_device_refuses_ends_the_run_before_it_begins() -> None:
    values = SMALL | {name.replace("__", "."): value for name, value in GATED.items()}
    run = trained(
        Experiment().with_values(values), (Change(3, "optimizer.lr", 0.5), Change(5, "precision.dtype", "bf16"))
    )
    assert run.status == "failed" and run.refused and len(run.history) == 0
    assert run.message.startswith("timeline at step 5: precision.dtype = bf16 is not allowed with model.kind = lstm")


def test_a_comparison_on_request_makes_a_step_where_nothing_goes(simulator: Callable[..., Simulator]) -> None:
    one = simulator(accumulation__steps=4)
    one.compare()
    until(lambda: len(one.run.compared) == 1 and one.run.status == "paused")
    assert len(one.run.history) == 1
    one.set("mistakes.unscaled_accumulation", True)
    until(lambda: one.run.in_force.mistakes.unscaled_accumulation)
    one.compare()
    until(lambda: len(one.run.compared) == 2)
    assert len(one.run.history) == 2
    (_, fine, alike), (step, wrong, _) = one.run.compared
    assert alike and not one.run.compared[1].alike
    assert fine < 1e-6 and step == 1 and wrong == pytest.approx(3)
    one.play()
    until(lambda: one.run.over)
    assert len(one.run.compared) == 2 and [event.kind for event in one.run.events].count("compared") == 2


def test_a_comparison_while_it_runs_changes_no_number(simulator: Callable[..., Simulator]) -> None:
    one = simulator(accumulation__steps=2, run__steps=ENDLESS)
    one.play()
    until(lambda: len(one.run.history) > 5)
    one.compare()
    until(lambda: one.run.compared)
    one.stop()
    until(lambda: one.run.over)
    assert len(one.run.compared) == 1
    alone = trained(one.preset.experiment.with_value("run.steps", len(one.run.history)))
    assert np.array_equal(one.run.history.column("loss"), alone.history.column("loss"))


def test_steps_to_compare_are_planned() -> None:
    experiment = Experiment().with_values(SMALL)
    run = Run(Preset(id="small", title="Small", experiment=experiment), experiment, (), (0, 7, 59))
    Worker(run).run()
    assert [found.step for found in run.compared] == [0, 7, 59] and max(
        found.difference for found in run.compared
    ) < 1e-6


def test_what_goes_together_is_asked_for_together(simulator: Callable[..., Simulator]) -> None:
    one = simulator()
    assert one.set("problem.task", "ring") == {"model.kind": "gan"}
    assert one.set("optimizer.lr", 0.01) == {}
    assert one.run.experiment.model.kind == "gan" and one.requested.problem.task == "ring"
    with pytest.raises(KnobError):
        one.set("optimizer.lr", -1.0)
    one.reset()
    assert one.requested == one.preset.experiment == one.run.experiment


@pytest.mark.parametrize(
    ("value", "onwards", "found"),
    [(9, False, 8), (15, False, 16), (9, True, 16), (7, True, 4), (100, True, 8), (200, False, 64), (16, True, 16)],
)
def test_a_slider_stops_at_what_goes_with_the_other_knobs(
    simulator: Callable[..., Simulator], value: int, onwards: bool, found: int
) -> None:
    one = simulator(problem__task="sequential_digits", problem__seq_len=8)
    assert one.nearest("problem.seq_len", value, onwards=onwards) == found
    assert one.nearest("optimizer.lr", 0.123, onwards=onwards) == 0.123


def test_the_program_is_that_of_the_knobs_as_asked_for(simulator: Callable[..., Simulator]) -> None:
    one = simulator()
    one.set("clipping.kind", "norm")
    assert "clip_grad_norm_" in one.script()
    one.set("clipping.kind", "none")
    assert "clip_grad_norm_" not in one.script()


def test_runs_to_the_end(simulator: Callable[..., Simulator]) -> None:
    one = simulator()
    assert one.run.status == "ready" and not one.busy
    one.play()
    until(lambda: one.run.over)
    assert one.run.status == "finished" and len(one.run.history) == 60
    assert 0 <= one.run.accuracy <= 1
    assert one.run.events[0].kind == "started" and one.run.events[-1].kind == "finished"


def test_a_live_knob_acts_at_the_next_step_and_is_noted(simulator: Callable[..., Simulator]) -> None:
    one = simulator()
    hold(one, 3)
    one.set("optimizer.lr", 0.025)
    until(lambda: one.run.in_force.optimizer.lr == 0.025)  # a paused worker takes it at once; it acts on the next step
    assert one.run.timeline == [Change(3, "optimizer.lr", 0.025)]
    changed = [event for event in one.run.events if event.kind == "knob_changed"]
    assert [(event.step, event.knob, event.before, event.value) for event in changed] == [
        (3, "optimizer.lr", 0.1, 0.025)
    ]
    one.step()
    until(lambda: len(one.run.history) == 4)
    assert one.run.history.column("lr").tolist() == [0.1, 0.1, 0.1, 0.025]


def test_a_restart_knob_waits(simulator: Callable[..., Simulator]) -> None:
    one = simulator()
    hold(one, 1)
    one.set("model.width", 16)
    assert one.waiting() == {"model.width"} and one.run.in_force.model.width == 8
    first = one.run
    one.restart()
    until(lambda: one.run.over)
    assert one.run is not first and one.run.experiment.model.width == 16 and one.waiting() == set()
    assert first.status == "stopped" and len(first.history) == 1


def test_pause_and_go_on(simulator: Callable[..., Simulator]) -> None:
    one = simulator(run__steps=ENDLESS)
    one.play()
    until(lambda: len(one.run.history) > 5)
    one.pause()
    until(lambda: one.run.status == "paused")
    paused_at = len(one.run.history)
    one.play()
    until(lambda: len(one.run.history) > paused_at + 5)
    one.stop()
    until(lambda: one.run.over)
    assert one.run.status == "stopped"


def test_pausing_changes_no_number(simulator: Callable[..., Simulator]) -> None:
    one = simulator()
    for count in range(1, 11):
        hold(one, count)
    one.play()
    until(lambda: one.run.over)
    whole = trained(one.preset.experiment)
    for name in ("loss", "grad_norm", "update_ratio"):
        assert np.array_equal(one.run.history.column(name), whole.history.column(name))


def test_changes_made_live_are_the_same_run_as_changes_planned(simulator: Callable[..., Simulator]) -> None:
    one = simulator()
    for count in range(1, 8):
        hold(one, count)
        if count == 4:
            one.set("clipping.kind", "norm")
            one.set("clipping.max_norm", 0.1)
            until(lambda: one.run.in_force.clipping.max_norm == 0.1)
    one.play()
    until(lambda: one.run.over)
    again = trained(one.preset.experiment, tuple(one.run.timeline))
    assert again.timeline == one.run.timeline
    assert np.array_equal(again.history.column("loss"), one.run.history.column("loss"))
    assert again.history.column("clipped_norm")[4:].max() <= 0.1 < again.history.column("clipped_norm")[:4].max()


def test_an_exception_in_the_training_thread_becomes_a_status(simulator: Callable[..., Simulator]) -> None:
    one = simulator(precision__dtype="fp16")
    hold(one, 3)
    one.set("mistakes.unscale_twice", True)
    one.play()
    until(lambda: one.run.over)
    assert one.run.status == "failed" and len(one.run.history) == 3
    assert "unscale_() has already been called" in one.run.message and "RuntimeError" in one.failure
    one.set("mistakes.unscale_twice", False)
    one.restart()
    until(lambda: one.run.over)
    assert one.run.status == "finished"


def test_a_device_that_is_not_there(simulator: Callable[..., Simulator]) -> None:
    one = simulator(run__device="cuda:7")
    one.play()
    until(lambda: one.run.over)
    assert one.run.status == "failed"
    assert one.run.message.startswith("run.device = cuda:7 is not allowed; allowed here: auto, cpu")


def test_a_step_after_a_stop_does_nothing(simulator: Callable[..., Simulator]) -> None:
    one = simulator(run__steps=ENDLESS)
    one.play()
    until(lambda: len(one.run.history) > 0)
    one.stop()
    until(lambda: one.run.over)
    rows = len(one.run.history)
    one.step()
    assert one.close(PATIENCE) and len(one.run.history) == rows


def test_speed_holds_training_back_and_lets_it_go(simulator: Callable[..., Simulator]) -> None:
    one = simulator(run__steps=400)
    one.set_speed(1.0)
    one.play()
    until(lambda: len(one.run.history) > 0)
    assert not one.run.over
    one.set_speed(float("inf"))
    until(lambda: one.run.over)
    assert one.run.status == "finished"


def test_loading_another_preset_leaves_the_old_run(simulator: Callable[..., Simulator]) -> None:
    one = simulator(run__steps=ENDLESS)
    one.play()
    until(lambda: len(one.run.history) > 0)
    old = one.run
    one.load(preset(run__steps=5))
    one.play()
    until(lambda: one.run.over and old.over)
    assert old.status == "stopped" and one.run.status == "finished" and len(one.run.history) == 5


def test_stops_at_the_first_nonfinite_step_or_goes_on_as_asked() -> None:
    broken = Experiment().with_values(SMALL | {"problem.input_scale": 1e25, "optimizer.lr": 1e6})
    run = trained(broken)
    assert run.status == "nonfinite" and run.first_nonfinite_step == len(run.history) - 1
    assert any(event.kind == "nonfinite" and event.step == run.first_nonfinite_step for event in run.events)
    on = trained(broken.with_value("run.stop_on_nonfinite", False))
    assert on.status == "nonfinite" and len(on.history) == 60 and on.first_nonfinite_step == run.first_nonfinite_step
    assert np.isnan(on.accuracy)


def test_a_planned_change_is_no_wish_that_waits(simulator: Callable[..., Simulator]) -> None:
    one = simulator()
    one.load(one.preset.model_copy(update={"timeline": (Change(3, "clipping.kind", "norm"),)}))
    hold(one, 5)
    assert one.run.in_force.clipping.kind == "norm" and one.requested.clipping.kind == "none"
    assert one.waiting() == set()


def test_of_many_wishes_for_one_knob_the_last_counts(simulator: Callable[..., Simulator]) -> None:
    one = simulator(run__steps=ENDLESS)
    one.play()
    until(lambda: len(one.run.history) > 0)
    for value in (0.2, 0.3, 0.4, 0.5):
        one.set("optimizer.lr", value)
    until(lambda: one.run.in_force.optimizer.lr == 0.5)
    steps = [change.step for change in one.run.timeline]
    assert len(steps) == len(set(steps))


def test_a_run_that_was_stopped_before_it_began(simulator: Callable[..., Simulator]) -> None:
    one = simulator(run__steps=ENDLESS)
    one.play()
    until(lambda: len(one.run.history) > 0)
    runs = [one.run]
    for _ in range(4):
        one.restart()
        runs.append(one.run)
    one.stop()
    until(lambda: all(run.over for run in runs))
    assert {run.status for run in runs} == {"stopped"} and one.close(10)


def test_an_event_is_told_after_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads of the first non-finite step finds it in the history."""
    broken = Experiment().with_values(SMALL | {"problem.input_scale": 1e25, "optimizer.lr": 1e6})
    run = Run(Preset(id="small", title="Small", experiment=broken), broken)
    seen: list[bool] = []
    note = RunWriter.note

    def look(writer: RunWriter, kind: str, text: str, step: int | None = None) -> None:
        if kind == "nonfinite":
            seen.append(len(run.history) > run.first_nonfinite_step)
        note(writer, kind, text, step)

    monkeypatch.setattr(RunWriter, "note", look)
    Worker(run).run()
    assert seen == [True]


def test_weights_that_break_at_the_very_last_update() -> None:
    last = Experiment().with_values(
        SMALL | {"run.steps": 1, "optimizer.lr": 1e6, "loss.weight": 1e30, "model.activation": "leaky_relu"}
    )
    run = trained(last)
    assert run.status == "nonfinite" and run.first_nonfinite_step == 0 and np.isnan(run.accuracy)
    assert run.events[-2].text == "the update left weights that are NaN or Inf"


@pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory is Linux's")
def test_out_of_memory_is_a_status_with_a_way_out() -> None:
    code = """
import resource, torch
from gradstudio.core import presets
from gradstudio.session.library.store import Library
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.running.worker import Worker
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 700_000_000, used + 700_000_000))
preset = presets.load("deep-sigmoid-vanishing")
experiment = preset.experiment.with_texts(["model.width=2048", "model.depth=100", "run.device=cpu"])
run = Run(preset, experiment)
Worker(run).run()
print(run.status, run.message)
small = Run(preset, preset.experiment.with_texts(["run.steps=3", "run.device=cpu"]))
Worker(small).run()
print(small.status)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    first, second = ended.stdout.splitlines()
    assert first.startswith("failed Out of memory:") and "model.width" in first, ended.stderr
    assert second == "finished"


def test_every_run_is_in_the_library_when_the_simulator_is_closed(tmp_path: Path) -> None:
    one = Simulator(preset(), library=tmp_path / "library.sqlite3")
    one.play()
    until(lambda: one.run.over)
    first = one.run
    one.restart()
    until(lambda: len(one.run.history) > 3)
    assert one.close(PATIENCE) and not one.library_problem
    library = Library(tmp_path / "library.sqlite3")
    assert [entry.id for entry in library.entries()] == [one.run.id, first.id]
    found = library.load(first.id)
    assert (
        found.status == "finished" and found.history.column("loss").tobytes() == first.history.column("loss").tobytes()
    )
    again = library.load(one.run.id)
    assert again.over and len(again.history) == len(one.run.history)


def test_without_a_library_training_goes_on_and_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    one = Simulator(preset(), library=tmp_path / "file" / "library.sqlite3")
    one.play()
    until(lambda: one.run.over)
    until(lambda: bool(one.library_problem))
    assert one.run.status == "finished" and "cannot be opened" in one.library_problem
    one.close(PATIENCE)


def test_a_run_of_the_library_is_shown_and_repeated(simulator: Callable[..., Simulator]) -> None:
    experiment = preset().experiment
    old = trained(experiment, (Change(20, "optimizer.lr", 0.5),))
    assert old.status == "finished", old.message
    one = simulator(optimizer__lr=0.3)
    one.open(old)
    assert one.run is old and one.requested == experiment and not one.waiting()
    one.play()
    assert one.run is old, "it is over"
    one.set("loss.weight", 2.0)
    assert one.run is old and one.waiting() == {"loss.weight"}
    one.set("loss.weight", 1.0)
    one.restart()
    until(lambda: one.run.over)
    assert one.run is not old and one.run.timeline == old.timeline
    assert one.run.history.column("loss").tobytes() == old.history.column("loss").tobytes()
