"""Whether a run may record its forward and backward passes and repeat them, which is faster and gives the same bits."""

from __future__ import annotations

import os


def is_enabled() -> bool:
    """Return False if GRADSTUDIO_RECORD=0 asks for plain autograd in every pass."""
    return os.environ.get("GRADSTUDIO_RECORD") != "0"
