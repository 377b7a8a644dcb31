"""Ctrl+C, SIGTERM and SIGHUP in a program without a window: the first stops the current work, the second ends the
program.

A Python signal handler runs only between two instructions of the main thread, which a long call into C can block. So a
separate thread receives the signals too, and ends the program if the main thread does not. The program is ended without
Python's own clean-up, which crashes while another thread is in torch."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    from types import FrameType

PATIENCE = 1.5  # seconds from the first signal until a thread that has not stopped is abandoned
# seconds within which a signal counts as a repetition of the first: `timeout` sends it to the process and to its group
ECHO = 0.2
EXIT_CODE = 130
THREAD = "signals"  # name of the thread that receives them

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Interrupts:
    """The signals received, and what to do about them."""

    def __init__(self) -> None:
        self.hasty = False  # whether the program has to end without Python's normal exit
        self._first: float | None = None  # when the first signal was noticed
        self._obeyed = False  # by the main thread
        # What to stop and what to save, the innermost last. Without any, the first signal is a KeyboardInterrupt.
        self._duties: list[tuple[Callable[[], object], Callable[[], object]]] = []

    @property
    def interrupted(self) -> bool:
        """True once a signal was received."""
        return self._first is not None

    @property
    def overdue(self) -> bool:
        """True if the work to stop has used up its time."""
        return self._first is not None and time.monotonic() - self._first > PATIENCE

    @contextlib.contextmanager
    def duty(self, stop: Callable[[], object], save: Callable[[], object]) -> Iterator[None]:
        """Call `stop` at the first signal in this context, immediately if it was already received; call `save` before
        the second ends the program."""
        self._duties.append((stop, save))
        try:
            if self._obeyed:
                stop()
            yield
        finally:
            self._duties.pop()

    def obey(self, number: int, frame: object) -> None:
        """Act on the first signal, in the main thread."""
        if self._obeyed:
            return
        self._obeyed = True
        self._first = self._first or time.monotonic()
        if not self._duties:
            raise KeyboardInterrupt
        self._duties[-1][0]()

    def wait_for_signals(self, source: socket.socket) -> None:
        """End the program at the second signal, or if the first has no effect. Returns when the other end of `source`
        is closed."""
        begun: float | None = None
        while True:
            source.settimeout(PATIENCE if self.interrupted and not self._duties else None)
            try:
                numbers = source.recv(64)
            except TimeoutError:
                self._end()
                continue
            if not numbers:
                return
            for _ in filter(SIGNALS.__contains__, numbers):
                now = time.monotonic()
                if begun is not None and now - begun > ECHO:
                    self._end()
                begun = begun or now
                self._first = self._first or now

    def _end(self) -> None:
        """End the program at once, with the measurements saved."""
        for _, save in reversed(self._duties):
            with contextlib.suppress(Exception):
                save()
        with contextlib.suppress(OSError, ValueError):
            if sys.stderr.isatty():
                os.write(2, b"\x1b[?25h\n")  # a progress bar hides the cursor
        os._exit(EXIT_CODE)


_present: list[Interrupts] = []
_before: list[dict[int, Any]] = []  # the handlers that were there before ours


def heed(handler: Callable[[int, FrameType | None], object]) -> None:
    """Let `handler` act on the signals until `leave`, except for ignored ones: a shell ignores SIGINT for background
    jobs, nohup ignores SIGHUP."""
    heeded = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    _before.append({number: signal.signal(number, handler) or signal.SIG_DFL for number in heeded})


def leave() -> None:
    """Restore the former handlers of the signals."""
    for number, handler in _before.pop().items():
        signal.signal(number, handler)


def _hold_signals() -> None:
    _held.before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def _process_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _held.before)


def _leave_all() -> None:
    """Restore the default signal handling of a forked process: the pool of a studio file ends its workers by SIGTERM,
    and each would wake this program as if it were the target. A signal may arrive before this is done, so they are
    blocked until then."""
    if _before:
        signal.set_wakeup_fd(-1)
    while _before:
        leave()
    _process_signals()


_held = threading.local()  # signals that a forking thread blocked
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_hold_signals, after_in_parent=_process_signals, after_in_child=_leave_all)


@contextlib.contextmanager
def listening() -> Iterator[Interrupts]:
    """Handle the signals in this context, unless that is already done. Only a main thread can."""
    if _present or threading.current_thread() is not threading.main_thread():
        yield _present[-1] if _present else Interrupts()
        return
    interrupts = Interrupts()
    heed(interrupts.obey)
    _present.append(interrupts)
    try:
        with _ears(interrupts):
            yield interrupts
    finally:
        _present.clear()
        leave()


@contextlib.contextmanager
def _ears(interrupts: Interrupts) -> Iterator[None]:
    """Let a thread receive every signal as it arrives."""
    import socket  # only now: a signal that arrives while it is imported is obeyed

    source, sink = socket.socketpair()
    sink.setblocking(False)
    ears = threading.Thread(target=interrupts.wait_for_signals, args=(source,), name=THREAD, daemon=True)
    ears.start()
    woken = signal.set_wakeup_fd(sink.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(woken)
        sink.close()
        ears.join()
        source.close()


@contextlib.contextmanager
def stopping(stop: Callable[[], object], save: Callable[[], object] = lambda: None) -> Iterator[Interrupts]:
    """Call `stop` at the first signal in this context; a second one ends the program, after `save`."""
    with listening() as interrupts, interrupts.duty(stop, save):
        yield interrupts
