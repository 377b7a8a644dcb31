"""Handling of faults of the program itself: an exception in a slot, an event, a timer or a thread, or a warning of Qt.
There should be none. A fault is printed as usual, reported in one line of the message bar with its details to copy, and
written into a log file beside the run library; the window continues.

A fault that repeats is one line with a count: it is written and reported again at 10, 100, 1,000, ... times."""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
import platform
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType

from PySide6.QtCore import (
    QCoreApplication,
    QMessageLogContext,
    QObject,
    QTimer,
    QtMsgType,
    qFormatLogMessage,
    qInstallMessageHandler,
)

from gradstudio import __version__
from gradstudio.core.text import LONGEST_LINE, one_line, shorten
from gradstudio.gui.services.message_bar import MessageBar

LONGEST_DETAILS = 20_000  # letters kept of a traceback: its beginning and its end
LOG_BYTES, LOG_FILES = 1_000_000, 3
KINDS = 200  # faults that are distinguished; any others count as one
TELL_EVERY = 200  # ms
# seconds that the failing code waits for its entry, as a crash may follow; a disk may take longer
WRITTEN_WITHIN = 0.05
RECENT = 20  # entries of the log that are shown with the details

_PACKAGE = str(Path(__file__).resolve().parents[2])
# Limitations of a desktop: they are logged and not reported.
_PLATFORM = ("qt.qpa.", "qt.accessibility.", "This plugin does not support")
_GRAVE = (QtMsgType.QtWarningMsg, QtMsgType.QtCriticalMsg, QtMsgType.QtFatalMsg)


class FaultLog:
    """The log file. A thread writes it, as a disk may take seconds; it exists only while there is something to write.
    If the file cannot be written, only the latest entries are kept, in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recent: deque[str] = deque(maxlen=RECENT)
        self._waiting: deque[tuple[str, threading.Event]] = deque()
        self._lock, self._writes = threading.Lock(), False
        self._handler = _Handler(
            path, maxBytes=LOG_BYTES, backupCount=LOG_FILES - 1, encoding="utf-8", errors="backslashreplace", delay=True
        )
        self._handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))

    def write(self, line: str, details: str = "") -> threading.Event:
        """Add an entry: a line, and its details. Return an event that is set once it is written, or cannot be."""
        self.recent.append(f"{time.strftime('%H:%M:%S')} {line}")
        event = threading.Event()
        with self._lock:
            self._waiting.append((f"{line}\n{details}" if details else line, event))
            if not self._writes:
                threading.Thread(target=self._write, name="writing the log", daemon=True).start()
                self._writes = True
        return event

    def _write(self) -> None:
        """Write the pending entries, in order."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._writes = False
                    return
                text, event = self._waiting.popleft()
            with contextlib.suppress(Exception):  # from a disk: the content was already printed
                self._append(text)
            event.set()

    def _append(self, text: str) -> None:
        if self.path.exists() and not self.path.is_file():
            return  # opening a pipe would wait for its reader
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._handler.handle(logging.makeLogRecord({"msg": text}))
        self._handler.close()  # so that another window can rotate the file; the next entry opens it again


class _Handler(RotatingFileHandler):
    def handleError(self, record: logging.LogRecord) -> None:
        """Continue without the entry: a full disk is no reason to report more."""


@dataclass(eq=False)
class Fault:
    """A fault and how often it occurred."""

    line: str
    details: str
    times: int = 0
    wanted: bool = False  # its line belongs into the message bar, if it is not there yet

    @property
    def text(self) -> str:
        count = f" ({self.times:,} times)" if self.times > 1 else ""
        return shorten(self.line, LONGEST_LINE - len(count)) + count


class FaultReports(QObject):
    """Collects every fault while it is installed. Faults occur on any thread; only the GUI thread reports them."""

    def __init__(self, parent: QObject, message: MessageBar, path: Path, ready: Callable[[], bool]) -> None:
        """`ready`: whether the window can show a message yet; an exception before that ends the program."""
        super().__init__(parent)
        self.log = FaultLog(path)
        self._message, self._ready = message, ready
        self._faults: dict[object, Fault] = {}
        self._latest: Fault | None = None
        self._shown: tuple[Fault, str] | None = None  # the fault that was reported last, and its line then
        self._lock, self._inside = threading.RLock(), threading.local()
        self._before = (sys.excepthook, threading.excepthook, sys.unraisablehook)
        self._timer = QTimer(self, interval=TELL_EVERY)
        self._timer.timeout.connect(self._tell)

    def install(self) -> None:
        """Collect faults from now on."""
        sys.excepthook, threading.excepthook = self._in_slot, self._in_thread
        sys.unraisablehook = self._in_destructor
        qInstallMessageHandler(self._from_qt)
        self._timer.start()

    def remove(self) -> None:
        """Leave faults to Python and Qt again."""
        self._timer.stop()
        sys.excepthook, threading.excepthook, sys.unraisablehook = self._before
        qInstallMessageHandler(None)

    # ---- the hooks

    def _in_slot(self, kind: type[BaseException], fault: BaseException, trace: TracebackType | None) -> None:
        with contextlib.suppress(Exception):
            print("".join(traceback.format_exception(kind, fault, trace)), file=sys.stderr)
        self._note_exception("", fault, trace)
        # Python would keep the frames, with painters and widgets in them, and destroy them at the next fault.
        sys.last_type = sys.last_value = sys.last_traceback = None
        if not self._ready():
            QCoreApplication.exit(1)

    def _in_thread(self, hook: threading.ExceptHookArgs) -> None:
        with contextlib.suppress(Exception):
            self._before[1](hook)
        if hook.exc_value is not None and not isinstance(hook.exc_value, SystemExit):
            name = hook.thread.name if hook.thread else "a thread"
            self._note_exception(f"The thread “{name}”: ", hook.exc_value, hook.exc_traceback)

    def _in_destructor(self, hook: sys.UnraisableHookArgs, /) -> None:
        with contextlib.suppress(Exception):
            self._before[2](hook)
        if hook.exc_value is not None:
            self._note_exception("", hook.exc_value, hook.exc_traceback)

    def _from_qt(self, kind: QtMsgType, context: QMessageLogContext, text: str | None) -> None:
        text = text or ""
        with contextlib.suppress(Exception):
            print(qFormatLogMessage(kind, context, text), file=sys.stderr)
        if kind not in _GRAVE:
            return
        category = str(context.category or "")
        key = "".join(letter for letter in text if not letter.isdigit())[:LONGEST_LINE]
        told = not (category.startswith(_PLATFORM) or text.startswith(_PLATFORM))
        self._note(("Qt", category, key), lambda: (f"Qt warns: {text}", f"{category}: {text}"), told)

    # ---- inside

    def _note_exception(self, where: str, fault: BaseException, trace: TracebackType | None) -> None:
        frames = traceback.extract_tb(trace)
        own = [frame for frame in frames if frame.filename.startswith(_PACKAGE)] or list(frames)
        at = own[-1] if own else None

        def describe() -> tuple[str, str]:
            what = shorten(traceback.format_exception_only(fault)[-1].strip(), LONGEST_LINE // 2)
            place = f"{at.name} in {Path(at.filename).name} failed" if at else "something failed"
            lines = "".join(traceback.format_exception(type(fault), fault, trace))
            return f"{where}{place}: {what}. The window goes on.", lines

        self._note((where, type(fault).__name__, at and (at.filename, at.lineno)), describe, True)

    def _note(self, key: object, describe: Callable[[], tuple[str, str]], told: bool) -> None:
        """Count a fault, and write it down if it is new. A fault in here is ignored, so nothing recurs."""
        if getattr(self._inside, "noting", False):
            return
        self._inside.noting = True
        try:
            with self._lock:
                written = self._count(key, describe, told)
            if written is not None:
                written.wait(WRITTEN_WITHIN)  # without the lock, which the window may be waiting for
        except Exception as fault:  # from a disk, from a text: the fault was already printed
            with contextlib.suppress(Exception):
                print(f"the fault was not noted: {type(fault).__name__}", file=sys.stderr)
        finally:
            self._inside.noting = False

    def _count(self, key: object, describe: Callable[[], tuple[str, str]], told: bool) -> threading.Event | None:
        """Count a fault. Return an event that is set once it is written, if it has to be."""
        key = key if key in self._faults or len(self._faults) < KINDS else None
        fault = self._faults.get(key)
        if fault is None:
            line, details = describe()
            fault = self._faults[key] = Fault(shorten(one_line(line[: 2 * LONGEST_LINE]), LONGEST_LINE), _ends(details))
        fault.times += 1
        is_round = str(fault.times).rstrip("0") == "1"
        if told:
            self._latest = fault
            fault.wanted = fault.wanted or is_round
        if fault.times == 1:
            if len(self._faults) == 1:
                self.log.write(_versions())
            return self.log.write(fault.line, fault.details)
        return self.log.write(f"{fault.times:,} times: {fault.line}") if is_round else None

    def _tell(self) -> None:
        """Update the message bar. A line that the user has closed comes back only at a round count."""
        fault = self._latest
        if fault is None or not self._ready():
            return
        in_sight = self._shown == (fault, self._message.message)
        if not (fault.wanted or in_sight):
            return
        with self._lock:
            text, fault.wanted = fault.text, False
        if text != self._message.message:
            self._message.show_error(text, self._details(fault))
        self._shown = (fault, text)

    def _details(self, fault: Fault) -> str:
        recent = "\n".join(list(self.log.recent))
        return f"{fault.text}\n\n{fault.details}\n{_versions()}\nLog: {self.log.path}\n{recent}\n"


def _ends(details: str) -> str:
    half = LONGEST_DETAILS // 2
    return details if len(details) <= LONGEST_DETAILS else f"{details[:half]}\n…\n{details[-half:]}"


def _versions() -> str:
    versions = [f"GradStudio {__version__}", f"Python {platform.python_version()}"]
    for package in ("PySide6-Essentials", "pyqtgraph", "torch", "numpy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions.append(f"{package} {importlib.metadata.version(package)}")
    return f"{', '.join(versions)}, {platform.platform()}"
