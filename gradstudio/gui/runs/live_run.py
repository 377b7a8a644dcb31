"""A run that another program trains, in the plots: it is read from the library as it grows, and can be asked to pause,
to stop or to change the learning rate."""

from __future__ import annotations

import time
from functools import partial
from typing import NamedTuple

from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QInputDialog

from gradstudio.gui.services.context import Context
from gradstudio.gui.services.jobs import Task
from gradstudio.gui.widgets import popups
from gradstudio.session.library.requests import LARGEST, Word
from gradstudio.session.library.store import Library
from gradstudio.session.record.run import Run

EVERY = 0.5  # seconds between two readings, as often as the library is written
REST = 20  # and at least this many times the seconds that reading the run takes
ANYWAY = 8  # checks without a change, after which the run is read anyway: a program that was killed changes nothing
RATE = (
    "Factor on the learning rate of the script, from the next step on:\n"
    f"from 0 to {LARGEST:,.0f}; 1 is the script's own rate again"
)
_ASKED = {"pause": "to pause", "resume": "to go on", "stop": "to stop", "rate": "to change its learning rate"}
_OBEYED = {"pause": "has paused", "resume": "goes on", "stop": "has stopped", "rate": "has another learning rate now"}


class _Request(NamedTuple):
    """A request that is not obeyed yet; `events`: number of events that the run had then."""

    word: Word
    factor: float
    events: int
    task: Task


def _name(run: Run) -> str:
    """Return who trains a run."""
    return (run.watched.script if run.watched else "") or "the program that trains"


class LiveRun(QObject):
    """Follows one run as long as the plots show it and it is not over."""

    def __init__(self, context: Context, parent: QObject) -> None:
        super().__init__(parent)
        self._context = context
        self._run: Run | None = None
        self._version: int | None = None  # of the library, when the run was read
        self._idle = 0  # checks since then
        self._asked: list[_Request] = []  # requests not obeyed yet
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._look)
        context.controls.request_asked.connect(self._request)
        context.controls.rate_asked.connect(self._ask_rate)

    def follow(self, run: Run) -> None:
        """Keep this run up to date from now on."""
        self._forget_asked()
        self._run, self._version, self._idle = run, None, 0
        self._timer.start(round(1000 * EVERY))

    def _look(self) -> None:
        run = self._run
        if run is None or run is not self._context.simulator.run:
            self._forget_asked()
            self._run = None
            return
        known, anyway = self._version, self._idle >= ANYWAY

        def read(library: Library) -> tuple[int, Run | None, float]:
            version, began = library.version(), time.monotonic()
            later = library.load(run.id, run.history) if version != known or anyway else None
            return version, later, time.monotonic() - began

        self._context.library.ask(read, self._take, self._fail)

    def _take(self, reading: tuple[int, Run | None, float]) -> None:
        """Show the news, and read again after a while."""
        self._version, later, taken = reading
        self._idle = self._idle + 1 if later is None else 0
        if self._run is None:
            return
        if later is not None:
            self._context.simulator.catch_up(later)
            self._context.controls.knobs_changed.emit()
        self._tell_if_obeyed(self._run)
        if not self._run.over:
            self._timer.start(round(1000 * max(EVERY, REST * taken)))

    def _fail(self, task: Task) -> None:
        self._context.message.show_error(f"The run cannot be followed: {task.problem}")
        self._timer.start(round(1000 * EVERY * ANYWAY))

    def _request(self, word: Word, factor: float) -> None:
        """Send a request to the program that trains the run."""
        if (run := self._run) is None:
            return
        words = f"Asked {_name(run)} {_ASKED[word]}: it obeys at its next step"
        task = self._context.jobs.begin(words)
        self._asked.append(_Request(word, factor, len(run.events), task))
        self._context.library.ask(lambda library: library.request(run.id, word, factor), failed=self._on_refused)

    def _on_refused(self, task: Task) -> None:
        self._forget_asked()
        self._context.jobs.tell(task)

    def _tell_if_obeyed(self, run: Run) -> None:
        """Report that the program has obeyed the request, once the run shows it."""
        for asked in list(self._asked):
            done = {
                "pause": run.status == "paused", "resume": run.status == "running", "stop": run.over,
                "rate": any((each.kind, each.value) == ("notice", asked.factor) for each in run.events[asked.events :]),
            }[asked.word]  # fmt: skip
            if done:
                self._context.message.show_news(f"{_name(run)} {_OBEYED[asked.word]}, as it was asked to.")
            if done or run.over:
                self._asked.remove(asked)
                self._context.jobs.end(asked.task)

    def _forget_asked(self) -> None:
        """Stop showing the request."""
        for asked in self._asked:
            self._context.jobs.end(asked.task)
        self._asked = []

    def _ask_rate(self) -> None:
        if not self._context.controls.possible.is_trained_elsewhere:
            self._context.message.show_news("This program trains the run: change optimizer.lr itself.")
            return
        dialog = popups.input_dialog(self._context.parent, "Change learning rate", RATE)
        dialog.setInputMode(QInputDialog.InputMode.DoubleInput)
        dialog.setDoubleRange(0.0, LARGEST)
        dialog.setDoubleDecimals(6)
        dialog.setDoubleValue(0.1)
        dialog.doubleValueSelected.connect(partial(self._context.controls.request_asked.emit, "rate"))
        dialog.open()
