"""The birth of a non-finite value within a replayed pass of a user's model."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from torch import nn

from gradstudio.core.provenance import Phase, Provenance
from gradstudio.engine import birth
from gradstudio.engine.birth import chain_to
from gradstudio.engine.operation_watcher import WatchedOperation, Watcher, together, values_of
from gradstudio.watching.births.kept_pass import KeptPass

_OF_DATA = {"addmm", "mm", "bmm", "convolution"}  # operations that never receive a mask


_OF_THE_MODEL = " of the model "  # in a cause


class _BadInput(NamedTuple):
    """The tensor that contained a non-finite value before the pass began."""

    phase: Phase
    module: str
    operation: str
    cause: str


def provenance(
    model: nn.Module, kept_pass: KeptPass, watcher: Watcher, sink: int, micro_batch: int, micro_batches: int
) -> Provenance:
    """Return the birth of the value that reached the operation `sink` in the replayed pass."""
    operations = watcher.operations
    chain = _without_masks(operations, chain_to(operations, sink), _may_be_masks(model, kept_pass))
    operation = operations[chain[0]]
    given = _nonfinite_input(model, operation)
    known = given._asdict() if given else {}
    growth = birth.growth_of(operations, "backward" if operation.phase == "backward" else "forward")
    return birth.provenance(
        operations,
        chain,
        [name for name, _ in model.named_parameters()],
        micro_batch=micro_batch,
        micro_batches=micro_batches,
        growth_along="layers",
        growth=tuple(growth.items()),
        source="" if operation.place is None else operation.place.text,
        taken=birth.inputs_in_words(operation.taken),
        **known,
    )


def of_the_inputs(kept_pass: KeptPass) -> Provenance | None:
    """Return the birth if an input held NaN before the pass, which takes no replay to know; None if none did. Inf alone
    may be a mask."""
    for place, (tensor, _) in enumerate(() if kept_pass.inputs_changed else kept_pass.taken):
        if (values := values_of(tensor)).nan:
            given = together([values_of(each) for each in kept_pass.results if each is not None])
            cause = f"input {place}{_OF_THE_MODEL}holds {values.broken} before the pass"
            name, taken = "input", [values]
            operation = WatchedOperation(name, "forward", "", "", 0, tensor.dtype, taken, given, [], (), set(), None)
            return birth.provenance([operation], [0], (), cause=cause, taken=birth.inputs_in_words(taken))
    return None


def within_models(own_birth: Provenance, name: str) -> Provenance:
    """Return a birth in one of several models, with this model's name in front."""

    def full_name(inner: str) -> str:
        return f"{name}.{inner}" if inner else name

    return replace(
        own_birth,
        cause=own_birth.cause.replace(_OF_THE_MODEL, f" of {name} "),
        module=full_name(own_birth.module),
        layers=tuple(map(full_name, own_birth.layers)),
        chain=tuple(replace(operation, module=full_name(operation.module)) for operation in own_birth.chain),
        growth=tuple((full_name(module), largest) for module, largest in own_birth.growth),
    )


def _may_be_masks(model: nn.Module, kept_pass: KeptPass) -> set[str]:
    """Return which existing tensors may be masks: their only non-finite values are -Inf."""
    there = {f"input {place}": tensor for place, (tensor, _) in enumerate(kept_pass.taken)}
    there |= {f"buffer {name}": tensor for name, tensor in model.named_buffers()}
    return {
        name
        for name, tensor in there.items()
        if not (values := values_of(tensor)).finite and not values.nan and not bool((tensor == math.inf).any())
    }


def _without_masks(operations: list[WatchedOperation], chain: list[int], masks: set[str]) -> list[int]:
    """Return the chain from its first NaN on if everything before it is a deliberate Inf in the input, such as that of
    a mask."""
    first = operations[chain[0]]
    if first.given.nan or not first.taken or any(values.nan for values in first.taken) or not first.origins:
        return chain
    if not masks.issuperset(first.origins) or first.kind in _OF_DATA:
        return chain
    for place, made in enumerate(chain):
        if operations[made].given.nan:
            return chain[place:]
    return chain


def _nonfinite_input(model: nn.Module, born: WatchedOperation) -> _BadInput | None:
    """Return the input of an operation that was non-finite from the start; None if there is none."""
    if all(values.finite for values in born.taken) or not born.origins:
        return None
    order = [f"weight {name}" for name, _ in model.named_parameters()]
    first = min(born.origins, key=lambda origin: order.index(origin) if origin in order else -1)
    kind, _, name = first.partition(" ")
    if kind == "input":
        broken = together(born.taken).broken
        return _BadInput("forward", "", "input", f"input {name}{_OF_THE_MODEL}holds {broken} before the pass")
    table = dict(model.named_parameters()) if kind == "weight" else dict(model.named_buffers())
    broken = values_of(table[name]) if name in table else None
    held = "values that are not finite" if broken is None else broken.broken
    cause = f"{name} holds {held} before the pass"
    cause += ", so an earlier update or the script made them" * (kind == "weight")
    return _BadInput("update" if kind == "weight" else "forward", name.rpartition(".")[0], name, cause)
