"""Interrupted runs: which process writes a run, and whether it is still alive.

An unfinished run whose process has ended, for example after a crash or kill -9, is shown as interrupted."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def this_process() -> str:
    """Return host, process id and start time of this process, as one text."""
    return f"{platform.node()} {os.getpid()} {_start_time(os.getpid())}"


def is_alive(process: str) -> bool:
    """Return whether the process identified by `this_process` is still alive. One on another host cannot be checked: it
    is assumed to be."""
    host, number, born = _parts(process)
    if not number.isdecimal():
        return False  # not a text written by `this_process`
    if host != platform.node():
        return True
    if process == this_process():
        return True
    if os.name == "nt":
        return _lives_on_windows(int(number))
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return _start_time(int(number)) == born


def other_host(process: str) -> str:
    """Return the host of a process, "" for this host. It may be an earlier name of this machine."""
    host, number, _ = _parts(process)
    return host if number.isdecimal() and host != platform.node() else ""


def _parts(process: str) -> list[str]:
    """Return host, process id and start time of the process identified by `this_process`."""
    return ([""] * 2 + process.rsplit(" ", 2))[-3:]


def _start_time(number: int) -> str:
    """Return when a process began, if the system reports it: another process may get the same id later. A zombie, which
    has ended and waits for its parent, began "never"."""
    try:
        line = Path(f"/proc/{number}/stat").read_bytes()
    except OSError:
        return "-"
    # bytes: Linux truncates the name of a process to 15 of them, perhaps in the middle of a letter
    state, *rest = line.rpartition(b") ")[2].decode("ascii").split()
    return "never" if state == "Z" else rest[18]


def _lives_on_windows(number: int) -> bool:
    """Return whether a process with this id is alive."""
    import ctypes

    kernel = ctypes.windll.kernel32  # type: ignore[attr-defined]
    handle = kernel.OpenProcess(0x1000, False, number)  # PROCESS_QUERY_LIMITED_INFORMATION
    if not handle:
        return False
    code = ctypes.c_ulong()
    ctypes.windll.kernel32.GetExitCodeProcess(handle, ctypes.byref(code))  # type: ignore[attr-defined]
    ctypes.windll.kernel32.CloseHandle(handle)  # type: ignore[attr-defined]
    return code.value == 259  # STILL_ACTIVE
