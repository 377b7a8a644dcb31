"""The birth of the first NaN or Inf in a user's training: in the model, found by replaying the pass; in the loss code,
found in autograd's graph; or in the model's input."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from gradstudio.core.provenance import Provenance, ProvenanceUnknown
from gradstudio.core.unknown import is_known
from gradstudio.engine.torch_internals import function_modes
from gradstudio.watching.births import loss_nodes, operation_lines, saved_tensors
from gradstudio.watching.births.birth_search import BirthSearch
from gradstudio.watching.births.kept_pass import KeptPass
from gradstudio.watching.births.loss_derivatives import LossDerivatives
from gradstudio.watching.births.observed_passes import ObservedPasses, StepPasses
from gradstudio.watching.births.pending_loss import PendingLoss
from gradstudio.watching.births.skipped_batches import Losses, SkippedBatch, loss_of

MOST_SUSPECTS = 64  # of a step
MOST_SEARCHES = 8  # for the birth of a skipped value: a script that skips half of its batches must not become slow
_ENOUGH = f"after {MOST_SEARCHES} batches that were not finite it is not searched for any more"
# If finite gradients are gone, and others are in their place.
MADE_BY_THE_SCRIPT = "the backward passes gave finite gradients, of which the script made these"


Birth = tuple[Provenance | None, str]  # where the first non-finite value was born, or why that is unknown
NO_BIRTH: Birth = None, ""
Search = Callable[[], Provenance | None]


class Births:
    """Keeps what is needed to replay the passes of a step of some models, and finds where a non-finite value was born.
    No method raises for a fault of its own: `unknown` says in a sentence why nothing was found."""

    def __init__(
        self, *models: nn.Module | Sequence[nn.Module], guard: Callable[[Any], Any] = lambda call: call
    ) -> None:
        """Models and `guard` are those of `ObservedPasses`."""
        self.passes = ObservedPasses(models, guard, self._look_back)
        self._derivatives = LossDerivatives(self.passes.mark, several=len(models) > 1)
        self._search = BirthSearch(self.passes, self._derivatives)
        self._usual = 1  # micro-batches of the previous step
        # Passes that were not finite and had no gradient by then; `skipped_batches` is to judge them.
        self.suspects: dict[KeptPass, SkippedBatch] = {}
        self._losses = Losses()
        self._pending: list[PendingLoss] = []
        self._searches = 0  # for the batches that the script has skipped
        self.has_told = False  # whether the run has gone non-finite: a later step's values are no births
        self._at_the_pass: Callable[[], AbstractContextManager[None]] = nullcontext  # gives weights their former values
        # number of roots, `is_explained` and `unknown` of the step before the latest backward pass
        self._before = 0, False, ""

    @property
    def unknown(self) -> str:
        """Why the birth of this step's first non-finite value is unknown, a sentence."""
        return self.passes.step.unknown

    @property
    def why_unknown(self) -> str:
        """Why the birth of the step's non-finite loss is unknown, a sentence."""
        return self.unknown or _ENOUGH * (self._searches >= MOST_SEARCHES)

    # ---- the loss

    def before_backward(
        self,
        roots: Sequence[Tensor],
        *,
        scaled: bool = False,
        losses: Sequence[Tensor | None] = (),
        number: float | None = None,
        later: bool = False,
    ) -> Provenance | None:
        """Begin a backward pass. If its loss is non-finite, return where that was born; None otherwise, or if unknown.
        The Inf of a loss that a scaler has `scaled` may come from the scale; `losses` are the scaler's inputs, None if
        unknown. `number` is the loss itself, if already read; `later`: `look_at_losses` is called once it is there, so
        that nothing waits for the loss here."""
        passes = self.passes
        if passes.is_paused:
            return None
        if passes.is_detached:
            passes.attach()  # after torch.save or torch.jit.script has raised
        passes.take_gradients()
        step = passes.step
        self._before = len(step.roots), step.is_explained, step.unknown
        passes.add_roots(roots)
        self._derivatives.hook(roots, () if passes.latest is None else passes.latest[:1])
        if number is not None and math.isfinite(number):
            return None
        pending = PendingLoss(tuple(roots), scaled, tuple(losses))
        if later and (held := loss_nodes.keep_nodes(roots, passes.mark)) is not None:
            place, began = self._micro_batch(roots), operation_lines.begins_at()
            self._pending.append(pending._replace(place=place, held=held, began=began))
            return None
        return self._birth_of_pending(pending)

    def look_at_losses(self, number: float) -> Provenance | None:
        """Complete `before_backward` for passes that were observed with `later`. `number` is their loss."""
        birth: Provenance | None = None
        for pending in self._pending:
            if not math.isfinite(number):
                birth = birth or self._birth_of_pending(pending)
                if birth is not None and birth.source.startswith(operation_lines.BEGAN):
                    birth = replace(birth, source=pending.began)
        self._release_pending(0)
        return birth

    def _release_pending(self, first: int) -> None:
        for pending in self._pending[first:]:
            saved_tensors.release(pending.held)
        del self._pending[first:]

    def _birth_of_pending(self, pending: PendingLoss) -> Provenance | None:
        if self._is_over or not pending.is_broken or self._searches >= MOST_SEARCHES:
            return None
        self._searches += 1
        place = self._micro_batch(pending.roots) if pending.place is None else pending.place
        birth = self._find(partial(self._search.of_the_loss, pending.roots))
        if birth is None or place < 0:
            return birth
        return replace(birth, micro_batch=place, micro_batches=max(self._usual, place + 1))

    def _micro_batch(self, roots: Sequence[Tensor]) -> int:
        """Return the index of the micro-batch of the loss, if so far each backward pass belonged to one forward pass,
        and this one belongs to a new one; otherwise -1."""
        step = self.passes.step
        passes, place = step.finite_passes + len(step.back), step.finite_roots + self._before[0]
        try:
            again = any(each.has_gradient for each in loss_nodes.passes_before(roots, self.passes.mark))
        except ProvenanceUnknown:
            return -1
        return place if passes == place and not again else -1

    # ---- the gradients

    @property
    def _is_over(self) -> bool:
        """Whether the birth of this step, or of the run, was returned."""
        return self.passes.step.is_explained or self.has_told

    @property
    def has_passes(self) -> bool:
        """Whether a pass was observed since the latest step."""
        self.passes.take_gradients()
        return self.passes.latest is not None or bool(self.suspects or self.passes.step.back)

    @property
    def reached_model(self) -> bool:
        """Whether the latest backward pass, or a non-finite one before it, reached the model."""
        self.passes.take_gradients()
        return bool(self.passes.step.back)

    def explain(self) -> Provenance | None:
        """Return where the first non-finite value of this step's gradients was born; None if unknown, or already
        returned in this step. The weights must still be those that produced the gradients."""
        self.passes.take_gradients()
        birth = None if self._is_over or self.passes.is_paused else self._find(self._of_the_gradients)
        return _without_line_at_work(birth)  # which is that of the update

    def _of_the_gradients(self) -> Provenance | None:
        return self._search.of_the_gradients(self.passes.step)

    def all_finite(self) -> None:
        """Record that all gradients and the loss are finite after a backward pass: nothing was born in it, and its
        inputs are released."""
        self.passes.take_gradients()
        step = self.passes.step
        if self.suspects:
            for kept_pass in step.back:
                self.suspects.pop(kept_pass, None)
        step.finite_passes += len(step.back)
        step.finite_roots += len(step.roots)
        step.back.clear()
        step.roots.clear()
        if self._derivatives.nodes:
            self._derivatives.forget()

    def of_another(self) -> None:
        """Record that the backward pass belonged to other models: forget its observations."""
        self.passes.take_gradients()
        step = self.passes.step
        place, step.is_explained, step.unknown = self._before
        del step.roots[place:]
        self._release_pending(max(0, len(self._pending) - 1))

    # ---- skipped batches

    def skipped_batches(self, *, finite: bool) -> list[SkippedBatch]:
        """Return the non-finite passes for which the script made no backward pass, although the next step is being
        made. If that step is not `finite` itself, a pass with an unknown loss may belong to it."""
        self.passes.take_gradients()
        back = self.passes.step.back
        skipped = [suspect for kept_pass, suspect in self.suspects.items() if kept_pass not in back]
        self.suspects.clear()
        return [suspect for suspect in skipped if finite or is_known(suspect.loss)]

    def birth_of_discarded(self) -> Birth:
        """Return where the first non-finite value was born in gradients that the script discarded, and why that is
        unknown."""
        self.passes.take_gradients()
        return self._find_aside(self._of_the_gradients)

    def at_the_end(self) -> tuple[float, Provenance | None] | None:
        """Check the latest pass, if the script ends before its backward pass. Return its loss, UNKNOWN if that is gone,
        and where the non-finite value was born; None if everything that still exists is finite."""
        passes = self.passes
        passes.take_gradients()
        if passes.latest is None or passes.is_paused or not passes.latest[0].training:
            return None
        kept_pass, _ = passes.latest
        losses = loss_nodes.broken_losses(kept_pass, passes.mark)
        broken = kept_pass.broken_results
        if not losses and not broken:
            return None
        birth = self._find(partial(self._search.of_pass, kept_pass, losses[:1]))
        return loss_of(losses[:1], broken), _without_line_at_work(birth)  # no backward pass has begun

    def _look_back(self, kept_pass: KeptPass) -> None:
        """Check a pass that has received no gradient by the next one: the script may have checked its loss."""
        if not kept_pass.training:
            return
        held, searching, loss, broken = kept_pass.is_held, self._losses.searching, None, list[Tensor]()
        with function_modes.unobserved():  # a recorder would take these calls for the script's
            with suppress(ProvenanceUnknown):  # of loss code that is too long to be searched
                loss = self._losses.of(kept_pass, self.passes.mark) if held else None
            if loss is None and (not held or searching):
                broken = kept_pass.broken_results
        if loss is not None:
            self._suspect(kept_pass, [loss], [])
        elif broken:
            self._suspect(kept_pass, [], broken)

    def _suspect(self, kept_pass: KeptPass, losses: Sequence[Tensor], broken: Sequence[Tensor]) -> None:
        if len(self.suspects) < MOST_SUSPECTS:
            birth, unknown = self._find_aside(partial(self._search.of_pass, kept_pass, losses))
            self.suspects[kept_pass] = SkippedBatch(loss_of(losses, broken), birth, unknown, after_backward=False)

    # ---- searching

    @contextmanager
    def searching_in(self, at_the_pass: Callable[[], AbstractContextManager[None]]) -> Generator[None]:
        """Let each search take place within this context, in which the weights are those of the pass again."""
        self._at_the_pass = at_the_pass
        try:
            yield
        finally:
            self._at_the_pass = nullcontext

    def _find(self, search: Search) -> Provenance | None:
        passes, step = self.passes, self.passes.step
        passes.is_paused = True
        birth: Provenance | None = None
        try:
            with self._at_the_pass():
                birth = None if step.unknown else search()
        except ProvenanceUnknown as fault:
            step.unknown = str(fault)
        except Exception as fault:  # from the user's code, which was not written to be run twice
            step.unknown = f"repeating the step ended with {type(fault).__name__}: {fault}"
        finally:
            passes.forget_gradients()
            passes.is_paused = False
        step.is_explained = birth is not None
        return birth

    def _find_aside(self, search: Search) -> Birth:
        """Search without affecting the observations of the current step."""
        if self._searches >= MOST_SEARCHES:
            return None, _ENOUGH
        self._searches += 1
        step = self.passes.step
        before, step.unknown = (step.is_explained, step.unknown), ""
        birth = _without_line_at_work(self._find(search))
        why, (step.is_explained, step.unknown) = step.unknown, before
        return birth, why

    # ---- a step

    def restart(self) -> None:
        """Forget the passes whose gradients the script discarded. The next pass may have been made already."""
        self.passes.take_gradients()
        self.passes.step = StepPasses()
        self._derivatives.forget()

    def clear(self) -> None:
        """Begin a new step."""
        step = self.passes.step
        passes, losses = step.finite_passes + len(step.back), step.finite_roots + len(step.roots)
        self._usual = losses if passes == losses > 0 else 1
        self.passes.clear()
        self.suspects.clear()
        self._release_pending(0)
        if self._derivatives.nodes:
            self._derivatives.forget()

    def remove(self) -> None:
        """Remove the hooks from the models, and forget the step."""
        self.passes.detach()
        self.clear()


def _without_line_at_work(birth: Provenance | None) -> Provenance | None:
    """Return the result without the current line, unless that is the one of the backward pass."""
    return replace(birth, source="") if birth is not None and birth.source.startswith(operation_lines.BEGAN) else birth
