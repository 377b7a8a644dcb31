"""The entry point of the app: checks requirements, shows the window, and loads its plots and torch behind it."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import sys
import threading
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, NoReturn

from gradstudio.core import files, malloc, presets
from gradstudio.core.system_libraries import FOR_A_WINDOW
from gradstudio.core.text import brief
from gradstudio.core.worker_places import Place
from gradstudio.gui.shell.display_check import NoWindow, check, missing_library
from gradstudio.session.running import interrupts

if TYPE_CHECKING:
    from PySide6.QtWidgets import QApplication

FIRST_PRESET = "rnn-explosion"


def launch(source: str | None = None, place: Place | None = None) -> int:
    """Open the app with a preset (an id or a file), or with the runs of a place, and return the exit code when it is
    closed: 2 if the request was wrong or no window can be opened, with one line on stderr."""
    try:
        preset = presets.load(source or FIRST_PRESET)
        check()
        _load_qt()
    except (presets.PresetError, NoWindow) as fault:
        return _refuse(str(fault))
    except ModuleNotFoundError as fault:
        return _refuse(f"{fault.name} is not installed, without which there is no window: pip install {FOR_A_WINDOW}")
    except ImportError as fault:
        return _refuse(missing_library(fault) or f"Qt cannot be loaded: {fault}")

    from gradstudio.gui import user_settings
    from gradstudio.gui.pyside_internals import create_classes
    from gradstudio.gui.services.closing_signals import ClosingSignals
    from gradstudio.gui.services.fault_reports import FaultReports
    from gradstudio.gui.shell.first_paint import after_first_paint
    from gradstudio.gui.shell.staged_opening import StagedOpening
    from gradstudio.gui.window import Window

    _read_nothing()
    app = application()
    window = Window(preset, gallery=not (source or place) and user_settings.GALLERY_AT_START.get())
    window.machine.begin()
    (reports := FaultReports(window, window.message, files.user_log(), ready=lambda: window.furnished)).install()

    def on_furnished() -> None:
        window.heartbeat.start(settled=False)  # before torch is there
        window.machine.look()
        if place is not None:
            window.controls.place_asked.emit(place)

    def furnish() -> None:
        imports = partial(import_module, "gradstudio.gui.late_imports")
        StagedOpening(window, imports, window.furnishing(), on_furnished, create_classes())

    after_first_paint(window, furnish)
    signals = ClosingSignals(window)
    window.show()
    code = app.exec()
    signals.remove()
    reports.remove()  # Python must not be called when Qt ends
    return code if window.furnished and not _other_threads_run() else _leave_at_once(code)


def _leave_at_once(code: int) -> NoReturn:
    """Exit without Python's own shutdown. A long step holds the training thread, or torch is still being loaded:
    everything is saved, so Python must not wait for it, free what it uses, or delete a half-built window."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # a studio file may have closed it
        sys.stdout.flush()
    os._exit(code)


def _load_qt() -> None:
    """Load Qt and the window. ImportError if anything is missing that it needs, now or after its first paint."""
    from gradstudio.gui.pyside_internals import leave_sources_unread

    leave_sources_unread()

    for name in ("pyqtgraph", "numba", "matplotlib"):
        if find_spec(name) is None:
            raise ModuleNotFoundError(name=name)


def _other_threads_run() -> bool:
    """Return whether a thread is running besides this one and the one that receives signals."""
    return any(
        thread is not threading.current_thread() and thread.name != interrupts.THREAD
        for thread in threading.enumerate()
    )


def application() -> QApplication:
    """Return the QApplication, created and styled once."""
    from PySide6.QtCore import QSettings
    from PySide6.QtGui import QIcon, QPixmap
    from PySide6.QtWidgets import QApplication

    from gradstudio.core.files import RESOURCES
    from gradstudio.gui.theme import theme

    faulthandler.enable()
    malloc.share_arenas()
    # Qt fills areas of more than about 60 lines in its own threads: some sixty thread switches per frame, on the core
    # that the training needs, for rectangles that one thread fills in less time.
    os.environ.setdefault("QT_NO_GUI_THREADPOOL", "1")
    QSettings.setDefaultFormat(QSettings.Format.IniFormat)
    app = QApplication.instance()
    if not isinstance(app, QApplication):
        app = QApplication(sys.argv[:1])
    app.setApplicationName("gradstudio")
    app.setOrganizationName("gradstudio")
    app.setApplicationDisplayName("GradStudio")
    app.setDesktopFileName("gradstudio")
    app.setWindowIcon(QIcon(str(RESOURCES / "icons" / "gradstudio.svg")))
    theme.start(app)
    # Qt links its icon and image readers here: it would wait 0.15 s for each while torch is linked.
    theme.icon("menu")
    QPixmap(str(RESOURCES / "icons" / "menu.svg"))
    return app


def _read_nothing() -> None:
    """Replace stdin by an empty file: a studio file that reads it would wait for the terminal that the window was
    started from."""
    sys.stdin = io.StringIO()
    with contextlib.suppress(OSError), open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)


def _refuse(text: str) -> int:
    print(brief(f"error: {text}"), file=sys.stderr)
    return 2
