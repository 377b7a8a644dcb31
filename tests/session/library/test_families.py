"""Branches come back from the library as they were, each behind what it branched from, whatever became of that."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from waiting import until

from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import COLUMNS, LAYER_METRICS
from gradstudio.core.presets import Preset
from gradstudio.session.library.library_faults import LibraryError
from gradstudio.session.library.store import Library
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.record.branches import fork
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.running import foreground

SMALL = ["model.depth=1", "model.width=4", "problem.batch_size=4", "run.steps=12", "run.device=cpu"]
PLANNED = (Change(3, "optimizer.lr", 0.05), Change(9, "optimizer.lr", 0.01))
ALIKE = (
    "id",
    "name",
    "title",
    "parent",
    "parent_step",
    "ancestors",
    "at_fork",
    "what_changed",
    "own",
    "timeline",
    "planned",
    "asked",
    "course",
    "experiment",
    "in_force",
    "events",
    "status",
    "first_nonfinite_step",
    "findings",
    "compare_at",
    "environment",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "library.sqlite3"


@pytest.fixture
def library(path: Path) -> Iterator[Library]:
    library = Library(path)
    yield library
    library.close()


def trained(path: Path, run: Run) -> Run:
    """The run, made here and written into the library."""
    writing = LibraryWriter(path)
    writing.follow(run)
    foreground.train(run, progress=False)
    assert run.status == "finished", run.message
    assert writing.close(), writing.problem
    return run


def root(path: Path) -> Run:
    experiment = Experiment().with_texts(SMALL)
    return trained(
        path,
        Run(Preset(id="small", title="Small", experiment=experiment, timeline=PLANNED), experiment, PLANNED, id="root"),
    )


def branch(path: Path, parent: Run, step: int, *asked: Change, id: str) -> Run:
    return trained(path, replace(fork(parent, step, changes=asked), id=id))


def assert_as_it_was(found: Run, run: Run) -> None:
    for name in ALIKE:
        assert getattr(found, name) == getattr(run, name), name
    for name in COLUMNS:
        assert found.history.column(name).tobytes() == run.history.column(name).tobytes(), name
    for name in LAYER_METRICS:
        assert found.history.layer_metric(name).tobytes() == run.history.layer_metric(name).tobytes(), name


def test_branches_come_back_as_they_were(path: Path, library: Library) -> None:
    first = root(path)
    one = branch(path, first, 5, Change(5, "optimizer.momentum", 0.9), Change(7, "clipping.kind", "norm"), id="one")
    two = branch(path, one, 6, Change(6, "optimizer.lr", 0.5), id="two")
    for run in (first, one, two):
        assert_as_it_was(library.load(run.id), run)
    assert one.title == "Small: optimizer.momentum = 0.9, clipping.kind = norm"
    assert two.title == "Small: optimizer.lr = 0.5", (
        "though it was changed again, as planned; the clipping was planned too"
    )
    assert two.ancestors == {"root": 5, "one": 6}
    assert [(entry.parent, entry.parent_step) for entry in library.entries()] == [("one", 6), ("root", 5), (None, None)]
    again = fork(library.load("two"), 8)
    assert (again.in_force, again.ancestors, again.course) == (
        fork(two, 8).in_force,
        fork(two, 8).ancestors,
        fork(two, 8).course,
    )


def test_a_run_is_found_with_its_whole_family_each_behind_its_parent(path: Path, library: Library) -> None:
    first = root(path)
    one = branch(path, first, 5, id="one")
    branch(path, first, 2, id="other")
    branch(path, one, 7, id="late")
    for run in ("root", "one", "other", "late"):
        assert library.family(run) == ["root", "one", "other", "late"]
    library.delete(["one"])
    assert library.family("late") == ["late"] and library.family("root") == ["root", "other"]
    library.restore(["one"])
    assert library.family("late") == ["root", "one", "other", "late"]
    assert library.family("nobody") == ["nobody"]


def test_a_branch_stays_whole_when_its_parents_are_purged(path: Path, library: Library) -> None:
    first = root(path)
    one = branch(path, first, 5, Change(5, "optimizer.momentum", 0.9), id="one")
    two = branch(path, one, 6, id="two")
    for gone, ancestors in (("root", {"root": 5, "one": 6}), ("one", {"one": 6})):
        library.delete([gone])
        assert library.purge() == 1
        found = library.load("two")
        assert found.ancestors == ancestors
        assert_as_it_was(replace(found, ancestors=two.ancestors), two)
    assert library.family("two") == ["two"] and library.check() == "ok"


@pytest.mark.parametrize(
    ("parent", "step"), [("one", 3), ("two", 4), ("root", 400), ("nobody", 5), ("", 0), (None, None)]
)
def test_a_line_that_somebody_bent_does_no_harm(
    parent: str | None, step: int | None, path: Path, library: Library
) -> None:
    first = root(path)
    one = branch(path, first, 5, id="one")
    branch(path, one, 7, id="two")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE runs SET parent = ?, parent_step = ? WHERE id = 'one'", (parent, step))
        connection.execute("DELETE FROM checksums")  # as of a run from before there were any
    found = library.load("two")
    assert (
        list(found.ancestors)[-1] == "one"
        and "two" not in found.ancestors
        and all(end <= 7 for end in found.ancestors.values())
    )
    assert 0 <= library.load("one").own <= 12
    assert {"one", "two"} <= set(library.family("two"))


def test_a_title_is_kept_and_one_that_is_too_long_is_not(path: Path, library: Library) -> None:
    one = branch(path, root(path), 5, Change(5, "optimizer.momentum", 0.9), id="one")
    library.rename("one", "The good one")
    found = library.load("one")
    assert (found.name, found.title, found.what_changed) == ("The good one", "The good one", one.what_changed)
    assert library.entries("good one")[0].id == "one"
    library.rename("one", one.title)
    assert (library.load("one").name, library.load("one").title) == ("", one.title)
    for title in ("", "x" * 201):
        with pytest.raises(LibraryError, match="allowed: 1 to 200"):
            library.rename("one", title)


def test_a_title_that_is_given_while_it_trains_stays(path: Path, library: Library) -> None:
    parent = root(path)
    run, other = fork(parent, 5), fork(parent, 5)
    writing = LibraryWriter(path)
    for each in (run, other):
        each.history.extend(*rows_of(parent, 5, 7))
        RunWriter(each).set_status("running")
        writing.follow(each)
    until_written(library, run.id, other.id)
    library.rename(run.id, "The good one")
    for each in (run, other):
        RunWriter(each).change("optimizer.momentum", 0.5)
        each.history.extend(*rows_of(parent, 7, 9))
        RunWriter(each).set_status("finished")
    assert writing.close(), writing.problem
    found = library.load(run.id)
    assert (found.title, len(found.history), found.what_changed) == ("The good one", 9, "optimizer.momentum = 0.5")
    assert library.load(other.id).title == other.title == "Small: optimizer.momentum = 0.5"


def test_a_change_that_is_taken_back_goes_from_the_library_too(path: Path, library: Library) -> None:
    parent = root(path)
    run = fork(parent, 5)
    run.history.extend(*rows_of(parent, 5, 7))
    RunWriter(run).set_status("running")
    RunWriter(run).change("optimizer.momentum", 0.5)
    RunWriter(run).change("clipping.kind", "norm")
    writing = LibraryWriter(path)
    writing.follow(run)
    until_written(library, run.id)
    assert library.load(run.id).timeline == run.timeline and len(run.timeline) == 3
    RunWriter(run).change("optimizer.momentum", 0.0)
    RunWriter(run).set_status("finished")
    assert writing.close(), writing.problem
    found = library.load(run.id)
    assert found.timeline == run.timeline and [change.knob for change in found.timeline] == [
        "optimizer.lr",
        "clipping.kind",
    ]
    assert found.in_force == run.in_force and [event.text for event in found.events] == [
        event.text for event in run.events
    ]


def test_a_run_that_was_only_taken_back_is_not_written(path: Path, library: Library) -> None:
    parent = root(path)
    run = fork(parent, 5)
    RunWriter(run).set_status("stopped")
    writing = LibraryWriter(path)
    writing.follow(run)
    assert writing.close()
    assert [entry.id for entry in library.entries()] == ["root"]


def rows_of(run: Run, start: int, stop: int) -> tuple:
    columns = np.stack([run.history.column(name, start, stop) for name in COLUMNS], 1)
    return columns, np.stack([run.history.layer_metric(name, start, stop) for name in LAYER_METRICS])


def until_written(library: Library, *runs: str) -> None:
    until(lambda: set(runs) <= {entry.id for entry in library.entries()})
