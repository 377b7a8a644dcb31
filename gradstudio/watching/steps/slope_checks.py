"""Where the gradient ends on its way back, in a run in which every gradient is exactly 0: one backward pass is
observed, operation by operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

from torch import Tensor

from gradstudio.core.diagnosis.script_faults import GRADIENT_ENDS
from gradstudio.core.history import LOOK_EVERY
from gradstudio.core.provenance import operation_of
from gradstudio.core.text import join_with_and
from gradstudio.watching.births.loss_values import is_leaf
from gradstudio.watching.births.operation_lines import line_in_model, line_of
from gradstudio.watching.hooks.leaves import nodes_before
from gradstudio.watching.script.model_layers import ModelLike

_MOST_NODES = 2_000  # number observed, nearest to the loss first
_ROUND = "`x + (round(x) - x).detach()` for `round(x)`: the slope of {} is 0 everywhere, so that of `x` stands for it"
# What would pass the gradient on, by the operation that does not.
_INSTEAD = {
    "relu": "no `relu` behind the last layer, or `F.softplus` in its place: below 0 its slope is 0",
    "threshold_backward": "`tanh`, `F.silu` or `F.softplus` in place of `relu`: the second derivative of that is 0 "
    "everywhere",
    **dict.fromkeys(
        ("clamp", "clamp_min", "clamp_max", "hardtanh"),
        "no clamp there while the model is trained, or wider bounds: beyond them its slope is 0",
    ),
    "softmax": "`softmax` over the dimension of the choices (`dim=...`): of one number it is 1",
    "log_softmax": "`F.binary_cross_entropy_with_logits(scores.squeeze(1), target.float())` for a single output, or "
    "two outputs: of one number the softmax is 1",
    "rsqrt": "`.float()` on what `rsqrt` is given: its result is 0, so that was too large for its number format",
    **{name: _ROUND.format(f"`{name}`") for name in ("round", "floor", "ceil", "trunc", "sgn")},
}
_PRODUCTS = ("mm", "bmm", "mul")
OF_ZEROS = "a product of two zeros"
_INSTEAD[OF_ZEROS] = (
    "`torch.nn.init.kaiming_normal_(weight)` for one of the two: the gradient of a factor is a multiple of the other"
)
OF_ITSELF = "a difference of a value and itself"
_INSTEAD[OF_ITSELF] = (
    "`.detach()` on the one that is to stand still, such as `new - old.detach()`: the gradients of the two cancel"
)


class SlopeChecks:
    """Observes one backward pass of an observer. `tell` is called with the rule, the evidence and the names."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell
        self._zeros = 0  # consecutive steps whose gradient was exactly 0
        self._handles: list[Any] = []
        self._ends: dict[str, None] = {}  # operations in which the gradient ended
        self._fed: dict[Any, set[str]] = {}  # nodes that were sent a gradient, with the operations that sent it
        self._starved: list[Any] = []  # nodes whose gradients came to 0 in sum

    def after_step(self, norm: float) -> None:
        """Count the steps without any gradient."""
        self._zeros = self._zeros + 1 if norm == 0 else 0

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        """Observe the pass that begins, if it is time."""
        if self._zeros != LOOK_EVERY or self._handles:
            return
        for node in islice(nodes_before((root.grad_fn for root in roots), nearest_first=True), _MOST_NODES):
            if not is_leaf(node):
                self._handles.append(node.register_hook(partial(self._on_derivative, node)))

    @property
    def is_observing(self) -> bool:
        """Whether the current backward pass is observed."""
        return bool(self._handles)

    def after_backward(self, model: ModelLike) -> None:
        """Report where the gradient ended in an observed pass."""
        for handle in self._handles:
            handle.remove()
        ends, cancelled = list(self._ends), [node for node in self._starved if self._fed.get(node) == {"sub"}]
        self._ends, self._fed, self._starved, self._handles, self._zeros = {}, {}, [], [], LOOK_EVERY + 1
        if cancelled:
            ends.append(OF_ITSELF)
        if not ends:
            return
        known = [name for name in ends if name in _INSTEAD]
        operations = ["sub" if name == OF_ITSELF else name for name in known or ends]
        source = line_of(operations, model) or (line_in_model(operations[0], model) if known else "")
        where = f", at {source}" if source else ""
        text = (
            f"All gradients have been exactly 0 for {LOOK_EVERY:,} steps. In the pass after them the gradient of the "
            f"loss was not, and became 0 in {join_with_and(ends[:4])}{where}."
        )
        self._tell(GRADIENT_ENDS, text, known=_INSTEAD[known[0]] if known else "")

    def _on_derivative(self, node: Any, gave: tuple[Any, ...], came: tuple[Any, ...]) -> None:
        """Record an operation that received a gradient and passed on 0, or that was sent gradients which cancel."""
        name = operation_of(node.name())
        after = [before for before, _ in node.next_functions]
        sent = [(after[place], bool(each.any())) for place, each in enumerate(gave) if each is not None]
        if not any(bool(each.any()) for each in came if each is not None):
            self._starved.append(node)
            return
        for to in (to for to, is_any in sent if is_any):
            self._fed.setdefault(to, set()).add(name)
        zeros = [not is_any for _, is_any in sent]
        if any(zeros):
            self._ends[OF_ZEROS if name in _PRODUCTS and len(zeros) > 1 and all(zeros) else name] = None
