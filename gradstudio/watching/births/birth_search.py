"""The search for the birth of a non-finite value: in the loss code, or in the passes from which it was computed."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from gradstudio.core.provenance import Provenance, ProvenanceUnknown
from gradstudio.engine.operation_watcher import values_of
from gradstudio.engine.torch_internals import seen_operations
from gradstudio.watching.births import loss_code, model_code
from gradstudio.watching.births.kept_pass import KeptPass, all_finite
from gradstudio.watching.births.loss_derivatives import LossDerivatives
from gradstudio.watching.births.loss_nodes import passes_before
from gradstudio.watching.births.loss_values import passes_of
from gradstudio.watching.births.observed_passes import ObservedPasses, StepPasses
from gradstudio.watching.births.replay import replay
from gradstudio.watching.script import model_layers
from gradstudio.watching.script.model_layers import ModelLike


class BirthSearch:
    """Searches the passes of some models, and the loss code behind them. Each method returns None if nothing was
    non-finite, and raises ProvenanceUnknown with the reason, or whatever the user's code raises."""

    def __init__(self, passes: ObservedPasses, derivatives: LossDerivatives) -> None:
        self._passes, self._derivatives = passes, derivatives

    @property
    def _all(self) -> ModelLike:
        """All models as one."""
        return model_layers.together(self._passes.models)

    def of_the_loss(self, roots: Sequence[Tensor]) -> Provenance | None:
        """Return the birth of the first non-finite value from which these tensors were computed."""
        mark = self._passes.mark
        given: KeptPass | None = None  # the pass that received the roots, if they are not a loss
        while (kept_pass := self._broken_before(roots)) is not None and (inputs := _broken_inputs(kept_pass)):
            roots, given = inputs, kept_pass
        if kept_pass is None and given is None:
            return loss_code.born_in(roots, mark, self._all)
        if kept_pass is None:
            with contextlib.suppress(ProvenanceUnknown):
                if birth := loss_code.born_in(roots, mark, self._all):
                    return birth
        kept_pass = kept_pass or given
        assert kept_pass is not None
        try:
            return self._replay(kept_pass, 0, 1)
        except Exception:  # it is not the same pass again; its own graph still exists
            with contextlib.suppress(ProvenanceUnknown):
                if birth := loss_code.born_in_a_pass(roots, self._all):
                    return birth
            if birth := model_code.of_the_inputs(kept_pass):
                return self._among_all(birth, kept_pass)
            raise

    def _broken_before(self, roots: Sequence[Tensor]) -> KeptPass | None:
        """Return the first pass with a non-finite result among those from which the roots were computed."""
        passes = passes_before(roots, self._passes.mark)
        return next((kept_pass for kept_pass in passes if not all_finite(kept_pass.results)), None)

    def of_pass(self, kept_pass: KeptPass, losses: Sequence[Tensor]) -> Provenance | None:
        """Return the birth in a pass without a backward pass; `losses` were computed from it."""
        roots = losses or _broken_inputs(kept_pass)
        return self.of_the_loss(roots) if roots else self._replay(kept_pass, 0, 1)

    def of_the_gradients(self, step: StepPasses) -> Provenance | None:
        """Return the birth of the first non-finite value of a step's gradients."""
        if not self._passes.hooked:
            return self._behind(step.roots, 0, 1)
        if not step.back:
            raise ProvenanceUnknown("no forward pass of the model was seen")
        passes, losses = step.finite_passes + len(step.back), step.finite_roots + len(step.roots)
        finite: list[KeptPass] = []  # that had finite gradients, and produced finite ones
        for number, kept_pass in enumerate(step.back, step.finite_passes):
            behind = all_finite(kept_pass.results) and not all_finite(kept_pass.gradients)
            # a loss of several passes has one backward pass, and none of them is a micro-batch
            place, of = (0, 1) if 0 < losses < passes else (number, passes)
            # one of several outputs may have been computed from another, like the output of a VAE from its mean, and
            # the gradient of that one also comes from within the model
            several = sum(gradient is not None for gradient in kept_pass.gradients) > 1
            if (several or not behind) and (birth := self._replay(kept_pass, place, of)):
                return birth
            if behind:
                return self._behind(self._before_pass(kept_pass, finite) or step.roots, place, of)
            finite.append(kept_pass)
        # the script's computations beside or before these models: its own parameters, or gradients of gradients
        roots = [*step.roots, *(node for kept_pass in step.back for node in kept_pass.ends)]
        return self._behind(roots, 0, 1, nodes_alone=False)

    def _behind(self, roots: Sequence[Any], place: int, of: int, *, nodes_alone: bool = True) -> Provenance:
        """Return the birth in the loss code behind these nodes."""
        mark, records = self._passes.mark, self._derivatives.records
        return loss_code.born_behind(roots, mark, self._all, records, place, of, nodes_alone=nodes_alone)

    def _before_pass(self, kept_pass: KeptPass, later_passes: Sequence[KeptPass]) -> list[Any]:
        """Return the nodes from which a gradient reached a pass if they are the inputs of a pass that used its output;
        [] if they are the roots of the backward passes."""
        for later in later_passes:
            if kept_pass in passes_of(later.ends, self._passes.mark):
                return later.ends
        return []

    def _replay(self, kept_pass: KeptPass, number: int, of: int) -> Provenance | None:
        if not seen_operations.can_intercept_operations():
            raise ProvenanceUnknown("this version of torch cannot be watched")
        model = kept_pass.of.inner
        made = replay(model, kept_pass)
        if made.sink is None:
            return None
        return self._among_all(model_code.provenance(model, kept_pass, made.watcher, made.sink, number, of), kept_pass)

    def _among_all(self, birth: Provenance, kept_pass: KeptPass) -> Provenance:
        """Return the birth with the name of its model, if there are several."""
        if len(self._passes.hooked) == 1:
            return birth
        place = next(place for place, either in enumerate(self._passes.hooked) if either is kept_pass.of.either)
        return model_code.within_models(birth, model_layers.names_of(self._passes.models)[place])


def _broken_inputs(kept_pass: KeptPass) -> list[Tensor]:
    """Return the non-finite inputs of a pass that were computed from something that takes a gradient. -Inf alone may be
    a mask."""
    inputs = [(tensor, values_of(tensor)) for tensor, _ in kept_pass.taken if tensor.grad_fn is not None]
    return [tensor for tensor, values in inputs if values.nan or (values.inf and bool((tensor == math.inf).any()))]
