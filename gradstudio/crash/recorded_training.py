"""The training in a crash file, from the recorded state on: its steps are replayed, unchanged or with a change."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gradstudio.core.strict_json import in_json
from gradstudio.crash.call_values import CannotCall
from gradstudio.crash.change import NO_CHANGE, Change
from gradstudio.crash.memory_check import check_memory
from gradstudio.crash.recorded_optimizers import RecordedOptimizers
from gradstudio.crash.recorded_pass import DTYPES, CallRaised, Pass, is_broken
from gradstudio.session.files.crash_file import (
    CrashFile,
    RecordedBirth,
    RecordedPass,
    RecordedStep,
    Structure,
)

TORCH = torch.__version__


def device_here(wanted: str) -> str:
    """Return the kind of device on which steps that were recorded on another can be replayed."""
    return "cuda" if wanted == "cuda" and torch.cuda.is_available() else "cpu"


class LoadedCrash(NamedTuple):
    """A crash file with its tensors, which are read from the file or are in memory already."""

    structure: Structure
    tensor: Callable[[str], Tensor]


def load(crash: CrashFile, *, trusted: bool = False) -> LoadedCrash:
    """Return the contents of a crash file. Each tensor is read on first use. CannotCall if its calls would exceed the
    available memory, or if that cannot be known beforehand and the file is not trusted."""

    def read(name: str) -> Tensor:
        stored = crash.tensors[name]
        if not math.prod(stored.shape):
            return torch.empty(stored.shape, dtype=DTYPES[stored.dtype])
        return torch.frombuffer(crash.read(name), dtype=DTYPES[stored.dtype]).reshape(stored.shape)

    result = LoadedCrash(crash.structure, read)
    if not trusted:
        check_memory(crash, read)
    return result


class StepResult(NamedTuple):
    """A replayed step. `update` is the size of the update relative to the weights."""

    loss: float
    norm: float
    update: float


class Training:
    """Weights and optimizers of a crash file, which its steps change."""

    def __init__(self, recorded: LoadedCrash, device: str = "cpu", change: Change = NO_CHANGE) -> None:
        self.structure, self._tensor = recorded.structure, recorded.tensor
        self.device, self._change = device, change
        trained = set(self.structure.trained)
        self.weights: dict[str, Tensor] = {}
        for name, stored in self.structure.weights.items():
            value = self._tensor(stored).detach().to(device, copy=True)
            if change.exact == "*" and value.is_floating_point():
                value = value.float()
            self.weights[name] = value.requires_grad_(name in trained)
        self.optimizers = RecordedOptimizers(recorded.structure, recorded.tensor, self.weights, device, change)
        self.born: RecordedBirth | None = None  # the first non-finite value
        self.at: Pass | None = None  # the pass that contains it
        self.keeps_gradients = False  # whether it keeps the gradients of its results
        self.on_call: Callable[[Pass, int], None] | None = None  # called after each call

    def step(self, step: RecordedStep, *, looks: bool = False) -> StepResult:
        """Replay a recorded step. With `looks`, `born` is determined if anything in it is non-finite, and then no
        update is made."""
        loss, scale = self.passes(step, looks=looks)
        trained = [self.weights[name] for name in self.structure.trained]
        if looks and self.born is not None:
            return StepResult(loss, math.nan, math.nan)
        if step.number in self._change.skipped:
            return StepResult(loss, 0.0, 0.0)
        gradients = [each.grad for each in trained if each.grad is not None]
        if scale != 1:
            for gradient in gradients:
                gradient /= scale
        norm = _norm(gradients)
        kind, limit = self._change.clip or (step.clip, step.limit)
        if kind == "norm" and gradients:
            nn.utils.clip_grad_norm_(trained, limit)
        elif kind == "value" and gradients:
            nn.utils.clip_grad_value_(trained, limit)
        if scale != 1 and not math.isfinite(norm):
            return StepResult(loss, norm, 0.0)  # like a scaler's skip
        if looks and self.born is None and not (math.isfinite(norm) and math.isfinite(loss)):
            self.born = RecordedBirth(step=step.number, phase="backward", do="a gradient", loss=in_json(loss))
        before = [each.detach().clone() for each in trained]
        self.optimizers.update(step, partial(self._loss_of_last_pass, step))
        change = _norm([each.detach() - old for each, old in zip(trained, before, strict=True)])
        broken = (name for name in self.structure.trained if is_broken(self.weights[name]))
        if looks and self.born is None and (name := next(broken, "")):
            self.born = RecordedBirth(step=step.number, phase="update", do=name, loss=in_json(loss))
        return StepResult(loss, norm, change / (_norm(before) or 1.0))

    def passes(self, step: RecordedStep, *, looks: bool = False) -> tuple[float, float]:
        """Make the passes of a step again, without its update. Return the loss, and the scale on the gradients."""
        for name in self.structure.trained:
            self.weights[name].grad = None
        loss, scale = 0.0, 1.0
        for given in step.passes:
            scale = given.scale if self._change.scale is None or given.scale == 1 else self._change.scale
            loss += self._pass(step, given, scale, looks=looks)
        return loss, scale

    def _pass(self, step: RecordedStep, given: RecordedPass, scale: float, *, looks: bool) -> float:
        calls = self.structure.programs[given.program]
        made = Pass(
            calls, lambda name: self._outside(given, name), self.device, self._change, looks=looks, on_call=self.on_call
        )  # fmt: skip
        try:
            made.run()
            if given.root < 0:
                return math.nan
            root = made.tensor(given.root)
            if root.numel() != 1 or not root.requires_grad:
                raise CannotCall("the backward pass began from something that is no loss")
            loss = float(root.detach())
            if looks:
                made.hook_gradients(keeps=self.keeps_gradients)
            (root * scale if scale != 1 else root).reshape(()).backward()
        except CallRaised as fault:
            if not looks:
                raise
            call = calls[fault.place]
            self._note_birth(step, "raised", fault.place, call.do, made, math.nan)
            return math.nan
        if looks and self.born is None:
            self._look(step, made, loss)
        return loss

    def _look(self, step: RecordedStep, made: Pass, loss: float) -> None:
        """Find where a pass is non-finite. Values that reach neither the loss nor a gradient do no harm."""
        is_loss = not math.isfinite(loss)
        gradients = [each.grad for each in self.weights.values() if each.grad is not None]
        scaled = step.passes[0].scale != 1
        if not is_loss and (scaled or not any(map(is_broken, gradients))):
            return
        if made.given:
            what = f"weight {made.given[2:]}" if made.given.startswith("w:") else f"batch tensor {made.given[2:]}"
            self.born, self.at = RecordedBirth(step=step.number, phase="given", do=what, loss=in_json(loss)), made
        elif is_loss and (place := made.born if made.born >= 0 else made.spread) >= 0:
            self._note_birth(step, "forward", place, made.calls[place].do, made, loss)
        elif made.broken_gradient >= 0:
            place = made.broken_gradient
            self._note_birth(step, "backward", place, made.calls[place].do, made, loss)

    def _note_birth(self, step: RecordedStep, phase: Any, place: int, do: str, made: Pass, loss: float) -> None:
        call = made.calls[place]
        self.born = RecordedBirth(
            step=step.number, phase=phase, call=place, do=do, module=call.module, line=call.line, loss=in_json(loss)
        )
        self.at = made

    def _loss_of_last_pass(self, step: RecordedStep) -> float:
        return self.passes(step.model_copy(update={"passes": step.passes[-1:]}))[0]

    def _outside(self, given: RecordedPass, name: str) -> Tensor:
        """Return a weight, or a tensor of the batch."""
        if name.startswith("w:"):
            if (weight := self.weights.get(name[2:])) is None:
                raise CannotCall(f"there is no weight {name[2:60]}")
            return weight
        if name not in given.tensors:
            raise CannotCall(f"there is no tensor {name[:60]}")
        weight = self._tensor(given.tensors[name])
        return weight if name.startswith(("r:", "h:")) else weight.detach().to(self.device, copy=True)


def _norm(tensors: list[Tensor]) -> float:
    if not tensors:
        return 0.0
    # The squares of large ones exceed float32, which is the widest that MPS has.
    wide = [each.detach().to(torch.float32 if each.is_mps else torch.float64) for each in tensors]
    return float(torch.stack([torch.linalg.vector_norm(each) for each in wide]).norm())


@contextmanager
def preserve_random_state():
    """Restore torch's random state afterwards."""
    with torch.random.fork_rng():
        yield


def replay_steps(training: Training) -> RecordedBirth:
    """Replay every recorded step, up to the first non-finite one; return where that was born."""
    loss = math.nan
    steps = training.structure.steps
    with preserve_random_state():
        for step in steps:
            loss = training.step(step, looks=True).loss
            if training.born is not None:
                return training.born
    return RecordedBirth(step=steps[-1].number if steps else 0, phase="none", loss=in_json(loss))
