"""A step of somebody's own loop that is watched, against the same loop bare, and beside what other tools cost that look
at gradients.

Each tool has a process of its own, as all of them change torch. Rounds of all of them take turns; CPU time of all
threads of a process counts, so also what writes the library. On CUDA the time by the clock until the device has done
its work counts. Where a process happens to have its memory changes its step by some percent as long as it lives, so ours
and the bare loop are started several times, and the figure is the median of those starts."""

from __future__ import annotations

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.step import CASES as OF_STUDIO
from benchmarks.step import MLP, seconds_of, seconds_on_cuda
from benchmarks.table import Figure
from gradstudio.core.experiment import Experiment

STARTS, ROUNDS, SECONDS = 9, 21, 0.25
WARM = 60  # steps before the first round; the first row of a watched run takes longest

CASES: dict[str, tuple[list[str], float]] = {
    "MLP-20, SGD": ([*MLP, "clipping.kind=none", "optimizer.kind=sgd", "optimizer.lr=0.001"], 1.5),
    "MLP-20, AdamW, clipped": ([*MLP, "clipping.kind=norm", "optimizer.kind=adamw", "optimizer.lr=0.0001"], 1.5),
    "transformer-4": ([*OF_STUDIO["transformer-4"][0], "clipping.kind=none"], 1.03),
}
SMALL_ON_CUDA = 1.15
# On CUDA alone: the size, whether it is compiled, and the largest ratio.
GPTS: dict[str, tuple[str, bool, float]] = {
    "GPT 10M": ("10M", False, 1.10),
    "GPT 124M": ("124M", False, 1.03),
    "GPT 124M, compiled": ("124M", True, 1.05),
    "GPT 350M": ("350M", False, 1.03),
}
OURS = "gradstudio.watch"


# ---- in a process of its own: a tool beside the loop. Each is given model and optimizer, and returns the step with it


def _bare(_model: Any, _optimizer: Any, step: Callable[[], None]) -> Callable[[], None]:
    return step


def _ours(model: Any, optimizer: Any, step: Callable[[], None]) -> Callable[[], None]:
    import gradstudio
    from gradstudio.watching.measuring import host_loops

    host_loops.PAYS_AFTER = 0.0  # as after its first half second
    gradstudio.watch(model, optimizer, library=Path("library.sqlite3"))
    return step


def _lightning(model: Any, optimizer: Any, step: Callable[[], None]) -> Callable[[], None]:
    from lightning.pytorch.utilities import grad_norm  # pyright: ignore[reportMissingImports]

    def measure(*_: object) -> None:
        grad_norm(model, norm_type=2)

    optimizer.register_step_pre_hook(measure)
    return step


def _wandb(every: int) -> Callable[..., Callable[[], None]]:
    def begin(model: Any, _optimizer: Any, step: Callable[[], None]) -> Callable[[], None]:
        import wandb  # pyright: ignore[reportMissingImports]

        run = wandb.init(mode="offline", settings=wandb.Settings(silent=True))
        wandb.watch(model, log="all", log_freq=every)

        def logged() -> None:
            step()
            run.log({})  # what it has gathered goes with the next line

        return logged

    return begin


def _anomaly(_model: Any, _optimizer: Any, step: Callable[[], None]) -> Callable[[], None]:
    import torch

    torch.autograd.set_detect_anomaly(True)
    return step


def _huggingface(model: Any, _optimizer: Any, step: Callable[[], None]) -> Callable[[], None]:
    from transformers.debug_utils import DebugUnderflowOverflow  # pyright: ignore[reportMissingImports]

    model.debug = DebugUnderflowOverflow(model)
    return step


# Its package and what begins it.
TOOLS: dict[str, tuple[str, Callable[..., Callable[[], None]]]] = {
    "bare": ("torch", _bare),
    OURS: ("gradstudio", _ours),
    "Lightning's grad_norm of every layer": ("lightning", _lightning),
    "wandb.watch, all, every 1000 steps": ("wandb", _wandb(1000)),
    "wandb.watch, all, every step": ("wandb", _wandb(1)),
    "torch's anomaly mode": ("torch", _anomaly),
    "Hugging Face's DebugUnderflowOverflow": ("transformers", _huggingface),
}


def child(tool: str, case: str, device: str) -> None:
    """Make as many steps as each line of stdin says, and answer with the seconds that one took; for 0 with the largest
    memory of the device, in bytes a weight."""
    from benchmarks import gpt
    from benchmarks.plain import plain_loop

    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what tools print is no answer
    if case in GPTS:
        names = gpt.loop(GPTS[case][0], device, GPTS[case][1])
    else:
        names = plain_loop(Experiment().with_texts([*CASES[case][0], f"run.device={device}"]))
    timed = seconds_of if device == "cpu" else seconds_on_cuda
    names["torch"].use_deterministic_algorithms(False)  # as hardly any loop has it
    step = TOOLS[tool][1](names["model"], names["optimizer"], names["one_step"])
    for _ in range(WARM):
        step()
    for line in sys.stdin:
        if calls := int(line):
            print(timed(step, calls), file=answers)
        else:
            weights = sum(each.numel() for each in names["model"].parameters())
            print(names["torch"].cuda.max_memory_allocated() / weights, file=answers)
    os._exit(0)  # none of the tools tidies up


# ---- in the process that asks


class _Process:
    def __init__(self, tool: str, case: str, device: str) -> None:
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._tool, self._errors = tool, Path(self._folder.name, "errors.txt")
        path = os.pathsep.join(filter(None, [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from benchmarks.watch import child; child({tool!r}, {case!r}, {device!r})"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors.open("w"), text=True, bufsize=1,
            cwd=self._folder.name, env=os.environ | {"PYTHONPATH": path, "WANDB_MODE": "offline"},
        )  # fmt: skip

    def answer(self, steps: int) -> float:
        """What a step takes, as the child measures it; for 0 the largest memory of the device, in bytes a weight."""
        assert self._process.stdin and self._process.stdout
        print(steps, file=self._process.stdin)
        if not (answer := self._process.stdout.readline()):
            raise RuntimeError(f"{self._tool} ended: {self._errors.read_text().strip().splitlines()[-1:]}")
        return float(answer)

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._folder.cleanup()


def figures() -> Iterator[Figure]:
    for case, (_, most) in CASES.items():
        yield from _of_case(case, most, "cpu", [tool for tool, (package, _) in TOOLS.items() if _installed(package)])
    for package in sorted({package for package, _ in TOOLS.values() if not _installed(package)}):
        yield Figure(f"{package}", float("nan"), note="not measured: it is not installed here")
    if _has_cuda():
        most = dict.fromkeys(CASES, SMALL_ON_CUDA) | {case: ratio for case, (_, _, ratio) in GPTS.items()}
        for case, ratio in most.items():
            yield from _of_case(case, ratio, "cuda:0", ["bare", OURS])


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _of_case(case: str, most: float, device: str, tools: list[str]) -> Iterator[Figure]:
    starts = [_start(case, device, tools)]
    starts += [_start(case, device, ["bare", OURS]) for _ in range(STARTS - 1)]
    bare = statistics.median(each["bare"] for each in starts)
    if device != "cpu":
        more = statistics.median(each[f"memory of {OURS}"] - each["memory of bare"] for each in starts)
        yield Figure(f"memory beside it, {case}, on CUDA", more, "bytes a weight", most=4.1 if case in GPTS else None)
    for tool in tools[1:]:
        ratios = sorted(each[tool] for each in starts if tool in each)
        ratio = statistics.median(ratios)
        several = f"; {ratios[0]:.2f} to {ratios[-1]:.2f} in {len(ratios)} starts" if len(ratios) > 1 else ""
        yield Figure(
            f"{tool}, {case}{', on CUDA' if device != 'cpu' else ''}", ratio, most=most if tool == OURS else None,
            note=f"bare {1000 * bare:.2f} ms a step; {1000 * (ratio - 1) * bare:+.3f} ms{several}",
        )  # fmt: skip


def _start(case: str, device: str, tools: list[str]) -> dict[str, float]:
    """Start a process of each and return the median ratio of each to the bare loop; of that, its seconds a step. On
    CUDA also the largest memory of each, in bytes a weight."""
    processes = {tool: _Process(tool, case, device) for tool in tools}
    calls = {tool: max(1, round(SECONDS / process.answer(5))) for tool, process in processes.items()}
    rounds = [{tool: processes[tool].answer(calls[tool]) for tool in tools} for _ in range(ROUNDS)]
    memory = {f"memory of {tool}": process.answer(0) for tool, process in processes.items() if device != "cpu"}
    for process in processes.values():
        process.close()
    ratios = {tool: statistics.median(each[tool] / each["bare"] for each in rounds) for tool in tools}
    return memory | ratios | {"bare": statistics.median(each["bare"] for each in rounds)}
