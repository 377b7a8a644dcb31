"""The program's entry in the menu of a Linux desktop, with its icon: files in the user's own data folder, at the paths
given by freedesktop.org's *Desktop Entry* and *Icon Theme* specifications."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import platformdirs

from gradstudio.core.files import RESOURCES, write_whole

NAME = "gradstudio"


def places() -> dict[str, Path]:
    """Return the path of each file of the entry, by kind."""
    home = Path(platformdirs.user_data_dir())
    icons = home / "icons" / "hicolor"
    return {
        "entry": home / "applications" / f"{NAME}.desktop",
        "icon": icons / "scalable" / "apps" / f"{NAME}.svg",
        "small icon": icons / "256x256" / "apps" / f"{NAME}.png",
    }


def install() -> list[Path]:
    """Write the entry and its icons, and return them. OSError on failure; then none of them remains."""
    texts: dict[str, str | bytes] = {
        "icon": (RESOURCES / "icons" / f"{NAME}.svg").read_bytes(),
        "small icon": (RESOURCES / "icons" / f"{NAME}.png").read_bytes(),
        "entry": _entry(),
    }
    there = {path for path in places().values() if path.exists()}
    try:
        for what, path in places().items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, texts[what])
    except OSError:
        for path in set(places().values()) - there:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        raise
    return list(places().values())


def uninstall() -> list[Path]:
    """Delete what `install` wrote, and return it."""
    paths = [path for path in places().values() if path.exists()]
    for path in paths:
        path.unlink()
    return paths


def _entry() -> str:
    """Return the entry, which starts this very installation: a menu need not know the PATH of a terminal."""
    lines = (RESOURCES / f"{NAME}.desktop").read_text(encoding="utf-8").splitlines()
    return "\n".join(f"Exec={_command()}" if line.startswith("Exec=") else line for line in lines) + "\n"


def _command() -> str:
    beside = Path(sys.executable).with_name(NAME)
    words = [str(beside)] if beside.is_file() else [sys.executable, "-P", "-m", NAME]
    return " ".join(map(_quote, words))


def _quote(word: str) -> str:
    """Return a word in the form of the key Exec: quoted, with its own escapes, and those of a string in the file on
    top."""
    for sign in ("\\", '"', "`", "$"):
        word = word.replace(sign, f"\\{sign}")
    return '"' + word.replace("\\", "\\\\").replace("%", "%%") + '"'
