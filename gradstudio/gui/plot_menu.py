"""The menu of a plot: its figure and its data to the clipboard and into files, and curves of other programs drawn over it."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication, QFileDialog, QInputDialog, QMenu

from gradstudio.core import files
from gradstudio.gui import file_dialogs, run_words
from gradstudio.gui.plots import figure
from gradstudio.gui.plots.overlay import MOST, Overlaid
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.session.curves import Curve

if TYPE_CHECKING:
    from gradstudio.gui.window import Window

LARGEST_COPY = 50_000_000  # characters that are put on the clipboard: what is more goes to a file
_NAMES = {
    "Loss": "loss",
    "Layers × steps": "layers",
    "Loss scale · learning rate": "scale",
    "Timeline": "events",
    "Difference of the twins": "difference",
}


def attach(window: Window) -> None:
    """Give every plot its menu, for the right button and for the keys that open one."""
    for plot in window.plots.every:
        for widget in (plot, plot.widget):
            widget.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
            widget.customContextMenuRequested.connect(lambda place, plot=plot, widget=widget: _open(window, plot, widget.mapToGlobal(place)))


def _open(window: Window, plot: StepPlot, place: QPoint) -> None:
    step = plot.step_cursor.step
    menu = QMenu(plot)
    if step is not None and 0 <= step < window.plots.timeline.reach:
        menu.addAction(f"Go back to step {step:,}", lambda: window.rewind(step))
        menu.addSeparator()
    menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    fill(window, plot, menu)
    menu.popup(place)


def fill(window: Window, plot: StepPlot, menu: QMenu) -> None:
    measured = bool(len(window.simulator.run.history))
    menu.addAction("Copy figure", lambda: _copy_figure(window, plot))
    menu.addAction("Save figure as PNG…", lambda: _save(window, plot, "png"))
    menu.addAction("Save figure as SVG…", lambda: _save(window, plot, "svg"))
    menu.addSeparator()
    menu.addAction("Copy data as CSV", lambda: _copy_data(window, plot)).setEnabled(measured)
    menu.addAction("Save data as CSV…", lambda: _save(window, plot, "csv")).setEnabled(measured)
    if plot.overlay is not None:
        menu.addSeparator()
        menu.addAction("Import curve to compare (CSV or TensorBoard)…", lambda: _ask_curve(window, plot))


def _copy_figure(window: Window, plot: StepPlot) -> None:
    plot.step_cursor.move(None)
    QApplication.clipboard().setImage(figure.image(plot))
    window.message.show_news(f"Copied: the figure “{plot.title}”.")


def _copy_data(window: Window, plot: StepPlot) -> None:
    content = figure.data(plot, window.simulator.run)
    if isinstance(content, str):
        text = content
    else:
        steps, columns = len(window.simulator.run.history), len(plot.columns) + (len(window.simulator.run.history.layers) if plot.shown_metric else 0)
        if 20 * steps * (columns + 1) > LARGEST_COPY:
            window.message.show_error("This is too much for the clipboard: save the data as a file.")
            return
        buffer = io.BytesIO()
        content(buffer)
        text = buffer.getvalue().decode()
    QApplication.clipboard().setText(text)
    window.message.show_news(f"Copied: the data of “{plot.title}” as CSV.")


def _save(window: Window, plot: StepPlot, suffix: str) -> None:
    """Ask where, then write it in the background. The figure is as it is when it is asked for."""
    plot.step_cursor.move(None)
    run = window.simulator.run
    content: files.Content
    if suffix == "png":
        drawn = figure.image(plot)
        made = partial(figure.png, drawn)
    else:
        content = figure.svg(plot) if suffix == "svg" else figure.data(plot, run)
        made = partial(_as_it_is, content)
    name = _NAMES.get(plot.title, "gradient-norm")
    file_dialogs.ask_where(window, f"Save {name}.{suffix}", f"{run.preset.id}-{name}.{suffix}", partial(window.errands.write, made))


def _as_it_is(content: files.Content) -> files.Content:
    return content


def _ask_curve(window: Window, plot: StepPlot) -> None:
    """Which file, then which of its curves."""

    def chosen(path: str) -> None:
        file_dialogs.remember(path)
        window.errands.read(Path(path), lambda curves: _choose(window, plot, Path(path), curves))

    dialog = QFileDialog(
        window, "Import curve to compare", file_dialogs.folder(), "Tables and TensorBoard logs (*.csv *.tsv *.txt *tfevents*);;All files (*)"
    )
    dialog.fileSelected.connect(chosen)
    dialog.open()


def _choose(window: Window, plot: StepPlot, path: Path, curves: list[Curve]) -> None:
    if len(curves) == 1:
        _draw_over(window, plot, path, curves[0])
        return
    names = {curve.name: curve for curve in curves}
    dialog = QInputDialog(window)
    dialog.setWindowTitle("Import curve to compare")
    dialog.setLabelText(f"Curve of {path.name}, to be drawn over “{plot.title}”")
    dialog.setOption(QInputDialog.InputDialogOption.UseListViewForComboBoxItems)
    dialog.setComboBoxItems(list(names))
    dialog.textValueSelected.connect(lambda name: _draw_over(window, plot, path, names[name]))
    dialog.open()


def _draw_over(window: Window, plot: StepPlot, path: Path, curve: Curve) -> None:
    overlays = window.plots.overlays
    if overlays.full:
        window.message.show_error(f"{MOST} runs can be drawn over the plots; take one off first.")
        return
    assert plot.overlay is not None
    title = f"{curve.name} ({path.name})"
    tip = f"<p><b>{run_words.lines(curve.name)}</b><br>{run_words.lines(str(path))}</p>"
    overlays.add(Overlaid(f"{path} {curve.name} {plot.title}", title, tip, dict.fromkeys(plot.overlay.columns, (curve.steps, curve.values))))
