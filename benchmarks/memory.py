"""What a run of a million steps with 60 layers takes while its window is open, what keeping a row costs, and how well the
memory of a step is told before it is made (footprint.py).

In a process of its own: torch is imported, a thread fills a real Run as the worker does, and the window shows it
offscreen with its heart beating. Then another metric of the layers is chosen, and last the run's large files are
written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks import footprint
from benchmarks.table import Figure
from gradstudio.core import files
from gradstudio.core.columns import COLUMNS
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import LAYER_METRICS
from gradstudio.core.loop_calls import Loop
from gradstudio.core.presets import Preset
from gradstudio.core.row import Layer, Row
from gradstudio.session.files import run_files
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter

STEPS, LAYERS = 1_000_000, 60


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as home:  # no settings of the user's, and none left behind
        environment = os.environ | {"QT_QPA_PLATFORM": "offscreen", "GRADSTUDIO_THREADS": "1", "XDG_CONFIG_HOME": home}
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.memory"], env=environment, stdout=subprocess.PIPE, check=True, text=True
        )
    found = json.loads(done.stdout.splitlines()[-1])
    run = f"{STEPS:,} steps, {LAYERS} layers"
    yield Figure(
        f"memory, {run}, window open: at most",
        found["most"],
        "GB",
        most=1.2,
        note=f"{found['empty']:.2f} GB before the first step",
    )
    yield Figure("memory at its end", found["full"], "GB", most=1.2)
    first, second = found["first_half"], found["second_half"]
    yield Figure(
        "a row, second half / first half",
        second / first,
        most=1.1,
        note=f"{first:.0f} and {second:.0f} bytes; {8 * len(COLUMNS)} are its columns",
    )
    yield Figure("memory at most, another metric chosen", found["chosen"], "GB", most=1.2)
    yield Figure(
        "memory at most, metrics.csv and layers.npz written",
        found["written"],
        "GB",
        most=1.2,
        note=f"in {found['writing']:.0f} s",
    )
    yield Figure("adding a row to the History", microseconds_to_append(), "µs", most=8)
    yield from footprint.figures()


def new_run() -> Run:
    experiment = Experiment().with_value("run.steps", STEPS)
    run = Run(Preset(id="memory", title="Memory", experiment=experiment), experiment)
    RunWriter(run).begin(
        tuple(
            Layer(f"hidden.{index // 2}.{('weight', 'bias')[index % 2]}", ("weight", "bias")[index % 2], 64)
            for index in range(LAYERS)
        ),
        {},
    )
    return run


def rows(count: int) -> Iterator[Row]:
    """Rows of a healthy run: the loss falls, every value is another."""
    random = np.random.default_rng(0)
    layers = random.lognormal(-3, 1, (997, len(LAYER_METRICS), LAYERS)).astype(np.float32)
    noise = random.lognormal(0, 0.1, 997).tolist()
    loop = Loop(("zero_grad", "forward", "backward", "step", "schedule"), 1, False, "none", False)
    for step in range(count):
        jitter = noise[step % 997]
        loss = jitter * (0.1 + 2.2 / (1 + step / 1000))
        yield Row(
            step, loss, jitter, jitter, 1.0, 0.1, 1.0, False, 0, 1e-3 * jitter, 7.0, 0.9, 1e-3, layers[step % 997], loop
        )


def microseconds_to_append(count: int = 20_000) -> float:
    """CPU time to add a row that was measured to the History, at best of some rounds."""
    made = list(rows(count))
    return min(_microseconds(made) for _ in range(7))


def _microseconds(made: list[Row]) -> float:
    append, started = new_run().history.append, time.process_time()
    for row in made:
        append(row)
    return 1e6 * (time.process_time() - started) / len(made)


def watched_run() -> dict[str, float]:
    """The figures of the process that this is, which nothing else has run in."""
    import torch  # noqa: F401 (it is part of what an open window takes)

    from gradstudio.gui.app import application
    from gradstudio.gui.window import Window

    application()
    window = Window(Preset(id="memory", title="Memory", experiment=Experiment()))
    window.furnish()
    window.heartbeat.start()
    window.show()
    run = window.simulator.run = new_run()
    RunWriter(run).set_status("running")
    found = {"empty": _watch(seconds=1.0)}

    def fill() -> None:
        for row in rows(STEPS):
            RunWriter(run).record(row)
            if row.step == STEPS // 2:
                found["half"] = _status("VmRSS")

    found["most"] = _watch(beside=fill)
    found["full"] = _status("VmRSS")
    found["chosen"] = _watch(lambda: window.plots.layers.choose("zero_share"), seconds=1.0)
    started = time.perf_counter()
    found["written"] = _watch(beside=lambda: _write(run))
    found["writing"] = time.perf_counter() - started
    RunWriter(run).set_status("finished")
    window.close()
    found["first_half"] = 1e9 * (found["half"] - found["empty"]) / (STEPS // 2)
    found["second_half"] = 1e9 * (found["full"] - found["half"]) / (STEPS // 2)
    return found


def _watch(
    do: Callable[[], None] | None = None, beside: Callable[[], None] | None = None, seconds: float = 0.0
) -> float:
    """Do one thing in the window's thread, another beside it, and let the window live meanwhile, so long at least.
    Gives the most memory that was taken."""
    from PySide6.QtTest import QTest

    Path("/proc/self/clear_refs").write_text("5")  # the most so far is forgotten
    if do:
        do()
    thread = threading.Thread(target=beside)
    thread.start()
    end = time.monotonic() + seconds
    while thread.is_alive() or time.monotonic() < end:
        QTest.qWait(50)
    return _status("VmHWM")


def _write(run: Run) -> None:
    with tempfile.TemporaryDirectory(dir=files.user_cache()) as folder:
        for name in ("metrics.csv", "layers.npz"):
            files.write_whole(Path(folder) / name, run_files.FILES[name](run))


def _status(name: str) -> float:
    """Gigabytes, from what Linux says of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024 / 1e9
    raise LookupError(name)


if __name__ == "__main__":
    print(json.dumps(watched_run()))
