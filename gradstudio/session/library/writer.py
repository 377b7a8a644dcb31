"""The thread that writes runs to the library as they train. Training never waits for it: it only reads runs."""

from __future__ import annotations

import _thread
import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

from gradstudio.core import network_disk
from gradstudio.session.library.followed_run import FollowedRun
from gradstudio.session.library.library_faults import LibraryError, NoLibraryError, is_damage, is_lock
from gradstudio.session.library.open_files import other_name
from gradstudio.session.library.requests import Request
from gradstudio.session.library.store import Library
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import RemoteSnapshots, Snapshots

INTERVAL = 0.5  # seconds between two writes: as much can be lost in a power cut


class LibraryWriter:
    """Follows runs until they are over. `problem` says why the latest write failed. It is retried; something is lost
    only if the program ends before it succeeds. `notice` says what happened to a damaged library, or to snapshots that
    cannot be stored."""

    def __init__(self, path: Path, in_sight: bool = True, interval: float | None = None) -> None:
        """`in_sight`: whether `threading.enumerate` lists the thread. A script that joins all threads would wait for
        this one forever. `interval`: seconds between two writes, INTERVAL by default."""
        self._interval = interval
        self.path = path.absolute()  # where runs are written; another file once the original is no longer a library
        self.problem = ""
        self.notice = ""
        self._library: Library | None = None
        self._known = False  # whether it was opened before
        self._following: list[FollowedRun] = []
        self._wake = threading.Event()
        self._ending = False
        self._ended_well = False
        self._locked = False  # whether another program had locked the library at the latest attempt
        self._give_up = 0.0  # when the last write ends, if that was requested
        self._lock = threading.Lock()
        self._ended = threading.Event()
        if in_sight:
            threading.Thread(target=self._run, name="run library", daemon=True).start()
        else:
            _thread.start_new_thread(self._run, ())

    def follow(
        self,
        run: Run,
        snapshots: Snapshots | RemoteSnapshots | None = None,
        on_request: Callable[[Request], object] | None = None,
        gather: Callable[[], object] | None = None,
    ) -> None:
        """Write this run from now on, and some of its snapshots once it is over. Two functions are called in the thread
        of this writer: `on_request` with the requests of other programs, and `gather` before the run is read, to add
        pending rows. Any thread may call this."""
        with self._lock:  # a run that continues after it was over is written again
            self._following = [
                *(followed for followed in self._following if followed.run is not run),
                FollowedRun(run, snapshots, on_request, gather),
            ]
        self._wake.set()

    def follows(self, run: str) -> bool:
        """Return whether a run with this id is not completely written yet."""
        with self._lock:
            return any(followed.run.id == run for followed in self._following)

    def close(self, timeout: float | None = None) -> bool:
        """Write the rest of all runs, and end. While another program has locked the library it retries until the
        timeout. Return whether everything is written."""
        self._give_up = time.monotonic() + (timeout or 0.0)
        self._ending = True
        self._wake.set()
        self._ended.wait(timeout)
        return self._ended_well

    def _run(self) -> None:
        try:
            self._write_until_the_end()
        finally:
            self._ended.set()

    def _write_until_the_end(self) -> None:
        """Write repeatedly until `close`."""
        while True:
            ending = self._ending
            with self._lock:
                following = list(self._following)
            once_more = self._attempt(following) and self._attempt(following)
            if ending and not (self._locked and time.monotonic() < self._give_up):
                break
            self._wake.wait((self._interval or INTERVAL) if following or once_more else None)
            self._wake.clear()
        if self._library is not None:
            with contextlib.suppress(sqlite3.Error):
                self._library.close()
        self._ended_well = not self.problem

    def _attempt(self, following: list[FollowedRun]) -> bool:
        """Write the new parts of each run. Return whether to retry at once, as a damaged library was set aside."""
        problem, self._locked = "", False
        for followed in following:
            try:
                self._write(followed, following)
            except Exception as fault:  # of one run; the others are written all the same
                known = isinstance(fault, LibraryError)
                problem = str(fault) if known else f"the run library {self.path} cannot be written: {fault}"
                self._locked |= is_lock(fault)
                if is_damage(fault) and self._library is not None:
                    self.problem = problem
                    return self._set_aside(self._library, following)
        self.problem = problem
        return False

    def _write(self, followed: FollowedRun, following: list[FollowedRun]) -> None:
        """Write the new parts of one run, and stop following it once it is over."""
        library = self._library
        if library is not None and library.is_replaced:
            self._leave(library, following)
            library = None
        if library is None:
            library = self._library = self._open()
            self.notice = library.notice or self.notice
        followed.gather()
        over = followed.run.over  # checked before writing, so that the end of the run is written too
        try:
            written = followed.write(library, over)
        except sqlite3.IntegrityError:  # the user removed the run from the library
            followed.forget()
            written = followed.write(library, over)
        if written:
            library.finish_log()
        self.notice = self.notice or followed.notice  # damage matters more
        followed.listen(library)
        if over:
            with self._lock:  # already gone if it is written again, into the library that replaced a damaged one
                if followed in self._following:
                    self._following.remove(followed)

    def _open(self) -> Library:
        """Open the library. If something else has been put in its place since it was opened, continue beside it."""
        try:
            library = Library(self.path)
        except NoLibraryError as fault:
            if not self._known:
                raise
            instead = Path(other_name(self.path, "instead"))
            library, self.path = Library(instead), instead
            self.notice = f"The run library was replaced: {fault}. Runs are written into {instead}"
        self._known = True
        self.notice = self.notice or network_disk.sentence(self.path)
        return library

    def _set_aside(self, library: Library, following: list[FollowedRun]) -> bool:
        """Continue with a new library in place of a damaged one. Return whether there is one."""
        try:
            library.set_aside()
        except Exception:
            self._leave(library, following)
            return False
        self.notice = library.notice or self.notice
        for each in following:
            each.forget()
        return True

    def _leave(self, library: Library, following: list[FollowedRun]) -> None:
        """Close an unusable library. The next one gets every run from its beginning."""
        with contextlib.suppress(sqlite3.Error):
            library.close()
        self._library = None
        for each in following:
            each.forget()
