"""Which process writes a run, and whether it still lives."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def this() -> str:
    """Host, number and time of birth of this process."""
    return f"{platform.node()} {os.getpid()} {_born(os.getpid())}"


def lives(process: str) -> bool:
    """Whether what `this` said in some process is still true. Of another host nobody here knows: it is taken to live."""
    host, number, born = ([""] * 2 + process.rsplit(" ", 2))[-3:]
    if not number.isdecimal():
        return False  # nobody wrote that
    if host != platform.node():
        return True
    if process == this():
        return True
    if os.name == "nt":
        return _lives_on_windows(int(number))
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return _born(int(number)) == born


def _born(number: int) -> str:
    """When a process began, where the system says so: another one may get its number later. A process that has ended and that nobody
    has asked about is born never."""
    try:
        state, *rest = Path(f"/proc/{number}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return "-"
    return "never" if state == "Z" else rest[18]


def _lives_on_windows(number: int) -> bool:
    import ctypes

    handle = ctypes.windll.kernel32.OpenProcess(0x1000, False, number)  # type: ignore[attr-defined]  # PROCESS_QUERY_LIMITED_INFORMATION
    if not handle:
        return False
    code = ctypes.c_ulong()
    ctypes.windll.kernel32.GetExitCodeProcess(handle, ctypes.byref(code))  # type: ignore[attr-defined]
    ctypes.windll.kernel32.CloseHandle(handle)  # type: ignore[attr-defined]
    return code.value == 259  # STILL_ACTIVE
