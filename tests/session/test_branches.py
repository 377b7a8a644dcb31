"""A branch made at step N with a change is, from step N on, a run that had that change in its timeline from the start:
bit for bit."""

from __future__ import annotations

import math
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor
from waiting import ENDLESS, PATIENCE, until

from gradstudio.core import history as histories
from gradstudio.core import presets, row_blocks
from gradstudio.core.events import Change
from gradstudio.core.experiment import KNOBS, Experiment
from gradstudio.core.history import COLUMNS, LAYER_METRICS
from gradstudio.core.knobs import KnobError, Value
from gradstudio.core.presets import Preset
from gradstudio.engine import operation_watcher
from gradstudio.engine.passes import forward_backward
from gradstudio.session.files.run_files import as_preset
from gradstudio.session.library.store import Library
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.record.branches import fork
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.running.run_driver import RunDriver
from gradstudio.session.running.worker import Worker
from gradstudio.session.running.worker_commands import SetKnob
from gradstudio.session.simulator import Simulator

SMALL = {"model.width": 8, "model.depth": 1, "problem.batch_size": 8, "run.steps": 12, "run.device": "cpu"}
FP16 = {
    "precision.dtype": "fp16",
    "precision.init_scale": 1e6,
    "precision.growth_interval": 3,
}  # overflows first, grows soon
NEWS = ("finding", "loop", "step_skipped", "outlier", "nonfinite", "knob_changed", "knob_refused", "compared")


@pytest.fixture(autouse=True)
def passes_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Early, so that short runs are made of recorded and of other passes."""
    monkeypatch.setattr(forward_backward, "PATIENCE", 2)


class Often(Snapshots):
    """As many as a test wants: at every so many steps, or at step 0 alone."""

    def __init__(self, every: int = 1) -> None:
        super().__init__()
        self._every, self._asked = every, 0

    def due(self, seconds: float) -> bool:
        self._asked += 1
        return bool(self._every) and self._asked % self._every == 0


class Gate(Often):
    """None but at step 0; and the thread that asks for one the so-manieth time is held there."""

    def __init__(self, number: int) -> None:
        super().__init__(0)
        self._number, self.reached, self.passable = number, threading.Event(), threading.Event()

    def due(self, seconds: float) -> bool:
        if super().due(seconds) or self._asked == self._number:
            self.reached.set()
            assert self.passable.wait(PATIENCE)
        return False


def preset(*timeline: Change, **values: object) -> Preset:
    knobs = SMALL | {name.replace("__", "."): value for name, value in values.items()}
    return Preset(id="small", title="Small", experiment=Experiment().with_values(knobs), timeline=timeline)


def trained(
    of: Preset,
    *more: Change,
    steps: int | None = None,
    snapshots: Snapshots | None = None,
    compare_at: tuple[int, ...] = (),
) -> Run:
    """The run of a preset with further changes planned, to its end or for so many steps."""
    experiment = of.experiment.with_value("run.steps", steps) if steps else of.experiment
    run = Run(of, experiment, tuple(sorted((*of.timeline, *more), key=lambda change: change.step)), compare_at)
    Worker(run, snapshots=snapshots).run()
    return run


def branched(parent: Run, step: int, *changes: tuple[str, Value], snapshots: Snapshots) -> Run:
    """Taken back to a step, changed there, and trained to its end."""
    run = fork(parent, step)
    worker = Worker(run, snapshots=snapshots)
    for name, value in changes:
        worker.send(SetKnob(name, value))
    worker.run()
    return run


def same(one: Run, other: Run, *, events: bool = True) -> None:
    """Every bit that was measured, and everything that was made of it."""
    assert (one.status, one.message, len(one.history)) == (other.status, other.message, len(other.history))
    assert one.differs_at is None and one.replayed is None
    assert one.timeline == other.timeline and one.in_force == other.in_force
    same_rows(one, other)
    assert one.findings == other.findings
    assert one.first_nonfinite_step == other.first_nonfinite_step and repr(one.accuracy) == repr(other.accuracy)
    assert repr(one.compared) == repr(other.compared)
    if events:
        told = [
            [(event.step, event.kind, event.text) for event in run.events if event.kind in NEWS] for run in (one, other)
        ]
        assert told[0] == told[1]


def same_rows(one: Run, other: Run, count: int | None = None) -> None:
    for name in COLUMNS:
        if name != "step_seconds":
            columns = [run.history.column(name, 0, count) for run in (one, other)]
            parted = np.flatnonzero(columns[0].view(np.int64) != columns[1].view(np.int64))
            assert not len(parted), f"{name} differs from step {parted[0]} on"
    for name in LAYER_METRICS:
        assert (
            one.history.layer_metric(name, 0, count).tobytes() == other.history.layer_metric(name, 0, count).tobytes()
        ), name
    if count is None:
        for noted, others in zip(one.history._notes(), other.history._notes(), strict=True):
            assert repr(noted) == repr(others)


# ---- a branch, without a window and without threads


LIVE = [name for name, found in KNOBS.items() if found.live]
UNDRAWN = ("mistakes.unscale_twice", "mistakes.never_update_scaler", "run.stop_on_nonfinite")  # they end a run
OTHERS: dict[str, list[Value]] = {
    "clipping.kind": ["norm", "value", "agc", "per_tensor", "per_module", "per_network", "zclip", "adagc"], "clipping.on_spike": ["skip", "rewind"], "precision.dtype": ["fp32", "bf16"],
    "precision.scaling": ["static", "none"],
    "schedule.kind": ["linear", "exponential"], "schedule.warmup_steps": [8], "schedule.total_steps": [9],
    "accumulation.steps": [3],
    "problem.outlier_every": [4], "problem.nan_every": [5], "problem.skip_batches": [3], "precision.growth_interval": [1], "loss.eps": [0.1],
    "optimizer.momentum": [0.5], "clipping.max_norm": [0.01], "optimizer.weight_decay": [0.3],
}  # fmt: skip
# Under these every live knob acts on something. A learning rate that is on its way up, noise, two micro-batches,
# overflows.
ACTING = {
    "schedule__warmup_steps": 6, "schedule__kind": "cosine", "schedule__total_steps": 11, "accumulation__steps": 2,
    "optimizer__lr": 0.05,
    "optimizer__momentum": 0.9, "problem__outlier_every": 3, "problem__outlier_scale": 3.0,
    "gradients__noise_std": 0.001, "problem__noise": 0.1,
    "clipping__kind": "norm", "clipping__max_norm": 0.5,
}  # fmt: skip


def others(name: str) -> list[Value]:
    """Further values of a live knob that are none of those above."""
    found = KNOBS[name]
    if name in OTHERS:
        return OTHERS[name]
    return [not found.default] if isinstance(found.default, bool) else [0.37 * found.default or 0.001]


@pytest.fixture(scope="module")
def parent() -> tuple[Preset, Run, Snapshots]:
    """A run under which every live knob acts, with a snapshot of each of its steps."""
    of, snapshots = preset(**ACTING, **{name.replace(".", "__"): value for name, value in FP16.items()}), Often()
    run = trained(of, snapshots=snapshots)
    assert 0 < run.history.column("skipped").sum() < 6 and len(snapshots) == 13
    return of, run, snapshots


STEPS = (0, 1, 4, 11, 12)  # beside 7: the first, some overflow, the last, and behind it


@pytest.mark.parametrize("name", LIVE)
def test_a_branch_is_a_run_with_the_change_in_its_timeline(
    monkeypatch: pytest.MonkeyPatch, parent: tuple[Preset, Run, Snapshots], name: str
) -> None:
    """At step 7 with its first value, amid recorded passes; at one of the other steps with each, and at all of them with
    the learning rate."""
    of, run, snapshots = parent
    for number, value in enumerate(others(name)):
        chosen = STEPS if name == "optimizer.lr" else STEPS[(LIVE.index(name) + number) % 5 :][:1]
        for step in (*[7][number:], *chosen):
            monkeypatch.setattr(forward_backward, "PATIENCE", 2 if step == 7 else math.inf)
            straight = trained(of, Change(step, name, value))
            same(branched(run, step, (name, value), snapshots=snapshots), straight)
            if step == 7 and name == "optimizer.lr":
                same(branched(run, step, (name, value), snapshots=Snapshots()), straight)


@pytest.mark.parametrize(("task", "model", "optimizer"), [
    ("digits", "mlp", "adamw"), ("adding", "rnn", "adam"), ("copy", "lstm", "rmsprop"), ("characters", "gru", "sgd"),
    ("digits", "cnn", "adam"), ("characters", "transformer", "adamw"), ("ring", "gan", "sgd"),
    ("pole", "policy", "rmsprop"), ("spirals", "mlp", "adam"), ("sequential_digits", "rnn", "adamw"),
])  # fmt: skip
def test_every_model_and_task_branches(monkeypatch: pytest.MonkeyPatch, task: str, model: str, optimizer: str) -> None:
    """From a snapshot, with recorded passes; and from where a run without any is repeated up to the step."""
    dtype = {"sgd": "fp32", "adam": "bf16", "adamw": "fp16", "rmsprop": "fp32"}[optimizer]
    knobs = ACTING | {
        "problem.task": task,
        "model.kind": model,
        "optimizer.kind": optimizer,
        "precision.dtype": dtype,
        "problem.seq_len": 4,
        "schedule.warmup_steps": 4,
        "schedule.total_steps": 8,
        "run.steps": 9,
    }
    of = preset(
        **{name.replace(".", "__"): value for name, value in knobs.items()},
        precision__init_scale=1e9,
        model__norm="batch",
    )
    snapshots = Often(4)
    run = trained(of, snapshots=snapshots)
    assert run.status == "finished"
    for step, patience in ((6, 2), (3, math.inf)):
        monkeypatch.setattr(forward_backward, "PATIENCE", patience)
        same(
            branched(run, step, ("optimizer.lr", 0.01), snapshots=snapshots),
            trained(of, Change(step, "optimizer.lr", 0.01)),
        )


def kinds_of_presets() -> list[Preset]:
    """The first bundled preset of each kind of model, task, number format and way of clipping, of those that train in
    one process; its model and its batches are made small."""
    found = {}
    for of in map(presets.read, presets.available()):
        knobs = of.experiment
        if knobs.distributed.ranks > 1:
            continue
        kind = (knobs.model.kind, knobs.problem.task, knobs.precision, knobs.clipping.kind != "none")
        found.setdefault(tuple(map(str, kind)), of)
    return list(map(made_small, found.values()))


MOST = {"model.width": 16, "model.depth": 4, "problem.batch_size": 8, "problem.seq_len": 16}


def made_small(of: Preset) -> Preset:
    knobs = of.experiment
    small = {name: min(knobs[name], most) for name, most in MOST.items()}
    small |= {"run.device": "cpu", "run.steps": 9, "run.memory_budget": 0}
    return of.model_copy(update={"experiment": knobs.with_values(small)})


@pytest.mark.parametrize("of", kinds_of_presets(), ids=lambda of: of.id)
def test_every_kind_of_preset_branches(of: Preset) -> None:
    fix = of.promise.fix if of.promise else []
    values = [
        (name, of.experiment.with_texts([text])[name]) for text in fix if KNOBS[name := text.partition("=")[0]].live
    ]
    values = [(name, value) for name, value in values if value != of.experiment[name]] or [("optimizer.lr", 0.003)]
    snapshots = Often(3)
    run = trained(of, snapshots=snapshots)
    step = max(min(5, len(run.history) - 1), 0)
    same(branched(run, step, *values, snapshots=snapshots), trained(of, *(Change(step, *value) for value in values)))


def test_changes_that_the_parent_made_at_the_very_step_are_made_first() -> None:
    timeline = (
        Change(2, "clipping.kind", "norm"),
        Change(5, "optimizer.lr", 0.3),
        Change(5, "accumulation.steps", 3),
        Change(8, "loss.weight", 2.0),
    )
    of, snapshots = preset(*timeline, schedule__warmup_steps=9), Often(3)
    run = trained(of, snapshots=snapshots)
    assert tuple(run.timeline) == timeline
    changes = [
        ("optimizer.lr", 0.7),
        ("optimizer.lr", 0.1),
        ("optimizer.lr", 0.3),
        ("accumulation.steps", 1),
        ("loss.weight", 2.0),
    ]
    for step, tried in {4: changes[2:4], 5: changes, 6: changes[1:4], 8: changes[3:], 12: changes[:1]}.items():
        for name, value in tried:
            same(branched(run, step, (name, value), snapshots=snapshots), trained(of, Change(step, name, value)))


def test_a_branch_of_a_branch_of_a_branch() -> None:
    of, snapshots = (
        preset(Change(3, "optimizer.lr", 0.2), Change(9, "clipping.kind", "value"), problem__noise=0.1),
        Often(4),
    )
    run, changes = trained(of, snapshots=snapshots), []
    steps = [
        ("optimizer.lr", 0.05),
        ("gradients.noise_std", 0.01),
        ("accumulation.steps", 2),
        ("precision.dtype", "bf16"),
        ("loss.weight", 3.0),
    ]
    for step, (name, value) in zip(
        (2, 4, 5, 9, 9), steps, strict=True
    ):  # the last two at one step, one in a branch of the other
        run = branched(run, step, (name, value), snapshots=snapshots)
        changes.append(Change(step, name, value))
        same(run, trained(of, *changes))
    assert list(run.ancestors.values()) == [2, 4, 5, 9, 9] and run.own == 3
    before = branched(
        run, 4, ("loss.weight", 7.0), snapshots=snapshots
    )  # in what four runs have in common: the changes up to there are made
    same(before, trained(of, *changes[:2], Change(4, "loss.weight", 7.0)))


@pytest.mark.parametrize("skipping", [(0, 0), (2, 5), (0, 3)])
def test_past_an_outlier_and_past_it_again(skipping: tuple[int, int]) -> None:
    """To `late`, and to one batch more: in turns, so that with the three of them each step has both."""
    early, late = skipping
    of, snapshots = (
        preset(
            problem__outlier_every=4, problem__outlier_scale=50.0, problem__skip_batches=early, accumulation__steps=2
        ),
        Often(3),
    )
    run = trained(of, snapshots=snapshots)
    for number, step in enumerate((3, 4, 5, 8), late // 2):
        value = late + number % 2
        branch = branched(run, step, ("problem.skip_batches", value), snapshots=snapshots)
        same(branch, trained(of, Change(step, "problem.skip_batches", value)))
        again = branched(
            branch, step + 2, ("problem.skip_batches", value + 1), ("accumulation.steps", 1), snapshots=snapshots
        )
        same(
            again,
            trained(
                of,
                *branch.timeline,
                Change(step + 2, "problem.skip_batches", value + 1),
                Change(step + 2, "accumulation.steps", 1),
            ),
        )


def test_what_was_passed_over_cannot_come_back_in_a_branch_either() -> None:
    of, snapshots = preset(Change(5, "problem.skip_batches", 4)), Often(3)
    run = trained(of, snapshots=snapshots)
    assert branched(run, 5, ("problem.skip_batches", 0), snapshots=snapshots).timeline == []  # before any was
    late = branched(run, 6, ("problem.skip_batches", 3), snapshots=snapshots)
    assert len(late.refusals) == 1 and late.timeline == run.timeline
    same(late, trained(of, Change(6, "problem.skip_batches", 3)))


@pytest.mark.parametrize("scaling", ["dynamic", "static", "none"])
def test_the_scaler_goes_on_in_a_branch(scaling: str) -> None:
    """Before, between and after skipped steps, and where the number format changes and comes back."""
    of = preset(
        precision__dtype="fp16",
        precision__scaling=scaling,
        precision__init_scale=1e9,
        precision__growth_interval=3,
        run__stop_on_nonfinite=False,
    )
    snapshots = Often(4)
    run = trained(of, snapshots=snapshots)
    changes = [("precision.dtype", "fp32"), ("clipping.kind", "norm")]
    if scaling == "dynamic":  # the others have no state that differs from step to step
        changes.insert(1, ("precision.growth_interval", 1))
    for step in range(0, 12, 2 if scaling == "dynamic" else 5):
        for name, value in changes:
            branch = branched(run, step, (name, value), snapshots=snapshots)
            same(branch, trained(of, Change(step, name, value)))
        back = branched(branch, min(step + 3, 12), ("precision.dtype", "bf16"), snapshots=snapshots)
        again = branched(back, min(step + 5, 12), ("precision.dtype", "fp16"), snapshots=snapshots)
        same(again, trained(of, *again.timeline))


@pytest.mark.parametrize(
    "broken",
    [{"problem__input_scale": 1e25, "optimizer__lr": 1e6}, {"optimizer__lr": 1e6, "mistakes__never_zero_grad": True}],
)
@pytest.mark.parametrize("stops", [True, False])
def test_a_branch_of_a_run_that_went_non_finite(broken: dict[str, object], stops: bool) -> None:
    of, snapshots = preset(**broken, run__stop_on_nonfinite=stops), Often(2)
    run = trained(of, snapshots=snapshots)
    broke = run.first_nonfinite_step
    assert run.status == "nonfinite" and broke is not None and stops == (len(run.history) == broke + 1)
    for step in range(broke + 1):
        for name, value in (("optimizer.lr", 1e-9), ("run.stop_on_nonfinite", not stops)):
            branch = branched(run, step, (name, value), snapshots=snapshots)
            same(branch, trained(of, Change(step, name, value)))
    if not stops:
        after = branched(run, broke + 2, ("loss.weight", 2.0), snapshots=snapshots)
        assert after.first_nonfinite_step == broke
        same(after, trained(of, Change(broke + 2, "loss.weight", 2.0)))


# Each breaks at step 4: an overflow that no scaler skips, and 0/0 where the gradient was always 0.
BREAKING = {
    "fp16": (
        preset(precision__dtype="fp16", run__stop_on_nonfinite=False),
        [("mistakes.step_without_scaler", True), ("loss.weight", 1e30)],
    ),
    "adam": (
        preset(optimizer__kind="adam", run__stop_on_nonfinite=False, problem__noise=0.0),
        [("optimizer.eps", 0.0)],
    ),
}


@pytest.mark.parametrize("calls", [None, 0, 50, 150])
@pytest.mark.parametrize("name", BREAKING)
def test_looking_for_the_birth_of_a_nan_leaves_no_trace_even_where_it_fails(
    monkeypatch: pytest.MonkeyPatch, name: str, calls: int | None
) -> None:
    """For want of time, or by a fault of its own after so many calls: the run goes on where it stood."""
    of, changes = BREAKING[name]
    planned = tuple(Change(4, *change) for change in changes)
    plain = trained(of, *planned, snapshots=Often(0))
    assert plain.provenance is not None and len(plain.history) == 12
    values_of, made = operation_watcher.values_of, 0

    def broken(tensor: Tensor) -> operation_watcher.Values:
        nonlocal made
        made += 1
        if calls is not None and made > calls:
            raise RuntimeError("the watch broke")
        return values_of(tensor)

    monkeypatch.setattr(operation_watcher, "values_of", broken)
    run = Run(of, of.experiment, planned)
    driver = RunDriver(run, Often(0))
    driver.begin(None, lambda: calls is None and len(run.history) == plain.first_nonfinite_step + 1)
    while driver.outcome is None:
        driver.change_as_planned()
        driver.step("running")
    driver.end(leaving=False)
    assert run.provenance is None
    same(run, plain)


def test_a_branch_of_a_run_that_failed() -> None:
    of, snapshots = (
        preset(
            Change(7, "mistakes.unscale_twice", True),
            **{name.replace(".", "__"): value for name, value in FP16.items()},
        ),
        Often(3),
    )
    run = trained(of, snapshots=snapshots)
    assert run.status == "failed" and len(run.history) == 7
    mended = branched(run, 7, ("mistakes.unscale_twice", False), snapshots=snapshots)
    assert mended.status == "finished"
    same(mended, trained(of, Change(7, "mistakes.unscale_twice", False)))
    for step in (2, 7):
        same(
            branched(run, step, ("optimizer.lr", 0.2), snapshots=snapshots),
            trained(of, Change(step, "optimizer.lr", 0.2)),
        )


def test_a_branch_of_a_run_whose_update_of_the_scaler_is_missing() -> None:
    """The fault is of the step before the one that torch refuses, so only a branch from there can mend it."""
    knobs = {name.replace(".", "__"): value for name, value in FP16.items()}
    of, snapshots = preset(Change(7, "mistakes.never_update_scaler", True), **knobs), Often(1)
    run = trained(of, snapshots=snapshots)
    assert run.status == "failed" and len(run.history) == 8 and "after step()" in run.message
    for step, status in ((7, "finished"), (8, "failed")):
        mended = branched(run, step, ("mistakes.never_update_scaler", False), snapshots=snapshots)
        assert mended.status == status
        same(mended, trained(of, Change(step, "mistakes.never_update_scaler", False)))


def test_a_run_of_the_library_branches_without_a_snapshot(tmp_path: Path) -> None:
    of, snapshots = preset(Change(3, "optimizer.lr", 0.2), problem__noise=0.1, problem__outlier_every=5), Often(4)
    keeper = LibraryWriter(tmp_path / "library.sqlite3")
    run = trained(of, compare_at=(2, 8), snapshots=snapshots)
    branch = branched(run, 6, ("clipping.kind", "norm"), snapshots=snapshots)
    for each in (run, branch):
        keeper.follow(each)
    assert keeper.close(10) and not keeper.problem
    library = Library(tmp_path / "library.sqlite3")
    for step in (0, 3, 4, 6, 9):
        again = branched(library.load(branch.id), step, ("optimizer.lr", 0.01), snapshots=Snapshots())
        same(
            again,
            trained(
                of,
                *([Change(6, "clipping.kind", "norm")] if step >= 6 else []),
                Change(step, "optimizer.lr", 0.01),
                compare_at=(2, 8),
            ),
        )
    library.close()


@pytest.mark.parametrize("knobs", [
    {"problem__input_scale": 1e25, "optimizer__lr": 1e6}, {"mistakes__never_zero_grad": True, "optimizer__lr": 0.5},
    {"problem__outlier_every": 3, "problem__outlier_scale": 1e3, "run__steps": 40},
    {"precision__dtype": "fp16", "precision__init_scale": 1e8},
    {"model__depth": 12, "model__activation": "sigmoid", "run__steps": 80, "model__init": "normal"},
], ids=lambda knobs: " ".join(f"{name}={value}" for name, value in knobs.items()))  # fmt: skip
def test_what_is_known_at_a_step_is_what_was_known_then(knobs: dict[str, object]) -> None:
    """Findings, events, stretches of calls and comparisons before step N are those of a run of N steps."""
    of, snapshots = (
        preset(Change(5, "clipping.kind", "norm"), Change(9, "mistakes.clip_after_step", True), **knobs),
        Often(7),
    )
    run = trained(of, snapshots=snapshots, compare_at=(1, 4, 9))
    assert run.findings
    for step in sorted({1, 2, 5, 6, 9, 10, 11, len(run.history) // 2, len(run.history) - 1}):
        if not 0 < step < len(run.history):
            continue
        there, short = fork(run, step), Run(of, of.experiment, of.timeline, (1, 4, 9))
        for each in (there, short):
            driver = RunDriver(each, snapshots if each is there else Snapshots())
            driver.begin(None, lambda: False)
            while driver.trainer.step < step:
                driver.change_as_planned()
                driver.step("running")
            driver.settle()
        assert there.findings == short.findings and repr(there.compared) == repr(short.compared)
        assert there.first_nonfinite_step == short.first_nonfinite_step
        assert there.history.loops == short.history.loops
        told = [
            [(event.step, event.kind, event.text) for event in run.events if event.kind in NEWS and event.step < step]
            for run in (there, short)
        ]
        assert told[0] == told[1]
        same_rows(there, short)


# ---- through the simulator, as the window does it


@pytest.fixture
def simulator() -> Iterator[Callable[[Preset], Simulator]]:
    made: list[Simulator] = []

    def make(of: Preset, every: int = 3) -> Simulator:
        made.append(Simulator(of))
        made[-1].trained_by.snapshots = Often(every)
        return made[-1]

    yield make
    for one in made:
        assert one.close(PATIENCE)


def make_steps(one: Simulator, count: int) -> None:
    for _ in range(count):
        rows = len(one.run.history)
        one.step()
        until(lambda rows=rows: len(one.run.history) > rows or one.run.over)
    until(lambda: one.run.over or one.run.status == "paused")


def go_back(one: Simulator, step: int) -> None:
    one.rewind(step)
    until(lambda: one.run.over or one.run.status == "paused")
    assert one.run.over or len(one.run.history) == step


def change(one: Simulator, name: str, value: Value) -> None:
    """And wait until it is in force, or was refused."""
    refused = len(one.run.refusals)
    one.set(name, value)
    until(lambda: one.run.over or one.run.in_force[name] == value or len(one.run.refusals) > refused)


def finish(one: Simulator) -> Run:
    one.play()
    until(lambda: one.run.over)
    return one.run


def straight(one: Run) -> Run:
    """The run of the timeline that a run is exported with, for as many steps."""
    assert one.differs_at is None and one.replayed is None
    whole = as_preset(one)
    experiment = whole.experiment.with_value("run.steps", max(len(one.history), 1))
    run = Run(whole, experiment, whole.timeline)
    Worker(run).run()
    return run


def same_course(one: Run) -> None:
    """What was made is what its timeline makes."""
    other = straight(one)
    if not len(one.history):
        return
    same_rows(one, other)
    assert one.findings == other.findings
    told = [
        [
            (event.step, event.kind, event.text)
            for event in run.events
            if event.kind in NEWS and event.step < len(one.history)
        ]
        for run in (one, other)
    ]
    assert [event for event in told[0] if not event[1].startswith("knob")] == [
        event for event in told[1] if not event[1].startswith("knob")
    ]


def test_rewinding_while_it_runs(simulator: Callable[..., Simulator]) -> None:
    of = preset(run__steps=ENDLESS, problem__noise=0.1, optimizer__momentum=0.9, accumulation__steps=2)
    one = simulator(of, every=20)
    one.play()
    seen = []
    for step in (30, 7, 50, 20):
        until(lambda step=step: one.run.own > 3 and len(one.run.history) > step + 5)
        before = one.run
        go_back(one, step)  # of the branch that runs
        assert before.status == "stopped" and one.run is not before
        change(one, "optimizer.lr", 0.01 + step / 1000)
        one.play()
        seen.append(before)
    until(lambda: one.run.own > 10)
    one.stop()
    until(lambda: one.run.over)
    for run in (*seen, one.run):
        same_course(run)
    assert [change.step for change in one.run.timeline] == [7, 20] and len(one.family.members) == 5


def test_rewinding_again_before_the_first_has_come_to_its_end(simulator: Callable[..., Simulator]) -> None:
    of = preset(run__steps=400, problem__noise=0.1)
    one = simulator(of, every=0)  # every way back is long
    finish(one)
    for step in (350, 300, 390, 10, 200, 380):
        one.rewind(step)
        one.set("optimizer.lr", 1.0)  # acts there, if there is time
        one.set("loss.weight", 2.0)
    one.rewind(333)
    until(lambda: one.run.status == "paused")
    assert len(one.run.history) == 333 and one.run.timeline == [] and len(one.family.members) == 2
    change(one, "optimizer.lr", 0.2)
    same(finish(one), trained(of, Change(333, "optimizer.lr", 0.2)))


def test_stopping_on_the_way_back_and_going_back_from_there(simulator: Callable[..., Simulator]) -> None:
    of = preset(run__steps=400, problem__noise=0.1)
    one = simulator(of, every=0)
    whole = finish(one)
    one.trained_by.snapshots = Gate(200)
    one.rewind(390)
    until(one.snapshots.reached.is_set)
    one.stop()
    one.snapshots.passable.set()
    until(lambda: one.run.over)
    assert one.run.status == "stopped" and one.run.accuracy is None, "there was no model of that step to judge"
    go_back(one, 390)
    change(one, "optimizer.lr", 0.2)
    same(finish(one), trained(of, Change(390, "optimizer.lr", 0.2)))
    assert whole.status == "finished" and whole.own == 400


def test_a_change_that_is_taken_back_at_its_step_leaves_no_trace(simulator: Callable[..., Simulator]) -> None:
    of = preset(
        **{name.replace(".", "__"): value for name, value in FP16.items()},
        problem__outlier_every=4,
        optimizer__kind="rmsprop",
        optimizer__lr=1e-3,
    )
    one, whole = simulator(of), trained(of)
    finish(one)
    for step in (0, 2, 6, 11):
        go_back(one, step)
        names = [
            "precision.dtype",
            "precision.scaling",
            "loss.weight",
            "optimizer.momentum",
            "problem.skip_batches",
            "accumulation.steps",
            "precision.growth_interval",
        ]
        for name in names:
            for value in (others(name)[0], one.preset.experiment[name]):
                change(one, name, value)
        change(one, "precision.scaling", "static")
        change(one, "precision.dtype", "bf16")
        change(one, "precision.scaling", "dynamic")
        one.undo()
        one.undo()
        one.undo()
        until(lambda: one.run.in_force == one.run.experiment)
        run = finish(one)
        assert run.timeline == [] and run.what_changed == "no change"
        same(run, whole, events=False)


def test_the_last_of_several_changes_of_a_knob_at_a_step_counts(simulator: Callable[..., Simulator]) -> None:
    of = preset(Change(4, "optimizer.lr", 0.3), **{name.replace(".", "__"): value for name, value in FP16.items()})
    one = simulator(of)
    root = finish(one)
    for step in (4, 5, 9):
        one.show(root)
        go_back(one, step)
        for value in (0.5, 0.01, 0.7, 0.2):
            change(one, "optimizer.lr", value)
        for value in ("static", "none", "dynamic", "static"):
            change(one, "precision.scaling", value)
        run = finish(one)
        same(
            run,
            trained(of, Change(step, "optimizer.lr", 0.2), Change(step, "precision.scaling", "static")),
            events=False,
        )


def test_what_is_planned_where_a_branch_begins_can_be_taken_back_there(simulator: Callable[..., Simulator]) -> None:
    """And it is not planned a second time, in what is exported either."""
    of, whole = preset(Change(5, "optimizer.lr", 0.3)), trained(preset())
    one = simulator(of)
    finish(one)
    go_back(one, 5)
    assert one.run.in_force.optimizer.lr == 0.3
    change(one, "optimizer.lr", 0.1)
    assert one.run.timeline == [] and as_preset(one.run).timeline == ()
    run = finish(one)
    same(run, whole, events=False)
    same_course(run)


def test_a_run_that_was_left_goes_on_as_if_it_never_was(simulator: Callable[..., Simulator]) -> None:
    """With changes that were planned, and others made since; with one made where it was left."""
    of = preset(
        Change(3, "optimizer.lr", 0.3),
        Change(6, "clipping.kind", "norm"),
        Change(10, "loss.weight", 3.0),
        problem__noise=0.2,
    )
    one = simulator(of)
    make_steps(one, 4)
    change(one, "optimizer.lr", 0.05)
    make_steps(one, 2)
    until(lambda: one.run.in_force.clipping.kind == "norm")  # as planned; it stood at step 6 a moment before
    change(one, "clipping.kind", "none")  # asked for although nobody asked for norm
    change(one, "accumulation.steps", 2)
    root = one.run
    timeline = (Change(3, "optimizer.lr", 0.3), Change(4, "optimizer.lr", 0.05), Change(6, "accumulation.steps", 2))
    assert tuple(root.timeline) == timeline
    for _ in range(2):  # left and found again, twice
        go_back(one, 2)
        change(one, "optimizer.lr", 1.0)
        make_steps(one, 1)
        one.show(root)
        until(lambda: root.over)
        go_back(one, 6)
        assert one.run is root and root.status == "paused"
    make_steps(one, 3)
    go_back(one, 1)
    one.show(root)
    until(lambda: root.over)
    go_back(one, 9)
    assert one.run is root and tuple(root.timeline) == timeline
    finish(one)
    plain = preset(problem__noise=0.2)
    other = trained(plain, *timeline, Change(10, "loss.weight", 3.0))
    same(root, other, events=False)
    assert len(one.family.members) == 3


def test_a_change_of_a_stopped_run_acts_however_late_its_thread_begins(
    simulator: Callable[..., Simulator], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = simulator(preset(run__steps=ENDLESS))
    make_steps(one, 4)
    one.stop()
    until(lambda: one.run.over)
    one.set("loss.weight", 3.0)
    gate, train = threading.Event(), Worker.run
    with monkeypatch.context() as patch:
        patch.setattr(Worker, "run", lambda worker: (gate.wait(PATIENCE), train(worker)))
        one.play()
        gate.set()
        until(lambda: one.run.own > 4)
    assert [(change.step, change.knob, change.value) for change in one.run.timeline] == [(4, "loss.weight", 3.0)]


def test_a_run_that_was_stopped_goes_on_as_if_it_never_was(simulator: Callable[..., Simulator]) -> None:
    """Its accuracy was found meanwhile; what was changed while it was stopped acts where it goes on."""
    of = preset(
        Change(3, "optimizer.lr", 0.3),
        Change(6, "clipping.kind", "norm"),
        problem__noise=0.2,
        model__norm="batch",
        run__steps=ENDLESS,
    )
    one = simulator(of)
    for wish in (("loss.weight", 3.0), ("model.width", 16), ("optimizer.momentum", 0.5), ("clipping.kind", "none")):
        make_steps(one, 4)
        one.stop()
        until(lambda: one.run.over)
        assert one.run.status == "stopped" and one.run.accuracy is not None
        one.set(*wish)
        one.play()
        assert one.requested[wish[0]] == wish[1]
        until(lambda: one.run.own > 0 and one.run.status == "running")
        one.pause()
        until(lambda: one.run.status == "paused")
        assert one.run.in_force.optimizer.lr == 0.3, "what was planned is not taken back"
    one.stop()
    until(lambda: one.run.over)
    made = {change.knob for change in one.run.timeline}
    assert not one.run.parent and made == {"loss.weight", "optimizer.lr", "clipping.kind", "optimizer.momentum"}
    assert one.waiting() == {"model.width"}
    same_course(one.run)


@pytest.mark.parametrize(
    ("name", "value"), [("optimizer.lr", 0.01), ("model.init", "zeros"), ("optimizer.kind", "adam")]
)
def test_either_of_twins_is_taken_back(simulator: Callable[..., Simulator], name: str, value: Value) -> None:
    of = preset(Change(5, "loss.weight", 2.0), problem__noise=0.1)
    twin = of.model_copy(update={"experiment": of.experiment.with_value(name, value)})
    changed = [trained(each, Change(7, "clipping.kind", "value")) for each in (of, twin)]
    one = simulator(of)
    one.start_twins(name, value)
    twins = one.twins
    until(lambda: twins.one.over and twins.other.over)
    for run, wanted in zip((twins.other, twins.one, twins.other), (*changed[::-1], changed[1]), strict=True):
        one.show(run)
        go_back(one, 7)
        change(one, "clipping.kind", "value")
        same(finish(one), wanted)


def test_a_branch_of_a_history_whose_blocks_are_on_disk(
    monkeypatch: pytest.MonkeyPatch, simulator: Callable[..., Simulator]
) -> None:
    for module in (row_blocks, histories):
        monkeypatch.setattr(module, "BLOCK", 8)
    of = preset(Change(22, "optimizer.lr", 0.02), run__steps=40, accumulation__steps=2, problem__outlier_every=9)
    changed = {step: trained(of, Change(step, "clipping.kind", "norm")) for step in (0, 7, 8, 9, 23, 32, 39)}
    twice = trained(of, Change(23, "clipping.kind", "norm"), Change(34, "optimizer.momentum", 0.5))
    one = simulator(of)
    root = finish(one)
    for step, wanted in changed.items():
        one.show(root)
        go_back(one, step)
        change(one, "clipping.kind", "norm")
        same(finish(one), wanted)
        if step == 23:
            go_back(one, 34)
            change(one, "optimizer.momentum", 0.5)
            same(finish(one), twice)


def test_a_run_of_the_library_is_taken_back(simulator: Callable[..., Simulator]) -> None:
    of = preset(Change(3, "optimizer.lr", 0.2), Change(8, "loss.weight", 2.0), problem__noise=0.1)
    old = trained(of)
    for step in (0, 3, 5, 8, 11):
        one = simulator(preset())
        one.open(old)
        go_back(one, step)
        assert one.run.parent == old.id
        change(one, "clipping.kind", "value")
        same(finish(one), trained(of, Change(step, "clipping.kind", "value")))


def test_a_step_that_nobody_has_made_is_refused(simulator: Callable[..., Simulator]) -> None:
    one = simulator(preset())
    make_steps(one, 4)
    for step in (-1, 5, 100):
        with pytest.raises(KnobError, match=f"step {step} is not among the steps 0 to 4"):
            one.rewind(step)
    go_back(one, 2)
    make_steps(one, 1)
    with pytest.raises(KnobError):
        one.rewind(4)
    go_back(one, 1)  # the branch has not gone on: what its parent made is there
    one.rewind(4)
    until(lambda: one.run.status == "paused" and len(one.run.history) == 4)


def test_whatever_a_person_does_the_timeline_tells_all_of_it(simulator: Callable[..., Simulator]) -> None:
    """Steps, changes, going back, in a branch, in another branch, while it runs: at random."""
    for seed in SCRIPTS:
        chance = random.Random(seed)
        model, task = chance.choice(
            [
                ("mlp", "digits"),
                ("rnn", "adding"),
                ("policy", "pole"),
                ("cnn", "digits"),
                ("gan", "ring"),
                ("gru", "copy"),
            ]
        )
        knobs = chance.choice([{}, ACTING, {name.replace(".", "__"): value for name, value in FP16.items()}])
        timeline = chance.choice([(), (Change(3, "optimizer.lr", 0.3), Change(6, "optimizer.momentum", 0.5))])
        kind = chance.choice(["sgd", "adam", "adamw", "rmsprop"])
        changing = {
            "model__kind": model,
            "problem__task": task,
            "problem__seq_len": 4,
            "optimizer__kind": kind,
            "run__steps": 10_000,
        }
        one = simulator(preset(*timeline, **knobs | changing), every=chance.choice([0, 1, 4]))
        done: list[str] = []
        for _ in range(9):
            do_at_random(one, chance, done)
        one.stop()
        until(lambda one=one: not one.busy)
        for run in one.family.members.values():
            try:
                same_course(run)
            except AssertionError as fault:
                raise AssertionError(f"seed {seed}, {knobs}, {timeline}, {kind}, {model}: {'; '.join(done)}") from fault


# Of the short form, each model, task, kind of knobs and optimizer comes up.
SCRIPTS = range(30) if os.environ.get("GRADSTUDIO_TORTURE") == "1" else (*range(11), 19)


def do_at_random(one: Simulator, chance: random.Random, done: list[str]) -> None:
    what = chance.choice(["steps", "steps", "change", "change", "back", "back", "run", "show", "twice", "undo"])
    rows = len(one.run.history)
    name = chance.choice([name for name in LIVE if name not in UNDRAWN])
    value = (
        chance.choice([*others(name), one.preset.experiment[name]])
        if name != "problem.skip_batches"
        else chance.randint(0, 6)
    )
    match what:
        case "steps":
            make_steps(one, count := chance.randint(1, 4))
            done.append(f"{count} steps")
        case "change" if one.has_begun and not one.run.over:
            change(one, name, value)
            done.append(f"{name} = {value} at {rows}")
        case "undo" if one.has_begun and not one.run.over:
            wanted = one.undo()
            until(
                lambda: (
                    one.run.over
                    or bool(one.refusals())
                    or all(one.run.in_force[each] == value for each, value in wanted.items())
                )
            )
            done.append(f"undo {wanted}")
        case "back" if one.has_begun:
            step = chance.randint(0, rows)
            done.append(f"back to {step} of {rows} in {one.run.status}")
            go_back(one, step)
        case "run":
            one.play()
            until(lambda: one.run.over or len(one.run.history) > rows + chance.randint(0, 4))
            done.append(f"ran from {rows}")
            if chance.random() < 0.5:
                one.pause()
                until(lambda: one.run.over or one.run.status == "paused")
            go_back(one, step := chance.randint(0, len(one.run.history)))
            done.append(f"back to {step}")
        case "twice" if one.has_begun:
            steps = [chance.randint(0, rows), chance.randint(0, rows)]
            done.append(f"back to {steps}")
            for step in steps:
                if step <= max(len(one.run.history), one.run.parent_step):
                    one.rewind(step)
                    one.set(name, value)
            until(lambda: one.run.over or one.run.status == "paused")
        case "show":
            if one.run.status == "ready":
                return  # it becomes another run at every change
            run = chance.choice(list(one.family.members.values()))
            done.append(f"show {list(one.family.members).index(run.id)}")
            one.show(run)
            until(lambda: run.over or run.status in ("ready", "paused", "running"))
            if len(run.history):
                go_back(one, chance.choice([len(run.history), chance.randint(0, len(run.history))]))


def test_runs_that_begin_in_one_second_are_told_apart() -> None:
    """Snapshots are kept by the run's id: with 16 random bits one of 350 such tests went on from another run's."""
    one, other = (Run(preset(), preset().experiment) for _ in range(2))
    stamps, ends = zip(*(run.id.rsplit("-", 1) for run in (one, other)), strict=True)
    assert stamps[0].startswith("small-") and ends[0] != ends[1] and min(map(len, ends)) >= 8
