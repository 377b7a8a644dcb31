"""Four hazards of this stack, each with a test that would catch it: Qt versions, garbage in the training thread,
OpenMP."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pyqtgraph as pg
import pytest
from PySide6.QtCore import QObject, QPointF, QRectF
from PySide6.QtGui import QColor, QPainter, QPixmap
from pytestqt.qtbot import QtBot
from waiting import ENDLESS, LONG, PATIENCE, join

from gradstudio.gui import heartbeat
from gradstudio.gui.heartbeat import COLLECT_EVERY, Heartbeat
from gradstudio.gui.window import Window


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, timeout=PATIENCE
    )


def test_qt_calls_do_not_lose_references_to_none(qapp: object) -> None:
    """PySide6 6.12.0 takes a reference to None with every call that returns nothing, until Python below 3.12 aborts."""
    pixmap = QPixmap(8, 8)
    painter = QPainter(pixmap)
    calls = (
        lambda: painter.drawLine(0, 0, 1, 1),
        lambda: painter.setPen(QColor("red")),
        lambda: painter.fillRect(QRectF(0, 0, 1, 1), QColor("blue")),
        lambda: painter.translate(QPointF(0, 0)),
        lambda: painter.isActive(),
    )
    kept = [object() for _ in calls]
    for call in calls:
        call()
    before = [sys.getrefcount(value) for value in (None, True, False)]
    for _ in range(300):
        for call in calls:
            call()
    after = [sys.getrefcount(value) for value in (None, True, False)]
    painter.end()
    assert len(kept) == len(calls)
    assert all(now > then - 150 for then, now in zip(before, after, strict=True))


def test_a_plot_can_be_exported_as_svg(qtbot: QtBot, tmp_path: Path) -> None:
    """pyqtgraph 0.14 cannot write SVG with Qt 6.11 and later."""
    from pyqtgraph.exporters import SVGExporter

    plot = pg.PlotWidget()
    qtbot.addWidget(plot)
    plot.plot([1, 2, 3], [1, 4, 2])
    plot.show()
    SVGExporter(plot.plotItem).export(str(tmp_path / "plot.svg"))
    assert "<path" in (tmp_path / "plot.svg").read_text()


def test_garbage_is_collected_on_the_window_s_thread_only(make_window: Callable[..., Window]) -> None:
    window = make_window()
    assert not gc.isenabled()
    window.close()
    assert gc.isenabled()


def test_no_other_thread_collects_while_another_window_is_open(qapp: object) -> None:
    parent = QObject()
    one, other = Heartbeat(lambda: None, parent), Heartbeat(lambda: None, parent)
    one.start()
    other.start()
    other.stop(alone=True)
    assert not gc.isenabled()
    one.stop(alone=True)
    assert gc.isenabled()


class Cycle:
    """Garbage that only the cyclic collector finds, as a closed dialog is."""

    def __init__(self) -> None:
        self.me = self


def test_garbage_is_collected_though_every_beat_fails(qapp: object) -> None:
    parent, gone = QObject(), []

    def fail() -> None:
        raise ValueError

    beating = Heartbeat(fail, parent)
    beating.start()
    weakref.finalize(Cycle(), gone.append, True)
    for _ in range(COLLECT_EVERY):
        with pytest.raises(ValueError):
            beating._beat()
    beating.stop(alone=True)
    assert gone


def test_what_the_window_drops_is_never_destroyed_by_another_thread(
    qtbot: QtBot, make_window: Callable[..., Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A widget that is destroyed outside the GUI thread crashes Qt, and Python collects in whichever thread happens to
    allocate."""
    # the other thread allocates at full speed until the fifth collection, and each is a second away otherwise
    monkeypatch.setattr(heartbeat, "COLLECT_EVERY", COLLECT_EVERY // 6)
    window = make_window(run__steps=ENDLESS)
    window.controls.run_or_pause()
    ended, destroyed_by = threading.Event(), []

    def litter() -> None:
        while not ended.is_set():
            for _ in range(2000):
                Cycle()
            ended.wait(0.001)

    def drop() -> bool:
        """Drop one more: what is dropped while modules are imported is kept until the window closes."""
        weakref.finalize(Cycle(), lambda: destroyed_by.append(threading.current_thread()))
        return True

    other = threading.Thread(target=litter)
    other.start()
    try:
        for _ in range(5):
            before = len(destroyed_by)
            qtbot.waitUntil(lambda before=before: drop() and len(destroyed_by) > before, timeout=LONG)
    finally:
        ended.set()
        join(other)
    assert set(destroyed_by) == {threading.main_thread()}


def test_the_number_of_threads_is_set_before_torch_is_there() -> None:
    code = (
        "import gradstudio.engine, sys; assert 'torch' not in sys.modules; import torch; print(torch.get_num_threads())"
    )
    plain = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "GRADSTUDIO_THREADS")}
    ended = subprocess.run([sys.executable, "-c", code], env=plain, capture_output=True, text=True, timeout=PATIENCE)
    assert ended.stdout.strip() == "1", ended.stderr
    assert python(code, GRADSTUDIO_THREADS="2").stdout.strip() == "2"
    refused = python(code, GRADSTUDIO_THREADS="many")
    assert refused.returncode != 0 and "GRADSTUDIO_THREADS = many is not allowed" in refused.stderr


def test_the_window_is_there_before_torch_and_all_of_it_in_the_main_thread() -> None:
    code = """
import gc, os, shiboken6, sys, threading
from importlib import import_module
from PySide6.QtCore import QObject
gc.disable()
from gradstudio.core import presets
from gradstudio.gui import app
application = app.application()
from gradstudio.gui.window import Window
window = Window(presets.load("rnn-explosion"))
window.show()
application.processEvents()
assert "pyqtgraph" not in sys.modules
loading = threading.Thread(target=import_module, args=("gradstudio.gui.late_imports",))
loading.start()
loading.join()
here = application.thread()
there = [each for each in gc.get_objects() if isinstance(each, QObject) and shiboken6.isValid(each)]
assert all(each.thread() is here for each in there if each is not here)
window.furnish()
assert not {"torch", "matplotlib", "numba"} & set(sys.modules)
application.processEvents()  # by which two seconds may have gone, and a thread draws formulas with matplotlib
assert not {"torch", "numba"} & set(sys.modules)
print("shown", flush=True)
os._exit(0)  # the window is still open: Qt may crash in clearing it away
"""
    done = python(code)
    assert "shown" in done.stdout, done.stderr
