"""Standard streams that were closed before the program started, as under some daemons. The next opened files would take
their descriptors: output of a library would go into the run library."""

from __future__ import annotations

import os
import sys

_NAMES = ("stdin", "stdout", "stderr")


def open_closed() -> None:
    """Open each of them on the null device."""
    for number, name in enumerate(_NAMES):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # which takes the lowest free descriptor
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
