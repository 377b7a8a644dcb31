"""Requests of the window to the run library. They have their own thread and connection, so that a long list, a long run
or a slow disk never blocks the window."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from gradstudio.gui.services.jobs import JobError, Jobs, Task
from gradstudio.gui.services.message_bar import MessageBar
from gradstudio.session.library.library_faults import LibraryError
from gradstudio.session.library.store import Library

QUEUE = "reading the run library"

T = TypeVar("T")


class LibraryReader:
    """The file is opened, or created, at the first request."""

    def __init__(self, path: Path, jobs: Jobs, message: MessageBar) -> None:
        self.path = path
        self._jobs, self._message = jobs, message
        self._library: Library | None = None  # used only by its thread

    def ask(
        self, work: Callable[[Library], T], done: Callable[[T], object] = lambda _: None,
        failed: Callable[[Task], object] | None = None, words: str = "", *, can_cancel: bool = False,
    ) -> Task:  # fmt: skip
        """Do `work` in the thread, after earlier requests; see Jobs.start."""
        return self._jobs.start(
            words, partial(self._carry_out, work), done, failed, queue=QUEUE, can_cancel=can_cancel
        )  # fmt: skip

    def close(self) -> None:
        """Close the file after earlier requests."""
        self._jobs.start("", self._close, queue=QUEUE, can_cancel=False)

    def _close(self, task: Task | None = None) -> None:
        if self._library is not None:
            self._library.close()
            self._library = None

    def _carry_out(self, work: Callable[[Library], T], task: Task) -> T:
        try:
            if self._library is not None and self._library.is_replaced:
                self._close()
            if self._library is None:
                self._library = Library(self.path)
            return work(self._library)
        except LibraryError as fault:
            raise JobError(str(fault)) from None
        except (sqlite3.Error, OSError) as fault:
            raise JobError(f"the run library {self.path}: {fault}") from None
        except Exception as fault:  # a run of another version
            raise JobError(f"the run library {self.path}: {type(fault).__name__}: {str(fault)[:200]}") from fault
        finally:
            if self._library is not None and self._library.notice:
                notice, self._library.notice = self._library.notice, ""  # it is reported once
                # after pending answers, so that none hides it
                self._jobs.post(lambda: self._jobs.post(partial(self._message.show_error, notice)))
