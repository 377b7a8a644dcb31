"""The word for what came of a run. Files and JSON keep the status itself."""

from __future__ import annotations

OUTCOMES: dict[str, tuple[str, str]] = {  # status of a run: the word for it, and its colour
    "finished": ("finished", "good"),
    "nonfinite": ("diverged", "bad"),
    "failed": ("failed", "bad"),
    "interrupted": ("interrupted", "warning"),
    "stopped": ("stopped", "dim"),
    "paused": ("paused", "accent"),
    "running": ("running", "accent"),
    "starting": ("running", "accent"),
    "ready": ("running", "accent"),
}
