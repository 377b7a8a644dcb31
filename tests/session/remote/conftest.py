"""A simulator whose runs train in the worker that all tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from remote_workers import SMALL, Shared
from waiting import PATIENCE

from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.session.simulator import Simulator
from gradstudio.worker.worker_process import WorkerProcess


@pytest.fixture(scope="session")
def workers() -> Iterator[Shared]:
    one = Shared()
    yield one
    one.end()


@pytest.fixture
def process(workers: Shared) -> WorkerProcess:
    """The worker of the next family."""
    return workers.warm()


@pytest.fixture
def simulator(workers: Shared) -> Iterator[Callable[..., Simulator]]:
    made: list[Simulator] = []

    def make(preset: Preset | None = None, **values: object) -> Simulator:
        knobs = SMALL | {name.replace("__", "."): value for name, value in values.items()}
        small = Preset(id="small", title="Small", experiment=Experiment().with_values(knobs))
        made.append(Simulator(preset or small, backend=workers))
        return made[-1]

    yield make
    for one in made:
        assert one.close(PATIENCE)
