"""Opening the app where something is missing: one sentence, exit code 2, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import ENDLESS, PATIENCE

from gradstudio.gui.shell import display_check


def launch(*arguments: str, without: tuple[str, ...] = (), **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("QT_QPA_PLATFORM", "DISPLAY", "WAYLAND_DISPLAY", *without)
    }
    return subprocess.run(
        [sys.executable, "-m", "gradstudio", *arguments],
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def refused(ended: subprocess.CompletedProcess[str]) -> str:
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.count("\n") == 1 and "Traceback" not in ended.stderr and ended.stdout == ""
    return ended.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has displays that may be missing")
class TestDisplay:
    def test_without_one(self) -> None:
        assert "no display" in refused(launch())

    def test_one_that_does_not_answer(self) -> None:
        assert "the display :977 does not answer" in refused(launch(DISPLAY=":977"))

    def test_a_name_that_is_none(self) -> None:
        assert "does not answer" in refused(launch(DISPLAY="nonsense"))


def test_a_platform_that_qt_has_not() -> None:
    assert "nonsense is no platform" in refused(launch(QT_QPA_PLATFORM="nonsense"))


@pytest.mark.parametrize("platform_name", ["xcb", "wayland"])
def test_a_platform_without_its_display(platform_name: str) -> None:
    assert "display" in refused(launch(QT_QPA_PLATFORM=platform_name)).lower()


CLOSE = f"""
import sys
from PySide6.QtCore import QTimer
from waiting import HeldStep
from gradstudio.gui import app, window
held = HeldStep(3)
if "free" in sys.argv:  # it is about the end, and not about the two seconds
    window.CLOSING = window.LAST = {PATIENCE}
class Closing(window.Window):
    def refresh(self, **how):
        super().refresh(**how)
        if self.isVisible() and not self.simulator.has_begun:
            if "held" in sys.argv:
                held.__enter__()
            self.simulator.requested = self.simulator.requested.with_texts(["run.steps={ENDLESS}"])
            self.simulator.run = self.simulator._new_run()
            self.controls.run_or_pause()
        searched = len(self.simulator.run.history) and not self.machine.busy  # Python waits for no search
        at_work = held.reached.is_set() if "held" in sys.argv else searched
        if at_work and not getattr(self, "closing", False):
            self.closing = True
            QTimer.singleShot(0, self.close)
window.Window = Closing
code = app.launch(sys.argv[1])
print("left by itself")
raise SystemExit(code)
"""


# A program that ends in mid-run is also in test_closing_signals.py.
@pytest.mark.parametrize("step", [pytest.param("free", marks=pytest.mark.thorough), "held"])
def test_closing_ends_the_program(step: str, tmp_path: Path) -> None:
    """In mid-run Python ends as always. A step that does not end is left where it is, as nobody can wait for it."""
    preset = tmp_path / "closing.toml"  # without a lesson, whose formulas would be drawn by a thread of their own
    preset.write_text('title = "Closing"\n[model]\nkind = "mlp"\ndepth = 20\nwidth = 64\nactivation = "sigmoid"\n')
    ended = subprocess.run(
        [sys.executable, "-c", CLOSE, str(preset), step],
        env=os.environ | {"QT_QPA_PLATFORM": "offscreen", "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ended.returncode == 0, ended.stderr
    assert ("left by itself" in ended.stdout) == (step == "free")
    assert "Traceback" not in ended.stderr and "Destroyed while" not in ended.stderr


def test_an_unknown_preset() -> None:
    text = refused(launch("--preset", "no-such-thing", QT_QPA_PLATFORM="offscreen"))
    assert "no-such-thing" in text and "rnn-explosion" in text


def test_a_broken_file(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("[clipping\n")
    assert "broken.toml, line 1" in refused(launch("--preset", str(broken), QT_QPA_PLATFORM="offscreen"))


def test_without_pyside(tmp_path: Path) -> None:
    """A package of the same name that is not there to be imported stands in for one that was never installed."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nclass Gone:\n    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('PySide6', 'shiboken6'):\n"
        "            raise ModuleNotFoundError(f\"No module named '{name}'\", name=name)\nsys.meta_path.insert(0, "
        "Gone())\n"
    )
    text = refused(launch(QT_QPA_PLATFORM="offscreen", PYTHONPATH=str(tmp_path)))
    assert "PySide6" in text and "pip install" in text


def test_a_missing_system_library_is_named_with_its_package() -> None:
    fault = ImportError("libEGL.so.1: cannot open shared object file: No such file or directory")
    sentence = display_check.missing_library(fault)
    assert sentence and "libEGL.so.1" in sentence and "libegl1" in sentence
    assert display_check.missing_library(ImportError("cannot import name 'x'")) is None


def test_a_fault_behind_the_first_paint_ends_the_program() -> None:
    code = """
from gradstudio.gui import app, window
def furnishing(self):
    raise RuntimeError("no plots")
window.Window.furnishing = furnishing
raise SystemExit(app.launch())
"""
    environment = os.environ | {"QT_QPA_PLATFORM": "offscreen"}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert ended.returncode == 1 and "RuntimeError: no plots" in ended.stderr


def test_a_window_that_is_closed_at_its_first_paint_ends_the_program() -> None:
    code = """
from PySide6.QtCore import QTimer
from gradstudio.gui import app, window
class Closing(window.Window):
    def showEvent(self, event):
        QTimer.singleShot(0, self.close)
window.Window = Closing
raise SystemExit(app.launch())
"""
    environment = os.environ | {"QT_QPA_PLATFORM": "offscreen"}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (ended.returncode, ended.stderr) == (0, "")
