"""A plug-in of GradStudio: a rule with its remedies, a column, a gauge, an export, and a folder of presets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import LAYER_METRICS

PRESETS = Path(__file__).parent / "quiet_layers_presets"
NORM = list(LAYER_METRICS).index("grad_norm")


def quietest_layer(row):
    """A column: a number of each step, from what was measured there. GradStudio stores and draws it."""
    norms = row.layers[NORM]
    return float(norms.min() / norms.max()) if norms.size and norms.max() > 0 else float("nan")


class LargestWeight:
    """A gauge: a number of the model every `every` steps."""

    every = 10

    def measure(self, model):
        return max(float(parameter.detach().abs().max()) for parameter in model.parameters())


@dataclass
class QuietLayer(PeriodicRule):
    """Fires where a layer gets less than `least` of the gradient that another one gets. Its public fields are
    thresholds, which rules.toml can set."""

    rule = "quiet_layer"
    least: float = 1e-4

    def look(self, history, state):
        norms = history.layer_metric("grad_norm", len(history) - 1, len(history))[0]
        if not norms.size or not np.isfinite(norms).all() or norms.min() >= self.least * norms.max():
            return
        layer = history.layers[int(norms.argmin())].name
        self.tell(
            history, "warning", "A layer hardly gets a gradient",
            f"The gradient norm of {layer} is {norms.min():.2g}, of the loudest layer {norms.max():.2g}.",
            "It learns so much more slowly than the rest that it stays as it was drawn.",
            # a change of knobs is tried and translated; any other text is a line for a script that is watched
            ("model.init=xavier", "`nn.init.xavier_uniform_(layer.weight)` for every layer"), (layer,),
        )  # fmt: skip


def markdown(run):
    """An export: the files of a run by their names, for `gradstudio report RUN --format markdown`."""
    loss = run.history.column("loss")
    return {"run.md": f"# {run.title}\n\n{len(loss)} steps, loss {loss[0]:.3g} to {loss[-1]:.3g}\n"}
