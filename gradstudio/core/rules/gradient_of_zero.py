"""Tensors that a backward pass reaches but whose gradient is exactly 0 at every step: nothing trains them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History, up_to
from gradstudio.core.rules.fp16_underflow import is_another_factor
from gradstudio.core.text import join_with_and
from gradstudio.core.unknown import is_known

_NAMED = 4  # layers in the sentence; the finding lists all of them
_OF_SOME = (
    "They are not trained. A factor of their gradient is exactly 0 for every example: a softmax over a dimension of "
    "size 1 (`softmax(dim=...)`), a rounding, a product with 0, a unit whose slope is 0, a clamp or a part of the loss "
    "with weight 0. If this is meant, nothing is wrong."
)

_IN_HALF = (
    "They are not trained, and no loss scale changes that: gradients beside them are far from too small. What they are "
    "multiplied with is exactly 0, as behind a norm whose squares are beyond 65,504, so Inf in float16: its inverse "
    "is 0."
)


@dataclass
class GradientOfZero(PeriodicRule):
    """Fires in a script if the gradient of a tensor has been exactly 0 at each of the first `after` steps or more,
    although a backward pass reaches it. In float16 that may be underflow, unless other gradients are large. Exact:
    rounding does not leave a gradient at 0 for so long."""

    rule = "gradient_of_zero"
    after: int = 100

    _seen: int = 0  # rows
    _had: tuple[bool, ...] = ()  # layers that have had a nonzero gradient, or none at all
    _any: bool = False  # whether one has had another

    @staticmethod
    def _of_zeros(history: History, names: tuple[str, ...]) -> str:
        """Return which of these tensors are 0 themselves, as a sentence with a leading space: a product of two such
        tensors has no gradient in either."""
        sizes = history.layer_metric("weight_norm", len(history) - 1)[0]
        zero = [layer.name for layer, size in zip(history.layers, sizes, strict=True) if layer.is_weight and not size]
        zero = [name for name in zero if name in names]
        return f" All of {join_with_and(zero[:_NAMED])} {'is' if len(zero) == 1 else 'are'} 0." if zero else ""

    def look(self, history: History, state: Progress) -> None:
        if is_known(history.value("accuracy", len(history) - 1)) or state.broken:
            return  # other rules know more about the studio's own models
        in_half = bool(history.settings) and history.settings[-1][1].dtype == "fp16"
        if not history.settings or (in_half and not is_another_factor(history)):
            return
        had = history.layer_metric("grad_norm", self._seen).any(0)
        self._any = self._any or bool(had.any())
        without = history.unused[-1][1] if history.unused else ()
        had = had | np.array([layer.name in without for layer in history.layers], bool)
        self._had = tuple((had | np.array(self._had, bool) if self._had else had).tolist())
        self._seen = len(history)
        names = tuple(layer.name for layer, once in zip(history.layers, self._had, strict=True) if not once)
        if not names or len(history) < self.after or not self._any:
            self._finding = None  # they are trained by now; if it is all of them, another rule reports it
            return
        text = join_with_and([*names[:_NAMED], *([f"{len(names) - _NAMED:,} more"] if len(names) > _NAMED else [])])
        self._finding = None
        roles = {layer.name: layer.role for layer in history.layers}
        # one that cancels out, for example before a softmax, has none
        grave = any(roles[name] != "bias" for name in names)
        self.tell(
            history, "warning" if grave and (state.stuck or state.has_lost) else "info",
            "Gradients that are exactly 0 at every step",
            f"The gradient of {text} was exactly 0 at each of the {len(history):,} steps {up_to(history)}, though a "
            f"backward pass reaches it.{self._of_zeros(history, names)}", _IN_HALF if in_half else _OF_SOME,
            ("model.init=he",) if self._of_zeros(history, names) else ("precision.dtype=bf16",) if in_half else (),
            layers=names, first=0,
        )  # fmt: skip
