"""The check whether a window can be opened here. Otherwise Qt aborts the whole program, so this comes first."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from pathlib import Path

from gradstudio.core import system_libraries


class NoWindow(Exception):
    """A window cannot be opened. The message says what is missing and what to do."""


def missing_library(fault: BaseException) -> str | None:
    """Return the sentence for a system library that Qt could not load, or None if the fault is another."""
    library = system_libraries.missing(str(fault))
    return (
        f"the system library {library[0]} is missing, without which Qt opens no window; {library[1]}"
        if library
        else None
    )


def check() -> None:
    """Raise NoWindow if Qt would find no display or could not load its platform plugin."""
    if not sys.platform.startswith("linux"):
        return
    wanted = os.environ.get("QT_QPA_PLATFORM", "").partition(";")[0].partition(":")[0]
    if wanted not in ("", "xcb") and not wanted.startswith("wayland"):
        if not (_plugins() / f"libq{wanted}.so").exists():
            known = sorted(plugin.stem.removeprefix("libq") for plugin in _plugins().glob("libq*.so"))
            raise NoWindow(f"QT_QPA_PLATFORM = {wanted[:40]} is no platform of Qt's; there are: {', '.join(known)}")
        return
    display = os.environ.get("DISPLAY", "")
    if wanted != "xcb" and _wayland_answers():
        return
    if wanted.startswith("wayland"):
        raise NoWindow(f"no Wayland display answers, as QT_QPA_PLATFORM asks for; {_INSTEAD}")
    if not display:
        raise NoWindow(f"there is no display to open a window on; set DISPLAY, or {_INSTEAD}")
    if not _x11_answers(display):
        raise NoWindow(f"the display {display[:60]} does not answer; {_INSTEAD}")
    _load_plugin(_plugins() / "libqxcb.so")


_INSTEAD = "train without a window: gradstudio run rnn-explosion"


def _plugins() -> Path:
    import PySide6

    return Path(PySide6.__file__).parent / "Qt" / "plugins" / "platforms"


def _wayland_answers() -> bool:
    name = os.environ.get("WAYLAND_DISPLAY")
    if not name:
        return False
    return _connects(socket.AF_UNIX, str(Path(os.environ.get("XDG_RUNTIME_DIR", "/")) / name))


def _x11_answers(display: str) -> bool:
    host, _, number = display.rpartition(":")
    digits = number.partition(".")[0]
    if not digits.isdecimal():
        return False
    if host in ("", "unix"):
        path = f"/tmp/.X11-unix/X{digits}"
        return _connects(socket.AF_UNIX, "\0" + path) or _connects(socket.AF_UNIX, path)
    if host.startswith("/"):  # macOS launchd style
        return Path(host).exists()
    return _connects(socket.AF_INET, (host, 6000 + int(digits)))


def _connects(family: int, address: str | tuple[str, int]) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(2)
        try:
            connection.connect(address)
        except OSError:
            return False
        return True


def _load_plugin(plugin: Path) -> None:
    if not plugin.exists():
        return
    try:
        ctypes.CDLL(str(plugin))
    except OSError as fault:
        raise NoWindow(missing_library(fault) or f"Qt cannot load its window plugin: {fault}") from None
