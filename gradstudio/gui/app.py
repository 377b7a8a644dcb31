"""Opening the app: what must be there is checked, then the window is shown, and the rest of it and torch are loaded behind it."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import traceback
from importlib.util import find_spec
from types import TracebackType

from gradstudio.core import presets
from gradstudio.gui.platform import NoWindow, check, missing_library
from gradstudio.session.torch_library import load_ahead

FIRST_PRESET = "rnn-explosion"


def launch(source: str | None = None) -> int:
    """Open the app with a preset (an id or a file) and stay until it is closed. Gives the exit code: 2 where the request
    was wrong or no window can be opened, said in one line on stderr."""
    try:
        preset = presets.load(source or FIRST_PRESET)
        check()
        from gradstudio.gui.window import Window  # Qt is loaded here

        if find_spec("pyqtgraph") is None:  # which the window needs only once it is seen
            raise ModuleNotFoundError(name="pyqtgraph")
    except (presets.PresetError, NoWindow) as fault:
        return _refuse(str(fault))
    except ModuleNotFoundError as fault:
        return _refuse(f"{fault.name} is not installed, without which there is no window: pip install {_PACKAGES.get(fault.name or '', fault.name)}")
    except ImportError as fault:
        return _refuse(missing_library(fault) or f"Qt cannot be loaded: {fault}")

    from gradstudio.gui.first_paint import after_first_paint
    from gradstudio.gui.theme import theme

    app = application()
    threading.Thread(target=load_ahead, name="linking torch", daemon=True).start()  # on another core than the window is made on
    app.setStyleSheet("")
    window = Window(preset)
    theme.apply()  # once for the whole window: every widget would be dressed anew each time that it is put into another
    sys.excepthook = _hook(window)

    def furnish() -> None:
        window.furnish()
        window.heartbeat.start(settled=False)  # before torch is there
        window.machine.look()

    after_first_paint(window, furnish)
    window.show()
    code = app.exec()
    if window.simulator.busy or not window.furnished:
        # A step that does not end holds the training thread; nothing is left to save, and Python must not wait for it, nor take a window
        # apart that was left half made.
        sys.stdout.flush()
        os._exit(code)
    return code


def application():
    """The QApplication, made and dressed once."""
    from PySide6.QtCore import QSettings
    from PySide6.QtGui import QIcon
    from PySide6.QtWidgets import QApplication

    from gradstudio.core.files import RESOURCES
    from gradstudio.gui.theme import theme

    faulthandler.enable()
    # Qt would fill what is wider than some 60 lines in threads of its own. That is some sixty switches of threads a frame, on the core that
    # the training needs, for rectangles that one thread fills in less time.
    os.environ.setdefault("QT_NO_GUI_THREADPOOL", "1")
    QSettings.setDefaultFormat(QSettings.Format.IniFormat)
    app = QApplication.instance() or QApplication(sys.argv[:1])
    app.setApplicationName("gradstudio")
    app.setOrganizationName("gradstudio")
    app.setApplicationDisplayName("GradStudio")
    app.setDesktopFileName("gradstudio")
    app.setWindowIcon(QIcon(str(RESOURCES / "icons" / "gradstudio.svg")))
    theme.start(app)
    return app


_PACKAGES = {"PySide6": "PySide6-Essentials", "shiboken6": "PySide6-Essentials"}


def _refuse(text: str) -> int:
    print(f"error: {text}", file=sys.stderr)
    return 2


def _hook(window):
    """A fault of the window itself is told in the window, which goes on."""
    from PySide6.QtWidgets import QApplication

    def told(kind: type[BaseException], fault: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            window.close()
            return
        details = "".join(traceback.format_exception(kind, fault, trace))
        print(details, file=sys.stderr)
        if not window.furnished:  # nothing can be told there, and nothing done
            QApplication.exit(1)
            return
        window.message.show_error(f"Something went wrong in the window: {kind.__name__}: {str(fault)[:200]}", details)

    return told
