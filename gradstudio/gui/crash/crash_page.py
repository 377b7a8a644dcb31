"""The large page of a crash file: on the left its contents and the fixes, on the right the fatal step operation by
operation. Nothing in it is replayed before the user asks for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFormLayout, QFrame, QLabel, QPushButton, QWidget

from gradstudio.core.text import plural
from gradstudio.gui.crash.fix_rows import FixRows
from gradstudio.gui.crash.operation_card import OperationCard
from gradstudio.gui.crash.operations_table import OperationsTable
from gradstudio.gui.services.context import Context
from gradstudio.gui.services.jobs import JobError, Task
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.column_page import ColumnPage
from gradstudio.gui.widgets.roles import role_label, set_role
from gradstudio.gui.widgets.rows import in_column, in_row
from gradstudio.session.files import crash_answers, crash_reading
from gradstudio.session.files.crash_answers import Answer, ReplayedStep, TriedFix
from gradstudio.session.files.crash_file import CrashFile, CrashFileError

LEFT = 380  # px of the left column at normal text
ASK = "--trust"  # phrase of the other process when it needs this confirmation
ABOUT = (
    "Making the step again runs no code of the model: the file holds calls of torch, and only those that compute. "
    "Another process makes them."
)
TRUST = "Replay all the same"


def open_file(context: Context, path: Path) -> None:
    """Show the page of a crash file, once it is read."""
    context.files.read(path, _read, partial(_show, context))


def _read(path: Path) -> CrashFile:
    try:
        return crash_reading.read(path)
    except CrashFileError as fault:
        raise JobError(str(fault)) from None


def _show(context: Context, crash: CrashFile) -> None:
    context.controls.file_opened.emit(str(crash.path))
    page = CrashPage(context, crash)
    context.show_large(page, crash.path.name, page.put_away, alone=True)


class CrashPage(QWidget):
    def __init__(self, context: Context, crash: CrashFile) -> None:
        super().__init__()
        self._context, self._crash = context, crash
        self._tasks: list[Task] = []
        self._trusted = False
        self.replay, self.try_fixes = QPushButton("Replay step"), QPushButton("Try fixes")
        self.note, self.born = _text("dim"), _text("title")
        self.fixes, self.table, self.card = FixRows(), OperationsTable(), OperationCard()
        self.table.chosen.connect(self._choose)
        self.replay.setToolTip("Makes the recorded steps again, and shows what each call of the last one gave")
        self.try_fixes.setToolTip("Trains over the recorded batches with each fix, and shows which ones hold")
        self.replay.clicked.connect(self._replay)
        self.try_fixes.clicked.connect(self._try)
        self._lay_out()
        why = crash.structure.unknown or ("" if crash.structure.steps else "it holds none")
        calls = plural(sum(map(len, crash.structure.programs)), "call", "calls")
        self.born.setText(f"{calls} in the recorded steps{'' if why else ': replay them to see their values'}.")
        if why:
            self.note.setText(f"Its steps cannot be made again: {why}")
        for button in (self.replay, self.try_fixes):
            button.setEnabled(not why)
        set_role(self.replay, "" if why else "primary")
        self.setFocusProxy(self.replay)

    def put_away(self) -> None:
        """Cancel the replays for this page, and delete it."""
        for task in self._tasks:
            task.cancel()
        self.deleteLater()

    # ---- inside

    def _replay(self) -> None:
        self._ask(
            self.replay, "Making the step again", crash_answers.REPLAYED, self._show_step, "replay", "--operations"
        )

    def _try(self) -> None:
        self._ask(self.try_fixes, "Trying fixes", crash_answers.FIXES, self._show_fixes, "fixes")

    def _ask(
        self,
        button: QPushButton,
        words: str,
        kind: TypeAdapter[Answer],
        done: Callable[[Answer], object],
        *command: str,
    ) -> None:
        """Run another process in a job."""
        path, trust = self._crash.path, (ASK,) * self._trusted

        def ask(task: Task) -> Answer | None:
            try:
                return crash_answers.ask(path, kind, *command, *trust, stopped=lambda: task.cancelled)
            except CrashFileError as fault:
                raise JobError(str(fault)) from None

        def on_done(answer: Answer | None) -> None:
            if task.cancelled or answer is None:
                return
            self.note.setText(ABOUT)
            button.setEnabled(True)
            done(answer)

        def on_failed(task: Task) -> None:
            if task not in self._tasks:
                return
            button.setEnabled(True)
            wants_trust = ASK in task.problem and not self._trusted
            self._trusted = self._trusted or wants_trust
            if wants_trust:
                self.note.setText(f"{task.problem.partition(f'; add {ASK}')[0]}.")
                button.setText(TRUST)
            else:
                self.note.setText(task.problem or "Cancelled.")

        button.setEnabled(False)
        self.note.setText(f"{words}…")
        task = self._context.jobs.start(f"{words} of {path.name}", ask, on_done, on_failed)
        self._tasks.append(task)

    def _show_step(self, replayed: ReplayedStep) -> None:
        self.replay.setText("Replay step")
        set_role(self.replay, "")
        set_role(self.try_fixes, "primary")
        told = "The same as recorded" if replayed.same else "Differs from what was recorded"
        self.born.setText(f"{told}: {replayed.born.words}")
        place = next(
            (at for at, row in enumerate(replayed.operations) if row.call == replayed.born.call >= 0),
            next((at for at, row in enumerate(replayed.operations) if row.do == replayed.born.do), -1),
        )
        self.table.show_rows(replayed.operations, place)
        self.table.setFocus()

    def _show_fixes(self, fixes: list[TriedFix]) -> None:
        self.try_fixes.setText("Try fixes")
        set_role(self.try_fixes, "")
        self.fixes.show_fixes(fixes)

    def _choose(self, row: int) -> None:
        if self.table.shown is not None:
            self.card.show_operation(self.table.shown.rows[row])

    def _lay_out(self) -> None:
        facts = QFormLayout()
        facts.setHorizontalSpacing(12)
        facts.setVerticalSpacing(4)
        for name, told in crash_answers.contents(self._crash):
            label = _text("")
            label.setText(told)
            label.setToolTip(told)  # a long name of a run is cut, and not the column beside it
            label.setMinimumWidth(1)
            facts.addRow(role_label(name, "dim"), label)
        buttons = in_row(self.replay, self.try_fixes, 1)
        self.note.setText(ABOUT)
        card, left = QFrame(), QWidget()
        card.setObjectName("card")
        title = role_label("What it holds", "title")
        in_column(title, facts, buttons, self.note, of=card, margins=(14, 12, 14, 12), spacing=9)
        in_column(card, self.fixes, 1, of=left, margins=(0, 0, 8, 0))
        self.left = ColumnPage(left, "What the crash file holds, and fixes")
        right = in_column(self.born, (self.table, 1), self.card, spacing=8)
        in_row(self.left, (right, 1), of=self, margins=(12, 2, 12, 12), spacing=12)
        theme.apply_style(self, self._restyle)
        self._restyle()

    def _restyle(self) -> None:
        self.left.setFixedWidth(round(LEFT * theme.zoom))
        self.table.viewport().update()
        self.card.redraw()


def _text(role: str) -> QLabel:
    label = role_label("", role)
    label.setWordWrap(True)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return label
