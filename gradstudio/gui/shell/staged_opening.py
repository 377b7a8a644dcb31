"""Completing a window after its first paint: its imports are made in a thread, after everything that no thread may do,
and then it is assembled part by part, each in its own turn of the event loop, so that no turn takes long.

Keys and clicks meanwhile are stored, and carried out once the window is complete."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from PySide6.QtCore import QCoreApplication, QEvent, QObject, QTimer
from PySide6.QtWidgets import QWidget

from gradstudio.gui.shell.first_paint import INPUT

LOOK = 5  # ms between two checks whether everything is imported
TURN = 0.004  # s of a turn of the event loop for what comes before that

# Not stored: dragged data can be gone by then, and Qt requests overrides again.
_LOST = {QEvent.Type.ShortcutOverride, QEvent.Type.DragEnter, QEvent.Type.Drop}


class StagedOpening(QObject):
    """Iterates over `ahead`, calls `load` in a thread, then advances `parts` once in each turn of the event loop. At
    the end it calls `done`. It ends early when the window is closed."""

    def __init__(
        self,
        window: QWidget,
        load: Callable[[], object],
        parts: Iterator[object],
        done: Callable[[], object],
        ahead: Iterable[object] = (),
    ) -> None:
        super().__init__(window)
        self._window, self._load, self._parts, self._done = window, load, parts, done
        self._ahead = iter(ahead)
        self._fault: Exception | None = None
        self._kept: list[tuple[QObject, QEvent]] = []
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._go_on)
        app = QCoreApplication.instance()
        assert app is not None
        self._app = app
        app.installEventFilter(self)
        gc.disable()  # a collection in the thread would destroy Qt objects there; at the end the heartbeat takes over
        self._thread: threading.Thread | None = None
        self._timer.start(0)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        kind = event.type()
        if kind not in INPUT:
            return False
        if kind not in _LOST:
            self._kept.append((watched, event.clone()))
        return True

    def _import(self) -> None:
        try:
            self._load()
        except Exception as fault:  # it is raised like any fault of the window
            self._fault = fault

    def _go_ahead(self) -> None:
        """Continue with what comes before the thread, and then start that."""
        until = time.perf_counter() + TURN
        while time.perf_counter() < until:
            if next(self._ahead, self) is self:
                self._thread = threading.Thread(target=self._import, name="loading the plots", daemon=True)
                self._thread.start()
                break
        self._timer.start(0 if self._thread is None else LOOK)

    def _go_on(self) -> None:
        if self._thread is None and self._window.isVisible():
            self._go_ahead()
        elif self._thread is not None and self._thread.is_alive():
            self._timer.start(LOOK)
        elif self._fault is not None:
            self._end()
            raise self._fault
        elif not self._window.isVisible():  # a minimized one is
            self._end()
        elif next(self._parts, self) is not self:
            self._timer.start(0)
        else:
            self._end()
            self._done()
            for watched, event in self._kept:
                QCoreApplication.postEvent(watched, event)

    def _end(self) -> None:
        self._app.removeEventFilter(self)
        self.deleteLater()
