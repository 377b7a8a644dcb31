"""The fatal step operation by operation: the inputs and outputs of each call, as figures."""

from __future__ import annotations

import torch
from torch import Tensor

from gradstudio.core.layer_sample import histogram
from gradstudio.core.strict_json import in_json
from gradstudio.crash.change import NO_CHANGE
from gradstudio.crash.recorded_pass import Key, Pass, keys_of
from gradstudio.crash.recorded_training import LoadedCrash, Training, preserve_random_state, replay_steps
from gradstudio.session.files.crash_answers import Entries, StepOperation
from gradstudio.session.files.crash_file import RecordedBirth


def operations(recorded: LoadedCrash, device: str = "cpu") -> tuple[RecordedBirth, list[StepOperation]]:
    """Replay the recorded steps, up to the first non-finite one. Return where that was born, and all calls of its
    pass."""
    born = replay_steps(Training(recorded, device))
    training = Training(recorded, device, NO_CHANGE)
    training.keeps_gradients = True
    sheets: dict[int, _Sheet] = {}

    def on_call(made: Pass, place: int) -> None:
        latest = sheets.setdefault(id(made), _Sheet(made))
        latest.note(place)

    with preserve_random_state():
        for step in training.structure.steps:
            if step.number == born.step:
                training.on_call = on_call
            training.step(step, looks=True)
            if step.number == born.step:
                break
    sheet = next((each for each in sheets.values() if each.made is training.at), None)
    return born, (sheet or next(reversed(sheets.values()))).rows() if sheets else []


class _Sheet:
    """The rows of one pass."""

    def __init__(self, made: Pass) -> None:
        self.made = made
        self._rows: dict[tuple[int, Key], StepOperation] = {}
        self._given: set[Key] = set()

    def note(self, place: int) -> None:
        """Record the results of a call, and its inputs from outside."""
        call, tensors = self.made.calls[place], self.made.tensors
        taken = list(dict.fromkeys((*keys_of(call.given), *keys_of(call.named))))
        for key in taken:
            if isinstance(key, str) and key not in self._given:
                self._given.add(key)
                what = f"weight {key[2:]}" if key.startswith("w:") else f"batch tensor {key[2:]}"
                self._rows[-1, key] = StepOperation(call=-1, do=what, entries=entries(tensors[key]))
        for key in [each for each in call.gives or () if each >= 0] or taken[:1]:
            self._rows[place, key] = StepOperation(
                call=place, do=call.do, module=call.module, line=call.line, entries=entries(tensors[key])
            )

    def rows(self) -> list[StepOperation]:
        """Return all rows, with their gradients."""
        gradients = self.made.gradients
        for (_, key), row in self._rows.items():
            if key in gradients:
                row.gradient = entries(gradients[key])
        return list(self._rows.values())


def entries(tensor: Tensor) -> Entries:
    """Return the figures of a tensor's entries."""
    values = tensor.detach()
    if values.is_complex():
        values = torch.view_as_real(values)
    values = values.double() if values.dtype in (torch.float64, torch.int64) else values.float()
    bins = histogram(values.cpu().numpy())
    nan = int(values.isnan().sum())
    bad = (~values.isfinite()).nonzero()[0].tolist() if bins.nonfinite else []
    return Entries(
        shape=list(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."), least=in_json(bins.least),
        greatest=in_json(bins.greatest), mean=in_json(bins.mean), std=in_json(bins.std), norm=in_json(bins.norm),
        zeros=bins.zeros, nan=nan, inf=bins.nonfinite - nan, size=bins.size, counts=bins.counts.tolist(), bad=bad,
    )  # fmt: skip
