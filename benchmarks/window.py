"""What the open window costs the training, how soon it answers meanwhile, and how soon it is there.

Every measurement is a process of its own: training beside the real window, or a launch. The window takes turns with
itself asleep, second by second, so that all else falls out of the ratio: where the memory of a process lies, and what
else the machine does."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.startup import with_bytecode
from benchmarks.table import Figure

if TYPE_CHECKING:
    from gradstudio.core.presets import Preset
    from gradstudio.gui.window import Window

ROUNDS = 5  # processes
TURNS = 12  # of the window awake and asleep, in each
LAUNCHES = 7
SECONDS = 0.8  # of training in a turn
SETTLING = 0.1  # seconds before each that are not counted
WARM_UP = 3  # seconds of training before, in which the step axis moves often
PROBING = 6  # seconds in which the event loop is looked at
LOOK_EVERY = 5  # ms between two looks at the event loop
CASES = {
    "a small MLP (3 x 64) at full speed": [
        "model.kind=mlp",
        "model.depth=3",
        "model.width=64",
        "problem.batch_size=64",
        "optimizer.lr=0.01",
    ],
    "MLP-20 at full speed": [
        "model.kind=mlp",
        "model.depth=20",
        "model.width=64",
        "model.init=he",
        "problem.batch_size=64",
        "optimizer.lr=0.001",
    ],
}


def figures() -> Iterator[Figure]:
    platform = os.environ.get("QT_QPA_PLATFORM", "offscreen")
    for name, knobs in CASES.items():
        windows = [_child("window", *knobs) for _ in range(ROUNDS)]
        ratios = sorted(ratio for window in windows for ratio in window["ratios"])
        alone = statistics.median(window["rate"] for window in windows)
        delays = sorted(delay for window in windows for delay in window["delays"])
        beats = statistics.median(window["beats"] for window in windows)
        spread = (
            f"middle half {ratios[len(ratios) // 4]:.2f} to {ratios[3 * len(ratios) // 4]:.2f} of {len(ratios)} turns"
        )
        note = f"{platform}, {spread}; {alone:.0f} steps/s while it sleeps"
        yield Figure(f"rate with the window open, {name}", statistics.median(ratios), least=0.95, note=note)
        yield Figure(
            "beats, each of all plots",
            beats,
            "/s",
            note="30 at the most; fewer where they would take more than their share of a core",
        )
        yield Figure(
            "Python on the GUI thread", 100 * statistics.median(window["python"] for window in windows), "% of a core"
        )
        yield Figure("event-loop delay while training, 99th percentile", delays[int(0.99 * len(delays))], "ms", most=25)
        yield Figure(
            "event-loop delay while training, worst", delays[-1], "ms", most=100, note=f"of {len(delays):,} looks"
        )
    launches = [_child("launch") for _ in range(LAUNCHES + 1)][
        1:
    ]  # the first one writes Python's bytecode, as that of a fresh installation
    yield Figure("first paint, from launch", statistics.median(each["paint"] for each in launches), "s", most=0.7)
    yield Figure(
        "the plots behind it, when the window answers", statistics.median(each["plots"] for each in launches), "s"
    )
    yield Figure(
        "first loss point, from launch, Run pressed at once",
        statistics.median(each["point"] for each in launches),
        "s",
        most=3,
    )
    yield Figure(
        "event loop while torch is imported, worst delay",
        statistics.median(each["stall"] for each in launches),
        "ms",
        most=100,
    )


def _child(*what: str) -> dict:
    """One measurement, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        own = {
            "QT_QPA_PLATFORM": "offscreen",
            "GRADSTUDIO_THREADS": "1",
            "GRADSTUDIO_LIBRARY": str(Path(folder) / "runs.sqlite3"),
        }
        command = [sys.executable, "-m", "benchmarks.window", str(time.monotonic()), *what]
        answer = subprocess.run(command, env=own | with_bytecode(), capture_output=True, check=True, text=True).stdout
        return json.loads(answer.splitlines()[-1])


# ---- what such a process does


def _preset(knobs: list[str]) -> Preset:
    from gradstudio.core.experiment import Experiment
    from gradstudio.core.presets import Preset

    experiment = Experiment().with_texts(
        [*knobs, "run.steps=10000000", "run.device=cpu", "run.stop_on_nonfinite=false"]
    )
    return Preset(id="benchmark", title="Benchmark", experiment=experiment)


def _window(knobs: list[str]) -> dict:
    from gradstudio.gui.app import application
    from gradstudio.gui.window import Window
    from gradstudio.session.running.worker_commands import UNLIMITED

    application()
    window = Window(_preset(knobs))
    window.furnish()
    window.resize(1440, 900)
    window.heartbeat.start(settled=False)
    window.machine.look()  # as the program does: with torch there, the heart looks past it for garbage
    window.show()
    window.simulator.set_speed(UNLIMITED)
    window.controls.run_or_pause()
    while not len(window.simulator.run.history):
        pump(0.02)
    pump(WARM_UP)
    beats: list[float] = []
    refresh = window.heartbeat._refresh

    def timed() -> None:
        started = time.thread_time()
        refresh()
        beats.append(time.thread_time() - started)

    window.heartbeat._refresh = timed

    worker: Any = window.simulator._worker

    def made() -> int:
        here = getattr(worker, "_drivers", None)
        return here[0].trainer.step if here else len(window.simulator.run.history)

    def rate(spend: Callable[[float], None]) -> float:
        """Steps a second: as they are made in this process, where their rows come together, or as they come from another."""
        spend(SETTLING)
        steps, started = made(), time.perf_counter()
        spend(SECONDS)
        return (made() - steps) / (time.perf_counter() - started)

    asleep, awake = [], []
    for turn in range(TURNS):
        for rates, spend in ((asleep, time.sleep), (awake, pump))[:: 1 if turn % 2 else -1]:
            rates.append(rate(spend))
    seconds = TURNS * (SETTLING + SECONDS)
    number, python = len(beats), sum(beats)
    delays = event_loop_delays(window)  # not before: to look so often takes time from the training too
    pump(PROBING)
    window.close()
    return {
        "rate": statistics.median(asleep),
        "ratios": [with_it / without for with_it, without in zip(awake, asleep, strict=True)],
        "delays": delays, "beats": number / seconds, "python": python / seconds,
    }  # fmt: skip


def _launch(began: float) -> dict:
    """The program from its start to the first loss on the screen. Run is pressed as soon as that is possible."""
    from gradstudio.gui import app as program
    from gradstudio.gui.pyside_internals import leave_sources_unread

    leave_sources_unread()  # as the program does before it imports the window
    from gradstudio.gui.window import Window

    found: dict = {}
    furnishing = Window.furnishing

    def timed(window: Window) -> Iterator[None]:
        found["paint"] = time.monotonic() - began  # it comes right behind the first one
        return chain(furnishing(window), watched(window))

    def watched(window: Window) -> Iterator[None]:
        _time_paints(window, began, found)
        yield

    Window.furnishing = timed
    program.launch("deep-sigmoid-vanishing")
    return found


def pump(seconds: float) -> None:
    """Let Qt go on for so long. Not QApplication.quit, which closes the window."""
    from PySide6.QtCore import QEventLoop, QTimer

    loop = QEventLoop()
    QTimer.singleShot(round(1000 * seconds), loop.quit)
    loop.exec()


def event_loop_delays(parent) -> list[float]:
    """A list that fills with the ms by which a timer comes later than it is due."""
    from PySide6.QtCore import Qt, QTimer

    timer = QTimer(parent)
    timer.setTimerType(Qt.TimerType.PreciseTimer)
    delays: list[float] = []
    last = time.perf_counter()

    def tick() -> None:
        nonlocal last
        now = time.perf_counter()
        delays.append(max(1000 * (now - last) - LOOK_EVERY, 0.0))
        last = now

    timer.timeout.connect(tick)
    timer.start(LOOK_EVERY)
    return delays


def _time_paints(window: Window, began: float, found: dict) -> None:
    from PySide6.QtCore import QEvent, QObject, QTimer

    class Watcher(QObject):
        def eventFilter(self, watched: QObject, event: QEvent) -> bool:
            if event.type() == QEvent.Type.Paint and "plots" not in found:
                found["plots"] = time.monotonic() - began
                QTimer.singleShot(0, press)
            return False

    def press() -> None:
        nonlocal delays
        window.plots.loss.widget.viewport().removeEventFilter(watcher)
        delays = event_loop_delays(window)
        window.controls.run_or_pause()
        look.start(5)

    def see() -> None:
        if len(window.plots.loss.raw.curve.getData()[0]):
            look.stop()
            found["point"] = time.monotonic() - began
            QTimer.singleShot(1500, end)  # the devices are looked for now

    def end() -> None:
        found["stall"] = max(delays)
        window.close()

    delays: list[float] = []
    watcher, look = Watcher(window), QTimer(window)
    look.timeout.connect(see)
    window.plots.loss.widget.viewport().installEventFilter(watcher)


if __name__ == "__main__":
    began, kind, *rest = sys.argv[1:]
    print(
        json.dumps({"window": lambda: _window(rest), "launch": lambda: _launch(float(began))}[kind]()),
        flush=True,
    )
    os._exit(0)
