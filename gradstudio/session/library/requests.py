"""Requests of one program to a run that another one trains: pause, resume, stop, change the learning rate, write a
crash file.

The requests are stored in the library, beside the run. The writer of the run checks for them each time that it writes.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from gradstudio.session.library.store import Library

Word = Literal["pause", "resume", "stop", "rate", "record"]
LARGEST = 1000.0  # factor on the learning rate


class Request(NamedTuple):
    """`factor`: for "rate", the factor on the run's own learning rate from the next step on."""

    word: Word
    factor: float = 1.0


class RequestReader:
    """The requests to a run so far. It reads only if another program has changed the library."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._version: int | None = None
        self._last = 0  # number of the last request read

    def news(self, library: Library) -> list[Request]:
        """Return the requests since the last look."""
        version = library.version()
        if version == self._version:
            return []
        self._version = version
        requests = library.requests(self._run, self._last)
        self._last = max((number for number, *_ in requests), default=self._last)
        return [Request(word, factor) for _, word, factor in requests if _is_one(word, factor)]


def _is_one(word: object, factor: object) -> bool:
    """Whether this is a valid request; another program may have written something else."""
    return word in get_args(Word) and isinstance(factor, float) and 0 <= factor <= LARGEST
