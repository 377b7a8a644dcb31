"""Where the gradient ends on its way back, in a run in which every gradient is exactly 0, or that of some parameters:
one backward pass is observed, operation by operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, float16, strided

from gradstudio.core.diagnosis.progress import SOLVED
from gradstudio.core.diagnosis.script_faults import GRADIENT_ENDS
from gradstudio.core.history import LOOK_EVERY
from gradstudio.core.provenance import operation_of
from gradstudio.core.text import join_with_and
from gradstudio.watching.births.loss_graph import in_words
from gradstudio.watching.births.loss_values import is_leaf
from gradstudio.watching.births.operation_lines import line_in_model, line_of
from gradstudio.watching.hooks.leaves import nodes_before
from gradstudio.watching.measuring.sharded_parameters import local_part
from gradstudio.watching.script.model_layers import ModelLike

_MOST_NODES = 2_000  # number observed, nearest to the loss first
_ALL = f"been exactly 0 for {LOOK_EVERY:,} steps"
_LOOKS = 5  # at which the gradient of a parameter has to be 0
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
    **{name: _ROUND.format(f"`{name}`") for name in ("round", "floor", "ceil", "trunc", "sgn", "sign")},
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
        self._with: Tensor | None = None  # which parameters had another gradient at a look, where they are
        self._looks = 0
        self._has_moved = False  # whether there was any other gradient
        self._sought: set[int] = set()  # the ids of these parameters, while a pass is observed for them
        self._handles: list[Any] = []
        self._ends: dict[str, None] = {}  # operations in which the gradient ended
        self._fed: dict[Any, set[str]] = {}  # nodes that were sent a gradient, with the operations that sent it
        self._starved: list[Any] = []  # nodes whose gradients came to 0 in sum

    def after_step(self, norm: float) -> None:
        """Count the steps without any gradient."""
        self._zeros = self._zeros + 1 if norm == 0 else 0
        self._has_moved = self._has_moved or norm > 0

    def look(self, parameters: Sequence[Tensor]) -> None:
        """Look, now and then, at the gradients of the first steps: some parameters may have none but 0."""
        if self._looks == _LOOKS:
            return
        self._looks += 1
        now = _have_gradients(parameters)
        if self._with is not None and (self._with.shape, self._with.device) != (now.shape, now.device):
            self._looks = _LOOKS  # others are trained now
            return
        self._with = now if self._with is None else self._with | now
        if self._looks == _LOOKS:  # the only time that it is read
            without = [each for each, has in zip(parameters, self._with.tolist(), strict=True) if not has]
            self._sought = set(map(id, without)) if len(without) < len(parameters) else set()

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        """Observe the pass that begins, if it is time."""
        if (self._zeros != LOOK_EVERY and not self._sought) or self._handles:
            return
        if self._has_moved and all(root.numel() == 1 and abs(float(root.detach())) <= SOLVED for root in roots):
            self._zeros, self._sought = 0, set()  # nothing is left to learn
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
        some = [name for name, each in model.named_parameters() if id(each) in self._sought]
        zeros = self._zeros if some else LOOK_EVERY + 1
        self._ends, self._fed, self._starved, self._handles, self._sought = {}, {}, [], [], set()
        self._zeros = zeros
        if cancelled and not some:
            ends.append(OF_ITSELF)
        if not ends:
            return
        known = [name for name in ends if name in _INSTEAD]
        operations = ["sub" if name == OF_ITSELF else name for name in known or ends]
        source = line_of(operations, model) or (line_in_model(operations[0], model) if known else "")
        where = f", at {source}" if source else ""
        looks = f"was exactly 0 at each of {_LOOKS} looks in the first {_LOOKS * LOOK_EVERY} steps"
        whose = f"The gradient of {in_words(some)} {looks}" if some else f"All gradients have {_ALL}"
        text = (
            f"{whose}. In the pass after them the gradient of the loss was not, and became 0 in "
            f"{join_with_and(ends[:4])}{where}."
        )
        # those of some began with the run, and the rule of the rows knows whether it does well
        first, severity = (0, "info") if some else (None, None)
        self._tell(GRADIENT_ENDS, text, first, known=_INSTEAD[known[0]] if known else "", severity=severity)

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
        if any(zeros) and (not self._sought or any(self._leads(to) for to, is_any in sent if not is_any)):
            self._ends[OF_ZEROS if name in _PRODUCTS and len(zeros) > 1 and all(zeros) else name] = None

    def _leads(self, node: Any) -> bool:
        """Return whether a node leads to a parameter that is sought."""
        leaves = (getattr(each, "variable", None) for each in islice(nodes_before((node,)), _MOST_NODES))
        return any(id(leaf) in self._sought for leaf in leaves if leaf is not None)


def _have_gradients(parameters: Sequence[Tensor]) -> Tensor:
    """Return which parameters do not have a gradient of exactly 0, (parameters,), without waiting for a device: in
    float16 it may be too small for the format."""
    with torch.no_grad():
        home = parameters[0].device if parameters else torch.device("cpu")
        flags = [
            torch.ones((), dtype=torch.bool, device=home) if _may_differ(each.grad) else local_part(each.grad).any()
            for each in parameters
        ]
        return torch.stack([flag.to(home, non_blocking=True) for flag in flags]) if flags else torch.zeros(0).bool()


def _may_differ(gradient: Tensor | None) -> bool:
    return gradient is None or gradient.layout is not strided or gradient.dtype is float16
