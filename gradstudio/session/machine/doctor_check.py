"""The result of one check of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Check:
    """The result of one check: what was found, and what to do if that is a problem."""

    name: str
    ok: bool
    text: str
    advice: str = ""
    devices: tuple[dict[str, Any], ...] = ()  # id, name and free bytes (None: unknown) of each device that can train
