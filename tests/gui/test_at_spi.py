"""The window as a screen reader gets it: over AT-SPI, on a display and a bus of its own. Skipped where Xvfb, D-Bus,
at-spi2-core or PyGObject are missing (on Debian: xvfb dbus at-spi2-core python3-gi)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import pytest
from waiting import until

WALK = Path(__file__).with_name("at_spi_walk.py")
PYTHON = "/usr/bin/python3"  # Debian's, which has PyGObject
LAUNCHER = next((path for path in map(Path, ("/usr/libexec/at-spi-bus-launcher",
                                             "/usr/lib/at-spi2-core/at-spi-bus-launcher")) if path.exists()), None)  # fmt: skip
PAGES = ("diagnosis", "branches", "code", "runs", "gauges", "memory", "map")
TEXTS = (
    "label",
    "list item",
    "page tab list",
)  # whose name is all that they say; of a row of tabs Qt tells the one chosen
PROGRAM = """
import json, math, sys
from PySide6.QtCore import QSocketNotifier, QTimer
from PySide6.QtWidgets import QApplication
from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.core.text import number
from gradstudio.gui import app
from gradstudio.gui.window import Window
app.application()
knobs = {"model.width": 8, "model.depth": 1, "problem.batch_size": 16, "run.steps": 40, "run.device": "cpu"}
experiment = Experiment().with_values(knobs)
window = Window(Preset(id="small", title="Small", summary="A small one.", experiment=experiment))
window.resize(1280, 720)
window.show()
window.furnish()
window.heartbeat.start()
window.simulator.set_speed(math.inf)
window.controls.run_or_pause()
def answer():
    if not window.simulator.run.over:
        return
    window.refresh(whole=True)
    losses = window.simulator.run.history.column("loss")
    print(json.dumps([f"loss {number(each)} at step" for each in losses[-1:]] + [f"smallest {number(losses.min())}"]), flush=True)
    timer.stop()
    told.setEnabled(True)
def asked():
    page = sys.stdin.readline().strip()
    if not page:
        window.close()
        QApplication.quit()
        return
    window.columns.show_page(page)
    window.refresh(whole=True)
    for plot in window.plots.plots:
        plot.update_accessible_text()
    print(json.dumps(page), flush=True)
timer = QTimer()
timer.timeout.connect(answer)
timer.start(20)
told = QSocketNotifier(0, QSocketNotifier.Type.Read)
told.setEnabled(False)
told.activated.connect(asked)
QApplication.exec()
"""


def is_possible() -> bool:
    if LAUNCHER is None or not shutil.which("Xvfb") or not shutil.which("dbus-daemon") or not Path(PYTHON).exists():
        return False
    asked = subprocess.run([PYTHON, "-c", "from gi.repository import Gio"], capture_output=True, check=False)
    return asked.returncode == 0


def line(stream: IO[str] | None) -> str:
    assert stream is not None
    told = stream.readline().strip()
    assert told, "the process has ended"
    return told


class Asked:
    """A process that answers each line with one of JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def ask(self, question: str) -> list:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{question}\n")
        self.process.stdin.flush()
        return json.loads(line(self.process.stdout))


@pytest.fixture
def program(tmp_path: Path) -> Iterator[tuple[Asked, Asked, list[str]]]:
    """The program on a display of its own, what walks it, and what its plot of the loss is to say."""
    with ExitStack() as stack:

        def start(*command: str, **kwargs: object) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                **kwargs,  # type: ignore[arg-type]
            )
            stack.enter_context(process)  # which closes its pipes and waits
            stack.callback(process.kill)
            return process

        display = start("Xvfb", "-displayfd", "1", "-screen", "0", "1280x800x24", stderr=subprocess.DEVNULL)
        env = os.environ | {"DISPLAY": f":{line(display.stdout)}", "QT_QPA_PLATFORM": "xcb"}
        env |= {f"XDG_{name}_HOME": str(tmp_path) for name in ("DATA", "CONFIG", "CACHE", "STATE")}
        env |= {"GRADSTUDIO_LIBRARY": str(tmp_path / "runs.sqlite3"), "QT_LINUX_ACCESSIBILITY_ALWAYS_ON": "1"}
        env |= {"XDG_RUNTIME_DIR": str(tmp_path), "NO_AT_BRIDGE": "0"}
        bus = start("dbus-daemon", "--session", "--nofork", "--print-address", env=env, stderr=subprocess.DEVNULL)
        env |= {"DBUS_SESSION_BUS_ADDRESS": line(bus.stdout)}
        window = start(sys.executable, "-c", PROGRAM, env=env)
        losses = json.loads(line(window.stdout))
        walk = start(PYTHON, str(WALK), str(window.pid), env=env)
        yield Asked(window), Asked(walk), losses


@pytest.mark.skipif(not is_possible(), reason="needs Xvfb, dbus, at-spi2-core and PyGObject")
def test_a_screen_reader_finds_every_widget_named_and_each_plot_told(
    program: tuple[Asked, Asked, list[str]],
) -> None:
    window, walk, losses = program
    faults, plots = set(), {}
    until(lambda: walk.ask("walk"))  # the bus of screen readers begins when it is first asked
    for page in PAGES:
        assert window.ask(page) == page
        seen = walk.ask("walk")
        assert len(seen) > 30
        for thing in seen:
            told = thing["role"] in TEXTS or thing["description"].strip()
            if not thing["name"].strip() or not told:
                faults.add(f"{page}: {thing['role']} {thing['name']!r}: {thing['description']!r}")
        plots |= {thing["name"]: thing["description"] for thing in seen}
    assert not faults, "\n".join(sorted(faults))
    assert all(loss in plots["Loss"] for loss in losses), plots["Loss"]
    assert "40 steps made, 0 changes" in plots["Timeline"]
