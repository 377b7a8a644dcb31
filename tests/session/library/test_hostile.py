"""A library that somebody else made, or a disk has changed: it is refused or told, and nothing in it runs."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradstudio.core import presets
from gradstudio.core.history import COLUMNS, LAYER_METRICS
from gradstudio.core.row import Layer, Row
from gradstudio.core.text import LONGEST_TITLE
from gradstudio.session.library.library_faults import LibraryError
from gradstudio.session.library.run_entries import DAMAGED
from gradstudio.session.library.store import Library
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.record.branches import fork
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.words import run_texts

STEPS = 150  # more than one piece of rows


def made(run: str, title: str = "A run", steps: int = STEPS) -> Run:
    """A run with every list that the library keeps, none of it trained."""
    preset = presets.load("rnn-explosion").model_copy(update={"title": title})
    record = Run(preset, preset.experiment, id=run, accuracy=0.5)
    writer = RunWriter(record)
    writer.begin((Layer("rnn.weight", "weight", 3), Layer("head.bias", "bias", 2)), {"device": "cpu"})
    source = np.random.default_rng(len(run))
    for step in range(steps):
        values: dict[str, Any] = dict(zip(COLUMNS, map(float, source.normal(size=len(COLUMNS))), strict=True))
        layers = np.float32(source.normal(size=(len(LAYER_METRICS), 2)))
        record.history.append(Row(**values | {"step": step}, layers=layers))
    writer.change("optimizer.lr", 0.5)
    writer.refuse("optimizer.lr", -1.0, "no")
    writer.end("finished", "", 0.5)
    return record


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "library.sqlite3"
    writing = LibraryWriter(path)
    for run in ("bad", "good"):
        writing.follow(made(run))
    assert writing.close(), writing.problem
    return path


def sql(path: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def read(path: Path) -> tuple[str, str]:
    """What the list says of the run "bad", and what loading it says: "" where it loads. The other run is well."""
    with contextlib.closing(Library(path)) as library:
        entries = {entry.id: entry for entry in library.entries()}
        assert len(library.load("good").history) == STEPS and entries["good"].outcome == "finished"
        for entry in entries.values():  # as the window paints them
            assert (
                all(run_texts.words(entry, 1e9)) is not None and run_texts.tip(entry) and run_texts.spoken(entry, 1e9)
            )
        try:
            library.load("bad")
        except LibraryError as fault:
            assert "\n" not in str(fault) and "bad" in str(fault)
            return entries["bad"].outcome, str(fault)
        return entries["bad"].outcome, ""


# ---- one bad row

LINE = [
    "steps = 'many'", "steps = -1", "steps = 9e18", "started = 'today'", "started = 1e300", "started = -5.0", "title = x'00ff'",
    "tags = '{}'", "tags = '[1]'", "tags = '5'", "tags = x'00'", "final_loss = '\"x\"'", "final_loss = '1' || hex(zeroblob(200))",
    "final_loss = '[' || replace(hex(zeroblob(20000)), '0', '[')", "accuracy = 'nonsense'", "accuracy = '[]'", "seconds = 'x'",
    "note = x'ff'", "preset_id = x'ff'", "parent = x'ff'", "parent = 'good', parent_step = 'x'", "status = x'00'",
    "process = x'00', status = 'running'",
]  # fmt: skip
REST = [
    "experiment = 'no toml ['", "experiment = x'00'", "preset = '[run]\nsteps = 0'", "planned = '[[1]]'", 'planned = \'{"a": 1}\'',
    "planned = '[[1, \"no.knob\", 1]]'", "compare_at = '[\"a\"]'", "compare_at = '7'", "environment = '[]'", "environment = '{\"a\": 1}'",
    "layers = '[]'", "layers = '[[1, 2, 3]]'", "layers = '[[\"a\", \"weight\", \"b\"]]'", "message = x'00'", "first_nonfinite_step = 'x'",
    "first_nonfinite_step = -4",
]  # fmt: skip


@pytest.mark.parametrize("with_checksums", [True, False])
def test_one_bad_line_hides_only_itself(with_checksums: bool, path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        lines = connection.execute("SELECT * FROM runs WHERE id = 'bad'").fetchone()
    if not with_checksums:
        sql(path, "DELETE FROM checksums")
    for change in [*LINE, *REST]:
        sql(path, f"UPDATE runs SET {change} WHERE id = 'bad'")
        outcome, why = read(path)
        assert (outcome == DAMAGED) == (change in LINE), (change, outcome)
        assert why or (not with_checksums and change in LINE), change
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("PRAGMA foreign_keys = OFF")
            connection.execute(f"INSERT OR REPLACE INTO runs VALUES ({','.join('?' * len(lines))})", lines)
    assert read(path) == ("finished", "")


ENTRIES = [
    "[]", "5", "null", "{", "[" * 9000, '["a", "started", "x"]', '[-1, "started", "x"]', '[1e99, "started", "x"]',
    '[1, "no such kind", "x"]', '[1, "started", 5]', '[1, "started", "x", 1, 2, 3, 4]', '{"float": "x"}', "[" + "9" * 5000 + ', "started", "x"]',
]  # fmt: skip
KINDS = [
    "event",
    "refusal",
    "compared",
    "loop",
    "settings",
    "accumulated",
    "activations",
    "unused",
    "finding",
    "change",
    "provenance",
]


def test_one_bad_entry_hides_only_its_run(path: Path) -> None:
    sql(path, "DELETE FROM checksums")
    for kind in KINDS:
        for content in ENTRIES:
            with contextlib.closing(sqlite3.connect(path)) as connection, connection:
                connection.execute("INSERT INTO entries VALUES ('bad', ?, 99, ?)", (kind, content))
            assert "is damaged" in read(path)[1], (kind, content[:40])
            sql(path, "DELETE FROM entries WHERE number = 99")
    assert read(path) == ("finished", "")


def test_a_run_that_is_damaged_can_be_deleted(path: Path) -> None:
    sql(path, "UPDATE runs SET status = x'00', process = 5 WHERE id = 'bad'")
    with contextlib.closing(Library(path)) as library:
        library.delete(["bad"])
        assert library.purge(runs=["bad"]) == 1 and [entry.id for entry in library.entries()] == ["good"]


def test_a_run_whose_line_is_lost_is_listed_as_damaged_and_can_be_deleted(path: Path) -> None:
    sql(path, "PRAGMA foreign_keys = OFF", "DELETE FROM runs WHERE id = 'bad'")
    with contextlib.closing(Library(path)) as library:
        assert {entry.id: entry.outcome for entry in library.entries()} == {"good": "finished", "bad": DAMAGED}
        with pytest.raises(LibraryError, match="no run bad"):
            library.load(library.find("bad"))
        library.delete(["bad"])
        assert library.purge(runs=["bad"]) == 1 and [entry.id for entry in library.entries()] == ["good"]


# ---- checksums


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("UPDATE runs SET final_loss = '0.25' WHERE id = 'bad'", "in the list"), ("UPDATE runs SET message = 'other' WHERE id = 'bad'", "line"),
        ("UPDATE rows SET columns = replace(columns, substr(columns, 9, 1), x'00') WHERE run = 'bad' AND start = 0", "step 0"),
        ("UPDATE rows SET layers = x'00' WHERE run = 'bad' AND start = 0", "step 0"), ("DELETE FROM rows WHERE run = 'bad'", "rows"),
        ("UPDATE entries SET content = replace(content, '0.5', '0.6') WHERE run = 'bad'", "list of"),
        ("DELETE FROM entries WHERE run = 'bad' AND kind = 'event'", "list of event"),
        ("DELETE FROM checksums WHERE run = 'bad' AND part = 'rows'", "no checksum"),
        ("DELETE FROM checksums WHERE run = 'bad' AND part = 'event'", "no checksum"),
        ("UPDATE checksums SET crc = crc + 1 WHERE run = 'bad' AND part = 'rows'", "rows"),
    ],
)  # fmt: skip
def test_what_is_not_what_was_written_is_told(change: str, what: str, path: Path) -> None:
    sql(path, change)
    outcome, why = read(path)
    assert what in why and (outcome == DAMAGED) == ("the list" in what)


def test_what_a_person_writes_keeps_the_checksums_right_and_hides_no_damage(path: Path) -> None:
    sql(path, "UPDATE runs SET seconds = seconds + 1 WHERE id = 'bad'")
    with contextlib.closing(Library(path)) as library:
        for run in ("bad", "good"):
            library.rename(run, "Other")
            library.annotate(run, note="a note", tags=["one"])
            library.delete([run])
            library.restore([run])
        good = next(entry for entry in library.entries() if entry.id == "good")
        assert (good.title, good.note, good.tags) == ("Other", "a note", ("one",))
    assert read(path)[0] == DAMAGED


def test_the_runs_of_a_library_of_version_1_are_read_as_before_and_later_ones_have_checksums(path: Path) -> None:
    sql(path, "DROP TABLE checksums", "DROP TABLE requests", "DROP TABLE rank_rows", "PRAGMA user_version = 1")
    assert read(path) == ("finished", "")
    with contextlib.closing(Library(path)) as library:
        library.annotate("bad", note="mine")
        assert library.check() == "ok"
    writing = LibraryWriter(path)
    writing.follow(made("later"))
    assert writing.close(), writing.problem
    sql(path, "UPDATE runs SET note = 'yours'")
    with contextlib.closing(Library(path)) as library:
        assert {entry.id: entry.outcome for entry in library.entries()} == {
            "bad": "finished", "good": "finished", "later": DAMAGED,
        }  # fmt: skip
    assert read(path) == ("finished", "")


def test_a_list_that_becomes_shorter_is_written_anew(tmp_path: Path) -> None:
    run, path = made("bad"), tmp_path / "library.sqlite3"
    for events in (list(run.events), list(run.events)[:1], [*run.events, *run.events]):
        vars(run)["events"] = events
        writing = LibraryWriter(path)
        writing.follow(run)
        assert writing.close(), writing.problem
        with contextlib.closing(Library(path)) as library:
            assert library.load("bad").events == events


# ---- bombs


def test_a_piece_that_unpacks_to_more_than_it_has_rows_is_refused(path: Path) -> None:
    plane = zlib.compress(bytes(50 << 20), 9)
    bomb = (len(plane).to_bytes(4, "little") + b"\1" + plane) * 8
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM checksums")
        connection.execute("UPDATE rows SET columns = ? WHERE run = 'bad' AND start = 0", (bomb,))
    assert "is damaged" in read(path)[1]


@pytest.mark.parametrize("count", [1 << 40, 4097, -1, 0])
def test_a_piece_of_too_many_rows_is_refused(count: int, path: Path) -> None:
    sql(path, "DELETE FROM checksums", f"UPDATE rows SET count = {count} WHERE run = 'bad' AND start = 0")
    assert "a piece of" in read(path)[1]


def test_a_run_of_too_many_layers_is_refused(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM checksums")
        layers = json.dumps([["a", "weight", 1]] * 2001)
        connection.execute("UPDATE runs SET layers = ? WHERE id = 'bad'", (layers,))
    assert "2,001 layers" in read(path)[1]


def test_rows_that_unpack_to_more_than_any_run_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradstudio.session.library.stored_runs.PLENTY", 1000)
    monkeypatch.setattr("gradstudio.session.library.stored_runs.DENSEST", 1)
    with contextlib.closing(Library(path)) as library, pytest.raises(LibraryError, match="which no run does"):
        library.load("bad")


def test_bytes_in_place_of_an_id_keep_no_run_from_being_found(path: Path) -> None:
    sql(path, "INSERT INTO checksums VALUES (x'ff', 'list', 0, 1)")
    with contextlib.closing(Library(path)) as library:
        assert library.find("goo") == "good" and {entry.id for entry in library.entries()} == {"bad", "good"}


def test_a_damaged_name_among_the_checksums_lists_no_run_twice(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as library:
        size = library.execute("PRAGMA page_size").fetchone()[0]
        [page] = library.execute("SELECT rootpage FROM sqlite_master WHERE name = 'checksums'").fetchone()
    whole, begin = path.read_bytes(), size * (page - 1)
    places = [at for at in range(begin, begin + size) if whole.startswith((b"goodrows", b"goodchange", b"goodrun"), at)]
    assert len(places) >= 3
    for place in places:
        for letter in b"far~":  # before and behind the other names
            path.write_bytes(whole[:place] + bytes([letter]) + whole[place + 1 :])
            with contextlib.closing(Library(path)) as library:
                assert sorted((entry.id, entry.outcome) for entry in library.entries()) == [
                    ("bad", "finished"), ("good", "finished"),
                ]  # fmt: skip


def test_runs_that_an_index_has_lost_are_listed_and_found(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as library:
        size = library.execute("PRAGMA page_size").fetchone()[0]
        [page] = library.execute("SELECT rootpage FROM sqlite_master WHERE name = 'newest'").fetchone()
    data = bytearray(path.read_bytes())
    data[(page - 1) * size + 3 : (page - 1) * size + 5] = b"\0\0"  # it has no cells any more
    path.write_bytes(data)
    with contextlib.closing(Library(path)) as library:
        assert {entry.id for entry in library.entries()} == {"bad", "good"} and library.find("goo") == "good"
        assert library.family("good") == ["good"] and not library.notice


def test_a_list_of_long_texts_takes_the_memory_of_one(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as library, library:
        library.execute("UPDATE runs SET note = ?, started = 5.0 WHERE id = 'good'", ("n" * 300_000,))
        [line] = library.execute("SELECT * FROM runs WHERE id = 'good'").fetchall()
        marks = ",".join("?" * len(line))
        library.executemany(f"INSERT INTO runs VALUES ({marks})", [(f"r{index:02}", *line[1:]) for index in range(40)])
    with contextlib.closing(Library(path)) as library:
        tracemalloc.start()
        try:
            entries = library.entries()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert [entry.id for entry in entries] == ["bad", *(f"r{index:02}" for index in reversed(range(40))), "good"]
    assert peak < 4_000_000, peak


# ---- what is not ours


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER mine AFTER UPDATE ON runs BEGIN DELETE FROM rows; END", "CREATE VIEW mine AS SELECT * FROM runs",
        "CREATE INDEX mine ON runs (abs(steps))", "CREATE TABLE mine (x)",
    ],
)  # fmt: skip
def test_what_gradstudio_did_not_make_is_refused_and_left_alone(statement: str, path: Path) -> None:
    sql(path, statement)
    before = path.read_bytes()
    with pytest.raises(LibraryError, match=r"is not opened: it has a .* that GradStudio did not make"):
        Library(path)
    assert path.read_bytes() == before and not list(path.parent.glob("*damaged*"))


def test_a_view_in_place_of_a_table_is_never_asked(path: Path) -> None:
    sql(
        path,
        "DROP TABLE snapshots",
        "CREATE VIEW snapshots AS SELECT 'bad' AS run, 0 AS step, randomblob(9) AS content",
    )
    with contextlib.closing(Library(path)) as library:
        assert library.notice and library.snapshots(["bad"]) == []
        assert {entry.id for entry in library.entries()} <= {"bad", "good"}


def test_runs_are_saved_without_snapshots_that_cannot_be_read(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as library:
        library.executemany("INSERT INTO snapshots VALUES (?, 3, 'any')", [("bad",), ("good",)])
        library.commit()
        size = library.execute("PRAGMA page_size").fetchone()[0]
        [page] = library.execute("SELECT rootpage FROM sqlite_master WHERE name = 'snapshots'").fetchone()
    data = bytearray(path.read_bytes())
    data[(page - 1) * size : page * size] = b"\x55" * size
    path.write_bytes(data)
    with contextlib.closing(Library(path)) as library:
        library.set_aside()
        assert "; 2 runs could be saved. The" in library.notice and library.snapshots(["bad", "good"]) == []
        assert len(library.load("bad").history) == len(library.load("good").history) == STEPS


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Linux and macOS have pipes with a name")
def test_what_is_no_file_is_no_library_and_gets_no_journal(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LibraryError, match="is no run library: no file, but"):
        Library(tmp_path / "pipe")
    assert os.listdir(tmp_path) == ["pipe"]


# ---- damage of the first page


@pytest.mark.parametrize("where", [0, 20, 100, 105, 3500, 4000])
def test_a_library_whose_first_page_is_damaged_is_set_aside_whole(where: int, path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[where : where + 40] = bytes(byte ^ 0x55 for byte in data[where : where + 40])
    path.write_bytes(data)
    with contextlib.closing(Library(path)) as library:
        assert "0 runs could be saved" in library.notice and not library.entries()
    [aside] = path.parent.glob("*damaged*.sqlite3")
    assert aside.read_bytes() == bytes(data)


def test_checksums_of_which_a_part_is_lost_are_left_out_as_a_whole_and_it_is_said(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as library:
        lines = [("bad", "rows", number, 0) for number in range(9, 2000)]  # fills pages after those of the real ones
        library.executemany("INSERT INTO checksums VALUES (?, ?, ?, ?)", lines)
        library.commit()
        size = library.execute("PRAGMA page_size").fetchone()[0]
    data = bytearray(path.read_bytes())
    data[-size:] = b"\x55" * size
    path.write_bytes(data)
    with contextlib.closing(Library(path)) as library:
        assert {entry.id for entry in library.entries()} == {"bad", "good"}
        assert "2 runs could be saved, 2 of them without the checksums that tell damage" in library.notice
        assert len(library.load("bad").history) == len(library.load("good").history) == STEPS


# ---- titles


def test_a_run_of_a_preset_with_a_long_title_and_its_branches_can_be_read_back(tmp_path: Path) -> None:
    path, parent = tmp_path / "library.sqlite3", made("parent", "t" * 1990)
    child = fork(parent, 9)
    RunWriter(child).change("optimizer.lr", 0.25)
    zeros: dict[str, Any] = dict.fromkeys(COLUMNS, 0.0)
    child.history.append(Row(**zeros | {"step": 9}, layers=np.zeros((len(LAYER_METRICS), 2), np.float32)))
    RunWriter(child).end("finished", "", None)
    writing = LibraryWriter(path)
    for run in (parent, child):
        writing.follow(run)
    assert writing.close(), writing.problem
    with contextlib.closing(Library(path)) as library:
        for run in (parent, child):
            title = library.load(run.id).title
            assert len(title) == LONGEST_TITLE and title == run.title
        assert title.endswith("optimizer.lr = 0.25")
