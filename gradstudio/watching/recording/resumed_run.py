"""The run of the library that a watched training resumes."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from gradstudio.core.history import Layer
from gradstudio.session.library.store import Library, LibraryError
from gradstudio.session.record.run import Run
from gradstudio.watching.hooks.guard import say


def run_to_resume(path: Path, name: str, layers: tuple[Layer, ...]) -> Run | None:
    """Return the run with this id or name if it trained the same layers; otherwise None, with a line on stderr. None
    for an empty name."""
    if not name:
        return None
    try:
        with closing(Library(path)) as library:
            run = library.load(library.find(name))
    except LibraryError as fault:
        say(f"resume={name}: {fault}")
        return None
    if run.watched is None or [layer.size for layer in run.history.layers] != [layer.size for layer in layers]:
        say(f"resume={name}: that run trained other parameters, so this one begins by itself")
        return None
    return run
