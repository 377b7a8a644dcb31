"""Which parameters receive a gradient from the backward passes of a step: a gradient of 0 does not show whether there
was one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from torch import Tensor, nn


class ReachedParameters:
    """Records which parameters receive a gradient while the context lasts."""

    def __init__(self, named: Sequence[tuple[str, nn.Parameter]]) -> None:
        self._named = named
        self._heard: set[int] = set()

    def __enter__(self) -> Self:
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._on_gradient)
            for _, parameter in self._named
            if parameter.requires_grad  # a studio file may have frozen it meanwhile
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _on_gradient(self, parameter: Tensor) -> None:
        self._heard.add(id(parameter))

    def unused_names(self) -> tuple[str, ...]:
        """Return the names of the parameters that received no gradient."""
        return tuple(name for name, parameter in self._named if id(parameter) not in self._heard)
