"""What each rank measured is in the library as the rows of its run are: in pieces, checked, and saved from damage."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gradstudio.core import presets
from gradstudio.core.history import BLOCK, COLUMNS, LAYER_METRICS
from gradstudio.core.rank_figures import RANK_COLUMNS
from gradstudio.core.row import Layer, Row
from gradstudio.session.files import report
from gradstudio.session.files.run_files import has_ranks, ranks_npz
from gradstudio.session.library import followed_run, packing
from gradstudio.session.library.followed_run import PIECE
from gradstudio.session.library.library_faults import LibraryError
from gradstudio.session.library.store import Library
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter

RANKS = 3


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "library.sqlite3"


def made(steps: int, run: str = "ranks") -> Run:
    """A run on ranks with rows of any floats, that is not over."""
    preset = presets.load("poisoned-rank")
    record = Run(preset, preset.experiment, id=run)
    RunWriter(record).begin((Layer("head.weight", "weight", 3),), {"device": "cpu"})
    add(record, steps)
    RunWriter(record).set_status("running")
    return record


def add(run: Run, steps: int) -> None:
    source = np.random.default_rng(len(run.history))
    row = Row(**dict.fromkeys(COLUMNS, 1.0) | {"step": 0}, layers=np.zeros((len(LAYER_METRICS), 1), np.float32))
    for step in range(len(run.history), len(run.history) + steps):
        figures = source.choice(np.float32([np.nan, np.inf, -0.0, *source.normal(size=5)]), (RANKS, len(RANK_COLUMNS)))
        run.history.append(replace(row, step=step, ranks=figures))


def written(path: Path, *runs: Run) -> None:
    writing = LibraryWriter(path)
    for run in runs:
        writing.follow(run)
    assert writing.close(), writing.problem


def read(path: Path, run: str = "ranks") -> Run:
    with contextlib.closing(Library(path)) as library:
        return library.load(run)


def sql(path: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_they_come_back_bit_for_bit_however_they_were_written(path: Path) -> None:
    run, seen = made(PIECE - 3), None
    followed = followed_run.FollowedRun(run, None, None, None)
    with contextlib.closing(Library(path)) as library:
        for steps in (0, 5, 1, PIECE, BLOCK, 7):
            add(run, steps)
            followed.write(library, False)
            found = library.load(run.id)
            assert found.history.ranks.rows().tobytes() == run.history.ranks.rows().tobytes()
            assert len(found.history.ranks) == len(found.history) == len(run.history)
            seen = seen or library.load(run.id)  # another program that follows it
            RunWriter(seen).catch_up(found)
            assert seen.history.ranks.rows().tobytes() == run.history.ranks.rows().tobytes()


def test_a_run_that_is_read_has_all_that_a_trained_one_has(path: Path, tmp_path: Path) -> None:
    run = made(20)
    RunWriter(run).end("finished", "", 0.5)
    written(path, run)
    found = read(path)
    assert has_ranks(found)
    for each in (run, found):
        with (tmp_path / f"{each is run}.npz").open("wb") as file:
            ranks_npz(each, file)
    with np.load(tmp_path / "True.npz") as one, np.load(tmp_path / "False.npz") as other:
        assert sorted(one) == sorted(other) and all(one[name].tobytes() == other[name].tobytes() for name in one)
    assert "Ranks × steps" in report.content(found, "html")


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE rank_rows SET figures = zeroblob(length(figures))", "its rows of ranks from step 0 on is not what"),
        ("DELETE FROM rank_rows", "its rows of ranks from step 0 on is not what"),
        ("DELETE FROM checksums WHERE part = 'rank_rows'", "a part of it has no checksum"),
        ("DELETE FROM checksums; UPDATE rank_rows SET ranks = 1000000", "a piece of 20 rows of 1,000,000 ranks"),
        ("DELETE FROM checksums; UPDATE rank_rows SET ranks = 2", "damaged"),
    ],
)
def test_damage_is_told(statement: str, told: str, path: Path) -> None:
    written(path, made(20))
    sql(path, *statement.split("; "))
    with pytest.raises(LibraryError, match=told):
        read(path)


@pytest.mark.parametrize("rows", [BLOCK, BLOCK - 1])
def test_pieces_of_other_numbers_of_ranks_are_no_run(rows: int, path: Path) -> None:
    written(path, made(rows + 4))
    pieces = [(0, rows, RANKS), (rows, 4, 2)]
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM checksums")
        connection.execute("DELETE FROM rank_rows")
        for start, count, ranks in pieces:
            figures = packing.pack(np.ones((count, ranks, len(RANK_COLUMNS)), np.float32))
            connection.execute("INSERT INTO rank_rows VALUES ('ranks', ?, ?, ?, ?)", (start, count, ranks, figures))
    with pytest.raises(LibraryError, match="a piece of 2 ranks behind one of 3"):
        read(path)


def test_pieces_beyond_the_rows_are_not_unpacked(path: Path) -> None:
    written(path, made(BLOCK))
    figures = packing.pack(np.ones((BLOCK, RANKS, len(RANK_COLUMNS)), np.float32))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM checksums")
        for number in range(1, 4):
            line = ("ranks", number * BLOCK, BLOCK, RANKS, figures)
            connection.execute("INSERT INTO rank_rows VALUES (?, ?, ?, ?, ?)", line)
    assert len(read(path).history.ranks) == BLOCK


def test_a_library_of_version_5_opens_and_its_runs_have_no_rows_of_ranks(path: Path) -> None:
    written(path, made(20))
    sql(path, "DROP TABLE rank_rows", "DELETE FROM checksums WHERE part = 'rank_rows'", "PRAGMA user_version = 5")
    found = read(path)
    assert (len(found.history), len(found.history.ranks)) == (20, 0) and not has_ranks(found)
    assert "was not kept with this run" in report.content(found, "html")
    written(path, made(9, "later"))
    assert len(read(path, "later").history.ranks) == 9


def test_they_are_saved_from_a_damaged_library_and_removed_with_their_run(path: Path) -> None:
    run = made(20)
    RunWriter(run).end("finished", "", 0.5)
    written(path, run)
    with contextlib.closing(Library(path)) as library:
        library.set_aside()
    found = read(path)
    assert found.history.ranks.rows().tobytes() == run.history.ranks.rows().tobytes()
    with contextlib.closing(Library(path)) as library:
        library.delete([run.id])
        assert library.purge() == 1
        with library.transaction() as connection:
            assert connection.execute("SELECT count(*) FROM rank_rows").fetchone()[0] == 0
