"""How long a step takes on several ranks: in a run, in its plain program under torchrun, and in the plain loop of one
process with the whole batch. Medians, with one thread for each process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.plain import plain_step
from benchmarks.table import Figure
from gradstudio.core.experiment import Experiment
from gradstudio.program import data_files, script

STEPS, WARM = 400, 50
RANKS = (2, 4)
TEXTS = [
    "problem.batch_size=64", "accumulation.steps=4", "clipping.kind=norm", f"run.steps={STEPS}", "run.device=cpu",
    "run.stop_on_nonfinite=false",
]  # fmt: skip


def figures() -> Iterator[Figure]:
    one = Experiment().with_texts(TEXTS)
    step = plain_step(one)
    alone = 1e3 * float(np.median(np.diff([_called(step) for _ in range(STEPS)])[WARM:]))
    yield Figure("plain loop of one process, a step", alone, "ms")
    for ranks in RANKS:
        experiment = one.with_value("distributed.ranks", ranks)
        told, first, ended = _under_torchrun(experiment)
        trained, ready = _trained(experiment)
        yield Figure(f"{ranks} ranks: a step of the run", trained, "ms")
        yield Figure(f"{ranks} ranks: a step of the plain program under torchrun", told, "ms")
        yield Figure(f"{ranks} ranks: run / torchrun, a step", trained / told)
        yield Figure(f"{ranks} ranks: run / plain loop of one process, a step", trained / alone)
        yield Figure(f"{ranks} ranks: to the first step of the run", ready, "s", note="the second run of the program")
        yield Figure(f"{ranks} ranks: to the first step under torchrun", first, "s")
        yield Figure(f"{ranks} ranks: all {STEPS} steps under torchrun", ended, "s")


def _called(step: Callable[[], object]) -> float:
    step()
    return time.perf_counter()


def _trained(experiment: Experiment) -> tuple[float, float]:
    """Return the milliseconds of a step, and the seconds to the end of the first, where ranks were begun before."""
    from gradstudio.engine.ranks.ranked_trainer import RankedTrainer

    RankedTrainer(experiment).close()
    started = time.perf_counter()
    trainer = RankedTrainer(experiment)
    times = [_called(trainer.advance) for _ in range(STEPS)]
    trainer.close()
    return 1e3 * float(np.median(np.diff(times)[WARM:])), times[0] - started


def _under_torchrun(experiment: Experiment) -> tuple[float, float, float]:
    """Return the milliseconds between two lines that the program prints, and the seconds to the first line and to the
    end."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "train.py"
        program.write_text(script(experiment), encoding="utf-8")
        for path in data_files(program.read_text(encoding="utf-8")):
            (Path(folder) / path.name).write_bytes(path.read_bytes())
        started = time.perf_counter()
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
        with subprocess.Popen(
            [*command, str(experiment.distributed.ranks), str(program)], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env=os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}, text=True,
        ) as child:  # fmt: skip
            assert child.stdout is not None
            times = [time.perf_counter() for line in child.stdout if line[:1].isdigit()]
        ended = time.perf_counter() - started
    return 1e3 * float(np.median(np.diff(times)[WARM:])), times[0] - started, ended
