"""The window as the program opens it, in a folder of its own that nothing leaves, and how it is brought to rest."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import shiboken6

if TYPE_CHECKING:
    from PySide6.QtCore import QObject
    from PySide6.QtWidgets import QPushButton

    from gradstudio.core.presets import Preset
    from gradstudio.gui.window import Window

Found = TypeVar("Found")
PATIENCE = 600.0  # seconds until what should have ended is a fault
WIDEST = 12_000_000_000  # bytes of addresses, so that a fault does not take the machine with it
LOOKS = 20  # 0.3 s apart, before what is left counts as left
SMALL = {"model.width": 8, "model.depth": 1, "problem.batch_size": 16, "run.steps": 400, "run.device": "cpu"}
_CURVE = "step,loss,grad_norm\n" + "".join(f"{step},{2 / (step + 1)},{step % 7}\n" for step in range(200))
_STRANGE = "step,loss\n0,nan\n1,inf\n2,-inf\n3,1e300\n4000000000,-1e300\n5,\n"


def make_home() -> Path:
    """Make a folder for everything that is written, and enter it."""
    home = Path(tempfile.mkdtemp(prefix="gradstudio-torture-"))
    for folder in ("tmp", "files", "files/one more"):
        (home / folder).mkdir()
    enter(home)
    return home


def enter(home: Path) -> None:
    """Let this process and its children write nothing elsewhere. Before anything imports Qt."""
    os.environ.update(
        {
            "HOME": str(home),
            "QT_QPA_PLATFORM": "offscreen",
            "MPLBACKEND": "agg",
            "GRADSTUDIO_LIBRARY": str(home / "runs.sqlite3"),
            "GRADSTUDIO_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(home / "tmp"),
        }
    )
    tempfile.tempdir = None
    for name in ("DATA", "CONFIG", "CACHE", "STATE"):
        os.environ[f"XDG_{name}_HOME"] = str(home / name.lower())
    os.chdir(home)


def bound_memory() -> None:
    """Let the process have no more addresses than that."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (WIDEST, WIDEST))


def fill(folder: Path) -> list[Path]:
    """Put files into the folder that can be opened, and some that cannot; return them."""
    from gradstudio.core.files import PRESETS

    texts = {
        "curve.csv": _CURVE,
        "strange.csv": _STRANGE,
        "empty.csv": "",
        "not-a-preset.toml": "schema = 1\ntitle = 3\n",
        "empty.toml": "",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    for preset in sorted(PRESETS.glob("*.toml"))[:3]:
        shutil.copy(preset, folder)
    return sorted(folder.glob("*.*"))


def small_preset(**more: object) -> Preset:
    """Return a preset that trains in a moment, with more knobs set, such as model__checkpointing."""
    from gradstudio.core.experiment import Experiment
    from gradstudio.core.presets import LessonStep, Preset

    return Preset(
        id="small",
        title="Small",
        summary="A small one.",
        experiment=Experiment().with_values(SMALL | {name.replace("__", "."): value for name, value in more.items()}),
        lesson=[LessonStep(text="Run", outcome="finished"), LessonStep(text="Clip", knobs=["clipping.kind=norm"])],
    )


def open_window() -> Window:
    """Return a window, whole, with torch loaded."""
    from gradstudio.gui.window import Window

    window = Window(small_preset())
    window.resize(1280, 800)
    window.show()
    window.furnish()
    window.heartbeat.start(settled=False)
    window.machine.look()
    wait(lambda: window.machine.ready, "torch is loaded")
    return window


def open_presets(window: Window, first: int, every: int) -> None:
    """Open one of so many bundled presets after the other until the formulas of their lessons are drawn, then the small
    one."""
    from PySide6.QtWidgets import QApplication

    from gradstudio.core.files import PRESETS

    for preset in sorted(PRESETS.glob("*.toml"))[first::every]:
        window.controls.open_preset(preset.stem)
        window.refresh(whole=True)
        QApplication.processEvents()
    wait(lambda: window.lesson.formulas.is_complete, "the formulas are drawn")
    window.controls.load(small_preset())


def export_report(window: Window) -> None:
    """Write a report of the run, as far as it has come."""
    window.files.export(window.simulator.run, "report.html", "cycle.html")
    wait(lambda: not window.jobs.busy, "the report is written")


def refusal() -> QObject:
    """Return a filter of events that keeps a window open, whoever chooses Quit."""
    from PySide6.QtCore import QEvent, QObject

    class Refusal(QObject):
        def eventFilter(self, watched: QObject, event: QEvent) -> bool:
            if event.type() == QEvent.Type.Close:
                event.ignore()
                return True
            return False

    return Refusal()


def wait(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Let the window live until the condition holds."""
    from PySide6.QtWidgets import QApplication

    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it did not happen: {what}"
        QApplication.processEvents()
        time.sleep(0.002)


def after_a_while(look: Callable[[], Found], enough: Callable[[Found], bool]) -> Found:
    """Look until it is enough, but not for ever; return what was seen last."""
    seen = look()
    for _ in range(LOOKS):
        if enough(seen):
            break
        wait_for(0.3)
        seen = look()
    return seen


def wait_for(seconds: float) -> None:
    """Let the window live so long."""
    end = time.monotonic() + seconds
    wait(lambda: time.monotonic() >= end, "time passes")


def close_dialogs(window: Window) -> None:
    """Close everything that lies over the window."""
    from PySide6.QtWidgets import QApplication

    while (popup := QApplication.activePopupWidget()) is not None:
        popup.close()
    for each in QApplication.topLevelWidgets():
        if each is not window and each.isVisible():
            each.close()


def rest(window: Window) -> None:
    """Bring the window to where it was at first, whatever was done to it, and wait until nothing goes on."""
    from gradstudio.core import files
    from gradstudio.gui.assignment.exercise_page import ExercisePage
    from gradstudio.gui.theme import theme

    close_dialogs(window)
    window.showNormal()
    window.resize(1280, 800)
    theme.set_zoom(1.0)
    theme.set_mode("light")
    window.fixes.stop()
    window.map.stop()
    wait(lambda: not window.map.going, "the map ends")
    window.map.refresh()
    window.game.stop()  # a run that is begun keeps its page, as a worksheet does
    for sheet in window.findChildren(ExercisePage):
        sheet.put_away()
    if window.runs.baseline.run is not None:
        window.runs.baseline.pin()  # which unpins it
    window.columns.reset()
    window.knobs.search.clear()
    window.side.runs.search.clear()
    wait(
        lambda: not window.jobs.busy, "files are read, and runs of the library opened"
    )  # which may draw over the plots
    window.plots.overlays.remove(*window.plots.overlays.slots)
    window.controls.load(small_preset())
    shutil.rmtree(files.user_presets(), ignore_errors=True)
    open_menus(window)
    window.message.hide()
    window.plots.step_cursor.move(None)
    wait(lambda: not window.simulator.busy and not _threads("trying"), "the training threads end")
    wait(lambda: not window.jobs.busy, "files and library are done")
    window.refresh(whole=True)


def _threads(beginning: str) -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(beginning)]


def tour(window: Window) -> None:
    """Make everything once that is made at first use and stays: pages, menus, lists of choices, the 300 modules that torch
    imports for its checkpointing."""
    from PySide6.QtWidgets import QApplication, QComboBox

    from gradstudio.gui.plots.stacked_plots import PARTS
    from gradstudio.gui.shell.pages import PAGES

    for page in PAGES:
        window.columns.show_page(page)
        QApplication.processEvents()
    assert [*window.knobs.rows.values()] and [getattr(window.plots, part) for part in PARTS]
    for combo in window.findChildren(QComboBox):
        combo.view()
    for name in ("directions", "gallery"):
        for _ in range(2):  # shown, and hidden again
            window.commands.commands[name].call()
            QApplication.processEvents()
    wait(lambda: len(window.gallery_page.cards) > 50, "the gallery has its cards")
    for checkpointing in (True, False):
        window.controls.load(small_preset(model__checkpointing=checkpointing))
        window.controls.run_or_pause()
        wait(lambda: len(window.simulator.run.history) > 50, "the run trains")
    window.files.export(window.simulator.run, "report.pdf", "tour.pdf")
    rest(window)


def open_menus(window: Window) -> None:
    """Let each menu list what it lists now."""
    from PySide6.QtWidgets import QMenu

    menus = [*window.menuBar().findChildren(QMenu), *(button.menu() for button in _menu_buttons(window))]
    for menu in menus:
        if shiboken6.isValid(menu):
            menu.aboutToShow.emit()
            menu.aboutToHide.emit()


def _menu_buttons(window: Window) -> tuple[QPushButton, ...]:
    return window.top.preset, window.knobs.device, window.top.export
