"""The memory use of a step: its peak, a bar for each part, the curve over the step, and what would lower it."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QLabel, QPushButton, QWidget

from gradstudio.core.footprint import MB, Cure, Footprint
from gradstudio.gui.memory.memory_pictures import FootprintPicture, PartBars, StepCurve
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.page import Page
from gradstudio.gui.widgets.plain_grounds import scroll_area
from gradstudio.gui.widgets.roles import role_label, set_role
from gradstudio.gui.widgets.rows import NO_MARGINS, in_column, in_row
from gradstudio.session.footprint import texts

WORKING = "working it out…"
NONE_NEEDED = "The step fits as it is."
NONE_HELPS = "A smaller batch, checkpointing and bf16 would lower it by less than 10 %, or are not possible here."
LEAST_SAVED = 0.1  # of the peak: a change that saves less is not offered, unless it makes the step fit
MOST_CURES = 5  # most that are computed for one experiment


class MemoryCard(QFrame):
    """A card with a title, a figure, and perhaps a picture under its text."""

    def __init__(self, title: str, about: str, picture: FootprintPicture | None = None) -> None:
        super().__init__()
        self.setObjectName("card")
        self.setToolTip(about)
        self.setAccessibleName(title)
        self.title, self.figure = role_label(title, "title"), role_label("", "title")
        self.state, self.text = role_label("", "dim"), QLabel()
        self.text.setWordWrap(True)
        self.text.setTextFormat(Qt.TextFormat.PlainText)
        self.text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.picture = picture
        head = in_row(self.title, 1, self.state, self.figure, spacing=8)
        self.column = in_column(head, self.text, of=self, margins=(12, 9, 12, 10), spacing=6)
        self.text.hide()  # until it has a text
        if picture is not None:
            self.column.addWidget(picture)

    def say(self, text: str, *, role: str = "") -> None:
        """Show a text, in the style of this role; nothing for an empty one."""
        self.text.setText(text)
        self.text.setVisible(bool(text))
        self.setAccessibleDescription(text or self.toolTip())
        set_role(self.text, role)


class CureRow(QWidget):
    """A change that lowers the peak, with a button that makes it."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.apply = QLabel(), QPushButton("Apply")
        self.text.setWordWrap(True)
        self.text.setTextFormat(Qt.TextFormat.PlainText)
        self.apply.setProperty("role", "remedy")
        in_row((self.text, 1), (self.apply, 0, Qt.AlignmentFlag.AlignTop), of=self, margins=NO_MARGINS, spacing=10)
        self.hide()

    def show_cure(self, cure: Cure) -> None:
        """Show the change, and its effect."""
        self.text.setText(_sentence(texts.cure_text(cure) + ("" if cure.fits else "; that does not fit either")))
        about = f"Sets {' and '.join(cure.assignments)}, as one change that can be undone"
        self.apply.setToolTip(about)
        self.apply.setAccessibleName(f"Apply {texts.change_text(cure)}")
        self.apply.setAccessibleDescription(about)
        self.show()


class MemoryPanel(Page):
    """The cards below each other, with a note on what is counted."""

    cure_chosen = Signal(object)  # the Cure that the user chose

    def __init__(self) -> None:
        super().__init__()
        self.note = role_label(texts.PLAIN_LOOP, "dim")
        self.note.setWordWrap(True)
        self.bars, self.curve = PartBars(), StepCurve()
        self.peak = MemoryCard("Peak of a step", "The most memory that one step takes, and what takes it", self.bars)
        self.step = MemoryCard(
            "Over one step", "The memory taken after each operation of a step, one after the other", self.curve
        )
        self.cures = MemoryCard("What lowers the peak", "Changes of knobs, each worked out in the same way")
        self.rows = tuple(CureRow() for _ in range(MOST_CURES))
        self._footprint: Footprint | None = None
        self._budget = 0
        self._offered: tuple[Cure, ...] = ()
        for index, row in enumerate(self.rows):
            row.apply.clicked.connect(lambda _=False, index=index: self.cure_chosen.emit(self._offered[index]))
            self.cures.column.addWidget(row)
        self._lay_out()
        self.say_working()

    def say_working(self) -> None:
        """Show that an answer is pending. The content for other knobs stays and is faint."""
        self.peak.state.setText(WORKING)
        self._show_parts(faint=True)

    def say_unknown(self, why: str) -> None:
        """Show why nothing is known."""
        self._footprint, self._offered = None, ()
        self.peak.state.setText("")
        self.peak.figure.setText("")
        self.peak.say(why)
        self._show_parts(faint=False)

    def show_footprint(self, footprint: Footprint, budget: int, cures: tuple[Cure, ...], *, complete: bool) -> None:
        """Show the memory use of a step, with a budget in MB, 0 for none. Not `complete`: more cures are to come."""
        worth = [cure for cure in cures if cure.peak <= (1 - LEAST_SAVED) * footprint.peak or (budget and cure.fits)]
        self._footprint, self._budget, self._offered = footprint, budget, tuple(worth[:MOST_CURES])
        self.peak.state.setText("")
        self.peak.figure.setText(texts.size(footprint.peak))
        self.peak.say(_sentence(texts.peak_text(footprint)))
        over = bool(budget) and footprint.first_above(budget * MB) is not None
        self.step.say(_sentence(texts.budget_text(footprint, budget)), role="over" if over else "")
        for row, cure in zip(self.rows, self._offered, strict=False):
            row.show_cure(cure)
        for row in self.rows[len(self._offered) :]:
            row.hide()
        if complete and not self._offered:
            self.cures.say(NONE_NEEDED if budget and not over else NONE_HELPS)
        else:
            self.cures.say("" if complete else WORKING.capitalize())
        self._show_parts(faint=False)

    # ---- inside

    def _show_parts(self, *, faint: bool) -> None:
        """Show what is known, faint if it is for other knobs; hide it if nothing is known."""
        known = self._footprint is not None
        for part in (self.bars, self.step, self.cures):
            part.setVisible(known)
        if self._footprint is not None:
            for picture in (self.bars, self.curve):
                picture.show_of(self._footprint, self._budget, faint=faint)
        for row in self.rows:
            row.setEnabled(not faint)
        for label in (self.peak.figure, self.peak.text, self.step.text, self.cures.text):
            label.setEnabled(not faint)

    def _lay_out(self) -> None:
        inside = QWidget()
        column = in_column(of=inside, margins=(12, 6, 12, 12), spacing=9)
        parts = (self.note, self.peak, self.step, self.cures)
        for part in parts:
            column.addWidget(part)
            theme.apply_style(part)
        column.addStretch(1)
        in_column(scroll_area(inside, "Memory"), of=self, margins=NO_MARGINS)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""
