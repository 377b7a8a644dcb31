"""All of a run is written although somebody deleted it, removed it or took the library away, or its device has
failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from waiting import PATIENCE

from gradstudio.core import presets
from gradstudio.core.history import COLUMNS, LAYER_METRICS
from gradstudio.core.row import Layer, Row
from gradstudio.session.library.checksums import updating
from gradstudio.session.library.followed_run import FollowedRun
from gradstudio.session.library.library_faults import LibraryError
from gradstudio.session.library.requests import Request
from gradstudio.session.library.store import Library
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.record.run import Run, Status
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.record.snapshots import KeptSnapshot, Snapshots

GONE = "elsewhere"  # as a process: nobody writes the run


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    opened = Library(tmp_path / "library.sqlite3")
    yield opened
    opened.close()


def made(status: Status = "running") -> Run:
    preset = presets.load("rnn-explosion")
    run = Run(preset, preset.experiment, id="run")
    RunWriter(run).begin((Layer("one.weight", "weight", 3),), {"device": "cpu"})
    RunWriter(run).set_status(status)
    more(run)
    return run


def more(run: Run) -> None:
    """Add five rows."""
    for step in range(len(run.history), len(run.history) + 5):
        values = {column: float(step) for column in COLUMNS}
        run.history.append(Row(**values | {"step": step}, layers=np.zeros((len(LAYER_METRICS), 1), np.float32)))


def followed(run: Run) -> FollowedRun:
    return FollowedRun(run, None, None, None)


def write_as(process: str, library: Library) -> None:
    """Let a run have been written by this process."""
    with library.transaction() as connection, updating(connection, "run"):
        connection.execute("UPDATE runs SET process = ?", (process,))


def rows_listed(library: Library) -> list[int]:
    return [len(library.load(entry.id).history) for entry in library.entries()]


def test_a_deleted_run_that_goes_on_is_in_the_list_again(library: Library) -> None:
    run = made("stopped")
    followed(run).write(library, over=True)
    library.delete(["run"])
    RunWriter(run).set_status("running")
    more(run)
    followed(run).write(library, over=False)
    assert library.purge(runs=["run"]) == 0 and rows_listed(library) == [10]


def test_a_deleted_run_that_is_only_renamed_stays_deleted(library: Library) -> None:
    run = made()
    writing = followed(run)
    writing.write(library, over=False)
    write_as(GONE, library)
    library.delete(["run"])
    RunWriter(run).rename("another name")
    RunWriter(run).set_status("paused")
    writing.write(library, over=False)
    assert not library.entries()
    more(run)
    writing.write(library, over=False)
    assert rows_listed(library) == [10]


def test_a_run_that_is_being_written_is_not_purged(library: Library) -> None:
    followed(made()).write(library, over=False)
    with library.transaction() as connection:
        connection.execute("UPDATE runs SET deleted = 1.0")
    assert library.purge() == library.purge(runs=["run"]) == 0
    write_as(GONE, library)
    assert library.purge() == 1


def test_a_run_of_another_host_can_be_deleted_once_it_was_told_to_stop(library: Library) -> None:
    followed(made()).write(library, over=False)
    write_as("elsewhere 1 1", library)
    with pytest.raises(LibraryError, match="on the machine elsewhere, which cannot be looked at from here"):
        library.delete(["run"])
    library.request("run", "stop", 1.0)
    library.delete(["run"])
    assert not library.entries() and library.purge() == 1


def test_a_run_that_was_removed_is_written_anew(library: Library, tmp_path: Path) -> None:
    writer = LibraryWriter(tmp_path / "other.sqlite3")
    writer._library = library
    run = made()
    writing = followed(run)
    for change in (more, lambda run: RunWriter(run).set_status("finished")):
        writer._write(writing, [writing])
        with library.transaction() as connection:
            connection.execute("DELETE FROM runs")
        change(run)
    writer._write(writing, [writing])
    assert rows_listed(library) == [10] and library.entries()[0].outcome == "finished"
    writer.close()


def test_requests_are_heard_in_the_library_that_took_the_place_of_another(tmp_path: Path) -> None:
    heard: list[Request] = []
    writing = FollowedRun(made(), None, heard.append, None)
    place = tmp_path / "other.sqlite3"
    for words in (["pause", "resume"], ["pause"], ["stop"]):  # numbers begin anew in each library
        with closing(Library(place)) as opened, closing(Library(place)) as asking:
            writing.forget()
            writing.write(opened, over=False)
            for word in words:
                heard.clear()
                asking.request("run", word, 1.0)
                writing.listen(opened)
                assert heard == [Request(word)]
        place.unlink()


class Unreadable:
    """A state on a device that has failed."""

    nbytes, on_disk = 10, False

    def pack(self) -> bytes:
        raise RuntimeError("CUDA error: device-side assert triggered\nFor debugging consider")


def test_the_end_of_a_run_is_written_without_snapshots_that_cannot_be_read(tmp_path: Path) -> None:
    run, snapshots, path = made("failed"), Snapshots(), tmp_path / "library.sqlite3"
    snapshots.add(KeptSnapshot("run", 4, Unreadable(), None, {}, 5.0), 0.0)
    writer = LibraryWriter(path)
    writer.follow(run, snapshots)
    assert writer.close(PATIENCE), writer.problem
    assert "CUDA error: device-side assert triggered" in writer.notice and "\n" not in writer.notice
    with closing(Library(path)) as found:
        assert found.entries()[0].outcome == "failed" and rows_listed(found) == [5]
