"""Faults of a training whose numbers are sound: parameters that nothing trains, parts in evaluation mode, gradients
that are discarded or summed without dividing, a loss with the wrong inputs. All of it is read rather than measured;
most of it is checked only now and then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn

from gradstudio.core.diagnosis.finding import Finding, Severity
from gradstudio.core.diagnosis.script_faults import script_fault
from gradstudio.core.history import LOOK_EVERY
from gradstudio.core.provenance import operation_of
from gradstudio.engine.operation_watcher import values_of
from gradstudio.watching.births.loss_graph import faults_of, is_undivided_mean
from gradstudio.watching.births.operation_lines import line_of
from gradstudio.watching.births.saved_tensors import saved_of
from gradstudio.watching.hooks.leaves import leaves_before
from gradstudio.watching.hooks.torch_hooks import Roots
from gradstudio.watching.measuring.sharded_parameters import local_part
from gradstudio.watching.script import model_layers
from gradstudio.watching.script.script_names import name_of
from gradstudio.watching.steps.collapse_checks import CollapseChecks
from gradstudio.watching.steps.joined_optimizers import members_of
from gradstudio.watching.steps.loop_checks import LoopChecks
from gradstudio.watching.steps.loss_checks import LossChecks
from gradstudio.watching.steps.mode_checks import ModeChecks, keeps_statistics, root_of
from gradstudio.watching.steps.reach_checks import ObserverView, ReachChecks, name_of_optimizer
from gradstudio.watching.steps.rounding_checks import AGAIN, RoundingChecks
from gradstudio.watching.steps.setup_checks import SetupChecks
from gradstudio.watching.steps.slope_checks import SlopeChecks
from gradstudio.watching.steps.term_checks import DivisorChecks, TermChecks

_SEVERAL = 3  # backward passes of a step: two may be two losses, or one pass that only measures
_LARGE = 1e15  # norm above which the square of an entry may exceed float32
_AT = 3  # step whose backward pass is searched for the parameters that it reaches


class TrainingChecks:
    """Checks the training of one observer; `find` receives the findings."""

    def __init__(self, observer: ObserverView, find: Callable[[Finding], None]) -> None:
        self._observer, self._find = observer, find
        self.reach = ReachChecks(observer, self._tell)
        self.begin()

    def begin(self) -> None:
        """Begin with a run."""
        self._loss_checks, self._collapse_checks = LossChecks(self._tell), CollapseChecks(self._tell)
        self._loop_checks, self._mode_checks = LoopChecks(self._tell_of_steps), ModeChecks(self._tell)
        self._rounding_checks, self._slope_checks = RoundingChecks(self._tell), SlopeChecks(self._tell)
        self.setup, self._term_checks = SetupChecks(self._tell), TermChecks(self._tell)
        self._divisor_checks = DivisorChecks(self._tell)
        self._told: set[str] = set()
        self._was_large = False  # whether the optimizer's state may be non-finite
        self._means = 0  # backward passes of the step from a mean that was not divided
        self._undivided = 0  # consecutive steps with nothing else
        self._halves = 0  # backward passes of the step from half of a loss
        self._lost = 0  # backward passes since the previous step whose gradients were discarded
        self._loses: bool | None = None  # whether that is a fault, if checked; None: it was never so
        self._marks: list[int] = []  # of the weights at the latest backward pass
        self._given: list[int] = []  # marks of the resulting gradients

    def _tell(
        self, rule: str, evidence: str, first: int | None = None, *, known: str = "", layers: tuple[str, ...] = (),
        severity: Severity | None = None,
    ) -> None:  # fmt: skip
        last = self._observer.next_row
        self._told.add(rule)
        first = last if first is None else min(first, last)
        self._find(script_fault(rule, evidence, first, last, known=known, layers=layers, severity=severity))

    def _tell_of_steps(self, rule: str, evidence: str, first: int, **named: Any) -> None:
        self._tell(rule, evidence, first // self._observer.options.every, **named)

    # ---- backward passes

    def before_backward(self, roots: Roots) -> None:
        """Check the roots of a backward pass."""
        observer = self._observer
        self.reach.before_backward(roots.tensors)
        if self._loses:
            self._loses = self._is_a_new_pass(roots)
            self._halves += any(map(_is_half, roots.tensors))
        if observer.next_step < AGAIN:
            losses = [loss for loss in roots.unscaled if loss is not None] or roots.tensors
            self._means += len(losses) == 1 and is_undivided_mean(losses[0])
        if observer.next_step == 0:
            self._look_at_loss(roots)
        self._slope_checks.before_backward(roots.tensors)
        if observer.next_step % (observer.options.every * LOOK_EVERY) == 0:
            self._loss_checks.look(roots, observer.births.passes.mark, self._observer.next_row)
            self._term_checks.look(roots.tensors, self._observer.next_row)
            model = model_layers.together(observer.models)
            self._divisor_checks.look(roots.tensors, model, self._observer.next_row)
            self._collapse_checks.look(roots.tensors, observer.births.passes.mark, model, self._observer.next_row)
        if observer.next_step == _AT and observer.optimizer is not None:
            self.setup.look(self._parts())
        if observer.next_step == _AT and observer.optimizer is not None and "without_optimizer" not in self._told:
            self._told.add("without_optimizer")
            self.reach.look(roots.tensors)

    def _look_at_loss(self, roots: Roots) -> None:
        for fault in faults_of(roots.tensors):
            if fault.rule not in self._told:
                source = line_of([fault.operation], model_layers.together(self._observer.models))
                where = f", at {source}" if source else ""
                self._tell(fault.rule, f"{fault.evidence}{where}.", known=fault.known)

    def before_eval(self, module: nn.Module) -> None:
        """`eval()` is called on a module; before the first step that may be meant to last."""
        if self._observer.next_step and any(module is model for model in self._observer.models):
            self._mode_checks.before_eval(module)

    # ---- discarded gradients

    def on_discarded_gradients(self, *, finite: bool) -> None:
        """The gradients of a backward pass are discarded before the next one."""
        observer = self._observer
        if self._loses is False or not finite:
            return
        moved = bool(self._marks) and observer.parameters.weight_marks() != self._marks
        if moved or observer.births.passes.wait_for_gradient is not True:
            self._loses = False  # a step that looks ahead, or several losses of one pass
            return
        self._loses, self._lost = True, self._lost + 1

    def after_backward(self) -> None:
        """Record the weights and gradients after a backward pass."""
        parameters, step = self._observer.parameters, self._observer.next_step
        if self._slope_checks.is_observing:
            self._slope_checks.after_backward(model_layers.together(self._observer.models))
        if step < AGAIN:
            self._given = parameters.marks()
        if (step + 1) % LOOK_EVERY == 0:
            self._rounding_checks.before_update(parameters.tensors)
            self._slope_checks.look(parameters.as_given)
        if self._loses is not False and (self._loses or step < LOOK_EVERY):
            self._marks = parameters.weight_marks()

    def _is_a_new_pass(self, roots: Roots) -> bool:
        """Return whether a loss depends on the trained parameters alone: one that reaches others too, or the inputs of
        an attack, may be there for those."""
        held = {id(tensor) for tensor in self._observer.all_parameters()}
        return all(id(leaf) in held for leaf in leaves_before(roots.tensors))

    def forget_discarded(self) -> None:
        """The script used the discarded gradients after all: it computed new ones from them, or another optimizer took
        them."""
        self._loses, self._lost = False, 0

    # ---- steps

    def on_step(self, micro_batches: int, norm: float, *, is_clipped: bool) -> int:
        """A step is made from this many backward passes, with a gradient of this norm; `is_clipped`: the changes of
        their gradients are known. Return how many further passes were discarded although the step needed them."""
        observer = self._observer
        self._was_large = self._was_large or not norm < _LARGE
        self._slope_checks.after_step(norm)
        self.setup.on_step(is_clipped=is_clipped, step=observer.next_row)
        if observer.next_step < AGAIN:
            alike = micro_batches >= _SEVERAL and self._means == micro_batches
            alike = alike and (is_clipped or observer.parameters.marks() == self._given)
            self._undivided = self._undivided + 1 if alike else 0
            if self._undivided == AGAIN:
                text = f"Each step adds up the gradients of {micro_batches} backward passes, each of a mean loss."
                self._tell("undivided_sum", text, 0, known=str(micro_batches))
        self._means = 0
        self.reach.on_step()
        passes = observer.births.passes
        if passes.without_gradient:
            self._loop_checks.on_passes(passes.without_gradient, observer.next_step)
            passes.without_gradient = 0
        if observer.next_step == 0 or (observer.next_step + 1) % (observer.options.every * LOOK_EVERY) == 0:
            self._mode_checks.look(observer.models, self._parts, self._observer.next_row)
            self._loop_checks.look(observer.schedules, observer.next_step)
        self._rounding_checks.after_update(observer.optimizer, self._observer.next_row)
        lost, halves, self._lost, self._halves = self._lost, self._halves, 0, 0
        return lost if self._loses and (lost + 1 >= _SEVERAL or lost + 1 == halves) else 0

    def _parts(self) -> Iterator[tuple[str, nn.Module]]:
        models = self._observer.models
        for model, called in zip(models, model_layers.names_of(models), strict=True):
            variable = name_of(model) or called
            for name, part in model.named_modules():
                yield f"{variable}.{name}".strip("."), part

    # ---- the end

    def end(self) -> None:
        """Check the state at the end of a run."""
        observer = self._observer
        if not observer.next_step:
            return
        tensors = observer.all_parameters()
        every = observer.all_optimized_parameters()
        self._loss_checks.end(is_alone=every is not None and every <= set(map(id, tensors)))
        self._collapse_checks.end()
        names = [name for name, _ in self._parts()]
        self._loop_checks.end(observer.next_step, list(self._parts()), root_of(names[:1]))
        self.reach.end()
        if self._was_large:
            self._look_at_state()
        for name, part in self._parts():
            for own, buffer in part.named_buffers(recurse=False) if keeps_statistics(part) else ():
                if buffer.is_floating_point() and not (values := values_of(buffer)).finite:
                    text = f"The buffer {name}.{own} holds {values.broken} at the end."
                    self._tell("spoiled_buffer", text, self._observer.next_row - 1, known=name)
                    return

    def _look_at_state(self) -> None:
        """Check the state of the optimizer, which has received a gradient that was non-finite, or whose square is."""
        optimizer = self._observer.optimizer
        names = model_layers.names(model_layers.together(self._observer.models), optimizer)
        states = [each for one in members_of(optimizer) for each in one.state.items()]
        for tensor, state in states:
            for what, value in state.items() if isinstance(state, dict) else ():
                if not (isinstance(value, Tensor) and value.is_floating_point()):
                    continue
                values = values_of(local_part(value))
                if not values.finite and local_part(tensor).isfinite().all():
                    name = names.get(id(tensor), "a parameter")
                    text = f"{what} of {name} holds {values.broken}, while the parameter itself is finite."
                    self._tell("spoiled_state", text, self._observer.next_row - 1, known=name_of_optimizer(optimizer))
                    return


def _is_half(root: Tensor) -> bool:
    """Return whether a loss was divided by 2, as for two micro-batches."""
    node: Any = root.grad_fn
    by = {"div": 2.0, "mul": 0.5}.get(operation_of(node.name()) if node is not None else "")
    other = saved_of(node).get("other") if by else None
    return other is not None and other.numel() == 1 and float(other) == by
