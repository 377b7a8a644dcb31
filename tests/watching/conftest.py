"""A small model to watch, and what a watched run must agree with."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gradstudio
from gradstudio.engine.torch_internals import parts
from gradstudio.session.record.run import Run
from gradstudio.watching import training_watch
from gradstudio.watching.measuring import host_loops
from gradstudio.watching.training_watch import TrainingWatch


def small_net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))


def square_loss(model: nn.Module) -> Tensor:
    inputs = torch.randn(16, 6)
    return ((model(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean()


def norm(tensors: Iterable[Tensor | None]) -> float:
    """The L2 norm of tensors, in float64 and by torch alone."""
    return math.sqrt(sum(float(torch.linalg.vector_norm(each.double())) ** 2 for each in tensors if each is not None))


def gradient_norm(model: nn.Module) -> float:
    return norm(parameter.grad.to_dense() for parameter in model.parameters() if parameter.grad is not None)


@pytest.fixture(autouse=True, scope="session")
def few_objects() -> Iterator[None]:
    """Let what is imported by now be no part of what the watch looks through, which takes most of the time of a test."""
    torch.optim.SGD(small_net().parameters())  # the first one imports torch's compiler
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def compiled_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure by compiled loops from the first step on, as a long training does (test_host_loops.py)."""
    monkeypatch.setattr(host_loops, "PAYS_AFTER", 0.0)


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[..., TrainingWatch]]:
    """`gradstudio.watch` into a library of the test."""
    yield lambda *given, **named: gradstudio.watch(*given, library=tmp_path / "runs.db", **named)
    watcher = training_watch.current()
    if watcher is not None:
        watcher.close("finished", "")


def runs_of(one: TrainingWatch) -> list[Run]:
    """Every run of what is watched, which has several where other parameters came to be trained."""
    return [found.run for found in one.watched_runs if found.run is not None]


def columns(one: TrainingWatch, *names: str) -> list[list[float]]:
    (run,) = runs_of(one)
    return [run.history.column(name).tolist() for name in names]


def near(wanted: list[float]) -> Any:
    return pytest.approx(wanted, rel=1e-6, nan_ok=True)


@pytest.fixture(autouse=True)
def parts_that_are_wanted(request: pytest.FixtureRequest) -> None:
    """Skip a test that is about a private part which this version of torch does not have."""
    for name in {name for mark in request.node.iter_markers("wants") for name in mark.args}:
        if next(part for part in parts.INTERNALS if part.name == name).get() is None:
            pytest.skip(f"torch {torch.__version__} has no {name}")
