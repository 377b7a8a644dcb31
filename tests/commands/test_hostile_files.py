"""Files and folders that a command may meet: pipes, devices, links without end, another person's folder, a full disk."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from waiting import PATIENCE, join

from gradstudio.core import files, presets
from gradstudio.core.history import COLUMNS, LAYER_METRICS
from gradstudio.core.row import Layer, Row
from gradstudio.core.text import LONGEST_LINE
from gradstudio.session.files.curve_import import CurveError
from gradstudio.session.files.curve_import import read as read_curves
from gradstudio.session.library.store import Library
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Linux and macOS have pipes with a name")


@pytest.fixture
def two(own_user_data: Path) -> list[str]:
    """Two runs in the library, not trained."""
    writing, names = LibraryWriter(files.user_library()), ["first", "second"]
    for name in names:
        preset = presets.load("rnn-explosion")
        run = Run(preset, preset.experiment, id=name)
        RunWriter(run).begin((Layer("weight", "weight", 3),), {"device": "cpu"})
        values = dict.fromkeys(COLUMNS, 0.5) | {"step": 0}
        run.history.append(Row(**values, layers=np.zeros((len(LAYER_METRICS), 1), np.float32)))
        RunWriter(run).end("finished", "", None)
        writing.follow(run)
    assert writing.close(), writing.problem
    return names


def refused(answer, *words: str) -> None:
    assert answer.code == 2 and answer.err.count("\n") == 1 and len(answer.err) <= LONGEST_LINE + 1, answer
    assert answer.err.startswith("error: ") and all(word in answer.err for word in words), answer.err


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


# ---- input


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/null", "{pipe}"])
def test_a_device_or_a_pipe_is_no_preset_no_run_and_no_library(
    name: str, gradstudio: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = name.format(pipe=pipe(tmp_path / "pipe"))
    os.symlink(name, tmp_path / "preset.toml")
    refused(gradstudio("run", tmp_path / "preset.toml"), "no file, but a pipe, a socket or a device")
    refused(gradstudio("presets", "show", tmp_path / "preset.toml"), "no file, but")
    refused(gradstudio("runs", "--library", name), "no file, but")
    monkeypatch.setenv("GRADSTUDIO_LIBRARY", name)
    refused(gradstudio("runs"), "is no run library: no file, but")
    with pytest.raises(CurveError, match="no file, but"):
        read_curves(Path(name))
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "experiment.toml").write_text('title = "x"\n')
    os.symlink(name, folder / "run.json")
    refused(gradstudio("branch", folder, "--step", "0"), "is no folder of a run")


def test_a_run_json_without_end_is_none(gradstudio: Callable, tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").write_text("")
    with (tmp_path / "run.json").open("wb") as file:
        file.truncate(1 << 40)
    refused(gradstudio("branch", tmp_path, "--step", "0"), "is no folder of a run")


def test_rules_are_read_to_a_limit(
    gradstudio: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small: Path
) -> None:
    rules = tmp_path / "gradstudio" / "rules.toml"
    rules.parent.mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for text in ("#" * 2_000_000, "a" + ".a" * 5000 + " = 1", "a = " + "[" * 5000, "a = " + "9" * 5000):
        rules.write_text(text)
        refused(gradstudio("run", small), "rules.toml")


NINES = "9" * 5000


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        (["run", "rnn-explosion", "--at", f"{NINES}:optimizer.lr=1"], {}), (["run", "rnn-explosion", "--at", f"1:optimizer.lr={NINES}"], {}),
        (["run", "rnn-explosion", "--steps", NINES], {}), (["run", "rnn-explosion", "--steps", NINES[:4000]], {}),
        (["run", "rnn-explosion", "--seed", f"-{NINES}"], {}), (["run", "rnn-explosion", "--compare", NINES], {}),
        (["run", "rnn-explosion", "--compare", NINES[:4000]], {}), (["run", "rnn-explosion", "--set", f"run.steps={NINES}"], {}),
        (["run", "rnn-explosion", "--set", f"model.width={NINES[:4000]}"], {}), (["run", "rnn-explosion", "--set", f"{NINES}=1"], {}),
        (["branch", "last", "--step", NINES], {}), (["script", "rnn-explosion"], {"GRADSTUDIO_THREADS": NINES}),
        (["runs", "--library", NINES], {}), (["runs", "show", "last", "--library", f"/tmp/{NINES}/x"], {}), (["runs", "show", NINES], {}),
        (["run", NINES], {}), (["run", f"{NINES}.toml"], {}), (["report", "last", "--format", NINES], {}), ([NINES], {}), (["--" + NINES], {}),
        (["runs", "compare", "a", "b", "--csv", NINES], {}), (["run", "rnn-explosion", "--out", f"/proc/{NINES}"], {}),
        (["run", " ".join(["word"] * 5000)], {}), (["run", "\x1b]0;title\x07\x1b[31mred" * 90], {}),
    ],
)  # fmt: skip
def test_what_is_too_long_is_one_line(
    words: list[str], environment: dict[str, str], gradstudio: Callable, two: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    answer = gradstudio(*words)
    refused(answer)
    assert "\x1b" not in answer.err and "\x07" not in answer.err


def test_threads_of_thousands_of_digits_are_passed_over_in_another_program_s_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from gradstudio.core import threads

    monkeypatch.delenv("GRADSTUDIO_THREADS")
    monkeypatch.setenv("OMP_NUM_THREADS", NINES)
    assert threads.chosen() == "1"


# ---- a folder of somebody else


@pytest.fixture
def shut(own_user_data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folders of the user's data and configuration, which nobody may search; also for root, whom no mode keeps out."""
    config = tmp_path / "config"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config))

    def guarded(real: Callable) -> Callable:
        def call(path, *rest, **more):
            if isinstance(path, str | os.PathLike) and os.fspath(path).startswith((f"{own_user_data}/", f"{config}/")):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return real(path, *rest, **more)

        return call

    for name in ("stat", "lstat", "listdir", "scandir", "mkdir", "open"):
        monkeypatch.setattr(os, name, guarded(getattr(os, name)))
    return own_user_data


def test_in_a_folder_of_somebody_else_what_is_bundled_works(shut: Path, gradstudio: Callable) -> None:
    listed = gradstudio("presets")
    assert listed.code == 0 and listed.out.count("\n") == len(os.listdir(files.PRESETS))
    for answer in (listed, gradstudio("script", "rnn-explosion")):
        assert answer.code == 0 and answer.err.count("\n") == 1 and "rules.toml: permission denied" in answer.err
    for words in (
        ["runs"],
        ["runs", "show", "last"],
        ["run", "nothing"],
        ["report", "last"],
        ["branch", "last", "--step", "1"],
    ):
        refused(gradstudio(*words), "the run library cannot be opened: ", "permission denied")


def test_in_a_folder_of_somebody_else_a_run_goes_on_and_is_not_kept(
    shut: Path, gradstudio: Callable, small: Path
) -> None:
    answer = gradstudio("run", small)
    assert answer.code == 0 and "6 steps" in answer.out
    assert answer.err.count("\n") == 2 and "not kept: the run library" in answer.err and "left out" in answer.err


def test_the_doctor_names_what_cannot_be_read(shut: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gradstudio.session.machine import doctor, own_files

    monkeypatch.setattr(doctor, "CHECKS", (own_files.folder, own_files.library, own_files.own_presets))
    problems = [check.text for check in doctor.examine() if not check.ok]
    assert len(problems) >= 3 and all("permission denied" in text for text in problems)


# ---- a full disk


def test_deleting_frees_space_on_a_disk_that_takes_no_file_any_more(
    gradstudio: Callable, two: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, beside = files.user_library(), []
    purge = Library.purge

    def looked_at(library: Library, **what) -> int:
        beside.append(os.listdir(path.parent))
        return purge(library, **what)

    monkeypatch.setattr(Library, "purge", looked_at)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=0))
    assert gradstudio("runs", "delete", "first", "--yes").code == 0
    assert beside == [[path.name]], "the journal is in memory"
    monkeypatch.undo()
    with contextlib.closing(Library(path)) as library:
        assert [entry.id for entry in library.entries()] == ["second"] and library.check() == "ok"


# ---- output


def test_curves_go_into_a_pipe_and_to_the_output_and_replace_nothing(
    gradstudio: Callable, two: list[str], tmp_path: Path
) -> None:
    target, read = pipe(tmp_path / "pipe"), []
    reader = threading.Thread(target=lambda: read.append(target.read_bytes()))
    reader.start()
    answer = gradstudio("runs", "compare", *two, "--csv", target)
    join(reader)
    assert answer.code == 0 and read[0].startswith(b"step,loss first,") and target.is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]
    device = os.stat("/dev/null")
    assert gradstudio("runs", "compare", *two, "--csv", "/dev/null").code == 0
    assert os.path.samestat(device, os.stat("/dev/null"))
    refused(gradstudio("runs", "compare", *two, "--csv", "/dev/full"), "no space left")
    refused(gradstudio("runs", "compare", *two, "--csv", tmp_path), "is a directory")


@pytest.mark.parametrize("through", ["pipe", "file"])
def test_curves_go_to_the_standard_output_wherever_it_leads(through: str, two: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gradstudio", "runs", "compare", *two, "--csv", "/dev/stdout"]
    if through == "pipe":
        found = subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE).stdout
    else:
        with (tmp_path / "out").open("wb") as file:
            subprocess.run(command, stdout=file, check=True, timeout=PATIENCE)
        found = (tmp_path / "out").read_bytes()
    assert found.startswith(b"step,loss first,") and b"Knobs" in found
    assert os.path.islink("/dev/stdout") or not os.path.isfile("/dev/stdout")


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_a_report_replaces_nothing_but_files(kind: str, gradstudio: Callable, two: list[str], tmp_path: Path) -> None:
    pipe(tmp_path / "events.csv") if kind == "pipe" else (tmp_path / "events.csv").mkdir()
    refused(gradstudio("report", "first", "--format", "json,csv", "--out", tmp_path), "events.csv cannot be written")
    assert os.listdir(tmp_path) == ["events.csv"]


def test_a_report_with_event_files_is_written_whole_or_not_at_all(
    gradstudio: Callable, two: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("gradstudio.session.files.tensorboard.export._write", full)
    refused(gradstudio("report", "first", "--format", "json,csv,tensorboard", "--out", tmp_path), "no space left")
    assert os.listdir(tmp_path) == []


def test_what_a_killed_process_left_is_deleted_and_what_belongs_to_one_that_lives_is_not(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    with files.temporary_folder(tmp_path) as own:
        name = os.path.basename(own)
        left = tmp_path / name.replace(f"-{os.getpid()}-", f"-{dead.pid}-")
        left.mkdir()
        (left / "part").write_text("half")
        elsewhere = tmp_path / ".gradstudio-another_machine-1-abc"
        elsewhere.mkdir()
        files.write_whole(tmp_path / "a", "whole")
        assert sorted(os.listdir(tmp_path)) == sorted([name, elsewhere.name, "a"])


def test_one_error_line_is_short_whatever_is_in_it(gradstudio: Callable, tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["folder with a long name"] * 12)
    with contextlib.suppress(OSError):
        deep.mkdir(parents=True)
    refused(gradstudio("presets", "show", deep / "none.toml"), "no such file")
    assert json.loads(gradstudio("presets", "--json").out)
