"""The one place that starts and ends child processes of the program and describes their end. A child imports nothing
from the folder in which the program was started: by default Python looks there first, and an untrusted folder may
contain a torch.py."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gradstudio.core.text import signal_name

LOOK = 0.1  # seconds between two checks whether a process is to be stopped
_SAFE = "PYTHONSAFEPATH"
_starting = threading.RLock()

# The package of this program, but nothing else from its folder ahead of the system's paths.
_BEGIN = """import sys
sys.path.insert(0, sys.argv.pop(1))
import gradstudio
del sys.path[0]
"""


def command(code: str, *arguments: str) -> list[str]:
    """Return the command line of a Python that runs code of this program; sys.argv[1:] are the arguments."""
    package = Path(__file__).absolute().parents[2]
    return [sys.executable, "-P", "-c", _BEGIN + code, str(package), *arguments]


def start(command: Sequence[str], *, stdin: int, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
    """Start a child as the leader of its own session."""
    return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True)


def kill(child: subprocess.Popen[bytes]) -> None:
    """Kill a child that leads its own session, with everything that it has started."""
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()


def end(child: subprocess.Popen[bytes]) -> None:
    """Kill a child that leads its own session, with everything that it has started, and wait for its end."""
    kill(child)
    child.wait()


def output(
    child: subprocess.Popen[bytes], stopped: Callable[[], bool], limit: float = math.inf
) -> tuple[bytes, bytes] | None:
    """Return the stdout and stderr of a child once it ends. None if it is stopped or takes longer than `limit` seconds;
    it is killed then."""
    end_at = time.monotonic() + limit
    with child:
        try:
            while not stopped() and time.monotonic() < end_at:
                with suppress(subprocess.TimeoutExpired):
                    return child.communicate(timeout=LOOK)
            return None
        finally:
            end(child)


def how_it_ended(code: int) -> str:
    """Return how a process ended, by its exit code, in words that follow 'it'."""
    if code >= 0:
        return f"ended its process with exit code {code}"
    name = signal_name(-code)
    why = {"SIGKILL": ", as for want of memory", "SIGSEGV": ", a crash", "SIGBUS": ", a crash", "SIGABRT": ", a crash"}
    return f"was ended by {name}{why.get(name, '')}"


@contextmanager
def without_current_folder() -> Iterator[None]:
    """Keep the current folder out of the import path of any Python that multiprocessing starts meanwhile: processes,
    servers and trackers, whose command line it builds itself."""
    with _starting:
        before = os.environ.get(_SAFE)
        os.environ[_SAFE] = "1"
        try:
            yield
        finally:
            os.environ.pop(_SAFE) if before is None else os.environ.update({_SAFE: before})
