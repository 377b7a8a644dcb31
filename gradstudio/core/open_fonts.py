"""The files of fonts that matplotlib opens: for each thread that draws it opens its own, and keeps them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def fonts_closed() -> Iterator[None]:
    """Close at the end what was opened to draw in here, as each drawing may be in a thread of its own. What matplotlib
    remembers of formulas holds their fonts too."""
    try:
        yield
    finally:
        for clear in _clearing():
            clear()


def _clearing() -> Iterator[Callable[[], object]]:
    """Yield what empties each memory of matplotlib that holds fonts. They are private: of one that is not there some
    files stay open."""
    found: list[Any] = [getattr(sys.modules.get("matplotlib.font_manager"), "_get_font", None)]
    for module in (sys.modules.get("matplotlib.mathtext"), sys.modules.get("matplotlib._mathtext")):
        kinds = [each for each in vars(module).values() if isinstance(each, type)] if module is not None else []
        found += [each for kind in kinds for each in vars(kind).values()]
    for each in found:
        if (clear := getattr(each, "cache_clear", None)) is not None:
            yield clear
