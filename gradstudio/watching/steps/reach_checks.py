"""Parameters that nothing trains: those with a gradient that no optimizer holds, those of an optimizer that get no
gradient, and those that are frozen."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from gradstudio.core.history import LOOK_EVERY
from gradstudio.core.text import plural
from gradstudio.watching.births.loss_graph import in_words
from gradstudio.watching.births.step_births import Births
from gradstudio.watching.hooks.leaves import leaves_before
from gradstudio.watching.measuring.parameters import Parameters
from gradstudio.watching.script import model_layers
from gradstudio.watching.script.script_names import name_of, variables
from gradstudio.watching.steps.joined_optimizers import main_of, members_of
from gradstudio.watching.steps.watch_options import Options


class ObserverView(Protocol):
    """The interface of an observer for these checks and those of a whole training."""

    parameters: Parameters
    births: Births
    options: Options
    schedules: list[weakref.ref[LRScheduler]]

    @property
    def optimizer(self) -> Any: ...
    @property
    def models(self) -> list[nn.Module]: ...
    @property
    def next_step(self) -> int: ...
    @property
    def next_row(self) -> int: ...
    def all_parameters(self) -> list[Tensor]: ...
    def all_optimized_parameters(self) -> set[int] | None: ...
    def other_optimizers(self) -> list[tuple[Any, int]]: ...
    def trains_any(self, tensors: set[int]) -> bool: ...


class ReachChecks:
    """Checks what the backward passes and steps of one observer reach. `tell` is called with the rule, the evidence,
    the first step and the names."""

    def __init__(self, observer: ObserverView, tell: Callable[..., None]) -> None:
        self._observer, self._tell = observer, tell
        self._empty = 0  # consecutive steps that moved nothing
        self._passes = 0  # backward passes of the process since the first of them
        self._begins_anew = False  # whether the latest backward pass began at tensors without a graph
        self._wants_leaves = False  # whether the next backward pass is searched for its parameters
        self._unheld: tuple[str, ...] = ()

    @property
    def _name(self) -> str:
        return name_of_optimizer(self._observer.optimizer)

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        """Check the roots of a backward pass."""
        self._passes += 1
        self._begins_anew = all(root.grad_fn is None for root in roots)
        if self._wants_leaves:
            self._wants_leaves = False
            self._unheld = self._unheld_names(roots)

    def look(self, roots: Sequence[Tensor]) -> None:
        """Check whether an optimizer holds what a backward pass reaches, and whether another holds some of the same."""
        self._look_at_others()
        self._look_at_plain_tensors(roots)
        if not (names := self._unheld_names(roots)):
            return
        text = f"A backward pass brings gradients to {in_words(names)}, which no optimizer holds."
        mend = f"`{self._name}.add_param_group({{'params': ...}})` with them"
        if place := _plain_list():
            text += f" Layers are kept in `{place}`, which is no module, so `parameters()` does not have theirs."
            mend = f"`{place} = nn.ModuleList(...)`, or `nn.ModuleDict`, before the optimizer is made"
        self._tell("without_optimizer", text, known=mend, layers=names)

    def _look_at_others(self) -> None:
        own = {id(tensor): tensor for tensor in self._observer.all_parameters()}
        for optimizer, step in self._observer.other_optimizers():
            shared = [tensor for key, tensor in own.items() if key in _held_by(optimizer)]
            if not step or not 0 < len(shared) < len(own):
                continue
            names = model_layers.names(model_layers.together(self._observer.models), self._observer.optimizer)
            other = name_of_optimizer(optimizer)
            some = in_words([names.get(id(tensor), "a parameter") for tensor in shared])
            text = f"`{self._name}` and `{other}` both step, and both hold {some}."
            mend = f"`{self._name} = torch.optim....(part.parameters(), ...)` of its own part, not that of `{other}`"
            self._tell("held_twice", text, 0, known=mend)
            return

    def _look_at_plain_tensors(self, roots: Sequence[Tensor]) -> None:
        """Look for tensors that a module keeps and that were computed from a parameter which nobody has."""
        held = self._observer.all_optimized_parameters()
        leaves = {id(leaf) for leaf in leaves_before(roots) if isinstance(leaf, nn.Parameter)} - (held or set())
        for part in _modules_in_script() if held and leaves else ():
            for name, value in vars(part).items():
                if not isinstance(value, Tensor) or value.grad_fn is None:
                    continue
                if any(id(leaf) in leaves for leaf in leaves_before([value])):
                    text = f"`{name}` of {type(part).__name__} was computed from a parameter that no module has."
                    self._tell("plain_tensor", text, 0, known=f"self.{name}")
                    return

    def _unheld_names(self, roots: Sequence[Tensor]) -> tuple[str, ...]:
        """Return the parameters that a backward pass reaches and that belong to no optimizer of the process, by the
        names of the module that has them all and those of this one, otherwise of the modules that have no others."""
        held = self._observer.all_optimized_parameters()
        if held is None:
            return ()
        leaves = [leaf for leaf in leaves_before(roots) if isinstance(leaf, nn.Parameter) and id(leaf) not in held]
        if not leaves:
            return ()
        beside = [] if self._empty else self._observer.all_parameters()
        around = model_layers.modules_with([*leaves, *beside])[:1] or [
            each[0] for each in model_layers.models_of(leaves)
        ]
        ids, names = set(map(id, leaves)), model_layers.names_of(around)
        return tuple(
            f"{name_of(module) or name}.{own}".strip(".")
            for module, name in zip(around, names, strict=True)
            for own, leaf in module.named_parameters() if id(leaf) in ids
        )  # fmt: skip

    def on_step(self) -> None:
        """A step is made of gradients."""
        self._empty = self._passes = 0

    def on_empty_step(self) -> None:
        """The optimizer stepped and none of its parameters had a gradient."""
        self._empty += 1
        self._wants_leaves = self._empty == LOOK_EVERY - 1
        if self._empty < LOOK_EVERY or self._passes < self._empty:
            return
        tensors = self._observer.all_parameters()
        text = (
            f"The latest {plural(self._empty, 'call', 'calls')} of `{self._name}.step()` moved nothing: none "
            f"of its {plural(len(tensors), 'tensor', 'tensors')} had a gradient, though backward passes went on."
        )
        frozen = sum(not tensor.requires_grad for tensor in tensors)
        text += f" {frozen:,} of them have `requires_grad=False`." * bool(frozen)
        if self._unheld:
            text += f" The gradients arrived in {in_words(self._unheld)}, which no optimizer holds."
        mend = f"`{self._name} = torch.optim....(model.parameters(), ...)` again, after layers were replaced, "
        mend += "frozen or thawed"
        if not self._unheld and not frozen:  # what gets gradients is trained by others: it is the right model
            text += " They arrived in what other optimizers hold alone."
            mend = "`x` in place of `x.detach()`, and no `torch.no_grad()`, on what this model gives to its own loss"
        if self._begins_anew:
            text += " The backward pass begins at a tensor that has no graph: nothing leads from it to a parameter."
            mend = "the loss as it was computed, without `.item()`, `.detach()` or `torch.tensor(...)` on it"
        self._tell("nothing_moves", text, self._observer.next_row - 1, known=mend, layers=self._unheld)

    def end(self) -> None:
        """Check the state at the end of a run."""
        observer, tensors = self._observer, self._observer.all_parameters()
        frozen = [each for each in tensors if not each.requires_grad and not observer.trains_any({id(each)})]
        if frozen and observer.optimizer is not None:
            names = model_layers.names(model_layers.together(observer.models), observer.optimizer)
            known = tuple(names[id(tensor)] for tensor in frozen)
            text = (
                f"{len(frozen):,} of the {len(tensors):,} tensors that `{self._name}` holds have "
                f"`requires_grad=False` at the end and were not trained: {in_words(known)}."
            )
            self._tell("frozen_parameters", text, 0)


def _held_by(optimizer: Any) -> set[int]:
    return {id(tensor) for each in members_of(optimizer) for group in each.param_groups for tensor in group["params"]}


def name_of_optimizer(optimizer: Any) -> str:
    """Return the script's name for an optimizer, or for the main one of several."""
    return name_of(main_of(optimizer)).rpartition(".")[2] or "optimizer"


def _modules_in_script() -> Iterator[nn.Module]:
    """Yield the modules that the running code of the script can reach."""
    return (part for _, value in variables() if isinstance(value, nn.Module) for part in value.modules())


def _plain_list() -> str:
    """Return where a module of the script keeps modules in a plain container; "" if none does."""
    for each in _modules_in_script():
        for name, value in vars(each).items():
            inner = list(value.values()) if isinstance(value, dict) else value
            if name[0] != "_" and isinstance(inner, (list, tuple)) and any(isinstance(one, nn.Module) for one in inner):
                return f"self.{name}"
    return ""
