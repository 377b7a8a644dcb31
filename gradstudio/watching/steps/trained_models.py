"""The trained objects: the parameters of an optimizer, or of a model that is updated manually, and their modules."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import is_
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from gradstudio.core.provenance import ProvenanceUnknown
from gradstudio.core.row import Layer
from gradstudio.watching.births.step_births import Births
from gradstudio.watching.hooks.guard import say
from gradstudio.watching.measuring.parameters import Parameters, sizes
from gradstudio.watching.measuring.sharded_parameters import are_sharded, whole_shapes
from gradstudio.watching.script import model_layers
from gradstudio.watching.script.source_lines import is_own


class TrainedModels:
    """Refers to the optimizer and the models, whose births it keeps, by weak references: a script may create a hundred
    models, one after the other."""

    def __init__(
        self,
        optimizer: Optimizer | None,
        model: nn.Module | None,
        tensors: Sequence[Tensor],
        guard: Callable[[Any], Any],
    ) -> None:
        self._tensors, self._model_is_given, self._guard = list(tensors), model is not None, guard
        self._optimizer: Callable[[], Any] = _nobody if optimizer is None else weakref.ref(optimizer, self._on_gone)
        self._models = [weakref.ref(model, self._on_gone)] if model is not None else []
        self.recorder: Any = None
        self.births = Births(*self.models, guard=guard)
        self._trained: tuple[int, ...] | None = None  # ids of the parameters that the rows describe
        self._noted: dict[int, tuple[weakref.ref[Tensor], int, Layer]] = {}  # the layers of shards, by the tensor's id
        self._seen: list[Tensor] = []  # all parameters at that time
        self._seen_trained: list[bool] = []  # which of them were trained
        self._seen_sizes: list[int] = []
        self.parameters = Parameters(())  # those that the rows describe, as they are measured
        self.thread = threading.get_ident()  # the only one that may read their gradients, as it trains them
        self.gone = False  # True once there is nothing left that could be trained
        self._settling = self._settled = False
        self._guarded_last = guard(self._last)

    @property
    def _is_by_hand(self) -> bool:
        """Whether there never was an optimizer."""
        return self._optimizer is _nobody

    @property
    def optimizer(self) -> Any:
        """The optimizer, or several treated as one; None if there is none, or no longer."""
        return self._optimizer()

    def has(self, optimizer: Optimizer) -> bool:
        """Return whether this is the optimizer, or one of several."""
        return self._optimizer() is optimizer

    def all_parameters(self) -> list[Tensor]:
        """Return every parameter that may be trained."""
        optimizer, models = self.optimizer, self.models
        if optimizer is not None:
            return model_layers.of_optimizer(optimizer)
        return [tensor for model in models for tensor in model.parameters()] if models else self._tensors

    @property
    def models(self) -> list[nn.Module]:
        """The trained models, in the order of the optimizer: usually one."""
        return [model for each in self._models if (model := each()) is not None]

    @property
    def models_in_script(self) -> list[nn.Module]:
        """The trained models as the script calls them, as far as observed: with their wrappers."""
        with suppress(ProvenanceUnknown):
            return self.births.passes.models
        return []

    def find_models(self) -> None:
        """Find the models of an optimizer, if possible before their first pass, so that a NaN in that is found too."""
        tensors, models = self.all_parameters(), self.models
        if self._model_is_given or not tensors:
            return
        if models and {id(tensor) for tensor in tensors} <= {
            id(each) for model in models for each in model.parameters()
        }:
            return
        trained = [tensor for tensor in tensors if tensor.requires_grad]
        own_models = model_layers.models_of(tensors)
        if not own_models and len(trained) < len(tensors):
            own_models = model_layers.models_of(trained)
        if [id(either[0]) for either in own_models] != list(map(id, models)):
            self.births.remove()
            self._models = [weakref.ref(either[0], self._on_gone) for either in own_models]
            self.births = Births(*own_models, guard=self._guard)
            self.births.passes.recorder = self.recorder

    def note_layers(self) -> None:
        """Note the layers of shards before the first pass: FSDP replaces them in the modules while it computes."""
        tensors = self.all_parameters()
        if are_sharded(tensors):
            model = model_layers.together(self.models)
            tensors = model_layers.in_forward_order(model, tensors)
            layers = zip(tensors, self._layers_of(model, tensors), strict=True)
            self._noted = {id(each): (weakref.ref(each), place, layer) for place, (each, layer) in enumerate(layers)}

    def _in_order(self, model: model_layers.ModelLike, tensors: list[Tensor]) -> list[Tensor]:
        """Return the tensors in the order in which the model names them."""
        ordered = model_layers.in_forward_order(model, tensors)
        return sorted(ordered, key=self._place_of) if self._noted else ordered

    def _place_of(self, tensor: Tensor) -> int:
        return noted[0] if (noted := self._noted_of(tensor)) is not None else len(self._noted)

    def _noted_of(self, tensor: Tensor) -> tuple[int, Layer] | None:
        noted = self._noted.get(id(tensor))
        return noted[1:] if noted is not None and noted[0]() is tensor else None

    def _layers_of(self, model: model_layers.ModelLike, tensors: list[Tensor]) -> tuple[Layer, ...]:
        """Return a layer for each parameter."""
        names = model_layers.names(model, self.optimizer)
        named = [(names.get(id(tensor), f"parameter{place}"), tensor) for place, tensor in enumerate(tensors)]
        layers = model_layers.layers_of(model, named, whole_shapes(tensors))
        noted = map(self._noted_of, tensors)
        return tuple(layer if known is None else known[1] for layer, known in zip(layers, noted, strict=True))

    def adopt(self, optimizer: Optimizer) -> None:
        """Treat this optimizer as the one that trains the model."""
        self._optimizer = weakref.ref(optimizer, self._on_gone)

    def _are_unchanged(self) -> bool:
        """Return whether the tensors are those with which the run began, with the same sizes, and the same of them are
        trained."""
        optimizer, before = self._optimizer(), self._seen
        if optimizer is not None and len(groups := optimizer.param_groups) == 1:
            held = groups[0]["params"]
        else:
            held = self.all_parameters()
        if not (len(held) == len(before) and all(map(is_, held, before))):
            return False
        return [tensor.requires_grad for tensor in held] == self._seen_trained and sizes(held) == self._seen_sizes

    def _see(self, tensors: list[Tensor]) -> None:
        """Record the tensors with which the run begins."""
        self._seen, self._seen_trained = tensors, [tensor.requires_grad for tensor in tensors]
        self._seen_sizes = sizes(tensors)

    def trains_any(self, tensors: set[int]) -> bool:
        """Return whether one of these ids belongs to one of the parameters."""
        return self._trained is not None and not tensors.isdisjoint(self._trained)

    def _have_grown(self) -> bool:
        """Return whether further parameters are trained now, for example after a layer was unfrozen, or other ones
        instead of them all, or some have other sizes; they have changed in some way."""
        assert self._trained is not None
        if self.parameters.are_resized:
            return True
        if self.optimizer is None:
            return False
        tensors = self.all_parameters()
        now = [id(tensor) for tensor in tensors if tensor.requires_grad]
        before = set(self._trained)
        return bool(now) and (set(now) > before or before.isdisjoint(map(id, tensors)))

    # ---- the script releases them

    @property
    def _has_more_to_tell(self) -> bool:
        """Whether anything was observed since the latest row."""
        raise NotImplementedError

    def _last(self) -> None:
        """Record the rest: the script, or the training, has ended."""
        raise NotImplementedError

    def _restart(self) -> None:
        """Restart the step."""
        raise NotImplementedError

    def _on_gone(self, of: object) -> None:
        """Release the parameters, as the script has done. If the garbage collector calls this in the midst of torch or
        of the watch itself, or in another thread, the remaining records wait for `settle`: locks may be held."""
        if of is self._optimizer or (self._is_by_hand and of in self._models):
            self.gone = True
            frame = sys._getframe().f_back  # None at the end of Python
            if not self._has_more_to_tell or (frame is not None and is_own(frame.f_code.co_filename)):
                self.settle()

    def settle(self) -> bool:
        """Record the rest of an observer that is gone, and release its parameters, once. Return whether that is done:
        not while it is in progress, which torch's own hooks notice, nor in a thread other than the one that trained it.
        """
        if self._settling or (self._has_more_to_tell and not self._is_of_this_thread):
            return self._settled
        self._settling = True
        try:
            if self._has_more_to_tell:
                self._guarded_last()
        except FloatingPointError as fault:  # requested, but the script has continued
            say(str(fault))
        finally:
            self.births.remove()
            self.recorder.close()
            self._release()
            self._trained = None
            self._see([])
            self._restart()
            self._settled = True
        return True

    @property
    def _is_of_this_thread(self) -> bool:
        """Whether this thread trained it, or that one has ended."""
        return self.thread == threading.get_ident() or self.thread not in {each.ident for each in threading.enumerate()}

    def _release(self) -> None:
        """Release the parameters, and any copy of them. A measurement in progress, which the end of a model may
        interrupt, keeps its own."""
        if self._trained is not None:
            self.parameters = Parameters(())


def _nobody() -> None:
    """The reference to an optimizer if there is none."""
