"""A kept forward pass and its backward pass, replayed with every operation watched. The model, its buffers, the
gradients and all random numbers are restored, and its output is suppressed."""

from __future__ import annotations

import random
import sys
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, distributed, nn

from gradstudio.core.provenance import ProvenanceUnknown
from gradstudio.engine.operation_watcher import Watcher, values_of
from gradstudio.engine.passes.operation_calls import storage_of
from gradstudio.engine.torch_internals import autograd_nodes, compiled_frames
from gradstudio.watching.births.kept_pass import KeptPass
from gradstudio.watching.births.pass_state import Randomness
from gradstudio.watching.hooks.guard import replaying
from gradstudio.watching.hooks.leaves import leaves_before, nodes_before
from gradstudio.watching.hooks.trees import tensors_of, with_tensors
from gradstudio.watching.script import source_lines

NEAR = 0.01  # largest difference, relative to the largest value, between the original and the replayed output


class Replay(NamedTuple):
    """A replayed pass: its operations, and the one through which a non-finite value reached its results; None if all of
    them are finite, or if the incoming gradients were not."""

    watcher: Watcher
    sink: int | None


def replay(model: nn.Module, kept_pass: KeptPass) -> Replay:
    """Replay a pass. ProvenanceUnknown if it cannot be confirmed to be the same pass."""
    if needs_other_ranks(model):
        raise ProvenanceUnknown("a pass of the model takes all ranks, so one of them cannot make it again")
    if kept_pass.inputs_changed:
        raise ProvenanceUnknown("an input of the model was changed in place after the forward pass")
    if kept_pass.training != model.training:
        raise ProvenanceUnknown("the model was set to another mode after the forward pass")
    inputs, named_inputs, leaves = without_graph(kept_pass)
    watcher = Watcher(model, _names(model, kept_pass), where=_place)
    with restore_after(model), as_at_the_pass(kept_pass), watcher.track_modules(), watcher:
        tensors = [tensor for tensor in tensors_of(model(*inputs, **named_inputs)) if tensor.requires_grad]
        _check_same(kept_pass, tensors)
        watcher.phase = "backward"
        broken = [watcher.maker(tensor) for tensor in tensors if not values_of(tensor).finite]
        roots = _roots(kept_pass, tensors)
        if not broken and all(values_of(gradient).finite for _, gradient in roots):
            parameters = [tensor for tensor in model.parameters() if tensor.requires_grad]
            gradients = _gradients(roots, [*parameters, *leaves])
            broken = [watcher.maker(gradient) for gradient in gradients if not values_of(gradient).finite]
    return Replay(watcher, min((sink for sink in broken if sink >= 0), default=None))


_CONTAINERS = (dict, OrderedDict, list, set)  # a module's buffers are in an OrderedDict up to torch 2.4
_OF_SEVERAL_RANKS = {"FSDP", "FSDPModule", "FullyShardedDataParallel", "SyncBatchNorm"}


def needs_other_ranks(model: nn.Module) -> bool:
    """Return whether a forward pass makes calls that every rank has to make, or may do so."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return False
    kinds = {kind.__name__ for module in model.modules() for kind in type(module).__mro__}
    return not kinds.isdisjoint(_OF_SEVERAL_RANKS) or any(hasattr(each, "to_local") for each in model.parameters())


def _place(node: Any) -> source_lines.Place | None:
    place = source_lines.running_line(__file__)
    return source_lines.of_node(node, __file__) if place is None and node is not None else place


def _names(model: nn.Module, kept_pass: KeptPass) -> dict[int, str]:
    """Return the content of each storage that exists before the pass."""
    named = {storage_of(tensor): f"input {place}" for place, (tensor, _) in enumerate(kept_pass.taken)}
    named |= {storage_of(tensor): f"buffer {name}" for name, tensor in model.named_buffers()}
    return named | {storage_of(tensor): f"weight {name}" for name, tensor in model.named_parameters()}


def without_graph(kept_pass: KeptPass) -> tuple[Any, Any, list[Tensor]]:
    """Return the inputs detached from earlier computations, and those of them that take a gradient."""
    leaves: list[Tensor] = []
    if not any(tensor.requires_grad for tensor, _ in kept_pass.taken):
        return kept_pass.inputs, kept_pass.named_inputs, leaves

    def detach(tensor: Tensor) -> Tensor:
        if not tensor.requires_grad:
            return tensor
        leaves.append(tensor.detach().requires_grad_())
        return leaves[-1]

    try:
        return with_tensors(kept_pass.inputs, detach), with_tensors(kept_pass.named_inputs, detach), leaves
    except TypeError as fault:
        raise ProvenanceUnknown(f"the inputs of the model cannot be given again: {fault}") from None


def _check_same(kept_pass: KeptPass, tensors: list[Tensor]) -> None:
    """Raise ProvenanceUnknown if the pass has other results than before."""
    same = len(tensors) == len(kept_pass.given)
    for place, tensor in enumerate(tensors if same else ()):
        before = kept_pass.result(place)
        same = same and (before is None or _is_near(before, tensor.detach()))
    if not same:
        raise ProvenanceUnknown("the model gave something else when the forward pass was made again")


def _is_near(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    finite = torch.isfinite(one)
    if not torch.equal(finite, torch.isfinite(other)):
        return False
    one, other = one[finite].double(), other[finite].double()
    return not one.numel() or bool((one - other).abs().max() <= NEAR * one.abs().max())


def _roots(kept_pass: KeptPass, tensors: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Return the outputs from which a backward pass begins, with the outside gradient of each."""
    back = {place: gradient for place, gradient in enumerate(kept_pass.gradients) if gradient is not None}
    inner = _inner(tensors, list(back))
    return [(tensors[place], gradient) for place, gradient in back.items() if place not in inner]


def _gradients(roots: list[tuple[Tensor, Tensor]], towards: list[Tensor]) -> list[Tensor]:
    """Return the gradients that result from those of the outputs."""
    tensors = [tensor for tensor in towards if tensor.requires_grad]
    ends, gradients = [end for end, _ in roots], [gradient for _, gradient in roots]
    with _gradients_aside([*tensors, *leaves_before(ends)]):
        if any(_REENTRANT in node.name() for node in nodes_before(end.grad_fn for end in ends)):
            torch.autograd.backward(ends, gradients)
            return [tensor.grad for tensor in tensors if tensor.grad is not None]
        results = torch.autograd.grad(ends, tensors, gradients, allow_unused=True)
        return [gradient for gradient in results if gradient is not None]


# The node of a part that is recomputed by a backward pass within the backward pass, which writes only to `grad`.
_REENTRANT = "CheckpointFunction"


@contextmanager
def _gradients_aside(tensors: list[Tensor]) -> Iterator[None]:
    """Set the gradients of tensors aside and restore them at the end; the script's hooks for the arrival of a gradient,
    such as a weight update, are not called."""
    held = [(tensor, tensor.grad) for tensor in tensors]
    hooks = [(table, table.copy()) for tensor in tensors if (table := autograd_nodes.hooks_of_arrival(tensor))]
    try:
        for tensor in tensors:
            tensor.grad = None
        for table, _ in hooks:
            table.clear()
        yield
    finally:
        for table, before in hooks:
            table.update(before)
        for tensor, gradient in held:
            tensor.grad = gradient


def _inner(tensors: list[Tensor], places: list[int]) -> set[int]:
    """Return the outputs from which another output was computed, such as the logits of a model that also returns its
    loss: their gradient came through the other one."""
    nodes = {tensors[place].grad_fn: place for place in places}
    behind = {following for node in nodes_before(nodes) for following, _ in node.next_functions}
    return {place for node, place in nodes.items() if node is not None and node in behind}


@contextmanager
def as_at_the_pass(kept_pass: Any) -> Iterator[None]:
    """Restore random numbers, the model's counters, autocast and autograd to their settings at the pass; torch records
    the line of each node."""
    kept_pass.state.put_back()
    with ExitStack() as stack:
        for state in kept_pass.autocast:
            stack.enter_context(torch.autocast(state.device, state.dtype, state.enabled, cache_enabled=False))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.autograd.set_detect_anomaly(True, check_nan=False))
        if "torch._dynamo" in sys.modules:  # a compiled part runs uncompiled
            stack.enter_context(compiled_frames.without_compilation())
        yield


@contextmanager
def restore_after(model: nn.Module) -> Iterator[None]:
    """Restore attributes and buffers of the modules that change in this context, and random numbers; suppress output.
    Anything else that hooks and functions of the script write remains."""
    modules = list(model.modules())
    containers = [each for module in modules for each in _containers(module)]
    copies = [each.copy() for each in containers]
    tensors = {tensor: tensor.clone() for tensor in _state_of(modules)}
    numbers, of_python, of_numpy = Randomness.now(), random.getstate(), np.random.get_state()
    try:
        with replaying(), _no_warnings():
            yield
    finally:
        for container, before in zip(containers, copies, strict=True):
            container.clear()
            (container.extend if isinstance(container, list) else container.update)(before)
        for tensor, before in tensors.items():
            tensor.data.copy_(before)
        numbers.put_back()
        random.setstate(of_python)
        np.random.set_state(of_numpy)


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Suppress warnings in this context: torch warns about recording the lines. `warnings.catch_warnings` would make
    Python forget which of the script's warnings were shown, and show them again."""
    filters: Any = warnings.filters
    ours = ("ignore", None, Warning, None, 0)
    filters.insert(0, ours)
    try:
        yield
    finally:
        with suppress(ValueError):  # it was emptied meanwhile
            filters.remove(ours)


def _containers(module: nn.Module) -> list[Any]:
    """Return the table of a module's attributes, and those attributes that are containers themselves."""
    table = vars(module)
    return [table, *(value for value in table.values() if type(value) in _CONTAINERS)]


def _state_of(modules: list[nn.Module]) -> list[Tensor]:
    """Return the buffers of modules, and other tensors that are their attributes."""
    tensors: list[Tensor] = []
    for module in modules:
        tensors += [tensor for tensor in module._buffers.values() if tensor is not None]
        tensors += [value.detach() for value in vars(module).values() if isinstance(value, Tensor)]
    return tensors
