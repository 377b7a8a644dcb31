"""A damaged library is replaced by one with all runs that can be read, or stays where it is."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradstudio.core import presets
from gradstudio.core.history import COLUMNS, LAYER_METRICS, Layer, Row
from gradstudio.session.library.store import Library
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter

RUNS = 40


def write(path: Path, names: list[str]) -> None:
    preset, writing = presets.load("rnn-explosion"), LibraryWriter(path)
    for name in names:
        run = Run(preset, preset.experiment, id=name)
        RunWriter(run).begin((Layer("one.weight", "weight", 3),), {"device": "cpu"})
        values: dict[str, Any] = dict.fromkeys(COLUMNS, 1.0) | {"step": 0}
        run.history.append(Row(**values, layers=np.zeros((len(LAYER_METRICS), 1), np.float32)))
        RunWriter(run).set_status("finished")
        writing.follow(run)
    assert writing.close(), writing.problem


def overwrite(path: Path, pages: list[int], size: int) -> None:
    data = bytearray(path.read_bytes())
    for page in pages:
        data[(page - 1) * size : page * size] = bytes(index % 251 for index in range(size))
    path.write_bytes(data)


def leaves(path: Path) -> tuple[list[int], int]:
    """The pages with the lines of the table `runs`, in the order of their ids, and the size of a page."""
    with contextlib.closing(sqlite3.connect(path)) as library:
        [root] = library.execute("SELECT rootpage FROM sqlite_master WHERE name = 'runs'").fetchone()
        [size] = library.execute("PRAGMA page_size").fetchone()
    page = path.read_bytes()[(root - 1) * size : root * size]
    assert page[0] == 2, "a page that leads to others"
    cells = [int.from_bytes(page[at : at + 2], "big") for at in range(12, 12 + 2 * int.from_bytes(page[3:5], "big"), 2)]
    return [int.from_bytes(page[cell : cell + 4], "big") for cell in cells], size


def readable(path: Path) -> set[str]:
    """The runs whose lines can be read one by one."""
    found = set()
    with contextlib.closing(sqlite3.connect(path)) as library:
        for name in (f"run-{index:02}" for index in range(RUNS)):
            with contextlib.suppress(sqlite3.Error):
                found |= {id for (id,) in library.execute("SELECT id FROM runs WHERE id = ? AND note != 'x'", (name,))}
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A library of which the listing finds that a page is damaged."""
    path = tmp_path / "library.sqlite3"
    write(path, [f"run-{index:02}" for index in range(RUNS)])
    pages, size = leaves(path)
    overwrite(path, pages[1:2], size)
    return path


def listed(library: Library) -> set[str]:
    return {entry.id for entry in library.entries() if entry.outcome == "finished"}


# ---- what is saved, and what is counted


@pytest.mark.parametrize("damaged", [slice(1, 2), slice(1, None, 3)])
def test_every_run_whose_line_can_be_read_is_saved_and_the_others_are_counted(damaged: slice, path: Path) -> None:
    pages, size = leaves(path)
    overwrite(path, pages[damaged], size)
    sound = readable(path)
    assert 0 < len(sound) < RUNS - 1
    with contextlib.closing(Library(path)) as library:
        assert listed(library) == sound
        assert f"{len(sound)} runs could be saved, {RUNS - len(sound)} runs could not. The" in library.notice
