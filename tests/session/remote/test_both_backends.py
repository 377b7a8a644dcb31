"""What a simulator does with a run, whether it trains here or in a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from remote_workers import SMALL, Shared
from waiting import ENDLESS, PATIENCE, hold, join, until

from gradstudio.core import presets
from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.session.footprint import budget
from gradstudio.session.library.store import Library
from gradstudio.session.running.backend import Backend, LocalBackend
from gradstudio.session.running.fix_trials import headline
from gradstudio.session.simulator import Simulator

Make = Callable[..., Simulator]


@pytest.fixture(params=["here", "there"])
def make(request: pytest.FixtureRequest, workers: Shared) -> Iterator[Make]:
    backend: Backend = LocalBackend() if request.param == "here" else workers
    made: list[Simulator] = []

    def one(library: Path | None = None, **values: object) -> Simulator:
        knobs = SMALL | {name.replace("__", "."): value for name, value in values.items()}
        small = Preset(id="small", title="Small", experiment=Experiment().with_values(knobs))
        made.append(Simulator(small, library, backend=backend))
        return made[-1]

    yield one
    for each in made:
        assert each.close(PATIENCE)


def over(one: Simulator) -> None:
    until(lambda: one.run.over)


def rewound(one: Simulator, step: int) -> None:
    one.rewind(step)
    until(lambda: one.run.status == "paused" and one.run.replayed is None)


def test_pause_step_and_resume(make: Make) -> None:
    one = make()
    hold(one, 3)
    one.step()
    until(lambda: len(one.run.history) == 4 and one.run.status == "paused")
    one.play()
    over(one)
    until(lambda: not one.busy)  # the worker ends after its run
    assert one.run.status == "finished" and len(one.run.history) == 60 and one.failure == ""
    assert one.run.seconds > 0 and one.run.accuracy is not None


def test_a_live_knob_acts_from_the_next_step_on(make: Make) -> None:
    one = make()
    hold(one, 5)
    one.set("optimizer.lr", 0.25)
    assert one.waiting() == {"optimizer.lr"}
    until(lambda: one.run.in_force.optimizer.lr == 0.25)
    assert one.waiting() == set()
    one.step()
    until(lambda: len(one.run.history) == 6)
    assert one.run.history.value("lr", 5) == 0.25 and [each.step for each in one.run.timeline] == [5]
    assert one.undo() == {"optimizer.lr": one.preset.experiment.optimizer.lr}


def test_a_knob_that_is_undone_before_its_step_leaves_no_trace(make: Make) -> None:
    one = make()
    hold(one, 2)
    one.set("optimizer.lr", 0.25)
    until(lambda: bool(one.run.timeline))
    one.undo()
    until(lambda: not one.run.timeline)
    assert one.run.in_force == one.run.experiment


def test_a_change_that_is_refused(make: Make) -> None:
    one = make(accumulation__steps=2)
    hold(one, 1)
    one.compare()
    until(lambda: len(one.run.compared) == 1 and one.run.status == "paused")
    assert len(one.run.history) == 2


def test_gauges_are_measured_while_it_stands(make: Make) -> None:
    one = make()
    one.watch_gauges(["exponents", "sharpness", "overshoot", "clipping", "noise_scale"])
    hold(one, 12)
    samples = one.run.gauge_samples
    until(lambda: all(samples.get(name, [(0, None)])[-1][0] == 12 for name in ("exponents", "sharpness", "clipping")))
    assert one.run.gauge_samples["exponents"][-1][1].entries > 0 and not one.run.gauge_problems


def test_speed_is_kept(make: Make) -> None:
    one = make(run__steps=ENDLESS)
    one.set_speed(200.0)
    one.play()
    until(lambda: len(one.run.history) > 20)
    one.set_speed(1e-3)
    until(lambda: one.run.status == "running" and len(one.run.history) > 20)
    one.stop()
    over(one)
    assert one.run.status == "stopped" and one.can_resume


def test_a_stopped_run_goes_on_itself(make: Make) -> None:
    one = make(run__steps=ENDLESS)
    hold(one, 7)
    one.stop()
    over(one)
    run = one.run
    one.play()
    until(lambda: len(run.history) > 20)
    assert one.run is run and [each.kind for each in run.events].count("resumed") == 1 and run.differs_at is None


def test_restart_and_show_another_and_remove_it(make: Make) -> None:
    one = make()
    one.play()
    over(one)
    root = one.run
    rewound(one, 20)
    one.set("optimizer.lr", 0.4)
    one.play()
    over(one)
    branch = one.run
    assert branch.parent == root.id and branch.parent_step == 20 and len(branch.history) == 60
    assert branch.what_changed == "optimizer.lr = 0.4"
    one.rename_run(branch, "Faster")
    one.show(root)
    rewound(one, 30)
    assert one.run.parent == root.id and len(one.run.history) == 30
    one.show(branch)
    assert one.run.title == "Faster" and one.remove(branch) == [branch]
    one.restart()
    over(one)
    assert one.run is not root and len(one.family.members) == 1


def test_a_branch_of_a_branch_that_never_went_on(make: Make) -> None:
    one = make()
    one.play()
    over(one)
    rewound(one, 40)
    rewound(one, 20)
    one.play()
    over(one)
    assert len(one.run.history) == 60 and one.run.differs_at is None and len(one.family.members) == 2


def test_rewinding_a_run_that_still_trains(make: Make) -> None:
    one = make(run__steps=ENDLESS)
    one.play()
    until(lambda: len(one.run.history) > 300)
    before = one.run
    rewound(one, 100)
    assert one.run.parent == before.id and one.run.differs_at is None
    assert [each.kind for each in one.run.events][-1] == "branched"


def test_snapshots_are_told_and_a_budget_is_kept(make: Make) -> None:
    one = make(run__steps=ENDLESS)
    one.play()
    until(lambda: len(one.snapshots.steps(one.run)) > 2 and one.snapshots.used > 0)
    one.pause()
    one.snapshots.resize(0)
    until(lambda: len(one.snapshots) == 0)


def test_a_look_into_the_layers(make: Make) -> None:
    one = make()
    one.play()
    over(one)
    for look in (one.trained_by.layers(one.run, 33), one.trained_by.cliff(one.run, 33)):
        look.start()
        join(look)
        assert look.problem == "" == look.failure
    layers = one.trained_by.layers(one.run, 12)
    layers.start()
    join(layers)
    assert layers.sample is not None and layers.sample.step == 12
    assert set(layers.sample.layers) == {layer.name for layer in one.run.history.layers}


def test_a_map_of_time_steps(make: Make) -> None:
    one = make()
    one.set_together({"model.kind": "gru", "problem.task": "adding"})
    one.restart()
    one.play()
    over(one)
    look = one.trained_by.time_map(one.run, 9)
    look.start()
    join(look)
    assert look.problem == "" == look.failure and look.sample is not None
    assert look.sample.steps.tolist() == list(range(10)) and (look.sample.norms > 0).all()


def test_fixes_are_tried_and_the_best_trains_on(make: Make) -> None:
    one = make()
    one.load(presets.load("rnn-explosion"))
    one.set_together({"run.steps": 200})
    one.play()
    over(one)
    assert one.run.first_nonfinite_step is not None
    trials = one.trained_by.trials(one.run)
    trials.start()
    join(trials)
    assert trials.over and trials.failure == "" and trials.best is not None and headline(trials)
    assert all(
        trial.run is not None and len(trial.run.history) == trial.from_step + trial.steps for trial in trials.trials
    )
    future = one.trained_by.future(trials, trials.best, lambda: float("inf"))
    future.start()
    join(future)
    assert future.record.over and len(future.record.history) == one.run.experiment.run.steps


def test_a_run_for_an_exam_and_one_that_is_cancelled(make: Make) -> None:
    one = make()
    from gradstudio.session.record.run import Run

    whole, endless = one.run, Run(one.preset, one.run.experiment.with_value("run.steps", ENDLESS))
    one.trained_by.train_whole(whole, lambda: False)
    assert whole.status == "finished" and len(whole.history) == 60
    one.trained_by.train_whole(endless, lambda: len(endless.history) > 10)
    assert endless.status == "stopped"


def test_the_library_gets_the_run_and_its_snapshots(make: Make, tmp_path: Path) -> None:
    library = tmp_path / "runs.sqlite3"
    one = make(library, run__steps=ENDLESS)
    one.play()
    until(lambda: one.run.seconds > 1.6)
    one.stop()
    over(one)
    run = one.run
    until(lambda: not one.leaves(run.id))
    with closing(Library(library)) as stored:
        again = stored.load(run.id)
        kept = stored.snapshots([run.id])
    assert len(again.history) == len(run.history) and again.status == "stopped" and kept
    other = make(library)
    other.open(again)
    rewound(other, len(again.history) - 1)
    assert other.run.differs_at is None and other.run.parent == run.id


def test_a_run_that_takes_more_memory_than_its_budget(make: Make) -> None:
    one = make(run__memory_budget=1)
    one.set_together({"problem.batch_size": 1024, "model.width": 64, "model.depth": 2})
    one.play()
    over(one)
    assert one.run.refused and "memory_budget" in one.run.message
    assert budget.cached_footprint(one.run.in_force) is not None  # as the window offers what would make it fit


def test_a_preset_that_cannot_be_trained(make: Make) -> None:
    one = make(run__device="cuda:7")
    one.play()
    over(one)
    assert one.run.status == "failed" and one.run.refused and "cuda:7" in one.run.message
