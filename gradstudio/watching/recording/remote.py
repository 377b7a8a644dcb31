"""What another program asks of a watched training: to pause, to go on, to stop, to learn faster or slower. It is obeyed
where an optimizer steps, and only there."""

from __future__ import annotations

import _thread
import signal
import threading
import time
from typing import Any

from torch.optim import Optimizer

from gradstudio.session.library.requests import Request

LOOK = 0.02  # seconds between two looks whether a paused training goes on


class Remote:
    """The requests to one run. `hear` is called in the thread that writes the library, all else where it trains."""

    def __init__(self) -> None:
        self.has_asked = False  # whether there was any request
        self.paused = self.stopped = False
        self.stop_is_due = False  # whether the next step is to be interrupted
        self.record_is_due = False  # whether a crash file is to be written behind the next step
        self.factor = 1.0  # on the learning rate
        self.exit_code = 0  # with which the script is to end before its next step
        self._rates: list[Any] = []  # of the script itself, while a step has others

    def on_request(self, request: Request, thread: int) -> None:
        """Note a request. `thread` is the training thread."""
        match request.word:
            case "pause":
                self.paused = True
            case "resume":
                self.paused = False
            case "record":
                self.record_is_due = True
            case "rate":
                self.factor = request.factor
            case "stop":
                self.stopped, self.stop_is_due = True, not _is_interruptible(thread)
                self.paused = False  # last, as a step that waits then looks whether to stop
                if not self.stop_is_due:
                    _thread.interrupt_main()  # as Ctrl+C: the script can tidy up
        self.has_asked = True

    def wait(self) -> None:
        """Return when the training is not paused."""
        while self.paused:
            time.sleep(LOOK)

    def stop_if_due(self) -> None:
        """Raise the KeyboardInterrupt of a stop that did not come as a signal, once; or what ends the script."""
        if self.stop_is_due:
            self.stop_is_due = False
            raise KeyboardInterrupt
        if self.exit_code:
            raise SystemExit(self.exit_code)

    def end_script(self, exit_code: int) -> None:
        """End the script before its next step, tidily: it may still save what it has."""
        self.exit_code, self.stopped, self.has_asked = exit_code, True, True

    def before_step(self, optimizer: Optimizer) -> None:
        """Let the step have another learning rate, of which the script and its scheduler see nothing."""
        if self._rates:
            self.after_step(optimizer)  # the step before ended with an exception
        if self.factor != 1:
            self._rates = [group.get("lr") for group in optimizer.param_groups]
            for group, rate in zip(optimizer.param_groups, self._rates, strict=True):
                if rate is not None:
                    group["lr"] = rate * self.factor

    def after_step(self, optimizer: Optimizer) -> None:
        """Give the groups their own learning rates back."""
        if not self._rates:
            return
        for group, rate in zip(optimizer.param_groups, self._rates, strict=False):
            if rate is not None:
                group["lr"] = rate
        self._rates = []


def _is_interruptible(thread: int) -> bool:
    """Return whether a SIGINT ends a training in this thread. It is ignored in what a shell script starts with `&`, and
    the main thread alone gets it, which may only wait for the one that trains."""
    return thread == threading.main_thread().ident and callable(signal.getsignal(signal.SIGINT))
