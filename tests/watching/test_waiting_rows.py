"""Rows that wait to be recorded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from watching.conftest import runs_of, small_net, square_loss

from gradstudio.core.history import LAYER_METRICS
from gradstudio.watching.measuring import waiting_rows
from gradstudio.watching.measuring.waiting_rows import MOST_BYTES, MOST_ROWS, Spare, most_waiting
from gradstudio.watching.training_watch import TrainingWatch


def test_an_array_is_given_again_only_when_nobody_holds_it() -> None:
    spare, most = Spare(3), most_waiting(3) + 8
    held = [spare.take() for _ in range(2 * most)]
    assert len({id(each) for each in held}) == 2 * most
    view, kept = held[-1][0], id(held[-1])
    del held
    again = {id(spare.take()) for _ in range(most)}
    assert len(again) == most and kept not in again and len(view) == 3


def test_as_many_rows_wait_as_their_layers_leave_room_for() -> None:
    assert most_waiting(0) == most_waiting(1) == most_waiting(42) == MOST_ROWS
    for layers in (500, 10_000):
        room = most_waiting(layers) * layers * len(LAYER_METRICS) * 4
        assert MOST_BYTES - layers * len(LAYER_METRICS) * 4 < room <= MOST_BYTES
    assert most_waiting(10**6) == 1


@pytest.mark.parametrize("most", [1, 7, 512])
def test_every_row_is_recorded_in_its_order(watch: Callable[..., TrainingWatch], monkeypatch, most: int) -> None:
    monkeypatch.setattr(waiting_rows, "MOST_ROWS", most)
    torch.manual_seed(3)
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    one, losses, norms = watch(model, optimizer), [], []
    for _ in range(600):
        optimizer.zero_grad()
        loss = square_loss(model)
        loss.backward()
        losses.append(loss.item())
        norms.append(float(torch.linalg.vector_norm(model[0].weight.grad)))
        optimizer.step()
    (run,) = runs_of(one)
    assert run.history.column("loss").tolist() == losses
    assert run.history.layer_metric("grad_norm")[:, 0].tolist() == pytest.approx(norms, rel=1e-6)
