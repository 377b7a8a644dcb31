"""Runs whose rows a test writes itself, for what draws them."""

from __future__ import annotations

import numpy as np

from gradstudio.core.experiment import Experiment
from gradstudio.core.history import LAYER_METRICS
from gradstudio.core.presets import Preset
from gradstudio.core.row import Layer, Row
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter

LAYERS = (Layer("hidden.0.weight", "weight", 4), Layer("hidden.0.bias", "bias", 4), Layer("head.weight", "weight", 4))


def run_of(rows: list[dict]) -> Run:
    run = Run(Preset(id="p", title="P", experiment=Experiment()), Experiment())
    RunWriter(run).begin(LAYERS, {"device": "cpu"})
    add(run, rows)
    return run


def add(run: Run, rows: list[dict]) -> None:
    for values in rows:
        given = dict(
            loss=1.0, grad_norm=1.0, clipped_norm=1.0, clip_coef=1.0, lr=0.1, scale=1.0, skipped=False, nonfinite=0,
            update_ratio=1e-3,
            weight_norm=1.0, accuracy=0.5, step_seconds=0.01, layers=np.ones((len(LAYER_METRICS), len(LAYERS))),
        )  # fmt: skip
        RunWriter(run).record(Row(step=len(run.history), **(given | values)))
