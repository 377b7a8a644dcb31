"""The menus and their keys. Every function of the window is here, so that everything can be done from the keyboard."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtGui import QAction, QActionGroup, QKeySequence
from PySide6.QtWidgets import QMenu

from gradstudio.core import presets
from gradstudio.gui import file_dialogs, rewinding, sharing
from gradstudio.gui.knob_panel import COMPARING
from gradstudio.gui.theme import Mode, theme
from gradstudio.gui.twins_dialog import TwinsDialog

if TYPE_CHECKING:
    from gradstudio.gui.window import Window

Keys = QKeySequence.StandardKey | str | None


def build(window: Window) -> None:
    """Fill the window's menu bar and the menus of its buttons."""
    bar = window.menuBar()
    _file(window, bar.addMenu("&File"))
    _edit(window, bar.addMenu("&Edit"))
    _run(window, bar.addMenu("&Run"))
    _view(window, bar.addMenu("&View"))
    fill_presets(window, bar.addMenu("&Presets"))
    _help(window, bar.addMenu("&Help"))
    fill_presets(window, window.top.preset.menu())
    _export(window, window.top.export.menu())


def fill_presets(window: Window, menu: QMenu) -> None:
    """Every preset that can be read, when the menu opens, and what can be done with presets."""

    def fill() -> None:
        menu.clear()
        for path in presets.available():
            try:
                preset = presets.read(path)
            except presets.PresetError as fault:
                action = menu.addAction(f"{path.stem}: cannot be read")
                action.setToolTip(str(fault))
                action.triggered.connect(lambda _=False, text=str(fault): window.message.show_error(text))
                continue
            action = menu.addAction(preset.title)
            action.setToolTip(preset.summary)
            action.setCheckable(True)
            action.setChecked(preset.path == window.simulator.preset.path)
            action.triggered.connect(lambda _=False, path=path: window.open_preset(path))
        menu.addSeparator()
        _add(menu, "Back to the preset's knobs", window.reset_knobs)
        _add(menu, "Open preset…", lambda: file_dialogs.open_preset(window))
        _add(menu, "Save knobs as preset…", lambda: file_dialogs.save_preset(window))
        menu.addSeparator()
        _add(menu, "Copy preset as text", lambda: sharing.copy(window)).setToolTip("The knobs as they are set, as one line to paste into a chat")
        _add(menu, "Open preset from text…", lambda: sharing.ask(window)).setToolTip("A preset that somebody has copied as text")

    menu.setToolTipsVisible(True)
    menu.aboutToShow.connect(fill)
    menu.addAction("Reading presets …")  # some systems hide an empty menu; to read all of them now would delay the first paint


def fill_devices(window: Window, menu: QMenu) -> None:
    """The devices that can train here, when the menu opens; until torch is loaded only those that need no looking."""

    def fill() -> None:
        machine = window.machine
        menu.clear()
        group = QActionGroup(menu)
        for device, name in (("auto", "the first accelerator, or the CPU"), *(machine.devices or (("cpu", "the processor"),))):
            action = _add(menu, f"{device}: {name}", lambda device=device: window.ask("run.device", device))
            action.setCheckable(True)
            action.setChecked(window.simulator.requested.run.device == device)
            group.addAction(action)
        if not machine.ready:
            menu.addAction("Looking for accelerators …").setEnabled(False)
        elif len(machine.devices) == 1:
            menu.addAction("No accelerator was found: training on the CPU").setEnabled(False)

    menu.aboutToShow.connect(fill)
    fill()


def _file(window: Window, menu: QMenu) -> None:
    _add(menu, "Open preset…", lambda: file_dialogs.open_preset(window), QKeySequence.StandardKey.Open)
    _add(menu, "Save knobs as preset…", lambda: file_dialogs.save_preset(window), QKeySequence.StandardKey.Save)
    menu.addSeparator()
    _export(window, menu, keys=True)
    menu.addSeparator()
    _add(menu, "Quit", window.close, QKeySequence.StandardKey.Quit)


def _export(window: Window, menu: QMenu, *, keys: bool = False) -> None:
    _add(menu, "Report (HTML)…", lambda: file_dialogs.export(window, "report.html"), "Ctrl+E" if keys else None)
    _add(menu, "Report (PDF)…", lambda: file_dialogs.export(window, "report.pdf"))
    _add(menu, "Script (train.py)…", lambda: file_dialogs.export(window, "train.py"))
    _add(menu, "Experiment (TOML)…", lambda: file_dialogs.export(window, "experiment.toml"))
    _add(menu, "Measurements (CSV)…", lambda: file_dialogs.export(window, "metrics.csv"))
    _add(menu, "TensorBoard (folder)…", lambda: file_dialogs.export_events(window))


def _edit(window: Window, menu: QMenu) -> None:
    undo = _add(menu, "Take the last knob change back", window.undo, QKeySequence.StandardKey.Undo)
    undo.setToolTip("One that has not acted yet, as on a run that stands, leaves no trace")
    _add(menu, "Back to the preset's knobs", window.reset_knobs)
    menu.setToolTipsVisible(True)


def _run(window: Window, menu: QMenu) -> None:
    _add(menu, "Run or pause (Space)", window.toggle, "F5")
    _add(menu, "Step", window.step, "F10")
    _add(menu, "Restart", window.restart, "Ctrl+R")
    _add(menu, "Stop", window.stop, "Ctrl+.")
    menu.addSeparator()
    _add(menu, "Go back to a step…", lambda: rewinding.ask_step(window), "Ctrl+G")
    _add(menu, "Go back to the last healthy step", window.rewind_to_health, "Ctrl+Shift+G")
    _add(menu, "Skip the next batches…", lambda: rewinding.ask_skip(window)).setToolTip("As one does after a loss spike: first go back to before it")
    rewinding.fill_budgets(window, menu.addMenu("Memory for going back"))
    menu.addSeparator()
    twins = _add(menu, "Start twins…", lambda: TwinsDialog(window).open(), "Ctrl+T")
    twins.setToolTip("Two runs from the same seed and batches that differ in one knob, step by step beside each other")
    _add(menu, "Compare with the large batch", window.compare, "Ctrl+B").setToolTip(COMPARING)
    menu.setToolTipsVisible(True)
    menu.addSeparator()
    _add(menu, "Slower", lambda: window.top.speed.setValue(window.top.speed.value() - 50), "Ctrl+Down")
    _add(menu, "Faster", lambda: window.top.speed.setValue(window.top.speed.value() + 50), "Ctrl+Up")
    menu.addSeparator()
    fill_devices(window, menu.addMenu("Device"))
    fill_devices(window, window.top.device.menu())


def _view(window: Window, menu: QMenu) -> None:
    _add(menu, "Whole run", lambda: window.plots.fit(), "Home")
    menu.addSeparator()
    group = QActionGroup(menu)
    modes: tuple[tuple[str, Mode], ...] = (("Light or dark as the system", "system"), ("Light", "light"), ("Dark", "dark"))
    for text, mode in modes:
        action = _add(menu, text, lambda mode=mode: theme.set_mode(mode))
        action.setCheckable(True)
        action.setChecked(theme.mode == mode)
        group.addAction(action)
    menu.addSeparator()
    _add(menu, "Larger text", lambda: theme.set_zoom(theme.zoom * 1.1), QKeySequence.StandardKey.ZoomIn)
    _add(menu, "Smaller text", lambda: theme.set_zoom(theme.zoom / 1.1), QKeySequence.StandardKey.ZoomOut)
    _add(menu, "Normal text", lambda: theme.set_zoom(1.0), "Ctrl+0")
    menu.addSeparator()
    _add(menu, "Find a knob", window.find_knob, QKeySequence.StandardKey.Find)
    _add(menu, "Knobs", window.sides.toggle_knobs, "Ctrl+1")
    _add(menu, "Words and lesson", lambda: window.sides.toggle_page("words"), "Ctrl+2")
    _add(menu, "Code", lambda: window.sides.toggle_page("code"), "Ctrl+3")
    _add(menu, "Runs", lambda: window.sides.toggle_page("runs"), "Ctrl+4")
    _add(menu, "Branches", lambda: window.sides.toggle_page("branches"), "Ctrl+5")
    _add(menu, "Gauges", lambda: window.sides.toggle_page("gauges"), "Ctrl+6")
    _add(menu, "Full screen", window.toggle_full_screen, "F11")
    _add(menu, "Reset layout", window.sides.reset)


def _help(window: Window, menu: QMenu) -> None:
    _add(menu, "Keys and gestures", window.show_keys, QKeySequence.StandardKey.HelpContents)
    _add(menu, "About GradStudio", window.show_about)


def _add(menu: QMenu, text: str, call: Callable[[], object], keys: Keys = None) -> QAction:
    action = menu.addAction(text)
    if keys is not None:
        action.setShortcut(QKeySequence(keys))
    action.triggered.connect(lambda _=False: call())
    return action
