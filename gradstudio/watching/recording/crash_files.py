"""The crash files of one run: one of each kind, and any that another program asks for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gradstudio.session.files import crash_file
from gradstudio.watching.hooks.guard import say
from gradstudio.watching.hooks.rank_place import current_place
from gradstudio.watching.recorder.crash_writer import CrashWriter
from gradstudio.watching.script.model_layers import names_of

if TYPE_CHECKING:
    from gradstudio.watching.steps.step_observer import Observer

Kind = Literal["not finite", "critical", "raised", "asked for"]


class CrashFiles:
    """Writes them beside the library. `run_id` returns the id of the run in it."""

    def __init__(self, observer: Observer, library: Path, script: Path | None, run_id: Callable[[], str]) -> None:
        self._observer, self._library, self._script, self._run_id = observer, library, script, run_id
        self.path: Path | None = None  # of the latest file
        self.unknown = ""  # why that cannot be replayed, a clause
        self.kinds: set[str] = set()  # of the files written
        self.thread = 0  # that of the script
        self._due: tuple[str, Kind] | None = None  # reason and kind of one that waits for the script's thread

    @property
    def line(self) -> str:
        """The location of the latest file, in a line."""
        what = "fixes` tries fixes on it" if not self.unknown else "show` says what is in it"
        return f"  file     {self.path}; `gradstudio crash {what}"

    @property
    def may_be_written(self) -> bool:
        """Whether no crash file exists, and none is pending."""
        return not (self.kinds or self._due)

    def write(self, reason: str, kind: Kind) -> bool:
        """Write a file, unless there is one of that kind. Return whether it was written."""
        observer, recorder = self._observer, self._observer.recorder
        if kind in self.kinds or not recorder.states or observer.options.on_nonfinite == "ignore":
            return False
        if (place := current_place()) is not None and place.rank and kind != "not finite":
            return False  # rank 0 alone knows of it
        if threading.get_ident() != self.thread:  # the script trains meanwhile, and its weights are restored
            self._due = self._due or (reason, kind)
            return False
        models = observer.models_in_script or observer.models
        names = [""] if len(models) == 1 else names_of(models)
        writer, run_id = CrashWriter(recorder, dict(zip(models, names, strict=True))), self._run_id()
        step = recorder.states[0].steps[-1].number
        path = crash_file.path_of(self._library, run_id, step, place.rank if place else 0)
        try:
            written = writer.write(path, reason, run_id, self._script, is_broken=kind == "not finite")
        except Exception as fault:  # from the user's objects, or from the disk
            say(f"no crash file was written: {' '.join(str(fault).split())[:200] or type(fault).__name__}")
            return False
        if written is None:
            return False
        self.path, self.unknown = path, written.unknown
        self.kinds |= {kind} - {"asked for"}
        return True

    def write_due(self) -> None:
        """Write the pending crash file, if its thread is this one, and print its location."""
        due, self._due = self._due, None
        if due is not None and (self.write(*due) or due[1] in self.kinds):
            say(self.line)
