"""The exercises to choose from, as cards: their topic, duration, and what to hand in. It asks for the student's
name."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLineEdit, QPushButton, QWidget

from gradstudio.core import exercise as exercises
from gradstudio.core.exercise import Exercise
from gradstudio.core.text import plural
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.card import Card
from gradstudio.gui.widgets.card_wall import AHEAD, SIDE, CardWall
from gradstudio.gui.widgets.roles import role_label, set_role
from gradstudio.gui.widgets.rows import NO_MARGINS, in_column
from gradstudio.session.course.worksheet import LONGEST_NAME

ABOUT = "You make runs, answer questions about them, and hand in a worksheet. Choose one."
HANDED_IN = "You hand in your answers with the curves of your runs. Until then the worksheet is kept here by itself."
NAME = 300  # px of the line for it


class ExerciseCard(Card):
    size_at_first = QSize(236, 132)

    def __init__(self, parent: QWidget, place: int, exercise: Exercise) -> None:
        super().__init__(parent, f"{place}. {exercise.title}")
        self.exercise = exercise
        self.setCheckable(True)
        runs, questions = len(exercise.run), len(exercise.question)
        self.tell(
            exercise.text,
            [f"about {exercise.minutes} min", plural(runs, "run", "runs"), plural(questions, "question", "questions")],
        )


class ExercisesPage(QWidget):
    begun = Signal(str, str)  # id of an exercise, and the student's name
    worksheet_asked = Signal()  # one in a file is to be continued

    def __init__(self) -> None:
        super().__init__()
        self.wall = CardWall()
        self.cards = [
            ExerciseCard(self.wall, place, exercises.load(id)) for place, id in enumerate(exercises.available(), 1)
        ]
        self.title, self.text = role_label("", "title"), role_label("", "")
        self.name, self.begin = QLineEdit(), QPushButton("Begin exercise")
        self.open = QPushButton("Open worksheet…")
        self.chosen = self.cards[0].exercise
        self._lay_out()
        self.wall.arrange([("", self.cards)], self.cards)
        self.setFocusProxy(self.cards[0])
        for card in self.cards:
            card.clicked.connect(self._choose)
        self.name.textChanged.connect(self._show_state)
        self.name.returnPressed.connect(self.begin.click)
        self.begin.clicked.connect(self._begin)
        self.open.clicked.connect(self.worksheet_asked)
        self._show_state()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = Qt.Key(event.key())
        if key == Qt.Key.Key_Space:
            event.accept()  # otherwise the window would start the hidden run
        elif key in AHEAD:
            self.wall.move_focus(key)
        else:
            super().keyPressEvent(event)

    # ---- inside

    def _choose(self) -> None:
        card = self.sender()
        if isinstance(card, ExerciseCard):
            self.chosen = card.exercise
            self._show_state()
            self.name.setFocus()

    def _begin(self) -> None:
        if self.name.text().strip():
            self.begun.emit(self.chosen.id, self.name.text().strip())

    def _show_state(self) -> None:
        for card in self.cards:
            card.setChecked(card.exercise is self.chosen)
        self.title.setText(self.chosen.title)
        runs = "\n".join(f"{run.name}: {run.text}" for run in self.chosen.run)
        self.text.setText(f"{self.chosen.text}\n\nYour runs\n{runs}\n\n{HANDED_IN}")
        named = bool(self.name.text().strip())
        self.begin.setEnabled(named)
        set_role(self.begin, "primary" if named else "")

    def _lay_out(self) -> None:
        about = role_label(ABOUT, "dim")
        self.name.setPlaceholderText("Your name")
        self.name.setMaxLength(LONGEST_NAME)
        self.name.setMaximumWidth(NAME)
        self.name.setAccessibleName("Your name")
        self.name.setToolTip("Stands on the worksheet, and gives your runs a seed of their own")
        self.begin.setToolTip("Opens the worksheet beside the plots, or goes on with the one of this name")
        self.open.setToolTip("Goes on with a worksheet that lies in a file")
        self.text.setWordWrap(True)
        self.text.setTextFormat(Qt.TextFormat.PlainText)
        head, line = QHBoxLayout(), QHBoxLayout()
        head.setContentsMargins(SIDE, 0, SIDE, 0)
        head.addWidget(about, 1)
        head.addWidget(self.open)
        line.addWidget(self.name)
        line.addWidget(self.begin)
        line.addStretch(1)
        self.detail = QFrame()
        self.detail.setObjectName("card")
        in_column(self.title, self.text, line, of=self.detail, margins=(16, 14, 16, 14), spacing=10)
        room = in_column(self.detail, margins=(SIDE, 4, SIDE, 12))
        in_column(head, self.wall, room, 1, of=self, margins=NO_MARGINS)
        for part in (about, self.open, self.detail):
            theme.apply_style(part)
