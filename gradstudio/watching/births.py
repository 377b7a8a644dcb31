"""Where the first NaN or Inf of somebody's own training was born: in their model, found by making the pass again; in
their loss code, found in autograd's graph; or in what the model was given."""

from __future__ import annotations

import contextlib
import copy
import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.jit import is_tracing  # pyright: ignore[reportPrivateImportUsage]
from torch.utils.hooks import unserializable_hook

from gradstudio.core.provenance import Provenance, ProvenanceUnknown
from gradstudio.core.unknown import UNKNOWN, is_known
from gradstudio.engine.operation_watcher import is_finite, values_of
from gradstudio.engine.torch_internals import autograd_nodes, module_tables, seen_operations
from gradstudio.watching import loss_code, model_code
from gradstudio.watching.kept_pass import KeptPass, version
from gradstudio.watching.pass_state import PLAIN_STATE, PassStates
from gradstudio.watching.passed_over import Losses, PassedOver
from gradstudio.watching.replay import replay
from gradstudio.watching.trees import tensors_of

MOST_PASSES = 1024  # of a step that are kept
MOST_SUSPECTS = 64  # of a step
MOST_SEARCHES = 8  # for the birth of what a script passes over: one that skips half of its batches is not to be slow


class Births:
    """Keeps what is needed to make the passes of a step of `model` again, and finds where a value was born that is not
    finite. Nothing is copied, and the model computes as before. No method raises for a fault of its own: `unknown`
    says in a sentence why nothing was found."""

    def __init__(self, model: nn.Module, guard: Callable[[Any], Any] = lambda function: function) -> None:
        """`guard` wraps a function that torch calls."""
        self.unknown = ""
        self._model = weakref.ref(model)
        self.mark = f"gradstudio {id(self)}"  # of a node of autograd's graph that gives an output of the model
        self._states = PassStates()
        self._begun: list[KeptPass] = []  # of forward passes within forward passes
        self._back: dict[KeptPass, None] = {}  # in the order in which gradients came back
        self._roots: list[Any] = []  # nodes of autograd's graph from which backward passes began
        self._finite = 0, 0  # passes of this step, and roots, of which it is known that all came back finite
        self._guarded_begin, self._guarded_end = guard(self._begin), guard(self._end)
        # Gradients that have come back, with the pass and the place of the output, until `_hear_back` looks at them:
        # each line of Python takes longest within a backward pass.
        self._heard: list[tuple[KeptPass, int, Tensor]] = []
        self._latest: tuple[KeptPass, nn.Module] | None = None  # until a gradient comes back; held, as a script that
        # stops for a NaN may let go of its model before it ends
        # Passes that were not finite and had no gradient by then; `passed_over` is to judge them.
        self.suspects: dict[KeptPass, PassedOver] = {}
        self._losses = Losses()
        self._searches = 0  # for what the script has passed over
        self.has_told = False  # whether the run has gone non-finite: what a later step says is no birth
        self._told = self._busy = False
        self._before = 0, False, ""  # number of roots, `_told` and `unknown` before the latest backward pass
        self._node_at_work, self._hear_gradient = autograd_nodes.node_at_work(), autograd_nodes.gradient_hearer()
        self._hooks: list[Any] = []
        self._around: _CompiledCall | None = None
        self.attach()

    def attach(self) -> None:
        """Put the hooks on the model, where they are not on it. A model that torch.jit has compiled takes none."""
        model = self._model()
        if model is None or isinstance(model, torch.jit.ScriptModule):
            return
        if not self._hooks:
            self._hooks = [
                model.register_forward_pre_hook(_Hook(self._guarded_begin), with_kwargs=True),
                model.register_forward_hook(_Hook(self._guarded_end)),
            ]
        call = module_tables.compiled_call(model)
        if call is not None and self._around not in _chain(call):
            self._around = _CompiledCall(self._guarded_begin, call, self._guarded_end, self._model)
            module_tables.set_compiled_call(model, self._around)

    def detach(self) -> None:
        """Take the hooks off the model."""
        model, ours = self._model(), self._around
        if model is not None and ours is not None:
            call = module_tables.compiled_call(model)
            if call is ours:
                module_tables.set_compiled_call(model, ours.call)
            for other in _chain(call):
                if other.call is ours:
                    other.call = ours.call
        self._around = None
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._begun.clear()

    def before_backward(
        self,
        roots: Sequence[Tensor],
        *,
        scaled: bool = False,
        losses: Sequence[Tensor | None] = (),
        number: float | None = None,
    ) -> Provenance | None:
        """Hear that a backward pass begins. Where its loss is not finite, return where that was born; None else, or
        where it is unknown. The Inf of a loss that a scaler has `scaled` may be that of the scale; `losses` are what it
        was given, None where that is not known. `number` is the loss itself, where that was read already."""
        if self._busy:
            return None
        if not self._hooks:
            self.attach()  # after torch.save or torch.jit.script has raised
        if self._heard:
            self._hear_back()
        self._before = len(self._roots), self._told, self.unknown
        if len(self._roots) >= MOST_PASSES:  # of a model that gets gradients, but no step
            self._roots.clear()
            self.unknown = f"the step has more than {MOST_PASSES:,} backward passes"
        for root in roots:
            if (node := root.grad_fn) is not None:
                self._roots.append(node)
        if number is not None and math.isfinite(number):
            return None
        given = losses or (None,) * len(roots)
        broken = (
            not is_finite(loss) if loss is not None else _is_nan(root) if scaled else not is_finite(root)
            for root, loss in zip(roots, given, strict=False)
        )
        if self._told or self.has_told or not any(broken):
            return None
        return self._search(lambda: self._of_the_loss(roots))

    def explain(self) -> Provenance | None:
        """Return where the first value of this step's gradients was born that is not finite; None where that is
        unknown, or was returned in this step already. The weights must be those that made the gradients."""
        if self._heard:
            self._hear_back()
        found = None if self._told or self.has_told or self._busy else self._search(self._of_the_gradients)
        return _without_line_at_work(found)  # which is that of the update

    def at_the_end(self) -> tuple[float, Provenance | None] | None:
        """Look at the latest pass, where the script ends before its backward pass. Return its loss, UNKNOWN where that
        is gone, and where what is not finite was born; None where all is finite, as far as it is still there."""
        if self._heard:
            self._hear_back()
        if self._latest is None or self._busy:
            return None
        kept, _ = self._latest
        if not kept.training:
            return None
        losses = loss_code.broken_losses(kept, self.mark)
        broken = kept.broken_results
        if not losses and not broken:
            return None
        found = _without_line_at_work(self._search(self._of_pass(kept, losses[:1])))  # no backward pass has begun
        return _number(losses[:1], broken), found

    # ---- what the script passes over

    @property
    def has_heard(self) -> bool:
        """Whether a pass was heard since the latest step."""
        if self._heard:
            self._hear_back()
        return self._latest is not None or bool(self.suspects or self._back)

    def passed_over(self, *, finite: bool) -> list[PassedOver]:
        """Return the passes that were not finite and of which the script made no backward pass, though the step that
        followed is being made. Where that is not `finite` itself, a pass whose loss is not known may belong to it."""
        if self._heard:
            self._hear_back()
        skipped = [found for kept, found in self.suspects.items() if kept not in self._back]
        self.suspects.clear()
        return [found for found in skipped if finite or is_known(found.loss)]

    def thrown_away(self) -> tuple[Provenance | None, str]:
        """Return where the first value was born that is not finite in gradients that the script has thrown away, and
        why that is unknown; begin with the passes anew."""
        if self._heard:
            self._hear_back()
        found = self._aside(self._of_the_gradients)
        self.begin_anew()
        return found

    def begin_anew(self) -> None:
        """Forget the passes whose gradients the script has thrown away. The next one may have been made already."""
        if self._heard:
            self._hear_back()
        self._back.clear()
        self._roots.clear()
        self._finite, self._told, self.unknown = (0, 0), False, ""

    def all_finite(self) -> None:
        """Hear that all gradients and the loss are finite after a backward pass: what came back so far was the birth of
        nothing, and its inputs are held no longer."""
        if self._heard:
            self._hear_back()
        back, roots = self._back, self._roots
        if self.suspects:
            for kept in back:
                self.suspects.pop(kept, None)
        self._finite = self._finite[0] + len(back), self._finite[1] + len(roots)
        back.clear()
        roots.clear()

    def of_another(self) -> None:
        """Hear that the backward pass was one of other models: forget what was said of it."""
        if self._heard:
            self._hear_back()
        place, self._told, self.unknown = self._before
        del self._roots[place:]

    def _look_back(self) -> None:
        """Look at the pass before, to which no gradient has come back by now: the script may have seen its loss."""
        if self._latest is None or not self._latest[0].training:
            return
        kept, _ = self._latest
        held, searching, loss = kept.is_held, self._losses.searching, None
        with contextlib.suppress(ProvenanceUnknown):  # of loss code that is too long to be searched
            loss = self._losses.of(kept, self.mark) if held else None
        if loss is not None:
            self._suspect(kept, [loss], [])
        elif (not held or searching) and (broken := kept.broken_results):
            self._suspect(kept, [], broken)

    def _suspect(self, kept: KeptPass, losses: Sequence[Tensor], broken: Sequence[Tensor]) -> None:
        if len(self.suspects) < MOST_SUSPECTS:
            found, unknown = self._aside(self._of_pass(kept, losses))
            self.suspects[kept] = PassedOver(_number(losses, broken), found, unknown, after_backward=False)

    def _aside(self, search: Callable[[], Provenance | None]) -> tuple[Provenance | None, str]:
        """Search beside the step that is being made, of which is known what was known before."""
        if self._searches >= MOST_SEARCHES:
            return None, f"after {MOST_SEARCHES} skipped batches it is not searched for any more"
        self._searches += 1
        told, unknown, self.unknown = self._told, self.unknown, ""
        found = _without_line_at_work(self._search(search))
        why, self._told, self.unknown = self.unknown, told, unknown
        return found, why

    def _of_pass(self, kept: KeptPass, losses: Sequence[Tensor]) -> Callable[[], Provenance | None]:
        return (lambda: self._of_the_loss(losses)) if losses else (lambda: self._made_again(kept, 0, 1))

    # ---- a step

    def clear(self) -> None:
        """Begin with a new step."""
        self._heard.clear()
        self._back.clear()
        self._roots.clear()
        self.suspects.clear()
        self._finite, self._latest = (0, 0), None
        self._told, self.unknown = False, ""

    def remove(self) -> None:
        """Take the hooks off the model."""
        self.detach()
        self.clear()

    # ---- what is kept

    def _begin(self, module: nn.Module, inputs: Any, named_inputs: Any) -> None:
        if self._busy or not torch.is_grad_enabled() or self._node_at_work() is not None:
            return  # a replay, an evaluation, or a checkpoint that is computed again
        if self._heard:
            self._hear_back()
        if self._latest is not None:
            self._look_back()
            self._latest = None
        self._begun.append(KeptPass(inputs, named_inputs, module.training, self._states.before(module)))

    def _end(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        if self._busy or not self._begun or not torch.is_grad_enabled() or self._node_at_work() is not None:
            return
        kept = self._begun.pop()
        self._begun.clear()  # of passes that ended with an exception
        if kept.state is not PLAIN_STATE:
            self._states.after(module, kept.state)
        given = (outputs,) if isinstance(outputs, Tensor) else tensors_of(outputs)
        for tensor in given:
            node: Any = tensor.grad_fn  # held, as torch makes it anew for each who asks
            if node is not None:  # a parameter that is given as it is has none, and would keep every hook
                keep = _Keeper(self._heard, kept, len(kept.given))
                kept.given.append((tensor.detach(), version(tensor)))
                kept.gradients.append(None)
                kept.held_by.append(weakref.ref(keep))
                self._hear_gradient(tensor, keep)
                node.metadata[self.mark] = kept
        self._latest = kept, module

    def _hear_back(self) -> None:
        """Look at the gradients that have come back to outputs of passes since this was done last."""
        heard = self._heard.copy()
        self._heard.clear()
        for kept, place, gradient in heard:
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

    # ---- the search

    def _search(self, search: Callable[[], Provenance | None]) -> Provenance | None:
        self._busy = True
        try:
            found = None if self.unknown else search()
        except ProvenanceUnknown as fault:
            found, self.unknown = None, str(fault)
        except Exception as fault:  # of somebody's code, which was not made to be run again
            found, self.unknown = None, f"repeating the step ended with {type(fault).__name__}: {fault}"
        finally:
            self._heard.clear()  # of passes that were made again
            self._busy = False
        self._told = found is not None
        return found

    def _of_the_loss(self, roots: Sequence[Tensor]) -> Provenance | None:
        for kept in loss_code.passes_before(roots, self.mark):
            if not _all_finite(kept.results):
                try:
                    return self._made_again(kept, 0, 1)
                except Exception:  # it is not the same pass again; its own graph is still there
                    with contextlib.suppress(ProvenanceUnknown):
                        if found := loss_code.born_in_a_pass(roots, self._inner()):
                            return found
                    raise
        return loss_code.born_in(roots, self.mark, self._inner())

    def _of_the_gradients(self) -> Provenance | None:
        if not seen_operations.seeing_possible():
            raise ProvenanceUnknown("this version of torch cannot be watched")
        if not self._back:
            raise ProvenanceUnknown("no forward pass of the model was seen")
        finite, roots = self._finite
        passes, roots = finite + len(self._back), roots + len(self._roots)
        for number, kept in enumerate(self._back, finite):
            behind = _all_finite(kept.results) and not _all_finite(kept.gradients)
            # a loss of several passes has one backward pass, and none of them is a micro-batch
            place, of = (0, 1) if 0 < roots < passes else (number, passes)
            # of several outputs one may have been computed from another, as the output of a VAE from its mean, and the
            # gradient of that one comes from within the model too
            several = sum(gradient is not None for gradient in kept.gradients) > 1
            if (several or not behind) and (found := self._made_again(kept, place, of)):
                return found
            if behind:
                return loss_code.born_behind(self._roots, self.mark, self._inner(), place, of)
        raise ProvenanceUnknown("all was finite when the step was made again")

    def _made_again(self, kept: KeptPass, number: int, of: int) -> Provenance | None:
        model = self._inner()
        made = replay(model, kept)
        return None if made.sink is None else model_code.provenance(model, kept, made.watcher, made.sink, number, of)

    def _inner(self) -> nn.Module:
        """Return the model without what torch.compile and DistributedDataParallel put around it."""
        model = self._model()
        if model is None:
            raise ProvenanceUnknown("the model is gone")
        while type(model).__name__ in _AROUND:
            model = getattr(model, _AROUND[type(model).__name__])
        return model


_AROUND = {"OptimizedModule": "_orig_mod", "DistributedDataParallel": "module"}


def _without_line_at_work(found: Provenance | None) -> Provenance | None:
    """Return what was found without the line at work, where that is not the one of the backward pass."""
    return replace(found, source="") if found is not None and found.source.startswith(loss_code.BEGAN) else found


def _number(losses: Sequence[Tensor], broken: Sequence[Tensor]) -> float:
    """Return the loss, or an output that is not finite and one number, as a model's own loss is; UNKNOWN without."""
    known = next((each for each in (*losses, *broken) if each.numel() == 1), None)
    return UNKNOWN if known is None else float(known.detach())


def _is_nan(root: Tensor) -> bool:
    return math.isnan(root.item()) if root.numel() == 1 else values_of(root).nan > 0


def _all_finite(tensors: Sequence[Tensor | None]) -> bool:
    return all(tensor is None or values_of(tensor).finite for tensor in tensors)


@unserializable_hook  # else torch warns where an output is saved
class _Keeper:
    """The hook of an output. The graph holds it, so a pass without a backward pass is forgotten."""

    __slots__ = ("__weakref__", "_heard", "_kept", "_place")

    def __init__(self, heard: list[tuple[KeptPass, int, Tensor]], kept: KeptPass, place: int) -> None:
        self._heard, self._kept, self._place = heard, kept, place

    def __call__(self, gradient: Tensor) -> None:
        self._heard.append((self._kept, self._place, gradient))


class _CompiledCall:
    """A model that was compiled in place has its hooks compiled with it, where they do nothing; so they are called
    around it."""

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
    """Return what stands around a compiled call, one for each optimizer of the model, the outermost first."""
    found: list[_CompiledCall] = []
    while isinstance(call, _CompiledCall):
        found.append(call)
        call = call.call
    return found


class _Hook:
    """A hook of a model that is not copied or saved with it: its copy does nothing, and needs no GradStudio."""

    def __init__(self, call: Callable[..., None]) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> None:
        if not is_compiling() and not is_tracing():
            self._call(*arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")
