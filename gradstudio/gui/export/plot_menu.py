"""The menu of a plot: copy or save its figure and its data, and import curves of other programs as overlays."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QActionGroup
from PySide6.QtWidgets import QApplication, QInputDialog, QMenu

from gradstudio.core import files
from gradstudio.core.text import strong
from gradstudio.gui.drawing.overlay import MOST, Overlaid, Overlays
from gradstudio.gui.export import plot_figure
from gradstudio.gui.export.data_table import DataTable
from gradstudio.gui.plots.plot_options import X_AXIS, Option
from gradstudio.gui.plots.plot_stack import PlotStack
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.gui.services import file_choice
from gradstudio.gui.services.context import Context
from gradstudio.gui.services.file_jobs import log_of
from gradstudio.gui.widgets import popups
from gradstudio.session.files.curve_import import Curve
from gradstudio.session.words import run_texts

LARGEST_COPY = 50_000_000  # characters on the clipboard; a larger table has to go to a file
_NAMES = {
    "Loss": "loss",
    "Layers × steps": "layers",
    "Ranks × steps": "ranks",
    "Loss scale · learning rate": "scale",
    "Timeline": "events",
    "Difference of the twins": "difference",
    "Test accuracy · directions": "directions",
    "Policy": "policy",
    "Own figures": "own-figures",
    "Layer: norms": "layer-norms",
    "Layer: update / weight": "layer-updates",
    "Layer: gradient entries": "layer-entries",
    "Layer: zeros, NaN and Inf": "layer-zeros",
}


def attach(context: Context, plots: PlotStack) -> None:
    """Give every plot its menu, for the right button and for the menu keys."""

    def attach_to(plot: object) -> None:
        if not isinstance(plot, StepPlot):
            return
        for widget in (plot, plot.widget):
            widget.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
            widget.customContextMenuRequested.connect(
                lambda place, widget=widget: _open(context, plots, plot, widget.mapToGlobal(place))
            )

    for plot in plots.every:
        attach_to(plot)
    plots.made.connect(attach_to)


def _open(context: Context, plots: PlotStack, plot: StepPlot, place: QPoint) -> None:
    step = plot.step_cursor.step
    menu = popups.context_menu(plot)
    if step is not None and 0 <= step < plots.timeline.reach:
        menu.addAction(f"Rewind to step {step:,}", lambda: context.controls.rewind(step))
        menu.addSeparator()
    if plots.one_alone:
        menu.addAction("Show all plots", plots.show_all)
    elif plot is not plots.timeline:
        menu.addAction("Show alone", lambda: plots.show_alone(plot))
    if plot is not plots.timeline:
        back, forward = plots.steps.can_go
        menu.addAction("Zoom back", plots.zoom_back).setEnabled(back)
        menu.addAction("Zoom forward", plots.zoom_forward).setEnabled(forward)
    fill_options(plot, menu)
    _fill_axis(plots, menu)
    menu.addSeparator()
    fill(context, plots.overlays, plot, menu)
    menu.popup(place)


def fill_options(plot: StepPlot, menu: QMenu) -> None:
    """Add a submenu for each drawing option of the plot."""
    for name, option in plot.chosen.options.items():
        _add_option(menu, option, plot.chosen[name], partial(plot.choose_option, name))


def _fill_axis(plots: PlotStack, menu: QMenu) -> None:
    """Add the choice of the x axis of all plots."""
    _add_option(menu, X_AXIS, "time" if plots.is_over_time else "steps", plots.choose_axis)


def _add_option(menu: QMenu, option: Option, chosen: str, choose: Callable[[str], None]) -> None:
    submenu = menu.addMenu(option.label)
    group = QActionGroup(submenu)
    for value, label in option.choices.items():
        action = submenu.addAction(label, partial(choose, value))
        action.setCheckable(True)
        action.setChecked(value == chosen)
        group.addAction(action)


def fill(context: Context, overlays: Overlays, plot: StepPlot, menu: QMenu) -> None:
    """Add the commands of a plot to its menu."""
    measured = bool(len(context.simulator.run.history))
    menu.addAction("Copy figure", lambda: _copy_figure(context, plot))
    menu.addAction("Save figure as PNG…", lambda: _save(context, plot, "png"))
    menu.addAction("Save figure as SVG…", lambda: _save(context, plot, "svg"))
    menu.addSeparator()
    menu.addAction("Show data as table…", lambda: _show_data(context, plot)).setEnabled(measured)
    menu.addAction("Copy data as CSV", lambda: _copy_data(context, plot)).setEnabled(measured)
    menu.addAction("Save data as CSV…", lambda: _save(context, plot, "csv")).setEnabled(measured)
    if plot.overlay is not None:
        menu.addSeparator()
        menu.addAction("Pin or unpin baseline", context.controls.baseline_asked.emit).setEnabled(measured)
        menu.addAction("Import curve… (CSV or TensorBoard)", lambda: _ask_curve(context, overlays, plot))


def _copy_figure(context: Context, plot: StepPlot) -> None:
    plot.step_cursor.move(None)
    QApplication.clipboard().setImage(plot_figure.image(plot))
    context.message.show_news(f"Copied: the figure “{plot.title}”.")


def _show_data(context: Context, plot: StepPlot) -> None:
    DataTable(context.parent, plot, context.simulator.run).open()


def _copy_data(context: Context, plot: StepPlot) -> None:
    content, history = plot_figure.data(plot, context.simulator.run), context.simulator.run.history
    columns = 1 + len(plot.columns) + (len(history.layers) if plot.shown_metric else 0)
    if callable(content) and 20 * len(history) * columns > LARGEST_COPY:
        context.message.show_error("These data are too large for the clipboard: save them as a file.")
        return
    if callable(content):
        buffer = io.BytesIO()
        content(buffer)
        content = buffer.getvalue()
    text = content if isinstance(content, str) else content.decode()
    QApplication.clipboard().setText(text)
    context.message.show_news(f"Copied: the data of “{plot.title}” as CSV.")


def _save(context: Context, plot: StepPlot, suffix: str) -> None:
    """Ask for a file, then write it in the background. The figure is drawn before the dialog opens."""
    plot.step_cursor.move(None)
    run = context.simulator.run
    content: files.Content
    if suffix == "png":
        drawn = plot_figure.image(plot)
        made = partial(plot_figure.png, drawn)
    else:
        content = plot_figure.svg(plot) if suffix == "svg" else plot_figure.data(plot, run)
        made = partial(_as_it_is, content)
    name = _NAMES.get(plot.title, "gradient-norm")
    file_choice.ask_where(
        context, f"Save {name}.{suffix}", f"{run.preset.id}-{name}.{suffix}", partial(context.files.write, made)
    )


def _as_it_is(content: files.Content) -> files.Content:
    return content


def _ask_curve(context: Context, overlays: Overlays, plot: StepPlot) -> None:
    """Ask for a file, then for one of its curves."""

    def chosen(path: str) -> None:
        file_choice.remember(path)
        import_curve(context, overlays, plot, Path(path))

    dialog = popups.file_dialog(
        context.parent,
        "Import curve",
        file_choice.folder(),
        "Tables and TensorBoard logs (*.csv *.tsv *.txt *tfevents*);;All files (*)",
    )
    dialog.fileSelected.connect(chosen)
    dialog.open()


WHOLE = "All of it, diagnosed as a run"


def import_curve(context: Context, overlays: Overlays, plot: StepPlot, path: Path) -> None:
    """Read a file, then draw its curve over a plot; ask for one if it has several."""
    context.files.read_curves(path, lambda curves: _choose(context, overlays, plot, path, curves))


def _choose(context: Context, overlays: Overlays, plot: StepPlot, path: Path, curves: list[Curve]) -> None:
    if len(curves) == 1:
        _draw_over(context, overlays, plot, path, curves[0])
        return
    names = {curve.name: curve for curve in curves}
    show_all = partial(context.files.read, path, log_of, context.controls.show_stored)
    question = f"Curve of {path.name} to draw over “{plot.title}”"
    dialog = popups.input_dialog(context.parent, "Import curve", question)
    dialog.setOption(QInputDialog.InputDialogOption.UseListViewForComboBoxItems)
    dialog.setComboBoxItems([*names, WHOLE])
    dialog.setTextValue(curves[0].name)  # a list initially has no selection
    dialog.textValueSelected.connect(
        lambda name: show_all() if name == WHOLE else _draw_over(context, overlays, plot, path, names[name])
    )
    dialog.open()


def _draw_over(context: Context, overlays: Overlays, plot: StepPlot, path: Path, curve: Curve) -> None:
    if overlays.full:
        context.message.show_error(f"The plots have room for {MOST} overlays: remove one first.")
        return
    assert plot.overlay is not None
    title = f"{curve.name} ({path.name})"
    tip = f"<p>{strong(run_texts.rich(curve.name))}<br>{run_texts.rich(str(path))}</p>"
    columns = dict.fromkeys(plot.overlay.columns, (curve.steps, curve.values))
    overlays.add(Overlaid(f"{path} {curve.name} {plot.title}", title, tip, columns))
