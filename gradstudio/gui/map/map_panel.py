"""The page Map: the current map, its progress, the picture, its text, and its files."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QFontMetrics, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QWidget

from gradstudio.gui.map.map_picture import MapPicture
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets import popups
from gradstudio.gui.widgets.menu_arrow import add_arrow
from gradstudio.gui.widgets.page import Page
from gradstudio.gui.widgets.plain_grounds import scroll_area
from gradstudio.gui.widgets.roles import role_label, set_role
from gradstudio.gui.widgets.rows import NO_MARGINS, in_column, in_row

ABOUT = (
    "One run shows one point. A map shows where training holds over two knobs: each of its cells is a real run of "
    "these knobs, trained on all cores, and a click opens it."
)
NEW = "Plans a map over two knobs of the run as it is set now"
POINT = "Point at a cell to read it; click to open it as a run."
AROUND = 330  # px that the other parts of the page take
TALLEST = 620  # px of the picture's panels
READOUT_LINES = 3  # reserved for the text about a cell
EXPORTS = {
    "png": "Picture (PNG)…",
    "svg": "Picture (SVG)…",
    "csv": "Cells (CSV)…",
    "npz": "Arrays (npz)…",
    "report": "Report of the run with the map (HTML)…",
}


class LevelBar(QWidget):
    """The progress of the current level."""

    def __init__(self) -> None:
        super().__init__()
        self.share = 0.0
        self.setFixedHeight(4)

    def show_share(self, share: float) -> None:
        if share != self.share:
            self.share = share
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        with QPainter(self) as painter:
            painter.fillRect(self.rect(), theme.color("grid"))
            painter.fillRect(QRectF(0, 0, self.width() * self.share, self.height()), theme.color("accent"))


class MapPanel(Page):
    new_asked, open_asked = Signal(), Signal()
    pause_asked, go_on_asked, cancel_asked = Signal(), Signal(), Signal()
    export_asked = Signal(str)  # one of EXPORTS

    def __init__(self) -> None:
        super().__init__()
        self.new, self.open, self.export = QPushButton("New map…"), QPushButton("Open…"), QPushButton("Export")
        self.pause, self.go_on, self.cancel = QPushButton("Pause"), QPushButton("Go on"), QPushButton("Cancel")
        self.title, self.state = role_label("", "title"), role_label(ABOUT, "dim")
        self.bar, self.picture = LevelBar(), MapPicture()
        self.readout, self.place, self.words = QLabel(), QLabel(), QLabel()
        add_arrow(self.export)
        set_role(self.go_on, "primary")
        self._why_not = ""
        self._explain()
        self._lay_out()
        self.show_work("", "", share=None)
        self.show_buttons(going=False, paused=False, unfinished=False)
        self._show_map(shown=False)

    # ---- content

    def show_work(self, title: str, state: str, *, share: float | None, role: str = "dim") -> None:
        """Show the current map and its progress; `share` of the level that is done, None if none is being made."""
        self.title.setText(title)
        self.title.setVisible(bool(title))
        self.state.setText(state or ABOUT)
        set_role(self.state, role)
        self.bar.setVisible(share is not None)
        self.bar.show_share(share or 0.0)

    def show_new(self, why_not: str) -> None:
        """Offer a new map, or say why that is impossible."""
        if why_not != self._why_not:
            self._why_not = why_not
            self.new.setEnabled(not why_not)
            self.new.setToolTip(why_not or NEW)
            self.new.setAccessibleDescription(why_not or NEW)

    def show_buttons(self, *, going: bool, paused: bool, unfinished: bool) -> None:
        """Show the available commands: `going`: the map is being made; `unfinished`: it is open, and incomplete."""
        self.open.setEnabled(not going)
        self.pause.setVisible(going and not paused)
        self.go_on.setVisible((going and paused) or unfinished)
        self.cancel.setVisible(going)
        self._buttons.setVisible(going or unfinished)
        set_role(self.new, "" if going or unfinished else "primary")

    def show_words(self, words: str) -> None:
        """Show the text of the map, below its picture."""
        self.words.setText(words)
        self._show_map(shown=bool(words))

    def show_cell(self, text: str) -> None:
        """Show what is known about the cell under the pointer; nothing for none."""
        self.readout.setText(text or POINT)
        set_role(self.readout, "" if text else "dim")
        self.picture.setAccessibleDescription(text or POINT)

    def show_place(self, text: str) -> None:
        """Show the position of the current knobs and run on the map."""
        self.place.setText(text)
        self.place.setVisible(bool(text))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.picture.give_room(min(round((self.height() - AROUND) / theme.zoom), TALLEST))

    # ---- inside

    def _show_map(self, *, shown: bool) -> None:
        for part in (self.picture, self.readout, self.words):
            part.setVisible(shown)
        self.export.setEnabled(shown)
        if not shown:
            self.place.hide()

    def _explain(self) -> None:
        for button, asked, about in (
            (self.new, self.new_asked, NEW),
            (self.open, self.open_asked, "Opens a map that was made before"),
            (self.pause, self.pause_asked, "Begins no more cells; those under way are finished and kept"),
            (self.go_on, self.go_on_asked, "Continues where the map stopped"),
            (self.cancel, self.cancel_asked, "Ends the work; what is finished stays, and the map can be continued"),
        ):
            button.clicked.connect(asked)
            button.setToolTip(about)
            button.setAccessibleDescription(about)
        about = "Writes the picture, the cells, the arrays, or a report of the run with the map"
        self.export.setToolTip(about)
        self.export.setAccessibleDescription(about)
        self.export.clicked.connect(self._offer_files)

    def _offer_files(self) -> None:
        menu = popups.context_menu(self.export)
        for kind, label in EXPORTS.items():
            menu.addAction(label, partial(self.export_asked.emit, kind))
        menu.popup(self.export.mapToGlobal(self.export.rect().bottomLeft()))

    def _lay_out(self) -> None:
        for label in (self.state, self.readout, self.place, self.words):
            label.setWordWrap(True)
            label.setTextFormat(Qt.TextFormat.PlainText)
            label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.title.setWordWrap(True)
        self.readout.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft)
        self.show_cell("")
        top, self._buttons = QHBoxLayout(), QWidget()
        for button in (self.new, self.open, self.export):
            top.addWidget(button)
        top.addStretch(1)
        in_row(self.pause, self.go_on, self.cancel, 1, of=self._buttons, margins=NO_MARGINS)
        card = QFrame()
        card.setObjectName("card")
        in_column(self.title, self.state, self.bar, self._buttons, of=card, margins=(12, 9, 12, 10), spacing=6)
        inside = QWidget()
        in_column(
            top,
            card,
            self.picture,
            self.readout,
            self.place,
            self.words,
            1,
            of=inside,
            margins=(12, 6, 12, 12),
            spacing=9,
        )
        in_column(scroll_area(inside, "Map"), of=self, margins=NO_MARGINS)
        theme.apply_style(inside, self._keep_room)
        self._keep_room()

    def _keep_room(self) -> None:
        """Reserve room for the text about a cell, so that nothing jumps when the mouse moves."""
        self.readout.setMinimumHeight(READOUT_LINES * QFontMetrics(theme.font(0.88)).lineSpacing())
