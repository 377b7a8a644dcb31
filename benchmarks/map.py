"""The stability map: what a cell costs, against the same run by `gradstudio run`, by its plain script, and in an ensemble
of torch.func.vmap; and the adaptive map against the full one.

Both maps are trained, so this takes some minutes. CPU times count all processes that take part."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.table import Figure
from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset, to_toml
from gradstudio.program import script
from gradstudio.session.map import grid as grids
from gradstudio.session.map.map_plan import Job, Plan, Spot, read_plan
from gradstudio.session.map.mapper import Mapper

CELLS = 64
EXPERIMENT = [
    "problem.task=digits", "model.kind=mlp", "model.depth=3", "model.width=64", "model.activation=relu", "model.init=he",
    "problem.batch_size=64", "optimizer.kind=sgd", "clipping.kind=none", "run.steps=200", "run.device=cpu",
]  # fmt: skip
SAMPLE = 24  # cells whose time is taken
PROCESSES = 3  # runs in a process of their own
ENSEMBLE = 64  # cells in one batch of vmap


def figures() -> Iterator[Figure]:
    preset = Preset(id="map", title="Map", experiment=Experiment().with_texts(EXPERIMENT))
    plan = read_plan(preset, "optimizer.lr=0.001:10:log", "model.init_gain=0.1:10:log", CELLS, "", 1, full=False)
    yield from _one_cell(plan)
    yield from _whole(plan)


def _one_cell(plan: Plan) -> Iterator[Figure]:
    jobs = [Job(Spot(0, int(column), 30), 0) for column in np.linspace(0, CELLS * 5 // 8, SAMPLE)]  # held to the end
    cell = _cell_seconds(plan, jobs)
    yield Figure("a cell of the map, CPU", 1000 * cell, "ms", note=f"{1 / cell:.3g} cells a second a core; 200 steps")
    experiment = plan.experiment_of(jobs[SAMPLE // 2])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "train.py")
        file.write_text(script(experiment), encoding="utf-8")
        preset = Path(folder, "run.toml")
        preset.write_text(to_toml(plan.preset_of(jobs[SAMPLE // 2])), encoding="utf-8")
        command = [sys.executable, "-m", "gradstudio", "run", str(preset), "--library", str(Path(folder, "library"))]
        for what, arguments in (("gradstudio run", command), ("its script", [sys.executable, str(file)])):
            alone = statistics.median(_process_seconds(arguments) for _ in range(PROCESSES))
            yield Figure(f"the same run by {what}, CPU against a cell", alone / cell, note=f"{alone:.2f} s")
    loop = _loop_seconds(experiment)
    yield Figure("the loop of its script alone, CPU against a cell", loop / cell, note="set up once, not counted")
    ensemble = _ensemble_seconds(plan)
    yield Figure(f"{ENSEMBLE} cells in one torch.func.vmap, CPU of each against a cell", ensemble / cell)


def _whole(plan: Plan) -> Iterator[Figure]:
    adaptive, seconds, cpu = _made(plan)
    yield Figure(
        f"{CELLS} x {CELLS} cells, adaptive",
        seconds,
        "s",
        most=120,
        note=f"{cpu:.0f} s of CPU, a process for each core",
    )
    whole, all_seconds, all_cpu = _made(replace(plan, full=True))
    trained = adaptive.trained.mean()
    yield Figure("share of the cells that the adaptive map trains", 100 * trained, "%", most=35)
    yield Figure("CPU of the adaptive map against the full one", 100 * cpu / all_cpu, "%", note=f"{all_seconds:.0f} s")
    wrong = (adaptive.outcomes != whole.outcomes).mean()
    yield Figure("cells whose outcome is wrong in the adaptive map", 100 * wrong, "%", most=0.2)
    with np.errstate(invalid="ignore"):
        off = abs(np.log10(adaptive.levels) - np.log10(whole.levels)) > 0.25
    yield Figure("cells whose loss is off by over a quarter of a decade", 100 * off.mean(), "%")
    same = adaptive.trained & ~(
        (adaptive.losses == whole.losses) | (np.isnan(adaptive.losses) & np.isnan(whole.losses))
    )
    yield Figure("cells that both trained and whose last loss differs in a bit", int(same.sum()), most=0)


def _made(plan: Plan) -> tuple[grids.Grid, float, float]:
    """Make a map. Return it, and its seconds of the clock and of all processes."""
    with tempfile.TemporaryDirectory() as folder:
        before, started = _children(), time.perf_counter()
        mapper = Mapper(plan, Path(folder, "it.map"))
        mapper.start()
        mapper.join()
        seconds = time.perf_counter() - started
        if mapper.status != "finished":
            raise RuntimeError(mapper.message or mapper.status)
        cpu = sum(trained.seconds for _, trained in mapper.results)
        return (
            grids.fill_gaps(plan, grids.measured_cells(plan, dict(mapper.results))),
            seconds,
            max(cpu, _children() - before),
        )


def _cell_seconds(plan: Plan, jobs: list[Job]) -> float:
    import torch

    from gradstudio.session.map.train_cell import Bench, Order

    torch.set_num_threads(1)
    bench, times = Bench(), []
    for job in (*jobs[:3], *jobs):
        started = time.thread_time()
        bench.train(Order(plan.experiment_of(job), ()), lambda: False)
        times.append(time.thread_time() - started)
    return statistics.median(times[3:])


def _process_seconds(arguments: list[str]) -> float:
    before = _children()
    ended = subprocess.run(arguments, check=False, capture_output=True, text=True)
    if ended.returncode not in (0, 4):  # a run may have a finding
        raise RuntimeError(ended.stderr)
    return _children() - before


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _loop_seconds(experiment: Experiment) -> float:
    from benchmarks.plain import plain_step

    step = plain_step(experiment)
    return _after_warming(step, experiment.run.steps)


def _after_warming(step: Callable[[], None], steps: int) -> float:
    for _ in range(10):
        step()
    started = time.thread_time()
    for _ in range(steps):
        step()
    return time.thread_time() - started


def _ensemble_seconds(plan: Plan) -> float:
    """Return the CPU time of each of ENSEMBLE cells that are trained as one model, with a batch dimension."""
    import torch
    from torch.func import functional_call, grad_and_value, stack_module_state, vmap

    from gradstudio.engine.trainer import Trainer

    trainers = [Trainer(plan.experiment_of(Job(Spot(0, column, 30), 0))) for column in range(ENSEMBLE)]
    model = trainers[0].model
    weights, _ = stack_module_state([trainer.model for trainer in trainers])
    rates = torch.tensor([trainer.experiment.optimizer.lr for trainer in trainers])

    def loss_of(own: dict[str, torch.Tensor], inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(functional_call(model, own, (inputs,)), targets)

    gradients = vmap(grad_and_value(loss_of), in_dims=(0, None, None))

    def step() -> None:
        (batch,) = trainers[0].next_batches()
        found, _ = gradients(weights, *batch)
        with torch.no_grad():
            for name, weight in weights.items():
                weight -= rates.view(-1, *(1,) * (weight.dim() - 1)) * found[name]

    return _after_warming(step, plan.experiment.run.steps) / ENSEMBLE
