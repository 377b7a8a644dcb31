"""The operations of a fatal step as a table, in the order in which they were called."""

from __future__ import annotations

from html import escape

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt, Signal
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QTableView

from gradstudio.gui.theme import theme
from gradstudio.session.files.crash_answers import COLUMNS, StepOperation, cells

Index = QModelIndex | QPersistentModelIndex
Role = Qt.ItemDataRole
MARK = "✗"  # of the operation in which the first NaN or Inf was born
WIDEST = 200  # px of the names at normal text
NUMBERS = (2, 3, 4, 5)  # right-aligned columns


class OperationsModel(QAbstractTableModel):
    def __init__(self, rows: list[StepOperation], birth: int) -> None:
        """`birth` is the row in which the first NaN or Inf was born, -1 without one."""
        super().__init__()
        self.rows, self.birth = rows, birth
        self._cells = [cells(each) for each in rows]
        self._bold = theme.font(weight=QFont.Weight.DemiBold)

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 (Qt's own signature)
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(COLUMNS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Role.DisplayRole) -> object:
        if orientation == Qt.Orientation.Horizontal and role == Role.DisplayRole:
            return COLUMNS[section]
        return None

    def data(self, index: Index, role: int = Role.DisplayRole) -> object:
        row, column = index.row(), index.column()
        match role:
            case Role.DisplayRole:
                return f"{MARK} " * (row == self.birth and column == 0) + self._cells[row][column]
            case Role.FontRole if row == self.birth:
                return self._bold
            case Role.ToolTipRole:
                return f"<qt>{escape(self._cells[row][column])}</qt>" if self._cells[row][column] else None
            case Role.TextAlignmentRole if column in NUMBERS:
                return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            case Role.ForegroundRole:
                if row == self.birth:
                    return theme.color("bad")
                return theme.color("warning" if self.rows[row].entries.share else "text")
        return None


class OperationsTable(QTableView):
    chosen = Signal(int)  # the current row

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("table")
        self.setAccessibleName("Operations of the step")
        self.setAccessibleDescription("A row for each call, in the order in which they were made")
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setSelectionBehavior(QTableView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QTableView.SelectionMode.SingleSelection)
        self.setTabKeyNavigation(False)
        self.verticalHeader().hide()
        self.horizontalHeader().setHighlightSections(False)
        self.horizontalHeader().setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        self.shown: OperationsModel | None = None

    def show_rows(self, rows: list[StepOperation], birth: int) -> None:
        """Show these operations, and scroll to the one in which the first NaN or Inf was born."""
        self.shown = OperationsModel(rows, birth)
        self.setModel(self.shown)
        self.horizontalHeader().setResizeContentsPrecision(200)  # number of rows that are measured
        self.horizontalHeader().setStretchLastSection(True)
        self.resizeColumnsToContents()
        self.setColumnWidth(0, min(self.columnWidth(0), round(WIDEST * theme.zoom)))
        self.selectionModel().currentRowChanged.connect(lambda now, _: self.chosen.emit(now.row()))
        self.setCurrentIndex(self.shown.index(max(birth, 0), 0))
        self.scrollTo(self.currentIndex(), QTableView.ScrollHint.PositionAtCenter)
