"""Ctrl+C and its kind: the first stops what is going on, the second ends the program, and nothing crashes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from session.map.test_mapper import children, map_command
from waiting import PATIENCE, HeldStep, until

from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.session.record.run import Run
from gradstudio.session.running import foreground, interrupts

ROOT = Path(__file__).parents[2]
BEGIN = """
import ctypes, os, sys, threading
from gradstudio.session.running import interrupts
interrupts.ECHO = -1.0  # the next signal is the second one, however soon it comes
say = lambda text: os.write(1, f"{text}\\n".encode())  # a signal may come within it, where print would fail
"""
IN_C = "ctypes.CDLL(None).pthread_mutex_lock(mutex)"  # for good, and no Python handler runs meanwhile
PROGRAMS = {
    "stops": """
with interrupts.stopping(lambda: say("stopped"), lambda: say("saved")) as signals:
    say("ready")
    threading.Event().wait()
""",
    "held in C": f"""
mutex = ctypes.create_string_buffer(128)
{IN_C}
with interrupts.stopping(lambda: say("stopped"), lambda: say("saved")):
    say("ready")
    {IN_C}
""",
    "nothing to stop": f"""
interrupts.PATIENCE = 0.01
mutex = ctypes.create_string_buffer(128)
{IN_C}
with interrupts.listening():
    try:
        say("ready")
        {IN_C}
    except KeyboardInterrupt:
        {IN_C}
""",
    "one is enough": """
with interrupts.listening():
    try:
        say("ready")
        threading.Event().wait()
    except KeyboardInterrupt:
        say("unwound")
        sys.exit(130)
""",
}


@pytest.fixture
def program() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(name: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", BEGIN + PROGRAMS[name]]
        started.append(subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout.readline() == "ready\n"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_stops_and_the_second_ends_after_saving(program: Callable, number: signal.Signals) -> None:
    process = program("stops")
    process.send_signal(number)
    assert process.stdout.readline() == "stopped\n"
    process.send_signal(number)
    assert process.communicate(timeout=PATIENCE)[0] == "saved\n" and process.returncode == 130


POOL = """
from multiprocessing import get_context
{begin}
for _ in range(30):
    with get_context("fork").Pool(2) as workers:  # which ends them by SIGTERM, some of them before they have begun
        assert workers.map(abs, [-1]) == [1]
{end}
print("went on", *heard)
"""
HEARERS = {
    "command": (
        "from gradstudio.session.running import interrupts\nheard = []\n"
        "duty = interrupts.stopping(lambda: heard.append('stopped'))\nsignals = duty.__enter__()",
        "heard += ['a signal'] * signals.interrupted\nduty.__exit__(None, None, None)",
    ),
    "window": (
        "from PySide6.QtCore import QObject\nfrom PySide6.QtWidgets import QApplication, QWidget\n"
        "from gradstudio.gui.services.closing_signals import ClosingSignals\n"
        "app, heard = QApplication([]), []\nwindow = QWidget()\nwindow.show()\n"
        "signals = ClosingSignals(window, heard.append)",
        "app.processEvents()\nassert window.isVisible()\nsignals.remove()",
    ),
}


@pytest.mark.parametrize("hearer", HEARERS)
def test_the_signals_of_a_worker_that_was_forked_off_are_its_own(hearer: str) -> None:
    begin, end = HEARERS[hearer]
    words = [sys.executable, "-W", "ignore", "-c", POOL.format(begin=begin, end=end)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "went on\n", "")


def test_a_main_thread_that_is_held_in_c_is_ended_too(program: Callable) -> None:
    process = program("held in C")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    assert "saved" in process.communicate(timeout=PATIENCE)[0] and process.returncode == 130


def test_one_signal_is_enough_where_there_is_nothing_to_stop(program: Callable) -> None:
    process = program("one is enough")
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=PATIENCE)[0] == "unwound\n" and process.returncode == 130
    process = program("nothing to stop")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 130


def test_a_signal_that_comes_twice_at_once_is_one() -> None:
    """`timeout` sends it to the process and then to its group."""
    stopped = []
    with interrupts.stopping(lambda: stopped.append(1)) as signals:
        assert not signals.interrupted and not signals.overdue
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        until(lambda: stopped)
    assert stopped == [1] and signals.interrupted


def test_what_begins_after_the_signal_is_stopped_at_once_and_handlers_come_back() -> None:
    before, stopped = signal.getsignal(signal.SIGTERM), []
    with interrupts.stopping(lambda: stopped.append("outer")) as outer:
        signal.raise_signal(signal.SIGTERM)
        until(lambda: stopped)
        with interrupts.stopping(lambda: stopped.append("inner")) as inner:
            assert inner is outer
    assert stopped == ["outer", "inner"] and signal.getsignal(signal.SIGTERM) is before


def test_a_run_is_stopped_within_a_step_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """One signal did nothing in a step of minutes."""
    monkeypatch.setattr(interrupts, "PATIENCE", 0.01)
    experiment = Experiment().with_texts(["model.width=8", "model.depth=1", "run.device=cpu", "run.steps=100"])
    run = Run(Preset(id="small", title="Small", experiment=experiment), experiment)
    with HeldStep(3, then=lambda: os.kill(os.getpid(), signal.SIGTERM)) as step:
        assert foreground.train(run, progress=False) == ""
        assert run.status == "stopped" and len(run.history) <= 3
        step.release()
    assert run.status == "stopped" and [event.kind for event in run.events].count("stopped") == 1


def run_on_two_ranks(_folder: Path) -> list[str]:
    options = ["--set", "distributed.ranks=2", "--steps", "100000", "--quiet"]
    return [sys.executable, "-m", "gradstudio", "run", "healthy-mlp", *options]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it finds the processes in /proc")
@pytest.mark.parametrize("command", [map_command, pytest.param(run_on_two_ranks, marks=pytest.mark.thorough)])
def test_ctrl_c_while_the_server_of_the_processes_imports_is_as_any_other(
    tmp_path: Path, command: Callable[[Path], list[str]]
) -> None:
    # its own group, as Ctrl+C in a terminal reaches all of it
    begun = subprocess.Popen(command(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)

    def imports() -> bool:
        with suppress(OSError):  # one that has just ended
            return any(b"forkserver" in Path(f"/proc/{each}/cmdline").read_bytes() for each in children(begun.pid))
        return False

    try:
        until(imports)
        os.killpg(begun.pid, signal.SIGINT)
        _, said = begun.communicate(timeout=PATIENCE)
    finally:
        begun.kill()
    assert begun.returncode == 130 and b"Traceback" not in said and b"error" not in said
