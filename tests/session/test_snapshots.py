"""Snapshots stay within their budget, are dense near now and thinner with age, and whatever is let go of, every step is
reached."""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np
import pytest
from counting import calls_of
from waiting import until

from gradstudio.core import spill
from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.engine import spilled_snapshot
from gradstudio.session.record import snapshots as kept_snapshots
from gradstudio.session.record.branches import fork
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import COST, GAP, LATEST, MOST, OLDER, KeptSnapshot, Snapshots
from gradstudio.session.running.run_driver import RunDriver
from gradstudio.session.running.worker import Worker

STEP = 0.012  # seconds
KILO = 1000
LONG = os.environ.get("GRADSTUDIO_TORTURE") == "1"


def kept(step: int, size: int = KILO, run: str = "one", seconds: float | None = None) -> KeptSnapshot:
    state = SimpleNamespace(nbytes=size, on_disk=False)
    return KeptSnapshot(run, step, state, None, {}, STEP * step if seconds is None else seconds)


def run(name: str = "one", **ancestors: int) -> Run:
    experiment = Experiment()
    return Run(Preset(id="small", title="Small", experiment=experiment), experiment, id=name, ancestors=ancestors)


def held(snapshots: Snapshots) -> int:
    return sum(each.state.nbytes for each in snapshots._kept.values())


def filled(steps: int, budget: int, *, every: int = 10, size: int = KILO) -> Snapshots:
    """Those of a run of so many steps, each checked against the budget as it comes."""
    snapshots = Snapshots(budget)
    for step in range(0, steps + 1, every):
        snapshots.add(kept(step, size), 1e-4)
        assert snapshots.used <= budget and len(snapshots) <= MOST
        if step % 500 == 0:
            assert snapshots.used == held(snapshots) and snapshots.steps(run())[-1] == step, "the latest is there"
    return snapshots


@pytest.mark.parametrize("budget", [2, 7, 20, 200, 5000] if LONG else [2, 20, 200])
def test_over_100_000_steps_they_stay_within_the_budget_dense_near_now_and_thin_with_age(budget: int) -> None:
    steps, every = 100_000, 10 if LONG else 20
    snapshots = filled(steps, budget * KILO, every=every)
    there = np.array(snapshots.steps(run()))
    room = min(budget, MOST)
    assert len(there) >= 0.9 * room - 1, "room is used"
    assert there[0] == 0 or room * OLDER < 1
    gaps = np.diff([*there, steps])
    near = gaps[there[: len(gaps)] >= steps - LATEST]
    even = max(LATEST / max((1 - OLDER) * room, 1), every)
    assert near.max() <= 3 * even + every, "any of the latest steps is near"
    if budget >= 60:
        old = gaps[(there < steps - LATEST) & (there > 0)]
        ages = (steps - there)[(there < steps - LATEST) & (there > 0)]
        assert old[ages > 20_000].mean() > 3 * old[ages < 5_000].mean() >= 3 * near.mean(), "the older the thinner"
        assert (old / ages).max() < 0.6, "the way to any of them is a share of its age"
        assert (there < steps - LATEST).sum() <= max(OLDER * room, room - LATEST / every) + 2


@pytest.mark.parametrize("seed", range(5))
def test_whatever_they_weigh_they_stay_within_the_budget(seed: int) -> None:
    """Snapshots of several runs and sizes, in any order, some twice; some runs go, and the budget changes."""
    chance = np.random.default_rng(seed)
    snapshots = Snapshots(100 * KILO)
    for _ in range(1500):
        what = chance.random()
        if what < 0.97:
            name = str(chance.choice(["one", "two", "three"]))
            snapshots.add(
                kept(int(chance.integers(0, 5000)), int(chance.integers(1, 20 * KILO)), name), float(chance.random())
            )
        elif what < 0.985:
            snapshots.resize(int(chance.integers(0, 200 * KILO)))
        else:
            snapshots.forget([str(chance.choice(["one", "two"]))])
        assert snapshots.used == held(snapshots) <= snapshots.budget and len(snapshots) <= MOST


def test_a_smaller_budget_takes_effect_at_once_and_a_larger_one_as_they_come() -> None:
    snapshots = filled(5000, 100 * KILO)
    snapshots.resize(20 * KILO)
    assert len(snapshots) == 20 and snapshots.steps(run())[0] == 0 and snapshots.steps(run())[-1] == 5000
    snapshots.resize(40 * KILO)
    assert len(snapshots) == 20
    for step in range(5010, 6000, 10):
        snapshots.add(kept(step), 1e-4)
    assert len(snapshots) == 40
    snapshots.resize(0)
    assert len(snapshots) == 0 == snapshots.used and snapshots.nearest(run(), 6000) is None


def test_a_run_that_is_gone_leaves_its_room_to_others() -> None:
    snapshots = Snapshots(100 * KILO)
    for step in range(40):
        snapshots.add(kept(step, run="one"), 1e-4)
        snapshots.add(kept(step, run="two"), 1e-4)
    snapshots.forget(["two", "nobody"])
    assert (
        snapshots.steps(run("one")) == list(range(40))
        and snapshots.steps(run("two")) == []
        and snapshots.used == 40 * KILO
    )


def test_the_same_state_is_kept_once() -> None:
    snapshots = Snapshots()
    for _ in range(3):
        snapshots.add(kept(5), 1e-4)
        snapshots.add(kept(5, run="two"), 1e-4)
    assert len(snapshots) == 2


def test_the_nearest_is_of_the_line_of_a_run_and_not_past_where_it_branched() -> None:
    snapshots = Snapshots()
    for step in (0, 10, 20, 30):
        snapshots.add(kept(step, run="root"), 1e-4)
    for step in (15, 25):
        snapshots.add(kept(step, run="child"), 1e-4)
    child, grandchild, stranger = run("child", root=12), run("grandchild", root=12, child=20), run("stranger")
    assert [each.step for step in (9, 10, 14, 15, 24, 99) if (each := snapshots.nearest(child, step))] == [
        0,
        10,
        10,
        15,
        15,
        25,
    ]
    assert snapshots.steps(child) == [0, 10, 15, 25] and snapshots.steps(grandchild) == [0, 10, 15]
    assert snapshots.nearest(grandchild, 99).run == "child" and snapshots.nearest(stranger, 99) is None
    exact = run("exact", root=20)
    assert snapshots.nearest(exact, 99).step == 20, "the state where it branched is common to both"


def test_the_latest_steps_of_a_branch_are_those_of_its_line() -> None:
    """The last steps of its parent before it branched are near too; what the parent did afterwards is old."""
    snapshots = Snapshots(100 * KILO)
    for step in range(0, 4001, 10):
        snapshots.add(kept(step, run="root"), 1e-4)
    branch = run("branch", root=3900)
    for step in range(3910, 4201, 10):
        snapshots.add(kept(step, run="branch"), 1e-4, branch.ancestors)
    there = np.array(snapshots.steps(branch))
    latest = there[there >= 4200 - LATEST]
    assert np.diff([*latest, 4200]).max() <= 30 and (latest < 3900).sum() > 20


def test_they_are_taken_as_often_as_their_cost_allows() -> None:
    snapshots = Snapshots()
    assert not snapshots.due(GAP - 0.01) and snapshots.due(GAP)
    for step in range(6):
        snapshots.add(kept(step), 0.02)
    assert not snapshots.due(0.02 / COST - 0.1) and snapshots.due(0.02 / COST + 0.1)


def test_one_that_was_held_up_does_not_keep_the_others_away() -> None:
    """By another program, or the first of all, which has to load what it needs."""
    for slow in range(4):
        snapshots = Snapshots()
        for step in range(6):
            snapshots.add(kept(step), 0.5 if step == slow else 1e-4)
            assert snapshots.due(GAP), f"{slow} {step}"


def test_keeping_one_more_takes_no_time() -> None:
    snapshots = filled(2 * MOST * 10, 10 * MOST * KILO)
    assert len(snapshots) == MOST
    calls = [calls_of(lambda step=step: snapshots.add(kept(step), 1e-4)) for step in range(100_000, 100_100)]
    assert sum(calls) / 100 < 10 * MOST


# ---- with a real run


SMALL = [
    "model.width=8",
    "model.depth=1",
    "problem.batch_size=8",
    "run.steps=60",
    "run.device=cpu",
    "optimizer.kind=adam",
    "problem.noise=0.1",
]


class Always(Snapshots):
    def due(self, seconds: float) -> bool:
        return True


@pytest.mark.parametrize("room", [0.0, 0.5, 1.5, 2.5, 6.0, "disk", "full disk"])
def test_every_step_is_reached_whatever_the_budget(room: float | str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that is smaller than a single snapshot, one that changes on the way, and one on disk."""
    if isinstance(room, str):
        full = room == "full disk"
        monkeypatch.setattr(kept_snapshots, "LARGE", 0)
        monkeypatch.setattr(spilled_snapshot, "SMALL", 1)
        monkeypatch.setattr(spill, "SPARE", 1 << 60 if full else 0)
        room = 0.5
    else:
        full = True
    experiment = Experiment().with_texts(SMALL)
    preset = Preset(id="small", title="Small", experiment=experiment, timeline=(Change(20, "optimizer.lr", 0.01),))
    whole = Run(preset, experiment, preset.timeline)
    snapshots = Always()
    Worker(whole, snapshots=snapshots).run()
    assert len(snapshots) == 61
    size = snapshots.used // 61
    snapshots.resize(int(room * size))
    assert len(snapshots) == int(room)
    for step in (0, 1, 19, 20, 21, 40, 59):
        branch = fork(whole, step)
        driver = RunDriver(branch, snapshots)
        driver.begin(None, lambda: False)
        for _ in range(min(3, 60 - step)):
            driver.change_as_planned()
            driver.step("running")
        assert branch.differs_at is None and (snapshots.on_disk or snapshots.used <= snapshots.budget)
        for name in ("loss", "grad_norm", "update_ratio", "lr"):
            count = len(branch.history)
            assert branch.history.column(name).tobytes() == whole.history.column(name, 0, count).tobytes()
    until(lambda: not any(each.state.moving for each in snapshots.all()))
    snapshots.resize(snapshots.budget)
    assert snapshots.on_disk != full


def test_what_is_said_to_be_used_is_what_they_hold() -> None:
    experiment = Experiment().with_texts([*SMALL, "model.norm=batch", "model.width=64"])
    run = Run(Preset(id="small", title="Small", experiment=experiment), experiment)
    snapshots = Always()
    Worker(run, snapshots=snapshots).run()
    packed = sum(len(each.state.pack()) for each in snapshots.of(run))
    assert snapshots.used == pytest.approx(packed, rel=0.15)
