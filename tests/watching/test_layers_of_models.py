"""Which module an optimizer trains, where nobody says so."""

from __future__ import annotations

import gc

from torch import nn

from gradstudio.watching.script.model_layers import modules_with


def test_a_container_is_not_the_model() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleDict({"first": nn.Linear(4, 4), "last": nn.Linear(4, 4)})
            self.head = self.parts["last"]

    model = Tied()
    assert modules_with(list(model.parameters())) == [model]


def test_the_smallest_model_is_found_however_old_it_is() -> None:
    unfinished = nn.Linear.__new__(nn.Linear)  # has nothing of a module yet
    inner = nn.Linear(4, 4)
    gc.collect()  # it is no young object any more
    outer = nn.Sequential(nn.Sequential(inner), nn.Tanh())
    assert modules_with([inner.weight]) == [inner, outer[0], outer] and outer[0][0] is inner
    assert modules_with([inner.weight, nn.Parameter(inner.bias.detach())]) == [] and type(unfinished) is nn.Linear
