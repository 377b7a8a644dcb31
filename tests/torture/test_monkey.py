"""Short walks of the monkey; `make torture` takes the long ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE

SEED = os.environ.get("GRADSTUDIO_MONKEY_SEED", "7")
ACTIONS = os.environ.get("GRADSTUDIO_MONKEY_ACTIONS", "130")
HERE = Path(__file__).parent
BAD_HABITS = """
import sys
from PySide6.QtCore import QTimer, qWarning
from PySide6.QtWidgets import QWidget
from torture import acts, monkey, stage
kept = []
def throw(hand):
    return "throw", lambda: QTimer.singleShot(0, lambda: 1 / 0)
def warn(hand):
    return "warn", lambda: qWarning("something is wrong")
def keep(hand):
    return "keep", lambda: kept.append(QWidget(hand.window))
acts.ACTS = {throw: 1, warn: 1, keep: 1}
monkey.FIRST, stage.LOOKS, stage.tour = 5, 1, lambda window: None  # what is made at first use may be found too
home = stage.make_home()
sys.exit(monkey.play(home, 0, 30))
"""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_a_monkey_finds_nothing() -> None:
    told = run(str(HERE / "monkey.py"), "--seed", SEED, "--actions", ACTIONS)
    assert told.returncode == 0, told.stdout + told.stderr


def test_it_finds_what_there_is_and_says_after_which_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE.parent), str(HERE.parents[1])]))
    told = run("-c", BAD_HABITS)
    assert told.returncode == 1, told.stdout + told.stderr
    for found in ("ZeroDivisionError", "Qt: something is wrong", "left: widget QWidget in Window", "with --seed 0"):
        assert found in told.stdout
    for habit in ("throw", "warn", "keep"):
        assert f" {habit}\n" in told.stdout
