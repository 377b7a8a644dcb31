"""How a training is set up: attributes that were meant to freeze parameters, batch norms whose momentum is that of
another library, and calls that clip nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn

from gradstudio.core.text import plural
from gradstudio.watching.births.loss_graph import in_words
from gradstudio.watching.script.script_names import variables
from gradstudio.watching.steps.mode_checks import keeps_statistics

_TO_FREEZE = re.compile(r"re\w*grad\w*")  # what people write for `requires_grad`
_MOSTLY_NEW = 0.9  # momentum of a batch norm, which elsewhere is the share of the old statistics
_AGAIN = 3  # consecutive steps


class SetupChecks:
    """Checks the setup of one observer. `tell` is called with the rule, the evidence, the first step and the names."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell
        self._empty_clips = 0  # consecutive steps before which a clip got no parameters, and no other did
        self._is_empty = False  # whether one did in this step

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

    def on_empty_clip(self) -> None:
        """A call that clips got no parameters."""
        self._is_empty = True

    def on_step(self, *, is_clipped: bool, step: int) -> None:
        """A step is made; `is_clipped`: another call has clipped its gradient."""
        self._empty_clips = self._empty_clips + 1 if self._is_empty and not is_clipped else 0
        self._is_empty = False
        if self._empty_clips == _AGAIN:
            used_up = next((name for name, value in variables() if isinstance(value, (filter, map))), "")
            whose = f"`{used_up}`" if used_up else "A generator that was gone through before"
            text = f"The call that clips got no parameters before each of {_AGAIN} steps. {whose} has nothing left."
            parameters = "[p for group in optimizer.param_groups for p in group['params']]"
            self._tell("clips_nothing", text, max(step - _AGAIN + 1, 0), known=parameters)


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
