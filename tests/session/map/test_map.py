"""The plan, the cells, the refinement and the journal of a map, without worker processes."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradstudio.core import presets
from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError
from gradstudio.core.presets import MapProposal, Preset
from gradstudio.session.map import axis, drawing, refine, time_needed
from gradstudio.session.map import grid as grids
from gradstudio.session.map import journal as journals
from gradstudio.session.map.journal import Journal, JournalContent, JournalError
from gradstudio.session.map.map_plan import Job, Plan, Spot, difference, read_plan
from gradstudio.session.map.mapper import coarse_first
from gradstudio.session.map.outcome import OUTCOMES, CellResult
from gradstudio.session.map.place import spot_of
from gradstudio.session.map.proposal import done_with_proposal
from gradstudio.session.map.time_needed import Cost, Size
from gradstudio.session.map.train_cell import Bench, Order
from gradstudio.session.record.run import Run

SMALL = Experiment().with_texts(
    ["model.depth=2", "model.width=8", "problem.batch_size=8", "run.steps=30", "run.device=cpu", "model.init=he"]
)


def plan_of(cells: int = 8, *, seeds: int = 1, full: bool = False, by: str = "") -> Plan:
    preset = Preset(id="small", title="Small", experiment=SMALL)
    return read_plan(preset, "optimizer.lr=0.01:30:log", "model.init_gain=0.1:10:log", cells, by, seeds, full=full)


def trained(outcome: str = "learned", loss: float = 0.5) -> CellResult:
    assert outcome in OUTCOMES
    return CellResult(outcome, 29, loss, loss, 0.1, environment={"torch": "2"})


def test_a_cell_is_its_run_bit_for_bit_though_its_trainer_was_used_before() -> None:
    from gradstudio.engine.trainer import Trainer

    bench, plan = Bench(), plan_of()
    outcomes = set()
    for column, row in ((3, 4), (0, 4), (7, 7), (2, 0)):
        experiment = plan.experiment_of(Job(Spot(0, column, row), 0))
        cell = bench.train(Order(experiment, ()), lambda: False)
        assert cell is not None
        steps = Trainer(experiment).steps()
        losses = [next(steps).loss for _ in range(cell.step + 1)]
        assert repr(losses[-1]) == repr(cell.loss)
        outcomes.add(cell.outcome)
    assert outcomes == {"learned", "stuck", "diverged"}


def test_any_cell_of_the_map_of_a_lesson_counts_as_opened() -> None:
    """Also one that was not trained: it looks like those around it."""
    asked = MapProposal(x="optimizer.lr=0.01:30:log", y="model.init_gain=0.1:10:log")
    stored = JournalContent(plan_of(), {Job(Spot(0, 0, 0), 0): trained()})
    preset = Preset(id="small", title="Small", experiment=SMALL, map=asked)
    for spot in (Spot(0, 0, 0), Spot(0, 3, 4)):
        cell = Run(preset, stored.plan.experiment_of(Job(spot, 0)))
        assert done_with_proposal(stored, cell) == {"made", "opened"}
    assert done_with_proposal(stored, Run(preset, SMALL)) == {"made"}
    other = preset.model_copy(update={"experiment": SMALL.with_value("model.init", "xavier")})
    assert not done_with_proposal(stored, Run(other, other.experiment))


def test_a_plan_names_what_cannot_be() -> None:
    preset = Preset(id="small", title="Small", experiment=SMALL)
    for x, y, said in (
        ("optimizer.lr=1:0.1", "model.init_gain=0.1:10", "below"),
        ("optimizer.lr=0:1:log", "model.init_gain=0.1:10", "above 0"),
        ("optimizer.lr=0.1:1", "optimizer.lr=0.1:1", "twice"),
        ("clipping.kind=none:norm", "model.init_gain=0.1:10", "number"),
        ("clipping.max_norm=0.1:1", "model.init_gain=0.1:10", "clipping.kind = norm"),
        ("optimizer.lr", "model.init_gain=0.1:10", "KNOB=FROM:TO"),
        ("optimizer.lr=0.1:1e9", "model.init_gain=0.1:10", "at most"),
    ):
        with pytest.raises(KnobError, match=said):
            read_plan(preset, x, y, 8, "", 1, full=False)


def test_the_seed_is_no_panel_and_no_seed_is_too_large() -> None:
    """The seeds of a cell count from the one of the experiment."""
    axes = "optimizer.lr=0.01:30:log", "model.init_gain=0.1:10:log", 4
    with pytest.raises(KnobError, match=r"run\.seed is not allowed; --seeds"):
        read_plan(Preset(id="small", title="Small", experiment=SMALL), *axes, "run.seed=0,1", 1, full=False)
    last = Preset(id="small", title="Small", experiment=SMALL.with_value("run.seed", 2**31 - 1))
    assert read_plan(last, *axes, "", 1, full=False).seeds == 1
    with pytest.raises(KnobError, match=r"run\.seed"):
        read_plan(last, *axes, "", 2, full=False)


@pytest.mark.parametrize("ends", ["1.0000004:1.0000016", "0.1:0.10000001", "1:1.0000000000000004", "0.001:10"])
@pytest.mark.parametrize("log", ["", ":log"])
def test_the_values_of_an_axis_rise_however_near_its_ends_are(tmp_path: Path, ends: str, log: str) -> None:
    preset = Preset(id="small", title="Small", experiment=SMALL)
    plan = read_plan(preset, f"optimizer.lr={ends}{log}", "model.init_gain=0.1:10", 5, "", 1, full=False)
    values = list(plan.x.values)
    assert values == sorted(set(values)) and values[0] == float(ends.split(":")[0]) and len(values) in (3, 5)
    Journal(tmp_path / "a.map", plan, resume=False).close()
    assert difference(journals.load(tmp_path / "a.map").plan, plan) == ""


@pytest.mark.parametrize("ends", ["0.6:0.9", "2.1:4.9", "0.011:0.019", "0.5:1.5", "0.001:10", "1e-9:1e9"])
def test_an_axis_has_two_ticks_or_more(ends: str) -> None:
    preset = Preset(id="small", title="Small", experiment=SMALL)
    for knob, log in (("clipping.max_norm", ":log"), ("clipping.max_norm", "")):
        clipped = preset.model_copy(update={"experiment": SMALL.with_value("clipping.kind", "norm")})
        plan = read_plan(clipped, f"{knob}={ends}{log}", "model.init_gain=0.1:10", 20, "", 1, full=False)
        told = drawing.ticks(plan.x)
        places = [place for place, _ in told]
        assert 2 <= len(told) <= drawing.TICKS and places == sorted(places) and 0.5 <= places[0] < places[-1] <= 19.5


def test_a_task_that_is_judged_by_its_accuracy_has_not_learned_at_none_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradstudio.engine.trainer import Trainer

    ring = Experiment().with_texts(["problem.task=ring", "model.kind=gan", "run.steps=3", "run.device=cpu"])
    for accuracy, wanted in ((0.0, "stuck"), (1.0, "learned")):
        monkeypatch.setattr(Trainer, "evaluate", lambda _, found=accuracy: found)
        cell = Bench().train(Order(ring, ()), lambda: False)
        assert cell is not None and cell.outcome == wanted


def test_a_cell_is_stopped_while_it_passes_batches_over() -> None:
    asked = iter([False, False, False, True])
    experiment = SMALL.with_value("problem.skip_batches", 100_000)
    assert Bench().train(Order(experiment, ()), lambda: next(asked)) is None


def test_what_presets_propose_can_be_mapped() -> None:
    found = [preset for path in presets.available() if (preset := presets.read(path)).map]
    assert len(found) >= 4
    for preset in found:
        assert preset.map
        plan = read_plan(preset, preset.map.x, preset.map.y, preset.map.cells, preset.map.by, 1, full=False)
        assert plan.x.log and plan.cells >= 49


def test_equal_whole_numbers_become_one_cell() -> None:
    preset = Preset(id="small", title="Small", experiment=SMALL)
    plan = read_plan(preset, "model.depth=1:4", "optimizer.lr=0.1:1", 9, "", 1, full=False)
    assert plan.x.values == (1, 2, 3, 4) and len(plan.y.values) == 9


def test_refinement_follows_a_coast_to_the_cell() -> None:
    """A coast that is one connected line is found whole, with less than half of the cells."""
    rows, columns = np.indices((64, 64))
    truth = np.where(columns + 6 * np.sin(rows / 9) > 31, 2, 0).astype(np.int8)
    outcomes, levels = np.full(truth.shape, -1, np.int8), np.full(truth.shape, math.nan)
    while places := refine.next_cells(outcomes, levels, full=False):
        for place in places:
            assert outcomes[place] < 0
            outcomes[place], levels[place] = truth[place], 0.5
    given = refine.representatives(outcomes, levels, full=False)
    assert (outcomes[given] == truth).all() and (outcomes >= 0).mean() < 0.35


def test_a_full_map_wants_every_cell() -> None:
    plan = plan_of(5, full=True)
    assert len(grids.next_cells(plan, grids.measured_cells(plan, {}))) == 25


def test_of_several_seeds_the_outcome_of_most_counts() -> None:
    plan = plan_of(2, seeds=3)
    spot = Spot(0, 1, 0)
    cells = [trained("learned", 0.2), trained("diverged", math.nan), trained("learned", 0.4)]
    grid = grids.measured_cells(plan, {Job(spot, seed): cell for seed, cell in enumerate(cells)})
    assert OUTCOMES[grid.outcomes[0, 0, 1]] == "learned"
    assert grid.held[0, 0, 1] == pytest.approx(2 / 3) and grid.losses[0, 0, 1] == pytest.approx(0.3)


def test_the_key_names_one_loss_once() -> None:
    plan = plan_of(2)
    for losses, told in (((0.5, 0.5), ["learned, loss 0.5"]), ((0.5, 0.7), ["learned, loss 0.5", "learned, loss 0.7"])):
        cells = {Job(Spot(0, place // 2, place % 2), 0): trained("learned", losses[place % 2]) for place in range(4)}
        assert [text for _, text in drawing.drawing_of(JournalContent(plan, cells)).key] == told


def test_a_journal_keeps_every_cell_once_and_its_numbers_exactly(tmp_path: Path) -> None:
    path, plan = tmp_path / "a.map", plan_of(by="clipping.kind=none,norm", seeds=2)
    cells = {
        Job(Spot(1, 0, 7), 1): trained("learned", 0.1 + 0.2),
        Job(Spot(0, 3, 2), 0): trained("diverged", math.inf),
    }
    with Journal(path, plan, resume=False) as journal:
        assert all(journal.add(job, cell) == cell for job, cell in cells.items())
        job, cell = next(iter(cells.items()))
        assert journal.add(job, replace(cell, step=3)) == cell  # what was there first stays
        assert journals.load(path).results == cells  # while it is written
    stored = journals.load(path)
    assert stored.results == cells and difference(stored.plan, plan) == ""
    assert [each.name for each in tmp_path.iterdir()] == ["a.map"]
    with Journal(path, plan, resume=True) as journal:
        assert journal.results == cells


def test_a_journal_says_in_one_line_why_it_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "a.map"
    Journal(path, plan_of(), resume=False).close()
    with pytest.raises(JournalError, match="--resume"):
        Journal(path, plan_of(), resume=False)
    with pytest.raises(JournalError, match="another plan"):
        Journal(path, plan_of(9), resume=True)
    (tmp_path / "text.map").write_text("no map")
    with pytest.raises(JournalError, match="no map"):
        journals.load(tmp_path / "text.map")
    with pytest.raises(JournalError, match="there is no map"):
        journals.load(tmp_path / "none.map")
    data = bytearray(path.read_bytes())
    data[4096:8192] = b"\xff" * 4096
    (tmp_path / "torn.map").write_bytes(data)
    with pytest.raises(JournalError, match=r"torn\.map"):
        journals.load(tmp_path / "torn.map")
    database = sqlite3.connect(path)
    database.execute("CREATE VIEW v AS SELECT 1")
    database.close()
    with pytest.raises(JournalError, match="other tables"):
        journals.load(path)


def with_plan(change: Callable[[dict[str, Any]], object]) -> Callable[[sqlite3.Connection], object]:
    def damage(database: sqlite3.Connection) -> None:
        plan = json.loads(database.execute("SELECT content FROM about WHERE name = 'plan'").fetchone()[0])
        change(plan)
        database.execute("UPDATE about SET content = ? WHERE name = 'plan'", (json.dumps(plan),))

    return damage


HOSTILE: dict[str, Callable[[sqlite3.Connection], object]] = {
    "a place between cells": lambda database: database.execute("UPDATE cells SET x = 0.5"),
    "a time without end": lambda database: database.execute("UPDATE cells SET seconds = 'inf'"),
    "half a seed": with_plan(lambda plan: plan.update(seeds=1.5)),
    "a knob without panels": with_plan(lambda plan: plan.update(by="model.depth", panels=[])),
    "panels without a knob": with_plan(lambda plan: plan.update(panels=[1, 2])),
    "many panels": with_plan(lambda plan: plan.update(by="model.depth", panels=list(range(1, 10_000)))),
    "an axis of logarithms from 0": with_plan(lambda plan: plan["x"]["values"].__setitem__(0, 0)),
    "an axis of truths": with_plan(lambda plan: plan["x"].update(values=[False, True])),
    "an axis without end": with_plan(lambda plan: plan["x"]["values"].append(math.inf)),
}


@pytest.mark.parametrize("fault", HOSTILE)
def test_a_journal_that_no_program_wrote_is_refused_as_a_whole(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "a.map"
    with Journal(path, plan_of(), resume=False) as journal:
        journal.add(Job(Spot(0, 0, 0), 0), trained())
    assert len(journals.load(path).results) == 1
    database = sqlite3.connect(path)
    with database:
        HOSTILE[fault](database)
    database.close()
    with pytest.raises(JournalError, match=r"a\.map is no map of GradStudio, or it is damaged"):
        journals.load(path)


def test_a_journal_begins_where_files_have_no_second_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on most USB sticks."""
    path = tmp_path / "a.map"
    monkeypatch.delattr("os.link")
    Journal(path, plan_of(), resume=False).close()
    assert not journals.load(path).results and [each.name for each in tmp_path.iterdir()] == ["a.map"]
    with pytest.raises(JournalError, match="--resume"):
        Journal(path, plan_of(), resume=False)


def test_a_map_is_seen_coarsely_at_once_and_round_the_cross() -> None:
    """The order changes nothing but the order: the cells of a level are those that refinement asks for."""
    plan = plan_of(16, full=True)
    jobs = coarse_first(plan, grids.next_jobs(plan, {}))
    assert sorted(jobs) == sorted(grids.next_jobs(plan, {})) and len(jobs) == 256
    first = {(job.spot.row // 4, job.spot.column // 4) for job in jobs[:16]}
    assert len(first) == 16  # one in each block of four by four
    assert len({(job.spot.row // 2, job.spot.column // 2) for job in jobs[:64]}) == 64
    place = spot_of(plan, plan.experiment)
    assert place is not None
    away = [math.hypot(job.spot.column + 0.5 - place[1], job.spot.row + 0.5 - place[2]) for job in jobs[:16]]
    assert away == pytest.approx(sorted(away))
    known = {job: CellResult("learned", 1, 1.0, 1.0, 0.1) for job in jobs[:16]}
    assert coarse_first(plan, grids.next_jobs(plan, known)) == jobs[16:]  # it goes on where it stopped
    assert (grids.fill_gaps(plan, grids.measured_cells(plan, known)).outcomes == 0).all()  # and the whole area is seen


def test_the_time_of_a_map_is_told_before_it_is_made() -> None:
    cost = Cost(0.1, 0.01)
    assert time_needed.runs((1, 12, 12), 1, full=False) == (144, 144)
    least, most = time_needed.runs((2, 32, 32), 3, full=False)
    assert (least, most) == (2 * 3 * 64, 2 * 3 * 1024)
    assert time_needed.in_words((144, 144), cost, 90, 2).startswith("It takes about 1 min 12 s;")
    assert "at most about 8 min" in time_needed.in_words((64, 1024), cost, 90, 2)
    asked = Size(32, 300)
    assert time_needed.fit_size(asked, 1, Cost(0.0, 1e-5), 2) == asked
    for step in (1e-4, 1e-3, 1e-2):
        size = time_needed.fit_size(asked, 1, Cost(0.0, step), 2)
        assert size.cells**2 * size.steps * step <= 2 * time_needed.AIM and size.cells >= time_needed.FEWEST_CELLS


def test_a_trial_times_a_run_of_a_cell() -> None:
    cost = time_needed.measure_cost(SMALL, lambda: False)
    assert cost is not None and 0 < cost.run(10) < cost.run(1000)


def test_numbers_of_a_map_are_as_a_person_writes_them() -> None:
    plan = plan_of(12)
    assert plan.x.words == "learning rate from 0.01 to 30"
    assert plan.values_in_words(Spot(0, 9, 5)) == "learning rate 7, init gain 0.81"
    near = (0.12341, 0.12342, 5)
    assert [axis.short_value(value, near) for value in near] == ["0.12341", "0.12342", "5"]
    assert axis.name_in_words("accumulation.steps") == "accumulation steps"
