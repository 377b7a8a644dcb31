"""The recorder of one training: the passes of its steps, and the state of some steps ago."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from gradstudio.core.free_memory import free
from gradstudio.core.text import number
from gradstudio.crash.call_log import CallLog
from gradstudio.engine.torch_internals import function_modes
from gradstudio.watching.births.hooked_module import without_wrappers
from gradstudio.watching.hooks.guard import compiled_models, may_be_compiled, say_once
from gradstudio.watching.hooks.rank_place import current_place
from gradstudio.watching.hooks.torch_hooks import Roots
from gradstudio.watching.measuring.sharded_parameters import are_sharded
from gradstudio.watching.recorder.kept_state import (
    CalledModel,
    KeptBackward,
    KeptState,
    KeptStep,
    PassEvent,
    state_bytes,
)

MOST_LOSS_CALLS = 400  # between a forward pass and the backward pass
MOST_STEP_CALLS = 2000  # from the first call whose result requires a gradient
MOST_BACKWARD = 1000  # backward passes of a step
MOST_PASSES = 16  # forward passes without a backward pass
SHARE = 0.1  # of the free memory that is used at most, if no limit is given
MOST_BYTES = 2 << 30  # likewise


def _carefully(method: Callable[..., None]) -> Callable[..., None]:
    """Let a fault end the recording, and neither the watch nor the script."""

    @wraps(method)
    def careful(self: Recorder, *arguments: Any, **named: Any) -> None:
        try:
            method(self, *arguments, **named)
        except Exception as fault:  # such as a lack of memory
            self.turn_off(" ".join(str(fault).split())[:160] or type(fault).__name__)

    return careful


class Recorder:
    """Keeps the state of up to `steps` steps ago. Of two states the older one is at least half as old."""

    def __init__(self, steps: int, budget: int | None) -> None:
        self._every, self._most = max(1, steps // 2), 1 if steps == 1 else 2
        self._budget = budget
        self._sized: tuple[int, ...] = ()
        self._size = 0  # the amount to copy when that was computed, and its bytes
        self.states: list[KeptState] = []
        self.is_off = not steps
        self._passes: list[KeptBackward] = []
        self._log: CallLog | None = None
        self._was_passed_by = False  # whether a backward pass of another training came since its forward pass
        self._is_early = False  # whether something is computed before the forward pass, or parts of a model are called
        self._came_alone = False  # whether no forward pass came before the latest backward pass
        self._on: CallLog | None = None  # the log that is on torch's stack
        self._taken: dict[int, tuple[Any, Any]] = {}
        self._ids: tuple[int, ...] = ()  # of the weights
        self._own: frozenset[int] | None = None  # the same
        self._is_sharded = False  # whether this rank has only a part of the weights
        self._at_break: KeptState | None = None  # before the first broken update, if the latest one is broken
        self.is_past_break = False  # whether the first broken update was made before it was known as broken
        self._copies = False  # whether batches are copied, because the script overwrites them

    # ---- passes

    @_carefully
    def before_pass(self, kept: Any) -> None:
        """A pass of a model begins, which is not within another."""
        if self.is_off:
            return
        self.take_off()
        if any(tensor.grad_fn is not None and not self._knows(tensor) for tensor, _ in kept.taken):
            self._is_early = True
        if (
            self._log is None
            or self._was_passed_by
            or sum(isinstance(each, PassEvent) for each in self._log.events) >= MOST_PASSES
        ):
            self._log = CallLog(most=MOST_LOSS_CALLS, copies=self._copies, own=self._own)
            self._was_passed_by = False
        self._taken = {id(kept): (kept, tuple([self._log.ref(tensor) for tensor, _ in kept.taken]))}

    def _knows(self, tensor: Tensor) -> bool:
        return self._log is not None and self._log.place_of(tensor) is not None

    def _begin_early(self) -> None:
        """Observe calls from here on, if the next forward pass would be too late."""
        if self._is_early and not self.is_off:
            self._log = CallLog(most=MOST_STEP_CALLS, copies=self._copies, own=self._own, sleeps=True)
            self._was_passed_by = False
            self._put_on(self._log)

    @_carefully
    def after_pass(self, kept: Any, outputs: Sequence[Tensor]) -> None:
        """The pass has ended: calls from here on are the loss code."""
        _, taken = self._taken.pop(id(kept), (None, None))
        if self.is_off or self._log is None or taken is None:
            return
        gives = tuple([self._log.give(each) for each in outputs])
        self._log.of_models.update(gives)
        self._log.events.append(PassEvent(_model_of(kept), taken, gives))
        self._put_on(self._log)

    @_carefully
    def before_backward(self, roots: Roots) -> None:
        """A backward pass begins."""
        self._came_alone = self._log is None
        if self._log is None:
            return
        self.take_off()
        if len(self._log.events) >= MOST_STEP_CALLS:
            self._is_early = False
        self._log.is_full = True  # nothing more is kept of it, if it could not be removed
        if len(self._passes) >= MOST_BACKWARD:
            self._passes = []  # of a model that gets gradients, but no step
        if len(roots.tensors) == 1 and roots.gradients[0] is None:
            root_number = self._log.place_of(roots.tensors[0])
            self._log.note_derivative(roots.tensors[0])
            self._passes.append(KeptBackward(self._log, -1 if root_number is None else root_number, roots.scale))
        else:
            self._passes.append(KeptBackward(self._log, -1, roots.scale))

    def after_backward(self, *, trains: bool) -> None:
        """The backward pass has ended; `trains` is whether it concerned the training recorded here."""
        log, self._log = self._log, None
        if self._passes and not trains:
            self._passes.pop()
            if log is not None and len(log.events) < log.most:  # the loss of this training may be yet to come
                log.is_full, self._log, self._was_passed_by = False, log, True
                self.resume()
        elif trains:
            self._is_early = self._is_early or self._came_alone
            self._begin_early()

    def resume(self) -> None:
        """Observe the loss code again after a backward pass or a step of another training."""
        if self._log is not None and self._was_passed_by and self._on is None:
            self._put_on(self._log)

    def restart(self) -> None:
        """The script has discarded the gradients."""
        self._passes = []

    def _put_on(self, log: CallLog) -> None:
        """Observe the calls of the loss code."""
        models = [each.kept.of.inner for each in log.events if isinstance(each, PassEvent)]
        if is_eager_beside(models) and (stack := function_modes.stack()) is not None:
            stack.put(log)
            self._on = log

    def take_off(self) -> None:
        """Stop observing calls, until the next forward pass."""
        if self._on is not None and (stack := function_modes.stack()) is not None and stack.take_away(self._on):
            self._on = None

    # ---- steps

    @_carefully
    def before_update(
        self,
        step: KeptStep,
        weights: Sequence[Tensor],
        optimizers: Sequence[Optimizer],
        *,
        healthy: bool,
    ) -> None:
        """An update is about to be made, from finite gradients if it is `healthy`."""
        self.take_off()
        if self.is_off:
            return
        step.passes, self._passes = self._passes, []
        step.groups = [[_plain(group, each.defaults) for group in each.param_groups] for each in optimizers]
        if not self._copies and self.states and self.states[-1].steps:
            self._copies = self.states[-1].steps[-1].is_written_to
        latest = self.states[-1] if self.states else None
        if latest is None or (healthy and step.number - latest.number >= self._every):
            self._take(step.number, weights, optimizers)
        for each in self.states:
            each.steps.append(step)
        if healthy:
            self._at_break, self.is_past_break = None, False
        elif (
            self._at_break is None
            and not self.is_past_break
            and self._size * (len(self.states) + 1) <= self._limit(weights)
        ):
            self._at_break = KeptState()
            self._at_break.take(step.number, weights, optimizers, parted=self._is_sharded)
            self._at_break.steps = [step]
        self._begin_early()

    @property
    def usable_states(self) -> list[KeptState]:
        """The states to replay from: the oldest one, and that of the first broken step, before which no update has to
        be replayed, or the newer one. The update of several ranks cannot be replayed."""
        if not self.states or current_place() is None:
            return [*self.states[:1], *([self._at_break] if self._at_break is not None else self.states[1:])]
        return [self.states[-1] if self._at_break is None else self._at_break]

    def can_wait(self, number: int, optimizer: Any) -> bool:
        """Return whether a step's figures may come after its update: not if the state before it would replace the only
        one, nor with an optimizer whose updates cannot be replayed, which needs the state before the broken one."""
        if self.is_off:
            return True
        replaces = len(self.states) == 1 and number - self.states[0].number >= self._every
        return not replaces and type(optimizer).__module__.startswith("torch.optim.")

    def _limit(self, weights: Sequence[Tensor]) -> int:
        return free_memory(weights[0].device) if self._budget is None else self._budget

    def _take(self, number: int, weights: Sequence[Tensor], optimizers: Sequence[Optimizer]) -> None:
        if (ids := tuple(map(id, weights))) != self._ids:
            self._ids, self._own, self._is_sharded = ids, frozenset(ids), are_sharded(weights)
        budget = self._limit(weights)
        sized = len(weights), *[len(each.state) for each in optimizers]
        if sized != self._sized:
            self._sized, self._size = sized, state_bytes(weights, optimizers)
        size = self._size + sum(each.nbytes for state in self.states[-1:] for each in state.steps)
        most = self._most if size * self._most <= budget else 1
        if size > budget:
            self.turn_off(f"the state takes {_size(size)}, more than the {_size(budget)} that record may take")
            return
        while len(self.states) > most:
            self.states.pop(0)
        state = self.states.pop(0) if len(self.states) >= most else KeptState()
        state.take(number, weights, optimizers, parted=self._is_sharded)
        self.states.append(state)

    def rewind(self) -> int | None:
        """Restore the oldest kept weights and optimizer state. Return the step that they precede; None if there are
        none."""
        if not self.states:
            return None
        state = self.states[0]
        state.put_back()
        state.steps, self.states = state.steps[:1], [state]
        return state.number

    def turn_off(self, why: str) -> None:
        """Stop recording."""
        self.close()
        if (place := current_place()) is None or place.rank == 0:
            say_once(f"no crash file can be written: {why}")

    def close(self) -> None:
        """Release everything."""
        self.take_off()
        self.is_off, self.states, self._at_break, self._log, self._passes = True, [], None, None, []

    def raised(self) -> bool:
        """The script has ended with an exception. Return whether a call of torch has raised it; the calls before it
        then become the last step."""
        log, latest = self._log, self.states[-1].steps[-1] if self.states else None
        if log is None or latest is None or self.is_off:
            return False
        for kept, taken in self._taken.values():
            log.events.append(PassEvent(_model_of(kept), taken, None))
        last = log.events[-1] if log.events else None
        if last is None or (last.gave if isinstance(last, PassEvent) else last.gives) is not None:
            return False
        step, self._at_break = (
            KeptStep(latest.number + 1, [*self._passes, KeptBackward(log, -1, 1.0)], latest.groups),
            None,
        )
        for each in self.states:
            each.steps.append(step)
        return True


def is_eager_beside(models: Sequence[Any]) -> bool:
    """Return whether the script compiles nothing but these models, each as a whole: its loss code can be observed."""
    if not may_be_compiled():
        return True
    compiled = compiled_models()
    return compiled is not None and all(any(without_wrappers(each) is one for one in models) for each in compiled)


def _plain(group: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a group that are the optimizer's own: a script may put anything beside them."""
    values = {name: value for name, value in group.items() if name in own}
    return {name: float(value) if isinstance(value, Tensor) else value for name, value in values.items()}


def _model_of(kept: Any) -> CalledModel:
    return CalledModel(kept.of, kept.inputs, kept.named_inputs, kept.state, kept.autocast)


_known: dict[torch.device, int] = {}


def free_memory(device: torch.device) -> int:
    """Return the default memory limit of a recorder on a device. It is looked up once."""
    if device not in _known:
        bytes_free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free()
        _known[device] = min(MOST_BYTES, int(SHARE * bytes_free))
    return _known[device]


def _size(count: int) -> str:
    return f"{number(count / 1e9)} GB" if count >= 1e9 else f"{number(count / 1e6)} MB"
