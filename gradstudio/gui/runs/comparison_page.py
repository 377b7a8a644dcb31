"""Runs compared on a large page: their curves, and a table with a column for each run, and a row for each differing
knob and for each figure."""

from __future__ import annotations

import time
from collections.abc import Sequence

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, QRect, Qt, QTimer
from PySide6.QtGui import QFont, QFontMetrics, QKeySequence, QResizeEvent, QShortcut, QShowEvent
from PySide6.QtWidgets import QApplication, QHeaderView, QPushButton, QTableView, QWidget

from gradstudio.gui.drawing.overlay import LETTERS, color, sample
from gradstudio.gui.runs.comparison_curves import ComparisonCurves
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.roles import role_label
from gradstudio.gui.widgets.rows import in_column, in_row
from gradstudio.session.files.comparison import Comparison
from gradstudio.session.files.csv_table import harmless
from gradstudio.session.record.run import Run
from gradstudio.session.words import run_texts
from gradstudio.session.words.outcome_words import OUTCOMES

Index = QModelIndex | QPersistentModelIndex
Role = Qt.ItemDataRole
COPIED = "Copied"
NARROWEST = 110  # px of a run's column, at least
HEAD = Qt.AlignmentFlag(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextWordWrap.value)
LONGEST = 44  # letters of a title in the head
AROUND_TITLE, MOST_LINES = 56, 4  # px beside a title in the head, and its lines at most

_SECTIONS = ("KNOBS THAT DIFFER", "WHAT CAME OF IT", "WHERE IT RAN")
_ROLES = {  # of a cell; Qt queries others as often
    Role.DisplayRole, Role.ToolTipRole, Role.FontRole, Role.ForegroundRole, Role.AccessibleTextRole,
}  # fmt: skip
_SAME = "no knob: their experiments are the same"


class ComparisonTable(QAbstractTableModel):
    """The table of a comparison. `places` has the slot of each run over the plots, or None; `drawn` the slot that
    determines its colour and dash."""

    def __init__(
        self, comparison: Comparison, places: Sequence[int | None], drawn: Sequence[int | None] | None = None
    ) -> None:
        super().__init__()
        self.found = comparison
        self._places = places if drawn is None else drawn
        self._names = [
            member.title if place is None else f"{LETTERS[place]}  {member.title}"
            for member, place in zip(comparison.members, places, strict=True)
        ]
        knobs = [(setting.knob, setting.texts()) for setting in comparison.settings] or [(_SAME, [])]
        figures = [
            ("began", [run_texts.when(member.started, time.time()) for member in comparison.members]),
            *comparison.figure_texts(),
        ]
        figures.append(
            ("loss as the first run's", [_alike(comparison, place) for place in range(len(comparison.members))])
        )
        around = [(name, list(values)) for name, values in comparison.surroundings.items()]
        self.rows: list[tuple[str, list[str], bool]] = []  # label, cells, whether it is a heading
        for title, rows in zip(_SECTIONS, (knobs, figures, around), strict=True):
            if rows:
                self.rows.append((title, [], True))
                self.rows += [(label, cells, False) for label, cells in rows]

    @property
    def headings(self) -> list[int]:
        return [row for row, (_, _, heading) in enumerate(self.rows) if heading]

    def text(self) -> str:
        """Return the table as tab-separated lines, for a spreadsheet or a chat."""
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
            tones = (tone for key, (word, tone) in OUTCOMES.items() if text in (key, word))
            return theme.color(next(tones, "text"))
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
            return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
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


class ComparisonPage(QWidget):
    """`places`: slot of each run over the plots, or None. Each run has a slot in the picture all the same."""

    def __init__(self, comparison: Comparison, runs: Sequence[Run], places: Sequence[int | None]) -> None:
        super().__init__()
        free = iter([place for place in range(len(LETTERS)) if place not in places])
        self.drawn = [next(free) if place is None else place for place in places]
        self.model, self.table = ComparisonTable(comparison, places, self.drawn), QTableView()
        self.curves = ComparisonCurves(runs, self.drawn)
        self._prepare(self.table)
        self.copy = QPushButton("Copy as text")
        self.copy.setToolTip("Copies the table with tabs between its cells, for a spreadsheet (Ctrl+C)")
        self.copy.clicked.connect(self._copy)
        QShortcut(QKeySequence(QKeySequence.StandardKey.Copy), self, self._copy).setContext(
            Qt.ShortcutContext.WidgetWithChildrenShortcut
        )
        foot = in_row((role_label("Every run is compared with the first. × marks a NaN or Inf.", "dim"), 1), self.copy)
        in_column(self.curves, (self.table, 1), foot, of=self, margins=(12, 4, 12, 10))
        self.setFocusProxy(self.table)
        theme.apply_style(self, self._fit_head)

    @staticmethod
    def _prepare(table: QTableView) -> None:
        table.setObjectName("table")
        table.setAccessibleName("Comparison")
        table.setAccessibleDescription("A row for each knob that differs and each figure, a column for each run")
        table.setShowGrid(False)
        table.setWordWrap(True)
        table.setTextElideMode(Qt.TextElideMode.ElideRight)
        table.setTabKeyNavigation(False)
        table.verticalHeader().hide()
        table.horizontalHeader().setHighlightSections(False)
        table.horizontalHeader().setDefaultAlignment(HEAD)
        table.horizontalHeader().setMinimumSectionSize(NARROWEST)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self.table.model() is not self.model:
            QTimer.singleShot(1, self, self._fill)  # 0 would still be this turn

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        QTimer.singleShot(0, self, self._fit_head)

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
        self._fit_head()

    def _fit_head(self) -> None:
        """Give the head the height that the longest title needs in its column."""
        header = self.table.horizontalHeader()
        metrics, most = QFontMetrics(theme.font(1.0, QFont.Weight.DemiBold)), 0
        for section in range(1, header.count()):
            title = str(self.model.headerData(section, Qt.Orientation.Horizontal) or "")
            room = QRect(0, 0, max(header.sectionSize(section) - AROUND_TITLE, 30), 1000)
            most = max(most, metrics.boundingRect(room, Qt.TextFlag.TextWordWrap, title).height())
        header.setMinimumHeight(min(most, MOST_LINES * metrics.lineSpacing()) + 16)

    def _copy(self) -> None:
        QApplication.clipboard().setText(self.model.text())
        self.copy.setText(COPIED)


def _cell(text: str) -> str:
    """Return a cell for a spreadsheet: on one line, and not a formula."""
    text = " ".join(text.split())
    try:
        float(text)
    except ValueError:
        return harmless(text)
    return text  # a number may begin with a sign


def _alike(comparison: Comparison, place: int) -> str:
    """Return over how many steps the loss of a run equals that of the first run, bit for bit."""
    member = comparison.members[place]
    if not place:
        return "–"
    if member.differs_at is not None:
        return f"different from step {member.differs_at:,} on"
    return f"the same in all {member.shared_steps:,} shared steps" if member.shared_steps else "no step in common"
