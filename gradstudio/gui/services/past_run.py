"""The run as it was at the viewed step, for the panels that show a run."""

from __future__ import annotations

from dataclasses import replace

from gradstudio.gui.widgets.viewed_step import ViewedStep
from gradstudio.session.record.as_of import KnownFindings, as_of
from gradstudio.session.record.run import Run
from gradstudio.session.words.run_state import State, describe

TURN = 0.004  # seconds of a beat for replaying the rules on rows
WORKED_OUT = "The findings of that step are being worked out."


class PastRun:
    """`view` is the run as it was then; None while the newest step is viewed."""

    def __init__(self, looked: ViewedStep) -> None:
        self.looked = looked
        self.view: Run | None = None
        self._known: KnownFindings | None = None
        self._of: Run | None = None
        self._made_for: tuple = ()

    def refresh(self, run: Run) -> bool:
        """Update the view, some rows further at each call. Return whether it has changed."""
        step = self.looked.at(run)
        if self._of is not run:
            self._known = self._of = None  # which would keep the other run
        if step is None:
            changed, self.view, self._made_for = self.view is not None, None, ()
            return changed
        if self._known is None:
            self._known, self._of = KnownFindings(run), run
        known = self._known.work_to(step, TURN)
        made_for = (run, step, known)
        if made_for == self._made_for:
            return False
        self._made_for = made_for
        self.view = as_of(run, step, self._known.at(step) if known else {})
        return True

    @property
    def complete(self) -> bool:
        """Whether the view has all findings of the rules by then."""
        return bool(self._made_for) and self._made_for[2]

    def state(self, run: Run) -> State:
        """Return the state of the view in words, without anything later."""
        assert self.view is not None
        state = describe(self.view)
        return state if self.complete or not run.findings else replace(state, text=f"{state.text} {WORKED_OUT}".strip())
