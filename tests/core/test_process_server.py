"""The server of worker processes: what it leaves in the folder for temporary files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from waiting import PATIENCE

BEGIN = "import os; from gradstudio.core import process_server; process_server.context([]); process_server.start(); "


def left_by(folder: Path, end: str) -> list[str]:
    """What is in the folder for temporary files after a program that ends like this."""
    env = os.environ | {"TMPDIR": str(folder), "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([sys.executable, "-c", BEGIN + end], env=env, timeout=PATIENCE, check=False)
    return os.listdir(folder)


def test_what_a_killed_program_left_is_deleted_by_the_next() -> None:
    with tempfile.TemporaryDirectory() as made:  # with a short name, as a socket is made in there
        (left,) = left_by(Path(made), "os.kill(os.getpid(), 9)")
        assert left.startswith(".gradstudio-")
        assert left_by(Path(made), "pass") == []
