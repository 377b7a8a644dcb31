"""The note shared by the process that checks a studio file and the program that started it: a small memory-mapped file.
A note survives the process that wrote it, and nothing that a studio file prints can get into it."""

from __future__ import annotations

import json
import mmap
from pathlib import Path

ASKED, NOTE, TRACES = "asked.toml", "note", "traces.txt"  # names of the files in the folder of a check
SIZE = 16_384  # bytes of the file
# 32-bit words: the current line, whether the studio file has started to execute, length of the answer (0: none yet)
_LINE, _READY, _LENGTH = 0, 1, 2
_HEAD = 12  # number of bytes before the answer


class CheckNote:
    """The line being executed and, at the end, the answer."""

    def __init__(self, path: Path, secret: str) -> None:
        """Open the file at `path`. `secret` precedes the answer, so that nothing else can be mistaken for one."""
        with path.open("r+b") as file:
            file.seek(SIZE)  # beyond what is read, as the studio file could write to the descriptor of the open file
            self._map = mmap.mmap(file.fileno(), SIZE)
        self._words = memoryview(self._map).cast("I")
        self._secret = secret

    @staticmethod
    def begin(path: Path) -> None:
        """Create the file. OSError if there is no room for it."""
        path.write_bytes(bytes(SIZE))

    @property
    def line(self) -> int:
        """The line of the studio file that started last; 0 if unknown."""
        return self._words[_LINE]

    @line.setter
    def line(self, line: int) -> None:
        self._words[_LINE] = line

    @property
    def ready(self) -> bool:
        """Whether the studio file has started to execute."""
        return self._words[_READY] == 1

    def say_ready(self) -> None:
        """Record that the studio file starts to execute."""
        self._words[_READY] = 1

    def answer(self, error: str) -> None:
        """Write the result of the check: the error, or "" if there is none."""
        data = json.dumps([self._secret, error[:2000]]).encode()
        self._map[_HEAD : _HEAD + len(data)] = data
        self._words[_LENGTH] = len(data)

    @property
    def read_answer(self) -> str | None:
        """The result of the check; None if no answer was written."""
        length = self._words[_LENGTH]
        try:
            secret, error = json.loads(self._map[_HEAD : _HEAD + length])
        except (ValueError, TypeError):
            return None
        return error if secret == self._secret and isinstance(error, str) else None

    def close(self) -> None:
        """Close the file so that it can be deleted."""
        self._words.release()
        self._map.close()
