"""How many CPU threads torch computes with: another number rounds sums in another order."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gradstudio.core.knobs import KnobError

MOST = 1024


def chosen() -> str:
    """What GRADSTUDIO_THREADS asks for, or OMP_NUM_THREADS where that is not set; 1 without either, which is fastest for small models
    beside a window. KnobError where GRADSTUDIO_THREADS is no such number."""
    asked = os.environ.get("GRADSTUDIO_THREADS", "")
    if asked and not _is_count(asked):
        raise KnobError(f"GRADSTUDIO_THREADS = {asked[:60]} is not allowed; allowed: a whole number from 1 to {MOST} (default 1)")
    standing = os.environ.get("OMP_NUM_THREADS", "")
    return asked or (standing if _is_count(standing) else "1")


def of(environment: Mapping[str, object]) -> str:
    """What a run says that it ran with; nothing where it does not, or where somebody wrote anything else there."""
    found = environment.get("threads")
    return found if isinstance(found, str) and _is_count(found) else ""


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 1 <= int(text) <= MOST
