"""The number of CPU threads that torch computes with. Another number sums in another order, so it rounds
differently."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gradstudio.core.knobs import KnobError

MOST = 1024


def chosen() -> str:
    """Return the number in GRADSTUDIO_THREADS, or in OMP_NUM_THREADS if that is not set; 1 without either, which is
    fastest for small models beside a window. KnobError if GRADSTUDIO_THREADS is not a positive whole number."""
    asked = os.environ.get("GRADSTUDIO_THREADS", "")
    if asked and not _is_count(asked):
        raise KnobError(
            f"GRADSTUDIO_THREADS = {asked[:60]} is not allowed; allowed: a whole number from 1 to {MOST} (default 1)"
        )
    standing = os.environ.get("OMP_NUM_THREADS", "")
    return asked or (standing if _is_count(standing) else "1")


def of(environment: Mapping[str, object]) -> str:
    """Return the number that a run was made with; empty if its environment does not record it."""
    threads = environment.get("threads")
    return threads if isinstance(threads, str) and _is_count(threads) else ""


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 9 and 1 <= int(text) <= MOST
