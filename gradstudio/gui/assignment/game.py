"""The game: a random exam is made in the background and opened, without a file and without a name. One at a time."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QObject, Signal

from gradstudio.core.assignment import AssignmentError
from gradstudio.core.exam import SEEDS, Exam
from gradstudio.gui.assignment import assignment_files, exam_training
from gradstudio.gui.assignment.exam_page import ExamPage
from gradstudio.gui.services.context import Context
from gradstudio.gui.services.jobs import JobError, Task
from gradstudio.session.course import exam_making
from gradstudio.session.course.exam_taking import Attempt
from gradstudio.session.record.run import Run

ABOUT = "Its knobs are covered. Find the cause in the plots, and heal it with few tries. About 3 minutes."
LAST = 9999  # number of a randomly drawn run
LONGEST = 6  # digits of a number that the user asks for
RUNS = 2 * SEEDS  # runs trained for a draw that makes an exam


class Game(QObject):
    """The game of random exams. It reports its state to the page that offers it."""

    # Its title, a text, the effect of a press, and how much of it is made, None while nothing is.
    changed = Signal(str, str, str, object)

    def __init__(self, context: Context) -> None:
        super().__init__(context.parent)
        self._context = context
        self.number = random.randint(1, LAST)
        self.page: ExamPage | None = None
        self._making: Task | None = None
        self._draw, self._trained = "", 0  # the current activity of the thread that makes an exam

    @property
    def title(self) -> str:
        return f"Run {self.number} broke tonight. Why?"

    def press(self) -> None:
        """Do what the button says: start, cancel the making of a run, continue the open run, or make the next one."""
        if self._making is not None:
            self._making.cancel()
        elif self.page is not None and self.page.over:
            self._go_on()
        elif self.page is not None:
            self._open(self.page)
        else:
            self.begin()

    def offer(self, text: str) -> bool:
        """Offer the run with the number typed by the user, as another player had it, unless one is in progress; return
        whether it is a number."""
        asked = text.isascii() and text.isdecimal() and len(text) <= LONGEST and int(text) > 0
        is_begun = self._making is not None or (self.page is not None and not self.page.over)
        if asked and not is_begun and int(text) != self.number:
            self._put_away()
            self.number = int(text)
            self.tell()
        return asked

    def begin(self) -> None:
        """Make the run with this number, in the background."""
        assignment_files.pause(self._context)
        self._draw, self._trained = "", 0
        words, make = f"Breaking run {self.number}", partial(self._make, self.number)
        self._making = self._context.jobs.start(words, make, self._on_exam_ready, self._on_exam_failed)
        self.tell()

    def stop(self) -> None:
        """Cancel work in progress."""
        if self._making is not None:
            self._making.cancel()
        self._put_away()

    def tell(self) -> None:
        """Report the progress."""
        making, told, share = self._making, ABOUT, None
        if making is not None:
            told = f"It is being broken: {self._draw or 'draw 1'}, {self._trained} of {RUNS} runs …"
            share = min(self._trained / RUNS, 1.0)
        elif self.page is not None:
            told = "You have finished this one." if self.page.over else "You have begun with this one."
        self.changed.emit(self.title, told, self._does, share)
        if self.page is not None:
            self.page.verdict.show_making(told if making is not None else "")

    # ---- inside

    @property
    def _does(self) -> str:
        if self._making is not None:
            return "Cancel"
        if self.page is None:
            return "Find out"
        return "Break another run" if self.page.over else "Go on"

    def _make(self, number: int, task: Task) -> Exam:
        """Draw the exam, in a thread."""

        def tell(text: str) -> None:
            self._draw, self._trained = text, 0
            self._context.jobs.post(self.tell)

        def count(train: Callable[[Run], None], run: Run) -> None:
            train(run)
            self._trained += 1
            self._context.jobs.post(self.tell)

        try:
            return exam_making.draw_exam(
                number, partial(count, exam_training.of_task(self._context.simulator, task)), tell
            )
        except AssignmentError:
            raise JobError(f"Run {number} does not break for good: take another number.") from None

    def _on_exam_ready(self, exam: Exam) -> None:
        self._making = None
        self._put_away()
        page = self.page = ExamPage(self._context, Attempt(exam, ""), None, self.number)
        page.next_asked.connect(self._go_on)
        page.ended.connect(self.tell)
        self.tell()
        self._open(page)

    def _open(self, page: ExamPage) -> None:
        self._context.show_large(page, self.title, alone=True)

    def _go_on(self) -> None:
        """Make the next run, while the page of the current one is shown."""
        if self._making is None:
            self.number = random.randint(1, LAST)
            self.begin()

    def _put_away(self) -> None:
        page, self.page = self.page, None
        if page is not None:
            page.put_away()

    def _on_exam_failed(self, task: Task) -> None:
        self._making = None
        self.tell()
        self._context.jobs.tell(task)
