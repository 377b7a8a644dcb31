"""Which module an optimizer trains, where nobody says so."""

from __future__ import annotations

from torch import nn

from gradstudio.watching.layers import module_with


def test_a_container_is_not_the_model() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleDict({"first": nn.Linear(4, 4), "last": nn.Linear(4, 4)})
            self.head = self.parts["last"]

    model = Tied()
    assert module_with(list(model.parameters())) is model
