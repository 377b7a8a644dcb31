"""Whether a window can be opened here. Qt aborts the whole program where it cannot; so it is asked before Qt is."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from pathlib import Path

PACKAGES = {
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
    "libxkbcommon.so.0": "libxkbcommon0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxcb-xkb.so.1": "libxcb-xkb1",
    "libfontconfig.so.1": "libfontconfig1",
    "libdbus-1.so.3": "libdbus-1-3",
    "libglib-2.0.so.0": "libglib2.0-0",
}


class NoWindow(Exception):
    """A window cannot be opened. One sentence: what is missing, and what to do."""


def missing_library(fault: BaseException) -> str | None:
    """The sentence for a system library that Qt could not load, or None where the fault is another."""
    name = str(fault).partition(":")[0].strip()
    if ".so" not in name:
        return None
    package = PACKAGES.get(name)
    cure = f"on Debian and Ubuntu: sudo apt-get install {package}" if package else "install the package that holds it"
    return f"the system library {name} is missing, without which Qt opens no window; {cure}"


def check() -> None:
    """Raise NoWindow where Qt would find no display or not load its platform plugin."""
    if not sys.platform.startswith("linux"):
        return
    wanted = os.environ.get("QT_QPA_PLATFORM", "")
    if not wanted:
        if not (_wayland_answers() or os.environ.get("DISPLAY")):
            raise NoWindow("there is no display to open a window on; set DISPLAY, or train without a window: gradstudio run rnn-explosion")
        if not _wayland_answers() and not _x11_answers(os.environ["DISPLAY"]):
            raise NoWindow(f"the display {os.environ['DISPLAY']} does not answer; train without a window: gradstudio run rnn-explosion")
    if wanted.startswith("xcb") or (not wanted and not _wayland_answers()):
        _load_plugin("libqxcb.so")


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
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(2)
        try:
            probe.connect(address)
        except OSError:
            return False
        return True


def _load_plugin(name: str) -> None:
    import PySide6

    plugin = Path(PySide6.__file__).parent / "Qt" / "plugins" / "platforms" / name
    if not plugin.exists():
        return
    try:
        ctypes.CDLL(str(plugin))
    except OSError as fault:
        raise NoWindow(missing_library(fault) or f"Qt cannot load its window plugin: {fault}") from None
