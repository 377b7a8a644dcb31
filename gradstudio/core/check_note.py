"""The note that passes between the process that checks a studio file and the program that has asked for it: a small
file that both have in memory. What one of them writes is there though it is ended a moment later, and what a file
writes into the streams of its process does not get here."""

from __future__ import annotations

import json
import mmap
from pathlib import Path

ASKED, NOTE, TRACES = "asked.toml", "note", "traces.txt"  # names of the files in the folder of a check
SIZE = 16_384  # bytes of the file
_LINE, _READY, _LENGTH = 0, 1, 2  # words of 4 bytes: the line at work, whether the file's own time has begun, and the
_HEAD = 12  # bytes before the answer, whose length in bytes stands in the third word: 0 until it is written


class CheckNote:
    """The line at work, and at last the answer."""

    def __init__(self, path: Path, secret: str) -> None:
        """Open the file at `path`. `secret` stands before an answer, so that no other is taken for one."""
        with path.open("r+b") as file:
            file.seek(SIZE)  # behind what is read: the open file has a number that somebody may write to
            self._map = mmap.mmap(file.fileno(), SIZE)
        self._words = memoryview(self._map).cast("I")
        self._secret = secret

    @staticmethod
    def begin(path: Path) -> None:
        """Write the file. OSError if there is no room for it."""
        path.write_bytes(bytes(SIZE))

    @property
    def line(self) -> int:
        """The line of the studio file that began last, 0 if it is not known."""
        return self._words[_LINE]

    @line.setter
    def line(self, line: int) -> None:
        self._words[_LINE] = line

    @property
    def ready(self) -> bool:
        """Whether the file's own time has begun."""
        return self._words[_READY] == 1

    def say_ready(self) -> None:
        """Say that the file's own time begins."""
        self._words[_READY] = 1

    def answer(self, found: str) -> None:
        """Write what was found: the error, "" if there is none."""
        data = json.dumps([self._secret, found[:2000]]).encode()
        self._map[_HEAD : _HEAD + len(data)] = data
        self._words[_LENGTH] = len(data)

    @property
    def read_answer(self) -> str | None:
        """What was found, None if no answer was written."""
        length = self._words[_LENGTH]
        try:
            secret, found = json.loads(self._map[_HEAD : _HEAD + length])
        except (ValueError, TypeError):
            return None
        return found if secret == self._secret and isinstance(found, str) else None

    def close(self) -> None:
        """Let go of the file, so that it can be deleted."""
        self._words.release()
        self._map.close()
