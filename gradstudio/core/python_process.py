"""The one place that says how Python is started for the program. A child imports nothing from the folder that the
program was started in: Python by itself looks there first, and a stranger's folder may have a torch.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SAFE = "PYTHONSAFEPATH"
_starting = threading.RLock()

# The package of this very program, but nothing else of its folder before what the system has.
_BEGIN = """import sys
sys.path.insert(0, sys.argv.pop(1))
import gradstudio
del sys.path[0]
"""


def command(code: str, *arguments: str) -> list[str]:
    """Return the command line of a Python that runs code of this program; sys.argv[1:] are the arguments."""
    package = Path(__file__).absolute().parents[2]
    return [sys.executable, "-P", "-c", _BEGIN + code, str(package), *arguments]


def end(child: subprocess.Popen[bytes]) -> None:
    """End a child that leads a session of its own, with all that it has started."""
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
    child.wait()


@contextmanager
def current_folder_kept_out() -> Iterator[None]:
    """Let no Python that multiprocessing starts meanwhile look into the current folder: neither a process nor its
    servers and trackers, whose command line is its own."""
    with _starting:
        before = os.environ.get(_SAFE)
        os.environ[_SAFE] = "1"
        try:
            yield
        finally:
            os.environ.pop(_SAFE) if before is None else os.environ.update({_SAFE: before})
