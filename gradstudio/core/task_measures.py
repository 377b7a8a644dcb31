"""The meaning of "accuracy" in each task, and the tasks whose loss does not show how a run does."""

from __future__ import annotations

import math
from typing import NamedTuple

from gradstudio.core.combinations import ACTING
from gradstudio.core.experiment import Experiment


class Measure(NamedTuple):
    """The meaning of the column `accuracy`, as texts with {} for the share: in a headline, at a step, as a label, at
    the end of a story."""

    headline: str
    batch: str
    label: str
    story: str


_RIGHT = Measure(
    "test accuracy {}",
    "batch accuracy {}",
    "right on the test set",
    "At the end the model was right on {} of the test set.",
)
_CLOSE = _RIGHT._replace(
    label="of the test sums within 0.04",
    story="At the end the model came within 0.04 of the sum in {} of the test set.",
)
_NEIGHBOUR = Measure(
    "{} of nearest neighbours alike", "{} of nearest neighbours alike", "of nearest neighbours alike",
    "At the end {} of the test examples lay nearest to one of their own class.",
)  # fmt: skip
_UP = Measure(
    "pole up {} of the time", "pole up {} of the time", "of the time the pole stays up",
    "At the end the pole stayed up for {} of the longest possible episode.",
)  # fmt: skip
_HIT = Measure(
    "{} of the clusters hit",
    "{} of the clusters hit",
    "of the clusters hit",
    "At the end the drawn points hit {} of the clusters.",
)
_MEASURES = {"adding": _CLOSE, "pole": _UP, "ring": _HIT}


def has_test_set(knobs: Experiment) -> bool:
    """Return whether there is an accuracy: a studio file reports only a loss."""
    return knobs.studio_file is None


def measure(knobs: Experiment) -> Measure:
    """Return what accuracy means with these knobs."""
    return _NEIGHBOUR if knobs.loss.kind == "naive_sqrt" else _MEASURES.get(knobs.problem.task, _RIGHT)


# Why the loss of these tasks does not show how the run does.
_NEED_NOT_FALL = {
    "pole": "It need not fall: it grows with the time that the pole stays up. Watch that time.",
    "bandit": "It need not fall: it weighs each answer by what it was worth. Watch the share that is right.",
    "ring": "It need not fall: what one network gains, the other loses. Watch how many clusters are hit.",
}


def why_it_need_not_fall(knobs: Experiment) -> str:
    """Return why the loss need not fall; empty if it should."""
    return _NEED_NOT_FALL.get(knobs.problem.task, "")


# Test accuracy without looking at the input: from drawing a class at random, or always answering the most frequent
# class of the training data, whichever is higher. That is one of ten digits, a space (16.2 %), one of eight symbols,
# the middle of the sums, one of two arms, a point in one of eight clusters. tests/engine/test_tasks.py computes them
# from the data.
_GUESSING = {
    "digits": 0.1, "sequential_digits": 0.1, "adding": 0.0784, "copy": 0.125, "characters": 0.162, "spirals": 0.5,
    "ring": 0.125, "bandit": 0.1,
}  # fmt: skip
_FALL = 9.36  # time steps that the pole stays up if it is always pushed to the same side


def accuracy_of_guessing(knobs: Experiment) -> float:
    """Return the accuracy that is reached without looking at the input; NaN if there is none."""
    if not has_test_set(knobs):
        return math.nan
    task = knobs.problem.task
    return min(_FALL / knobs.problem.seq_len, 1.0) if task == "pole" else _GUESSING[task]


# Test accuracy that a sound run of the task reaches at least, as in the benchmark (docs/diagnosis.md).
_PROMISED = {
    "digits": 0.75, "sequential_digits": 0.4, "adding": 0.4, "copy": 0.4, "characters": 0.2, "spirals": 0.75,
    "ring": 0.6, "pole": 0.2, "bandit": 0.7,
}  # fmt: skip


def promised_accuracy(knobs: Experiment) -> float:
    """Return the accuracy below which a run has failed at its task; NaN if there is none."""
    return _PROMISED[knobs.problem.task] if has_test_set(knobs) else math.nan


_CLASSES = {"digits": 10, "sequential_digits": 10, "copy": 8, "characters": 41, "spirals": 2}


def loss_of_guessing(knobs: Experiment) -> float:
    """Return the loss of an answer that gives every class the same probability, or the mean of all sums; NaN if the
    task or its loss has no such answer."""
    if not has_test_set(knobs):
        return math.nan
    task, kind = knobs.problem.task, knobs.loss.kind
    if task in _CLASSES and kind in ("auto", "naive_log", "naive_exp"):
        return math.log(_CLASSES[task]) * knobs.loss.weight
    return knobs.loss.weight / 6 if task == "adding" and kind == "auto" else math.nan


def loss_may_be_negative(knobs: Experiment) -> bool:
    """Return whether the loss can be negative, so that it cannot be drawn on a log axis."""
    return knobs.problem.task in ACTING or knobs.loss.kind == "naive_variance" or knobs.studio_file is not None
