"""The studio files that a person has agreed to run, by the SHA-256 of their text. A text that was changed is another
one, and is asked for again."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import platformdirs

from gradstudio.core import files

_LARGEST = 10_000_000  # bytes of the list
_agreed_here = set[str]()  # where the list cannot be written: until the program ends


def agreements() -> Path:
    """Return the list of what was agreed to. It lies in the user's own folder and never beside a library that somebody
    named: that may be anybody's."""
    return Path(platformdirs.user_data_dir("gradstudio", appauthor=False)) / "agreed_files.txt"


def agreed(sha256: str) -> bool:
    """Return whether somebody has agreed to run the text with this hash."""
    return sha256 in _agreed_here or sha256 in _listed()


def agree(sha256: str) -> None:
    """Remember that somebody has agreed to run the text with this hash."""
    listed = _listed()
    if sha256 in listed:
        return
    try:
        files.write_whole(agreements(), "".join(f"{each}\n" for each in [*listed, sha256]))
    except OSError:
        agree_here(sha256)


def agree_here(sha256: str) -> None:
    """Remember it until this program ends."""
    _agreed_here.add(sha256)


def _listed() -> list[str]:
    with suppress(OSError, UnicodeDecodeError):
        data = files.read_bounded(agreements(), _LARGEST)
        return [line for line in data.decode("ascii").split() if re.fullmatch("[0-9a-f]{64}", line)]
    return []
