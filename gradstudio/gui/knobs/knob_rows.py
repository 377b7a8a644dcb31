"""The rows of the form by the names of their knobs. Most knobs are never looked at, so a row is created on first
use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from gradstudio.core.knobs import Knob
from gradstudio.gui.knobs.knob_row import KnobRow


class KnobRows(Mapping[str, KnobRow]):
    """`knobs`: all of them. `made`: the rows that have been created. `on_made` is called once with each new row."""

    def __init__(self, knobs: Iterable[Knob], on_made: Callable[[KnobRow], object]) -> None:
        self.made: dict[str, KnobRow] = {}
        self.knobs = {knob.name: knob for knob in knobs}
        self._on_made = on_made

    def __getitem__(self, name: str) -> KnobRow:
        if name not in self.made:
            self.made[name] = row = KnobRow(self.knobs[name])
            self._on_made(row)
        return self.made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.knobs)

    def __len__(self) -> int:
        return len(self.knobs)

    def add(self, knobs: Iterable[Knob]) -> None:
        """Add further knobs."""
        self.knobs |= {knob.name: knob for knob in knobs}

    def remove(self, knobs: Iterable[Knob]) -> None:
        """Forget knobs and their rows."""
        for knob in knobs:
            del self.knobs[knob.name]
            self.made.pop(knob.name, None)
