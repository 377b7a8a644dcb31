"""A short walk of the monkey; `make torture` takes the long ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE

SEED = os.environ.get("GRADSTUDIO_MONKEY_SEED", "7")
ACTIONS = os.environ.get("GRADSTUDIO_MONKEY_ACTIONS", "200")
HERE = Path(__file__).parent
HABITS = """
import sys
from PySide6.QtCore import QTimer, qWarning
from PySide6.QtWidgets import QWidget
from torture import acts, monkey, stage
kept = []
def habit(hand):
    if HABIT == "raise":
        return "raise", lambda: QTimer.singleShot(0, lambda: 1 / 0)
    if HABIT == "warn":
        return "warn", lambda: qWarning("something is wrong")
    if HABIT == "keep":
        return "keep", lambda: kept.append(QWidget(hand.window))
    return "look", lambda: None
acts.ACTS = {habit: 1}
monkey.FIRST = 5
home = stage.make_home()
sys.exit(monkey.play(home, 0, 12))
"""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_a_monkey_finds_nothing() -> None:
    told = run(str(HERE / "monkey.py"), "--seed", SEED, "--actions", ACTIONS)
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.parametrize(
    ("habit", "found"),
    [("raise", "ZeroDivisionError"), ("warn", "Qt: something is wrong"), ("keep", "left: widget QWidget in Window")],
)
def test_it_finds_what_there_is_and_says_after_which_actions(
    habit: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE.parent), str(HERE.parents[1])]))
    told = run("-c", f"HABIT = {habit!r}\n{HABITS}")
    assert told.returncode == 1, told.stdout + told.stderr
    assert found in told.stdout
    assert "with --seed 0" in told.stdout
    assert f"12 {habit}" in told.stdout
