"""The callbacks from torch while something is watched: backward passes, steps of optimizers, scaling, clipping,
autocast. The script's own objects are not modified, so models and optimizers copy and save as before.

`Optimizer.step` is never replaced, since schedules wrap it; torch's own hooks for all optimizers are used."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from gradstudio.engine.torch_internals import autograd_nodes, clipping_hooks, module_tables
from gradstudio.engine.torch_internals.plain_optimizers import hooks_of_step
from gradstudio.watching.hooks.guard import guarded, leave_uncompiled, leave_uncompiled_from_now_on
from gradstudio.watching.hooks.loss_scales import LossScales, together
from gradstudio.watching.hooks.trees import tensors_of


@dataclass(slots=True)
class Roots:
    """The start of a backward pass: the tensors, the factors on them, the loss scale that they carry, UNKNOWN if they
    carry several, and their values before a scaler multiplied them, None if unknown."""

    tensors: tuple[Tensor, ...]
    gradients: tuple[Tensor | None, ...]
    scale: float
    unscaled: tuple[Tensor | None, ...]
    _loss: float | None = None

    @property
    def loss(self) -> float | None:
        """The loss, if the pass began from a single number without any factor. It is read once."""
        tensors = self.tensors
        if (
            self._loss is None
            and len(tensors) == 1 and self.scale == 1 and self.gradients[0] is None and self.unscaled[0] is None
            and tensors[0].numel() == 1
        ):  # fmt: skip
            self._loss = tensors[0].item()
        return self._loss


class Listener(Protocol):
    """Receives the callbacks from torch, each on the thread of the script."""

    def on_optimizer(self, optimizer: Optimizer) -> None: ...
    def before_calling_backward(self) -> None: ...
    def before_backward(self, roots: Roots) -> None: ...
    def after_backward(self, roots: Roots) -> None: ...
    def before_step(self, optimizer: Optimizer, arguments: Any, named: Any) -> Any: ...
    def after_step(self, optimizer: Optimizer, arguments: Any, named: Any) -> None: ...
    def before_scaled_step(self, optimizer: Optimizer) -> None: ...
    def after_scaled_step(self, optimizer: Optimizer) -> None: ...
    def on_clip(self, kind: str, limit: float, gradients: Sequence[Tensor], parameters: Sequence[Tensor]) -> None: ...
    def after_clipping(self) -> None: ...
    def on_schedule(self, scheduler: LRScheduler) -> None: ...
    def on_compile(self, model: nn.Module) -> None: ...
    def before_eval(self, module: nn.Module) -> None: ...
    def on_seed(self, seed: Any) -> None: ...
    def on_autocast(self, dtype: torch.dtype) -> None: ...
    def before_copying(self) -> None: ...
    def after_copying(self) -> None: ...


class Hooks:
    """The hooks of one listener. A fault in it removes all of them."""

    def __init__(self, listener: Listener, give_up: Callable[[str], None]) -> None:
        self._listener = listener
        self._depth = _Depth()
        self._backward_at_work = autograd_nodes.active_backward()
        self._thread = threading.get_ident()  # of the latest backward pass
        self._undo: list[Callable[[], None]] = []
        self._scales = LossScales()
        self._active = True
        self._guard = guarded(give_up)

    def install(self) -> None:
        """Start listening."""
        self._hook_backward()
        self._hook_steps()
        self._hook_scaler()
        self._wrap(torch.autocast, "__enter__", self._before_autocast, None)
        self._wrap(Optimizer, "__init__", None, _with_owner(self._listener.on_optimizer))
        self._wrap(nn.Module, "compile", None, _with_owner(self._listener.on_compile))
        self._wrap(nn.Module, "eval", self._listener.before_eval, None)
        self._wrap(torch, "manual_seed", self._listener.on_seed, None)
        if "torch._dynamo" in sys.modules:
            leave_uncompiled_from_now_on()
        self._wrap(torch, "compile", leave_uncompiled, None)
        # not `step` of a scheduler, whose warnings name the calling line
        for kind in (LRScheduler, ReduceLROnPlateau):  # the latter does not call the former
            self._wrap(kind, "__init__", None, _with_owner(self._listener.on_schedule))
        # torch.jit would compile the hooks of a model, and fails on ours; a file that contains them is a different
        # file, which torch.load refuses unless it is trusted
        self._wrap(torch, "save", self._before_copying, self._after_copying)
        if (owner := module_tables.scripts_modules()) is not None:
            self._wrap(owner, "create_script_module", self._before_copying, self._after_copying)
        undo = clipping_hooks.hook_clipping(self._guard(self._on_clipping), self._guard(self._after_clipping))
        if undo is not None:
            self._undo.append(undo)

    def remove(self) -> None:
        """Stop listening. Replacements by other code meanwhile stay, and call through to torch."""
        self._active = False
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    # ---- one part of torch each

    def _hook_backward(self) -> None:
        original = torch.autograd.backward
        before, after = self._guard(self._before_backward), self._guard(self._listener.after_backward)

        @functools.wraps(original)
        def backward(*arguments: Any, **named: Any) -> Any:
            # the backward pass of a checkpointed part is within another, which on a GPU continues in a separate thread
            if self._depth.value or not self._active or self._backward_at_work() is not None:
                return original(*arguments, **named)
            if not (len(arguments) > 1 and arguments[1] is None and isinstance(arguments[0], Tensor)):
                arguments, named = _with_tuples(arguments, named)  # it is not called like Tensor.backward
            self._depth.value = 1
            try:
                roots = before(arguments, named)
                given = original(*arguments, **named)
            finally:
                self._depth.value = 0
            if roots is not None:
                after(roots)
            return given

        self._replace(torch.autograd, "backward", backward)
        self._wrap(Tensor, "backward", lambda *_, **__: self._listener.before_calling_backward(), None)

    def _before_backward(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Roots:
        self._thread = threading.get_ident()
        begins = arguments[0] if arguments else named.get("tensors")
        given = arguments[1] if len(arguments) > 1 else named.get("grad_tensors")
        tensors = (begins,) if isinstance(begins, Tensor) else _roots(begins)
        without = (None,) * len(tensors)
        gradients = without if given is None else _several(given) or without
        roots = Roots(tensors, gradients, 1.0, without)
        if self._scales.any:
            scales = [self._scales.of_root(root) for root in _several(begins)]
            roots.scale = together({scale for scale, _ in scales})
            roots.unscaled = tuple([loss for _, loss in scales]) if tensors else ()
        self._listener.before_backward(roots)
        return roots

    def _hook_steps(self) -> None:
        self._last_before_step = self._guard(self._listener.before_step)
        before, after = self._guard(self._before_step), self._guard(self._listener.after_step)
        handles = register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)
        self._undo += [handle.remove for handle in handles]

    def _before_step(self, optimizer: Optimizer, arguments: Any, named: Any) -> Any:
        if hooks := hooks_of_step(optimizer):  # which may clip, or change the learning rate
            place = next(reversed(hooks))
            hooks[place] = self._together_with(hooks[place], hooks, place)
            return None
        return self._listener.before_step(optimizer, arguments, named)

    def _together_with(self, hook: Callable[..., Any], hooks: dict[int, Callable[..., Any]], place: int) -> Any:
        """Return the last of an optimizer's own hooks with ours after it, for one step. An additional hook in the table
        would be an error for one that removes itself."""
        if isinstance(hook, _Together):  # a hook before it has raised
            return hook

        def together(optimizer: Optimizer, arguments: Any, named: Any) -> Any:
            hooks[place] = hook
            given = hook(optimizer, arguments, named)
            if self._active and (given is None or (isinstance(given, tuple) and len(given) == 2)):
                ours = self._last_before_step(optimizer, *(given or (arguments, named)))
                return given if ours is None else ours
            return given

        return _Together(together)

    def _hook_scaler(self) -> None:
        scaler = torch.amp.GradScaler
        self._wrap(scaler, "scale", None, self._after_scaling)
        self._wrap(scaler, "step", self._before_scaled_step, self._after_scaled_step)

    def _after_scaling(self, scaled: Any, scaler: Any, outputs: Any) -> None:
        if not scaler.is_enabled():
            return
        scale = float(scaler.get_scale())
        if isinstance(scaled, Iterator):
            self._scales.note_iterator(scale)
            return
        for loss, each in zip(tensors_of(outputs), tensors_of(scaled), strict=False):
            self._scales.note(loss, each, scale)

    def _before_scaled_step(self, scaler: Any, optimizer: Optimizer, *_: Any, **__: Any) -> None:
        if scaler.is_enabled():
            self._scales.forget_iterator()
            self._listener.before_scaled_step(optimizer)

    def _after_scaled_step(self, _given: Any, scaler: Any, optimizer: Optimizer, *_: Any, **__: Any) -> None:
        if scaler.is_enabled():
            self._listener.after_scaled_step(optimizer)

    def _before_autocast(self, autocast: Any) -> None:
        if (dtype := clipping_hooks.autocast_format(autocast)) is not None:
            self._listener.on_autocast(dtype)

    def _before_copying(self, *_: Any, **__: Any) -> None:
        if threading.get_ident() == self._thread:  # another thread may be within a forward pass
            self._listener.before_copying()

    def _after_copying(self, *_: Any, **__: Any) -> None:
        if threading.get_ident() == self._thread:
            self._listener.after_copying()

    def _on_clipping(self, kind: str, limit: float, gradients: Sequence[Tensor], parameters: Sequence[Tensor]) -> None:
        if self._active:
            self._listener.on_clip(kind, limit, gradients, parameters)

    def _after_clipping(self) -> None:
        if self._active:
            self._listener.after_clipping()

    # ---- replacing

    def _wrap(self, owner: Any, name: str, before: Callable[..., Any] | None, after: Callable[..., Any] | None) -> None:
        """Call `before` with the arguments of a method, and `after` with its result and its arguments."""
        original = getattr(owner, name)
        first = self._guard(before) if before else None
        last = self._guard(after) if after else None

        @functools.wraps(original)
        def method(*arguments: Any, **named: Any) -> Any:
            if not self._active:
                return original(*arguments, **named)
            if first is not None:
                first(*arguments, **named)
            given = original(*arguments, **named)
            if last is not None:
                last(given, *arguments, **named)
            return given

        self._replace(owner, name, method)

    def _replace(self, owner: Any, name: str, ours: Any) -> None:
        original = getattr(owner, name)
        setattr(owner, name, ours)

        def undo() -> None:
            if getattr(owner, name) is ours:
                setattr(owner, name, original)

        self._undo.append(undo)


class _Together(functools.partial):  # pyright: ignore[reportMissingTypeArgument]
    """A hook of the script with one of ours after it."""

    __slots__ = ()


class _Depth(threading.local):
    """The nesting depth of backward passes in a thread."""

    value = 0


def _with_owner(call: Callable[[Any], None]) -> Callable[..., None]:
    """Return a function to be called after a method, which calls another one with the object of that method."""
    return lambda _given, owner, *_, **__: call(owner)


def _with_tuples(arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a backward pass with a tuple for each one-shot iterable."""

    def as_tuple(given: Any) -> Any:
        return tuple(given) if isinstance(given, Iterator) else given

    return tuple(map(as_tuple, arguments)), {name: as_tuple(given) for name, given in named.items()}


def _roots(tensors: Any) -> tuple[Tensor, ...]:
    """Return the tensors from which a backward pass begins; () if one is an edge of autograd's graph, whose value is
    unknown."""
    several = _several(tensors)
    return several if all([isinstance(each, Tensor) for each in several]) else ()


def _several(tensors: Any) -> tuple[Any, ...]:
    """Return one tensor or several as a tuple; () for None."""
    if isinstance(tensors, Tensor):
        return (tensors,)
    return () if tensors is None else tuple(tensors)
