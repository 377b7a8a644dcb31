"""A fault of the watch takes it off with one line; the training goes on with the same numbers."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from watching.conftest import runs_of, small_net, square_loss

from gradstudio.watching.measuring.parameters import Parameters
from gradstudio.watching.recording.watched_run import WatchedRun
from gradstudio.watching.steps.step_observer import Observer
from gradstudio.watching.training_watch import TrainingWatch

Watch = Callable[..., TrainingWatch]


def wrong(*_: Any, **__: Any) -> Any:
    raise RuntimeError("planted")


def trained(watch: Watch | None) -> tuple[list[float], TrainingWatch | None]:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = watch(model, optimizer) if watch else None
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = square_loss(model)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, one


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Observer, "before_backward"),
        (Observer, "after_backward"),
        (Observer, "before_step"),
        (Observer, "after_step"),
        (Parameters, "measure_change"),
        (WatchedRun, "take"),
        (WatchedRun, "begin"),
    ],
)
def test_a_fault_anywhere_is_one_line(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], owner: Any, name: str
) -> None:
    monkeypatch.delenv("GRADSTUDIO_DEBUG", raising=False)
    wanted, _ = trained(None)
    backward = torch.autograd.backward
    monkeypatch.setattr(owner, name, wrong)
    assert trained(watch)[0] == wanted
    said = capsys.readouterr()
    assert said.out == "" and said.err.splitlines() == [
        "gradstudio: watching ended, the script goes on: RuntimeError: planted"
    ]
    assert torch.autograd.backward is backward


def test_everything_is_as_it_was_after_the_end(watch: Watch) -> None:
    replaced = [(torch.autograd, "backward"), (torch.amp.GradScaler, "step"), (torch.optim.Optimizer, "__init__")]
    before = [getattr(owner, name) for owner, name in replaced]
    losses, one = trained(watch)
    assert one is not None and losses == trained(None)[0]
    one.close()
    assert [getattr(owner, name) for owner, name in replaced] == before
    (run,) = runs_of(one)
    assert run.status == "finished" and len(run.history) == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python's, of a process with threads
def test_a_process_that_was_forked_off_is_not_watched(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = watch(model, optimizer)
    square_loss(model).backward()
    child = os.fork()
    if not child:
        try:
            optimizer.step()
        finally:
            os._exit(one.run is not None)
    assert os.waitpid(child, 0)[1] == 0
    assert runs_of(one) == []
    optimizer.step()
    assert len(runs_of(one)) == 1


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"model": 3}, "wants a torch.nn.Module"),
        ({"optimizer": 3}, "must be a torch.optim.Optimizer"),
        ({"on_nonfinite": "stop"}, "allowed: explain, raise, skip, ignore"),
    ],
)
def test_a_wrong_call_says_what_is_allowed(watch: Watch, given: dict[str, Any], fault: str) -> None:
    with pytest.raises((TypeError, ValueError), match=fault):
        watch(**{"model": small_net(), **given})


def test_a_model_that_cannot_be_measured_leaves_the_others_watched(
    watch: Watch, capsys: pytest.CaptureFixture[str]
) -> None:
    odd, model = torch.nn.Linear(2, 1, dtype=torch.complex64), small_net()
    pairs = [(each, torch.optim.SGD(each.parameters(), lr=0.1)) for each in (odd, model)]
    first, second = (watch(*pair) for pair in pairs)
    for _ in range(3):
        for each, optimizer in pairs:
            optimizer.zero_grad()
            loss = odd(torch.ones(1, 2, dtype=torch.complex64)).abs().sum() if each is odd else square_loss(model)
            loss.backward()
            optimizer.step()
    assert not runs_of(first) and len(runs_of(second)[0].history) == 3
    assert capsys.readouterr().err == "gradstudio: Linear is not watched: A parameter is not a real number.\n"
