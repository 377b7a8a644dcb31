"""The possible actions on the run that is shown, and the reasons for impossible ones. Read-only."""

from __future__ import annotations

from gradstudio.core import ranks_allowed
from gradstudio.core.knobs import Value
from gradstudio.session.record.branches import last_changes, last_healthy_step
from gradstudio.session.record.run import Run
from gradstudio.session.simulator import Simulator


class PossibleActions:
    """Queried before each action, and for the labels of buttons."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self._healthy: tuple[Run | None, int | None, int | None] = (None, None, None)  # run, where it broke, answer

    @property
    def is_trained_here(self) -> bool:
        """Whether this program can train the run that is shown."""
        return not self._simulator.only_shown

    @property
    def is_trained_elsewhere(self) -> bool:
        """Whether another program trains it."""
        return self._simulator.is_trained_elsewhere

    @property
    def can_run(self) -> bool:
        if not self.is_trained_here:
            return self.is_trained_elsewhere
        return not self._simulator.going.over or bool(self._simulator.steps_to_go)

    @property
    def why_no_run(self) -> str:
        """Why a run cannot continue, as a sentence; "" if it can."""
        if self.can_run:
            return ""
        status = self._simulator.run.status
        if why := self._simulator.only_shown:
            return why
        if status == "nonfinite":
            return "This run diverged: rewind it to a step before, or press Restart"
        return "An error ended this run: press Restart" if status == "failed" else "Not on several ranks: press Restart"

    @property
    def why_no_step(self) -> str:
        """Why no single step can be made, as a sentence; "" if one can."""
        if self.can_step:
            return ""
        return self._simulator.only_shown or "This run is over: let it go on, rewind it or press Restart first"

    @property
    def why_no_restart(self) -> str:
        """Why a run cannot be restarted, as a sentence; "" if it can."""
        return "" if self.has_begun else self._simulator.only_shown or "Nothing has begun yet: press Run"

    @property
    def can_step(self) -> bool:
        return self.is_trained_here and not self._simulator.going.over

    @property
    def has_begun(self) -> bool:
        """Whether the run has begun, so that it can be restarted."""
        return self.is_trained_here and self._simulator.has_begun

    @property
    def can_rewind(self) -> bool:
        return self.has_begun and self._simulator.rewinds

    @property
    def why_no_rewinding(self) -> str:
        """Why a run cannot be rewound, as a sentence; "" if it can."""
        if self.has_begun and ranks_allowed.several(self._simulator.run.experiment):
            return "Not on several ranks: model and optimizer are in their processes"
        return "" if self.can_rewind else self._simulator.only_shown or "No step was made yet: press Run"

    @property
    def why_no_speed(self) -> str:
        """Why the speed of the run that is shown cannot be set, as a sentence; "" if it can."""
        if self.is_trained_here:
            return ""
        return f"The program that {'trains' if self.is_trained_elsewhere else 'trained'} this run sets its own speed"

    @property
    def can_twin(self) -> bool:
        return self.is_trained_here and not ranks_allowed.several(self._simulator.requested)

    @property
    def can_stop(self) -> bool:
        return self._simulator.has_begun and not self._simulator.run.over

    @property
    def playing(self) -> bool:
        return self._simulator.going.status in ("running", "starting") and self._simulator.has_begun

    @property
    def has_steps(self) -> bool:
        """Whether the run has made a step, so that there is something to export."""
        return bool(len(self._simulator.run.history))

    @property
    def healthy_step(self) -> int | None:
        """Last healthy step of a run that diverged, if it can be rewound to it."""
        run = self._simulator.run
        if not self.is_trained_here:
            return None
        if self._healthy[:2] != (run, run.first_nonfinite_step):
            self._healthy = (run, run.first_nonfinite_step, last_healthy_step(run))
        return self._healthy[2]

    @property
    def last_changes(self) -> tuple[int, dict[str, tuple[Value, Value]]]:
        """Step and knobs, each before and after, of a manual change right before the run diverged."""
        return last_changes(self._simulator.run, self.healthy_step)

    @property
    def next_steps(self) -> str:
        """The current effect of Run: the label of its button."""
        run = self._simulator.going
        if self.playing:
            return "Pause"
        if not run.over or not (more := self._simulator.steps_to_go):
            return "Run"
        return "Go on" if run.status != "finished" else f"{more:,} more steps"

    @property
    def about_continuing(self) -> str:
        """The meaning of continuing a finished run, as a sentence; "" for any other run."""
        run, more = self._simulator.run, self._simulator.steps_to_go
        if not run.over or not more:
            return ""
        schedule = self._simulator.requested.schedule
        ends = "" if schedule.kind == "constant" else f"; its schedule ends at total_steps = {schedule.total_steps:,}"
        return f"Makes {more:,} more steps behind the last one, as if the run had been planned that long{ends}"
