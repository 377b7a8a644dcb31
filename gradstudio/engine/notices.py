"""Messages of the engine for the user besides a run's numbers, such as a missing part of torch."""

from __future__ import annotations

_told: dict[str, None] = {}  # every notice of this process, in order
_untold: list[str] = []


def tell(text: str) -> None:
    """Add a notice, a whole sentence. A repeated text is ignored."""
    if text not in _told:
        _told[text] = None
        _untold.append(text)


def take() -> list[str]:
    """Return the notices that have not been taken yet, in order. Any thread may call it."""
    taken = []
    while _untold:
        try:
            taken.append(_untold.pop(0))
        except IndexError:  # another thread was faster
            break
    return taken
