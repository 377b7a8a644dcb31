"""A damaged library is replaced by one with all runs that can be read, or stays where it is."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradstudio.core import presets
from gradstudio.core.history import COLUMNS, LAYER_METRICS
from gradstudio.core.row import Layer, Row
from gradstudio.session.library import library_faults, salvage, schema
from gradstudio.session.library.library_faults import LibraryError
from gradstudio.session.library.open_files import identity
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


def others(path: Path) -> list[str]:
    """What lies beside a library, apart from its log."""
    return sorted(name for name in os.listdir(path.parent) if name not in (path.name, *(path.name + e for e in LOGS)))


LOGS = ("-wal", "-shm")


# ---- salvage that breaks off


def no_new_library(real: Callable[..., Any]) -> Callable[..., Any]:
    def connect(path: Path, **given: bool) -> sqlite3.Connection:
        if path.parent.name.startswith(".gradstudio"):
            path.touch()
            raise sqlite3.OperationalError("database or disk is full")
        return real(path, **given)

    return connect


def full_after_some(real: Callable[..., Any]) -> Callable[..., Any]:
    lines: list[object] = []

    def put(*given: Any) -> None:
        lines.append(given)
        if len(lines) > 20:
            raise sqlite3.OperationalError("database or disk is full")
        real(*given)

    return put


def killed(real: Callable[..., Any]) -> Callable[..., Any]:
    def put(*given: Any) -> None:
        raise KeyboardInterrupt

    return put


def refused(real: Callable[..., Any]) -> Callable[..., Any]:
    def replace(*given: Any) -> None:
        raise PermissionError(13, "Permission denied")

    return replace


FAULTS = [(schema, "connect", no_new_library), (salvage, "put", full_after_some), (salvage, "put", killed),
          (os, "replace", refused)]  # fmt: skip


@pytest.mark.parametrize(
    ("where", "name", "fault", "opening"),
    [(*each, opening) for each in FAULTS for opening in (True, False) if not (opening and each[1] == "put")],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_salvage_that_breaks_off_leaves_the_damaged_file_and_is_tried_again(
    where: Any, name: str, fault: Callable[..., Any], opening: bool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = set() if opening else readable(path)  # without its first page, nothing of it is known
    if opening:
        data = bytearray(path.read_bytes())
        data[100:140] = bytes(40)
        path.write_bytes(data)
    with monkeypatch.context() as patches:
        patches.setattr(where, name, fault(getattr(where, name)))
        with pytest.raises((LibraryError, KeyboardInterrupt)) as told:
            Library(path).entries()
    assert fault is killed or "is damaged, and no new one could be made: " in str(told.value)
    assert not others(path)
    with contextlib.closing(Library(path)) as library:
        assert listed(library) == sound and f"{len(sound)} runs could be saved" in library.notice


@pytest.mark.skipif(os.name == "nt", reason="an open file cannot be replaced there")
def test_at_no_moment_is_there_no_library(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, moments, real = Library(path), [], os.replace

    def replace(*given: Any) -> None:
        moments.append(path.exists())
        real(*given)
        moments.append(path.exists())

    monkeypatch.setattr(os, "replace", replace)
    library.entries()
    assert moments and all(moments)


@pytest.mark.skipif(os.name == "nt", reason="an open file cannot be replaced there")
def test_a_file_system_without_hard_links(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*given: Any) -> None:
        raise OSError(95, "Operation not supported")

    sound, before = readable(path), path.read_bytes()
    monkeypatch.setattr(os, "link", link)
    with monkeypatch.context() as patches:
        real = os.replace
        patches.setattr(
            os, "replace", lambda old, new: refused(real)() if ".gradstudio" in str(old) else real(old, new)
        )
        with pytest.raises(LibraryError, match="permission denied"):
            Library(path).entries()
    assert not others(path)
    with contextlib.closing(Library(path)) as library:
        assert listed(library) == sound
    [aside] = path.parent.glob("*damaged*.sqlite3")
    assert aside.read_bytes() == before


@pytest.mark.skipif(not hasattr(os, "symlink") or os.name == "nt", reason="needs links")
def test_the_file_behind_a_link_is_replaced_and_the_link_stays(path: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    link = tmp_path / "mine" / "library.sqlite3"
    link.symlink_to(path)
    sound = readable(path)
    with contextlib.closing(Library(link)) as library:
        assert listed(library) == sound
    assert link.is_symlink() and os.path.realpath(link) == os.path.realpath(path) and readable(path) == sound


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


# ---- several at once


def test_the_connection_is_of_use_after_a_set_aside_that_fails(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound, library = readable(path), Library(path)
    with monkeypatch.context() as patches:
        patches.setattr(os, "replace", refused(os.replace))
        for _ in range(2):
            with pytest.raises(LibraryError, match="permission denied"):
                library.entries()
            assert len(library.load("run-00").history) == 1 and not library.is_replaced
    assert listed(library) == sound
    library.close()


def test_a_connection_that_cannot_be_opened_again_is_to_be_replaced(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(*given: Any, **options: Any) -> sqlite3.Connection:
        raise sqlite3.OperationalError("not now")

    library = Library(path)
    with monkeypatch.context() as patches:
        patches.setattr(schema, "connect", connect)
        with pytest.raises(LibraryError, match="not now"):
            library.entries()
    assert library.is_replaced
    library.close()


def test_two_programs_that_set_the_same_file_aside(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound, real, calls = readable(path), salvage.lines, []
    slow = Library(path)

    def lines(*given: Any) -> list[Any]:
        calls.append(given)
        if len(calls) == 3:  # the other program has seen the damage too, and is faster
            monkeypatch.setattr(schema, "PATIENCE", 0.01)
            salvage.set_aside(path)[1].close()
        return real(*given)

    monkeypatch.setattr(salvage, "lines", lines)
    assert listed(slow) == sound and not slow.is_replaced and not slow.notice
    slow.annotate("run-00", note="mine")
    slow.close()
    with contextlib.closing(Library(path)) as library:
        assert {entry.id for entry in library.entries() if entry.note == "mine"} == {"run-00"}
    assert len(list(path.parent.glob("*damaged*.sqlite3"))) == 1


def test_a_file_that_has_taken_the_place_of_the_damaged_one_stays(path: Path) -> None:
    damaged = identity(path)
    os.rename(path, path.with_name("seen"))
    write(path, ["new"])
    there = identity(path)
    told, connection = salvage.set_aside(path, damaged)
    connection.close()
    assert not told and identity(path) == there


def test_nothing_is_written_into_a_file_that_was_set_aside(path: Path) -> None:
    first, second = Library(path), Library(path)
    second.entries()
    with pytest.raises(LibraryError, match="somebody has replaced the file") as told:
        first.annotate("run-00", note="mine")
    assert library_faults.is_lock(told.value), "the writer tries it again, to the end"
    first.close()
    second.close()
