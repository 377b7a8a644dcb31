"""The studio files that the user has agreed to run, by the SHA-256 of their text, and the texts set for their knobs, by
a hash of each (studio_file.py). Any change requires a new agreement."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import platformdirs

from gradstudio.core import files

_LARGEST = 10_000_000  # bytes of the list
_agreed_here = set[str]()  # used if the list is not writable: until the program ends


def agreements() -> Path:
    """Return the list of agreements. It is in the user's own folder and never beside a library given by path, which may
    be untrusted."""
    return Path(platformdirs.user_data_dir("gradstudio", appauthor=False)) / "agreed_files.txt"


def is_trusted(*hashes: str) -> bool:
    """Return whether the user has agreed to everything with these hashes."""
    return _agreed_here.issuperset(hashes) or _agreed_here.union(_trusted_hashes()).issuperset(hashes)


def agree(*hashes: str) -> None:
    """Remember that the user has agreed to everything with these hashes."""
    listed = _trusted_hashes()
    new = [each for each in hashes if each not in listed]
    try:
        if new:
            files.write_whole(agreements(), "".join(f"{each}\n" for each in [*listed, *new]))
    except OSError:
        agree_here(*new)


def agree_here(*hashes: str) -> None:
    """Remember it until this program ends."""
    _agreed_here.update(hashes)


def agreed_here() -> frozenset[str]:
    """Return what the user has agreed to until this program ends."""
    return frozenset(_agreed_here)


def _trusted_hashes() -> list[str]:
    with suppress(OSError, UnicodeDecodeError):
        data = files.read_bounded(agreements(), _LARGEST)
        return [line for line in data.decode("ascii").split() if re.fullmatch("[0-9a-f]{64}", line)]
    return []
