"""However a worker ends, the run up to then is whole, one line says it, and the next run trains again."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from remote_workers import SMALL
from waiting import ENDLESS, PATIENCE, until

from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.core.python_process import how_it_ended
from gradstudio.session.library.store import Library
from gradstudio.session.remote.remote_backend import RemoteBackend
from gradstudio.session.remote.remote_worker import line_of_crash
from gradstudio.session.remote.worker_pool import WorkerPool
from gradstudio.session.simulator import Simulator
from gradstudio.session.words.run_state import describe
from gradstudio.worker import worker_process
from gradstudio.worker.worker_process import WorkerProcess

# A worker that takes one more message: what it is told to run.
OPEN_TO_ALL = """
from gradstudio.session.remote import serving
serving.Server._on_run_code = lambda self, head, raw: exec(head["code"], {})
serving.main(sys.argv[1])
"""


def start() -> WorkerProcess:
    from gradstudio.core import python_process

    return WorkerProcess(lambda nonce: python_process.command(OPEN_TO_ALL, nonce))


@pytest.fixture(scope="module")
def backend() -> Iterator[RemoteBackend]:
    class Shared(RemoteBackend):
        def close(self) -> None:
            pass

    one = Shared(start)
    yield one
    RemoteBackend.close(one)


@pytest.fixture
def one(backend: RemoteBackend, tmp_path: Path) -> Iterator[Simulator]:
    endless = Experiment().with_values(SMALL | {"run.steps": ENDLESS})
    made = Simulator(Preset(id="small", title="Small", experiment=endless), tmp_path / "runs.sqlite3", backend=backend)
    made.play()
    until(lambda: len(made.run.history) > 50 and len(made.snapshots))
    yield made
    made.close(PATIENCE)


def tell(backend: RemoteBackend, code: str) -> None:
    backend.warm().post({"m": "run_code", "code": code})


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import ctypes; ctypes.string_at(0)", "was ended by SIGSEGV, a crash"),
        pytest.param("import os; os._exit(3)", "ended its process with exit code 3", marks=pytest.mark.thorough),
        pytest.param(
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
            "was ended by SIGKILL, as for want of memory",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_worker_that_ends(one: Simulator, backend: RemoteBackend, code: str, told: str, tmp_path: Path) -> None:
    process, run = backend.warm(), one.run
    tell(backend, code)
    until(lambda: run.over)
    count = len(run.history)
    assert run.status == "failed" and run.message.startswith(f"The worker {told}. ")
    assert "went with it" in run.message and "\n" not in run.message
    assert count > 50
    assert ("Segmentation fault" in one.failure) == ("SIGSEGV" in told)
    until(lambda: not one.leaves(run.id))
    with closing(Library(tmp_path / "runs.sqlite3")) as library:
        assert len(library.load(run.id).history) == count
    assert len(one.snapshots) == 0 and not one.busy
    one.rewind(30)
    until(lambda: one.run.status == "paused" and one.run.replayed is None)
    assert one.run.differs_at is None and len(one.run.history) == 30 and backend.warm() is not process
    one.restart()
    until(lambda: len(one.run.history) > 5)


def test_each_way_to_end_has_its_words() -> None:
    told = {3: "ended its process with exit code 3", -9: "was ended by SIGKILL, as for want of memory"}
    assert {code: how_it_ended(code) for code in told} == told


def test_the_line_of_a_studio_file_at_which_it_crashed() -> None:
    before, dump = (
        '  File "own.py", line 3, in f\n',
        'Fatal Python error: Segmentation fault\n  File "own.py", line 12 in g',
    )
    assert line_of_crash("own.py", before + dump) == ", at own.py, line 12"
    assert line_of_crash("own.py", before) == "" == line_of_crash("other.py", dump)


def test_a_worker_that_runs_out_of_memory(one: Simulator, backend: RemoteBackend) -> None:
    tell(
        backend,
        "import torch; from gradstudio.engine.trainer import Trainer\n"
        "def advance(self): raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 3 GB')\n"
        "Trainer.advance = advance",
    )
    until(lambda: one.run.over)
    assert one.run.status == "failed" and one.run.message.startswith("Out of memory: ")
    backend.warm().kill()  # it has another trainer now


def test_a_device_that_is_broken_takes_its_worker_along(one: Simulator, backend: RemoteBackend) -> None:
    process = backend.warm()
    tell(
        backend,
        "from gradstudio.engine.trainer import Trainer\n"
        "def advance(self): raise RuntimeError('CUDA error: device-side assert triggered')\n"
        "Trainer.advance = advance",
    )
    until(lambda: one.run.over and process.over)
    assert "device-side assert" in one.run.message
    one.restart()
    until(lambda: len(one.run.history) > 5)


def test_silence_is_told_and_is_no_death(
    one: Simulator, backend: RemoteBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "SILENT", 0.5)
    process = backend.warm()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    try:
        until(lambda: one.run.unheard > 0)
        assert describe(one.run).headline.startswith("No word from the worker for ") and not one.run.over
        for speed in range(300):
            one.set_speed(1e6 + speed)  # nobody waits
    finally:
        os.kill(process.pid, signal.SIGCONT)
    count = len(one.run.history)
    until(lambda: one.run.unheard == 0 and len(one.run.history) > count + 10)
    assert one.run.status == "running" and backend.warm() is process


def test_stop_ends_a_step_that_hangs(one: Simulator, backend: RemoteBackend) -> None:
    process, run = backend.warm(), one.run
    tell(
        backend,
        "import ctypes; from gradstudio.engine.trainer import Trainer\n"
        "Trainer.advance = lambda self: ctypes.PyDLL(None).sleep(600)",  # which holds the lock of the interpreter
    )
    until(lambda: process.silent > 0.7)
    one.stop()
    until(lambda: one.abandon_stuck() or run.over)
    assert run.status == "stopped" and process.join(PATIENCE) and not one.busy
    one.restart()
    until(lambda: len(one.run.history) > 5)


def test_restart_while_a_step_hangs_begins_in_a_new_worker(one: Simulator, backend: RemoteBackend) -> None:
    process, run = backend.warm(), one.run
    tell(
        backend,
        "import time; from gradstudio.engine.trainer import Trainer\nTrainer.advance = lambda self: time.sleep(600)",
    )
    until(lambda: run.step_now is not None and time.monotonic() - run.step_now[1] > 0.3)
    one.restart()
    until(lambda: one.abandon_stuck() or len(one.run.history) > 5)
    assert run.status == "stopped" and process.over


def test_nothing_is_left(one: Simulator, backend: RemoteBackend) -> None:
    process = backend.warm()
    assert process.pid is not None
    tell(backend, "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])")
    until(lambda: len(os.listdir(f"/proc/{process.pid}/task")) > 1)
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: one.run.over)
    until(lambda: not _group(process.pid))


def _group(leader: int) -> list[str]:
    """The processes of a group."""
    found = []
    for each in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getpgid(int(each)) == leader and f" {leader} " in Path(f"/proc/{each}/stat").read_text():
                found.append(each)
        except OSError:
            continue
    return found


def test_a_worker_that_cannot_be_started() -> None:
    backend = RemoteBackend(lambda: WorkerProcess(lambda nonce: ["/nowhere/python", nonce]))
    one = Simulator(Preset(id="small", title="Small", experiment=Experiment().with_values(SMALL)), backend=backend)
    one.play()
    until(lambda: one.run.over)
    assert one.run.status == "failed" and "cannot be started: No such file or directory" in one.run.message
    assert one.close(PATIENCE)


def test_the_spare_of_a_studio_file_ends_with_it() -> None:
    """A restart of the file would have begun in it."""
    ends_when_spoken_to = [sys.executable, "-S", "-c", "import sys; sys.stdin.buffer.read(1)"]
    started: list[worker_process.WorkerProcess] = []

    def start() -> worker_process.WorkerProcess:
        started.append(worker_process.WorkerProcess(lambda _nonce: ends_when_spoken_to))
        return started[-1]

    pool = WorkerPool(start)
    shared, first = pool.take(own=False), pool.take(own=True)
    second = pool.take(own=True)  # restarted: in the spare one, and there is another
    pool.leave(first)
    until(lambda: first.over)
    assert len(started) == 4 and not any(each.over for each in started if each is not first)
    pool.leave(second)
    until(lambda: all(each.over for each in started if each is not shared))
    assert not shared.over
    pool.close()
