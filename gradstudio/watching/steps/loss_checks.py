"""Whether the loss rests at the level of predictions that ignore the input, and whether the model receives unscaled
values. Checked now and then, at the beginning of a backward pass; read at the end of a run."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gradstudio.core.history import LOOK_EVERY
from gradstudio.core.provenance import ProvenanceUnknown, operation_of
from gradstudio.core.text import number
from gradstudio.watching.births.loss_graph import OF_TARGETS, is_undivided_mean
from gradstudio.watching.births.loss_values import passes_of, shape_of
from gradstudio.watching.births.saved_tensors import LABELLED
from gradstudio.watching.hooks.leaves import nodes_before
from gradstudio.watching.hooks.torch_hooks import Roots

LOOKS = 10  # consecutive looks that have to agree
_NEAR, _NEAR_CHANCE = 0.02, 0.01  # distance from a level, relative to it: the mean of that, and the largest
_MOST_COLUMNS, _MOST_CLASSES = 10_000, 1_000  # number of targets whose means are kept
_LARGE, _LARGEST = 30.0, 100.0  # root mean square and largest value of unscaled inputs
_TWO = ("binary_cross_entropy_with_logits", "binary_cross_entropy")
_LAYERS = ("addmm", "mm", "bmm", "convolution", "linear")
_MOST_NODES = 20_000


class _Batch(NamedTuple):
    """A batch: its loss, the mean of its targets and of their squares, over the examples. For classes, the mean of the
    targets is the share of each."""

    step: int
    kind: str  # "classes", "two" or "squares"
    loss: Tensor
    mean: Tensor
    squares: Tensor


class LossChecks:
    """Checks the losses of one observer. `tell` is called with the rule, the evidence, the first step and the names."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell
        self._seen: deque[_Batch] = deque(maxlen=LOOKS)  # the latest
        self._targets = ""  # the observation about targets that are too large
        self._inputs = ""  # the observation about an input that is too large

    def look(self, roots: Roots, mark: str, step: int) -> None:
        """Check a backward pass that begins. `mark` is that of the outputs of the model in autograd's graph."""
        losses = [loss for loss in roots.unscaled if loss is not None] or roots.tensors
        if len(losses) == 1 and is_undivided_mean(losses[0]) and (seen := _look_at(losses[0], step)) is not None:
            self._seen.append(seen)
        if not step:
            self._targets = _large_target(losses)
        if step <= LOOK_EVERY and not self._inputs:  # the first pass may precede the hooks on the model
            self._inputs = _large_input(roots.tensors, mark)

    def end(self, *, is_alone: bool) -> None:
        """Judge the observations of a run. `is_alone`: nothing else is trained, such as the other half of a GAN, whose
        two losses rest if neither wins."""
        text = self._at_rest() if is_alone else ""
        if text:
            self._tell("loss_at_rest", text, self._seen[0].step)
        if self._targets:
            self._tell("large_targets", self._targets, 0)
        if self._inputs:
            self._tell("large_inputs", self._inputs, 0, severity="warning" if text else "info")

    # ---- a loss at rest

    def _at_rest(self) -> str:
        """Return where the loss has rested at all of the latest looks; "" if it has not."""
        if len(self._seen) < LOOKS or len({(seen.kind, seen.mean.shape) for seen in self._seen}) > 1:
            return ""
        losses = [float(seen.loss) for seen in self._seen]
        where = f"at each of {LOOKS} looks in the steps {self._seen[0].step:,} to {self._seen[-1].step:,}"
        kind, classes = self._seen[0].kind, 2 if self._seen[0].kind == "two" else self._seen[0].mean.numel()
        chance = math.log(classes) if kind != "squares" and classes > 1 else math.nan
        if all(abs(loss - chance) <= _NEAR_CHANCE * chance for loss in losses):
            text = f"The loss was within {_NEAR_CHANCE:.0%} of ln {classes:,} = {number(chance)} {where}"
            return f"{text}: each of {classes:,} classes is held for equally likely."
        levels = self._constant_losses()
        if min(levels) <= 0 or not all(
            abs(loss - level) <= _NEAR * level for loss, level in zip(losses, levels, strict=True)
        ):
            return ""
        between = f"{number(min(levels))} to {number(max(levels))}"
        best = "the mean of all targets" if kind == "squares" else "the share of each class"
        return (
            f"The loss was on average within {_NEAR:.0%} of that of a constant prediction, {best} ({between}), {where}."
        )

    def _constant_losses(self) -> list[float]:
        """Return the loss of each batch if the prediction were the mean of all observed targets."""
        whole = torch.stack([seen.mean for seen in self._seen]).mean(0)
        if self._seen[0].kind == "squares":
            return [float((seen.squares - 2 * whole * seen.mean + whole**2).mean()) for seen in self._seen]
        whole = whole.clamp(1e-6, 1 - 1e-6)
        other = (1 - whole).log() if self._seen[0].kind == "two" else torch.zeros_like(whole)
        parts = [-(seen.mean * whole.log() + (1 - seen.mean) * other) for seen in self._seen]
        return [float(part.mean() if self._seen[0].kind == "two" else part.sum()) for part in parts]


def _large_input(roots: Sequence[Tensor], mark: str) -> str:
    """Return the input of a linear or convolutional layer, if that is a large, unchanged input of the model."""
    ends = [root.grad_fn for root in roots]
    large: dict[int, str] = {}
    try:
        passes = passes_of(ends, mark)
    except ProvenanceUnknown:  # the loss code is too long
        return ""
    for kept_pass in passes:
        for place, (tensor, _) in enumerate(kept_pass.taken):
            if tensor.is_floating_point() and tensor.numel() and not tensor.requires_grad:
                size, largest = float(tensor.float().square().mean().sqrt()), float(tensor.abs().max())
                if _LARGE <= size < math.inf and largest >= _LARGEST:
                    values = f"{number(float(tensor.min()))} to {number(float(tensor.max()))}"
                    large[tensor.data_ptr()] = (
                        f"A layer takes input {place} of the model as it is: values from {values}, with a root "
                        f"mean square of {number(size)}."
                    )
    if not large:
        return ""
    for count, node in enumerate(nodes_before(ends)):
        if count > _MOST_NODES:
            break
        if operation_of(node.name()) in _LAYERS:
            for name in ("mat1", "self", "input"):
                saved = _saved_tensor(node, name)
                if saved is not None and (told := large.get(saved.data_ptr())):
                    return told
    return ""


def _large_target(losses: Sequence[Tensor]) -> str:
    """Return the targets of a squared error or a huber loss, if they are large."""
    node: Any = losses[0].grad_fn if len(losses) == 1 else None
    operation = operation_of(node.name()) if node is not None else ""
    target = _saved_tensor(node, "target") if operation in OF_TARGETS else None
    if target is None or not target.numel():
        return ""
    size, largest = float(target.float().square().mean().sqrt()), float(target.abs().max())
    if not (_LARGE <= size < math.inf and largest >= _LARGEST):
        return ""
    values = f"{number(float(target.min()))} to {number(float(target.max()))}"
    return f"`{operation}` is given targets from {values}, with a root mean square of {number(size)}."


def _look_at(loss: Tensor, step: int) -> _Batch | None:
    """Return the batch of a loss, if its targets are known; otherwise None."""
    node: Any = loss.grad_fn
    operation = operation_of(node.name())
    target = _saved_tensor(node, "target")
    if target is None or not target.numel() or _saved_tensor(node, "weight") is not None:
        return None
    loss = loss.detach()
    if operation in LABELLED:
        shape = shape_of(node.next_functions[0][0])
        classes = shape[0] if len(shape) == 1 else shape[1] if len(shape) > 1 else 0
        before = operation_of(node.next_functions[0][0].name())
        if not 1 < classes <= _MOST_CLASSES or before != "log_softmax":
            return None
        # ignored labels are counted after the last class
        places = target.flatten().where(target.flatten() >= 0, classes)
        counts = torch.zeros(classes + 1, device=target.device).scatter_add_(0, places, torch.ones_like(places).float())
        mean = counts[:-1] / counts[:-1].sum()
        return _Batch(step, "classes", loss, mean, mean)
    mean = (target if target.dim() < 2 else target.flatten(1)).detach().float()
    if mean.dim() == 2 and mean.shape[1] > _MOST_COLUMNS:
        return None
    if operation == "mse_loss":
        return _Batch(step, "squares", loss, mean.mean(0), mean.square().mean(0))
    return _Batch(step, "two", loss, mean.mean(0), mean.mean(0)) if operation in _TWO else None


def _saved_tensor(node: Any, name: str) -> Tensor | None:
    try:
        saved = getattr(node, f"_saved_{name}", None)
    except RuntimeError:
        return None
    return saved if isinstance(saved, Tensor) else None
