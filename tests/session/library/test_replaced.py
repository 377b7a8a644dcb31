"""Somebody puts something else in the library's place while a run is written: nothing of it is lost, nor of the run."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from waiting import PATIENCE, until

from gradstudio.core import presets
from gradstudio.core.history import COLUMNS, LAYER_METRICS
from gradstudio.core.row import Layer, Row
from gradstudio.session.library import writer
from gradstudio.session.library.store import Library
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter


def made(name: str) -> Run:
    preset = presets.load("rnn-explosion")
    run = Run(preset, preset.experiment, id=name, status="running")
    RunWriter(run).begin((Layer("one.weight", "weight", 3),), {"device": "cpu"})
    for step in range(5):
        values = {column: float(step) for column in COLUMNS}
        run.history.append(Row(**values | {"step": step}, layers=np.zeros((len(LAYER_METRICS), 1), np.float32)))
    return run


def library(path: Path) -> None:
    writing = LibraryWriter(path)
    run = made("earlier")
    RunWriter(run).set_status("finished")
    writing.follow(run)
    assert writing.close(PATIENCE)


def database(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE notes (text)")
        other.executemany("INSERT INTO notes VALUES (?)", [("x" * 1000,)] * 500)
        other.commit()


def text(path: Path) -> None:
    path.write_text("a line\n" * 9000)


def folder(path: Path) -> None:
    path.mkdir()
    (path / "file").write_text("a line")


def link(path: Path) -> None:
    library(path.with_name("elsewhere.sqlite3"))
    path.symlink_to(path.with_name("elsewhere.sqlite3"))


def content(path: Path) -> object:
    return path.read_bytes() if path.is_file() else sorted(os.listdir(path))


def runs_in(path: Path) -> dict[str, int]:
    with contextlib.closing(Library(path)) as found:
        return {run.id: len(found.load(run.id).history) for run in found.entries() if found.check() == "ok"}


@pytest.mark.parametrize("other", [library, database, text, folder, link])
def test_what_takes_the_librarys_place_stays_whole(
    other: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "INTERVAL", 0.005)
    place, moved = tmp_path / "disk" / "runs.sqlite3", tmp_path / "moved"
    run, foreign = made("run"), tmp_path / "foreign"
    other(foreign)
    before = content(foreign)
    writing = LibraryWriter(place)
    writing.follow(run)
    until(lambda: place.exists() and "run" in runs_in(place))
    with contextlib.closing(Library(place)):  # somebody who reads meanwhile does no harm
        place.rename(moved)
        foreign.rename(place)
        RunWriter(run).set_status("finished")
        assert writing.close(PATIENCE), writing.problem
    steps = len(run.history)
    assert runs_in(moved) == {"run": steps}, "what was written before is whole too"
    if other in (library, link):
        assert runs_in(place) == {"earlier": steps, "run": steps} and not writing.notice
        return
    assert content(place) == before
    assert writing.path != place and str(writing.path) in writing.notice and str(place) in writing.notice
    assert runs_in(writing.path) == {"run": steps}
    assert sorted(os.listdir(place.parent)) == sorted([place.name, writing.path.name])
