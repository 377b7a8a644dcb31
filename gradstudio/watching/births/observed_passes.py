"""The forward passes that a user's script makes of some models in a step, and the gradients that come back to them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import unserializable_hook

from gradstudio.engine.torch_internals import autograd_nodes, clipping_hooks
from gradstudio.watching.births.hooked_module import HookedModule
from gradstudio.watching.births.kept_pass import NO_AUTOCAST, KeptPass, autocast_now, version
from gradstudio.watching.births.pass_state import PLAIN_STATE
from gradstudio.watching.hooks.trees import tensors_of

MOST_PASSES = 1024  # number of passes kept of a step
MOST_BETWEEN = 64  # number of operations searched between two passes


@dataclass(slots=True)
class StepPasses:
    """The passes of one step so far, created for each. `back`: the forward passes, in the order in which gradients came
    back; `roots`: the nodes of autograd's graph from which backward passes began. Those whose gradients are all known
    to be finite are only counted."""

    back: dict[KeptPass, None] = field(default_factory=dict)
    roots: list[Any] = field(default_factory=list)
    finite_passes: int = 0
    finite_roots: int = 0
    is_explained: bool = False  # whether the birth of its first non-finite value was returned
    unknown: str = ""  # why that is unknown, a sentence


class ObservedPasses:
    """Observes the passes of some models by hooks on them. Nothing is copied, and the models' computation is
    unchanged."""

    def __init__(
        self,
        models: Sequence[nn.Module | Sequence[nn.Module]],
        guard: Callable[[Any], Any],
        on_unused: Callable[[KeptPass], None],
    ) -> None:
        """Each model is a module, or several of which one is called: the first observed call, including its submodules.
        `guard` wraps a function that torch calls. `on_unused`: called with a pass to which no gradient has come back by
        the time of the next one."""
        self.mark = f"gradstudio {id(self)}"  # of a node of autograd's graph that produces an output of a model
        self.recorder: Any = None  # called for each pass that is not within another
        self.step = StepPasses()
        self.latest: tuple[KeptPass, nn.Module] | None = None  # until a gradient comes back; held, as a script that
        # stops for a NaN may let go of its model before it ends
        self.without_gradient = 0  # passes in training mode, until they are read
        self.is_paused = False  # while passes are replayed
        self._on_unused = on_unused
        self._begun: list[KeptPass] = []  # of forward passes within forward passes
        # Gradients that have come back, with the pass and the index of the output, until `take_gradients`: each line of
        # Python takes longest within a backward pass. An output that the loss does not use has no gradient, even if one
        # node produced it with another, as unbind does.
        self._gradients: list[tuple[KeptPass, int, Tensor | None]] = []
        self._backward_at_work = autograd_nodes.active_backward()
        self._hook_gradient = autograd_nodes.gradient_hook_adder()
        self._may_be_cast = clipping_hooks.autocast_asker()
        self.hooked = [
            [HookedModule(each, self._begin, self._end, guard) for each in _either(model)] for model in models
        ]
        for either in self.hooked:
            for each in either:
                each.either = either
        self.attach()

    @property
    def models(self) -> list[nn.Module]:
        """For each model the module that is called, as far as observed. ProvenanceUnknown if one is gone."""
        return [either[0].inner for either in self.hooked]

    @property
    def wait_for_gradient(self) -> bool | None:
        """Whether an observed pass has received no gradient yet; None if none ever was observed, for example for a
        model whose parts are called separately."""
        self.take_gradients()
        if self.latest is not None:
            return True
        return False if any(each.states.passes for either in self.hooked for each in either) else None

    def attach(self) -> None:
        """Install the hooks on the models, unless they are there."""
        self.is_detached = False
        for either in self.hooked:
            for each in either:
                each.attach()

    def detach(self) -> None:
        """Remove the hooks from the models."""
        self.is_detached = True
        for either in self.hooked:
            for each in either:
                each.detach()
        self._begun.clear()

    def take_gradients(self) -> None:
        """Add the gradients that have come back to passes since the last call."""
        step = self.step
        for kept_pass, place, gradient in self._gradients:
            if gradient is None:
                continue
            if gradient.requires_grad or kept_pass.gradients[place] is not None:
                step.unknown = "more than one backward pass went through the same forward pass"
                gradient = gradient.detach()
            kept_pass.gradients[place] = gradient
            if self.latest is not None and self.latest[0] is kept_pass:
                self.latest = None
            if len(step.back) >= MOST_PASSES:
                step.back.clear()
                step.unknown = f"the step has more than {MOST_PASSES:,} forward passes"
            elif not step.unknown.startswith("the step has"):
                step.back[kept_pass] = None
        self._gradients.clear()

    def add_roots(self, roots: Sequence[Tensor]) -> None:
        """Add the tensors from which a backward pass begins."""
        step = self.step
        if len(step.roots) >= MOST_PASSES:  # of a model that gets gradients, but no step
            step.roots.clear()
            step.unknown = f"the step has more than {MOST_PASSES:,} backward passes"
        for root in roots:
            if (node := root.grad_fn) is not None:
                step.roots.append(node)

    def forget_gradients(self) -> None:
        """Forget those that have come back to replayed passes."""
        self._gradients.clear()

    def clear(self) -> None:
        """Begin a new step."""
        self._gradients.clear()
        self._begun.clear()  # of passes that ended with an exception
        self.step, self.latest = StepPasses(), None

    # ---- hooks

    def _begin(self, of: HookedModule, module: nn.Module, inputs: Any, named_inputs: Any) -> None:
        if self.is_paused or not torch.is_grad_enabled() or self._backward_at_work() is not None:
            self.without_gradient += module.training and not (self.is_paused or self._begun)
            return  # a replay, an evaluation, or a recomputed checkpoint
        if self._gradients:
            self.take_gradients()
        autocast = autocast_now() if self._may_be_cast() else NO_AUTOCAST
        kept_pass = KeptPass(of, inputs, named_inputs, module.training, of.states.before(module), autocast)
        if self.latest is not None:
            if not self._begun and not self._is_given(kept_pass, self.latest[0]):
                self._on_unused(self.latest[0])
            self.latest = None
        if self.recorder is not None and not self._begun:
            self.recorder.before_pass(kept_pass)
        self._begun.append(kept_pass)

    def _end(self, of: HookedModule, module: nn.Module, inputs: Any, outputs: Any) -> None:
        if self.is_paused or not self._begun or not torch.is_grad_enabled() or self._backward_at_work() is not None:
            return
        kept_pass = self._begun.pop()
        while kept_pass.of is not of:  # of a pass that ended with an exception
            if not self._begun:
                return
            kept_pass = self._begun.pop()
        if len(of.either) > 1 and not any(each.of in of.either for each in self._begun):
            self._choose(of)
        if kept_pass.state is not PLAIN_STATE:
            of.states.after(module, kept_pass.state)
        given = (outputs,) if isinstance(outputs, Tensor) else tensors_of(outputs)
        for tensor in given:
            node: Any = tensor.grad_fn  # kept alive, as torch creates a new one for each query
            if node is not None:  # a parameter that is returned unchanged has none, and would collect every hook
                node.metadata[self.mark, tensor.output_nr] = len(kept_pass.given)
                hook = _GradientHook(_on_gradient, self._gradients, kept_pass, len(kept_pass.given))
                kept_pass.given.append((tensor.detach(), version(tensor)))
                kept_pass.gradients.append(None)
                kept_pass.held_by.append(weakref.ref(hook))
                self._hook_gradient(tensor, hook)
                node.metadata[self.mark] = kept_pass
        self.latest = kept_pass, module
        if self.recorder is not None and not self._begun:
            self.recorder.after_pass(kept_pass, given)  # last, as it observes each call from here on

    def _choose(self, called: HookedModule) -> None:
        """Watch only the passes of this module, or of the parts one of which is called as the whole."""
        for other in called.either:
            if other is not called:
                other.detach()
        called.either[:] = [called]

    def _is_given(self, kept_pass: KeptPass, before: KeptPass) -> bool:
        """Return whether the input of a pass was computed from the previous one, as a decoder's is from an encoder."""
        waiting, looks = kept_pass.ends, 0
        while waiting and looks < MOST_BETWEEN:
            node, looks = waiting.pop(), looks + 1
            if (made := node.metadata.get(self.mark)) is before:
                return True
            if made is None:
                waiting += [following for following, _ in node.next_functions if following is not None]
        return False


def _either(model: nn.Module | Sequence[nn.Module]) -> Sequence[nn.Module]:
    return [model] if isinstance(model, nn.Module) else model


@unserializable_hook  # otherwise torch warns if an output is saved
class _GradientHook(partial):  # pyright: ignore[reportMissingTypeArgument]
    """The hook of an output. The graph owns it, so a pass without a backward pass is forgotten. It is a `partial`,
    which is created without a Python call."""

    __slots__ = ()


def _on_gradient(
    gradients: list[tuple[KeptPass, int, Tensor | None]], of: KeptPass, place: int, gradient: Tensor | None
) -> None:
    gradients.append((of, place, gradient))
