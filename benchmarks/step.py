"""A training step with everything measured, against the plain loop of the same experiment in the same run.

Process CPU time of interleaved rounds, so that other programs and the clock of the processor fall out of the ratio; on
CUDA the time by the clock until the device has done its work."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.plain import plain_step
from benchmarks.table import Figure
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import History
from gradstudio.core.presets import Preset
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.running.run_driver import RunDriver

ROUNDS, SECONDS = 15, 0.25  # a round of each kind takes about so long

MLP = [
    "model.kind=mlp",
    "model.depth=20",
    "model.width=64",
    "model.activation=relu",
    "model.init=he",
    "problem.batch_size=64",
]
CLIP = ["clipping.kind=norm", "run.device=cpu"]
CASES: dict[str, tuple[list[str], float]] = {
    "MLP-20, SGD": ([*MLP, "optimizer.kind=sgd", "optimizer.lr=0.001"], 0.85),
    "MLP-20, Adam": ([*MLP, "optimizer.kind=adam", "optimizer.lr=0.0001"], 0.70),
    "RNN-100": (
        [
            "model.kind=rnn",
            "model.depth=1",
            "model.width=128",
            "model.activation=tanh",
            "problem.task=adding",
            "problem.seq_len=100",
        ],
        1.01,
    ),
    "transformer-4": (
        ["model.kind=transformer", "model.depth=4", "model.width=64", "problem.task=characters", "problem.seq_len=64"],
        1.01,
    ),
    "CNN-6": (["model.kind=cnn", "model.depth=6", "model.width=16", "problem.batch_size=64"], 1.01),
}


def figures() -> Iterator[Figure]:
    for name, (texts, most) in CASES.items():
        experiment = Experiment().with_texts([*texts, *CLIP])
        plain, ours = compare(plain_step(experiment), our_step(experiment))
        yield _figure(name, plain, ours, most)
    experiment = Experiment().with_texts([*CASES["MLP-20, SGD"][0], *CLIP])
    yield Figure(
        "step, MLP-20, SGD, written to the library / not",
        _written(experiment),
        most=1.01,
        note="CPU of both threads; the other core does the writing",
    )
    yield Figure(
        "rules and events, MLP-20, SGD",
        100 * _of_rules(experiment),
        "% of a step",
        most=1,
        note="where they are taken, by the clock",
    )
    yield from on_cuda()


def on_cuda() -> Iterator[Figure]:
    """The same where there is a CUDA device: each pass through autograd, and as a CUDA graph."""
    import torch

    from gradstudio.engine.passes import forward_backward

    if not torch.cuda.is_available():
        yield Figure("step on CUDA", math.nan, note="not measured: there is no CUDA device here")
        return
    patience = forward_backward.PATIENCE
    for name, (texts, _) in CASES.items():
        experiment = Experiment().with_texts([*texts, *CLIP, "run.device=cuda:0"])
        for kind, forward_backward.PATIENCE, most in (("eager", math.inf, 1.02), ("CUDA graph", patience, 0.5)):
            plain, ours = compare(plain_step(experiment), our_step(experiment), timed=seconds_on_cuda)
            yield _figure(f"{name}, on CUDA, {kind}", plain, ours, most)


def _figure(name: str, plain: float, ours: float, most: float) -> Figure:
    return Figure(
        f"step, {name}",
        ours / plain,
        most=most,
        note=f"plain loop {1000 * plain:.2f} ms, GradStudio {1000 * ours:.2f} ms",
    )


def _written(experiment: Experiment, steps: int = 15_000) -> float:
    """CPU time of all threads over that of the one that trains: beside it there is only the one that writes."""
    with tempfile.TemporaryDirectory() as folder:
        writer = LibraryWriter(Path(folder) / "library.sqlite3")
        step = our_step(experiment, writer)
        for _ in range(60):
            step()
        all_threads, this_one = time.process_time(), time.thread_time()
        for _ in range(steps):
            step()
        this_one = time.thread_time() - this_one
        writer.close()
        return (time.process_time() - all_threads) / this_one


def _of_rules(experiment: Experiment, steps: int = 15_000) -> float:
    """The share of training that rules and events take, beside adding the row to the History, as they find the
    processor's caches: full of the model, in which they take several times what they take one behind the other."""
    spent = dict.fromkeys((RunWriter.append, RunWriter.look, History.append), 0.0)

    def timed(do: Callable[..., None]) -> Callable[..., None]:
        def call(*given: Any) -> None:
            started = time.perf_counter()
            do(*given)
            spent[do] += time.perf_counter() - started

        return call

    step = our_step(experiment)
    with (
        patch.object(RunWriter, "append", timed(RunWriter.append)),
        patch.object(RunWriter, "look", timed(RunWriter.look)),
        patch.object(History, "append", timed(History.append)),
    ):
        for _ in range(60):
            step()
        spent.update(dict.fromkeys(spent, 0.0))
        started = time.perf_counter()
        for _ in range(steps):
            step()
        taken = time.perf_counter() - started
    return (spent[RunWriter.append] - spent[History.append] + spent[RunWriter.look]) / taken


def our_step(experiment: Experiment, writer: LibraryWriter | None = None) -> Callable[[], None]:
    """Return what makes one step at a call, as the worker does, with its rules, events and snapshots. `writer` writes
    the rows to a library."""
    run = Run(
        Preset(id="benchmark", title="Benchmark", experiment=experiment), experiment.with_value("run.steps", 1_000_000)
    )
    driver = RunDriver(run, Snapshots())
    driver.begin(None, lambda: False)
    if writer:
        writer.follow(run)
    return partial(driver.step, "running")


def compare(*kinds: Callable[[], None], timed: Callable[[Callable[[], None], int], float] | None = None) -> list[float]:
    """Seconds a call of each, of CPU if not `timed` otherwise: the median over interleaved rounds of `SECONDS` each."""
    timed = timed or seconds_of
    calls = []
    for step in kinds:
        for _ in range(60):  # passes are recorded by then
            step()
        calls.append(max(1, round(SECONDS / timed(step, 5))))
    rounds = [[timed(step, count) for step, count in zip(kinds, calls, strict=True)] for _ in range(ROUNDS)]
    return [statistics.median(each) for each in zip(*rounds, strict=True)]


def seconds_of(step: Callable[[], None], calls: int) -> float:
    started = time.process_time()
    for _ in range(calls):
        step()
    return (time.process_time() - started) / calls


def seconds_on_cuda(step: Callable[[], None], calls: int) -> float:
    """By the clock, from and until there is nothing left for the device to do."""
    import torch

    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(calls):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / calls
