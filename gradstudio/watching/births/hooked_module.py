"""The hooks on a module of the user's script. They are not copied or saved with it, and its computation is
unchanged."""

from __future__ import annotations

import contextlib
import copy
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.compiler import is_compiling
from torch.jit import is_tracing  # pyright: ignore[reportPrivateImportUsage]

from gradstudio.core.provenance import ProvenanceUnknown
from gradstudio.engine.torch_internals import function_transforms, module_tables
from gradstudio.watching.births.pass_state import PassStates

_AROUND = {"OptimizedModule": "_orig_mod", "DistributedDataParallel": "module"}


def without_wrappers(module: nn.Module) -> nn.Module:
    """Return a module without the wrappers of torch.compile and DistributedDataParallel."""
    while type(module).__name__ in _AROUND:
        module = getattr(module, _AROUND[type(module).__name__])
    return module


class HookedModule:
    """Reports each pass of a module. `states` records the state before a pass."""

    def __init__(
        self, module: nn.Module, begin: Callable[..., None], end: Callable[..., None], guard: Callable[[Any], Any]
    ) -> None:
        """`begin(self, module, inputs, named_inputs)` is called before each pass, and `end(self, module, inputs,
        outputs)` after it; `guard` wraps a function that torch calls."""
        self.states = PassStates()
        # The modules one of which is called as the whole, including this one.
        self.either: list[HookedModule] = [self]
        self._module = weakref.ref(module)
        self._begin, self._end = guard(partial(begin, self)), guard(partial(end, self))
        self._hooks: list[Any] = []
        self._around: _CompiledCall | None = None

    @property
    def inner(self) -> nn.Module:
        """The module without the wrappers of torch.compile and DistributedDataParallel. ProvenanceUnknown if it is
        gone."""
        module = self._module()
        if module is None:
            raise ProvenanceUnknown("the model is gone")
        return without_wrappers(module)

    def attach(self) -> None:
        """Install the hooks on the module, unless they are there. A module compiled by torch.jit accepts none."""
        module = self._module()
        if module is None or isinstance(module, torch.jit.ScriptModule):
            return
        if not self._hooks:
            self._hooks = [
                # before those of the script, which are called again when the pass is replayed
                module.register_forward_pre_hook(_Hook(self._begin), prepend=True, with_kwargs=True),
                module.register_forward_hook(_Hook(self._end)),
            ]
        call = module_tables.compiled_call(module)
        if call is not None and self._around not in _chain(call):
            self._around = _CompiledCall(self._begin, call, self._end, self._module)
            module_tables.set_compiled_call(module, self._around)

    def detach(self) -> None:
        """Remove the hooks from the module."""
        module, ours = self._module(), self._around
        if module is not None and ours is not None:
            call = module_tables.compiled_call(module)
            if call is ours:
                module_tables.set_compiled_call(module, ours.call)
            for other in _chain(call):
                if other.call is ours:
                    other.call = ours.call
        self._around = None
        for hook in self._hooks:
            hook.remove()
        self._hooks = []


class _CompiledCall:
    """A wrapper around the compiled call of a model that was compiled in place: hooks are compiled with such a model
    and do nothing there."""

    def __init__(
        self,
        begin: Callable[..., None],
        call: Callable[..., Any],
        end: Callable[..., None],
        model: weakref.ref[nn.Module],
    ) -> None:
        self.call = call
        self._begin, self._end, self._model = begin, end, model

    def __call__(self, *inputs: Any, **named_inputs: Any) -> Any:
        if (model := self._model()) is None or is_compiling():
            return self.call(*inputs, **named_inputs)
        self._begin(model, inputs, named_inputs)
        outputs = self.call(*inputs, **named_inputs)
        self._end(model, inputs, outputs)
        return outputs

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self.call, memo)


def _chain(call: Any) -> list[_CompiledCall]:
    """Return the wrappers around a compiled call, one for each optimizer of the model, the outermost first."""
    wrappers: list[_CompiledCall] = []
    while isinstance(call, _CompiledCall):
        wrappers.append(call)
        call = call.call
    return wrappers


class _Hook:
    """A hook of a model that is not copied or saved with it: its copy does nothing, and needs no GradStudio."""

    def __init__(self, call: Callable[..., None]) -> None:
        self._call = call
        self._transform = function_transforms.transform()  # within one, no tensor has values

    def __call__(self, *arguments: Any) -> None:
        if not is_compiling() and not is_tracing() and self._transform() is None:
            self._call(*arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")
