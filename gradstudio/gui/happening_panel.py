"""What is happening, in words: the state of the run, then what the rules found, each with the knob changes it suggests."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from gradstudio.gui.fixes_panel import FixesPanel
from gradstudio.gui.flow_layout import FlowLayout
from gradstudio.gui.provenance_card import ProvenanceCard
from gradstudio.gui.theme import theme
from gradstudio.session.run import Run
from gradstudio.session.state import State
from gradstudio.session.summary import ranked

_TONES = {"idle": "dim", "busy": "dim", "good": "good", "warning": "warning", "bad": "bad"}
_SEVERITIES = {"critical": "bad", "warning": "warning", "info": "dim"}


class Card(QFrame):
    """A title, when it was, a text, and a coloured edge that says how grave it is."""

    remedy_chosen = Signal(str)
    step_chosen = Signal(int)
    fixes_asked = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("card")
        self._role = "dim"
        self._said: tuple[str, ...] = ()
        self.title = QLabel()
        self.title.setProperty("role", "title")
        self.title.setWordWrap(True)
        self.when = QLabel()
        self.when.setProperty("role", "dim")
        self.when.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignRight)
        self.text = QLabel()
        self.text.setWordWrap(True)
        self.meaning = QLabel()
        self.meaning.setWordWrap(True)
        self.meaning.setProperty("role", "dim")
        for label in (self.title, self.text, self.meaning):
            label.setTextFormat(Qt.TextFormat.PlainText)
            label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        head = QHBoxLayout()
        head.setSpacing(8)
        head.addWidget(self.title, 1)
        head.addWidget(self.when)
        self.remedies = QWidget()
        self._remedy_row = FlowLayout(self.remedies)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(15, 9, 11, 10)
        layout.setSpacing(5)
        layout.addLayout(head)
        layout.addWidget(self.text)
        layout.addWidget(self.meaning)
        layout.addWidget(self.remedies)
        self.back = QPushButton("Go back")
        self.back.setProperty("role", "remedy")
        self.back.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.back.setToolTip("The last step whose gradient norm was as usual: change a knob there and run on, as a branch")
        self.back.clicked.connect(lambda: self.step_chosen.emit(self._step))
        self.back.hide()
        self.try_fixes = QPushButton("Try fixes")
        self.try_fixes.setProperty("role", "try")
        self.try_fixes.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.try_fixes.setToolTip("Tries each of these changes in the background, with the same seed and batches, and shows which one holds")
        self.try_fixes.clicked.connect(self.fixes_asked)
        self.try_fixes.hide()
        ways_out = QHBoxLayout()
        ways_out.setSpacing(6)
        ways_out.addWidget(self.try_fixes)
        ways_out.addWidget(self.back)
        ways_out.addStretch(1)
        layout.addLayout(ways_out)
        self._step: int | None = None
        self._offered: tuple[str, ...] = ()
        self.remedies.hide()

    def show_text(self, role: str, title: str, when: str, text: str, meaning: str = "") -> None:
        said = (role, title, when, text, meaning)
        if said == self._said:
            return
        self._said = said
        self.title.setText(title)
        self.when.setText(when)
        self.text.setText(text)
        self.text.setVisible(bool(text))
        self.meaning.setText(meaning)
        self.meaning.setVisible(bool(meaning))
        self.setAccessibleName(f"{title}. {text}")
        if role != self._role:
            self._role = role
            self.update()

    def offer(self, remedies: tuple[str, ...]) -> None:
        """Show a button for each of these knob changes."""
        if remedies == self._offered:
            return
        self._offered = remedies
        self._remedy_row.clear()
        for remedy in remedies:
            button = QPushButton(remedy.replace("=", " = ").replace(" model.", ", model."))
            button.setProperty("role", "remedy")
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
            button.setToolTip("Sets this. A live knob acts at the next step, any other on restart.")
            button.setAccessibleName(f"Set {remedy}")
            button.clicked.connect(lambda _=False, remedy=remedy: self.remedy_chosen.emit(remedy))
            self._remedy_row.addWidget(button)
        self.remedies.setVisible(bool(remedies))

    def offer_step(self, step: int | None) -> None:
        """Show a button that goes back to this step."""
        if step != self._step:
            self._step = step
            self.back.setText(f"Go back to step {step or 0:,}")
            self.back.setVisible(step is not None)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.color(self._role))
        painter.setClipRect(0, 0, 4, self.height())
        painter.drawRoundedRect(self.rect().adjusted(0, 0, 0, 0), 7, 7)
        painter.end()


class HappeningPanel(QWidget):
    """The state of the run and its findings, the gravest first."""

    remedy_chosen = Signal(str)
    step_chosen = Signal(int)
    fixes_asked = Signal()

    def __init__(self) -> None:
        super().__init__()
        heading = QLabel("WHAT IS HAPPENING")
        heading.setProperty("role", "heading")
        self.state = Card()
        self.state.step_chosen.connect(self.step_chosen)
        self.state.fixes_asked.connect(self.fixes_asked)
        self.findings: list[Card] = []
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(12, 12, 12, 10)
        self._column.setSpacing(9)
        self._column.addWidget(heading)
        self._column.addWidget(self.state)
        self.provenance = ProvenanceCard()
        self.fixes = FixesPanel()
        self._column.addWidget(self.fixes)
        self._column.addWidget(self.provenance)
        self._column.addStretch(1)
        theme.changed.connect(self.update)

    def refresh(self, run: Run, state: State, healthy: int | None) -> None:
        """Show the run's state and findings as they stand; `healthy` is the last step before it broke."""
        self.state.offer_step(healthy)
        self.provenance.show_of(run.provenance)
        self.state.show_text(_TONES[state.tone], state.headline, "now" if run.history and not run.over else "", state.text)
        found = ranked(run)
        while len(self.findings) < len(found):
            card = Card()
            card.remedy_chosen.connect(self.remedy_chosen)
            self.findings.append(card)
            self._column.insertWidget(self._column.count() - 1, card)
        for card, finding in zip(self.findings, found, strict=False):
            card.show_text(_SEVERITIES[finding.severity], finding.title, finding.when, finding.evidence, finding.meaning)
            card.offer(finding.remedies)
        for index, card in enumerate(self.findings):
            card.setVisible(index < len(found))

    def offer_fixes(self, wanted: bool) -> None:
        """Show the button that tries the fixes: on the first card, where it is in sight whatever was found."""
        self.state.try_fixes.setVisible(wanted)
