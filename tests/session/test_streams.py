"""What a studio file does to the streams of a command while it is trained there, and what it leaves at the end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
from waiting import PATIENCE, join

from gradstudio.session.running import streams

END = """import sys, threading, time
import gradstudio.cli
from gradstudio.__main__ import main
from gradstudio.session.running import interrupts

def command():
    with interrupts.stopping(lambda: None) as signals:
        signals.hasty = {hasty}
    threading.Thread(target=lambda: time.sleep(1000), daemon=not {hasty}).start()
    print("answer")
    raise SystemExit({code})

gradstudio.cli.main = command
main()
"""


def test_what_somebodys_code_prints_goes_to_stderr_however_it_does_that(capfd: pytest.CaptureFixture[str]) -> None:
    print("before")
    with streams.to_stderr(own=True):
        print("one")
        os.write(1, b"two\n")
        if sys.__stdout__ is not None:
            print("three", file=sys.__stdout__)
        assert sys.stdin.read() == "" and os.read(0, 9) == b""
    print("after")
    out, err = capfd.readouterr()
    assert out == "before\nafter\n"
    assert [word for word in ("one", "two", "three") if word not in err] == []


def test_what_somebodys_code_closes_is_open_afterwards(capfd: pytest.CaptureFixture[str]) -> None:
    with streams.to_stderr(own=True):
        sys.stdout.close()
        with sys.stderr:
            pass
        for number in range(3):
            os.close(number)
        print("to whoever")
    print("after")
    print("told", file=sys.stderr)
    out, err = capfd.readouterr()
    assert out == "after\n" and err.endswith("told\n")


@pytest.mark.parametrize(("hasty", "code", "found"), [(True, 4, 4), (True, None, 0), (False, 3, 3)])
def test_a_thread_that_a_studio_file_has_left_does_not_keep_the_program(
    hasty: bool, code: int | None, found: int
) -> None:
    words = [sys.executable, "-c", END.format(hasty=hasty, code=code)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stdout) == (found, "answer\n"), ended.stderr


def test_what_a_thread_prints_that_a_studio_file_has_left_is_no_part_of_the_answer(
    capfd: pytest.CaptureFixture[str],
) -> None:
    go_on = threading.Event()
    left = threading.Thread(target=lambda: (go_on.wait(PATIENCE), print("noise")))
    for _ in range(2):
        with streams.to_stderr(own=True):
            pass
    left.start()
    go_on.set()
    join(left)
    print("answer")
    out, err = capfd.readouterr()
    assert out == "answer\n" and err == "noise\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_process_that_a_studio_file_has_left_ends_with_the_program() -> None:
    forked = "__import__('multiprocessing').get_context('fork').Process(target=time.sleep, args=(1000,), daemon=True)"
    program = END.format(hasty=True, code=0).replace('print("answer")', f"child = {forked}; child.start()")
    # it has stdout too, so that this waits for its end
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=PATIENCE)
    assert ended.returncode == 0, ended.stderr
