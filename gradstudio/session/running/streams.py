"""The streams of the program while a studio file is trained without a window. Its output goes to stderr, so that stdout
contains only the answer of the command; its input is empty; and it cannot close what the command still needs."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import IO, Any, cast


@contextmanager
def to_stderr(*, own: bool) -> Iterator[None]:
    """Redirect output in this context to stderr; for the user's `own` code, also output that bypasses Python."""
    if not own:
        with redirect_stdout(sys.stderr):
            yield
        return
    before, copies = (sys.stdin, sys.stdout, sys.stderr), [_copy(number) for number in range(3)]
    _flush(before)
    shown = cast("Any", _SharedStream(sys.stderr))
    sys.stdin, sys.stdout, sys.stderr = io.StringIO(), shown, shown
    with open(os.devnull, "rb") as nothing:
        _point(0, nothing.fileno())
    _point(1, 2)
    try:
        yield
    finally:
        _flush((*before, sys.__stdout__, sys.__stderr__))
        for number, copy in enumerate(copies):
            _point(number, copy)
            with suppress(OSError):
                os.close(copy)
        sys.stdin, sys.stdout, sys.stderr = (_open(stream, number) for number, stream in enumerate(before))
        sys.stdout = cast("Any", _OfOneThread(sys.stdout, sys.stderr))


class _SharedStream:
    """A stream that its borrower cannot close, and that still accepts text afterwards."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> _SharedStream:
        return self

    def __exit__(self, *_fault: object) -> None:
        self.flush()

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        _flush((self._stream,))

    def close(self) -> None:
        self.flush()


class _OfOneThread(_SharedStream):
    """The stream for the thread that created this object. Output of leftover threads of a file goes elsewhere."""

    def __init__(self, stream: Any, elsewhere: Any) -> None:
        super().__init__(stream._stream if isinstance(stream, _OfOneThread) else stream)
        self._thread, self._elsewhere = threading.get_ident(), _SharedStream(elsewhere)

    def write(self, text: str) -> int:
        if threading.get_ident() != self._thread:
            return self._elsewhere.write(text)
        return self._stream.write(text)


def _copy(number: int) -> int:
    """Return a duplicate descriptor of an open file; -1 if there is none."""
    with suppress(OSError):
        return os.dup(number)
    return -1


def _point(number: int, to: int) -> None:
    with suppress(OSError):
        os.dup2(to, number)


def _flush(streams: tuple[Any, ...]) -> None:
    for stream in streams:
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()


def _open(stream: Any, number: int) -> IO[str]:
    """Return a stream, or a new one in its place if it was closed."""
    if not getattr(stream, "closed", False):
        return stream
    with suppress(OSError):
        return os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False)
    return open(os.devnull, "w" if number else "r", encoding="utf-8")
