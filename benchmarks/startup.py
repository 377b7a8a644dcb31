"""Seconds from pressing Enter to the prompt, each in a process of its own, beside those of a Python that does
nothing."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from benchmarks.table import Figure

ROUNDS = 15

NOTHING = ("-c", "pass")
COMMANDS: dict[str, tuple[tuple[str, ...], float | None]] = {
    "import of the command line": (("-c", "import gradstudio.cli"), None),
    "gradstudio --help": (("-m", "gradstudio", "--help"), 0.2),
    "gradstudio presets": (("-m", "gradstudio", "presets"), 0.4),
    "gradstudio presets show rnn-explosion": (("-m", "gradstudio", "presets", "show", "rnn-explosion"), None),
}
TORCH = ("-c", "import torch")
WATCH = ("-c", "import torch, gradstudio; gradstudio.watch(torch.nn.Linear(1, 1), library='runs.sqlite3')")
MOST_OF_TORCH = 0.5  # of the time of `import torch`, in a container that has compiled nothing yet


def figures() -> Iterator[Figure]:
    calls = {"python -c pass": NOTHING, **{name: words for name, (words, _) in COMMANDS.items()}}
    rounds = [{name: seconds_of(words) for name, words in calls.items()} for _ in range(ROUNDS + 1)][1:]
    taken = {name: statistics.median(each[name] for each in rounds) for name in calls}
    nothing = taken["python -c pass"]
    for name, (_, most) in COMMANDS.items():
        yield Figure(
            name,
            taken[name],
            "s",
            most=most,
            note=f"{taken[name] / nothing:.0f} × `python -c pass`, which takes {nothing:.3f} s",
        )
    yield _beside_torch()


def _beside_torch() -> Figure:
    """Return what `gradstudio.watch` adds to `import torch`, / that: CPU time, as torch is read from the disk."""
    with tempfile.TemporaryDirectory() as fresh:
        rounds = [[cpu_seconds_of(words, fresh) for words in (NOTHING, TORCH, WATCH)] for _ in range(ROUNDS + 1)][1:]
    nothing, torch, watch = (statistics.median(each) for each in zip(*rounds, strict=True))
    return Figure(
        "import gradstudio, and gradstudio.watch / import torch", (watch - torch) / (torch - nothing), "",
        most=MOST_OF_TORCH, note=f"import torch takes {torch - nothing:.2f} s",
    )  # fmt: skip


def cpu_seconds_of(words: tuple[str, ...], fresh: str) -> float:
    environment = with_bytecode() | {"NUMBA_CACHE_DIR": fresh, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], env=environment, cwd=fresh, check=True, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def seconds_of(words: tuple[str, ...]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, *words], env=with_bytecode(), check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def with_bytecode() -> dict[str, str]:
    """This environment, but for the wish to compile every module at every start."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
