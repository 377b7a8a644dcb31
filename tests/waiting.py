"""How tests wait for what another thread or program does: for a state, never for a time, and never without an end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradstudio.gui.theme import Theme
    from gradstudio.session.simulator import Simulator

PATIENCE = 240.0  # seconds, for what takes a few on an idle machine: only a fault takes longer
LONG = int(PATIENCE * 1000)  # the same in milliseconds, as Qt counts
ENDLESS = 10**6  # steps of a run that no test sees the end of: it takes minutes where nothing slows it down


def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait until the condition holds. An event that never comes is the failure."""
    end, tick = time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        tick.wait(0.002)


def hold(simulator: Simulator, step: int, wait: Callable[[Callable[[], bool]], None] = until) -> None:
    """Bring the run to this step and leave it paused there, however fast or slow its thread is."""
    for _ in range(step - len(simulator.run.history)):
        simulator.step()
    wait(lambda: simulator.run.status == "paused" and len(simulator.run.history) == step)


def join(thread: threading.Thread) -> None:
    """Wait for the end of a thread."""
    thread.join(PATIENCE)
    assert not thread.is_alive(), f"{thread.name} did not end"


def settle(theme: Theme) -> None:
    """Let Qt go on until all that is in sight wears the look that was asked for."""
    from PySide6.QtWidgets import QApplication

    end = time.monotonic() + PATIENCE
    while not theme.settled:
        assert time.monotonic() < end, "it did not settle"
        QApplication.processEvents()
