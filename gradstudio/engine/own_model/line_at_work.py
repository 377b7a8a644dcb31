"""Traces a studio file while it is checked, so that its current line is known even if it ends the process."""

from __future__ import annotations

import sys
import threading
import traceback
from types import FrameType
from typing import Any

from gradstudio.core.check_note import CheckNote

MOST = 2_000_000  # calls and lines that are traced, in about a second: a file that reads much data has more


class LineAtWork:
    """Writes each line of the file into the note as it begins, in every thread, up to a limit."""

    def __init__(self, name: str, note: CheckNote) -> None:
        self._name, self._note, self._left = name, note, MOST

    def follow(self) -> None:
        """Start tracing."""
        threading.settrace(self._enter)
        sys.settrace(self._enter)

    def _enter(self, frame: FrameType, event: str, _argument: Any) -> Any:
        """Trace a call, if it is one of the file's own functions."""
        self._left -= 1
        if self._left < 0:
            return self._give_up()
        if frame.f_code.co_filename != self._name:
            return None
        self._note.line = frame.f_lineno
        return self._step

    def _step(self, frame: FrameType, event: str, _argument: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            return self._give_up()
        if event == "line":
            self._note.line = frame.f_lineno
        elif event == "return":
            self._note.line = line_at_work(self._name, frame.f_back)
        return self._step

    def _give_up(self) -> None:
        self._note.line = 0
        threading.settrace(None)  # pyright: ignore[reportArgumentType] - None is allowed, as for sys.settrace
        sys.settrace(None)


def line_at_work(name: str, frame: FrameType | None) -> int:
    """Return the innermost line of the file that is executing, from a frame on; 0 if there is none."""
    while frame is not None and frame.f_code.co_filename != name:
        frame = frame.f_back
    return frame.f_lineno if frame is not None else 0


def line_of_fault(name: str, fault: BaseException) -> int:
    """Return the innermost line of the file that an exception came through; 0 if there is none."""
    lines = [frame.lineno for frame in traceback.extract_tb(fault.__traceback__) if frame.filename == name]
    return lines[-1] or 0 if lines else 0


def in_words(line: int) -> str:
    """Return ', line 12'; "" if unknown."""
    return f", line {line}" if line else ""
