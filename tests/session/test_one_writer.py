"""A run is written by its worker alone: readers cannot, and no other file tries to."""

from __future__ import annotations

import ast
import re
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.simulator import Simulator

PACKAGE = Path(__file__).parent.parent.parent / "gradstudio"
SMALL = Experiment().with_texts(["run.steps=3", "run.device=cpu", "model.width=8", "model.depth=1"])
# The record itself, the worker's files, the readers of the library and of logs, and the owner of runs that no worker
# has.
WRITERS = ("session/record/", "session/running/", "session/remote/", "session/library/run_values.py", "session/simulator.py", "session/files/log_reading/log_run.py",
           "watching/recording/watched_run.py", "watching/recording/row_queue.py")  # fmt: skip
ITS_OWN = {*(field.name for field in fields(Run))}
CHANGING = {
    "append",
    "extend",
    "insert",
    "pop",
    "remove",
    "clear",
    "update",
    "setdefault",
    "sort",
    "grow",
    "__setitem__",
}
A_RUN = re.compile(r"(^|\.|_)(run|record|parent|branch|twin|child|tried|one|other)$")


def writings(source: str) -> list[str]:
    """Every place where a run is written to: by assigning, by changing what it holds, or through a RunWriter."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=of, attr=attr, ctx=ast.Store() | ast.Del()) if attr in ITS_OWN and of_a_run(of):
                found.append(f"line {node.lineno}: {ast.unparse(node)} is assigned")
            case ast.Subscript(value=ast.Attribute(value=of, attr=attr), ctx=ast.Store() | ast.Del()) if (
                attr in ITS_OWN and of_a_run(of)
            ):
                found.append(f"line {node.lineno}: {ast.unparse(node)} is assigned")
            case ast.Call(func=ast.Attribute(value=ast.Attribute(value=of, attr=attr), attr=method)) if (
                method in CHANGING and attr in ITS_OWN and of_a_run(of)
            ):
                found.append(f"line {node.lineno}: {ast.unparse(node.func)} is called")
            case ast.Call(func=ast.Name(id="vars" | "setattr"), args=[of, *_]) if of_a_run(of):
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
            case ast.ImportFrom(names=names) if any(alias.name in ("RunWriter", "run_writer") for alias in names):
                found.append(f"line {node.lineno}: RunWriter is imported")
            case ast.Import(names=names) if any(alias.name.endswith("run_writer") for alias in names):
                found.append(f"line {node.lineno}: RunWriter is imported")
    return found


def of_a_run(node: ast.expr) -> bool:
    return bool(A_RUN.search(ast.unparse(node)))


def test_only_the_worker_writes() -> None:
    found = [
        f"{name}, {writing}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if not (name := path.relative_to(PACKAGE).as_posix()).startswith(WRITERS)
        for writing in writings(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "run.name = 'a'",
        "self.run.status = 'paused'",
        "del simulator.run.message",
        "run.seconds += 1",
        "trial.run.findings['a'] = finding",
        "run.events.append(event)",
        "self._run.history.append(row)",
        "run.status, run.message = 'failed', ''",
        "vars(run)['name'] = 'a'",
        "setattr(run, 'name', 'a')",
        "from gradstudio.session.record.run_writer import RunWriter",
        "def f():\n    from gradstudio.session.record import run_writer",
        "import gradstudio.session.record.run_writer",
    ],
)
def test_a_planted_writing_is_found(source: str) -> None:
    [found] = {each.partition(": ")[0] for each in writings(source)}
    assert found.startswith("line ")


@pytest.mark.parametrize(
    "source", ["events = list(run.events)", "runs.append(run)", "self.name = run.name", "trial.message = run.message"]
)
def test_reading_is_not_reported(source: str) -> None:
    assert writings(source) == []


@pytest.mark.parametrize("name", sorted(ITS_OWN))
def test_nobody_can_assign_to_what_readers_hold(name: str) -> None:
    run = Simulator(Preset(id="small", title="Small", experiment=SMALL)).run
    with pytest.raises(FrozenInstanceError):
        setattr(run, name, getattr(run, name))
    with pytest.raises(FrozenInstanceError):
        delattr(run, name)


def test_a_name_is_written_by_the_worker_that_has_the_run_and_else_by_the_owner() -> None:
    one = Simulator(Preset(id="small", title="Small", experiment=SMALL))
    one.rename_run(one.run, "before it began")
    assert one.run.name == "before it began"
    one.step()
    worker = one._worker
    assert worker is not None
    assert not worker.rename(Run(one.preset, SMALL), "another's"), "the worker has only its own run"
    one.rename_run(one.run, "while it trains")
    assert one.close(30) and one.run.name == "while it trains"
    assert not worker.rename(one.run, "too late for the worker")
    one.rename_run(one.run, "when it is over")
    assert one.run.name == "when it is over" and one.run.title == "when it is over"


def test_what_a_writer_writes_is_seen_at_once() -> None:
    run = Run(Preset(id="small", title="Small", experiment=SMALL), SMALL)
    writer = RunWriter(run)
    writer.begin((), {"device": "cpu"})
    writer.set_status("running")
    writer.change("optimizer.lr", 0.5)
    assert run.status == "running" and run.in_force["optimizer.lr"] == 0.5
    assert [event.kind for event in run.events] == ["started", "knob_changed"]
