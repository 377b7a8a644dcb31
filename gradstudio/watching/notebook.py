"""Ends the runs of a notebook with the cells that make them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradstudio.watching.watcher import Watcher

_ending: set[int] = set()  # shells that end runs with their cells


def end_runs_with_their_cells(watcher: Callable[[], Watcher | None]) -> None:
    """Make the runs of a watcher end with the cell that made them, if this is a notebook."""
    shell = _shell()
    if shell is None or id(shell) in _ending:
        return
    _ending.add(id(shell))

    def end_cell(*_: Any) -> None:
        if (current := watcher()) is not None and not current.closed:
            current.end_cell()

    shell.events.register("post_run_cell", end_cell)


def _shell() -> Any:
    """Return the shell of a notebook; None in a program, and in a terminal."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return shell if shell is not None and hasattr(shell, "kernel") else None
