"""The data of a plot as a table to read and to copy. Only visible rows are read, so a long run costs nothing."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QAbstractTableModel, QItemSelection, QModelIndex, QPersistentModelIndex, QSize, Qt, QTimer
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QApplication, QLabel, QPushButton, QTableView, QWidget

from gradstudio.core.history import History
from gradstudio.core.text import plural
from gradstudio.gui.export import plot_figure
from gradstudio.gui.plots.layer_plots import LayerPlot
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.popups import TemporaryDialog
from gradstudio.gui.widgets.rows import in_column, in_row
from gradstudio.session.files import csv_table
from gradstudio.session.record.run import Run

BLOCK = 256  # rows read at once
WIDE = 176  # px of a column: a float with all of its digits
MOST_COPIED = 2_000_000  # cells on the clipboard; more belong in a file
COPIED = "Copied"

Index = QModelIndex | QPersistentModelIndex
Role = Qt.ItemDataRole


@dataclass(frozen=True)
class Rows:
    """A table: the names of its columns, the number of its rows, and `read(start, stop)`, their cells as text."""

    names: tuple[str, ...]
    count: int
    read: Callable[[int, int], list[Sequence[str]]]


def rows_of(plot: StepPlot, run: Run) -> Rows:
    """Return the data that `plot` draws of a run, with full float precision, as in its CSV."""
    history, count = run.history, len(run.history)
    if isinstance(plot, LayerPlot):
        return _steps(history, count, plot.metrics, lambda name, a, b: plot.source.read(name, history, a, b))
    if plot.own_data() is None and plot.shown_metric:
        names = [layer.name for layer in history.layers]
        metric = plot.shown_metric

        def read(start: int, stop: int) -> list[Sequence[str]]:
            layers = [csv_table.floats(layer) for layer in history.layer_metric(metric, start, stop).T]
            return list(zip(_numbers(start, stop), *layers, strict=True))

        return Rows(("step", *names), count, read)
    if plot.own_data() is None and plot.columns:
        return _steps(history, count, plot.columns, history.column)
    content = plot_figure.data(plot, run)
    head, *lines = csv.reader(io.StringIO(content)) if isinstance(content, str) else [["step"]]
    return Rows(tuple(head), len(lines), lambda start, stop: [tuple(line) for line in lines[start:stop]])


def _steps(history: History, count: int, names: tuple[str, ...], column: Callable) -> Rows:
    def read(start: int, stop: int) -> list[Sequence[str]]:
        cells = [csv_table.column(name, column(name, start, stop)) for name in names]
        return list(zip(_numbers(start, stop), *cells, strict=True))

    return Rows(("step", *names), count, read)


def _numbers(start: int, stop: int) -> list[str]:
    return [str(step) for step in range(start, stop)]


class DataModel(QAbstractTableModel):
    """The rows, of which only those near the view are kept."""

    def __init__(self, rows: Rows) -> None:
        super().__init__()
        self.rows = rows
        self._block, self._cells = -1, [()]

    def line(self, row: int) -> Sequence[str]:
        """Return the cells of a row."""
        block = row // BLOCK
        if block != self._block:
            self._cells = self.rows.read(block * BLOCK, min((block + 1) * BLOCK, self.rows.count))
            self._block = block
        return self._cells[row - block * BLOCK]

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 (Qt's own signature)
        return 0 if parent.isValid() else self.rows.count

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(self.rows.names)

    def data(self, index: Index, role: int = Role.DisplayRole) -> object:
        if role == Role.DisplayRole:
            return self.line(index.row())[index.column()]
        if role == Role.TextAlignmentRole:
            return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        return None

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Role.DisplayRole) -> object:
        if role not in (Role.DisplayRole, Role.ToolTipRole) or orientation != Qt.Orientation.Horizontal:
            return None
        return self.rows.names[section]


class DataTable(TemporaryDialog):
    """The table of one plot. Ctrl+C copies the selection, or everything."""

    def __init__(self, parent: QWidget, plot: StepPlot, run: Run) -> None:
        super().__init__(parent, f"Data of “{plot.title}”")
        self.model = DataModel(rows_of(plot, run))
        self.view = QTableView()
        self.view.setModel(self.model)
        self.view.setAccessibleName(f"Data of {plot.title}")
        self.view.verticalHeader().hide()
        self.view.setCornerButtonEnabled(False)
        self.view.horizontalHeader().setDefaultSectionSize(round(WIDE * theme.zoom))
        self.note = QLabel(f"{plural(self.model.rows.count, 'row', 'rows')}; empty where nothing was measured")
        self.note.setProperty("role", "dim")
        self.copy, close = QPushButton("Copy"), QPushButton("Close")
        self.copy.setToolTip("Copies the selected cells, or the whole table, with tabs between them (Ctrl+C)")
        self.copy.clicked.connect(self.copy_cells)
        close.clicked.connect(self.accept)
        QShortcut(QKeySequence(QKeySequence.StandardKey.Copy), self.view, self.copy_cells)
        foot = in_row((self.note, 1), self.copy, close)
        in_column((self.view, 1), foot, of=self)
        self.resize(QSize(min(round((1 + len(self.model.rows.names)) * WIDE * theme.zoom), 900), 520))
        self.view.setFocus()
        if self.model.rows.count:
            self.view.scrollToBottom()  # the latest step is the most interesting

    def text(self) -> str:
        """Return the selected cells, or all of them with the names of the columns."""
        selected: QItemSelection = self.view.selectionModel().selection()
        if selected.isEmpty():
            rows, columns = range(self.model.rows.count), range(len(self.model.rows.names))
        else:
            ranges = [selected.at(place) for place in range(selected.count())]
            rows = range(min(each.top() for each in ranges), max(each.bottom() for each in ranges) + 1)
            columns = range(min(each.left() for each in ranges), max(each.right() for each in ranges) + 1)
        if len(rows) * len(columns) > MOST_COPIED:
            return ""
        lines = [[self.model.rows.names[column] for column in columns]]
        lines += [[self.model.line(row)[column] for column in columns] for row in rows]
        return "\n".join("\t".join(line) for line in lines) + "\n"

    def copy_cells(self) -> None:
        text = self.text()
        if not text:
            self.note.setText("Too large for the clipboard: save these data as a CSV file.")
            return
        QApplication.clipboard().setText(text)
        self.copy.setText(COPIED)
        QTimer.singleShot(1500, self.copy, self._reset)

    def _reset(self) -> None:
        self.copy.setText("Copy")
