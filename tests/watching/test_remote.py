"""What another program asks of a watched training: to pause, to go on, to learn slower, to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from waiting import until
from watching.conftest import small_net, square_loss

from gradstudio.session.library.requests import Request
from gradstudio.watching.watched import Watched

Watch = Callable[..., Watched]


def test_a_factor_on_the_learning_rate_is_seen_by_the_step_alone(watch: Watch) -> None:
    def train(factors: dict[int, float]) -> tuple[list[float], torch.Tensor, Watched | None]:
        model = small_net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        one = watch(model, optimizer) if factors else None
        rates = []
        for step in range(4):
            if one is not None and step in factors:
                one.watched_runs[0].remote.hear(Request("rate", factors[step]))
            optimizer.zero_grad()
            square_loss(model).backward()
            if one is None and step == 2:
                optimizer.param_groups[0]["lr"] *= 10.0
            optimizer.step()
            if one is None and step == 2:
                optimizer.param_groups[0]["lr"] /= 10.0
            decay.step()
            rates.append(optimizer.param_groups[0]["lr"])
        return rates, model[0].weight, one

    bare, watched = train({}), train({2: 10.0, 3: 1.0})
    assert watched[0] == pytest.approx(bare[0]) and torch.equal(bare[1], watched[1])
    assert watched[2] is not None
    run = watched[2].watched_runs[0].run
    assert run is not None and run.history.column("lr").tolist() == pytest.approx([0.1, 0.05, 0.25, 0.0125])
    told = [event.text for event in run.events if event.kind == "notice"]
    assert ["× 10 " in told[0], "× 1 " in told[1]] == [True, True]


def test_a_paused_training_waits_until_it_goes_on(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = watch(model, optimizer)

    def step() -> None:
        square_loss(model).backward()
        optimizer.step()

    step()
    (found,) = one.watched_runs
    found.remote.hear(Request("pause"))
    training = threading.Thread(target=step)
    training.start()
    assert found.run is not None
    run = found.run
    until(lambda: run.status == "paused")
    assert len(run.history) == 1 and training.is_alive()
    found.remote.hear(Request("resume"))
    training.join()
    assert len(run.history) == 2 and run.status == "running"


def test_a_stop_is_a_keyboard_interrupt(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = watch(model, optimizer)
    with pytest.raises(KeyboardInterrupt):
        for step in range(10**6):
            if step == 3:
                one.watched_runs[0].remote.hear(Request("stop"))
            square_loss(model).backward()
            optimizer.step()
    one.close()
    run = one.watched_runs[0].run
    assert run is not None and run.status == "stopped" and len(run.history) >= 3
