"""The process from which worker processes are forked, so that each of them is there in a tenth of a second: it has
imported what they need."""

from __future__ import annotations

import signal
import sys
import tempfile
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

_LONGEST = 85  # characters of a folder in which a socket can have its name


class Process(_Begun):  # pyright: ignore[reportGeneralTypeIssues]  # of one platform or the other
    """A process that finds nothing in the current folder."""

    def start(self) -> None:
        with python_process.current_folder_kept_out():
            super().start()


class _Context(_Beginning):  # pyright: ignore[reportGeneralTypeIssues]
    Process = Process


def context(imports: Sequence[str]) -> BaseContext:
    """Return what begins processes, and set what their server imports once, if it does not run yet."""
    found = _Context()
    if sys.platform != "win32":
        _use_own_folder()
        found.set_forkserver_preload(list(imports))
    return found


def _use_own_folder() -> None:
    """Let multiprocessing have its socket in a folder that a later program deletes where this one is killed."""
    from multiprocessing import process, util

    settings = getattr(process.current_process(), "_config", None)  # private: without it the folder is its own
    if settings is None or settings.get("tempdir") is not None:
        return
    folder = files.temporary_folder(Path(tempfile.gettempdir()))
    if len(folder.name) > _LONGEST:
        folder.cleanup()
        return
    settings["tempdir"] = folder.name
    util.Finalize(None, folder.cleanup, exitpriority=-100)


def start() -> None:
    """Start the server, where it does not run yet, so that Ctrl+C does not end it while it imports."""
    if sys.platform != "win32":
        from multiprocessing import forkserver, resource_tracker

        with python_process.current_folder_kept_out():
            resource_tracker.ensure_running()  # which lets Ctrl+C through again at its end
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a process that is started inherits this
        try:
            with python_process.current_folder_kept_out():
                forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
