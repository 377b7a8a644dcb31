"""What was written into the library comes back as it was, whatever happened in between."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from waiting import ENDLESS, PATIENCE, join, until

from gradstudio.core import presets
from gradstudio.core.events import Change
from gradstudio.core.history import BLOCK, COLUMNS, LAYER_METRICS, OLDER, OLDER_METRICS, History
from gradstudio.core.row import Layer, Row, Settings
from gradstudio.core.unknown import OLDER_BITS, is_known, known_mask
from gradstudio.session.files.summary import summarize
from gradstudio.session.library import (
    checksums,
    followed_run,
    interrupted_runs,
    packing,
    salvage,
    schema,
    stored_runs,
    writer,
)
from gradstudio.session.library.followed_run import PIECE
from gradstudio.session.library.library_faults import LibraryError
from gradstudio.session.library.requests import Request
from gradstudio.session.library.store import Library
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.running import foreground


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "library.sqlite3"


def made(steps=5, layers=2, seed=0, title="A run", status="finished", **fields):
    """A run with rows of any floats."""
    preset = presets.load("rnn-explosion")
    run = Run(preset.model_copy(update={"title": title}), preset.experiment, **fields)
    RunWriter(run).begin(tuple(Layer(f"layer.{index}", "weight", 3) for index in range(layers)), {"device": "cpu"})
    source = np.random.default_rng(seed)
    special = [math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324]
    shape = steps, len(COLUMNS) - 1
    values = np.where(source.random(shape) < 2 / 3, source.choice(special, shape), source.normal(size=shape)).tolist()
    of_layers = source.choice(np.float32([*special[:5], 1e-38, 3e38, 1]), (steps, len(LAYER_METRICS), layers))
    for step in range(steps):
        row = dict(zip(tuple(COLUMNS)[1:], values[step], strict=True))
        run.history.append(Row(step, **row, layers=of_layers[step]))
    RunWriter(run).set_status(status)
    return run


def write(path: Path, *runs: Run) -> None:
    writing = LibraryWriter(path)
    for run in runs:
        writing.follow(run)
    assert writing.close(), writing.problem


def same(one: History, other: History) -> bool:
    columns = all(one.column(name).tobytes() == other.column(name).tobytes() for name in COLUMNS)
    return (
        columns
        and len(one) == len(other)
        and all(one.layer_metric(name).tobytes() == other.layer_metric(name).tobytes() for name in LAYER_METRICS)
    )


def test_rows_of_an_older_version_lack_what_it_did_not_measure(path):
    run = made(steps=9)
    run.history._rows[0][:9, OLDER[0] :] = 0.5
    write(path, run)
    table = np.ascontiguousarray(run.history.table()[:, : OLDER[0]])
    layers = np.stack([run.history.layer_metric(name) for name in LAYER_METRICS], 1)[:, : OLDER_METRICS[0]]
    with Library(path).transaction() as connection:
        connection.execute("UPDATE rows SET columns = ?, layers = ?", (packing.pack(table), packing.pack(layers)))
        connection.execute("DELETE FROM checksums")  # which that version did not have either
        connection.execute("DELETE FROM checksums")
    history = Library(path).load(run.id).history
    assert history.table()[:, : OLDER[0]].tobytes() == table.tobytes()
    assert not known_mask(history.table()[:, OLDER[0] :]).any()
    for place, name in enumerate(LAYER_METRICS):
        if place < OLDER_METRICS[0]:
            assert history.layer_metric(name).tobytes() == layers[:, place].tobytes()
        else:
            assert not known_mask(history.layer_metric(name)).any()
    assert not known_mask(history.layer_metric("grad_std")).any()
    history.append(replace(history_row(9), test_accuracy=math.nan))  # of a branch that this version trains
    assert history.measurements("test_accuracy")[0].tolist() == [9]


def test_what_an_older_version_did_not_know_is_unknown(path):
    run = made(steps=9)
    run.history._rows[0].view(np.uint64)[3, 5] = OLDER_BITS
    write(path, run)
    assert not is_known(Library(path).load(run.id).history.value(list(COLUMNS)[5], 3))


def test_a_run_with_a_value_that_had_another_name(path):
    run = made(planned=(Change(90, "clipping.kind", "per_tensor"),))
    RunWriter(run).change("clipping.kind", "per_tensor")
    run.history.settings.append((3, Settings("per_tensor", 1.0, "fp32")))
    write(path, run)
    with Library(path).transaction() as connection:
        for table, column in (("entries", "content"), ("runs", "planned")):
            connection.execute(f"UPDATE {table} SET {column} = replace({column}, 'per_tensor', 'per_layer')")
        connection.execute("DELETE FROM checksums")
    found = Library(path).load(run.id)
    assert found.in_force == run.in_force and found.in_force.clipping.kind == "per_tensor"
    assert (found.timeline, found.planned, found.what_changed) == (run.timeline, run.planned, run.what_changed)
    assert found.history.settings == run.history.settings


def history_row(step):
    return Row(step, *[1.0] * (OLDER[0] - 1), layers=np.zeros((len(LAYER_METRICS), 2), np.float32))


# ---- arrays as bytes


@settings(max_examples=60, deadline=None)
@given(
    arrays.arrays(
        st.sampled_from([np.float32, np.float64]), st.tuples(st.integers(0, 40), st.integers(1, 5), st.integers(0, 3))
    )
)
def test_arrays_come_back_bit_for_bit(values):
    assert packing.unpack(packing.pack(values), values.shape, values.dtype.type).tobytes() == values.tobytes()


def test_what_changes_little_is_small():
    source = np.random.default_rng(0)
    values = np.float32(source.normal(size=(1, 60)) * (1 + np.cumsum(source.normal(size=(4096, 60)) * 1e-4, 0)))
    assert len(packing.pack(values)) < 0.6 * values.nbytes


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-1], lambda data: data[:3], lambda data: b"", lambda data: data[:6] + b"xx" + data[8:]],
)
def test_damaged_bytes_are_an_error_or_other_numbers(damage):
    data = packing.pack(np.zeros((100, 3), np.float32))
    with pytest.raises(packing.PackingError):
        packing.unpack(damage(data), (100, 3), np.float32)


# ---- runs


@pytest.mark.parametrize("steps", [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 7])
def test_a_run_comes_back_as_it_was(path, steps):
    run = made(steps)
    write(path, run)
    found = Library(path).load(run.id)
    assert same(found.history, run.history) and found.history.layers == run.history.layers
    for name in (
        "id",
        "title",
        "experiment",
        "in_force",
        "status",
        "message",
        "events",
        "timeline",
        "environment",
        "started",
        "seconds",
        "accuracy",
    ):
        assert repr(getattr(found, name)) == repr(getattr(run, name)), name


@pytest.mark.parametrize("known_rows", [0, 7, BLOCK, BLOCK + 300, 2 * BLOCK, 2 * BLOCK + 7])
def test_a_run_that_grows_is_read_from_where_it_was_known(path, known_rows, monkeypatch):
    run = made(2 * BLOCK + 7)
    write(path, run)
    pieces = sorted({0, *range(0, 2 * BLOCK + 7, 500)})  # as it was written while it was trained
    with contextlib.closing(sqlite3.connect(path)) as library, library:
        library.execute("DELETE FROM rows")
        library.execute("DELETE FROM checksums WHERE part = 'rows'")
        for start, stop in zip(pieces, [*pieces[1:], 2 * BLOCK + 7], strict=True):
            content = (start, stop - start, *followed_run.pack_rows(run.history, start, stop))
            library.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", (run.id, *content))
            checksums.write(library, run.id, checksums.ROWS, start, checksums.of_values(content))
    unpacked: list[object] = []

    def unpack(*given: object) -> np.ndarray:
        unpacked.append(given)
        return packing.unpack(*given)

    monkeypatch.setattr(stored_runs, "unpack", unpack)
    with contextlib.closing(Library(path)) as library:
        whole = library.load(run.id)
        every = len(unpacked)
        later = library.load(run.id, whole.history.until(known_rows))
    assert same(later.history, run.history) and same(whole.history, run.history) and later.events == whole.events
    passed = known_rows // BLOCK * BLOCK // 500  # pieces that lie in full blocks
    assert (every, len(unpacked) - every) == (2 * len(pieces), 2 * (len(pieces) - passed))  # columns, and layers


def test_a_trained_run_comes_back_with_all_that_is_said_of_it(path):
    preset = presets.load("rnn-explosion")
    run = Run(preset, preset.experiment.with_values({"run.steps": 60, "model.width": 16}))
    writing = LibraryWriter(path)
    writing.follow(run)
    foreground.train(run, progress=False)
    assert writing.close()
    found = Library(path).load(run.id)
    assert (
        same(found.history, run.history) and found.findings == run.findings and found.history.loops == run.history.loops
    )
    assert repr(summarize(found)) == repr(summarize(run))
    assert found.preset == run.preset


def test_it_is_written_as_it_goes_and_what_is_short_again_with_the_next(path, monkeypatch):
    run = made(10, status="running")
    monkeypatch.setattr(writer, "INTERVAL", 600)  # it looks when it is told to, and never while rows are added
    writing = LibraryWriter(path)
    writing.follow(run)
    for stop in (10, PIECE - 1, PIECE, PIECE + 20, 2 * BLOCK + PIECE + 1, 2 * BLOCK + PIECE + 2):
        more = made(stop, seed=stop).history
        count = len(run.history)
        run.history.extend(
            np.stack([more.column(name, count) for name in COLUMNS], 1),
            np.stack([more.layer_metric(name, count) for name in LAYER_METRICS]),
        )
        writing._wake.set()
        until_listed(path, steps=stop)
        assert same(Library(path).load(run.id).history, run.history)
    RunWriter(run).set_status("finished")
    assert writing.close()
    chunks = sqlite3.connect(path).execute("SELECT start, count FROM rows ORDER BY start").fetchall()
    assert chunks == [(0, PIECE), (PIECE, BLOCK), (PIECE + BLOCK, BLOCK), (PIECE + 2 * BLOCK, 2)]


def until_listed(path, **values):
    """Wait until the newest run of the library is listed with these values."""

    def listed():
        with contextlib.suppress(LibraryError):
            with contextlib.closing(Library(path)) as library:
                entries = library.entries()
            return bool(entries) and all(getattr(entries[0], name) == value for name, value in values.items())

    until(listed)


def test_search_order_and_find(path):
    runs = [
        made(1, title=f"Run {index}", started=1000.0 + index, id=f"{'abc'[index]}{index}-run") for index in range(3)
    ]
    write(path, *runs)
    library = Library(path)
    library.annotate("b1-run", note="the teacher's <b>favourite</b>", tags=["class 7", "class 7", " "])
    assert [entry.id for entry in library.entries()] == ["c2-run", "b1-run", "a0-run"]
    assert [entry.id for entry in library.entries("FAVOURITE  class")] == ["b1-run"]
    assert library.entries()[1].tags == ("class 7",)
    assert library.find("b") == "b1-run" and library.find("last") == "c2-run"
    with pytest.raises(LibraryError, match="no run x"):
        library.find("x")
    with pytest.raises(LibraryError, match="too long"):
        library.annotate("b1-run", note="x" * 20_000)


def test_deleted_runs_can_be_restored_until_they_are_purged_which_gives_space_back(path):
    run, other = made(3 * BLOCK, layers=20, id="one"), made(2, id="other")
    write(path, run, other)
    library, before = Library(path), path.stat().st_size
    library.delete(["one"])
    assert [entry.id for entry in library.entries()] == ["other"] and [
        entry.id for entry in library.entries(deleted=True)
    ] == ["one"]
    library.restore(["one"])
    assert same(library.load("one").history, run.history)
    library.delete(["one"])
    assert library.purge(older_than=60) == 0
    assert library.purge() == 1
    assert path.stat().st_size < before / 5
    assert library.check() == "ok"


def test_a_run_that_is_going_cannot_be_deleted(path):
    run = made(3, status="running")
    writing = LibraryWriter(path)
    writing.follow(run)
    until_listed(path, outcome="running")
    with pytest.raises(LibraryError, match="still running"):
        Library(path).delete([run.id])
    writing.close()


# ---- what can go wrong

# Its steps take at least 5 ms, so that it does not take the processor from whoever waits for what it writes.
CHILD = """
import sys, time
from pathlib import Path
from gradstudio.core import presets
from gradstudio.session.running import foreground
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import Snapshots
Snapshots.due = lambda self, seconds: bool(time.sleep(0.005))  # asked after each step; none is due
preset = presets.load("deep-sigmoid-vanishing")
run = Run(preset, preset.experiment.with_values({"run.steps": int(sys.argv[2]), "model.width": 8, "model.depth": 3}))
LibraryWriter(Path(sys.argv[1])).follow(run)
foreground.train(run, progress=False)
"""


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize("writings", [pytest.param(1, marks=pytest.mark.thorough), 4])
def test_a_killed_program_loses_no_more_than_what_came_since_the_last_writing(path, writings):
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(path), str(ENDLESS)])
    seen = [0]

    def written():
        if path.exists():
            with contextlib.suppress(LibraryError), contextlib.closing(Library(path)) as library:
                seen.extend(entry.steps for entry in library.entries() if entry.steps > seen[-1])
        return len(seen) > writings

    try:
        until(written)
        assert Library(path).entries()[0].outcome == "running"
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    library = Library(path)
    entry = library.entries()[0]
    assert entry.outcome == "interrupted" and library.check() == "ok"
    found = library.load(entry.id)
    assert found.over and len(found.history) >= seen[-1] and writer.INTERVAL <= 0.5  # seconds
    assert np.array_equal(found.history.column("step"), np.arange(len(found.history)))


def test_a_process_that_is_gone_is_told_from_one_that_has_its_number():
    host, number, born = interrupted_runs.this_process().rsplit(" ", 2)
    assert interrupted_runs.is_alive(interrupted_runs.this_process()) and interrupted_runs.is_alive("elsewhere 1 1")
    assert not interrupted_runs.is_alive(f"{host} {number} {born}0")
    assert not interrupted_runs.is_alive(f"{host} 99999999 {born}")


@pytest.mark.skipif(sys.platform != "linux", reason="prctl and /proc")
def test_a_process_whose_name_linux_has_cut_in_the_middle_of_a_letter():
    code = "import ctypes, sys; ctypes.CDLL(None).prctl(15, sys.argv[1].encode()[:15], 0, 0, 0)\n"
    code += "from gradstudio.session.library import interrupted_runs as of; print(of.is_alive(of.this_process()), flush=True)\n"
    child = [sys.executable, "-c", code + "sys.stdin.read()", "тренировка.py"]
    with subprocess.Popen(child, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout.readline() == "True\n"
        host, _, born = interrupted_runs.this_process().rsplit(" ", 2)
        assert interrupted_runs.is_alive(f"{host} {one.pid} {interrupted_runs._start_time(one.pid)}")
        assert not interrupted_runs.is_alive(f"{host} {one.pid} {born}0")


def damage(path: Path, where: int, length: int = 3000) -> None:
    data = bytearray(path.read_bytes())
    data[where : where + length] = bytes(index % 251 for index in range(length))
    path.write_bytes(data)
    for ending in ("-wal", "-shm"):
        Path(f"{path}{ending}").unlink(missing_ok=True)


@pytest.fixture(scope="module")
def of_four_runs(tmp_path_factory) -> Path:
    """A library that nobody has open. To be copied."""
    path = tmp_path_factory.mktemp("four") / "library.sqlite3"
    write(path, *[made(400, layers=8, seed=index, id=f"run-{index}") for index in range(4)])
    return path


@pytest.mark.parametrize("where", [0, 100, 2500, 4096, 5000, 9000, 20_000, 60_000])
@pytest.mark.parametrize("length", [4, 3000])
def test_after_damage_runs_are_listed_and_kept_again_and_what_can_be_saved_is(path, of_four_runs, where, length):
    shutil.copytree(of_four_runs.parent, path.parent)
    damage(path, where, length)
    with contextlib.suppress(LibraryError):
        Library(path).entries()
    new = made(3)
    write(path, new)
    library = Library(path)
    assert same(library.load(new.id).history, new.history)
    for entry in library.entries():
        try:
            found = library.load(entry.id).history
        except LibraryError as fault:
            assert ("damaged" in str(fault) or "malformed" in str(fault)) and "\n" not in str(fault)
        else:
            assert len(found) <= 400 or entry.id == new.id
    if where == 0 and length > 4:
        assert list(path.parent.glob("library-damaged-*"))


def test_a_run_that_cannot_be_written_keeps_no_other_from_it(path):
    bad, good = made(3, id="bad", seconds=math.nan), made(3, id="good")
    writing = LibraryWriter(path)
    writing.follow(bad)
    writing.follow(good)
    assert not writing.close() and "cannot be written" in writing.problem
    assert [entry.id for entry in Library(path).entries()] == ["good"]


def test_text_that_is_no_utf_8_is_written_out(path):
    run = made(3, title="caf\udce9")
    RunWriter(run).end("finished", "\udcff", None)
    write(path, run)
    assert Library(path).entries()[0].title == "caf\\udce9"


@pytest.mark.skipif(os.name == "nt", reason="an open file cannot be deleted there")
@pytest.mark.parametrize(
    "how", [lambda path: path.unlink(), lambda path: shutil.rmtree(path.parent), lambda path: Library(path).set_aside()]
)
def test_a_library_that_is_taken_away_while_a_run_goes_on_is_written_anew(path, how):
    run = made(100, status="running")
    writing = LibraryWriter(path)
    writing.follow(run)
    until_listed(path, steps=100)
    how(path)
    more = made(200, seed=5).history
    run.history.extend(
        np.stack([more.column(name, 100) for name in COLUMNS], 1),
        np.stack([more.layer_metric(name, 100) for name in LAYER_METRICS]),
    )
    RunWriter(run).set_status("finished")
    assert writing.close()
    assert same(Library(path).load(run.id).history, run.history)


def test_setting_aside_that_fails_is_tried_again(path, monkeypatch):
    run = made(30, status="running")
    monkeypatch.setattr(writer, "INTERVAL", 0.01)
    writing = LibraryWriter(path)
    writing.follow(run)
    until_listed(path, steps=30)
    real, tries, writes = salvage.set_aside, [], []

    def failing(*given):
        tries.append(1)
        if len(tries) == 1:
            raise OSError("not now")
        return real(*given)

    def damaged(*given):
        writes.append(1)
        if len(writes) <= 2:
            raise sqlite3.DatabaseError("database disk image is malformed")
        return put(*given)

    put = followed_run.change_run
    monkeypatch.setattr(salvage, "set_aside", failing)
    monkeypatch.setattr(followed_run, "change_run", damaged)
    RunWriter(run).rename("something new")
    until(lambda: len(tries) == 1)
    RunWriter(run).set_status("finished")
    assert writing.close(), writing.problem
    assert same(Library(path).load(run.id).history, run.history)


def test_a_run_that_was_over_is_in_the_library_after_a_damaged_one_too(path, monkeypatch):
    first, second, writes = made(20, id="first"), made(30, seed=1, id="second"), []
    put = followed_run.put_run

    def damaged(*given):
        writes.append(1)
        if len(writes) == 2:
            raise sqlite3.DatabaseError("database disk image is malformed")
        put(*given)

    monkeypatch.setattr(followed_run, "put_run", damaged)
    write(path, first, second)
    library = Library(path)
    assert same(library.load("first").history, first.history) and same(library.load("second").history, second.history)


def test_the_file_of_another_program_is_left_as_it_is(tmp_path):
    other = tmp_path / "other.sqlite3"
    with contextlib.closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE mine (x)")
        connection.execute("PRAGMA user_version = 1")
    text = tmp_path / "thumbs.db"
    text.write_text("not a database, and longer than a header of one " * 20)
    for file in (other, text):
        before = file.read_bytes()
        with pytest.raises(LibraryError, match="no run library"):
            Library(file)
        assert file.read_bytes() == before and len(list(tmp_path.iterdir())) == 2


def test_the_database_of_another_program_keeps_its_settings(tmp_path):
    other = tmp_path / "other.sqlite3"
    with contextlib.closing(sqlite3.connect(other)) as connection:
        connection.execute("PRAGMA auto_vacuum = FULL")
        connection.execute("CREATE TABLE mine (x)")
    before = other.read_bytes()
    with pytest.raises(LibraryError, match="of another program"):
        Library(other)
    assert other.read_bytes() == before


def test_a_power_cut_takes_the_last_moment_and_never_the_file(path):
    """SQLite waits for the disk before it moves what the log has into the file: NORMAL, which is 1, and not OFF."""
    with contextlib.closing(Library(path)) as library, library.transaction() as connection:
        found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode")]
    assert found == [1, "wal"]


def as_left_by_a_killed_program(path, folder):
    """A library beside which SQLite's log lies, with a run in it, in another folder."""
    with contextlib.closing(Library(path)) as library:
        writing = LibraryWriter(path)
        writing.follow(made(5))
        assert writing.close()
        library.annotate(library.entries()[0].id, note="in the log")
        for ending in ("", "-wal", "-shm"):
            shutil.copy(f"{path}{ending}", folder / f"copy.sqlite3{ending}")
    return folder / "copy.sqlite3"


def test_on_a_full_disk_the_log_and_its_index_give_their_room(path, tmp_path):
    copy = as_left_by_a_killed_program(path, tmp_path)
    assert copy.with_name("copy.sqlite3-wal").stat().st_size
    with contextlib.closing(Library(copy, on_full_disk=True)) as library:
        assert [entry.note for entry in library.entries()] == ["in the log"]
        assert sorted(each.name for each in tmp_path.glob("copy*")) == ["copy.sqlite3"]
        library.delete(entry.id for entry in library.entries())
        assert library.purge() == 1


def test_on_a_file_system_that_is_read_only_runs_are_listed(path, tmp_path, monkeypatch):
    copy = as_left_by_a_killed_program(path, tmp_path)
    monkeypatch.setattr(schema, "_unchangeable", lambda path: True)
    copy.with_name("copy.sqlite3-shm").unlink()  # the index of the log, which nobody can make here
    with pytest.raises(LibraryError, match="cannot be written to; copy it elsewhere together with copy"):
        Library(copy)
    with contextlib.closing(Library(path)) as library:
        (entry,) = library.entries()
        assert len(library.load(entry.id).history) == 5
        with pytest.raises(LibraryError, match="readonly"):
            library.annotate(entry.id, note="more")
    assert [each.name for each in path.parent.glob(f"{path.name}*")] == [path.name]


def test_a_full_disk_is_said_and_later_made_good(path, monkeypatch):
    run = made(5, status="running")
    monkeypatch.setattr(writer, "INTERVAL", 0.01)
    full = [True]
    real = followed_run.put_run

    def put(*given):
        if full[0]:
            raise sqlite3.OperationalError("database or disk is full")
        real(*given)

    monkeypatch.setattr(followed_run, "put_run", put)
    writing = LibraryWriter(path)
    writing.follow(run)
    until(lambda: "disk is full" in writing.problem)
    full[0] = False
    until(lambda: not writing.problem)
    until_listed(path, steps=5)
    RunWriter(run).set_status("finished")
    assert writing.close()
    assert same(Library(path).load(run.id).history, run.history)


def test_without_the_fast_compressor_all_is_written_and_read_as_with_it(path, monkeypatch):
    kept, run = made(5), made(5)
    write(path, kept)
    monkeypatch.setitem(sys.modules, "isal", None)
    packing.compressor.cache_clear()
    write(path, run)
    packing.compressor.cache_clear()
    assert all(same(Library(path).load(each.id).history, each.history) for each in (kept, run))


def test_a_folder_that_cannot_be_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LibraryError, match="cannot be opened"):
        Library(tmp_path / "file" / "library.sqlite3")
    writing = LibraryWriter(tmp_path / "file" / "library.sqlite3")
    writing.follow(made(2))
    assert not writing.close() and "\n" not in writing.problem


def test_a_newer_library_is_left_alone(path):
    write(path, made(1))
    sqlite3.connect(path).execute("PRAGMA user_version = 99").connection.close()
    with pytest.raises(LibraryError, match="newer"):
        Library(path)
    assert not list(path.parent.glob("*damaged*"))


def test_two_programs_at_once(path):
    keepers = [LibraryWriter(path) for _ in range(3)]
    runs = [made(300, seed=index, id=f"run-{index}") for index in range(9)]
    for index, run in enumerate(runs):
        keepers[index % 3].follow(run)
    assert all([writing.close() for writing in keepers]), [writing.problem for writing in keepers]
    library = Library(path)
    assert len(library.entries()) == 9 and library.check() == "ok"
    assert all(same(library.load(run.id).history, run.history) for run in runs)


def test_a_copied_library_opens_elsewhere(path, tmp_path):
    run = made(10)
    write(path, run)
    shutil.copy(path, tmp_path / "copy.sqlite3")
    assert same(Library(tmp_path / "copy.sqlite3").load(run.id).history, run.history)


def test_a_library_that_is_held_at_the_end_is_waited_for(path, monkeypatch):
    """One attempt of 5 s out of 30 lost 5,027 of 6,000 rows."""
    monkeypatch.setattr(schema, "PATIENCE", 0.01)
    monkeypatch.setattr(writer, "INTERVAL", 0.01)
    write(path, made(1))
    attempts, attempt = [], LibraryWriter._attempt
    monkeypatch.setattr(LibraryWriter, "_attempt", lambda self, runs: attempts.append(1) or attempt(self, runs))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        run, writing, answers = made(300), LibraryWriter(path), []
        writing.follow(run)
        closing = threading.Thread(target=lambda: answers.append(writing.close(PATIENCE)))
        closing.start()
        until(lambda: attempts)
        begun = len(attempts)
        until(lambda: len(attempts) > begun + 3)
        assert not answers and "locked" in writing.problem
        other.execute("ROLLBACK")
    join(closing)
    assert answers == [True] and same(Library(path).load(run.id).history, run.history)


def test_a_library_that_stays_held_is_given_up_in_time(path, monkeypatch):
    monkeypatch.setattr(schema, "PATIENCE", 0.01)
    monkeypatch.setattr(writer, "INTERVAL", 0.01)
    write(path, made(1))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        writing = LibraryWriter(path)
        writing.follow(made(3))
        assert not writing.close(0.1) and "locked" in writing.problem
        until(lambda: "run library" not in [thread.name for thread in threading.enumerate()])


# ---- what one program asks of a run that another trains


def test_requests_are_heard_once_in_order_and_only_those_that_are_ours(path):
    run = made(5, status="running")
    heard, writing = [], LibraryWriter(path)
    writing.follow(run, on_request=heard.append)
    library = Library(path)
    until(lambda: library.entries())
    library.request(run.id, "pause", 1.0)
    library.request(run.id, "rate", 0.1)
    for word, factor in (("dance", 1.0), ("rate", 1e9), ("rate", "x"), ("rate", -1.0)):
        with library.transaction() as connection:
            connection.execute(
                "INSERT INTO requests SELECT ?, max(number) + 1, ?, ? FROM requests", (run.id, word, factor)
            )
    library.request(run.id, "stop", 1.0)
    until(lambda: len(heard) == 3)
    assert heard == [Request("pause"), Request("rate", 0.1), Request("stop")]
    RunWriter(run).set_status("finished")
    assert writing.close(), writing.problem
    for id in (run.id, "nobody"):
        with pytest.raises(LibraryError, match="is over"):
            library.request(id, "pause", 1.0)
    writing = LibraryWriter(path)
    writing.follow(run, on_request=heard.append)  # the requests are of another time
    assert writing.close() and len(heard) == 3
    library.delete([run.id])
    library.purge()
    assert library.requests(run.id, 0) == []
    library.close()
