"""Making a map: what is kept when it is stopped, paused or broken. Cells are trained in this process, but for one test,
which ends real ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
from session.map.test_map import SMALL, plan_of
from waiting import PATIENCE, until

from gradstudio.core import presets
from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import MapProposal, Preset
from gradstudio.session.map import journal, mapper
from gradstudio.session.map.journal import Journal
from gradstudio.session.map.map_plan import Job, Plan, Spot
from gradstudio.session.map.mapper import Mapper
from gradstudio.session.map.outcome import CellResult
from gradstudio.session.map.train_cell import Bench, Order
from gradstudio.session.map.workers import LOST, Pool


class Inline(Pool, Executor):
    """A pool that trains in the thread that asks. `before` may break it by an exception."""

    before: Callable[[Experiment], None] = staticmethod(lambda _: None)

    def executor(self) -> Executor:
        return self

    def submit(self, _work: Any, order: Order) -> Future[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        future: Future[Any] = Future()
        try:
            self.before(order.experiment)
            future.set_result(Bench().train(order, lambda: False))
        except Exception as fault:
            future.set_exception(fault)
        return future


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> type[Inline]:
    crew = type("Crew", (Inline,), {})
    monkeypatch.setattr(mapper, "Pool", crew)
    return crew


def map_command(folder: Path) -> list[str]:
    """Return the command that begins the map `a.map`."""
    preset = folder / "small.toml"
    proposed = MapProposal(x="optimizer.lr=0.01:30:log", y="model.init_gain=0.1:10:log", cells=24)
    longer = SMALL.with_value("run.steps", 60)
    preset.write_text(presets.to_toml(Preset(id="small", title="Small", experiment=longer, map=proposed)))
    words = [str(preset), "--full", "--out", str(folder / "a.map"), "--workers", "1", "--json"]
    return [sys.executable, "-m", "gradstudio", "map", *words]


def made(plan: Plan, path: Path, *, resume: bool = False) -> Mapper:
    found = Mapper(plan, path, resume=resume, size=1)
    found.start()
    found.join(PATIENCE)
    return found


def children(process: int) -> set[int]:
    """Return the processes that a process started."""
    threads = Path(f"/proc/{process}/task").iterdir()
    return {int(child) for thread in threads for child in (thread / "children").read_text().split()}


def descendants(process: int) -> set[int]:
    """Return the processes that a process started, and those that they started."""
    found = children(process)
    return found.union(*map(descendants, found))


def test_what_was_stopped_goes_on_and_no_cell_is_trained_twice(inline: type[Inline], tmp_path: Path) -> None:
    plan, asked = plan_of(4, full=True), []
    stopping = Mapper(plan, tmp_path / "a.map", size=1)

    def stop_at_the_fifth(experiment: Experiment) -> None:
        asked.append(experiment)
        if len(asked) == 5:
            stopping.stop()

    inline.before = staticmethod(stop_at_the_fifth)
    stopping.start()
    stopping.join(PATIENCE)
    assert stopping.status == "stopped" and 0 < stopping.progress.run < 16
    kept = journal.load(tmp_path / "a.map").results
    again = made(plan, tmp_path / "a.map", resume=True)
    whole = journal.load(tmp_path / "a.map").results
    assert again.status == "finished" and len(whole) == 16 and kept.items() <= whole.items()
    assert len(asked) <= 16 + 2  # at most those that were given out and not kept
    assert {job: repr(cell.loss) for job, cell in whole.items()} == {
        job: repr(cell.loss) for job, cell in made(plan, tmp_path / "b.map").results
    }


def test_a_paused_map_gives_out_no_cells_until_it_goes_on(inline: type[Inline], tmp_path: Path) -> None:
    asked: list[Experiment] = []
    inline.before = staticmethod(asked.append)
    paused = Mapper(plan_of(2, full=True), tmp_path / "a.map", size=1)
    paused.pause()
    paused.start()
    until(lambda: paused.status == "paused")
    assert not asked
    paused.go_on()
    paused.join(PATIENCE)
    assert paused.status == "finished" and len(asked) == 4


def test_a_cell_that_ends_its_worker_fails_alone(inline: type[Inline], tmp_path: Path) -> None:
    plan = plan_of(3, full=True)
    poison = Job(Spot(0, 1, 2), 0)

    def break_at_the_poison(experiment: Experiment) -> None:
        if experiment == plan.experiment_of(poison):
            raise BrokenProcessPool

    inline.before = staticmethod(break_at_the_poison)
    found = made(plan, tmp_path / "a.map")
    assert found.status == "finished" and found.progress.failed == 1
    failed = {job: cell.message for job, cell in found.results if cell.outcome == "failed"}
    assert failed == {poison: LOST} and len(found.results) == 9


def test_values_that_do_not_go_together_fail_with_their_reason(inline: type[Inline], tmp_path: Path) -> None:
    preset = Preset(id="small", title="Small", experiment=SMALL)
    plan = mapper.workers.Plan(preset, plan_of(2).x, plan_of(2).y, "model.depth", (2, 10**9), full=True)
    found = made(plan, tmp_path / "a.map")
    messages = {cell.message for job, cell in found.results if job.spot.panel == 1}
    assert found.status == "finished" and found.progress.failed == 4
    assert len(messages) == 1 and "model.depth" in messages.pop()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it finds the processes in /proc")
def test_a_killed_worker_loses_no_cell_and_an_interrupt_leaves_no_process(tmp_path: Path) -> None:
    file = tmp_path / "a.map"
    # its own group, as Ctrl+C in a terminal reaches all of it
    begun = subprocess.Popen(map_command(tmp_path), stdout=subprocess.PIPE, start_new_session=True)
    try:
        until(lambda: file.exists() and len(journal.load(file).results) > 0)
        family = descendants(begun.pid)
        before = len(journal.load(file).results)
        (worker,) = family - children(begun.pid)  # the server forks it, which is a child itself
        os.kill(worker, signal.SIGKILL)
        until(lambda: len(journal.load(file).results) > before + 2)
        family |= descendants(begun.pid)
        os.killpg(begun.pid, signal.SIGINT)
        told = json.loads(begun.communicate(timeout=PATIENCE)[0])
        assert begun.returncode == 130
        until(lambda: not any(Path(f"/proc/{each}").exists() for each in family))
    finally:
        begun.kill()
    stored = journal.load(file)
    assert told["run"] == len(stored.results) and told["failed"] == 0
    assert any(cell.run_again for cell in stored.results.values())


def test_of_two_programs_that_make_one_map_both_come_to_its_end(inline: type[Inline], tmp_path: Path) -> None:
    plan, faster = plan_of(2, full=True), CellResult("stuck", 29, 2.0, 2.0, 0.1)
    jobs = [Job(Spot(0, column, row), 0) for column in (0, 1) for row in (0, 1)]

    def add_to_the_file(experiment: Experiment) -> None:
        with Journal(tmp_path / "a.map", plan, resume=True) as other:
            other.add(next(job for job in jobs if plan.experiment_of(job) == experiment), faster)

    inline.before = staticmethod(add_to_the_file)
    found = made(plan, tmp_path / "a.map")
    assert found.status == "finished" and dict(found.results) == dict.fromkeys(jobs, faster)
    assert len(found.results) == 4 and found.progress.run == 4
