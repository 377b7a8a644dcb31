"""Before anything imports Qt or torch: no display, one thread, nothing of the user's own, and signals that are heard."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import io
import itertools
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from waiting import PATIENCE

os.environ["QT_QPA_PLATFORM"] = "offscreen"
os.environ["MPLBACKEND"] = "agg"
os.environ.setdefault("GRADSTUDIO_WORKER", "thread")  # tests of a worker ask for one
os.environ["GRADSTUDIO_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

# Where Python is told to keep no bytecode, every program that a test starts compiles all of GradStudio, for seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

_HOME = Path(tempfile.mkdtemp(prefix="gradstudio-tests-"))
for _name in ("DATA", "CONFIG", "CACHE", "STATE"):
    os.environ[f"XDG_{_name}_HOME"] = str(_HOME / _name.lower())
os.environ["MPLCONFIGDIR"] = str(
    Path(tempfile.gettempdir(), f"gradstudio-tests-fonts-{getattr(os, 'getuid', int)()}")
)  # found once
_numbers = itertools.count()

# What runs in the background of a shell, or under nohup, ignores these, and so does every program that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

settings.register_profile("gradstudio", deadline=None, derandomize="CI" in os.environ, database=None)
settings.load_profile("gradstudio")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that take a quarter of a minute: one that came last would keep a single processor busy."""
    items.sort(key=lambda item: not item.nodeid.startswith(("tests/torture/", "tests/test_stranger_folder.py")))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Take what is there before the first test out of the garbage collector's sight: half a million objects, at which
    every collection looks, and the watch, which asks for all objects."""
    if session.config.option.collectonly:  # what else each worker compiles for itself, at the same time
        from gradstudio.core import jit

        jit.compile_all()
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    if (budget := sys.modules.get("gradstudio.session.footprint.budget")) is not None:
        budget.ASKED.end()  # its process, which would outlive this one by a moment
    shutil.rmtree(_HOME, ignore_errors=True)


@pytest.fixture(autouse=True)
def own_user_data(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has a user data folder of its own, empty and not yet made."""
    folder = _HOME / f"data-{next(_numbers)}"
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))
    monkeypatch.setenv("GRADSTUDIO_LIBRARY", "")  # for commands that set it, and for whoever has it set
    return folder


@pytest.fixture(autouse=True)
def footprints_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person waits a minute for the memory of an experiment; on a busy machine a test waits longer."""
    monkeypatch.setattr("gradstudio.session.footprint.process.LIMIT", PATIENCE)


@pytest.fixture(autouse=True)
def no_training_thread_is_left() -> Iterator[None]:
    """Fail a test that leaves a training thread running. One that was told to stop may finish its step. The tests that
    come after would wait for one that goes on, as only one trains at a time."""
    yield
    left = [thread for thread in threading.enumerate() if thread.name.startswith("training ")]
    for thread in left:
        paused = getattr(getattr(thread, "record", None), "status", "") == "paused"  # and so waits for good
        thread.join(10 if paused else PATIENCE)
    running = [thread for thread in left if thread.is_alive()]
    for thread in running:  # at its next line of Python
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
    assert not running, f"left running: {', '.join(thread.name for thread in running)}"


@pytest.fixture
def an_lstm_knows_only_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch's own does on the CPU, unless the processor is one of those that know bf16."""
    from gradstudio.engine.step import precision

    def possible(model: Any, sample: Any, knobs: Any, device: str) -> str:
        return (
            "could not create a primitive"
            if hasattr(model, "lstm") and knobs.dtype != "fp32"
            else found(model, sample, knobs, device)
        )

    found = precision.possible
    monkeypatch.setattr(precision, "possible", possible)


SMALL = """schema = 1
title = "Small"
summary = "Eight units."
[model]
depth = 1
width = 8
[problem]
batch_size = 8
[run]
steps = 6
device = "cpu"
"""


class Answer(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def gradstudio(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Run a command in this process: its exit code, and what it said."""
    from gradstudio.cli import main

    def call(*words: str | Path) -> Answer:
        monkeypatch.setattr(sys, "argv", ["gradstudio", *map(str, words)])
        library = os.environ["GRADSTUDIO_LIBRARY"]
        with pytest.raises(SystemExit) as end:
            main()
        os.environ["GRADSTUDIO_LIBRARY"] = library  # --library sets it for the program
        told = capsys.readouterr()
        return Answer(int(end.value.code or 0), told.out, told.err)

    return call


@pytest.fixture
def checked_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check studio files here: a process of its own would have to import torch for each."""
    from gradstudio.core import presets
    from gradstudio.session import own_model

    def fault(name: str, text: str, stopped: Callable[[], bool], limit: float) -> str:
        from gradstudio.engine.own_model import check

        with contextlib.redirect_stdout(io.StringIO()):
            return check.fault(presets.parse(text, Path(name)).experiment)

    monkeypatch.setattr(own_model, "_fault", fault)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path
