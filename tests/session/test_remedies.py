"""Fixes are tried on the same seed and batches, to the last bit, beside whatever else there is; and ranked by what
happened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from waiting import ENDLESS, PATIENCE, hold, join, until

from gradstudio.core import presets
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.progress import MOVED
from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import COLUMNS
from gradstudio.core.presets import Preset
from gradstudio.session.record import run_outcome
from gradstudio.session.record.branches import last_healthy_step
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.running import fix_trials, remedy_trial
from gradstudio.session.running.fix_trials import Trials
from gradstudio.session.running.remedy_trial import Trial, ranking
from gradstudio.session.running.worker import Worker
from gradstudio.session.running.worker_commands import Resume, SetKnob, StepOnce
from gradstudio.session.simulator import Simulator
from gradstudio.session.words.fix_results import describe_result, describe_trial

MEASURED = [name for name in COLUMNS if name != "step_seconds"]


def trained(
    preset: Preset, planned: tuple[Change, ...] = (), snapshots: Snapshots | None = None, **values: object
) -> Run:
    experiment = preset.experiment.with_values(
        {"run.device": "cpu"} | {name.replace("__", "."): value for name, value in values.items()}
    )
    run = Run(preset, experiment, planned or preset.timeline)
    Worker(run, snapshots=snapshots).run()
    return run


def tried(run: Run, snapshots: Snapshots | None = None, *fixes: str) -> Trials:
    trials = Trials(run, Snapshots() if snapshots is None else snapshots, fixes or None)
    trials.run()
    assert trials.over and not trials.failure and trials.now is None
    return trials


def made_alike(one: Run, other: Run, stop: int) -> bool:
    """Whether two runs are the same to the last bit in every step before this one."""
    assert len(one.history) >= stop <= len(other.history)
    columns = all(
        np.array_equal(
            one.history.column(name, 0, stop).view(np.int64), other.history.column(name, 0, stop).view(np.int64)
        )
        for name in MEASURED
    )
    return columns and np.array_equal(
        one.history.layer_metric("grad_norm", 0, stop), other.history.layer_metric("grad_norm", 0, stop), equal_nan=True
    )


@pytest.fixture(scope="module")
def outlier() -> tuple[Run, Trials, int]:
    """A run that a bad batch has broken, its fixes, and how many snapshots there were before."""
    snapshots = Snapshots(gap=0.01)
    run = trained(presets.load("outlier-batch"), snapshots=snapshots)
    count = len(snapshots)
    trials = tried(run, snapshots)
    assert len(snapshots) == count
    return run, trials, count


def test_without_a_change_the_run_breaks_as_it_did(outlier: tuple[Run, Trials, int]) -> None:
    run, trials, _ = outlier
    unchanged = trials.trials[0]
    assert (unchanged.remedy, unchanged.outcome, unchanged.broke_at) == ("", "broke again", run.first_nonfinite_step)
    assert unchanged.from_step == trials.step == last_healthy_step(run)
    assert (
        unchanged.run
        and made_alike(unchanged.run, run, len(run.history))
        and unchanged.steps == len(run.history) - trials.step
    )


def test_a_live_fix_is_the_run_that_had_it_planned(outlier: tuple[Run, Trials, int]) -> None:
    run, trials, _ = outlier
    live = [trial for trial in trials.trials if trial.remedy and remedy_trial.acts_live(trial.remedy)]
    assert len(live) >= 2
    for trial in live:
        planned = tuple(Change(trials.step, name, value) for name, value in remedy_trial.values(trial.remedy).items())
        alone = trained(run.preset, planned, run__steps=trials.end)
        assert trial.run and made_alike(trial.run, alone, trials.end) and len(trial.run.history) == trials.end
        assert trial.loss == pytest.approx(float(alone.history.column("loss")[-run_outcome.LATEST :].mean()))


def test_clipping_survives_the_outlier_and_learns_on(outlier: tuple[Run, Trials, int]) -> None:
    _, trials, _ = outlier
    best = trials.best_first[0]
    assert best.remedy.startswith("clipping.kind=") and best.outcome == "held" and best.learns and best.loss < 0.5
    assert trials.best_first[-1].remedy == "" and all(trial.seconds > 0 for trial in trials.trials)


def test_a_fix_that_acts_on_restart_is_a_run_from_the_start() -> None:
    snapshots = Snapshots()
    run = trained(presets.load("log-of-zero"), snapshots=snapshots)
    trials = tried(run, snapshots)
    found = {trial.remedy: trial for trial in trials.trials}
    assert list(found) == ["", "loss.eps=1e-7", "loss.kind=auto"] and all(
        found[fix].outcome == "held" for fix in found if fix
    )
    restarted = found["loss.kind=auto"]
    assert (restarted.from_step, restarted.steps) == (0, trials.end) and found[
        "loss.eps=1e-7"
    ].from_step == run.first_nonfinite_step - 1
    assert restarted.run and made_alike(
        restarted.run, trained(run.preset, loss__kind="auto", run__steps=trials.end), trials.end
    )
    assert trials.end == trials.step + fix_trials.HORIZON


def test_a_planned_change_comes_at_its_step_in_a_fix_that_acts_on_restart_too() -> None:
    preset = presets.load("log-of-zero")
    planned = (Change(20, "optimizer.lr", 0.5), Change(40, "clipping.kind", "norm"))
    run = trained(preset, planned)
    assert run.first_nonfinite_step is not None and run.timeline == [planned[0]]
    [restarted] = [trial for trial in tried(run, Snapshots(), "loss.kind=auto").trials if trial.remedy]
    assert restarted.run and restarted.run.experiment == run.experiment.with_value("loss.kind", "auto")
    assert restarted.run.timeline == list(planned)
    assert made_alike(restarted.run, trained(preset, planned, loss__kind="auto"), len(restarted.run.history))


def test_a_change_by_hand_is_in_force_from_the_start_in_a_fix_that_acts_on_restart() -> None:
    planned = (Change(1, "optimizer.lr", 0.5), Change(3, "optimizer.lr", 0.4))
    run = trained(presets.load("log-of-zero"), planned)
    by_hand = [Change(2, "optimizer.lr", 0.3), Change(2, "clipping.kind", "norm")]
    run = replace(run, timeline=[planned[0], *by_hand, planned[1]])
    begun = Trials(run, Snapshots()).restarted_with("loss.kind=auto")
    assert begun == run.experiment.with_values({"optimizer.lr": 0.3, "clipping.kind": "norm", "loss.kind": "auto"})


def test_a_run_of_another_day_has_no_snapshots_and_its_fixes_are_the_same() -> None:
    run = trained(presets.load("log-of-zero"))
    unchanged, first, _ = tried(run).trials
    assert (
        unchanged.broke_at == run.first_nonfinite_step and first.outcome == "held" and first.steps == fix_trials.HORIZON
    )


def test_clipping_does_nothing_against_a_nan_of_the_loss() -> None:
    snapshots = Snapshots()
    run = trained(presets.load("log-of-zero"), snapshots=snapshots)
    _, clipped, _ = tried(run, snapshots, "clipping.kind=norm", "loss.eps=1e-7").trials
    assert (clipped.outcome, clipped.broke_at) == ("no effect", run.first_nonfinite_step)
    assert describe_trial(clipped) == f"no effect, NaN at {run.first_nonfinite_step}"


def test_a_run_that_breaks_at_once_is_tried_from_its_start() -> None:
    snapshots = Snapshots()
    run = trained(presets.load("fp16-overflow"), snapshots=snapshots, run__steps=30)
    trials = tried(run, snapshots)
    assert run.first_nonfinite_step == 0 == trials.step and trials.end == 30
    assert trials.best_first[0].outcome == "held" and trials.best_first[0].remedy.startswith("precision.")


def test_a_critical_finding_of_a_run_that_stayed_finite() -> None:
    snapshots = Snapshots()
    run = trained(presets.load("deep-sigmoid-vanishing"), snapshots=snapshots, run__steps=60, model__depth=12)
    trials = tried(run, snapshots)
    finding = run.findings["vanishing_gradient"]
    assert run.status == "finished" and trials.step == 0 == finding.first_step
    unchanged, best = trials.trials[0], trials.best_first[0]
    assert (
        unchanged.outcome == "broke again"
        and not unchanged.nonfinite
        and describe_trial(unchanged).startswith("again at ")
    )
    assert best.outcome == "held" and best.from_step == 0 and best.run and best.run.parent == ""


def test_a_change_by_hand_before_it_broke_is_in_force_in_every_trial() -> None:
    """Such as the one that broke it: the fork is no earlier."""
    snapshots = Snapshots()
    experiment = Experiment().with_values({"model.width": 16, "model.depth": 1, "run.steps": 100, "run.device": "cpu"})
    run = Run(Preset(id="small", title="Small", experiment=experiment), experiment)
    worker = Worker(run, paused=True, snapshots=snapshots)
    for _ in range(21):
        worker.send(StepOnce())
    worker.start()
    until(lambda: run.status == "paused" and len(run.history) == 21)
    worker.send(SetKnob("optimizer.lr", 1e4))
    worker.send(Resume())
    join(worker)
    [change] = run.timeline
    assert run.status == "nonfinite"
    trials = tried(run, snapshots, "optimizer.lr=0.01", "clipping.kind=norm")
    unchanged, slower, _ = trials.trials
    assert trials.step >= change.step and unchanged.run and made_alike(unchanged.run, run, len(run.history))
    assert unchanged.run.in_force.optimizer.lr == 1e4 and slower.run and slower.run.in_force.optimizer.lr == 0.01
    assert slower.outcome == "held"


def test_what_cannot_be_set_has_failed_and_says_why() -> None:
    snapshots = Snapshots()
    experiment = Experiment().with_values({"model.width": 8, "problem.skip_batches": 3, "run.steps": 20})
    run = trained(
        Preset(id="small", title="Small", experiment=experiment), (Change(5, "optimizer.lr", 0.05),), snapshots
    )
    trials = Trials(
        run, snapshots, ["problem.skip_batches=1", "problem.task=pole", "clipping.max_norm=-1", "clipping.kind=norm"]
    )
    trials.run()
    unchanged, refused, apart, wrong, held = trials.trials
    assert trials.step == 5 and [trial.outcome for trial in trials.trials] == [
        "held",
        "failed",
        "failed",
        "failed",
        "held",
    ]
    assert refused.message and "skip_batches" in refused.message and refused.steps == 0
    assert (
        "problem.task" in apart.message and "clipping.max_norm" in wrong.message and held.steps == unchanged.steps == 15
    )
    assert [trial.outcome for trial in trials.best_first] == ["held", "held", "failed", "failed", "failed"]


def test_a_loss_with_another_weight_is_ranked_without_it() -> None:
    snapshots = Snapshots()
    experiment = Experiment().with_values(
        {"model.width": 16, "optimizer.kind": "adam", "optimizer.lr": 0.001, "run.steps": 60}
    )
    run = trained(Preset(id="small", title="Small", experiment=experiment), snapshots=snapshots)
    _, heavy, bad = tried(run, snapshots, "loss.weight=100", "optimizer.lr=0.3").trials
    assert heavy.loss > bad.loss and heavy.score < bad.score


def test_where_the_loss_need_not_fall_another_measure_ranks() -> None:
    """What a policy's loss is says nothing: it grows with the time that the pole stays up."""
    snapshots = Snapshots()
    knobs = {"clipping__kind": "norm", "run__steps": 30, "problem__seq_len": 100}
    run = trained(presets.load("pole-collapse"), snapshots=snapshots, **knobs)
    trials = tried(run, snapshots, "clipping.max_norm=0.4", "optimizer.lr=0", "clipping.max_norm=2")
    held = [trial for trial in trials.best_first if trial.outcome == "held"]
    shares = [trial.accuracy for trial in held]
    assert len(set(shares)) > 2 and max(shares) - shares[0] <= MOVED and shares[-1] == min(shares)
    assert held[-1].remedy == "optimizer.lr=0"
    assert describe_result(held[0]) == f"pole up {100 * round(shares[0], 2):.3g} % of the time"


# ---- beside others


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    one = Simulator(presets.load("outlier-batch"))
    yield one
    assert one.close(PATIENCE)


def test_a_paused_run_stands_as_it_was_and_goes_on_as_if_nothing_had_been(simulator: Simulator) -> None:
    simulator.set("run.device", "cpu")
    simulator.set("run.steps", 90)
    hold(simulator, 1)
    run, kept = simulator.run, len(simulator.snapshots)
    trials = Trials(run, simulator.snapshots, ["clipping.kind=norm"])
    trials.start()
    join(trials)
    assert trials.over and not trials.failure and trials.trials[1].steps == 90
    assert (
        len(run.history) == 1 and run.status == "paused" and len(simulator.snapshots) == kept and simulator.run is run
    )
    simulator.play()
    until(lambda: run.over)
    assert made_alike(run, trained(run.preset, run__steps=90), 90)


def test_trials_and_a_run_at_the_same_time_do_not_disturb_each_other(outlier: tuple[Run, Trials, int]) -> None:
    run, alone, _ = outlier
    other = Run(run.preset, run.experiment.with_value("run.seed", 5))
    worker, trials = Worker(other), Trials(run, Snapshots())
    worker.start()
    trials.start()
    join(worker)
    join(trials)
    assert made_alike(other, trained(run.preset, run__seed=5), len(other.history))
    for one, two in zip(trials.trials, alone.trials, strict=True):
        assert (one.remedy, one.outcome, one.loss, one.broke_at) == (two.remedy, two.outcome, two.loss, two.broke_at)


def test_it_stops_at_once_and_keeps_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fix_trials, "HORIZON", ENDLESS)
    run = trained(presets.load("log-of-zero"), run__steps=ENDLESS)
    trials = Trials(run, Snapshots())
    trials.start()
    until(lambda: trials.trials[0].outcome is not None and trials.now is not None and trials.now.steps > 3)
    assert trials.progress.endswith(f"of {trials.end:,}")
    trials.stop()
    steps = trials.trials[1].steps
    join(trials)
    assert trials.over and trials.trials[1].steps <= steps + 1, "the step in which it was told to stop is the last"
    assert trials.trials[0].outcome == "broke again" and [trial.outcome for trial in trials.trials[1:]] == [
        "not tried"
    ] * (len(trials.trials) - 1)


def test_stopped_on_the_way_to_where_it_begins() -> None:
    run = trained(presets.load("outlier-batch"))
    trials = Trials(run, Snapshots())
    trials.stop()
    trials.run()
    assert {trial.outcome for trial in trials.trials} == {"not tried"} and trials.progress == ""


# ---- what is tried, and in which order it is told


def test_what_is_tried_is_what_the_findings_offer() -> None:
    run = Run(presets.load("log-of-zero"), Experiment())
    assert remedy_trial.candidates(run) == [""] and not fix_trials.broken(run)
    offer(run, "clipping.kind=norm", "optimizer.lr=0.01", "optimizer.lr=0.001", "optimizer.lr=0.0001")
    offer(run, "clipping.max_norm=3", rule="clipping_never", severity="info")  # a note is no fault
    assert fix_trials.broken(run)
    assert remedy_trial.candidates(run) == [
        "clipping.kind=norm",
        "optimizer.lr=0.01",
        "optimizer.lr=0.001",
        "optimizer.lr=0.0001",
        "",
    ]
    offer(
        run,
        "model.norm=batch",
        "clipping.kind=norm",
        "model.residual=true model.norm=batch",
        "model.depth=5",
        rule="x",
        severity="warning",
    )
    found = remedy_trial.candidates(run)
    assert found[0] == "clipping.kind=norm" and "model.norm=batch" in found and found[-1] == ""
    assert len(found) == len(set(found)) == remedy_trial.MOST + 1


def test_the_ranking_goes_by_what_happened() -> None:
    trials = [
        Trial("", outcome="broke again", broke_at=100, loss=3.0),
        Trial("failed", outcome="failed"),
        Trial("never", outcome="not tried"),
        Trial("earlier", outcome="broke again", broke_at=50),
        Trial("nothing", outcome="no effect", broke_at=101),
        Trial("later", outcome="broke again", broke_at=150),
        Trial("latest", outcome="broke again", broke_at=180),
        Trial("rises", outcome="held", loss=0.5, learns=False, score=0.5),
        Trial("worse", outcome="held", score=2.0),
        Trial("good", outcome="held", score=1.0),
        Trial("waits"),
    ]
    order = ["good", "worse", "rises", "latest", "later", "nothing", "", "earlier", "failed", "never", "waits"]
    assert [trial.remedy for trial in ranking(trials)] == order
    assert remedy_trial.as_json(trials[:1]) == [
        {"remedy": "", "outcome": "broke again", "from_step": 0, "steps": 0, "broke_at": 100, "loss": 3.0}
    ]


def test_a_mistake_in_the_loop_is_mended_before_a_knob_hides_it() -> None:
    run = Run(presets.load("log-of-zero"), Experiment().with_value("mistakes.never_zero_grad", True))
    offer(run, "clipping.kind=norm", "optimizer.lr=0.01")
    offer(run, "mistakes.never_zero_grad=false", rule="loop_order", severity="warning")
    assert remedy_trial.candidates(run)[0] == "mistakes.never_zero_grad=false"
    held = [
        Trial("clipping.kind=norm", outcome="held", accuracy=0.98, score=0.1),
        Trial("mistakes.never_zero_grad=false", outcome="held", accuracy=0.93, score=0.4),
    ]
    assert ranking(held)[0].remedy == "mistakes.never_zero_grad=false"


def test_fixes_that_reach_the_same_are_ranked_by_how_little_they_change() -> None:
    held = [
        Trial("model.norm=batch model.residual=true", outcome="held", accuracy=0.95, score=0.1),
        Trial("model.norm=batch", outcome="held", accuracy=0.94, score=0.2),
        Trial("clipping.kind=norm", outcome="held", accuracy=0.93, score=0.3),
        Trial("optimizer.lr=0.01", outcome="held", accuracy=0.6, score=0.05),
        Trial("optimizer.lr=0.001", outcome="held", accuracy=0.1, score=0.01, useless=True),
    ]
    assert [trial.remedy for trial in ranking(held)] == [
        "clipping.kind=norm", "model.norm=batch", "model.norm=batch model.residual=true", "optimizer.lr=0.01",
        "optimizer.lr=0.001",
    ]  # fmt: skip
    assert describe_trial(held[-1]) == "survives, learns nothing"


def test_a_remedy_is_told_as_a_person_reads_it() -> None:
    assert remedy_trial.in_words("model.norm=batch model.residual=true") == "model.norm = batch, model.residual = true"
    assert remedy_trial.in_words("") == "no change"
    assert (
        not remedy_trial.acts_live("clipping.kind=norm model.norm=batch")
        and remedy_trial.acts_live("clipping.kind=norm")
        and remedy_trial.acts_live("")
    )


def offer(run: Run, *fixes: str, rule: str = "exploding_gradient", severity: str = "critical") -> None:
    RunWriter(run).find(Finding(rule, severity, "Title", 0, 0, (), "", "", fixes))
