"""Rewinding in each bundled preset: what the snapshots on the way cost, and how long it takes to rewind to the least
convenient of the last 1,000 steps, against making the steps from the nearest snapshot alone."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator

from benchmarks.table import Figure
from gradstudio.core import presets
from gradstudio.core.presets import Preset
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import LATEST
from gradstudio.session.running.rewind import Rewinder
from gradstudio.session.simulator import Simulator

STEPS = 1200  # of a preset that ends sooner
TRIED = 4  # of the steps that are furthest behind a snapshot


def figures() -> Iterator[Figure]:
    from gradstudio.engine.trainer import Trainer  # noqa: F401 (its import is no part of what is measured)

    for path in presets.available():
        preset = _long(presets.load(path.stem))
        building, step, taking, evaluating, size = _parts(preset)
        keeping, training, waits = _journey(preset)
        wait, again, alone = max(waits)
        kept = (
            f"one takes {1000 * taking:.2f} ms ({taking / step:.1f} × a step of {1000 * step:.2f} ms) and "
            f"{size / 2**20:.2f} MB"
        )
        yield Figure(
            f"snapshots, {preset.id}: share of the steps' time", 100 * keeping / training, "%", most=2, note=kept
        )
        bare = (
            f"{again} steps made again, which alone take {alone:.2f} s; Trainer {building:.2f} s, accuracy on the "
            f"test set {evaluating:.2f} s"
        )
        yield Figure(f"back to the worst of the last {LATEST:,} steps, {preset.id}", wait, "s", most=0.5, note=bare)


def _long(preset: Preset) -> Preset:
    """A preset that goes on through everything that happens, for longer than LATEST steps."""
    steps = max(preset.experiment.run.steps, STEPS)
    values = {"run.device": "cpu", "run.steps": steps, "run.stop_on_nonfinite": False}
    return preset.model_copy(update={"experiment": preset.experiment.with_values(values)})


def _parts(preset: Preset) -> tuple[float, float, float, float, int]:
    """Seconds to build a trainer, for a step, a snapshot, and the accuracy on the test set; and a snapshot's bytes."""
    from gradstudio.engine.snapshot import Snapshot
    from gradstudio.engine.trainer import Trainer

    building = _seconds(lambda: Trainer(preset.experiment), 3)
    trainer = Trainer(preset.experiment)
    steps = trainer.steps()
    for _ in range(30):  # passes are recorded by then
        next(steps)
    step = _seconds(lambda: next(steps), 20)
    return (
        building,
        step,
        _seconds(lambda: Snapshot.take(trainer), 20),
        _seconds(trainer.evaluate, 3),
        Snapshot.take(trainer).nbytes,
    )


def _journey(preset: Preset) -> tuple[float, float, list[tuple[float, int, float]]]:
    """Seconds that keeping snapshots and the steps took over the preset; and for some steps the wait for one, how many
    steps were made again, and how long those take by themselves."""
    spent = [0.0]
    keep_if_due = Rewinder.keep_if_due

    def timed(*args: object, **named: object) -> None:
        started = time.perf_counter()
        keep_if_due(*args, **named)  # pyright: ignore[reportArgumentType]
        spent[0] += time.perf_counter() - started

    simulator = Simulator(preset)
    Rewinder.keep_if_due = timed
    try:
        simulator.play()
        _until(lambda: simulator.run.over)
    finally:
        Rewinder.keep_if_due = keep_if_due
    run = simulator.run
    training = run.seconds
    waits = [_wait(simulator, run, step) for step in _worst(simulator, run)]
    simulator.close(10)
    return spent[0], training, waits


def _worst(simulator: Simulator, run: Run) -> list[int]:
    """Of the last steps those that are furthest behind a snapshot."""
    count, states = len(run.history), simulator.snapshots.steps(run)
    seconds = run.history.column("step_seconds").cumsum()
    ends = [
        (seconds[stop - 2] - (seconds[start - 1] if start else 0.0), stop - 1)
        for start, stop in zip(states, [*states[1:], count], strict=True)
        if stop - 1 > max(start, count - LATEST)
    ]
    return [step for _, step in sorted(ends)[-TRIED:]]


def _wait(simulator: Simulator, run: Run, step: int) -> tuple[float, int, float]:
    before = max(known for known in simulator.snapshots.steps(run) if known <= step)
    simulator.show(run)
    _until(lambda: not simulator.busy)
    started = time.perf_counter()
    simulator.rewind(step)
    _until(lambda: simulator.run.status == "paused" and simulator.run.replayed is None)
    wait = time.perf_counter() - started
    return wait, step - before, float(run.history.column("step_seconds", before, step).sum())


def _seconds(call: Callable[[], object], times: int) -> float:
    """At the median."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def _until(condition: Callable[[], bool]) -> None:
    tick = threading.Event()
    while not condition():
        tick.wait(0.001)
