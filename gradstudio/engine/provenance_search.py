"""The search for provenance: one step is made with every operation watched, to find the one that produced the first NaN
or Inf which reached the loss, the gradient or the weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gradstudio.core.provenance import Phase, Provenance
from gradstudio.core.text import plural
from gradstudio.engine.birth import cause_of, chain_to, growth_of, provenance
from gradstudio.engine.models.rnn import RecurrentStack
from gradstudio.engine.operation_watcher import Values, WatchedOperation, Watcher, together, values_of
from gradstudio.engine.passes.operation_calls import storage_of, tensors_in
from gradstudio.engine.step.observer import Observer
from gradstudio.engine.torch_internals import seen_operations
from gradstudio.engine.trainer import Trainer


class _Witness(Observer):
    """Tells a watcher the phase of the step and the contents of its batches, and finds the operations that produced a
    non-finite loss. `batches` are the names of the micro-batches, with the contents of their tensors."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__()
        self._watcher = watcher
        self._held: list[Tensor] = []  # so that no storage is reused
        self.batches: dict[str, Values] = {}
        self.losses: list[int] = []

    def takes(self, batch: Sequence[Any]) -> None:
        tensors, name = tensors_in(batch), f"batch {len(self.batches)}"
        self._held += tensors
        self._watcher.name(tensors, name)
        self.batches[name] = together([values_of(tensor) for tensor in tensors])
        self._watcher.phase = "loss"  # until the model is called

    def phase(self, phase: Phase) -> None:
        self._watcher.phase = phase

    @property
    def first_reached(self) -> int | None:
        """The first operation by which a non-finite value reached the loss, the gradients or the weights."""
        written = [
            number
            for number, operation in enumerate(self._watcher.operations)
            if operation.into - self.batches.keys() and not operation.given.finite
        ]
        return min((number for number in (*self.losses[:1], *written[:1]) if number >= 0), default=None)

    def on_loss(self, loss: Tensor) -> None:
        if not values_of(loss).finite:
            self.losses.append(self._watcher.maker(loss))
        self._watcher.phase = "backward"


def explain(trainer: Trainer, stopped: Callable[[], bool] = lambda: False) -> Provenance | None:
    """Make the trainer's next step under observation, and return where its first non-finite value was born; None if
    none reached the loss, the gradients or the weights, or if torch cannot be watched. ProvenanceUnknown if the step is
    too large for that, or it is `stopped`: then the trainer is left within the step."""
    if not seen_operations.can_intercept_operations():
        return None
    trainer.skip_batches(stopped)  # not watched, which would keep every batch
    flat = {storage_of(trainer.flat.gradients): "gradients", storage_of(trainer.flat.weights.data): "weights"}
    watcher = Watcher(trainer.model, flat, stopped)
    watcher.phase = "data"  # the step draws its batches first
    witness, observer = _Witness(watcher), trainer.observer
    step, micro_batches = trainer.step, trainer.experiment.accumulation.steps
    trainer.observer = witness
    try:
        with trainer.passes.without_recording(), watcher.track_modules(), watcher:
            next(trainer.steps())
    finally:
        trainer.observer = observer
    sink = witness.first_reached
    if sink is None:
        return None
    chain = _from_its_birth(watcher.operations, chain_to(watcher.operations, sink))
    operation = watcher.operations[chain[0]]
    came = [witness.batches[name] for name in operation.origins if name in witness.batches]
    came = came if len(came) == len(operation.origins) else []
    along, growth = _growth(watcher, operation, trainer)
    return provenance(
        watcher.operations,
        chain,
        [layer.name for layer in trainer.layers],
        step=step,
        phase="data" if came else operation.phase,
        cause=_of_the_batch(came[0]) if came else cause_of(operation),
        micro_batch=max(operation.micro_batch, 0) % micro_batches,  # that of the second passes starts over
        micro_batches=micro_batches,
        time_step=_time_step(watcher, chain[0], trainer),
        growth_along=along,
        growth=growth,
    )


def _from_its_birth(operations: Sequence[WatchedOperation], chain: list[int]) -> list[int]:
    """Return the chain without the operations that only passed on a value that was in a batch when it was drawn."""
    later = [number for number in chain if operations[number].phase != "data"]
    first = operations[chain[0]]
    handed_on = first.phase == "data" and not (first.taken and together(first.taken).finite)
    return later if handed_on and later else chain


def _of_the_batch(values: Values) -> str:
    return f"the batch holds {plural(values.nan + values.inf, 'value that is', 'values that are')} not finite"


def _time_steps(trainer: Trainer, module: str) -> int:
    """Return the time steps of a recurrent part of the model; 0 for any other part."""
    part = trainer.model.get_submodule(module) if module else None
    return trainer.task.shape.time_steps if isinstance(part, (nn.RNNBase, RecurrentStack)) else 0


def _backward_steps(watcher: Watcher, module: str) -> list[int]:
    """Return the operations that take a recurrent layer's gradient through its activation, one per time step, the last
    time step first."""
    return [
        number
        for number, operation in enumerate(watcher.operations)
        if operation.phase == "backward"
        and operation.module == module
        and operation.kind in ("tanh_backward", "sigmoid_backward", "threshold_backward", "gelu_backward")
    ]


def _time_step(watcher: Watcher, born: int, trainer: Trainer) -> int | None:
    operation = watcher.operations[born]
    steps = _time_steps(trainer, operation.module)
    if not steps:
        return None
    if operation.phase == "forward":
        states = watcher.states[operation.module]
        broken = ~torch.isfinite(states).flatten(2).all(2).all(0)
        return int(broken.int().argmax()) if bool(broken.any()) else None
    passed = sum(number <= born for number in _backward_steps(watcher, operation.module))
    return steps - 1 - max(passed - 1, 0) % steps if passed else None


def _growth(
    watcher: Watcher, operation: WatchedOperation, trainer: Trainer
) -> tuple[str, tuple[tuple[str, float], ...]]:
    """Return the largest absolute value along the time steps or the layers, in the direction of the pass."""
    steps = _time_steps(trainer, operation.module)
    if steps and operation.phase == "forward":
        states = watcher.states[operation.module]
        return "time steps", tuple((str(at), values_of(states[:, at]).largest) for at in range(states.shape[1]))
    if steps and (passed := _backward_steps(watcher, operation.module)):
        return "time steps", tuple(
            (str(steps - 1 - at % steps), watcher.operations[number].given.largest) for at, number in enumerate(passed)
        )
    phase: Phase = "backward" if operation.phase in ("backward", "unscale", "update") else "forward"
    return "layers", tuple(growth_of(watcher.operations, phase, max(operation.micro_batch, 0)).items())
