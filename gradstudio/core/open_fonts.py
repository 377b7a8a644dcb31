"""The font files that matplotlib opens: it opens its own for each thread that draws, and keeps them open."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def close_fonts() -> Iterator[None]:
    """Close, at the end, the fonts that were opened to draw in here, as each drawing may be in a thread of its own.
    matplotlib's cache of formulas refers to their fonts too."""
    try:
        yield
    finally:
        for clear in _clearing():
            clear()


def _clearing() -> Iterator[Callable[[], object]]:
    """Yield the functions that clear matplotlib's private caches of fonts. If one is missing, some files stay open."""
    caches: list[Any] = [getattr(sys.modules.get("matplotlib.font_manager"), "_get_font", None)]
    for module in (sys.modules.get("matplotlib.mathtext"), sys.modules.get("matplotlib._mathtext")):
        kinds = [each for each in vars(module).values() if isinstance(each, type)] if module is not None else []
        caches += [each for kind in kinds for each in vars(kind).values()]
    for each in caches:
        if (clear := getattr(each, "cache_clear", None)) is not None:
            yield clear
