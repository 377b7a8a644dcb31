"""What another program asks of a watched training: to pause, to go on, to learn slower, to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from waiting import until
from watching.conftest import small_net, square_loss

from gradstudio.session.library.requests import Request
from gradstudio.watching.training_watch import TrainingWatch

Watch = Callable[..., TrainingWatch]


def test_a_factor_on_the_learning_rate_is_seen_by_the_step_alone(watch: Watch) -> None:
    def train(factors: dict[int, float]) -> tuple[list[float], torch.Tensor, TrainingWatch | None]:
        model = small_net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        one = watch(model, optimizer) if factors else None
        rates = []
        for step in range(4):
            if one is not None and step in factors:
                one.watched_runs[0].on_request(Request("rate", factors[step]))
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
    found.on_request(Request("pause"))
    training = threading.Thread(target=step)
    training.start()
    assert found.run is not None
    run = found.run
    until(lambda: run.status == "paused")
    assert len(run.history) == 1 and training.is_alive()
    found.on_request(Request("resume"))
    training.join()
    assert len(run.history) == 2 and run.status == "running"


def test_a_stop_is_a_keyboard_interrupt(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = watch(model, optimizer)
    with pytest.raises(KeyboardInterrupt):
        for step in range(10**6):
            if step == 3:
                one.watched_runs[0].on_request(Request("stop"))
            square_loss(model).backward()
            optimizer.step()
    one.close()
    run = one.watched_runs[0].run
    assert run is not None and run.status == "stopped" and len(run.history) >= 3


def trained_until_stopped(watch: Watch, *, goes_on: int = 0) -> TrainingWatch:
    """Train with a stop before the fourth step; the script catches the interruption and makes some steps more."""
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = watch(model, optimizer)

    def train(steps: int) -> None:
        for step in range(steps):
            if step == 3 and one.watched_runs[0].remote.stopped is False:
                one.watched_runs[0].on_request(Request("stop"))
            square_loss(model).backward()
            optimizer.step()

    with pytest.raises(KeyboardInterrupt):
        train(10**4)
    train(goes_on)
    return one


@pytest.fixture
def sigint_ignored() -> Iterator[None]:
    """As a shell script starts a program with `&`."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("sigint_ignored")
def test_a_stop_is_a_keyboard_interrupt_at_the_next_step_where_that_signal_is_ignored(watch: Watch) -> None:
    one = trained_until_stopped(watch)
    one.close()
    run = one.watched_runs[0].run
    assert run is not None and run.status == "stopped" and len(run.history) == 3
    assert [event.text for event in run.events if event.kind == "notice"] == ["the script was asked to stop"]


@pytest.mark.usefixtures("sigint_ignored")
def test_a_stop_ends_a_pause_without_a_step(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = watch(model, optimizer)
    square_loss(model).backward()
    optimizer.step()
    (found,) = one.watched_runs
    found.on_request(Request("pause"))
    run = found.run
    assert run is not None

    def stop() -> None:
        until(lambda: run.status == "paused")
        found.on_request(Request("stop"))

    asking = threading.Thread(target=stop)
    asking.start()
    square_loss(model).backward()
    with pytest.raises(KeyboardInterrupt):
        optimizer.step()
    asking.join()
    one.close()
    assert run.status == "stopped" and len(run.history) == 1


def test_a_stop_ends_a_training_in_a_thread(watch: Watch) -> None:
    """The main thread, which alone gets a signal, waits for that thread meanwhile."""
    trained: list[TrainingWatch] = []
    training = threading.Thread(target=lambda: trained.append(trained_until_stopped(watch)))
    training.start()
    training.join()
    (one,) = trained
    one.close()
    run = one.watched_runs[0].run
    assert run is not None and run.status == "stopped" and len(run.history) == 3


def test_a_script_that_goes_on_after_a_stop_was_not_stopped(watch: Watch) -> None:
    one = trained_until_stopped(watch, goes_on=5)
    one.close()
    run = one.watched_runs[0].run
    assert run is not None and run.status == "finished" and len(run.history) >= 8
    told = [event.text for event in run.events if event.kind in ("notice", "stopped", "finished")]
    assert told == ["the script was asked to stop", "finished"]


@pytest.mark.usefixtures("sigint_ignored")
def test_a_stop_that_came_after_the_last_step_has_stopped_nothing(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = watch(model, optimizer)
    square_loss(model).backward()
    optimizer.step()
    one.watched_runs[0].on_request(Request("stop"))
    one.close()
    run = one.watched_runs[0].run
    assert run is not None and run.status == "finished"
