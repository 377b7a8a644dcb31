"""The gallery: every preset as a card, grouped by cause or in a suggested order, with a search and the next lesson."""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent, QShowEvent
from PySide6.QtWidgets import (
    QCheckBox,
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QScrollArea,
    QWidget,
)  # fmt: skip

from gradstudio.core import gallery, presets
from gradstudio.core.presets import GROUPS, LEVELS, Preset
from gradstudio.core.text import plural
from gradstudio.gui.gallery.gallery_card import GalleryCard
from gradstudio.gui.gallery.game_card import GameCard
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.card_wall import AHEAD, SIDE, CardWall
from gradstudio.gui.widgets.plain_grounds import scroll_area
from gradstudio.gui.widgets.roles import role_label
from gradstudio.gui.widgets.rows import NO_MARGINS, in_column, in_row
from gradstudio.gui.widgets.search_line import SearchLine
from gradstudio.gui.widgets.segments import Segments

NO_GROUP = "your own"
CARDS_A_TURN = 6  # created in one turn of the event loop


class GalleryPage(QWidget):
    """All cards under a head. The cards are created when it is first shown, a few in each turn of the event loop."""

    chosen = Signal(object)  # the preset of a card that was pressed
    left = Signal()  # back to the plots
    last_asked = Signal()  # the latest run of the library is to be opened
    at_start_changed = Signal(bool)
    number_asked = Signal(str)  # the search text, which may be the number of a run of the game

    def __init__(self, *, at_first: bool) -> None:
        """`at_first`: whether the caller also iterates over `making` to create the cards."""
        super().__init__()
        self.heading = role_label("Choose what to break", "title")
        self.about = role_label("", "dim")
        self.search = SearchLine("Find lessons", "Shows the cards that have all these words in title, cause or text")
        self.by_cause, self.by_order = QPushButton("By cause"), QPushButton("In order")
        self.last, self.next = QPushButton(), QPushButton()
        self.back = QPushButton("Back to the plots")
        self.at_start = QCheckBox("Show at start")
        self.cards: list[GalleryCard] = []
        self._finished: frozenset[str] = frozenset()
        self._made: Iterator[None] | None = iter(()) if at_first else None
        self.game = GameCard()
        self.wall = CardWall()
        self._turns = QTimer(self, singleShot=True)
        self._turns.timeout.connect(self._make_more)
        self._lay_out()
        self._connect()

    def paintEvent(self, event: QPaintEvent) -> None:
        with QPainter(self) as painter:
            painter.fillRect(event.rect(), theme.color("background"))

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self._made is None:
            self._turns.start(0)

    def create_cards(self) -> Iterator[None]:
        """Create the cards, a few in each iteration."""
        chosen: list[Preset] = []
        for path in presets.available():
            try:
                chosen.append(presets.read(path))
            except presets.PresetError:
                continue  # the menu of presets says why
            if len(chosen) % CARDS_A_TURN == 0:
                yield
        for place, preset in enumerate(gallery.in_order(chosen)):
            card = GalleryCard(self.wall, preset)
            card.clicked.connect(self._choose)
            self.cards.append(card)
            if place % CARDS_A_TURN == 0:
                yield
        self.show_finished(self._finished)
        self._arrange()

    def show_finished(self, finished: frozenset[str]) -> None:
        """Mark the lessons with these ids as finished, and offer the next one."""
        self._finished = finished
        titles = {card.preset.id: card.preset.title for card in self.cards}
        for card in self.cards:
            before = [titles[id] for id in card.preset.after if id in titles and id not in finished]
            card.show_state(finished=card.preset.id in finished, missing=before)
        lessons = [card for card in self.cards if card.preset.lesson]
        self._count(len(self.wall.order))
        self.next_preset = next((card.preset for card in lessons if not card.finished), None)
        self.next.setVisible(self.next_preset is not None)
        if self.next_preset is not None:
            self.next.setText(f"Next lesson: {self.next_preset.title}")
            self.next.setToolTip(self.next_preset.setting)

    def offer_last(self, told: str) -> None:
        """Offer to open the latest run; `told` describes it, "" if there is none."""
        self.last.setText(f"Last run: {told}")
        self.last.setVisible(bool(told))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = Qt.Key(event.key())
        if key == Qt.Key.Key_Escape:
            self.left.emit()
        elif key == Qt.Key.Key_Space:
            event.accept()  # otherwise the window would start the hidden run
        elif key in AHEAD:
            if card := self.wall.move_focus(key):
                self.area.ensureWidgetVisible(card, 0, 40)
        else:
            super().keyPressEvent(event)

    # ---- inside

    def _make_more(self) -> None:
        if self._made is None:
            self._made = self.create_cards()
        if next(self._made, self) is not self:
            self._turns.start(0)

    def _choose(self) -> None:
        card = self.sender()
        if isinstance(card, GalleryCard):
            self.chosen.emit(card.preset)

    def _choose_next(self) -> None:
        if self.next_preset is not None:
            self.chosen.emit(self.next_preset)

    def _arrange(self) -> None:
        """Put the cards that match the search under their headings."""
        self.number_asked.emit(self.search.text().strip())
        words = self.search.text().casefold().split()
        sections = self._matches(words) if words else self._groups()
        shown = sum(len(cards) for _, cards in sections)
        self.wall.arrange(sections, self.cards)
        self._count(shown)
        self.empty.setVisible(bool(self.cards) and not shown)

    def _matches(self, words: list[str]) -> list[tuple[str, list[GalleryCard]]]:
        """Return the cards that contain all these words: in the title, then in the summary, then anywhere."""
        kinds: tuple[list[GalleryCard], ...] = ([], [], [])
        for card in self.cards:
            texts = (card.named, card.described, card.searched)
            where = next((kind for kind, text in zip(kinds, texts, strict=True) if all(w in text for w in words)), None)
            if where is not None:
                where.append(card)
        titled, others = kinds[0], [*kinds[1], *kinds[2]]
        return [(name, cards) for name, cards in (("In the title", titled), ("Also about", others)) if cards]

    def _groups(self) -> list[tuple[str, list[GalleryCard]]]:
        by_level = self.by_order.isChecked()
        sections = []
        for name in LEVELS if by_level else GROUPS:
            members = [card for card in self.cards if name == (card.preset.level if by_level else card.preset.group)]
            if members:
                sections.append((name or NO_GROUP, members))
        return sections

    def _count(self, shown: int) -> None:
        """Show the number of cards, or, if all are shown, of finished lessons."""
        lessons = [card for card in self.cards if card.preset.lesson]
        done = sum(card.finished for card in lessons)
        every = plural(len(self.cards), "preset", "presets")
        some = shown < len(self.cards)
        self.about.setText(f"{shown} of {every}" if some else f"{every}, {done} of {len(lessons)} lessons finished")

    def _connect(self) -> None:
        self.search.textChanged.connect(self._arrange)
        self.by_cause.clicked.connect(self._arrange)
        self.by_order.clicked.connect(self._arrange)
        self.back.clicked.connect(self.left)
        self.last.clicked.connect(self.last_asked)
        self.last.setToolTip("Opens the run that was made last")
        self.next.clicked.connect(self._choose_next)
        self.at_start.toggled.connect(self.at_start_changed)

    def _lay_out(self) -> None:
        self.next_preset: Preset | None = None
        self.empty = QLabel("No preset has all these words.")
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.empty.hide()
        self.area: QScrollArea = scroll_area(self.wall, "Presets")
        head = self._head()
        self.game_room = QWidget()
        in_row(self.game, of=self.game_room, margins=(SIDE, 4, SIDE, 6))
        in_column(head, self.game_room, self.empty, (self.area, 1), of=self, margins=NO_MARGINS, spacing=0)
        theme.apply_style(head)
        theme.apply_style(self.empty)

    def _segments(self) -> QFrame:
        """Return the two buttons that choose how the cards are grouped, as one control."""
        for button, about in (
            (self.by_cause, "Groups the cards by what goes wrong"),
            (self.by_order, "Shows the cards in the order in which they are best taken, each after those it builds on"),
        ):
            button.setToolTip(about)
            button.setMinimumWidth(button.fontMetrics().horizontalAdvance(button.text()) + 24)
        segments = Segments(self.by_cause, self.by_order)
        self.by_cause.setChecked(True)
        return segments

    def _head(self) -> QWidget:
        """Return the two lines above the cards."""
        self.last.hide()
        self.next.hide()
        self.next.setProperty("role", "primary")
        self.at_start.setToolTip("Opens this gallery whenever GradStudio is started without a preset")
        self.back.setToolTip("Shows the plots of the present run (Esc)")
        self.search.setMaximumWidth(260)
        top, below = QHBoxLayout(), QHBoxLayout()
        top.setContentsMargins(SIDE, 14, SIDE, 0)
        below.setContentsMargins(SIDE, 8, SIDE, 6)
        for widget in (self.heading, self.about):
            top.addWidget(widget)
        top.addStretch(1)
        for widget in (self.at_start, self.back):
            top.addWidget(widget)
        for widget in (self.search, self._segments()):
            below.addWidget(widget)
        below.addStretch(1)
        for widget in (self.last, self.next):
            below.addWidget(widget)
        for line in (top, below):
            line.setSpacing(12)
        head = QWidget()
        in_column(top, below, of=head, margins=NO_MARGINS, spacing=0)
        return head
