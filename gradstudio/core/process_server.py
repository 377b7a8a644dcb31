"""The process from which worker processes are forked, so that each starts in a tenth of a second: it has already
imported what they need."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from multiprocessing.context import BaseContext
from pathlib import Path

from gradstudio.core import files, python_process

if sys.platform == "win32":
    from multiprocessing.context import SpawnContext as _Beginning
    from multiprocessing.context import SpawnProcess as _Begun
else:
    from multiprocessing.context import ForkServerContext as _Beginning
    from multiprocessing.context import ForkServerProcess as _Begun

_LONGEST = 85  # characters of a folder's path that leave room for the name of a socket


class Process(_Begun):  # pyright: ignore[reportGeneralTypeIssues]  # of one platform or the other
    """A process that imports nothing from the current folder."""

    def start(self) -> None:
        with python_process.without_current_folder():
            super().start()


class _Context(_Beginning):  # pyright: ignore[reportGeneralTypeIssues]
    Process = Process


def context(imports: Sequence[str]) -> BaseContext:
    """Return the multiprocessing context, and set the imports of its server if the server is not running yet."""
    new_context = _Context()
    if sys.platform != "win32":
        _use_own_folder()
        new_context.set_forkserver_preload(list(imports))
    return new_context


def _use_own_folder() -> None:
    """Make multiprocessing put its socket into a folder that a later program deletes if this one is killed."""
    from multiprocessing import process, util

    # private: without it multiprocessing uses its own folder
    settings = getattr(process.current_process(), "_config", None)
    if settings is None or settings.get("tempdir") is not None:
        return
    folder = files.temporary_folder(Path(tempfile.gettempdir()))
    if len(folder.name) > _LONGEST:
        folder.cleanup()
        return
    settings["tempdir"] = folder.name
    util.Finalize(None, folder.cleanup, exitpriority=-100)


def start() -> None:
    """Start the server, if it is not running yet, so that Ctrl+C does not end it while it imports."""
    if sys.platform != "win32":
        from multiprocessing import forkserver, resource_tracker

        with python_process.without_current_folder():
            resource_tracker.ensure_running()  # which lets Ctrl+C through again at its end
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a process that is started inherits this
        try:
            with python_process.without_current_folder():
                forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """Leave Ctrl+C to the process that started this one, and end as soon as it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_wait_for_parent, name="parent watch", daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
