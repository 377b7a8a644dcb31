"""A few windows that are opened, train and are closed; `make torture` does a hundred."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from waiting import PATIENCE

CYCLES = os.environ.get("GRADSTUDIO_CYCLES", "2")
FIRST = "1"  # cycle before the first census: one of each kind comes after it
SHARES = "12"  # of the bundled presets, of which each cycle opens one: `make torture` opens all


def test_a_closed_window_leaves_nothing() -> None:
    told = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "cycles.py"), "--cycles", CYCLES, "--first", FIRST, "--shares", SHARES],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stdout + told.stderr
