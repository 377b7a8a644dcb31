"""The loss around the weights before a step: compared with plain PyTorch, cell by cell."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from gradstudio.core.cliff import DOWN, LEFT, Cliff, landing_at, length_of, max_norm_of
from gradstudio.core.experiment import Experiment
from gradstudio.core.gauge_samples import Unmeasurable
from gradstudio.engine.probes import cliff_slice
from gradstudio.engine.probes.stand_in_model import batches_to_come
from gradstudio.engine.trainer import Trainer

SMALL = {
    "model.width": 8, "model.depth": 1, "problem.batch_size": 16, "run.device": "cpu", "optimizer.kind": "sgd",
    "optimizer.lr": 0.5, "clipping.kind": "none", "schedule.kind": "constant", "schedule.warmup_steps": 0,
}  # fmt: skip


@pytest.fixture(autouse=True)
def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every cell be measured, however long it takes."""
    monkeypatch.setattr(cliff_slice, "SECONDS", math.inf)


def trained(steps: int, **values: object) -> Trainer:
    trainer = Trainer(
        Experiment().with_values(SMALL | {name.replace("__", "."): each for name, each in values.items()})
    )
    rows = trainer.steps()
    while trainer.step < steps:
        next(rows)
    return trainer


def slices(trainer: Trainer) -> list[Cliff]:
    return list(cliff_slice.measure(trainer, lambda: False, lambda row: None))


def test_cells_and_landings_are_those_of_plain_pytorch() -> None:
    trainer = trained(3)
    [batch] = batches_to_come(trainer)
    model = copy.deepcopy(trainer.model)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    previous = (trainer.flat.weights.data - trainer.before).double()
    gradients = torch.autograd.grad(F.cross_entropy(model(batch.inputs), batch.targets), list(model.parameters()))
    names = [name for name, _ in trainer.flat.named]
    assert names == [name for name, _ in model.named_parameters()]
    norm = float(torch.cat([each.flatten() for each in gradients]).double().norm())

    def loss_of(moves: list[torch.Tensor]) -> float:
        with torch.no_grad():
            for parameter, was, move in zip(model.parameters(), before, moves, strict=True):
                parameter.copy_(was + move)
            return float(F.cross_entropy(model(batch.inputs), batch.targets))

    coarse, *_, found = slices(trainer)
    assert found.whole and not coarse.whole and coarse.known.sum() < 30
    assert (found.step, found.second) == (3, "previous update")
    assert found.grad_norm == pytest.approx(norm, rel=1e-4) and found.unit == pytest.approx(0.5 * norm, rel=1e-4)
    assert found.update == pytest.approx((1, 0), abs=1e-4)
    assert np.array_equal(found.losses[coarse.known], coarse.losses[coarse.known])
    aside = [view.clone() for view in trainer.flat.layout.views(previous, trainer.flat.parameters)]
    ahead = [-each.double() / norm for each in gradients]
    along = sum(float((one * other).sum()) for one, other in zip(aside, ahead, strict=True))
    aside = [one - along * other for one, other in zip(aside, ahead, strict=True)]
    length = float(torch.cat([each.flatten() for each in aside]).norm())
    for row, column in ((DOWN, LEFT), (DOWN, LEFT + 8), (DOWN, 0), (0, LEFT), (DOWN + 3, LEFT + 11)):
        x, y = ((column - LEFT) * found.cell * found.unit, (row - DOWN) * found.cell * found.unit)
        moves = [(x * one + y / length * other).float() for one, other in zip(ahead, aside, strict=True)]
        assert found.losses[row, column] == pytest.approx(loss_of(moves), rel=1e-5), (row, column)
    for landing in found.landings[::3]:
        clipped = min(landing.max_norm, norm)
        assert landing.length == pytest.approx(clipped / norm, rel=1e-4)
        moves = [(0.5 * clipped * each).float() for each in ahead]
        assert landing.loss == pytest.approx(loss_of(moves), rel=1e-5)
    assert found.end == pytest.approx(found.landings[-1].loss, rel=1e-5)


def test_a_circle_is_the_length_of_a_clipped_step() -> None:
    found = slices(trained(2))[-1]
    for share in (0.001, 0.3, 1.0, 2.5):
        length = length_of(found, share * found.grad_norm)
        assert length == pytest.approx(share, rel=1e-3)
        assert max_norm_of(found, share) == pytest.approx(share * found.grad_norm, rel=1e-3)
    landing = landing_at(found, 0.37 * found.grad_norm)
    assert landing is not None and landing.x == pytest.approx(0.37, rel=0.02)
    adam = slices(trained(2, optimizer__kind="adam", optimizer__lr=0.01))[-1]
    assert adam.second == "update" and length_of(adam, 1e-3) is None and max_norm_of(adam, 0.5) is None


def test_the_view_is_as_wide_as_the_cliff_is_near() -> None:
    gentle, wild = (slices(trained(1, optimizer__lr=lr))[-1] for lr in (0.01, 1e6))
    assert gentle.cell == pytest.approx(1 / 8) and gentle.end < gentle.loss
    assert wild.cell < 1e-3 and wild.end > 100 * wild.loss and np.nanmax(wild.losses) > wild.loss + 1


def test_what_is_not_finite_is_said() -> None:
    broken = trained(1)
    broken.flat.weights.data.fill_(float("nan"))
    with pytest.raises(Unmeasurable, match="not finite"):
        slices(broken)
    with pytest.raises(Unmeasurable, match="no update"):
        slices(trained(1, optimizer__lr=0.0))


def test_a_slow_model_has_fewer_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    found = slices(trained(2))[-1]
    seconds, loss_at = 0.0, cliff_slice._Plane.loss_at

    def slow(plane: cliff_slice._Plane, x: float, y: float) -> float:
        nonlocal seconds
        seconds += 1
        return loss_at(plane, x, y)

    monkeypatch.setattr(cliff_slice._Plane, "loss_at", slow)
    monkeypatch.setattr(cliff_slice, "perf_counter", lambda: seconds)
    for most, columns, rows in ((1, 6, 3), (70, 11, 5), (120, 21, 5), (250, 21, 11)):
        monkeypatch.setattr(cliff_slice, "SECONDS", most)
        seconds = 0.0
        coarse = slices(trained(2))[-1]
        assert (len(coarse.columns), len(coarse.rows)) == (columns, rows)
        assert coarse.whole == (columns * rows == found.losses.size) and coarse.known.sum() == columns * rows
        assert np.array_equal(coarse.losses[coarse.known], found.losses[coarse.known])
        assert coarse.landings == found.landings
