"""Whether a run may record its forward and backward passes and replay them, which is faster and gives the same bits."""

from __future__ import annotations

import os


def is_enabled() -> bool:
    """Return False if GRADSTUDIO_RECORD=0 requests plain autograd in every pass."""
    return os.environ.get("GRADSTUDIO_RECORD") != "0"
