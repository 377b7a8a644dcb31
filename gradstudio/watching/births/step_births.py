"""The birth of the first NaN or Inf in a user's training: in the model, found by replaying the pass; in the loss code,
found in autograd's graph; or in the model's input."""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import unserializable_hook

from gradstudio.core.provenance import Provenance, ProvenanceUnknown
from gradstudio.core.unknown import UNKNOWN, is_known
from gradstudio.engine.operation_watcher import is_finite, values_of
from gradstudio.engine.torch_internals import autograd_nodes, clipping_hooks, seen_operations
from gradstudio.watching.births import loss_code, loss_nodes, loss_values, model_code, operation_lines
from gradstudio.watching.births.hooked_module import HookedModule
from gradstudio.watching.births.kept_pass import NO_AUTOCAST, KeptPass, autocast_now, version
from gradstudio.watching.births.pass_state import PLAIN_STATE
from gradstudio.watching.births.replay import replay
from gradstudio.watching.births.skipped_batches import Losses, SkippedBatch
from gradstudio.watching.hooks.trees import tensors_of
from gradstudio.watching.script import model_layers
from gradstudio.watching.script.model_layers import ModelLike

MOST_PASSES = 1024  # number of passes kept of a step
MOST_BETWEEN = 64  # number of operations searched between two passes
MOST_SUSPECTS = 64  # of a step
MOST_SEARCHES = 8  # for the birth of a skipped value: a script that skips half of its batches must not become slow
# Consecutive backward passes without such a derivative, after which only one of several is checked.
_TAME_PASSES, _LOOK_AGAIN = 32, 16
_ENOUGH = f"after {MOST_SEARCHES} batches that were not finite it is not searched for any more"
# If finite gradients are gone, and others are in their place.
MADE_BY_THE_SCRIPT = "the backward passes gave finite gradients, of which the script made these"


Birth = tuple[Provenance | None, str]  # where the first non-finite value was born, or why that is unknown
NO_BIRTH: Birth = None, ""


class Births:
    """Keeps what is needed to replay the passes of a step of some models, and finds where a non-finite value was born.
    Nothing is copied, and the models' computation is unchanged. No method raises for a fault of its own: `unknown` says
    in a sentence why nothing was found."""

    def __init__(
        self, *models: nn.Module | Sequence[nn.Module], guard: Callable[[Any], Any] = lambda call: call
    ) -> None:
        """Each model is a module, or several of which one is called: the first observed call, including its submodules.
        `guard` wraps a function that torch calls."""
        self.unknown = ""
        self.recorder: Any = None  # called for each pass that is not within another
        self.mark = f"gradstudio {id(self)}"  # of a node of autograd's graph that produces an output of a model
        self._begun: list[KeptPass] = []  # of forward passes within forward passes
        self._back: dict[KeptPass, None] = {}  # in the order in which gradients came back
        self._roots: list[Any] = []  # nodes of autograd's graph from which backward passes began
        self._finite = 0, 0  # passes of this step, and roots, whose gradients are all known to be finite
        # Nodes of this step's loss code whose derivatives may be non-finite, and their inputs and outputs.
        self._steep: list[Any] = []
        self._derivatives: list[loss_code.Derivative] = []
        self.passes_without_gradient = 0  # in training mode, until they are read
        self._backward_passes = self._latest_steep = 0  # of those that were checked
        self._usual = 1  # micro-batches of the previous step
        # Gradients that have come back, with the pass and the index of the output, until `_hear_back` checks them: each
        # line of Python takes longest within a backward pass. An output that the loss does not use has no gradient,
        # even if one node produced it with another, as unbind does.
        self._heard: list[tuple[KeptPass, int, Tensor | None]] = []
        self._latest: tuple[KeptPass, nn.Module] | None = None  # until a gradient comes back; held, as a script that
        # stops for a NaN may let go of its model before it ends
        # Passes that were not finite and had no gradient by then; `skipped_batches` is to judge them.
        self.suspects: dict[KeptPass, SkippedBatch] = {}
        self._losses = Losses()
        self._pending: list[_PendingLoss] = []
        self._searches = 0  # for the batches that the script has skipped
        self.has_told = False  # whether the run has gone non-finite: a later step's values are no births
        self._told = self._busy = False
        self._before = 0, False, ""  # number of roots, `_told` and `unknown` before the latest backward pass
        self._backward_at_work = autograd_nodes.active_backward()
        self._hear_gradient = autograd_nodes.gradient_hook_adder()
        self._may_be_cast = clipping_hooks.autocast_asker()
        self._models = [
            [HookedModule(each, self._begin, self._end, guard) for each in _either(model)] for model in models
        ]
        for either in self._models:
            for each in either:
                each.either = either
        self._is_detached = True
        self.attach()

    @property
    def models(self) -> list[nn.Module]:
        """For each model the module that is called, as far as observed. ProvenanceUnknown if one is gone."""
        return [either[0].inner for either in self._models]

    def attach(self) -> None:
        """Install the hooks on the models, unless they are there."""
        self._is_detached = False
        for either in self._models:
            for each in either:
                each.attach()

    def detach(self) -> None:
        """Remove the hooks from the models."""
        self._is_detached = True
        for either in self._models:
            for each in either:
                each.detach()
        self._begun.clear()

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
        unknown. `number` is the loss itself, if already read; `later`: `look_at_losses` is called before the update, so
        that nothing waits for the loss here."""
        if self._busy:
            return None
        if self._is_detached:
            self.attach()  # after torch.save or torch.jit.script has raised
        if self._heard:
            self._look_at_gradients()
        self._before = len(self._roots), self._told, self.unknown
        if len(self._roots) >= MOST_PASSES:  # of a model that gets gradients, but no step
            self._roots.clear()
            self.unknown = f"the step has more than {MOST_PASSES:,} backward passes"
        for root in roots:
            if (node := root.grad_fn) is not None:
                self._roots.append(node)
        self._hook_derivatives(roots)
        if number is not None and math.isfinite(number):
            return None
        pending = _PendingLoss(tuple(roots), scaled, tuple(losses))
        if later and (held := loss_nodes.keep_nodes(roots, self.mark)) is not None:
            place, began = self._micro_batch(roots), operation_lines.begins_at()
            self._pending.append(pending._replace(place=place, held=held, began=began))
            return None
        return self._birth_of_pending(pending)

    def _hook_derivatives(self, roots: Sequence[Tensor]) -> None:
        """Hook the derivatives of the loss code that may receive or return non-finite values."""
        self._backward_passes += 1
        if self._backward_passes - self._latest_steep > _TAME_PASSES and self._backward_passes % _LOOK_AGAIN:
            return
        ends: list[Any] = [root.grad_fn for root in roots]
        latest = () if self._latest is None else (self._latest[0],)
        # the input of one model was computed from the output of another
        ends += _ends_before(loss_nodes.passes_before(roots, self.mark) if len(self._models) > 1 else latest)
        for node in loss_nodes.steep_nodes(ends, self.mark):
            self._latest_steep = self._backward_passes
            # not the node itself, which refers to its hook
            node.register_hook(partial(_on_derivative, self._derivatives, self._steep, len(self._steep)))
            self._steep.append(node)

    def _forget_derivatives(self) -> None:
        loss_values.release(each.node for each in self._derivatives)
        self._steep.clear()  # the hooks refer to these lists
        self._derivatives.clear()
        self._steep, self._derivatives = [], []

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
            loss_values.release(pending.held)
        del self._pending[first:]

    def _birth_of_pending(self, pending: _PendingLoss) -> Provenance | None:
        if self._told or self.has_told or not pending.is_broken or self._searches >= MOST_SEARCHES:
            return None
        self._searches += 1
        place = self._micro_batch(pending.roots) if pending.place is None else pending.place
        birth = self._search(lambda: self._of_the_loss(pending.roots))
        if birth is None or place < 0:
            return birth
        return replace(birth, micro_batch=place, micro_batches=max(self._usual, place + 1))

    def _micro_batch(self, roots: Sequence[Tensor]) -> int:
        """Return the index of the micro-batch of the loss, if so far each backward pass belonged to one forward pass,
        and this one belongs to a new one; otherwise -1."""
        passes, place = self._finite[0] + len(self._back), self._finite[1] + self._before[0]
        try:
            again = any(_has_gradient(kept_pass) for kept_pass in loss_nodes.passes_before(roots, self.mark))
        except ProvenanceUnknown:
            return -1
        return place if passes == place and not again else -1

    @property
    def why_unknown(self) -> str:
        """Why the birth of this step's non-finite loss is unknown, a sentence."""
        return self.unknown or _ENOUGH * (self._searches >= MOST_SEARCHES)

    def explain(self) -> Provenance | None:
        """Return where the first non-finite value of this step's gradients was born; None if unknown, or already
        returned in this step. The weights must still be those that produced the gradients."""
        if self._heard:
            self._look_at_gradients()
        birth = None if self._told or self.has_told or self._busy else self._search(self._of_the_gradients)
        return _without_line_at_work(birth)  # which is that of the update

    def at_the_end(self) -> tuple[float, Provenance | None] | None:
        """Check the latest pass, if the script ends before its backward pass. Return its loss, UNKNOWN if that is gone,
        and where the non-finite value was born; None if everything that still exists is finite."""
        if self._heard:
            self._look_at_gradients()
        if self._latest is None or self._busy:
            return None
        kept_pass, _ = self._latest
        if not kept_pass.training:
            return None
        losses = loss_nodes.broken_losses(kept_pass, self.mark)
        broken = kept_pass.broken_results
        if not losses and not broken:
            return None
        birth = _without_line_at_work(self._search(self._of_pass(kept_pass, losses[:1])))  # no backward pass has begun
        return _number(losses[:1], broken), birth

    # ---- skipped batches

    @property
    def has_passes(self) -> bool:
        """Whether a pass was observed since the latest step."""
        if self._heard:
            self._look_at_gradients()
        return self._latest is not None or bool(self.suspects or self._back)

    @property
    def reached_model(self) -> bool:
        """Whether the latest backward pass, or a non-finite one before it, reached the model."""
        if self._heard:
            self._look_at_gradients()
        return bool(self._back)

    @property
    def waits_for_gradient(self) -> bool | None:
        """Whether an observed pass has received no gradient yet; None if none ever was observed, for example for a
        model whose parts are called separately."""
        if self._heard:
            self._look_at_gradients()
        if self._latest is not None:
            return True
        return False if any(each.states.passes for either in self._models for each in either) else None

    def skipped_batches(self, *, finite: bool) -> list[SkippedBatch]:
        """Return the non-finite passes for which the script made no backward pass, although the next step is being
        made. If that step is not `finite` itself, a pass with an unknown loss may belong to it."""
        if self._heard:
            self._look_at_gradients()
        skipped = [suspect for kept_pass, suspect in self.suspects.items() if kept_pass not in self._back]
        self.suspects.clear()
        return [suspect for suspect in skipped if finite or is_known(suspect.loss)]

    def birth_of_discarded(self) -> Birth:
        """Return where the first non-finite value was born in gradients that the script discarded, and why that is
        unknown; forget the passes."""
        if self._heard:
            self._look_at_gradients()
        birth = self._aside(self._of_the_gradients)
        self.restart()
        return birth

    def restart(self) -> None:
        """Forget the passes whose gradients the script discarded. The next pass may have been made already."""
        if self._heard:
            self._look_at_gradients()
        self._back.clear()
        self._roots.clear()
        self._finite, self._told, self.unknown = (0, 0), False, ""
        self._forget_derivatives()

    def all_finite(self) -> None:
        """Record that all gradients and the loss are finite after a backward pass: nothing was born in it, and its
        inputs are released."""
        if self._heard:
            self._look_at_gradients()
        back, roots = self._back, self._roots
        if self.suspects:
            for kept_pass in back:
                self.suspects.pop(kept_pass, None)
        self._finite = self._finite[0] + len(back), self._finite[1] + len(roots)
        back.clear()
        roots.clear()
        if self._steep:
            self._forget_derivatives()

    def of_another(self) -> None:
        """Record that the backward pass belonged to other models: forget its observations."""
        if self._heard:
            self._look_at_gradients()
        place, self._told, self.unknown = self._before
        del self._roots[place:]
        self._release_pending(max(0, len(self._pending) - 1))

    def _look_back(self) -> None:
        """Check the previous pass, which has received no gradient by now: the script may have checked its loss."""
        if self._latest is None or not self._latest[0].training:
            return
        kept_pass, _ = self._latest
        held, searching, loss = kept_pass.is_held, self._losses.searching, None
        with contextlib.suppress(ProvenanceUnknown):  # of loss code that is too long to be searched
            loss = self._losses.of(kept_pass, self.mark) if held else None
        if loss is not None:
            self._suspect(kept_pass, [loss], [])
        elif (not held or searching) and (broken := kept_pass.broken_results):
            self._suspect(kept_pass, [], broken)

    def _suspect(self, kept_pass: KeptPass, losses: Sequence[Tensor], broken: Sequence[Tensor]) -> None:
        if len(self.suspects) < MOST_SUSPECTS:
            birth, unknown = self._aside(self._of_pass(kept_pass, losses))
            self.suspects[kept_pass] = SkippedBatch(_number(losses, broken), birth, unknown, after_backward=False)

    def _aside(self, search: Callable[[], Provenance | None]) -> Birth:
        """Search without affecting the observations of the current step."""
        if self._searches >= MOST_SEARCHES:
            return None, _ENOUGH
        self._searches += 1
        told, unknown, self.unknown = self._told, self.unknown, ""
        birth = _without_line_at_work(self._search(search))
        why, self._told, self.unknown = self.unknown, told, unknown
        return birth, why

    def _of_pass(self, kept_pass: KeptPass, losses: Sequence[Tensor]) -> Callable[[], Provenance | None]:
        if roots := losses or _broken_inputs(kept_pass):
            return lambda: self._of_the_loss(roots)
        return lambda: self._replay_steps(kept_pass, 0, 1)

    # ---- a step

    def clear(self) -> None:
        """Begin a new step."""
        passes, roots = self._finite[0] + len(self._back), self._finite[1] + len(self._roots)
        self._usual = roots if passes == roots > 0 else 1
        self._heard.clear()
        self._back.clear()
        self._roots.clear()
        self._begun.clear()  # of passes that ended with an exception
        self.suspects.clear()
        self._finite, self._latest = (0, 0), None
        self._told, self.unknown = False, ""
        self._release_pending(0)
        if self._steep:
            self._forget_derivatives()

    def remove(self) -> None:
        """Remove the hooks from the models, and forget the step."""
        self.detach()
        self.clear()

    # ---- records

    def _begin(self, of: HookedModule, module: nn.Module, inputs: Any, named_inputs: Any) -> None:
        if self._busy or not torch.is_grad_enabled() or self._backward_at_work() is not None:
            self.passes_without_gradient += module.training and not (self._busy or self._begun)
            return  # a replay, an evaluation, or a recomputed checkpoint
        if self._heard:
            self._look_at_gradients()
        autocast = autocast_now() if self._may_be_cast() else NO_AUTOCAST
        kept_pass = KeptPass(of, inputs, named_inputs, module.training, of.states.before(module), autocast)
        if self._latest is not None:
            if not self._begun and not self._is_given(kept_pass, self._latest[0]):
                self._look_back()
            self._latest = None
        if self.recorder is not None and not self._begun:
            self.recorder.before_pass(kept_pass)
        self._begun.append(kept_pass)

    def _end(self, of: HookedModule, module: nn.Module, inputs: Any, outputs: Any) -> None:
        if self._busy or not self._begun or not torch.is_grad_enabled() or self._backward_at_work() is not None:
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
                keep = _Keeper(_on_gradient, self._heard, kept_pass, len(kept_pass.given))
                kept_pass.given.append((tensor.detach(), version(tensor)))
                kept_pass.gradients.append(None)
                kept_pass.held_by.append(weakref.ref(keep))
                self._hear_gradient(tensor, keep)
                node.metadata[self.mark] = kept_pass
        self._latest = kept_pass, module
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
        waiting: list[Any] = [tensor.grad_fn for tensor, _ in kept_pass.taken if tensor.grad_fn is not None]
        looks = 0
        while waiting and looks < MOST_BETWEEN:
            node, looks = waiting.pop(), looks + 1
            if (made := node.metadata.get(self.mark)) is before:
                return True
            if made is None:
                waiting += [following for following, _ in node.next_functions if following is not None]
        return False

    def _look_at_gradients(self) -> None:
        """Check the gradients that have reached outputs of passes since the last check."""
        for kept, place, gradient in self._heard:
            if gradient is None:
                continue
            if gradient.requires_grad or kept.gradients[place] is not None:
                self.unknown = "more than one backward pass went through the same forward pass"
                gradient = gradient.detach()
            kept.gradients[place] = gradient
            if self._latest is not None and self._latest[0] is kept:
                self._latest = None
            if len(self._back) >= MOST_PASSES:
                self._back.clear()
                self.unknown = f"the step has more than {MOST_PASSES:,} forward passes"
            elif not self.unknown.startswith("the step has"):
                self._back[kept] = None
        self._heard.clear()

    # ---- the search

    def _search(self, search: Callable[[], Provenance | None]) -> Provenance | None:
        self._busy = True
        try:
            birth = None if self.unknown else search()
        except ProvenanceUnknown as fault:
            birth, self.unknown = None, str(fault)
        except Exception as fault:  # from the user's code, which was not written to be run twice
            birth, self.unknown = None, f"repeating the step ended with {type(fault).__name__}: {fault}"
        finally:
            self._heard.clear()  # of replayed passes
            self._busy = False
        self._told = birth is not None
        return birth

    def _of_the_loss(self, roots: Sequence[Tensor]) -> Provenance | None:
        given: KeptPass | None = None  # the pass that received the roots, if they are not a loss
        while (kept_pass := self._broken_before(roots)) is not None and (inputs := _broken_inputs(kept_pass)):
            roots, given = inputs, kept_pass
        if kept_pass is None and given is None:
            return loss_code.born_in(roots, self.mark, self._all())
        if kept_pass is None:
            with contextlib.suppress(ProvenanceUnknown):
                if birth := loss_code.born_in(roots, self.mark, self._all()):
                    return birth
        kept_pass = kept_pass or given
        assert kept_pass is not None
        try:
            return self._replay_steps(kept_pass, 0, 1)
        except Exception:  # it is not the same pass again; its own graph still exists
            with contextlib.suppress(ProvenanceUnknown):
                if birth := loss_code.born_in_a_pass(roots, self._all()):
                    return birth
            if birth := model_code.of_the_inputs(kept_pass):
                return self._among_all(birth, kept_pass)
            raise

    def _broken_before(self, roots: Sequence[Tensor]) -> KeptPass | None:
        """Return the first pass with a non-finite result among those from which the roots were computed."""
        passes = loss_nodes.passes_before(roots, self.mark)
        return next((kept_pass for kept_pass in passes if not _all_finite(kept_pass.results)), None)

    def _of_the_gradients(self) -> Provenance | None:
        if not self._models:
            return loss_code.born_behind(self._roots, self.mark, self._all(), self._derivatives, 0, 1)
        if not self._back:
            raise ProvenanceUnknown("no forward pass of the model was seen")
        finite, before = self._finite
        passes, losses = finite + len(self._back), before + len(self._roots)
        kept_passs: list[KeptPass] = []  # that had finite gradients, and produced finite ones
        for number, kept_pass in enumerate(self._back, finite):
            behind = _all_finite(kept_pass.results) and not _all_finite(kept_pass.gradients)
            # a loss of several passes has one backward pass, and none of them is a micro-batch
            place, of = (0, 1) if 0 < losses < passes else (number, passes)
            # one of several outputs may have been computed from another, like the output of a VAE from its mean, and
            # the gradient of that one also comes from within the model
            several = sum(gradient is not None for gradient in kept_pass.gradients) > 1
            if (several or not behind) and (birth := self._replay_steps(kept_pass, place, of)):
                return birth
            if behind:
                roots = self._before_pass(kept_pass, kept_passs)
                return loss_code.born_behind(roots, self.mark, self._all(), self._derivatives, place, of)
            kept_passs.append(kept_pass)
        # the script's computations beside or before these models: its own parameters, or gradients of gradients
        roots = [*self._roots, *_ends_before(self._back)]
        return loss_code.born_behind(roots, self.mark, self._all(), self._derivatives, 0, 1, nodes_alone=False)

    def _before_pass(self, kept_pass: KeptPass, kept_passs: Sequence[KeptPass]) -> list[Any]:
        """Return the nodes from which a gradient reached a pass: the inputs of a pass that used its output, or the
        roots of the backward passes."""
        for later in kept_passs:
            inputs = [tensor.grad_fn for tensor, _ in later.taken if tensor.grad_fn is not None]
            if kept_pass in loss_values.passes_of(inputs, self.mark):
                return inputs
        return self._roots

    def _replay_steps(self, kept_pass: KeptPass, number: int, of: int) -> Provenance | None:
        if not seen_operations.seeing_possible():
            raise ProvenanceUnknown("this version of torch cannot be watched")
        model = kept_pass.of.inner
        made = replay(model, kept_pass)
        if made.sink is None:
            return None
        return self._among_all(model_code.provenance(model, kept_pass, made.watcher, made.sink, number, of), kept_pass)

    def _among_all(self, birth: Provenance, kept_pass: KeptPass) -> Provenance:
        """Return the birth with the name of its model, if there are several."""
        if len(self._models) == 1:
            return birth
        place = next(place for place, either in enumerate(self._models) if either is kept_pass.of.either)
        return model_code.within(birth, model_layers.names_of(self.models)[place])

    def _all(self) -> ModelLike:
        """Return all models as one."""
        return model_layers.together(self.models)


class _PendingLoss(NamedTuple):
    """A backward pass whose loss has not been checked yet. `held` are nodes of its loss code."""

    roots: tuple[Tensor, ...]
    scaled: bool
    losses: tuple[Tensor | None, ...]
    place: int | None = None  # index of the micro-batch, -1 if unknown; None: to be determined now
    held: Sequence[Any] = ()
    began: str = ""  # the line of the script

    @property
    def is_broken(self) -> bool:
        given = self.losses or (None,) * len(self.roots)
        return any(
            not is_finite(loss) if loss is not None else _is_nan(root) if self.scaled else not is_finite(root)
            for root, loss in zip(self.roots, given, strict=False)
        )


def _either(model: nn.Module | Sequence[nn.Module]) -> Sequence[nn.Module]:
    return [model] if isinstance(model, nn.Module) else model


def _ends_before(passes: Iterable[KeptPass]) -> list[Any]:
    """Return the nodes that produced the inputs of these passes."""
    return [tensor.grad_fn for each in passes for tensor, _ in each.taken if tensor.grad_fn is not None]


def _has_gradient(kept_pass: KeptPass) -> bool:
    return any(gradient is not None for gradient in kept_pass.gradients)


def _broken_inputs(kept_pass: KeptPass) -> list[Tensor]:
    """Return the non-finite inputs of a pass that were computed from something that takes a gradient. -Inf alone may be
    a mask."""
    inputs = [(tensor, values_of(tensor)) for tensor, _ in kept_pass.taken if tensor.grad_fn is not None]
    return [tensor for tensor, values in inputs if values.nan or (values.inf and bool((tensor == math.inf).any()))]


def _without_line_at_work(birth: Provenance | None) -> Provenance | None:
    """Return the result without the current line, unless that is the one of the backward pass."""
    return replace(birth, source="") if birth is not None and birth.source.startswith(operation_lines.BEGAN) else birth


def _number(losses: Sequence[Tensor], broken: Sequence[Tensor]) -> float:
    """Return the loss, or a non-finite output that is a single number, such as a model's own loss; UNKNOWN if there is
    none."""
    loss = next((each for each in (*losses, *broken) if each.numel() == 1), None)
    return UNKNOWN if loss is None else float(loss.detach())


def _is_nan(root: Tensor) -> bool:
    return math.isnan(root.item()) if root.numel() == 1 else values_of(root).nan > 0


def _all_finite(tensors: Sequence[Tensor | None]) -> bool:
    return all(tensor is None or values_of(tensor).finite for tensor in tensors)


@unserializable_hook  # otherwise torch warns if an output is saved
class _Keeper(partial):  # pyright: ignore[reportMissingTypeArgument]
    """The hook of an output. The graph owns it, so a pass without a backward pass is forgotten. It is a `partial`,
    which is created without a Python call."""

    __slots__ = ()


def _on_gradient(
    heard: list[tuple[KeptPass, int, Tensor | None]], kept: KeptPass, place: int, gradient: Tensor | None
) -> None:
    heard.append((kept, place, gradient))


def _on_derivative(
    heard: list[loss_code.Derivative], steep: Sequence[Any], place: int, gave: tuple[Any, ...], came: tuple[Any, ...]
) -> None:
    """Record the inputs and outputs of a derivative, and what autograd has saved for it, which it releases
    afterwards."""
    if place < len(steep):
        loss_values.hold([steep[place]])
        heard.append(loss_code.Derivative(steep[place], came, gave))
