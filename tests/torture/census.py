"""What a process holds, counted by kind: threads, descriptors, Qt objects, plot items, objects of this program, memory.

The difference of two censuses names what is left. Bring the window to rest before each (stage.py)."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import shiboken6
from PySide6.QtCore import QCoreApplication, QEvent, QObject
from PySide6.QtGui import QAction, QPixmapCache
from PySide6.QtWidgets import QApplication, QGraphicsItem, QGraphicsView, QLayout, QMenu, QWidget, QWidgetItem
from torture import stage

from gradstudio.gui.window import Window
from gradstudio.session.footprint.budget import ASKED

ROOM = {  # how many more there may be, and why
    "descriptor runs.sqlite3": (4, "SQLite keeps that of a closed connection for the next one, while others are open"),
    "own session.library.run_entries.Entry": (10**6, "the page Runs lists each run of the library"),
    "own session.words.run_texts.RowTexts": (10**6, "the texts of these rows"),
    "object QPanGesture": (10**6, "Qt makes some for each area that scrolls, and keeps them when that is gone"),
    "plot item QGraphicsPathItem": (200, "a curve keeps its parts for the next run, as many as the longest run had"),
    "plot item QGraphicsSimpleTextItem": (
        120,
        "the line of words over a plot keeps them for the next run, 40 of a kind",
    ),
    "widget QLabel": (40, "six changes have two each; a knob that was essential once keeps the word when it acts"),
    "object QAction": (24, "the menus of recent files and of recent runs grow to ten of each, a line and a last one"),
    **dict.fromkeys(
        ["descriptor pipe", "descriptor pym"], (2, "the first map begins what its processes are made from")
    ),
    **dict.fromkeys(
        ["thread drawing formulas", "thread native"], (1, "the first formula begins the thread that draws the others")
    ),
    "descriptor mime.cache": (1, "Qt opens it at the first file dialog that needs it"),
    "widget QWidget in NoneType": (1, "Qt makes the one that stands for the desktop at first need"),
    "own core.cliff.Landing": (32 * 40, "the cliff keeps its last 32 slices"),
    "own engine.passes.watching.Declaration": (500, "one for each operation of torch that any model has used is kept"),
    **dict.fromkeys(
        [
            f"object {name}"
            for name in ("QObject", "QTextDocument", "QTextFrame", "QTextTable", "QAbstractTextDocumentLayout")
        ],
        (60, "a label keeps the document of the first rich text that it showed"),
    ),
    **dict.fromkeys(
        [f"own core.{name}" for name in ("row.Layer", "events.Event", "events.Change", "provenance.Operation")],
        (500, "a run has many, and the last one may have far more than the one before"),
    ),
    **dict.fromkeys(
        [f"own core.gallery.{name}" for name in ("Gallery", "Card", "Picture", "Curve")],
        (10**6, "the pictures of the gallery are read once, when it is first looked at"),
    ),
    **dict.fromkeys(
        [f"own session.map.{name}" for name in ("outcome.CellResult", "map_plan.Job", "map_plan.Spot")],
        (10**4, "the page Map keeps the map that was made last, which may have far more cells than the one before"),
    ),
}
FONTS = (".ttf", ".otf", ".ttc")  # files that Qt keeps open from the first character on that needs them
OWN = 40  # of other objects of this program: those of the last run and of what shows it, whatever that run was
ENDING = 120.0  # seconds until what should have ended is a fault
GROWN, SPARE = 1.1, 60_000_000  # share and bytes of memory by which two censuses may differ


@dataclass(frozen=True)
class Census:
    """How many there are of each kind, such as ("thread", "training"), and the resident memory."""

    counts: Counter[tuple[str, str]]
    bytes: int

    def total(self, kind: str) -> int:
        return sum(count for (of, _), count in self.counts.items() if of == kind)

    def told(self) -> str:
        kinds = ("thread", "descriptor", "widget", "object", "plot item", "own")
        return ", ".join(f"{self.total(kind)} {kind}s" for kind in kinds) + f", {self.bytes / 1e6:,.0f} MB"


def take(window: QWidget | None = None) -> Census:
    """Count now. `window`: the window that stays."""
    if isinstance(window, Window):
        window.side.show_page("diagnosis")  # the page Memory has a thread and a process while it is in sight
        window.memory.stop()
        stage.wait(lambda: not window.jobs.busy, "the process of footprints ends")
    gc.unfreeze()  # what the window's collector or an earlier census put aside may be garbage by now
    settle()
    gc.unfreeze()  # the heartbeat may have put more aside meanwhile
    counts: Counter[tuple[str, str]] = Counter()
    counts.update(("thread", _kind(thread.name)) for thread in threading.enumerate())
    counts["thread", "native"] = len(os.listdir("/proc/self/task"))
    counts.update(("descriptor", target) for target in _descriptors())
    counts.update(("widget", _described(widget)) for widget in QApplication.allWidgets())
    counts.update(("object", type(each).__name__) for each in _objects(window))
    counts.update(("plot item", name) for name in _plot_items())
    counts.update(("kept item", name) for name in _kept_items())
    counts.update(("own", name) for name in _own_objects())
    return Census(+counts, resident())


def left(before: Census, after: Census) -> list[str]:
    """Return what there is more of than before, by kind."""
    return [
        f"{kind} {name}: {before.counts[kind, name]} to {after.counts[kind, name]}"
        for kind, name in sorted(after.counts - before.counts)
        if after.counts[kind, name] - before.counts[kind, name] > _room(kind, name)
    ]


def _room(kind: str, name: str) -> int:
    return ROOM.get(f"{kind} {name}", (OWN if kind == "own" else 0, ""))[0]


def heavier(before: Census, after: Census) -> list[str]:
    """Return a line where the process takes more memory than before, by more than allocators keep for themselves."""
    if after.bytes <= GROWN * before.bytes + SPARE:
        return []
    return [f"memory: {before.bytes / 1e6:,.0f} to {after.bytes / 1e6:,.0f} MB"]


def settle() -> None:
    """Carry out what was only marked to be deleted, end the process that waits for the next question about memory, and
    collect cycles."""
    ASKED.end()
    for _ in range(3):
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        QApplication.processEvents()
        if not gc.collect():
            break
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)  # of what Qt made for the latest layout


def resident() -> int:
    """Return the bytes of memory that the process has in use, without what Qt and the C allocator could give back."""
    QPixmapCache.clear()
    ctypes.CDLL(None).malloc_trim(0)
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("Linux names it")


def _kind(name: str) -> str:
    """Return a thread's name without the id of the run or the file that it is for."""
    return name.split(" ")[0] if name.startswith(("training ", "file ")) else name.split("-")[0].split(" (")[0]


def _descriptors() -> list[str]:
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:  # the one that read the folder
            continue
        if target.endswith(FONTS) and "matplotlib" not in target:
            continue
        name = Path(target).name if target.startswith("/") else target.split(":")[0]
        found.append("pym" if name.startswith("pym-") else name)  # memory that processes share, named after this one
    return found


def _described(widget: QWidget) -> str:
    name = type(widget).__name__
    if widget.objectName().startswith("qt_"):
        return f"{name} {widget.objectName()}"
    return f"{name} in {type(widget.parent()).__name__}" if name == "QWidget" else name


def _roots(window: QWidget | None) -> list[QObject]:
    app = QApplication.instance()
    assert app is not None
    tops = [widget for widget in QApplication.topLevelWidgets() if shiboken6.isValid(widget)]
    return [app, *({id(each): each for each in (*tops, *([window] if window else []))}.values())]


def _objects(window: QWidget | None) -> list[QObject]:
    """Return the objects that are no widgets, each once: timers, actions, menus, animations, models."""
    found = [each for root in _roots(window) for each in root.findChildren(QObject)]
    once = {id(each): each for each in found}.values()  # a submenu is below its window and a window itself
    return [each for each in once if not isinstance(each, QWidget) or isinstance(each, QMenu | QAction)]


def _plot_items() -> list[str]:
    names = []
    for view in QApplication.allWidgets():
        if isinstance(view, QGraphicsView) and view.scene() is not None:
            names += [type(item).__name__ for item in view.scene().items() if isinstance(item, QGraphicsItem)]
    return names


def _kept_items() -> list[str]:
    """Return the layout of each item that PySide keeps though Qt has deleted it: whatever widget comes to its address
    crashes when it is deleted."""
    names = []
    for layout in (each for widget in QApplication.topLevelWidgets() for each in widget.findChildren(QLayout)):
        kept = sum(isinstance(each, QWidgetItem) for each in gc.get_referents(layout))
        there = sum(each.count() for each in (layout, *layout.findChildren(QLayout)))
        names += [type(layout).__name__] * (kept - there)
    return names


def _own_objects() -> list[str]:
    """Return the class of each object of this program, and each tensor."""
    import torch  # late: the window is opened before torch is loaded

    names = []
    for kind, count in Counter(map(type, gc.get_objects())).items():
        if str(kind.__module__).startswith("gradstudio."):
            names += [f"{kind.__module__.removeprefix('gradstudio.')}.{kind.__name__}"] * count
        if issubclass(kind, torch.Tensor):
            names += ["torch.Tensor"] * count
    gc.freeze()
    return names
