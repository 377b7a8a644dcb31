"""Requests of another program to a watched training: pause, continue, stop, change the learning rate. They are obeyed
only where an optimizer steps."""

from __future__ import annotations

import _thread
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer

from gradstudio.core.text import number
from gradstudio.session.library.requests import Request
from gradstudio.session.record.run import Status

LOOK = 0.02  # seconds between two checks whether a paused training continues


class Remote:
    """The requests to one run. `hear` is called in the thread that writes the library, everything else in the training
    thread."""

    def __init__(self) -> None:
        self.has_asked = False  # whether there was any request
        self.paused = self.stopped = False
        self.stop_is_due = False  # whether the next step is to be interrupted
        self.record_is_due = False  # whether a crash file is to be written after the next step
        self.factor = 1.0  # on the learning rate
        self.exit_code = 0  # the exception that ends the script before its next step
        self._noted = 1.0  # the factor that the run has an event of
        self._steps_before_stop = 0  # of the run
        self._rates: list[Any] = []  # the script's own, while a step has others

    def on_request(self, request: Request, thread: int, steps: int) -> None:
        """Record a request. `thread` is the training thread, which has made so many steps."""
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
                self._steps_before_stop = steps
                self.stopped, self.stop_is_due = True, not _is_interruptible(thread)
                self.paused = False  # last, as a waiting step then checks whether to stop
                if not self.stop_is_due:
                    _thread.interrupt_main()  # like Ctrl+C: the script can tidy up
        self.has_asked = True

    def _wait(self) -> None:
        """Return when the training is not paused."""
        while self.paused:
            time.sleep(LOOK)

    def _stop_if_due(self) -> None:
        """Raise the KeyboardInterrupt of a stop that did not come as a signal, once; or the exception that ends the
        script."""
        if self.stop_is_due:
            self.stop_is_due = False
            raise KeyboardInterrupt
        if self.exit_code:
            raise SystemExit(self.exit_code)

    def end_script(self, exit_code: int, steps: int) -> None:
        """End the script before its next step, tidily: it may still save its state. It has made so many steps."""
        self._steps_before_stop = steps
        self.exit_code, self.stopped, self.has_asked = exit_code, True, True

    def was_obeyed(self, steps: int) -> bool:
        """Return whether the script was interrupted on request and tidied up, rather than reaching its own end after
        so many steps. The current step may still have become a row."""
        return self.stopped and not self.stop_is_due and steps - self._steps_before_stop <= 1

    def before_step(
        self, optimizer: Optimizer, note: Callable[..., None], set_status: Callable[[Status], None]
    ) -> bool:
        """Obey the requests before a step; `note` and `set_status` record that in the run. Return whether the training
        was paused. Another learning rate for the step is invisible to the script and its scheduler."""
        if was_paused := self.paused:
            note("the script was asked to pause")
            set_status("paused")
            self._wait()
            self._stop_if_due()
            set_status("running")
            note("the script goes on")
        self._stop_if_due()
        if self.factor != self._noted:
            self._noted = self.factor
            note(f"learning rate × {number(self.factor)} from here on, as was asked for", factor=self.factor)
        self._set_rates(optimizer)
        return was_paused

    def _set_rates(self, optimizer: Optimizer) -> None:
        if self._rates:
            self.after_step(optimizer)  # the previous step ended with an exception
        if self.factor != 1:
            self._rates = [group.get("lr") for group in optimizer.param_groups]
            for group, rate in zip(optimizer.param_groups, self._rates, strict=True):
                if rate is not None:
                    group["lr"] = rate * self.factor

    def after_step(self, optimizer: Optimizer) -> None:
        """Restore the learning rates of the groups."""
        if not self._rates:
            return
        for group, rate in zip(optimizer.param_groups, self._rates, strict=False):
            if rate is not None:
                group["lr"] = rate
        self._rates = []


def _is_interruptible(thread: int) -> bool:
    """Return whether a SIGINT ends a training in this thread. It is ignored in a shell script's background jobs, and
    only the main thread receives it, which may merely wait for the training one."""
    return thread == threading.main_thread().ident and callable(signal.getsignal(signal.SIGINT))
