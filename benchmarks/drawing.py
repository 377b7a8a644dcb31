"""What a frame costs: a beat of the heart and the paint events that it causes, while rows arrive."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.table import Figure
from gradstudio.session.record.run_writer import RunWriter

LAYERS = 42
LONG = 1_000_000  # steps
FRAMES = 300
NEW = 20  # rows that arrive between two frames: 600 steps a second


def figures() -> Iterator[Figure]:
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    for steps, most in ((1_000, 6.0), (LONG, 8.0)):
        note = (
            f"median of {FRAMES} frames, {LAYERS} layers, {NEW} new rows each, 1440x900, "
            f"{os.environ['QT_QPA_PLATFORM']}; CPU time of the GUI thread"
        )
        whole = _Frames(steps, whole=True)
        yield Figure(
            f"a frame of all plots and the heatmap, run of {steps:,} steps",
            statistics.median(whole.all),
            "ms",
            most=most,
            note=note,
        )
        yield Figure("of it in Python, for which training waits", statistics.median(whole.beats), "ms")
        yield Figure(
            "its 99th percentile", sorted(whole.all)[int(0.99 * FRAMES)], "ms", note="where the axes have moved"
        )
        live = _Frames(steps, whole=False)
        yield Figure(
            "the same while training, mean",
            statistics.fmean(live.all),
            "ms",
            note="a plot is left as it is while its new rows are no pixel wide",
        )


class _Frames:
    """Milliseconds of each frame, of a run that has so many steps already: in the beat and in all. `whole`: every plot
    is drawn in every frame, also where that changes no pixel."""

    def __init__(self, steps: int, *, whole: bool) -> None:
        from PySide6.QtWidgets import QApplication

        from gradstudio.core import presets
        from gradstudio.gui.app import application
        from gradstudio.gui.window import Window

        self.app = application()
        self.window = Window(presets.load("deep-sigmoid-vanishing"))
        self.window.furnish()
        self.window.resize(1440, 900)
        self.window.show()
        rows = _rows(self.window.simulator.run)
        RunWriter(self.window.simulator.run).set_status("paused" if whole else "running")
        for step in range(steps):
            next(rows)
            if step % 10_000 == 0:
                self.window.refresh()
        self.beats: list[float] = []
        self.all: list[float] = []
        for frame in range(-10, FRAMES):  # the first few to warm up
            for _ in range(NEW):
                next(rows)
            started = time.thread_time()
            self.window.refresh()
            beaten = time.thread_time()
            QApplication.sendPostedEvents()
            self.app.processEvents()
            if frame >= 0:
                self.beats.append(1000 * (beaten - started))
                self.all.append(1000 * (time.thread_time() - started))
        self.window.close()


def _rows(run) -> Iterator[None]:
    """A run that learns noisily, a row at a time."""
    from gradstudio.core.history import LAYER_METRICS
    from gradstudio.core.row import Layer, Row

    RunWriter(run).begin(
        tuple(Layer(f"hidden.{index}.weight", "weight", 4096) for index in range(LAYERS)), {"device": "cpu"}
    )
    random = np.random.default_rng(0)
    falling = np.geomspace(1e-6, 1, LAYERS)
    for step in range(2 * LONG):
        if step % 1000 == 0:
            noise = np.exp(0.3 * random.standard_normal((1000, 2)))
            layers = (
                np.exp(0.3 * random.standard_normal((1000, 1, LAYERS))) * falling * np.ones((len(LAYER_METRICS), 1))
            )
        loss, norm = noise[step % 1000] / (1 + step / 1000) ** 0.3
        run.history.append(
            Row(
                step=step,
                loss=loss,
                grad_norm=norm,
                clipped_norm=min(norm, 1.0),
                clip_coef=min(1 / norm, 1.0),
                lr=0.01,
                scale=1.0,
                skipped=False,
                nonfinite=0,
                update_ratio=1e-3,
                weight_norm=10.0,
                accuracy=0.5,
                step_seconds=1e-3,
                layers=layers[step % 1000],
            )
        )
        yield
