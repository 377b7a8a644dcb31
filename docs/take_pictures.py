"""Takes the pictures of the documentation from the program itself, in fixed states: `make pictures`."""

from __future__ import annotations

import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradstudio.gui.window import Window

FOLDER = Path(__file__).resolve().parent / "pictures"
SIZE = (1440, 900)
PATIENCE = 300.0  # seconds
THEMES = ("light", "dark")


def main() -> int:
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"QT_QPA_PLATFORM": "offscreen", "GRADSTUDIO_LIBRARY": str(Path(home, "runs.sqlite3"))}
        os.environ |= {f"XDG_{name}_HOME": home for name in ("DATA", "CONFIG", "CACHE", "STATE")}
        take()
    return 0


def take() -> None:
    from PySide6.QtWidgets import QApplication

    from gradstudio.core import presets
    from gradstudio.gui import app
    from gradstudio.gui.window import Window

    app.application()
    FOLDER.mkdir(exist_ok=True)
    window = Window(presets.load("rnn-explosion"))
    window.resize(*SIZE)
    window.show()
    window.furnish()
    window.heartbeat.start(settled=False)
    window.machine.look()
    wait(lambda: window.machine.ready)
    window.toggle_gallery()
    wait(lambda: len(window.gallery_page.cards) > 50)
    picture(window, "gallery")
    window.show_plots()
    window.side.show_page("diagnosis")
    window.controls.run_or_pause()
    wait(lambda: window.simulator.run.over)
    picture(window, "diverged")
    window.commands.commands["rewind_to_healthy"].call()
    wait(lambda: window.simulator.run.status == "paused")
    window.simulator.set_speed(math.inf)
    window.simulator.set("clipping.kind", "norm")
    window.controls.run_or_pause()
    wait(lambda: window.simulator.run.over)
    picture(window, "healed")
    window.close()
    QApplication.processEvents()


def picture(window: Window, name: str) -> None:
    """Write what the window shows, in both themes."""
    from gradstudio.gui.theme import theme

    for mode in THEMES:
        theme.set_mode(mode)
        drawn = threading.Event()
        threading.Timer(2.0, drawn.set).start()  # until everything is drawn anew
        wait(drawn.is_set)
        window.grab().save(str(FOLDER / f"{name}-{mode}.png"))


def wait(condition: Callable[[], object]) -> None:
    """Let the window live until the condition holds."""
    from PySide6.QtWidgets import QApplication

    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the window did not come to what was to be taken")
        QApplication.processEvents()
        time.sleep(0.005)


if __name__ == "__main__":
    sys.exit(main())
