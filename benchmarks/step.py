"""A training step with everything measured, against the plain loop of the same experiment in the same run.

Process CPU time of interleaved rounds, so that other programs and the clock of the processor fall out of the ratio.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.plain import plain_step
from benchmarks.table import Figure
from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.session.library.keeper import Keeper
from gradstudio.session.run import Run

ROUNDS, SECONDS = 15, 0.25  # a round of each kind takes about so long

MLP = ["model.kind=mlp", "model.depth=20", "model.width=64", "model.activation=relu", "model.init=he", "problem.batch_size=64"]
CLIP = ["clipping.kind=norm", "run.device=cpu"]
CASES: dict[str, tuple[list[str], float]] = {
    "MLP-20, SGD": ([*MLP, "optimizer.kind=sgd", "optimizer.lr=0.001"], 0.85),
    "MLP-20, Adam": ([*MLP, "optimizer.kind=adam", "optimizer.lr=0.0001"], 0.70),
    "RNN-100": (["model.kind=rnn", "model.depth=1", "model.width=128", "model.activation=tanh", "problem.task=adding", "problem.seq_len=100"], 1.01),
    "transformer-4": (["model.kind=transformer", "model.depth=4", "model.width=64", "problem.task=characters", "problem.seq_len=64"], 1.01),
    "CNN-6": (["model.kind=cnn", "model.depth=6", "model.width=16", "problem.batch_size=64"], 1.01),
}


def figures() -> Iterator[Figure]:
    for name, (texts, most) in CASES.items():
        experiment = Experiment().with_texts([*texts, *CLIP])
        plain, ours = compare(plain_step(experiment), our_step(experiment))
        yield Figure(f"step, {name}", ours / plain, most=most, note=f"plain loop {1000 * plain:.2f} ms, GradStudio {1000 * ours:.2f} ms")
    experiment = Experiment().with_texts([*CASES["MLP-20, SGD"][0], *CLIP])
    with tempfile.TemporaryDirectory() as folder:
        keeper = Keeper(Path(folder) / "library.sqlite3")
        kept, alone = compare(our_step(experiment, keeper), our_step(experiment), seconds=2.0)
        keeper.close()
    yield Figure(
        "step, MLP-20, SGD, written to the library / not", kept / alone, most=1.01, note="CPU of both threads; the other core does the writing"
    )


def our_step(experiment: Experiment, keeper: Keeper | None = None) -> Callable[[], None]:
    """Makes one step at a call, and records it as the worker does; the keeper writes it to a library."""
    from gradstudio.engine.trainer import Trainer

    trainer = Trainer(experiment)
    run = Run(Preset(id="benchmark", title="Benchmark", experiment=experiment), experiment)
    run.begin(trainer.layers, trainer.environment)
    if keeper:
        keeper.follow(run)
    steps = trainer.steps()
    return lambda: run.record(next(steps))


def compare(*kinds: Callable[[], None], seconds: float = SECONDS) -> list[float]:
    """Seconds of CPU a call of each, the median over interleaved rounds that take so many seconds each."""
    calls = []
    for step in kinds:
        for _ in range(30):  # passes are recorded by then
            step()
        calls.append(max(1, round(seconds / seconds_of(step, 5))))
    rounds = [[seconds_of(step, count) for step, count in zip(kinds, calls, strict=True)] for _ in range(ROUNDS)]
    return [statistics.median(each) for each in zip(*rounds, strict=True)]


def seconds_of(step: Callable[[], None], calls: int) -> float:
    started = time.process_time()
    for _ in range(calls):
        step()
    return (time.process_time() - started) / calls
