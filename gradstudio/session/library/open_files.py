"""The file that a connection has open, while somebody may put another one in its place.

What SQLite has not written into the file yet lies in a log beside it, which it finds by name alone: of a file that was
put in the library's place it would become part, and destroy it. So the log is empty between two writings (store.py),
and here it is taken away from beside a file that it does not belong to."""

from __future__ import annotations

import os
import secrets
import threading
import time
from contextlib import suppress
from pathlib import Path

_LOG, _INDEX = "-wal", "-shm"  # endings of what SQLite writes beside a file
_all: list[OpenFile] = []  # of this process
_lock = threading.Lock()

Identity = tuple[int, int]


class OpenFile:
    """A file with its log, from the time it was opened until `close`."""

    def __init__(self, path: Path, file: Identity | None) -> None:
        """`file`: what was there when it was opened."""
        self.path = path
        self.file = file
        self._closed = False
        self._place = os.path.realpath(path)  # a link may lead elsewhere later; the log stays
        beside = {ending: identity(self._place + ending) for ending in (_LOG, _INDEX)}
        # where somebody has replaced the file meanwhile, nobody can tell whose the log is
        self._beside = beside if identity(path) == file else {}
        with _lock:
            _all.append(self)

    @property
    def is_replaced(self) -> bool:
        """True once somebody has deleted or replaced the file, or it was closed."""
        return self._closed or identity(self.path) != self.file

    def clear(self) -> None:
        """Remove the log if the file is no longer in its place. A log that is not empty gets another name."""
        if identity(self._place) == self.file:
            return
        for ending, found in self._beside.items():
            name = self._place + ending
            with suppress(OSError):
                if found is None or identity(name) != found:
                    continue
                if ending == _LOG and os.path.getsize(name):
                    os.replace(name, other_name(Path(self._place), "replaced") + ending)
                else:
                    os.unlink(name)

    def close(self) -> None:
        """Forget the file, which nobody writes any more."""
        self._closed = True
        self.clear()
        with _lock, suppress(ValueError):
            _all.remove(self)


def make_way(path: Path) -> None:
    """Remove what this process has beside a path and what does not belong to the file that is there now."""
    with _lock:
        found = [each for each in _all if each.path == path]
    for each in found:
        each.clear()


def other_name(path: Path, why: str) -> str:
    """Return a path beside this one that nothing has."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return str(path.with_name(f"{path.stem}-{why}-{stamp}-{secrets.token_hex(2)}{path.suffix}"))


def identity(path: str | Path) -> Identity | None:
    """Return what tells a file from another one of the same name."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
