"""A run whose rows are read some steps after they were made is the run that it would be otherwise, whatever is done to
it and however it ends."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from waiting import ENDLESS, PATIENCE, HeldStep, join, until

from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import COLUMNS
from gradstudio.core.presets import Preset
from gradstudio.engine.snapshot import Snapshot
from gradstudio.engine.step import reading
from gradstudio.engine.step.optimizers import Updates
from gradstudio.session.library.store import Library
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.record.branches import fork
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.record.twins import twin_of
from gradstudio.session.running import pending_rows, run_driver
from gradstudio.session.running.fix_trials import Trials
from gradstudio.session.running.gauge_sampling import GaugeSampler
from gradstudio.session.running.run_driver import RunDriver
from gradstudio.session.running.worker import Worker
from gradstudio.session.running.worker_commands import Compare, Pause, Resume, SetKnob, SetSpeed, StepOnce, Stop

SMALL = [
    "model.depth=2",
    "model.width=8",
    "problem.batch_size=8",
    "run.device=cpu",
    "run.steps=60",
    "optimizer.kind=adam",
    "optimizer.lr=0.01",
]
BREAKING = [
    "loss.kind=naive_variance",
    "optimizer.lr=0.003",
]  # at step 21, by the logarithm of a negative number, with a finite gradient
NAN_IN_WEIGHTS = [
    "loss.kind=naive_log",
    "optimizer.lr=10",
    "optimizer.kind=sgd",
    "model.activation=relu",
    "model.init=he",
]  # from step 48 on
Make = Callable[[], Run]


def new_run(*texts: str, planned: tuple[Change, ...] = (), compare_at: tuple[int, ...] = ()) -> Run:
    experiment = Experiment().with_texts([*SMALL, *texts])
    return Run(
        Preset(id="small", title="Small", experiment=experiment), experiment, planned, compare_at, id="one", started=0.0
    )


@pytest.fixture(scope="module")
def made_directly() -> dict[str, list[Run]]:
    """What came of each test with rows that were read at once. To be read only: every way of reading late is compared
    with it, and it is the same for all of them."""
    return {}


@pytest.fixture(params=["made ahead", "held back", "unseen", "ahead, held and unseen"])
def both(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, made_directly: dict[str, list[Run]]
) -> Callable[[Make], tuple[Run, Run]]:
    """What comes of something that is done: with rows that are read late, or taken in only where something needs them,
    and at once."""
    known, numbers = made_directly.setdefault(request.node.name.replace(request.param, ""), []), count()

    def done(make: Make) -> tuple[Run, Run]:
        monkeypatch.setattr(pending_rows, "HELD", 0.0)
        monkeypatch.setattr(run_driver, "UNSEEN", 0.0)
        number = next(numbers)
        if number == len(known):
            known.append(make())
        direct = known[number]
        with monkeypatch.context() as patch:
            if "ahead" in request.param:
                patch.setitem(reading.LAG, "cpu", 4)
            if "held" in request.param:
                patch.setattr(pending_rows, "HELD", 1e9)
            if "unseen" in request.param:
                patch.setattr(run_driver, "UNSEEN", 1e9)
            late = make()
        return late, direct

    return done


class Always(Snapshots):
    """One after every step."""

    def due(self, seconds: float) -> bool:
        return True


def trained(run: Run, snapshots: Snapshots | None = None) -> Run:
    """With a snapshot before the first step and no other, if not told otherwise."""
    worker = Worker(run, snapshots=snapshots or Snapshots(gap=1e9))
    worker.run()
    assert not worker.failure, worker.failure
    return run


def check(late: Run, direct: Run) -> None:
    """The same rows, news and findings."""
    assert (late.status, late.message, late.first_nonfinite_step) == (
        direct.status,
        direct.message,
        direct.first_nonfinite_step,
    )
    assert len(late.history) == len(direct.history)
    assert late.history.column("loss").tobytes() == direct.history.column("loss").tobytes()
    for name in COLUMNS:
        if name != "step_seconds":
            np.testing.assert_allclose(late.history.column(name), direct.history.column(name), rtol=1e-12, err_msg=name)
    assert [(event.step, event.kind, event.knob) for event in late.events] == [
        (event.step, event.kind, event.knob) for event in direct.events
    ]
    assert repr(late.provenance) == repr(direct.provenance)
    for name in ("timeline", "in_force", "findings", "gauge_problems", "accuracy"):
        assert repr(getattr(late, name)) == repr(getattr(direct, name)), name
    assert [(each.step, each.alike) for each in late.compared] == [(each.step, each.alike) for each in direct.compared]
    assert repr(late.history._notes()) == repr(direct.history._notes())


@pytest.mark.parametrize("steps", [1, 3, 4, 5, 60])
def test_it_ends_where_it_should(both, steps):
    check(*both(lambda: trained(new_run(f"run.steps={steps}"))))


def test_planned_changes_and_what_is_looked_at_now_and_then(both):
    planned = tuple(Change(step, knob, value) for step, knob, value in [
        (0, "optimizer.lr", 0.02), (1, "clipping.kind", "norm"), (7, "accumulation.steps", 2),
        (9, "mistakes.clip_each_micro_batch", True),
        (11, "mistakes.clip_each_micro_batch", False), (12, "precision.dtype", "bf16"), (14, "optimizer.lr", 0.001),
        (58, "clipping.max_norm", 0.1),
        (59, "problem.skip_batches", 2),
    ])  # fmt: skip
    late, direct = both(lambda: trained(new_run(planned=planned, compare_at=(8, 20))))
    check(late, direct)
    assert [each.step for each in late.compared] == [8, 20] and len(late.history.accumulated) > 1


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("kind", [Snapshots, Always])
@pytest.mark.parametrize("breaking", [BREAKING, NAN_IN_WEIGHTS], ids=["loss", "weights"])
def test_a_run_that_breaks(both, stop, kind, breaking):
    """It ends right there, or goes on to its last step."""
    late, direct = both(
        lambda: trained(new_run(*breaking, f"run.stop_on_nonfinite={str(stop).lower()}"), kind(gap=1e9))
    )
    check(late, direct)
    assert late.first_nonfinite_step > 4
    assert late.provenance is not None and late.provenance.step <= late.first_nonfinite_step
    assert (late.status == "nonfinite") and (len(late.history) == (late.first_nonfinite_step + 1 if stop else 60))


@pytest.mark.parametrize("budget", [1 << 28, 0])
def test_the_trainer_of_a_run_that_broke_stands_behind_its_last_row_or_nowhere(monkeypatch, budget):
    monkeypatch.setitem(reading.LAG, "cpu", 4)
    run = new_run(*BREAKING)
    driver = RunDriver(run, Snapshots(budget, gap=ENDLESS))  # one that is due at that very step would wait for it
    driver.begin(None, lambda: False)
    while driver.outcome is None:
        driver.step("running")
    assert driver.outcome == "nonfinite"
    assert (driver.trainer.step == len(run.history)) == driver._stands == (budget > 0)


def test_an_update_that_breaks_the_weights_of_the_last_step(both, monkeypatch):
    """The row is finite, the weights are not."""

    def breaking(self):
        update(self)
        if self.made == 7:
            self._optimizer.param_groups[0]["params"][0].data[0] = float("nan")

    update = Updates._step
    monkeypatch.setattr(Updates, "_step", breaking)
    late, direct = both(lambda: trained(new_run("run.steps=7")))
    check(late, direct)
    assert late.status == "nonfinite" and late.first_nonfinite_step == 6


def test_a_fault_in_a_step_leaves_the_rows_before_it(both, monkeypatch):
    def broken(self):
        if self.made == 9:
            raise RuntimeError("broken")
        update(self)

    update = Updates._step
    monkeypatch.setattr(Updates, "_step", broken)

    def made():
        run = new_run()
        Worker(run).run()
        return run

    late, direct = both(made)
    check(late, direct)
    assert late.status == "failed" and len(late.history) == 9 and "broken" in late.message


@pytest.mark.parametrize("held", [0.0, 1e9])
def test_a_device_that_is_gone_takes_no_row_with_it_that_was_read(monkeypatch, held):
    monkeypatch.setitem(reading.LAG, "cpu", 4)
    monkeypatch.setattr(pending_rows, "HELD", held)
    monkeypatch.setattr(run_driver, "UNSEEN", 1e9)

    def gone(unread):
        if unread.made.step >= 30:
            raise RuntimeError("the device is gone")
        wait(unread)

    wait = reading._wait
    monkeypatch.setattr(reading, "_wait", gone)
    run = new_run("problem.outlier_every=5")
    Worker(run, snapshots=Snapshots(gap=1e9)).run()
    assert run.status == "failed" and "gone" in run.message and len(run.history) == 30
    assert [event.step for event in run.events if event.kind == "outlier"] == [5, 10, 15, 20, 25]


def test_rows_are_written_while_a_later_step_hangs(monkeypatch, tmp_path):
    monkeypatch.setattr(pending_rows, "HELD", 1e9)
    run = new_run(f"run.steps={ENDLESS}")
    worker, writer = Worker(run), LibraryWriter(tmp_path / "library.sqlite3")
    with HeldStep(12) as held, closing(Library(tmp_path / "library.sqlite3")) as library:
        worker.start()
        writer.follow(run, None, worker.on_request, worker.show_waiting)
        assert held.reached.wait(PATIENCE)
        until(lambda: any(entry.steps == 12 for entry in library.entries()))
        worker.send(Stop(leaving=True))
        held.release()
    assert writer.close(PATIENCE) and run.history.column("step").tolist() == list(range(len(run.history)))


def test_what_a_fault_left_in_mid_step_is_no_snapshot(monkeypatch):
    def broken(self):
        update(self)
        if self.made == 9:
            due.append(True)
            raise RuntimeError("broken")

    update, due = Updates._step, []
    monkeypatch.setattr(Updates, "_step", broken)
    monkeypatch.setattr(Snapshots, "due", lambda self, seconds: bool(due))
    monkeypatch.setattr(pending_rows, "HELD", 1e9)
    run, snapshots = new_run(), Snapshots()
    Worker(run, snapshots=snapshots).run()
    assert run.status == "failed" and len(run.history) == 8 and due
    assert [kept.step for kept in snapshots.of(run)] == [0]


def test_a_fork_has_the_news_that_its_parent_had_not_looked_at(monkeypatch):
    monkeypatch.setattr(pending_rows, "HELD", 0.0)
    monkeypatch.setattr(run_driver, "UNSEEN", 1e9)
    run = new_run("problem.outlier_every=5", f"run.steps={ENDLESS}")
    worker = Worker(run, snapshots=Snapshots(gap=1e9))
    worker.start()
    until(lambda: len(run.history) >= 31)
    branch = fork(run, 31)
    outliers = [event.step for event in branch.events if event.kind == "outlier"]
    worker.send(Stop(leaving=True))
    join(worker)
    RunDriver(branch, Snapshots()).begin(None, lambda: False)
    assert outliers == [] and [event.step for event in branch.events if event.kind == "outlier"] == [
        5,
        10,
        15,
        20,
        25,
        30,
    ]
    assert [event.kind for event in branch.events][-1] == "branched" and branch.findings.keys() <= run.findings.keys()


def test_a_fault_that_comes_of_nan_ends_the_run_as_the_nan_does(both, monkeypatch):
    """A step fails before the host has seen the row that breaks the run."""

    def careful(self):
        if not self._optimizer.param_groups[0]["params"][0].isfinite().all():
            raise RuntimeError("NaN is not allowed here")
        update(self)

    update = Updates._step
    monkeypatch.setattr(Updates, "_step", careful)
    late, direct = both(lambda: trained(new_run(*NAN_IN_WEIGHTS)))
    check(late, direct)
    assert (late.status, late.message, len(late.history)) == ("nonfinite", "", 49)


def driven(run: Run, course: dict[int, list], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Trained, with these commands sent just before the steps of these numbers, as made by the trainer."""
    worker = Worker(run, snapshots=Snapshots(gap=1e9))
    step = RunDriver.step

    def commanded(driver, status):
        step(driver, status)
        for command in course.pop(driver.trainer.step, []) if driver.trainer else []:
            worker.send(command)

    with monkeypatch.context() as patch:
        patch.setattr(RunDriver, "step", commanded)
        worker.run()
    assert not worker.failure, worker.failure
    return run


def test_live_changes_pauses_and_single_steps(both, monkeypatch):
    def made():
        course = {
            1: [SetKnob("optimizer.lr", 0.05)],
            2: [SetKnob("clipping.kind", "norm"), Pause(), StepOnce(), StepOnce(), Resume()],
            7: [Pause(), StepOnce(), StepOnce(), StepOnce(), SetKnob("optimizer.lr", 0.02)], 10: [Resume()],
            15: [SetKnob("optimizer.lr", 0.01), SetKnob("optimizer.lr", 0.02)], 20: [Compare()],
            21: [SetKnob("accumulation.steps", 3)],
            22: [Compare()], 30: [SetSpeed(2000.0)], 50: [SetSpeed(float("inf")), SetKnob("gradients.noise_std", 0.01)],
            57: [SetKnob("clipping.max_norm", 0.1)],
        }  # fmt: skip
        return driven(new_run(), course, monkeypatch)

    late, direct = both(made)
    check(late, direct)
    assert len(late.timeline) >= 5 and [each.step for each in late.compared] == [20, 22]


@pytest.mark.parametrize("step", [1, 3, 17])
def test_a_stop_leaves_every_row_that_was_made(both, monkeypatch, step):
    late, direct = both(lambda: driven(new_run(), {step: [Stop()]}, monkeypatch))
    check(late, direct)
    assert late.status == "stopped" and len(late.history) == step


def test_a_run_that_stands_shows_all_it_made(both, monkeypatch):
    def made():
        stand = RunDriver.stand
        lengths = []

        def standing(driver, interrupted):
            stand(driver, interrupted)
            lengths.append((len(driver.run.history), driver.trainer.step, driver.run.status))
            worker.send(Resume() if len(lengths) == 1 else Stop())

        run = new_run()
        worker = Worker(run, snapshots=Snapshots(gap=1e9))
        step = RunDriver.step
        with monkeypatch.context() as patch:
            patch.setattr(RunDriver, "stand", standing)
            patch.setattr(
                RunDriver,
                "step",
                lambda driver, status: (step(driver, status), driver.trainer.step in (6, 13) and worker.send(Pause())),
            )
            worker.run()
        assert lengths == [(6, 6, "paused"), (13, 13, "paused")]
        return run

    check(*both(made))


@pytest.mark.parametrize("back", [0, 5, 22])
def test_rewinding_repeats_it(both, back):
    """Every snapshot is of the step that it says; a branch and a replay from it come out the same."""

    def made():
        run, snapshots = new_run("run.steps=30", planned=(Change(11, "optimizer.lr", 0.03),)), Always()
        worker = Worker(run, snapshots=snapshots)
        worker.run()
        assert {kept.step: kept.state.step for kept in snapshots.of(run)} == {step: step for step in range(31)}
        branch = replace(fork(run, back), id="two")
        Worker(branch, snapshots=snapshots, before=worker).run()
        assert branch.differs_at is None
        assert branch.history.column("loss").tobytes() == run.history.column("loss").tobytes()
        again = fork(run, back)
        Worker(again, snapshots=Snapshots(0)).run()
        assert (
            again.differs_at is None and again.history.column("loss").tobytes() == run.history.column("loss").tobytes()
        )
        return branch

    check(*both(made))


def test_a_snapshot_now_and_then_is_of_the_step_that_it_says(monkeypatch):
    monkeypatch.setitem(reading.LAG, "cpu", 4)
    monkeypatch.setattr(pending_rows, "HELD", 0.0)
    monkeypatch.setattr(Snapshots, "due", lambda self, seconds: seconds > 0)
    steps = []
    take = Snapshot.take
    run = new_run()
    monkeypatch.setattr(
        Snapshot, "take", lambda trainer: (steps.append((trainer.step, len(run.history))), take(trainer))[1]
    )
    trained(run)
    assert all(step == rows for step, rows in steps) and len(steps) > 10


def test_gauges_are_measured_where_the_run_stands(monkeypatch):
    monkeypatch.setitem(reading.LAG, "cpu", 4)
    seen = []
    run = new_run("run.steps=20")
    monkeypatch.setattr(GaugeSampler, "due", lambda self, trainer: "noise" if trainer.step in (6, 7, 13) else "")
    monkeypatch.setattr(
        GaugeSampler, "measure", lambda self, trainer, name: seen.append((trainer.step, len(run.history), name))
    )
    trained(run)
    assert seen == [(step, step, "noise") for step in (6, 7, 13)]


def test_twins_in_lockstep(both):
    def made(which):
        def one():
            run = new_run(*BREAKING, "run.steps=40")
            twin = replace(twin_of(run.preset, run.experiment, "optimizer.lr", 0.001), id="two")
            Worker(run, snapshots=Snapshots(gap=1e9), twin=twin, twin_knob="optimizer.lr").run()
            return (run, twin)[which]

        return one

    check(*both(made(0)))
    check(*both(made(1)))


def test_fixes_end_where_they_should(both):
    def made():
        run = new_run(*BREAKING, "run.steps=400")
        snapshots = Always()
        Worker(run, snapshots=snapshots).run()
        trials = Trials(run, snapshots, ["clipping.kind=norm", "loss.eps=0.01", "loss.kind=auto"])
        trials.run()
        return [
            (trial.remedy, trial.outcome, trial.steps, trial.broke_at, trial.loss, trial.message)
            for trial in trials.trials
        ]

    late, direct = both(made)
    assert repr(late) == repr(direct) and {row[1] for row in direct} & {"held"}
