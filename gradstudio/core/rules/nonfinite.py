"""NaN or Inf in the loss, in a gradient that reached the weights while the loss was still finite, or in weights that
were updated by a finite gradient."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from gradstudio.core.diagnosis import clipping_limit, mechanism
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.history import History
from gradstudio.core.row import loss_broke
from gradstudio.core.text import join_with_and, number, plural
from gradstudio.core.unknown import is_known, known_mask

_OF_LION = (
    "Lion takes the sign, and torch's sign of NaN is 0: the weights stay finite. But its running mean keeps NaN and "
    "Inf for good. Whatever their gradient, these weights rest, or move by the whole rate at every step."
)


def _hides(history: History, step: int) -> bool:
    """Return whether the optimizer turns NaN gradients into finite updates."""
    settings = mechanism.in_force(history, step)
    return settings is not None and settings.optimizer == "lion"


class _FirstNonfinite:
    """Fires at the first row that is non-finite in the rule's own sense."""

    rule: ClassVar[str]
    every_row: ClassVar[bool] = False
    title: str
    meaning: str
    remedies: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._finding: Finding | None = None

    def update(self, history: History, progress: Progress) -> Finding | None:
        if history.broken and self._finding is None and self.fires(history, len(history) - 1):
            self._finding = self._describe(history, len(history) - 1)
        return self._finding

    def fires(self, history: History, step: int) -> bool:
        raise AssertionError("each rule says when it fires")

    def evidence(self, history: History, step: int) -> str:
        raise AssertionError("each rule gives its evidence")

    def meaning_of(self, history: History, step: int) -> str:
        return self.meaning

    def remedies_of(self, history: History, step: int) -> tuple[str, ...]:
        return self.remedies

    def is_broken(self, history: History, step: int) -> np.ndarray:
        """Return which layers are non-finite, (layers,)."""
        return history.layer_metric("nonfinite_share", step, step + 1)[0] > 0

    def _describe(self, history: History, step: int) -> Finding:
        broken = self.is_broken(history, step)
        layers = tuple(layer.name for layer, is_so in zip(history.layers, broken, strict=True) if is_so)
        return Finding(
            self.rule,
            "critical",
            self.title,
            step,
            step,
            layers,
            self.evidence(history, step),
            self.meaning_of(history, step),
            self.remedies_of(history, step),
        )


class NonfiniteLoss(_FirstNonfinite):
    """Fires at the first NaN or Inf in the loss."""

    rule = "nonfinite_loss"
    title = "The loss is not finite"
    meaning = "An update with its gradient makes the weights NaN; a scaler skips that update."
    of_weights = "The weights were not finite before this step, so no loss could be."
    finite_gradient = "Its gradient was finite all the same, so the update did not carry it into the weights."

    def meaning_of(self, history: History, step: int) -> str:
        if self._has_finite_gradient(history, step):
            return self.finite_gradient
        if self._has_broken_weights(history, step):
            return self.of_weights
        return _OF_LION if _hides(history, step) else self.meaning

    def remedies_of(self, history: History, step: int) -> tuple[str, ...]:
        if math.isnan(history.value("loss", step)) and self._has_finite_gradient(history, step):
            return ()  # a loss of Inf may have grown to that
        if self._has_broken_weights(history, step):
            return ()
        return clipping_limit.by_norm(history, step - 1) if step else ()

    @staticmethod
    def _has_broken_weights(history: History, step: int) -> bool:
        norm = history.value("weight_norm", step)
        return is_known(norm) and not math.isfinite(norm)

    @staticmethod
    def _has_finite_gradient(history: History, step: int) -> bool:
        return not history.value("nonfinite", step) and math.isfinite(history.value("grad_norm", step))

    def fires(self, history: History, step: int) -> bool:
        return loss_broke(history.value("loss", step))

    def evidence(self, history: History, step: int) -> str:
        loss = number(history.row(step)["loss"])
        if step == 0:
            return (
                f"The loss is {loss} at the first step, before any update: the inputs, the initial weights or the loss "
                "function made it so."
            )
        return f"The loss is {loss} at step {step}.{_step_before(history, step)}"


class NonfiniteGradient(_FirstNonfinite):
    """Fires at the first NaN or Inf in a gradient that reached the optimizer while the loss was still finite."""

    rule = "nonfinite_gradient"
    title = "A gradient is not finite"
    meaning = (
        "The loss was still finite: NaN or Inf was born in the backward pass, by a derivative or by overflow, or in a "
        "part of the forward pass that the value of the loss does not depend on."
    )
    carried = "The update carries it into the weights."
    without_loss = (
        "The loss of this step was not seen, so NaN or Inf may have been born in the forward pass, in the loss or in "
        "the backward pass."
    )
    remedies = ("precision.dtype=bf16", "precision.scaling=dynamic")  # one that grew to it is an explosion

    def fires(self, history: History, step: int) -> bool:
        reached = history.value("nonfinite", step) > 0 and history.value("skipped", step) != 1
        return reached and not loss_broke(history.value("loss", step))

    def evidence(self, history: History, step: int) -> str:
        row = history.row(step)
        entries = plural(int(row["nonfinite"]), "gradient entry is", "gradient entries are")
        loss = number(row["loss"]) if is_known(row["loss"]) else "not known"
        if not history.layers:  # of a log, whose entries are not counted
            return f"From step {step} on the gradient norm is {number(row['grad_norm'])} while the loss is {loss}."
        return f"At step {step} {entries} NaN or Inf while the loss is {loss}."

    def meaning_of(self, history: History, step: int) -> str:
        born = self.meaning if is_known(history.value("loss", step)) else self.without_loss
        return f"{born} {_OF_LION if _hides(history, step) else self.carried}"


class NonfiniteWeights(_FirstNonfinite):
    """Fires at the first row whose update turned finite weights into NaN or Inf although loss and gradient were finite,
    for example with an eps of 0. The loss of the next step need not show it: no batch may use an embedding's row."""

    rule = "nonfinite_weights"
    title = "The weights are not finite"
    meaning = (
        "The update made them of finite weights and a finite gradient: by a division by 0, as with an eps of 0, by a "
        "learning rate or an optimizer's state that is not finite, or because they are too large for their number "
        "format."
    )
    between = "No row tells which update made them so, or whether the script did."
    changed = (
        "The gradient was finite after the backward pass, and no longer when the optimizer got it: what clips it, or "
        "changes it otherwise, made it so."
    )

    def __init__(self) -> None:
        super().__init__()
        self._seen = 0

    def update(self, history: History, progress: Progress) -> Finding | None:
        if self._finding is None and (history.due or history.broken):
            ratios = history.column("update_ratio", self._seen)
            are_finite = math.isfinite(np.add.reduce(ratios))  # quickly, as nearly always
            for at in () if are_finite else np.flatnonzero(~np.isfinite(ratios) & known_mask(ratios)).tolist():
                if self.fires(history, self._seen + at):
                    self._finding = self._describe(history, self._seen + at)
                    break
            self._seen = len(history)
        return self._finding

    def is_broken(self, history: History, step: int) -> np.ndarray:
        weights, ratios = (history.layer_metric(name, step, step + 1)[0] for name in ("weight_norm", "update_ratio"))
        return np.isnan(ratios) | (np.isinf(ratios) & (weights > 0))

    def meaning_of(self, history: History, step: int) -> str:
        if not math.isfinite(history.value("weight_norm", step)):
            return self.between
        reached = history.value("clipped_norm", step)
        return self.changed if is_known(reached) and not math.isfinite(reached) else self.meaning

    def fires(self, history: History, step: int) -> bool:
        norm = history.value("weight_norm", step)
        if not math.isfinite(norm):  # of a run that records a row only every few steps
            is_new = is_known(norm) and step > 0 and math.isfinite(history.value("weight_norm", step - 1))
            return is_new and not history.went_nonfinite_at(step)
        made_nan = math.isnan(history.value("update_ratio", step))  # if the weights were 0, a sound update is Inf
        return (norm > 0 or made_nan) and not history.went_nonfinite_at(step)

    def evidence(self, history: History, step: int) -> str:
        row = history.row(step)
        told = (
            ("loss", f"the loss was {number(row['loss'])}"),
            ("grad_norm", f"the gradient norm was {number(row['grad_norm'])}"),
            ("weight_norm", f"the norm of the weights before it was {number(row['weight_norm'])}"),
            ("lr", f"the learning rate was {number(row['lr'])}"),
        )
        if not math.isfinite(row["weight_norm"]):
            before, now = (number(history.value("weight_norm", at)) for at in (step - 1, step))
            return f"At step {step:,} the norm of the weights is {now}; one row before it was {before}."
        given = join_with_and([text for name, text in told if is_known(row[name])])
        return f"The update of step {step:,} left NaN or Inf in the weights. In that step {given}."


def _times(ratio: float) -> str:
    return f"{number(ratio)} times as large as the weights" if math.isfinite(ratio) else "not finite"


def _step_before(history: History, step: int) -> str:
    """Return a sentence on what is known about the step before this one; "" if nothing is."""
    before = history.row(step - 1)
    told = (
        ("loss", f"the loss was {number(before['loss'])}"),
        ("grad_norm", f"the gradient norm was {number(before['grad_norm'])}"),
        ("update_ratio", f"the update was {_times(before['update_ratio'])}"),
    )
    known = [text for name, text in told if is_known(before[name])]
    return f" One step before, {join_with_and(known)}." if known else ""
