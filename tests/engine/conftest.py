"""Small experiments, and the steps of a trainer."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pytest

from gradstudio.core.experiment import Experiment
from gradstudio.core.row import Row
from gradstudio.engine.passes import forward_backward
from gradstudio.engine.trainer import Trainer


@pytest.fixture(autouse=True)
def passes_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first of a kind, so that short runs are made of repeated ones too."""
    monkeypatch.setattr(forward_backward, "PATIENCE", 1)


SMALL = ["model.width=16", "model.depth=2", "problem.batch_size=8", "run.device=cpu"]


@pytest.fixture
def build() -> Callable[..., Trainer]:
    """A trainer of a small model, with further `knob=value` assignments."""
    return lambda *assignments: Trainer(Experiment().with_texts([*SMALL, *assignments]))


@pytest.fixture
def train(build: Callable[..., Trainer]) -> Callable[..., list[Row]]:
    """The rows of so many steps."""
    return lambda steps, *assignments: list(islice(build(*assignments).steps(), steps))
