"""The optimizers in a crash file, which make its updates again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from gradstudio.crash.call_values import CannotCall, from_json
from gradstudio.crash.change import Change
from gradstudio.session.files.crash_file import CrashFileError, RecordedOptimizer, RecordedStep, Structure


class RecordedOptimizers:
    """The optimizers of a recorded training, with their recorded state, on these weights. `change` says how they differ
    from the recorded ones."""

    def __init__(
        self, structure: Structure, tensor: Callable[[str], Tensor], weights: Mapping[str, Tensor], device: str,
        change: Change,
    ) -> None:  # fmt: skip
        self._tensor, self._weights, self._device, self._change = tensor, weights, device, change
        self._first = structure.steps[0].groups if structure.steps else [[]] * len(structure.optimizers)
        self._optimizers = [
            self._optimizer(each, self._first[place]) for place, each in enumerate(structure.optimizers)
        ]

    def update(self, step: RecordedStep, loss_of_last_pass: Callable[[], float]) -> None:
        """Make the update of a step. LBFGS calls `loss_of_last_pass`."""
        change = self._change
        for optimizer, groups, first in zip(self._optimizers, step.groups, self._first, strict=False):
            for group, values, before in zip(optimizer.param_groups, groups, first, strict=False):
                group.update(self._values(values))
                if change.first_rate and "lr" in before:
                    group["lr"] = min(group["lr"], before["lr"])
                group.update({name: value for name, value in change.values.items() if name in group})
                if "lr" in group:
                    group["lr"] = group["lr"] * change.rate
            if isinstance(optimizer, torch.optim.LBFGS):
                optimizer.step(loss_of_last_pass)
            else:
                optimizer.step()

    def _optimizer(self, each: RecordedOptimizer, values: list[dict[str, Any]]) -> Optimizer:
        kind = getattr(torch.optim, each.kind.removeprefix("torch.optim."), None)
        if not (isinstance(kind, type) and issubclass(kind, Optimizer) and each.kind.startswith("torch.optim.")):
            raise CrashFileError(f"its optimizer {each.kind[:80]} is none of torch's, so no update can be made again")
        groups = [
            {"params": [self._weight(name) for name in names], **self._values(value)}
            for names, value in zip(each.groups, values, strict=False)
        ]
        taken = set(kind.__init__.__code__.co_varnames)
        made: Any = kind
        optimizer = made([{k: v for k, v in group.items() if k == "params" or k in taken} for group in groups])
        for name, kept in each.state.items() if kind is not torch.optim.LBFGS else ():  # whose lists are not recorded
            weight = self._weight(name)
            optimizer.state[weight] = {key: self._state_of(key, value, groups) for key, value in kept.items()}
        return optimizer

    def _weight(self, name: str) -> Tensor:
        if (weight := self._weights.get(name)) is None:
            raise CrashFileError(f"it has no weight {name[:80]}")
        return weight

    def _values(self, values: dict[str, Any]) -> dict[str, Any]:
        return {name: from_json(value, _no_tensor, self._device) for name, value in values.items()}

    def _state_of(self, key: str, value: Any, groups: list[dict[str, Any]]) -> Any:
        if not isinstance(value, str):
            return from_json(value, _no_tensor, self._device)
        stays = key == "step" and not any(group.get("fused") or group.get("capturable") for group in groups)
        return self._tensor(value).detach().to("cpu" if stays else self._device, copy=True)


def _no_tensor(_key: object) -> Tensor:
    raise CannotCall("a group of parameters holds a tensor")
