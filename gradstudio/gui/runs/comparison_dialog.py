"""Runs compared in one table, large enough to be projected: one column for each run, one row for each knob that differs
and for each figure."""

from __future__ import annotations

import time
from collections.abc import Sequence

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, QSize, Qt, QTimer
from PySide6.QtGui import QFont, QKeySequence, QShortcut, QShowEvent
from PySide6.QtWidgets import (
    QApplication,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QPushButton,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from gradstudio.gui.drawing.overlay import LETTERS, color, sample
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.popups import TemporaryDialog
from gradstudio.session.files.comparison import Comparison
from gradstudio.session.files.csv_table import harmless
from gradstudio.session.words import run_texts
from gradstudio.session.words.outcome_words import OUTCOMES

Index = QModelIndex | QPersistentModelIndex
Role = Qt.ItemDataRole
COPIED = "Copied"
NARROWEST = 110  # px of a run's column, at least

_SECTIONS = ("KNOBS THAT DIFFER", "WHAT CAME OF IT", "WHERE IT RAN")
_ROLES = {  # of a cell; Qt asks for others as often
    Role.DisplayRole, Role.ToolTipRole, Role.FontRole, Role.ForegroundRole, Role.AccessibleTextRole,
}  # fmt: skip
_SAME = "no knob: their experiments are the same"


class ComparisonTable(QAbstractTableModel):
    """The table of a comparison. `places` holds the place of each run over the plots, or None."""

    def __init__(self, found: Comparison, places: Sequence[int | None]) -> None:
        super().__init__()
        self.found, self._places = found, places
        self._names = [
            member.title if place is None else f"{LETTERS[place]}  {member.title}"
            for member, place in zip(found.members, places, strict=True)
        ]
        knobs = [(setting.knob, setting.texts()) for setting in found.settings] or [(_SAME, [])]
        figures = [
            ("began", [run_texts.when(member.started, time.time()) for member in found.members]),
            *found.figure_texts(),
        ]
        figures.append(("loss as the first run's", [_alike(found, place) for place in range(len(found.members))]))
        around = [(name, list(values)) for name, values in found.surroundings.items()]
        self.rows: list[tuple[str, list[str], bool]] = []  # label, cells, whether it is a heading
        for title, rows in zip(_SECTIONS, (knobs, figures, around), strict=True):
            if rows:
                self.rows.append((title, [], True))
                self.rows += [(label, cells, False) for label, cells in rows]

    @property
    def headings(self) -> list[int]:
        return [row for row, (_, _, heading) in enumerate(self.rows) if heading]

    def text(self) -> str:
        """Return the table as lines of cells with tabs between them, for a spreadsheet or a chat."""
        lines = [["", *self._names], *([label, *cells] for label, cells, _ in self.rows)]
        return "\n".join("\t".join(_cell(cell) for cell in line) for line in lines) + "\n"

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 (Qt's own signature)
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else 1 + len(self._names)

    def data(self, index: Index, role: int = Role.DisplayRole) -> object:
        if role not in _ROLES:
            return None
        label, cells, heading = self.rows[index.row()]
        text = ([label, *cells] + [""] * len(self._names))[index.column()]
        if role == Role.DisplayRole:
            return OUTCOMES[text][0] if label == "outcome" and text in OUTCOMES else text
        if role == Role.ToolTipRole and text:
            return f"<p>{run_texts.rich(text)}</p>"
        if role == Role.FontRole and heading:
            return theme.font(0.85, QFont.Weight.DemiBold)
        if role == Role.ForegroundRole and (heading or index.column() == 0):
            return theme.color("dim")
        if role == Role.ForegroundRole and label == "outcome":
            return theme.color(OUTCOMES.get(text, ("", "text"))[1])
        if (
            role == Role.ForegroundRole
            and index.row() <= len(self.found.settings)
            and index.column() > 1
            and text == cells[0]
        ):
            return theme.color("dim")  # as in the first run
        if role == Role.AccessibleTextRole and index.column() and text:
            return f"{label}, {self._names[index.column() - 1]}: {text}"
        return None

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Role.DisplayRole) -> object:
        if orientation != Qt.Orientation.Horizontal or not section:
            return None
        name, place = self._names[section - 1], self._places[section - 1]
        if role == Role.DisplayRole:
            return name
        if role == Role.ToolTipRole:
            return f"<p>{run_texts.rich(name)}<br>{run_texts.rich(self.found.members[section - 1].run)}</p>"
        if role == Role.ForegroundRole and place is not None:
            return color(place)
        if role == Role.DecorationRole and place is not None:
            return sample(place)
        return None

    def flags(self, index: Index) -> Qt.ItemFlag:
        return (
            Qt.ItemFlag.NoItemFlags
            if self.rows[index.row()][2]
            else Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable
        )


class ComparisonDialog(TemporaryDialog):
    def __init__(self, parent: QWidget, found: Comparison, places: Sequence[int | None]) -> None:
        super().__init__(parent, "Comparison — GradStudio")
        self.model, self.table = ComparisonTable(found, places), QTableView()
        table = self.table
        table.setObjectName("comparison")
        table.setAccessibleName("Comparison")
        table.setShowGrid(False)
        table.setWordWrap(True)
        table.setTextElideMode(Qt.TextElideMode.ElideRight)
        table.setTabKeyNavigation(False)
        table.verticalHeader().hide()
        table.horizontalHeader().setHighlightSections(False)
        table.horizontalHeader().setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        table.horizontalHeader().setMinimumSectionSize(NARROWEST)
        self.copy, close = QPushButton("Copy as text"), QPushButton("Close")
        self.copy.setToolTip("Copies the table with tabs between its cells, for a spreadsheet (Ctrl+C)")
        self.copy.clicked.connect(self._copy)
        close.clicked.connect(self.close)
        QShortcut(QKeySequence(QKeySequence.StandardKey.Copy), self, self._copy)
        about = QLabel("Every run is compared with the first.")
        about.setProperty("role", "dim")
        foot = QHBoxLayout()
        foot.addWidget(about, 1)
        foot.addWidget(self.copy)
        foot.addWidget(close)
        column = QVBoxLayout(self)
        column.setContentsMargins(14, 14, 14, 12)
        column.addWidget(table, 1)
        column.addLayout(foot)
        self.resize(self._size().boundedTo(parent.size()))

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self.table.model() is not self.model:
            QTimer.singleShot(1, self, self._fill)  # 0 would be this turn still

    def _fill(self) -> None:
        """Put the runs into the table, in a turn after it is shown. It has its style and its size then: before, Qt
        would measure every cell again for each of them."""
        table = self.table
        table.setModel(self.model)
        for row in self.model.headings:
            table.setSpan(row, 0, 1, self.model.columnCount())
        table.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Stretch)
        table.horizontalHeader().setSectionResizeMode(0, QHeaderView.ResizeMode.ResizeToContents)
        table.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        table.setCurrentIndex(self.model.index(1, 1))

    def _size(self) -> QSize:
        """Return the size that the whole table needs."""
        high = 34 * len(self.model.rows) + 150
        return QSize(round((260 + 190 * len(self.model.found.members)) * theme.zoom), round(high * theme.zoom))

    def _copy(self) -> None:
        QApplication.clipboard().setText(self.model.text())
        self.copy.setText(COPIED)


def _cell(text: str) -> str:
    """Return a cell for a spreadsheet: on one line, and no formula."""
    text = " ".join(text.split())
    try:
        float(text)
    except ValueError:
        return harmless(text)
    return text  # a number may begin with a sign


def _alike(found: Comparison, place: int) -> str:
    """Return over how many steps the loss of a run equals that of the first run, bit for bit."""
    member = found.members[place]
    if not place:
        return "–"
    if member.differs_at is not None:
        return f"different from step {member.differs_at:,} on"
    return f"the same in all {member.shared_steps:,} shared steps" if member.shared_steps else "no step in common"
