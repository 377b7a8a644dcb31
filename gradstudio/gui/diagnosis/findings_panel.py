"""The state of the run and the findings of the rules, each a card with its suggested remedies."""

from __future__ import annotations

import re
from html import escape

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QWidget

from gradstudio.gui.diagnosis.fixes_panel import FixesPanel
from gradstudio.gui.diagnosis.provenance_card import ProvenanceCard
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.flow_layout import FlowLayout
from gradstudio.gui.widgets.roles import role_label
from gradstudio.gui.widgets.rows import in_column, in_row
from gradstudio.session.record.ranked_findings import ranked_findings
from gradstudio.session.record.run import Run
from gradstudio.session.words.outcome_words import SEVERITY_TONES
from gradstudio.session.words.run_state import State

LONGEST_LINE = 38  # characters of a button's text
TRY_FIXES = "Tries each remedy in the background, with the same seed and batches, and shows which one holds"
OPEN_CRASH = "Shows the fatal step operation by operation, and tries fixes from before it on"
REWIND = "Rewinds to the last healthy step; a knob that you change there starts a branch"


class Card(QFrame):
    """A title, a time, a text, and a coloured edge that shows the severity."""

    remedy_chosen = Signal(str)
    step_chosen = Signal(int)
    fixes_asked = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("card")
        self._role = "dim"
        self._said: tuple[str, ...] = ()
        self.title = role_label("", "title", wordWrap=True)
        self.when = role_label("", "dim")
        self.when.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignRight)
        self.text = QLabel(wordWrap=True)
        self.meaning = role_label("", "dim", wordWrap=True)
        for label in (self.title, self.text, self.meaning):
            label.setTextFormat(Qt.TextFormat.PlainText)
            label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        head = in_row((self.title, 1), self.when, spacing=8)
        self.remedies = QWidget()
        self._remedy_row = FlowLayout(self.remedies)
        in_column(
            head, self.text, self.meaning, self.remedies, self._way_out(), of=self, margins=(15, 9, 11, 10), spacing=5
        )
        self._step: int | None = None
        self._offered: tuple[str, ...] = ()
        self.remedies.hide()

    def _way_out(self) -> QHBoxLayout:
        """Return the row of buttons with ways to recover a run that diverged."""
        self.try_fixes, self.back = QPushButton("Try fixes"), QPushButton("Rewind")
        row = QHBoxLayout()
        row.setSpacing(6)
        for button, role, about in ((self.try_fixes, "try", TRY_FIXES), (self.back, "remedy", REWIND)):
            button.setProperty("role", role)
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
            button.setToolTip(about)
            button.hide()
            row.addWidget(button)
        row.addStretch(1)
        self.try_fixes.clicked.connect(self.fixes_asked)
        self.back.clicked.connect(lambda: self.step_chosen.emit(self._step))
        return row

    def show_text(self, role: str, title: str, when: str, text: str, meaning: str = "") -> bool:
        """Show these texts; return whether the title is new."""
        said = (role, title, when, text, meaning)
        if said == self._said:
            return False
        new = said[:2] != self._said[:2]
        self._said = said
        self.title.setText(title)
        self.when.setText(when)
        self.text.setText(text)
        self.text.setVisible(bool(text))
        has_code = "`" in meaning
        self.meaning.setTextFormat(Qt.TextFormat.RichText if has_code else Qt.TextFormat.PlainText)
        self.meaning.setText(_with_code(meaning) if has_code else meaning)
        self.meaning.setVisible(bool(meaning))
        self.setAccessibleName(f"{title}. {text}")
        if role != self._role:
            self._role = role
            self.update()
        return new

    def offer(self, remedies: tuple[str, ...]) -> None:
        """Show a button for each remedy."""
        if remedies == self._offered:
            return
        self._offered = remedies
        self._remedy_row.clear()
        for remedy in remedies:
            button = QPushButton(in_lines(remedy.replace("=", " = ").replace(" model.", ", model.")))
            button.setProperty("role", "remedy")
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
            button.setToolTip("Sets these knobs: a live knob takes effect at the next step, any other on restart")
            button.setAccessibleName(f"Set {remedy}")
            button.clicked.connect(lambda _=False, remedy=remedy: self.remedy_chosen.emit(remedy))
            self._remedy_row.addWidget(button)
        self.remedies.setVisible(bool(remedies))

    def offer_step(self, step: int | None) -> None:
        """Show a button that rewinds to this step, or none."""
        if step != self._step:
            self._step = step
            self.back.setText(f"Rewind to step {step or 0:,}")
            self.back.setVisible(step is not None)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.color(self._role))
            painter.setClipRect(0, 0, 4, self.height())
            painter.drawRoundedRect(self.rect().adjusted(0, 0, 0, 0), 7, 7)


class FindingsPanel(QWidget):
    """The state of the run, its findings by severity, where the NaN was born, and the fixes that were tried."""

    remedy_chosen = Signal(str)
    step_chosen = Signal(int)
    fixes_asked = Signal()
    news = Signal(QWidget)  # a part with news for the user

    def __init__(self) -> None:
        super().__init__()
        self.state = Card()
        self.state.step_chosen.connect(self.step_chosen)
        self.state.fixes_asked.connect(self.fixes_asked)
        self.cards: list[Card] = []
        self._column = in_column(self.state, of=self, margins=(12, 12, 12, 10), spacing=9)
        self.provenance = ProvenanceCard()
        self.fixes = FixesPanel()
        self.provenance.opened.connect(lambda: self.news.emit(self.provenance))
        self._column.addWidget(self.fixes)
        self._column.addWidget(self.provenance)
        self._column.addStretch(1)
        for part in (self.state, self.fixes, self.provenance):
            theme.apply_style(part)
        theme.changed.connect(self.update)

    def refresh(self, run: Run, state: State, healthy: int | None, when: str = "") -> None:
        """Show the run's state and findings; `healthy` is the last healthy step of a run that diverged, `when` the time
        of the state if it is a past one."""
        self.state.offer_step(healthy)
        self.provenance.show_provenance(run.provenance)
        when = when or ("now" if run.history and not run.over else "")
        if self.state.show_text(state.tone, state.headline, when, state.text) and state.tone == "bad":
            self.news.emit(self.state)
        findings = ranked_findings(run)
        while len(self.cards) < len(findings):
            card = Card()
            theme.apply_style(card)
            card.remedy_chosen.connect(self.remedy_chosen)
            self.cards.append(card)
            self._column.insertWidget(self._column.count() - 1, card)
        for card, finding in zip(self.cards, findings, strict=False):
            # the remedies of a watched script are code, which no button can change
            code = (
                f" Change in the script: {', or '.join(finding.remedies)}." if run.watched and finding.remedies else ""
            )
            meaning = finding.meaning + code
            card.show_text(SEVERITY_TONES[finding.severity], finding.title, finding.when, finding.evidence, meaning)
            card.offer(() if run.watched else finding.remedies)
            card.show()
        while len(self.cards) > len(findings):
            card = self.cards.pop()
            self._column.removeWidget(card)
            card.hide()
            card.deleteLater()

    def offer_fixes(self, wanted: bool, crash: bool) -> None:
        """Show or hide the button that tries the fixes, on the first card, which is always visible. `crash`: it opens
        the crash file of a watched run, which can try them."""
        button, text = self.state.try_fixes, "Open crash file" if crash else "Try fixes"
        if button.text() != text:  # this is called at each beat
            button.setText(text)
            button.setToolTip(OPEN_CRASH if crash else TRY_FIXES)
        button.setVisible(wanted or crash)


def _with_code(text: str) -> str:
    """Return a text as rich text, with the parts between backticks as code. A call that is too long for the narrow
    column may break after its first bracket; the copied text is still valid code."""
    breaking = re.sub(r"[^\s`]{35,}", lambda word: word.group().replace("(", "( ", 1), escape(text, quote=False))
    return re.sub("`([^`]*)`", r"<code>\1</code>", breaking)


def in_lines(remedy: str) -> str:
    """Return the changes of a remedy in lines that fit into the narrowest column."""
    lines: list[str] = []
    for change in remedy.split(", "):
        if lines and len(lines[-1]) + len(change) < LONGEST_LINE:
            lines[-1] += f", {change}"
        else:
            lines.append(change)
    return ",\n".join(lines)
