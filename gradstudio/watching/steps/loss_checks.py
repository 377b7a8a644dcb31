"""Whether the loss rests at the level of predictions that ignore the input, and whether the model receives unscaled
values. Checked now and then, at the beginning of a backward pass; read at the end of a run."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from gradstudio.core.history import LOOK_EVERY
from gradstudio.core.provenance import ProvenanceUnknown, operation_of
from gradstudio.core.text import number
from gradstudio.watching.births.loss_graph import OF_TARGETS, is_undivided_mean
from gradstudio.watching.births.loss_terms import Term, terms_of, without_floor
from gradstudio.watching.births.loss_values import passes_of, shape_of
from gradstudio.watching.births.saved_tensors import LABELLED, MEAN, signed
from gradstudio.watching.hooks.leaves import nodes_before
from gradstudio.watching.hooks.torch_hooks import Roots

LOOKS = 10  # consecutive looks that have to agree
_NEAR, _NEAR_CHANCE = 0.02, 0.01  # distance from a level, relative to it: the mean of that, and the largest
_MOST_COLUMNS, _MOST_CLASSES = 10_000, 1_000  # number of targets whose means are kept
_LARGE, _LARGEST = 30.0, 100.0  # root mean square and largest value of unscaled inputs
_FALLS = 5  # looks that are needed to see whether a loss falls without an end, or what its labels are
_FASTER = 2.0  # times as far in the later half as in the earlier one: 1 is a line, and 3 a square
_MOST_ALIKE = 0.7  # share of one class among the labels
_FAR = 3.0  # times the loss of a guess
_TWO = ("binary_cross_entropy_with_logits", "binary_cross_entropy")
_JUDGED = {
    "mse_loss": functional.mse_loss,
    "binary_cross_entropy_with_logits": functional.binary_cross_entropy_with_logits,
    "binary_cross_entropy": functional.binary_cross_entropy,
    **dict.fromkeys(LABELLED, functional.nll_loss),
}
_DIVIDE = (
    "`reduction='sum'` in the loss with the targets, so that both terms are sums over the same batch: the other one "
    "outweighs it"
)
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
        self._scores = ""  # the observation about a first loss far above that of a guess
        self._is_zero: Tensor | None = None  # whether a term was exactly 0 at all looks, where the loss is
        self._looks = 0
        self._beside = ""  # a term beside that of the targets, which is a sum
        self._falls: list[tuple[int, Tensor]] = []  # step and loss of all looks at one without a least value
        self._endless = ""  # the operation of its term

    def look(self, roots: Roots, mark: str, step: int) -> None:
        """Check a backward pass that begins. `mark` is that of the outputs of the model in autograd's graph."""
        losses = [loss for loss in roots.unscaled if loss is not None] or roots.tensors
        if len(losses) == 1:
            alone = is_undivided_mean(losses[0])
            term, beside = (Term(losses[0].grad_fn, 1), "") if alone else _term_of_targets(losses)
            if term is not None and (seen := _look_at(term.node, losses[0] if alone else None, step)) is not None:
                self._seen.append(seen)
                self._beside = beside
            self._looks += 1
            self._note_zero(terms_of(losses))
            if operation := without_floor(losses):
                self._endless = operation
                self._falls.append((step, losses[0].detach()))
        if not step:
            self._targets = _large_target(losses)
            self._scores = self._first_loss()
        if step <= LOOK_EVERY and not self._inputs:  # the first pass may precede the hooks on the model
            self._inputs = _large_input(roots.tensors, mark)

    def end(self, *, is_alone: bool) -> None:
        """Judge the observations of a run. `is_alone`: nothing else is trained, such as the other half of a GAN, whose
        two losses rest if neither wins."""
        text = self._at_rest() if is_alone else ""
        if text:
            known = _DIVIDE if self._beside else ""
            self._tell("loss_at_rest", f"{text}{self._beside}", self._seen[0].step, known=known)
        if self._endless and (text := self._endless_fall()):
            self._tell("loss_without_floor", text, self._falls[0][0], known=self._endless)
        if self._looks >= LOOKS and self._is_zero is not None and bool(self._is_zero):
            text = f"`mse_loss`, a term of the loss, was exactly 0 at each of {self._looks} looks."
            self._tell("term_of_zero", text, 0)
        self._look_at_labels()
        if self._scores:
            self._tell("large_scores", self._scores, 0)
        if self._targets:
            self._tell("large_targets", self._targets, 0)
        if self._inputs:
            self._tell("large_inputs", self._inputs, 0, severity="warning" if text else "info")

    def _note_zero(self, terms: Iterable[Term]) -> None:
        flags = [flag for flag in map(_is_exactly_0, terms) if flag is not None]
        if not flags or (self._looks > 1 and self._is_zero is None):
            self._is_zero = None
            return
        now = torch.stack(flags).any()
        self._is_zero = now if self._is_zero is None else self._is_zero & now

    def _look_at_labels(self) -> None:
        """Report that most labels are of one class, if they are at all of the latest looks."""
        if len(self._seen) < _FALLS or {(seen.kind, seen.mean.shape) for seen in self._seen} != {
            ("classes", self._seen[0].mean.shape)
        }:
            return
        least, most = torch.stack([seen.mean for seen in self._seen]).min(0).values.max(0)
        if float(least) >= _MOST_ALIKE:
            share = f"at least {100 * float(least):.0f} % of the labels were {int(most)}"
            text = f"At each of the latest {len(self._seen)} looks {share}."
            self._tell("one_label", text, self._seen[0].step, known=str(int(most)))

    def _first_loss(self) -> str:
        """Return how far the first cross entropy is above that of a guess; "" if it is not."""
        seen = self._seen[0] if self._seen else None
        classes = seen.mean.numel() if seen is not None and seen.kind == "classes" else 0
        if seen is None or classes < 2 or not _FAR * math.log(classes) < (first := float(seen.loss)) < math.inf:
            return ""
        guess = f"ln {classes:,} = {number(math.log(classes))}"
        return f"The first cross entropy is {number(first)}, and that of a guess {guess}."

    def _endless_fall(self) -> str:
        """Return that a loss fell ever faster below 0; "" if it did not."""
        losses = [float(loss) for _, loss in self._falls]
        finite = [loss for loss in losses if math.isfinite(loss)]
        if len(finite) < _FALLS:
            return ""
        first, middle, last = finite[0], finite[len(finite) // 2], finite[-1]
        if not (last < -abs(first) and middle - last > _FASTER * (first - middle) > 0):
            return ""
        steps = [step for (step, _), loss in zip(self._falls, losses, strict=True) if math.isfinite(loss)][-3:]
        fell = ", ".join(f"{number(loss)} at step {step:,}" for loss, step in zip(finite[-3:], steps, strict=True))
        return (
            f"The loss falls below 0, ever faster: {fell}. A term with the result of `{self._endless}` is subtracted."
        )

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


def _is_exactly_0(term: Term) -> Tensor | None:
    """Return whether a squared error is 0 because the output is its target, without waiting for a device; None if the
    term is no squared error."""
    given, target = _saved_tensor(term.node, "self"), _saved_tensor(term.node, "target")
    if operation_of(term.node.name()) != "mse_loss" or given is None or target is None or given.shape != target.shape:
        return None
    return (given.detach() == target).all()


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


def _term_of_targets(losses: Sequence[Tensor]) -> tuple[Term | None, str]:
    """Return the only term of a loss with known targets; and, if that is a mean, what is said of another that is the
    sum of many numbers."""
    terms = list(terms_of(losses))
    known = [term for term in terms if operation_of(term.node.name()) in _JUDGED]
    if len(known) != 1 or len(terms) < 2:
        return None, ""
    most = max(term.summed for term in terms if term is not known[0])
    is_mean = getattr(known[0].node, "_saved_reduction", None) == MEAN and not known[0].summed
    examples = _saved_tensor(known[0].node, "target")
    if not is_mean or examples is None or most <= len(examples):
        return known[0], ""
    operation = operation_of(known[0].node.name())
    return known[0], f" `{operation}` is a mean, and another term of the loss is a sum over {most:,} numbers."


def _value_of(node: Any, operation: str, target: Tensor) -> Tensor | None:
    """Return the mean of a term, from what autograd has saved for it; None if that is not known."""
    given = _saved_tensor(node, "self")
    if given is None:
        return None
    given = given.detach()
    if operation in LABELLED:
        return functional.nll_loss(given, target, ignore_index=signed(node._saved_ignore_index))
    return _JUDGED[operation](given, target)


def _look_at(node: Any, loss: Tensor | None, step: int) -> _Batch | None:
    """Return the batch of a term of a loss, if its targets are known; otherwise None. `loss` is its value, if known."""
    operation = operation_of(node.name())
    target = _saved_tensor(node, "target")
    if target is None or not target.numel() or _saved_tensor(node, "weight") is not None:
        return None
    loss = _value_of(node, operation, target) if loss is None else loss.detach()
    if loss is None:
        return None
    if operation in LABELLED:
        shape = shape_of(node.next_functions[0][0])
        classes = shape[0] if len(shape) == 1 else shape[1] if len(shape) > 1 else 0
        before = operation_of(node.next_functions[0][0].name())
        if not 1 < classes <= _MOST_CLASSES or before != "log_softmax":
            return None
        # ignored labels are counted after the last class
        flat = target.flatten()
        places = flat.where((flat >= 0) & (flat != signed(node._saved_ignore_index)), classes)
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
