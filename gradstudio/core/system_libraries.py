"""The system libraries that Qt needs to open a window, the Debian packages that contain them, and what pip installs."""

from __future__ import annotations

import re

FOR_A_WINDOW = "'gradstudio[gui]'"
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


def missing(message: str) -> tuple[str, str] | None:
    """Return the library that a loader's message reports as missing, and what to do; None for another message."""
    match = re.search(r"(\S+\.so[.\d]*): cannot open shared object", message)
    if match is None:
        return None
    name = match[1].rpartition("/")[2]
    package = PACKAGES.get(name)
    return (
        name,
        f"on Debian and Ubuntu: sudo apt-get install {package}" if package else "install the package that holds it",
    )
