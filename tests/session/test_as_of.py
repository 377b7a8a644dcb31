"""A run as it was at one of its steps: the same as what stood there when the step had just been made."""

from __future__ import annotations

from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.session.record import branches
from gradstudio.session.record.as_of import KnownFindings, as_of, family_as_of
from gradstudio.session.record.branches import Family
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.running.run_driver import RunDriver
from gradstudio.session.words.run_state import describe

KNOBS = {
    "optimizer.lr": 0.05, "model.depth": 3, "model.width": 16, "model.activation": "leaky_relu", "run.steps": 60,
    "run.device": "cpu",
}  # fmt: skip


def test_nothing_of_a_later_step_is_in_a_view() -> None:
    preset = Preset(id="p", title="P", experiment=Experiment().with_values(KNOBS))
    run = Run(preset, preset.experiment)
    driver, then = RunDriver(run, Snapshots()), []
    driver.begin(None, lambda: False)
    while driver.outcome is None:
        if len(run.history) == 30:
            driver.change("optimizer.lr", 1e6)
        driver.step("running")
        driver.settle()
        then.append((dict(run.findings), run.in_force, describe(run), run.first_nonfinite_step))
    driver.end(leaving=True)
    broke, known = run.first_nonfinite_step, KnownFindings(run)
    assert broke is not None and broke > 30 and len(then) == broke + 1 and run.provenance is not None
    assert not known.work_to(len(then) - 1, -1.0) and not known.at(0)  # no time, nothing shown
    for step, (findings, in_force, state, nonfinite) in reversed([*enumerate(then)]):
        assert known.work_to(step, 60.0)
        view = as_of(run, step, known.at(step))
        assert view.findings == findings and view.in_force == in_force, step
        assert len(view.history) == step + 1 and view.first_nonfinite_step == nonfinite
        assert (view.provenance is not None) == (nonfinite is not None)
        assert [change.step for change in view.timeline] == ([30] if step >= 30 else [])
        assert describe(view) == state, step
    assert len(run.history) == len(then) and run.status == "nonfinite"  # the run itself is as it was


def test_a_branch_is_there_from_the_step_on_at_which_it_began() -> None:
    preset = Preset(id="p", title="P", experiment=Experiment().with_values(KNOBS))
    run = Run(preset, preset.experiment)
    driver = RunDriver(run, Snapshots())
    driver.begin(None, lambda: False)
    for _ in range(9):
        driver.step("running")
    driver.end(leaving=True)
    branch = branches.fork(run, 5)
    family = Family([run, branch])
    assert family_as_of(family, run, 4)[0].members.keys() == {run.id}
    both, view = family_as_of(family, run, 5)
    assert both.members.keys() == {run.id, branch.id} and len(view.history) == 6 and both.members[run.id] is view
