"""How long the window's own work holds its event loop, whatever a person does in it while it trains.

The window is open over a library of a thousand runs, and does each thing in turn, with a pause between. Of each turn of
the event loop the processor time of the GUI thread is taken: what other programs and the training take is not in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.startup import with_bytecode
from benchmarks.table import Figure

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

    from gradstudio.core.presets import Preset
    from gradstudio.gui.window import Window
    from gradstudio.session.record.run import Run

RUNS = 1000  # in the library
LONG, LAYERS = 100_000, 40  # steps and layers of the longest of them
MOST = 100.0  # ms
PATIENCE = 60.0  # seconds that an act may take
REST = 0.25  # seconds after each act that still count as its work

Act = tuple[str, str, Callable[[], object], Callable[[], bool]]  # kind, name, what to do, when it is done


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        own = {
            "QT_QPA_PLATFORM": os.environ.get("QT_QPA_PLATFORM", "offscreen"),
            "GRADSTUDIO_THREADS": "1",
            "GRADSTUDIO_LIBRARY": str(Path(folder) / "runs.sqlite3"),
            "XDG_CONFIG_HOME": folder,
            "XDG_DATA_HOME": folder,
        }
        command = [sys.executable, "-m", "benchmarks.stalls"]
        answer = subprocess.run(command, env=own | with_bytecode(), stdout=subprocess.PIPE, check=True, text=True)
    turns: list[tuple[str, str, float]] = json.loads(answer.stdout.splitlines()[-1])
    for kind in dict.fromkeys(kind for kind, _, _ in turns):
        found = [(longest, name) for other, name, longest in turns if other == kind]
        longest, name = max(found)
        yield Figure(
            f"longest turn of the event loop: {kind}", longest, "ms", most=MOST, note=f"{name}; {len(found)} acts"
        )


# ---- what such a process does


class Turns:
    """The longest turn of the event loop since `begin`, in ms of the GUI thread's processor time."""

    def __init__(self) -> None:
        from PySide6.QtCore import QAbstractEventDispatcher

        self.longest, self._last = 0.0, time.thread_time()
        dispatcher = QAbstractEventDispatcher.instance()
        assert dispatcher is not None
        dispatcher.awake.connect(self._turn)

    def begin(self) -> None:
        self.longest, self._last = 0.0, time.thread_time()

    def _turn(self) -> None:
        now = time.thread_time()
        self.longest, self._last = max(self.longest, 1000 * (now - self._last)), now


def _measure() -> list[tuple[str, str, float]]:
    from gradstudio.core import files, presets
    from gradstudio.gui.app import application
    from gradstudio.gui.pyside_internals import create_classes
    from gradstudio.gui.shell.first_paint import after_first_paint
    from gradstudio.gui.shell.staged_opening import StagedOpening
    from gradstudio.gui.window import Window
    from gradstudio.session.running.worker_commands import UNLIMITED

    _fill_library(files.user_library())
    app = application()
    turns, found = Turns(), []

    def carry_out(kind: str, name: str, do: Callable[[], object], done: Callable[[], bool]) -> None:
        from PySide6.QtCore import QTimer

        turns.begin()
        QTimer.singleShot(0, app, do)
        if not _live(REST, done):
            print(f"{kind}: {name} did not end within {PATIENCE:g} s", file=sys.stderr)
        found.append((kind, name, turns.longest))
        if "-v" in sys.argv:
            print(f"{turns.longest:8.1f} ms  {kind}: {name}", file=sys.stderr, flush=True)

    window: Any = Window(presets.load("rnn-explosion"))  # before there is an event loop
    window.resize(1440, 900)

    def open_window() -> None:
        def furnished() -> None:
            window.heartbeat.start(settled=False)
            window.machine.look()

        def furnish() -> None:
            second = window.furnishing()
            StagedOpening(
                window, lambda: import_module("gradstudio.gui.late_imports"), second, furnished, create_classes()
            )

        after_first_paint(window, furnish)
        window.show()

    carry_out("opening the window", "opening", open_window, lambda: window.machine.ready)
    window.controls.set_knob("run.steps", 10_000_000)
    window.controls.set_knob("run.stop_on_nonfinite", False)
    window.simulator.set_speed(UNLIMITED)
    window.controls.run_or_pause()
    _live(3.0, lambda: len(window.simulator.run.history) > 0)
    wanted = sys.argv[1:]
    for kind, name, do, done in _acts(window):
        if not [word for word in wanted if not word.startswith("-")] or any(
            word in f"{kind} {name}" for word in wanted
        ):
            carry_out(kind, name, do, done)
    window.close()
    return found


def _live(seconds: float, done: Callable[[], bool] = lambda: True) -> bool:
    """Let Qt go on until it is done, and for so long after it. Return whether that came in time."""
    from PySide6.QtCore import QEventLoop, QTimer

    loop, timer = QEventLoop(), QTimer()
    last = time.monotonic() + PATIENCE
    end = 0.0

    def look() -> None:
        nonlocal end
        now = time.monotonic()
        if not end and done():
            end = now + seconds
        if now > (end or last):
            loop.quit()

    timer.timeout.connect(look)
    timer.start(20)
    loop.exec()
    timer.stop()
    return bool(end)


def _acts(window: Window) -> Iterator[Act]:
    yield from _theme_acts("in a fresh window")
    yield from _page_acts(window)
    yield from _list_acts(window)
    yield from _plot_acts(window)
    yield from _dialog_acts(window)
    yield from _run_acts(window)
    yield from _export_acts(window)
    yield from _theme_acts("after all this")


def _act(kind: str, name: str, do: Callable[[], object], done: Callable[[], bool] = lambda: True) -> Act:
    return kind, name, do, done


def _theme_acts(when: str) -> Iterator[Act]:
    from gradstudio.gui.theme import theme

    for mode in ("dark", "light", "system", "dark", "light"):
        yield _act(f"theme, {when}", mode, lambda mode=mode: theme.set_mode(mode))
    for zoom in (1.1, 1.21, 1.5, 0.8, 1.0):
        yield _act(f"text size, {when}", f"{zoom:g}", lambda zoom=zoom: theme.set_zoom(zoom))


def _page_acts(window: Window) -> Iterator[Act]:
    from gradstudio.gui.theme import theme

    def both() -> None:
        theme.set_zoom(1.3)
        window.columns.toggle_page("code")

    for again in ("first time", "again"):
        for page in ("branches", "code", "gauges", "runs", "lesson", "memory", "map", "diagnosis"):
            yield _act("pages", f"{page}, {again}", lambda page=page: window.columns.toggle_page(page))
        for page in ("exercise", "gallery"):
            yield _act("pages", f"{page}, {again}", window.commands.commands[page].call)
            yield _act("pages", f"plots after it, {again}", window.show_plots)
    yield _act("pages", "knobs hidden", window.columns.toggle_knobs)
    yield _act("pages", "knobs shown", window.columns.toggle_knobs)
    for words in ("lr", "clip", "zzz", ""):
        yield _act("pages", f"find a knob: {words}", lambda words=words: window.knobs.search.setText(words))
    yield _act("pages", "code in another text size", both)
    yield _act("text size, with the code", "back", lambda: theme.set_zoom(1.0))
    yield _act("theme, with the code", "dark", lambda: theme.set_mode("dark"))
    yield _act("theme, with the code", "light", lambda: theme.set_mode("light"))
    yield _act("theme, with the code", "dark for the other pages", lambda: theme.set_mode("dark"))
    for page in ("branches", "gauges", "runs"):
        yield _act("pages", f"{page}, in another theme", lambda page=page: window.columns.toggle_page(page))
    yield _act("pages", "diagnosis, in another theme", lambda: window.columns.toggle_page("diagnosis"))
    yield _act("pages", "code, in another theme", lambda: window.columns.toggle_page("code"))
    yield _act("theme, with the code", "light again", lambda: theme.set_mode("light"))
    yield _act("pages", "back to diagnosis", lambda: window.columns.toggle_page("diagnosis"))
    for size in ((1280, 720), (1800, 1000), (1080, 620), (1440, 900)):
        yield _act("pages", f"resizing to {size[0]} x {size[1]}", lambda size=size: window.resize(*size))


def _list_acts(window: Window) -> Iterator[Act]:
    panel = window.side.runs
    yield _act("run list", "shown", lambda: window.columns.toggle_page("runs"), lambda: len(panel.model.all) >= RUNS)
    for sort in (1, 2, 3, 0):
        yield _act("run list", f"sort {sort}", lambda sort=sort: panel.sort.setCurrentIndex(sort))
    for words in ("r", "run 7", "nothing has this", ""):
        yield _act("run list", f"find {words!r}", lambda words=words: panel.search.setText(words))
    yield _act("run list", "filter", lambda: panel.outcome.setCurrentIndex(1))
    yield _act("run list", "no filter", lambda: panel.outcome.setCurrentIndex(0))
    yield _act("run list", "all chosen", panel.list.selectAll)
    yield _act("run list", "none chosen", panel.list.clearSelection)
    for _ in range(3):
        yield _act("run list", "wheel", lambda: _wheel(panel.list.viewport(), -40))
    yield _act("run list", "to the end", lambda: panel.list.scrollToBottom())
    yield _act("run list", "back", lambda: panel.list.scrollToTop())
    first = [panel.model.index(row).data(panel.model.ROW).id for row in range(5, 11)]
    for run in first:
        yield _act("overlays", "one more run", lambda run=run: window.runs.tick(run, True),
                   lambda run=run: run in window.plots.overlays.slots)  # fmt: skip
    yield _act("overlays", "compared in a table", lambda: window.runs.compare_chosen(first[:6]),
               lambda: window.columns.middle.page is not None)  # fmt: skip
    yield _act("overlays", "comparison closed", window.close_large)
    for run in first:
        yield _act("overlays", "one run less", lambda run=run: window.runs.tick(run, False))
    yield _act("overlays", "the long run", lambda: window.runs.tick("long", True),
               lambda: "long" in window.plots.overlays.slots)  # fmt: skip
    yield _act("overlays", "the long run off", lambda: window.runs.tick("long", False))


def _plot_acts(window: Window) -> Iterator[Act]:
    plots = window.plots
    for plot in plots.plots:
        for turns in (5, 5, 5, -10):
            yield _act("plots", f"wheel over {plot.title}", lambda plot=plot, turns=turns: _wheel(
                plot.widget.viewport(), turns))  # fmt: skip
    for width in (2000, 500, 50):
        yield _act("plots", f"{width} steps", lambda width=width: plots.steps.zoom(10.0, 10.0 + width))
    yield _act("plots", "whole run", plots.fit)
    yield _act("plots", "directions shown", plots.toggle_directions)
    yield _act("plots", "directions hidden", plots.toggle_directions)
    for page in ("network", "cliff", "layers"):
        yield _act("plots", f"the page {page}", lambda page=page: plots.layer_card.show_page(page))
    yield _act("plots", "an earlier step", lambda: plots.looked.look_at(1))
    yield _act("plots", "now", plots.looked.leave)
    for metric in range(plots.layers.choice.count()):
        yield _act("plots", f"metric {metric}", lambda metric=metric: plots.layers.choice.setCurrentIndex(metric))
    yield _act("plots", "first metric", lambda: plots.layers.choice.setCurrentIndex(0))


def _dialog_acts(window: Window) -> Iterator[Act]:
    for again in ("first time", "again"):
        for menu in window.menuBar().actions():
            yield _act("menus", f"{menu.text()}, {again}", lambda menu=menu: window.menuBar().setActiveAction(menu))
            yield _act("menus", f"{menu.text()} closed, {again}", lambda menu=menu: menu.menu().close())
        for command in ("about", "list_keys", "rewind", "skip", "twins", "save_preset", "paste_preset", "open_preset",
                        "export_report.html", "export_train.py"):  # fmt: skip
            yield _act("dialogs", f"{command}, {again}", lambda command=command: window.commands.commands[command].call(),
                       _dialog_open)  # fmt: skip
            yield _act("dialogs", f"{command} closed, {again}", _close_dialogs)


def _run_acts(window: Window) -> Iterator[Act]:
    from gradstudio.core.presets import available

    controls, simulator = window.controls, window.simulator
    for path in available():
        yield _act("presets", path.stem, lambda path=path: controls.open_preset(path))
    yield _act("presets", "run", controls.run_or_pause, lambda: len(simulator.run.history) > 5)
    yield _act("runs", "a knob", lambda: controls.set_knob("optimizer.lr", 0.02))
    yield _act("runs", "restart", controls.restart, lambda: len(simulator.run.history) > 5)
    yield _act("runs", "rewind", lambda: controls.rewind(3), lambda: simulator.run.status == "paused")
    yield _act("runs", "branch", controls.run_or_pause, lambda: len(simulator.run.history) > 5)
    yield _act("runs", "twins", lambda: controls.start_twins("clipping.kind", "norm"),
               lambda: len(simulator.run.history) > 5)  # fmt: skip
    yield _act("runs", "stop", controls.stop, lambda: simulator.run.over)
    for again in ("first time", "again"):
        yield _act("a run of 100,000 steps", f"opened, {again}", lambda: window.runs.open("long"),
                   lambda: simulator.run.id == "long")  # fmt: skip
        yield _act("a run of 100,000 steps", f"wheel, {again}", lambda: _wheel(window.plots.loss.widget.viewport(), 20))
        yield _act("a run of 100,000 steps", f"whole again, {again}", window.plots.fit)
        yield _act("a run of 100,000 steps", f"another metric, {again}",
                   lambda: window.plots.layers.choose("zero_share"))  # fmt: skip
        yield _act("a run of 100,000 steps", f"first metric, {again}",
                   lambda: window.plots.layers.choose("grad_norm"))  # fmt: skip
        yield _act("a run of 100,000 steps", f"rewind, {again}", lambda: controls.rewind(50_000),
                   lambda: simulator.run.id != "long")  # fmt: skip
        yield _act("presets", f"another, {again}", lambda: controls.open_preset("rnn-explosion"))
    yield _act("presets", "training", lambda: _train(window), lambda: len(simulator.run.history) > 5)


def _train(window: Window) -> None:
    for name, value in (("run.steps", 10_000_000), ("run.stop_on_nonfinite", False)):
        window.controls.set_knob(name, value)
    window.controls.restart()


def _export_acts(window: Window) -> Iterator[Act]:
    from gradstudio.core import files

    folder = files.user_cache()
    folder.mkdir(parents=True, exist_ok=True)

    def idle() -> bool:
        return not window.jobs.busy

    for name in ("report.html", "report.pdf", "metrics.csv", "train.py", "experiment.toml"):
        yield _act("export in a thread", name, lambda name=name: window.files.export(
            window.simulator.run, name, str(folder / name)), idle)  # fmt: skip
    yield _act("export in a thread", "TensorBoard", lambda: window.files.export_events(
        window.simulator.run, str(folder)), idle)  # fmt: skip


def _wheel(widget: QWidget, notches: int) -> None:
    """Turn the wheel in the middle of a widget, a notch at a time."""
    from PySide6.QtCore import QPoint, QPointF, Qt
    from PySide6.QtGui import QWheelEvent
    from PySide6.QtWidgets import QApplication

    place = QPointF(widget.rect().center())
    for _ in range(abs(notches)):
        turned = QPoint(0, 120 if notches > 0 else -120)
        event = QWheelEvent(place, widget.mapToGlobal(place), QPoint(), turned, Qt.MouseButton.NoButton,
                            Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False)  # fmt: skip
        QApplication.postEvent(widget, event)


def _dialog_open() -> bool:
    from PySide6.QtWidgets import QApplication, QDialog

    return any(isinstance(widget, QDialog) and widget.isVisible() for widget in QApplication.topLevelWidgets())


def _close_dialogs() -> None:
    from PySide6.QtWidgets import QApplication, QDialog

    for widget in QApplication.topLevelWidgets():
        if isinstance(widget, QDialog) and widget.isVisible():
            widget.close()


def _fill_library(path: Path) -> None:
    """Write a thousand short runs into the library, and a long one."""
    from gradstudio.session.library.writer import LibraryWriter

    writer = LibraryWriter(path)
    random = np.random.default_rng(0)
    now = time.time()
    for number in range(RUNS):
        writer.follow(_run(f"run-{number}", f"Run {number}", int(random.integers(1, 20)), 4, now - 60 * number - 3600))
    writer.follow(_run("long", "A long run", LONG, LAYERS, now - 1e6))
    assert writer.close(300.0), writer.problem


def _run(id: str, title: str, steps: int, layers: int, started: float) -> Run:
    """Return a finished run whose rows are noise."""
    from gradstudio.core.history import COLUMNS, LAYER_METRICS
    from gradstudio.core.row import Layer
    from gradstudio.session.record.run import Run
    from gradstudio.session.record.run_writer import RunWriter

    preset = _preset()
    run = Run(preset.model_copy(update={"title": title}), preset.experiment, id=id, started=started)
    RunWriter(run).begin(tuple(Layer(f"hidden.{index}.weight", "weight", 4096) for index in range(layers)),
                         {"device": "cpu"})  # fmt: skip
    random = np.random.default_rng(steps)
    columns = np.exp(random.standard_normal((steps, len(COLUMNS))))
    columns[:, 0] = np.arange(steps)
    columns[:, list(COLUMNS).index("skipped")] = columns[:, list(COLUMNS).index("nonfinite")] = 0
    columns[:, list(COLUMNS).index("clip_coef")] = 1
    layers_ = np.exp(random.standard_normal((len(LAYER_METRICS), steps, layers), np.float32))
    run.history.extend(columns, layers_)
    RunWriter(run).set_status("finished")
    return run


@cache
def _preset() -> Preset:
    from gradstudio.core import presets

    return presets.load("rnn-explosion")


if __name__ == "__main__":
    print(json.dumps(_measure()), flush=True)
    os._exit(0)
