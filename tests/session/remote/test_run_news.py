"""What is told of a run: nothing twice, so that a thousand steps take as many bytes late as early."""

from __future__ import annotations

import numpy as np

from gradstudio.core.columns import COLUMNS, LAYER_METRICS
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import History
from gradstudio.core.presets import Preset
from gradstudio.core.row import Activations, Layer
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.remote.run_news import RunSender
from gradstudio.worker import frames

LAYERS = (Layer("first.weight", "weight", 6), Layer("first.bias", "bias", 3))


def test_bytes_do_not_grow_with_the_step() -> None:
    preset = Preset(id="small", title="Small", experiment=Experiment())
    run = Run(preset, preset.experiment, history=History(LAYERS))
    told, writer, sizes = RunSender(run), RunWriter(run), []
    finding = Finding("loss_spike", "warning", "Loss spike", 100, 100, (), "It rose.", "It fell again.", ())
    columns = np.ones((100, len(COLUMNS)))
    layers = np.ones((len(LAYER_METRICS), 100, len(LAYERS)), np.float32)
    for _ in range(100):
        step = len(run.history)
        run.history.extend(columns, layers)
        run.history.activations.append(Activations(step, ()))
        writer.note("notice", "Something happened.")
        writer.find(finding.until(step) if step > 100 else finding)
        said = told.news(1)
        sizes.append(sum(len(piece) for head, raw in said for piece in frames.pack(head, raw)))
    early, late = sum(sizes[2:12]), sum(sizes[-10:])
    assert late < 1.03 * early, (early, late)  # a step has more digits
    assert early > 1000 * (8 * len(COLUMNS) + 4 * len(LAYER_METRICS) * len(LAYERS))
    assert told.news(1) == []
