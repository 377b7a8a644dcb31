"""Ctrl+C, SIGTERM and SIGHUP close the window like the user would, so that its run is saved as stopped.

Python's signal handlers do not run while Qt waits. So a signal also writes to a socket that Qt's loop watches."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable

from PySide6.QtCore import QObject, QSocketNotifier
from PySide6.QtWidgets import QApplication

from gradstudio.session.running.interrupts import ECHO, EXIT_CODE, heed, leave


class ClosingSignals(QObject):
    """Closes all windows at the first signal, and ends the program at the second, until `remove` is called."""

    def __init__(self, parent: QObject, end: Callable[[int], object] = os._exit) -> None:
        super().__init__(parent)
        self._end, self._first = end, 0.0
        self._source, self._sink = socket.socketpair()
        for end_of_pair in (self._source, self._sink):
            end_of_pair.setblocking(False)
        self._notifier = QSocketNotifier(self._source.fileno(), QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(self._close)
        heed(self._on_signal)
        self._woken = signal.set_wakeup_fd(self._sink.fileno(), warn_on_full_buffer=False)

    def remove(self) -> None:
        """Restore the former handlers of the signals."""
        signal.set_wakeup_fd(self._woken)
        leave()
        self._notifier.setEnabled(False)
        self._source.close()
        self._sink.close()

    def _on_signal(self, number: int, frame: object) -> None:
        """End the program at the second signal, which may come while the first one waits for a file to be written."""
        now = time.monotonic()
        self._first = self._first or now
        if now - self._first > ECHO:
            self._end(EXIT_CODE)

    def _close(self) -> None:
        """Close menus and dialogs, then the window."""
        with contextlib.suppress(BlockingIOError):
            self._source.recv(64)
        while (popup := QApplication.activePopupWidget()) is not None and popup.close():
            pass
        QApplication.closeAllWindows()
