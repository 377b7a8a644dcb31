"""What it costs that a worker trains: the wait of a restart, the bytes of its rows, and whether many rows make the
training wait."""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table import Figure
from gradstudio.core import python_process
from gradstudio.core.columns import COLUMNS, LAYER_METRICS
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import History
from gradstudio.core.presets import Preset
from gradstudio.core.row import Layer
from gradstudio.session.record.run import Run
from gradstudio.session.remote.remote_backend import RemoteBackend
from gradstudio.session.remote.run_news import RunReader, RunSender
from gradstudio.session.remote.served_looks import ServedTask
from gradstudio.session.running.backend import LocalBackend
from gradstudio.session.simulator import Simulator
from gradstudio.worker.frames import Frame
from gradstudio.worker.worker_process import Said, WorkerProcess

SMALL = {"model.depth": 3, "model.width": 64, "problem.batch_size": 64, "run.steps": 10_000_000, "run.device": "cpu"}
PRESET = Preset(id="benchmark", title="Benchmark", experiment=Experiment().with_values(SMALL))
RESTARTS = 15
TRAINING = 0.1  # seconds before each
THOUSANDS = 12  # of steps
LAYERS, ROWS, PIECE = 120, 5_000, 5  # rows a second, and at once
SECONDS, TURNS = 2.0, 4
_FILLING = "sys.path.insert(0, sys.argv[2])\nfrom benchmarks import worker; worker.serve(sys.argv[1])"


def figures() -> Iterator[Figure]:
    backend = RemoteBackend()
    there, here = Simulator(PRESET, backend=backend), Simulator(PRESET, backend=LocalBackend())
    waits = {simulator: _restarts(simulator, 2) for simulator in (there, here)}
    for _ in range(RESTARTS):
        for simulator, found in waits.items():
            found += _restarts(simulator, 1)
    medians = {simulator: statistics.median(found[2:]) for simulator, found in waits.items()}
    worst, alone = max(waits[there][2:]), medians[here]
    note = f"worst {1e3 * worst:.0f} ms; {1e3 * alone:.1f} ms in the process itself, in turns"
    yield Figure("restart to its first row", 1e3 * medians[there], "ms", most=50, note=note)
    here.close(10)
    yield _bytes(there, backend.warm())
    there.close(10)
    yield from _many_rows()


def _restarts(simulator: Simulator, count: int) -> list[float]:
    """Seconds from Restart of a run that trains to the first row of the next. Nothing trains afterwards."""
    found = []
    for _ in range(count):
        for _ in range(2):
            began = time.perf_counter()
            simulator.restart()
            _until(lambda: len(simulator.run.history) > 0)
            last = time.perf_counter() - began
            time.sleep(TRAINING)
        found.append(last)
        simulator.stop()
        _until(lambda: simulator.run.over and not simulator.busy)
    return found


def _bytes(simulator: Simulator, process: WorkerProcess) -> Figure:
    """Return the bytes that a thousand steps take late in a run against those early."""
    simulator.restart()
    told = []
    for thousand in range(1, THOUSANDS + 1):
        _until(lambda end=1000 * thousand: len(simulator.run.history) >= end)
        told.append((process.bytes, len(simulator.run.history)))
    rates = [1000 * (after - before) / (stop - start) for (before, start), (after, stop) in pairwise(told)]
    early, late = statistics.median(rates[:4]), statistics.median(rates[-4:])
    return Figure(
        "bytes a thousand steps, late against early", late / early, most=1.1, note=f"{early:,.0f} and {late:,.0f}"
    )


def _many_rows() -> Iterator[Figure]:
    root = str(Path(__file__).parents[1])
    process = WorkerProcess(lambda nonce: python_process.command(_FILLING, nonce, root))
    process.greeted.wait()
    turns: dict[bool, list[_Taken]] = {True: [], False: []}
    for _ in range(TURNS):
        for told, found in turns.items():
            found.append(_Taken())
            process.post({"m": "fill", "to": process.add(found[-1]), "told": told})
            _until(lambda one=found[-1]: one.end is not None)
    process.kill()
    made = {told: statistics.median(one.end["made"] for one in found if one.end) for told, found in turns.items()}
    longest = {told: max(one.end["longest"] for one in found if one.end) for told, found in turns.items()}
    complete = all(len(one.run.history) == one.end["rows"] for one in turns[True] if one.end)
    note = (
        f"{made[True]:,.0f} and {made[False]:,.0f} rows/s; longest append {1e3 * longest[True]:.1f} and "
        f"{1e3 * longest[False]:.1f} ms; {'every row came' if complete else 'ROWS ARE MISSING'}"
    )
    name = f"{ROWS:,} rows/s of {LAYERS} layers, told against not told"
    yield Figure(name, made[True] / made[False], least=0.98, note=note)


class _Taken:
    """Takes the rows, and the end."""

    def __init__(self) -> None:
        self.run, self.end = _run(), None
        self._reader = RunReader(self.run)

    end: dict[str, Any] | None

    def take(self, frame: Frame) -> None:
        if frame.head["m"] == "end":
            self.end = frame.head
        else:
            self._reader.take(frame.head, frame.raw)

    def unheard(self, seconds: float) -> None:
        pass

    def lose(self, why: str, trace: str) -> None:
        self.end = self.end or {"made": 0.0, "longest": 0.0, "rows": -1}


def _run() -> Run:
    layers = tuple(Layer(f"layer.{number}", "weight", 4096) for number in range(LAYERS))
    return Run(PRESET, PRESET.experiment, history=History(layers))


# ---- what the worker does


class _Filling(ServedTask):
    """Adds rows at an even rate, as a training would."""

    def __init__(self, to: int, told: bool) -> None:
        super().__init__(to)
        self._run, self._longest, self._made = _run(), 0.0, 0.0
        self._told = RunSender(self._run) if told else None
        self._thread = threading.Thread(target=self._fill, name="filling", daemon=True)

    def begin(self) -> None:
        self._thread.start()
        super().begin()

    def stop(self) -> None:
        pass

    def news(self) -> list[Said]:
        self.over = not self._thread.is_alive()
        said = self._told.news(self.to) if self._told else []
        end = {"made": self._made, "longest": self._longest, "rows": len(self._run.history)}
        return [*said, ({"m": "end", "to": self.to, **end}, ())] if self.over else said

    def _fill(self) -> None:
        columns = np.random.default_rng(0).random((PIECE, len(COLUMNS)))
        layers = np.random.default_rng(1).random((len(LAYER_METRICS), PIECE, LAYERS)).astype(np.float32)
        began = time.perf_counter()
        for piece in range(int(SECONDS * ROWS / PIECE)):
            if (ahead := began + piece * PIECE / ROWS - time.perf_counter()) > 0:
                time.sleep(ahead)
            at = time.perf_counter()
            self._run.history.extend(columns, layers)
            self._longest = max(self._longest, time.perf_counter() - at)
        self._made = len(self._run.history) / (time.perf_counter() - began)


def serve(nonce: str) -> None:
    """Be a worker that fills a run where it is asked to."""
    from gradstudio.session.remote import serving

    def on_fill(server: Any, head: dict[str, Any], raw: memoryview) -> None:
        server._serve(_Filling(head["to"], head["told"]))

    serving.Server._on_fill = on_fill  # pyright: ignore[reportAttributeAccessIssue]
    serving.main(nonce)


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition():
        time.sleep(0.0005)
        if time.monotonic() > end:
            sys.exit("it did not happen")
