"""A run travels as one file, and a library is read wherever it lies."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gradstudio.core import network_disk
from gradstudio.session.library import travelling
from gradstudio.session.library.library_faults import LibraryError
from gradstudio.session.library.store import Library

NOBODY = 65534


@pytest.fixture
def exported(gradstudio: Callable, tmp_path: Path) -> Path:
    """The file of a run, whose note and script name folders of this machine."""
    assert gradstudio("run", "healthy-mlp", "--steps", "3", "--quiet").code == 0
    assert gradstudio("runs", "note", "last", "data of /home/me/secret/data.bin, C:\\Users\\me\\x.bin, 1/2").code == 0
    answer = gradstudio("runs", "export", "last", tmp_path / "one")
    assert (answer.code, answer.out) == (0, f"{tmp_path / 'one.gsrun'}\n")
    return tmp_path / "one.gsrun"


def test_a_run_is_the_same_elsewhere_but_for_the_folders_of_its_machine(
    exported: Path, gradstudio: Callable, tmp_path: Path
) -> None:
    other = tmp_path / "other.sqlite3"
    run = gradstudio("runs", "import", exported, "--library", other)
    assert run.code == 0
    shown = [gradstudio("runs", "show", run.out.strip(), "--json", *more) for more in ((), ("--library", other))]
    assert shown[0] == shown[1] and shown[0].code == 0
    with closing(Library(other)) as library:
        (entry,) = library.entries()
        assert entry.note == "data of data.bin, x.bin, 1/2" and library.check() == "ok"
    text = exported.read_bytes()
    assert b"/home" not in text and b"Users" not in text and str(Path.home()).encode() + b"/" not in text
    again = gradstudio("runs", "import", exported, "--library", other)
    assert again.code == 2 and "already" in again.err and again.err.count("\n") == 1


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _spoilt(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3000:-2000] = bytes(1000)
    path.write_bytes(data)


def _no_library(path: Path) -> None:
    path.write_text("[optimizer]\n")


def _with_a_trigger(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TRIGGER act AFTER INSERT ON runs BEGIN DELETE FROM runs; END")


def _changed(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE runs SET experiment = '[run]' || char(10) || 'steps = -5'")
        connection.commit()


@pytest.mark.parametrize("spoil", [_cut, _spoilt, _no_library, _with_a_trigger, _changed, os.unlink])
def test_a_damaged_or_hostile_file_is_one_line_and_changes_nothing(
    exported: Path, gradstudio: Callable, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(exported)
    before = sorted(tmp_path.iterdir())
    answer = gradstudio("runs", "import", exported)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert str(exported) in answer.err and sorted(tmp_path.iterdir()) == before


def test_a_file_that_cannot_be_written_is_not_begun(exported: Path, gradstudio: Callable, tmp_path: Path) -> None:
    answer = gradstudio("runs", "export", "last", tmp_path / "nowhere" / "one.gsrun")
    assert (answer.code, answer.err.count("\n")) == (2, 1) and not (tmp_path / "nowhere").exists()


@contextmanager
def may_not_write(folder: Path) -> Iterator[None]:
    """Be somebody who may read a folder and its files, and write none of them."""
    for path in (*folder.iterdir(), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o755)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="it asks who may write")
def test_a_library_of_somebody_else_is_read_also_while_it_is_written(exported: Path) -> None:
    folder = Path("/tmp" if os.path.isdir("/tmp") else exported.parent, f"gradstudio-of-somebody-{os.getpid()}")
    folder.mkdir()
    try:
        shutil.copyfile(exported, folder / "runs.sqlite3")
        with may_not_write(folder), closing(Library(folder / "runs.sqlite3")) as library:
            assert len(library.entries()) == 1 and not library.load(library.find("last")).message
            with pytest.raises(LibraryError, match="readonly"):
                library.annotate(library.find("last"), note="mine")
        (folder / "runs.sqlite3").chmod(0o644)
        with closing(Library(folder / "runs.sqlite3")) as owner:
            owner.annotate(owner.find("last"), note="the latest")
            assert (folder / "runs.sqlite3-wal").stat().st_size
            with may_not_write(folder), closing(Library(folder / "runs.sqlite3")) as library:
                assert library.entries()[0].note == "the latest"
    finally:
        shutil.rmtree(folder)


def test_a_copy_without_its_log_says_what_it_lacks(exported: Path, gradstudio: Callable, tmp_path: Path) -> None:
    from gradstudio.session.library import interrupted_runs

    original, copy = tmp_path / "runs.sqlite3", tmp_path / "copy.sqlite3"
    with closing(Library(original)) as library:
        travelling.import_run(library, exported)
        with library.transaction() as connection:
            connection.execute("UPDATE runs SET status = 'running', process = ?", (interrupted_runs.this_process(),))
        library.finish_log()
        shutil.copyfile(original, copy)
        assert gradstudio("runs", "--library", original).err == ""
        told = gradstudio("runs", "--library", copy)
        assert told.code == 0 and "copied without copy.sqlite3-wal" in told.err and told.err.count("\n") == 1


def test_on_a_network_disk_no_log_is_kept_and_doctor_and_run_say_so(
    gradstudio: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"22 1 8:1 / / rw - ext4 /dev/a rw\n40 22 0:5 / {tmp_path / 'far'} rw,relatime - nfs4 host:/x rw\n"
    )
    monkeypatch.setattr(network_disk, "_MOUNTS", mounts)
    (tmp_path / "far").mkdir()
    library = tmp_path / "far" / "runs.sqlite3"
    done = gradstudio("run", "healthy-mlp", "--steps", "2", "--quiet", "--library", library)
    assert done.code == 0 and "on a network disk (nfs4)" in done.err
    with closing(sqlite3.connect(library)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "delete"
    monkeypatch.setenv("GRADSTUDIO_LIBRARY", str(library))
    from gradstudio.session.machine import own_files

    assert [check.ok for check in own_files.library()] == [True, False]
    assert network_disk.kind_of(tmp_path) == "" and network_disk.kind_of(tmp_path / "far" / "a") == "nfs4"
