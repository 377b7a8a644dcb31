"""A fault of the program in spite of all: told in one line, written down, counted; the window goes on."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QLoggingCategory, QTimer, qInstallMessageHandler, qWarning
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from waiting import LONG, PATIENCE, join, until

from gradstudio.core import files
from gradstudio.gui.services import fault_reports
from gradstudio.gui.services.fault_reports import FaultReports
from gradstudio.gui.services.message_bar import MessageBar
from gradstudio.session.machine import own_files


class Faulty:
    """A place of the program that fails."""

    def __init__(self, tmp_path: Path, qtbot: QtBot) -> None:
        self.message = MessageBar()
        qtbot.addWidget(self.message)
        self.path = tmp_path / "folder" / "gradstudio.log"
        self.ready = True
        self.reports = FaultReports(self.message, self.message, self.path, ready=lambda: self.ready)
        self.reports.install()

    def raised(self, fault: BaseException) -> None:
        """Come about as in a slot."""
        try:
            raise fault
        except BaseException as caught:
            sys.excepthook(type(caught), caught, caught.__traceback__)

    @property
    def told(self) -> str:
        self.reports._tell()
        return self.message.message

    @property
    def logged(self) -> str:
        return self.path.read_text()


@pytest.fixture
def faulty(tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    monkeypatch.setattr(fault_reports, "WRITTEN_WITHIN", PATIENCE)  # tests read the log at once
    made = Faulty(tmp_path, qtbot)
    yield made
    made.reports.remove()


def test_a_slot_that_raises(qtbot: QtBot, faulty: Faulty, capfd: pytest.CaptureFixture[str]) -> None:
    def slot() -> None:
        raise IndexError("no such layer")

    QTimer.singleShot(0, slot)
    qtbot.waitUntil(lambda: bool(faulty.message.message), timeout=LONG)
    assert "IndexError: no such layer" in faulty.message.message and "\n" not in faulty.message.message
    assert faulty.message.message.endswith("The window goes on.") and "test_fault_reports.py" in faulty.message.message
    assert "Traceback" in capfd.readouterr().err
    faulty.message.copy.click()
    copied = QApplication.clipboard().text()
    assert "Traceback" in copied and "Python 3" in copied and "torch" in copied and str(faulty.path) in copied
    assert "IndexError: no such layer" in copied.partition("Log: ")[2]
    assert "Traceback" in faulty.logged and "GradStudio" in faulty.logged


def test_a_thousand_times_the_same(faulty: Faulty) -> None:
    for count in range(1, 1001):
        faulty.raised(ValueError(f"step {count}"))
        if count == 7:
            assert faulty.told.endswith("(7 times)")
    assert faulty.told.endswith("(1,000 times)") and len(faulty.told) <= fault_reports.LONGEST_LINE
    assert faulty.logged.count("Traceback") == 1 and faulty.logged.count(" times: ") == 3
    assert len(faulty.logged) < 5000


def test_a_line_that_was_closed_does_not_come_back_at_once(faulty: Faulty) -> None:
    faulty.raised(ValueError("no"))
    assert faulty.told
    faulty.message.hide()
    faulty.raised(ValueError("no"))
    assert not faulty.told
    faulty.message.show_news("Written: here")
    faulty.raised(ValueError("no"))
    assert faulty.told == "Written: here"
    for _ in range(7):
        faulty.raised(ValueError("no"))
    assert faulty.told.endswith("(10 times)")


def test_a_warning_of_qt(faulty: Faulty, capfd: pytest.CaptureFixture[str]) -> None:
    for width in range(50):
        qWarning(f"QWidget: negative width -{width}")
    assert faulty.told == "Qt warns: QWidget: negative width -0 (50 times)"
    assert capfd.readouterr().err.count("negative width") == 50


def test_what_a_desktop_cannot_do_is_only_written_down(faulty: Faulty) -> None:
    from PySide6.QtCore import qCWarning

    qCWarning(QLoggingCategory("qt.qpa.wayland"), "no activation")
    assert not faulty.told and "no activation" in faulty.logged


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_thread_and_a_destructor(faulty: Faulty) -> None:
    class Left:
        def __del__(self) -> None:
            raise KeyError("gone")

    def run() -> None:
        raise OSError("no disk")

    thread = threading.Thread(target=run, name="file a.html")
    thread.start()
    join(thread)
    told = faulty.told
    assert "The thread “file a.html”" in told and "OSError: no disk" in told
    left = Left()
    del left
    assert "KeyError: 'gone'" in faulty.told


class Hostile(Exception):
    """A fault that fails again when it is told."""

    def __str__(self) -> str:
        raise Hostile


def test_a_fault_in_the_handler_ends_there(faulty: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty.raised(Hostile())
    assert "Hostile" in faulty.told

    def again(*_: object) -> None:
        qWarning("from inside")
        faulty.raised(ValueError("inside"))
        raise ValueError("inside")

    monkeypatch.setattr(faulty.reports.log, "write", again)
    faulty.raised(TypeError("outside"))
    faulty.raised(TypeError("outside"))
    assert "inside" not in "".join(fault.line for fault in faulty.reports._faults.values())


def _folder(path: Path) -> None:
    path.mkdir(parents=True)


def _pipe(path: Path) -> None:
    path.parent.mkdir()
    os.mkfifo(path)


def _full(path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to("/dev/full")


def _no_folder(path: Path) -> None:
    path.parent.write_text("a file")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes and full devices have other names there")
@pytest.mark.parametrize("make", [_folder, _pipe, _full, _no_folder])
def test_a_log_that_cannot_be_written(faulty: Faulty, make: Callable[[Path], None]) -> None:
    make(faulty.path)
    for count in range(20):
        faulty.raised(ValueError(f"step {count}"))
    assert faulty.told.endswith("(20 times)")
    assert "ValueError: step 0" in faulty.message._details


def test_a_disk_that_is_full(faulty: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, text: str) -> None: ...

        def flush(self) -> None:
            raise OSError(28, "No space left on device")

        def seek(self, *_: int) -> None: ...

        def tell(self) -> int:
            return 0

        def close(self) -> None:
            self.flush()

    monkeypatch.setattr(faulty.reports.log._handler, "_open", Full)
    for kind in (ValueError, TypeError, KeyError):
        faulty.raised(kind("no"))
        assert kind.__name__ in faulty.told


def test_a_disk_that_hangs_holds_up_nobody_and_keeps_the_order(faulty: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_reports, "WRITTEN_WITHIN", 0.0)
    disk, log = threading.Event(), faulty.reports.log
    put = log._append

    def slow(text: str) -> None:
        disk.wait(PATIENCE)
        put(text)

    monkeypatch.setattr(log, "_append", slow)
    faulty.raised(ValueError("first"))
    faulty.raised(TypeError("second"))
    assert "second" in faulty.told and not faulty.path.exists()
    disk.set()
    until(lambda: faulty.path.exists() and "TypeError: second" in faulty.logged)
    assert faulty.logged.index("ValueError: first") < faulty.logged.index("TypeError: second")
    until(lambda: all(thread.name != "writing the log" for thread in threading.enumerate()))


def test_the_log_is_rotated(faulty: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_reports, "KINDS", 10**6)
    for number in range(250):
        faulty.reports._note(number, lambda: ("a line", "x" * 15_000), True)
    kept = sorted(faulty.path.parent.iterdir())
    assert len(kept) == fault_reports.LOG_FILES
    assert all(path.stat().st_size <= fault_reports.LOG_BYTES for path in kept)


def test_very_many_and_very_long_faults(faulty: Faulty) -> None:
    for number in range(1000):
        faulty.reports._note(number, lambda: ("\x1b[2J" + "x" * 10**5, "y" * 10**6), True)
    assert len(faulty.reports._faults) == fault_reports.KINDS + 1
    assert len(faulty.told) <= fault_reports.LONGEST_LINE and faulty.path.stat().st_size <= fault_reports.LOG_BYTES
    assert "\x1b" not in faulty.told and len(faulty.reports._details(faulty.reports._faults[0])) < 30_000


def test_a_fault_with_a_very_long_text(faulty: Faulty) -> None:
    faulty.raised(ValueError("\x1b[2J<b>" * 10**4))
    assert "\x1b" not in faulty.told and "ValueError" in faulty.told and len(faulty.told) <= fault_reports.LONGEST_LINE


def test_hooks_are_given_back(tmp_path: Path, qtbot: QtBot) -> None:
    before = (sys.excepthook, threading.excepthook, sys.unraisablehook)
    Faulty(tmp_path, qtbot).reports.remove()
    assert (sys.excepthook, threading.excepthook, sys.unraisablehook) == before
    assert qInstallMessageHandler(None) is None


def test_the_doctor_names_the_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRADSTUDIO_LIBRARY", str(tmp_path / "runs.sqlite3"))
    assert files.user_log() == tmp_path / "gradstudio.log"
    (check,) = own_files.log()
    assert str(files.user_log()) in check.text and "not there yet" in check.text
    files.user_log().write_text("x")
    assert "not there yet" not in own_files.log()[0].text
