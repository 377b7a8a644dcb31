"""muP: what a coordinate check shows, and the rates of the paper's table, written another way."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from gradstudio.core.experiment import Experiment
from gradstudio.engine.trainer import Trainer

BASE = 32
WIDTHS = (32, 64, 256)


def trainer(*texts: str) -> Trainer:
    small = ["problem.batch_size=16", "run.device=cpu", f"model.base_width={BASE}", "problem.seq_len=8"]
    return Trainer(Experiment().with_texts([*small, *texts]))


def changes(parametrization: str, *texts: str) -> list[float]:
    """The coordinate check (Yang 2021, appendix D.1): how far 4 updates move the outputs, at each width."""
    found = []
    for width in WIDTHS:
        one = trainer(f"model.width={width}", f"model.parametrization={parametrization}", *texts)
        inputs = one.task.test_batch(one.model).inputs[:64]
        before = one.model(inputs).detach()
        list(islice(one.steps(), 4))
        found.append((one.model(inputs).detach() - before).abs().mean().item())
    return found


@pytest.mark.parametrize(
    "texts",
    [
        ("optimizer.kind=adam", "optimizer.lr=0.01", "model.depth=3"),
        (
            "optimizer.kind=adam",
            "optimizer.lr=0.003",
            "model.kind=transformer",
            "problem.task=sequential_digits",
            "problem.seq_len=8",
        ),
    ],
)
def test_the_coordinate_check(texts: tuple[str, ...]) -> None:
    """With the standard parametrization the outputs move further the wider the network is, under muP as far."""
    standard, mup = changes("standard", *texts), changes("mup", *texts)
    assert mup[0] == standard[0], "at the base width nothing differs"
    assert standard[2] > 3 * standard[0]
    assert max(mup) < 2 * min(mup)


def test_the_rates_are_those_of_the_table() -> None:
    """By what each weight does: fan_in and fan_out grow with the width in hidden weights, one of them in the others."""
    share = BASE / 128
    for kind, table in {  # input and vectors, hidden, head
        "sgd": (1 / share, 1.0, share),
        "adam": (1.0, share, share),
    }.items():
        one = trainer("model.width=128", "model.parametrization=mup", f"optimizer.kind={kind}", "optimizer.lr=0.1")
        at_base = trainer("model.width=32", f"optimizer.kind={kind}")
        list(islice(one.steps(), 1))
        rates = torch.cat([torch.full_like(group["params"][0], group["lr"]) for group in one.optimizer.param_groups])
        places = one.flat.layout.views(rates, one.flat.parameters)
        for (name, weight), (_, small), place in zip(one.flat.named, at_base.flat.named, places, strict=True):
            grown = sum(mine != its for mine, its in zip(weight.shape, small.shape, strict=True))
            column = 2 if name == "head.weight" else grown - 1 if weight.ndim > 1 else 0
            assert torch.allclose(place, torch.tensor(0.1 * table[column])), name


def test_the_head_begins_with_the_variance_of_the_table() -> None:
    stds = {
        width: trainer(f"model.width={width}", "model.parametrization=mup", "model.init=he").model.head.weight.std()
        for width in (32, 512)
    }
    assert (stds[32] / stds[512]).item() == pytest.approx(512 / 32, rel=0.1)
