"""The baseline: a run that is drawn over every other run, until it is unpinned."""

from __future__ import annotations

from gradstudio.gui.drawing.overlay import MOST, Overlays
from gradstudio.gui.runs.run_overlay import overlaid
from gradstudio.gui.services.context import Context
from gradstudio.session.record.run import Run


class Baseline:
    def __init__(self, context: Context, overlays: Overlays) -> None:
        self._context, self._overlays = context, overlays
        self.run: Run | None = None
        self._over: Run | None = None  # the run that it was last drawn over

    def pin(self) -> None:
        """Keep the run in the plots as the baseline, which is drawn over every other run; unpin the existing one."""
        run, message = self._context.simulator.run, self._context.message
        if self.run is not None:
            record, self.run = self.run, None
            self._overlays.remove(record.id)
            message.show_news(f"“{record.title}” is no baseline any more.")
        elif not len(run.history):
            message.show_error("A baseline needs a run that has made a step: run it first.")
        else:
            self.run = run
            message.show_news(f"“{run.title}” is the baseline: it is drawn over every other run.")

    def draw(self) -> None:
        """Draw the baseline once another run is in the plots. The user may still remove it there."""
        run, pinned = self._context.simulator.run, self.run
        if run is self._over:
            return
        self._over = run
        if pinned is not None and run is not pinned and pinned.id not in self._overlays.slots:
            if self._overlays.full:
                self._context.message.show_error(
                    f"The plots have room for {MOST} overlays: remove one to see the baseline."
                )
            else:
                self._overlays.add(overlaid(pinned))
