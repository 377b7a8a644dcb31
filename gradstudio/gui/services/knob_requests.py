"""The user's changes of knobs, and the messages about their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from PySide6.QtCore import QObject, Signal

from gradstudio.core.experiment import parse_assignment
from gradstudio.core.knobs import KnobError, Value, value_text
from gradstudio.gui.services.message_bar import MessageBar
from gradstudio.session import own_model
from gradstudio.session.simulator import Simulator


class KnobRequests(QObject):
    """Passes changes of knobs to the simulator; simulator_controller.py passes everything else."""

    knobs_changed = Signal()  # the visible knobs may differ from those of the simulator

    def __init__(self, simulator: Simulator, message: MessageBar) -> None:
        super().__init__()
        self._simulator, self._message = simulator, message

    def set_knob(self, name: str, value: Value) -> None:
        """Set a knob; the message bar says which other knobs had to change with it."""
        self._set_knob(name, value, partial(self._simulator.set, name, value))

    def _set_knob(self, name: str, value: Value, act: Callable[[], Mapping[str, Value]]) -> None:
        if self._refuses_change():
            return
        try:
            others = act()
        except KnobError as fault:
            self._message.show_error(str(fault))
        else:
            if others:
                text = " and ".join(f"{other} = {value_text(new)}" for other, new in others.items())
                self._message.show_news(
                    f"{name} = {value_text(value)} needs {text}, so "
                    f"{'that was' if len(others) == 1 else 'those were'} set too."
                )
        self.knobs_changed.emit()

    def set_own(self, name: str, value: Value) -> None:
        """Set a knob at the user's request: a text for a studio file needs no other agreement then."""
        own_model.agree_to_own(self._simulator.requested, {name: value})
        self.set_knob(name, value)

    def slide_knob(self, name: str, value: Value, by_keys: bool) -> None:
        """Set a knob to the value of its slider, or to the nearest one that the other knobs allow."""
        self.set_knob(name, self._simulator.nearest(name, value, onwards=by_keys))

    def set_max_norm(self, max_norm: float) -> None:
        """Set max_norm to where its line was dragged; switch clipping on if nothing is clipped yet."""
        if self._simulator.requested.clipping.kind == "none":
            self.set_knob("clipping.kind", "norm")
        self.set_knob("clipping.max_norm", max_norm)

    def apply_remedy(self, remedy: str) -> None:
        """Set the knobs that a remedy names, such as `clipping.kind=norm clipping.max_norm=1`."""
        for name, value in map(parse_assignment, remedy.split()):
            self.set_knob(name, value)

    def reset_knobs(self) -> None:
        """Set every knob to the preset's value."""
        if not self._refuses_change():
            self._simulator.reset()
            self.knobs_changed.emit()

    def undo(self) -> None:
        """Undo the latest change of a knob."""
        if not self._refuses_change():
            self._tell_again("Undone", self._simulator.undo(), "There is no knob change left to undo.", " again")

    def redo(self) -> None:
        """Redo the last undone change of a knob."""
        if not self._refuses_change():
            self._tell_again("Redone", self._simulator.redo(), "There is no undone knob change to redo.")

    def _tell_again(self, done: str, values: Mapping[str, Value], nothing: str, after: str = "") -> None:
        self.knobs_changed.emit()
        told = " and ".join(f"{name} = {value_text(value)}{after}" for name, value in values.items())
        self._message.show_news(f"{done}: {told}." if told else nothing)

    def _is_done(self, act: Callable[[], object]) -> bool:
        """Do something that the simulator may refuse, and show why it did. Return whether it was done."""
        try:
            act()
        except KnobError as fault:
            self._message.show_error(str(fault))
            return False
        return True

    def _refuses_change(self) -> bool:
        """Show why nothing can be changed, if the run can only be viewed."""
        if why := self._simulator.only_shown:
            self._message.show_news(why)
            self.knobs_changed.emit()
        return bool(why)
