"""What a policy does, at every step. Why look: its loss says nothing of how far it has gone from the policy that drew
the batch, whether it still tries other actions, and what it is paid for."""

from __future__ import annotations

from gradstudio.core.combinations import ACTING
from gradstudio.core.text import number, percent
from gradstudio.core.unknown import is_known
from gradstudio.gui.drawing.axes import LogAxis
from gradstudio.gui.drawing.curve_source import Source
from gradstudio.gui.drawing.series import Series, log10, union
from gradstudio.gui.drawing.shared_cursor import Cursor, StepRange
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.gui.theme import theme
from gradstudio.session.record.run import Run

LEAST = -3.0  # log10 of the least value on view: the KL divergence of a first pass is only rounding


class PolicyPlot(StepPlot):
    """A plot that is there only for a task in which the model acts."""

    title = "Policy"
    help = (
        "The largest ratio of an action's probability to that when it was drawn, the KL divergence from the policy "
        "that drew the batch, the entropy / the most that it can be, and the mean reward."
    )

    columns = ("policy_ratio", "policy_kl", "policy_entropy", "policy_reward")

    def __init__(self, steps: StepRange, cursor: Cursor) -> None:
        super().__init__(steps, cursor, LogAxis("left"))
        source = Source(self.columns, lambda name, history, start, stop: history.column(name, start, stop))
        roles = zip(self.columns, ("dim", "warning", "good", "accent"), strict=True)
        self.series = tuple(
            Series(self.canvas, source, name, role, marked=name == "policy_ratio") for name, role in roles
        )
        for series in self.series:
            series.scale = log10
        self.restyle()
        self.hide()

    def show_run(self, run: Run) -> None:
        """Be there for a run in which the model acts."""
        if has_policy(run) == self.isHidden():
            self.setVisible(has_policy(run))

    def fit_y(self, run: Run) -> None:
        if found := union(*(each.range(self.steps.first, self.steps.last) for each in self.series)):
            self.widget.set_y(max(found[0], LEAST), found[1], least=1.0)

    def draw(self, run: Run) -> None:
        for series in self.series:
            series.draw(run.history, self.steps.first, self.steps.last)

    def legend(self) -> str:
        c = theme.colors
        named = ((c.accent, "reward"), (c.good, "entropy"), (c.warning, "KL"), (c.dim, "ratio"))
        return " &nbsp; ".join(f"<span style='color:{color}'>—— {name}</span>" for color, name in named)

    def reading(self, run: Run, step: int) -> str:
        row = run.history.row(step)
        if not is_known(row["policy_ratio"]):
            return "not measured"
        return (
            f"reward {number(row['policy_reward'])} · entropy {percent(row['policy_entropy'])} · "
            f"KL {number(row['policy_kl'])} · ratio {number(row['policy_ratio'])}"
        )


def has_policy(run: Run) -> bool:
    """Return whether the model of a run acts."""
    return run.watched is None and run.experiment.studio_file is None and run.experiment.problem.task in ACTING
