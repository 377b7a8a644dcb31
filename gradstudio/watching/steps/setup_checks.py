"""How a training is set up: attributes that were meant to freeze parameters, batch norms and dropouts whose numbers are
those of another library, a dropout that no mode ends, a seed that is set in each step, and calls that clip nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from gradstudio.core.text import plural
from gradstudio.watching.births.loss_graph import in_words
from gradstudio.watching.script import source_lines
from gradstudio.watching.script.script_names import variables
from gradstudio.watching.steps.mode_checks import keeps_statistics

_TO_FREEZE = re.compile(r"re\w*grad\w*")  # what people write for `requires_grad`
_MOSTLY_NEW = 0.9  # momentum of a batch norm, which elsewhere is the share of the old statistics
_MOST = 0.8  # share that a dropout drops, where elsewhere it is the share that is left
_AGAIN = 3  # consecutive steps
_SEEDS = 20  # consecutive steps before which the same seed was set


class SetupChecks:
    """Checks the setup of one observer. `tell` is called with the rule, the evidence, the first step and the names."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell
        self._empty_clips = 0  # consecutive steps before which a clip got no parameters, and no other did
        self._is_empty = False  # whether one did in this step
        self._seed: int | None = None  # the latest one that was set in this step
        self._seeds: tuple[int | None, int] = None, 0  # that of the step before, and for how many steps it was that

    def look(self, parts: Iterable[tuple[str, nn.Module]]) -> None:
        """Check the modules of the observer, given with their names."""
        named = list(parts)
        if names := list(dict.fromkeys(name for each in named for name in _not_frozen(*each))):
            attribute, those = names[0][0], [name for _, name in names]
            text = f"`{attribute} = False` was set on {in_words(those)}, which freezes nothing: they are trained."
            mend = f"`{those[0]}.requires_grad_(False)`"
            if len(those) > 1 or "weight" in those[0]:  # it was set on parameters
                mend = f"`p.requires_grad = False` in place of `p.{attribute} = False`"
            self._tell("not_frozen", text, 0, known=mend)
        norms = [(name, part) for name, part in named if keeps_statistics(part) and _MOSTLY_NEW <= _momentum(part) < 1]
        if norms:
            most = max(_momentum(part) for _, part in norms)
            text = (
                f"{plural(len(norms), 'batch norm has', 'batch norms have')} a momentum of up to {most:g}: "
                f"{in_words([name for name, _ in norms])}."
            )
            self._tell("norm_momentum", text, 0, known=f"{1 - most:g}")

        drops = [(name, part) for name, part in named if isinstance(part, _DropoutNd) and _MOST <= part.p < 1]
        if drops:
            most = max(part.p for _, part in drops)
            those = in_words([name for name, _ in drops])
            text = f"{plural(len(drops), 'dropout drops', 'dropouts drop')} up to {100 * most:g} %: {those}."
            self._tell("dropout_high", text, 0, known=f"{1 - most:.2g}")
        if place := _endless_dropout({type(part) for _, part in named}):
            self._tell("endless_dropout", f"`F.dropout` is called without `training`, at {place}.", 0)

    def on_seed(self, seed: Any) -> None:
        """The script sets the seed of torch."""
        self._seed = seed if isinstance(seed, int) else None

    def on_empty_clip(self) -> None:
        """A call that clips got no parameters."""
        self._is_empty = True

    def on_step(self, *, is_clipped: bool, step: int) -> None:
        """A step is made; `is_clipped`: another call has clipped its gradient."""
        seed, self._seed = self._seed, None
        if seed is not None and torch.initial_seed() != seed:
            seed = None  # in a `torch.random.fork_rng`, which is over
        before, count = self._seeds
        self._seeds = seed, count + 1 if seed is not None and seed == before else 0
        if self._seeds[1] == _SEEDS:
            text = f"`torch.manual_seed({seed})` was called before each of the {_SEEDS} steps up to step {step:,}."
            self._tell("seed_each_step", text, max(step - _SEEDS, 0))
        self._empty_clips = self._empty_clips + 1 if self._is_empty and not is_clipped else 0
        self._is_empty = False
        if self._empty_clips == _AGAIN:
            used_up = next((name for name, value in variables() if isinstance(value, (filter, map))), "")
            whose = f"`{used_up}`" if used_up else "A generator that was gone through before"
            text = f"The call that clips got no parameters before each of {_AGAIN} steps. {whose} has nothing left."
            parameters = "[p for group in optimizer.param_groups for p in group['params']]"
            self._tell("clips_nothing", text, max(step - _AGAIN + 1, 0), known=parameters)


def _endless_dropout(classes: Iterable[type]) -> str:
    """Return the line in the classes of a script that drops without regard to the mode; "" if there is none."""
    kinds = set(classes)
    for file in source_lines.files_of_classes(kinds):
        ranges = source_lines.lines_of_classes(kinds, file)
        for site in source_lines.calls_of("dropout", file):
            match site.call:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="F" | "functional")), args=given, keywords=named):
                    is_within = any(first <= site.place.line <= last for first, last in ranges)
                    if is_within and len(given) < 3 and all(each.arg not in ("training", None) for each in named):
                        return site.place.text
    return ""


def _not_frozen(name: str, part: nn.Module) -> list[tuple[str, str]]:
    """Return the attributes of a module and of its own parameters that were meant to freeze trained ones, with their
    names."""
    own = [attribute for attribute, value in vars(part).items() if _freezes(attribute, value)]
    names = [(attribute, name) for attribute in own if any(p.requires_grad for p in part.parameters())]
    for each, parameter in part.named_parameters(recurse=False):
        attributes = [attribute for attribute, value in _plain(parameter) if _freezes(attribute, value)]
        names += [(attribute, f"{name}.{each}".strip(".")) for attribute in attributes if parameter.requires_grad]
    return names


def _plain(parameter: Tensor) -> Iterable[tuple[str, Any]]:
    return getattr(parameter, "__dict__", {}).items()


def _freezes(attribute: str, value: Any) -> bool:
    return value is False and _TO_FREEZE.fullmatch(attribute) is not None


def _momentum(part: Any) -> float:
    return float(part.momentum) if part.momentum is not None else 0.0
