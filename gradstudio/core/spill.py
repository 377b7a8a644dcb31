"""Read-only arrays on disk instead of in memory: one writer, many readers.

The file has no name (on Windows: it is deleted with its last handle), so it is gone when it is closed and when the
process ends, however it ends. It is in the user's cache folder, because on many systems the temporary folder is in
memory."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
import weakref
from typing import NamedTuple

import numpy as np

from gradstudio.core import files

SPARE = 1_000_000_000  # bytes that stay free on the disk


class SpillFile:
    """A file that arrays are moved to. It is created with the first array; after a failure it is not tried again."""

    def __init__(self) -> None:
        self.problem = ""  # why it accepts no more arrays
        self._end = 0
        self._lock = threading.Lock()  # around seeking, which only a system without pread needs

    def spill(self, array: np.ndarray) -> np.ndarray | SpilledArray:
        """Write an array to disk and return its reader; return the array itself if the disk refuses it. Only the single
        writer may call this."""
        if self.problem:
            return array
        try:
            return self._write(array)
        except OSError as fault:
            self.problem = fault.strerror or str(fault)
            return array

    def _write(self, array: np.ndarray) -> SpilledArray:
        folder = files.user_cache()
        if not self._end:
            folder.mkdir(parents=True, exist_ok=True)
            # Not in a `with`: it lives as long as this object
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
            weakref.finalize(self, self._file.close)
        if shutil.disk_usage(folder).free < SPARE + array.nbytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with self._lock:
            self._file.seek(self._end)
            if self._file.write(np.ascontiguousarray(array).data) != array.nbytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        spilled = SpilledArray(self, self._end, array.shape, array.dtype)
        self._end += array.nbytes
        return spilled

    def read(self, start: int, count: int) -> bytes:
        """Return `count` bytes from `start` on. Any thread may call this."""
        if hasattr(os, "pread"):
            return os.pread(self._file.fileno(), count, start)
        with self._lock:
            self._file.seek(start)
            return self._file.read(count)


class SpilledArray(NamedTuple):
    """An array of at least two dimensions in a SpillFile."""

    file: SpillFile
    start: int
    shape: tuple[int, ...]
    dtype: np.dtype

    def rows(self, index: int, start: int, stop: int) -> np.ndarray:
        """Read array[index, start:stop] and nothing else. OSError if the disk fails."""
        size = self.dtype.itemsize * int(np.prod(self.shape[2:]))
        count = stop - start
        data = self.file.read(self.start + (index * self.shape[1] + start) * size, count * size)
        if len(data) != count * size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return np.frombuffer(data, self.dtype).reshape(count, *self.shape[2:])
