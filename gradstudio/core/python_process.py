"""The one place that says how Python is started for the program. A child imports nothing from the folder that the
program was started in: Python by itself looks there first, and a stranger's folder may have a torch.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path

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


def keep_current_folder_out() -> None:
    """Let no Python that multiprocessing starts from now on look into the current folder: neither its servers nor its
    trackers, which it may start again at any time and whose command line is its own."""
    os.environ["PYTHONSAFEPATH"] = "1"
