"""What the program says that a step takes of memory, beside the CPU allocator's own events, for many experiments.

In a process of its own (`python -m benchmarks.footprint`), which torch's profiler and its tensors without memory may
change: lines of assignments on stdin, a line of JSON for each on stdout."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.table import Figure
from gradstudio.core import files, presets
from gradstudio.core.experiment import Experiment

DTYPES = ("fp32", "bf16")
LARGE = (
    "problem.task=sequential_digits model.kind=transformer model.depth=4 model.width=128 model.activation=gelu "
    "optimizer.kind=adamw problem.batch_size="
)
# Beside the presets: each model, optimizer, way of clipping and way of saving memory.
MODELS = (
    "model.kind=mlp model.norm=batch", "model.kind=mlp model.norm=layer model.residual=true model.activation=gelu",
    "model.kind=cnn model.norm=batch", "model.kind=cnn model.norm=layer model.activation=silu",
    "model.kind=rnn problem.task=adding", "model.kind=rnn problem.task=adding model.norm=layer",
    "model.kind=lstm problem.task=copy", "model.kind=gru problem.task=sequential_digits",
    "model.kind=transformer problem.task=characters", "model.kind=gan problem.task=ring",
    "model.kind=policy problem.task=pole",
)  # fmt: skip
WAYS = (
    "precision.dtype=fp32", "precision.dtype=bf16", "precision.dtype=fp16",
    "accumulation.steps=4 clipping.kind=norm optimizer.kind=adamw", "model.checkpointing=true optimizer.kind=adam",
    "clipping.kind=agc optimizer.kind=rmsprop optimizer.momentum=0.9 gradients.centralize=true "
    "gradients.noise_std=0.1",
    "accumulation.steps=3 mistakes.never_zero_grad=true clipping.kind=per_tensor model.checkpointing=true "
    "precision.dtype=bf16",
)  # fmt: skip
SMALL = "problem.batch_size=24 problem.seq_len=16 model.width=48 model.depth=2"
ONLY_FP32 = "model.kind=lstm"  # of torch on most processors
WITH_WORKSPACE = ("model.kind=lstm",)  # whose kernels take what nobody sees
PRODUCTS = (
    "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution", "aten::convolution_backward",
)  # fmt: skip
CLOSE, CLOSE_WITH_WORKSPACE = 1.0, 15.0  # percent


def figures() -> Iterator[Figure]:
    """The longer sweep: the presets, every model in every way, and a large transformer."""
    of_presets = [f"{path.stem} precision.dtype={dtype}" for path in bundled() for dtype in DTYPES]
    of_models = [
        f"- {SMALL} {model} {way}"
        for model in MODELS
        for way in WAYS
        if model.split()[0] != ONLY_FP32 or ("bf16" not in way and "fp16" not in way)
    ]
    large = [f"- {LARGE}{size}" for size in ("512", "64 accumulation.steps=8", "512 model.checkpointing=true",
                                             "512 precision.dtype=bf16")]  # fmt: skip
    for title, cases in (("presets", of_presets), ("models and ways", of_models), ("large transformer", large)):
        found = list(compared(cases))
        plain = [each for each in found if not each["workspace"]]
        worst = max(plain, key=off)
        yield Figure(
            f"memory of a step, {len(plain)} {title}: estimate against allocator, most off", off(worst), "%",
            most=CLOSE, note=worst["case"],
        )  # fmt: skip
        if hidden := [each for each in found if each["workspace"]]:
            worst = max(hidden, key=off)
            yield Figure(
                f"the same, {len(hidden)} with workspaces that nobody sees", off(worst), "%",
                most=CLOSE_WITH_WORKSPACE, note=worst["case"],
            )  # fmt: skip
        if beside := [each for each in found if each["cuda"] is not None]:
            worst = max(beside, key=lambda each: abs(each["cuda"] / each["estimate"] - 1))
            yield Figure(
                f"on a GPU, {len(beside)} {title}: torch.cuda.max_memory_allocated / estimate, most off",
                worst["cuda"] / worst["estimate"], note=worst["case"],
            )  # fmt: skip
        seconds = [each["seconds"] for each in found]
        yield Figure(f"working one out, {title}: at most", max(seconds), "s CPU", note=f"mean {_mean(seconds):.2f} s")


def bundled() -> list[Any]:
    """Return the presets that train in one process."""
    paths = sorted(files.PRESETS.glob("*.toml"))
    return [path for path in paths if presets.read(path).experiment.distributed.ranks == 1]


def off(found: dict[str, Any]) -> float:
    """Return by how many percent the estimate is off. What one product or convolution in bf16 takes beside its result
    counts as unknown: a processor that computes in bf16 itself takes up to some hundred kB there, however large the
    tensors are."""
    least, most = found["allocator"] - found["scratch"], found["allocator"]
    return 100 * max(found["estimate"] / most - 1, 1 - found["estimate"] / least, 0.0)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def compared(cases: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield for each case its estimate and what the allocator says, in bytes. A case: a preset's id or -, then
    assignments."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.footprint"], input="\n".join(cases), stdout=subprocess.PIPE, check=True,
        text=True,
    )  # fmt: skip
    for line in done.stdout.splitlines():
        if line.startswith("{"):  # the profiler prints lines of its own
            yield json.loads(line)


def _compare(case: str) -> dict[str, Any]:
    import time

    from gradstudio.engine.footprint.estimate import estimate

    first, *texts = case.split()
    base = Experiment() if first == "-" else presets.load(first).experiment
    experiment = base.with_texts(["run.device=cpu", *texts])
    started = time.process_time()
    found = estimate(experiment)
    seconds = time.process_time() - started
    gc.collect()  # a loop and its functions know each other
    gc.freeze()  # torch's own objects, at which every collection would look
    most, scratch = allocated(experiment)
    if experiment.precision.dtype == "fp32":
        scratch = 0
    return {
        "case": case, "estimate": found.peak, "allocator": most, "scratch": scratch, "seconds": seconds,
        "cuda": _allocated_on_cuda(experiment), "phase": found.phase, "workspace": any(text in WITH_WORKSPACE for text in texts),
    }  # fmt: skip


def _allocated_on_cuda(experiment: Experiment) -> int | None:
    """Return the most bytes that the second step of the plain loop takes on a GPU; None where there is none. The data
    set is not counted, as in the estimate."""
    import torch

    from gradstudio.engine.footprint.plain_loop import PlainLoop, parts
    from gradstudio.engine.subject import BuiltIn

    if not torch.cuda.is_available():
        return None
    # cuBLAS takes room for itself at the first product of each pass; no step is charged for it.
    torch.nn.Linear(8, 8, device="cuda")(torch.ones(8, 8, device="cuda")).sum().backward()
    subject, count = BuiltIn(experiment, "cuda"), experiment.accumulation.steps
    before = torch.cuda.memory_allocated()

    def draw() -> Iterator[Any]:
        return parts(subject.task.next_batch(loop.model, count), count, experiment.problem.batch_size)

    loop = PlainLoop(experiment, subject, draw, device="cuda")
    loop.prepare()
    torch.cuda.reset_peak_memory_stats()
    loop.step()
    return torch.cuda.max_memory_allocated() - before


def allocated(experiment: Experiment) -> tuple[int, int]:
    """Return the most bytes that are taken during the second step of the plain loop, as the CPU allocator tells torch's
    profiler, and the most that a product or convolution in it takes and gives back before it returns."""
    import torch.autograd.profiler
    from torch.profiler import ProfilerActivity, profile, record_function

    from gradstudio.engine.footprint.plain_loop import PlainLoop, parts
    from gradstudio.engine.subject import BuiltIn

    # only the raw events are wanted: torch would make objects of them all, which takes longer than the steps
    torch.autograd.profiler.profile._parse_kineto_results = lambda *_, **__: []  # pyright: ignore[reportAttributeAccessIssue]
    subject, count = BuiltIn(experiment, "cpu"), experiment.accumulation.steps
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiler:

        def draw() -> Iterator[Any]:
            return parts(subject.task.next_batch(loop.model, count), count, experiment.problem.batch_size)

        loop = PlainLoop(experiment, subject, draw)
        loop.prepare()
        with record_function("the step"):
            loop.step()
    assert profiler.profiler is not None and profiler.profiler.kineto_results is not None
    events: list[Any] = profiler.profiler.kineto_results.events()
    begun = next(event.start_ns() for event in events if event.name() == "the step")
    products = [each for each in events if each.name() in PRODUCTS]
    memory = sorted((each.start_ns(), each.nbytes()) for each in events if each.name() == "[memory]")
    taken = most = 0
    for time, size in memory:
        taken += size
        most = max(most, taken) if time >= begun else taken
    freed = [(time, -size) for time, size in memory if size < 0]
    times = [time for time, _ in freed]
    scratch = 0
    for each in products:
        within = slice(bisect_left(times, each.start_ns()), bisect_right(times, each.start_ns() + each.duration_ns()))
        scratch = max(scratch, sum(size for _, size in freed[within]))
    return most, scratch


if __name__ == "__main__":
    from gradstudio.engine.footprint.estimate import possible

    assert possible()
    for given in sys.stdin.read().splitlines():
        print(json.dumps(_compare(given)), flush=True)
