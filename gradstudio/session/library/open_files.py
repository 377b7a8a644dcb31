"""The file that a connection has open, which another program may replace.

SQLite keeps unwritten changes in a log beside the file, which it finds by name alone: the log would be applied to a
file put in the library's place, and destroy it. So the log is empty between two writes (store.py), and here it is
removed from beside a file that it does not belong to."""

from __future__ import annotations

import os
import secrets
import threading
import time
from contextlib import suppress
from pathlib import Path

_LOG, _INDEX = "-wal", "-shm"  # suffixes of the files that SQLite writes beside a file
_all: list[OpenFile] = []  # of this process
_lock = threading.Lock()

Identity = tuple[int, int]


class OpenFile:
    """A file with its log, from opening until `close`."""

    def __init__(self, path: Path, file: Identity | None) -> None:
        """`file`: the identity of the file when it was opened."""
        self.path = path
        self.file = file
        self._closed = False
        self._place = os.path.realpath(path)  # a link may be redirected later; the log stays
        beside = {ending: identity(self._place + ending) for ending in (_LOG, _INDEX)}
        # if the file was replaced meanwhile, the owner of the log is unknown
        self._beside = beside if identity(path) == file else {}
        with _lock:
            _all.append(self)

    @property
    def is_replaced(self) -> bool:
        """True once the file was deleted, replaced or closed."""
        return self._closed or identity(self.path) != self.file

    def clear(self) -> None:
        """Remove the log if the file is no longer in its place. A nonempty log gets another name."""
        if identity(self._place) == self.file:
            return
        for ending, file_identity in self._beside.items():
            name = self._place + ending
            with suppress(OSError):
                if file_identity is None or identity(name) != file_identity:
                    continue
                if ending == _LOG and os.path.getsize(name):
                    os.replace(name, other_name(Path(self._place), "replaced") + ending)
                else:
                    os.unlink(name)

    def close(self) -> None:
        """Forget the file, which is no longer written."""
        self._closed = True
        self.clear()
        with _lock, suppress(ValueError):
            _all.remove(self)


def make_way(path: Path) -> None:
    """Remove this process's files beside a path, and those that do not belong to the current file."""
    with _lock:
        open_files = [each for each in _all if each.path == path]
    for each in open_files:
        each.clear()


def other_name(path: Path, why: str) -> str:
    """Return an unused path beside this one."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return str(path.with_name(f"{path.stem}-{why}-{stamp}-{secrets.token_hex(2)}{path.suffix}"))


def identity(path: str | Path) -> Identity | None:
    """Return an identity that distinguishes a file from another one with the same name."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
