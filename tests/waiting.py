"""How tests wait for what another thread or program does: for a state, never for a time, and never without an end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradstudio.core.row import Row
    from gradstudio.gui.theme import Theme
    from gradstudio.session.simulator import Simulator

PATIENCE = 600.0  # seconds, for what takes a few on an idle machine: only a fault takes longer
LONG = int(PATIENCE * 1000)  # the same in milliseconds, as Qt counts
ENDLESS = 10**6  # steps of a run that no test sees the end of: it takes minutes where nothing slows it down


def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait until the condition holds. An event that never comes is the failure. A condition that takes long, such as one
    that opens a library, is asked for less often, as it takes the time from what is waited for."""
    end, tick = time.monotonic() + seconds, threading.Event()
    while True:
        began = time.thread_time()
        if condition():
            return
        assert time.monotonic() < end, "it did not happen"
        tick.wait(max(0.002, 3 * (time.thread_time() - began)))


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
    while not theme.is_settled:
        assert time.monotonic() < end, "it did not settle"
        QApplication.processEvents()


class HeldStep:
    """A step that does not end until `release`: what a step of minutes is to the rest of the program."""

    def __init__(self, step: int, then: Callable[[], object] = lambda: None) -> None:
        """Hold the training thread within this step, where `then` is called."""
        self.reached, self._end = threading.Event(), threading.Event()
        self._step, self._then = step, then
        self.thread: threading.Thread | None = None

    def release(self) -> None:
        """Let the step go on, and wait for the end of the thread that makes it."""
        self._end.set()
        if self.thread is not None:
            join(self.thread)

    def __enter__(self) -> HeldStep:
        from gradstudio.engine.trainer import Trainer

        self._advance = advance = Trainer.advance

        def held(trainer: Trainer) -> list[Row]:
            if trainer.step == self._step and not self._end.is_set():
                self.thread = threading.current_thread()
                self.reached.set()
                self._then()
                assert self._end.wait(PATIENCE)
            return advance(trainer)

        Trainer.advance = held
        return self

    def __exit__(self, *fault: object) -> None:
        from gradstudio.engine.trainer import Trainer

        Trainer.advance = self._advance
        self.release()
