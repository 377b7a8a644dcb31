"""The names of things as they stand in a sentence: networks, tasks, and what "accuracy" is in each."""

from __future__ import annotations

import math
from typing import NamedTuple

from gradstudio.core import mistakes
from gradstudio.core.experiment import Experiment
from gradstudio.core.text import number, plural
from gradstudio.session.run import JoinedBatch, Run, recent_mean

OPTIMIZERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "rmsprop": "RMSprop"}

# What a network learns, behind "learned" or "will learn".
_TASKS = {
    "digits": "handwritten digits",
    "sequential_digits": "handwritten digits, each read in {steps}",
    "adding": "to add two marked numbers of a sequence of {steps}",
    "copy": "to repeat symbols after a pause of {steps}",
    "characters": "each next character of a book, in windows of {seq_len}",
    "spirals": "which of two spirals a point lies on",
    "ring": "to draw points as if from eight clusters on a ring",
    "pole": "to balance a pole, in episodes of at most {steps}",
}


CUT_OFF = "the program ended while it trained"  # of a run that is "interrupted"


class _Network(NamedTuple):
    name: str
    layer: str = "hidden layer"
    units: str = "units"


_NETWORKS = {
    "mlp": _Network("a fully connected network"),
    "rnn": _Network("a recurrent network"),
    "lstm": _Network("an LSTM", "layer"),
    "gru": _Network("a GRU", "layer"),
    "cnn": _Network("a convolutional network", "layer", "channels"),
    "transformer": _Network("a {norm_position}-norm transformer", "block"),
    "gan": _Network("a generator and a discriminator"),
    "policy": _Network("a policy network"),
}


class Measure(NamedTuple):
    """What the column `accuracy` holds, with {} for the share: in a headline, at a step, as a label, at the end of a story."""

    headline: str
    batch: str
    label: str
    story: str


_RIGHT = Measure("test accuracy {}", "batch accuracy {}", "right on the test set", "At the end the model was right on {} of the test set.")
_CLOSE = _RIGHT._replace(label="of the test sums within 0.04", story="At the end the model came within 0.04 of the sum in {} of the test set.")
_NEIGHBOUR = Measure(
    "{} of nearest neighbours alike", "{} of nearest neighbours alike", "of nearest neighbours alike",
    "At the end {} of the test examples lay nearest to one of their own class.",
)  # fmt: skip
_UP = Measure(
    "pole up {} of the time", "pole up {} of the time", "of the time the pole stays up",
    "At the end the pole stayed up for {} of the longest possible episode.",
)  # fmt: skip
_HIT = Measure("{} of the clusters hit", "{} of the clusters hit", "of the clusters hit", "At the end the drawn points hit {} of the clusters.")
_MEASURES = {"adding": _CLOSE, "pole": _UP, "ring": _HIT}


def measure(knobs: Experiment) -> Measure:
    """What accuracy means beside these knobs."""
    return _NEIGHBOUR if knobs.loss.kind == "naive_sqrt" else _MEASURES.get(knobs.problem.task, _RIGHT)


def network(knobs: Experiment) -> str:
    """'a fully connected network of 2 hidden layers with 128 relu units each'."""
    model, what = knobs.model, _NETWORKS[knobs.model.kind]
    layers = plural(model.depth, what.layer, what.layer + "s")
    activation = f"{model.activation} " if knobs.applies("model.activation") else ""
    norm = f" and {model.norm} normalization" if knobs.applies("model.norm") and model.norm != "none" else ""
    name = what.name.format(norm_position=model.norm_position)
    return f"{name}{', each' if model.kind == 'gan' else ''} of {layers} with {model.width} {activation}{what.units}{' each' if model.depth > 1 else ''}{norm}"


# Why the loss of these tasks is not what to watch.
_NEED_NOT_FALL = {
    "pole": "It need not fall: it grows with the time that the pole stays up. Watch that time.",
    "ring": "It need not fall: what one network gains, the other loses. Watch how many clusters are hit.",
}


def why_it_need_not_fall(knobs: Experiment) -> str:
    """A sentence about the loss; empty where it ought to fall."""
    return _NEED_NOT_FALL.get(knobs.problem.task, "")


def loss_may_be_negative(knobs: Experiment) -> bool:
    """Whether the loss is one that has no place on a log axis."""
    return knobs.problem.task == "pole" or knobs.loss.kind == "naive_variance"


def aim(run: Run) -> str:
    """What the run is after, where its loss does not tell: 'pole up 45 % of the time' over the last steps; empty elsewhere."""
    share = recent_mean(run.history, "accuracy")
    told = measure(run.experiment).headline.format(percent(round(share, 2)))
    return told if why_it_need_not_fall(run.experiment) else ""


def task(knobs: Experiment) -> str:
    """'handwritten digits', behind "learned"."""
    return _TASKS[knobs.problem.task].format(seq_len=knobs.problem.seq_len, steps=plural(knobs.problem.seq_len, "step", "steps"))


def percent(share: float | None) -> str:
    """A share as '93.2 %'; NaN stays NaN and what is missing is a dash."""
    return number(share) if share is None or not math.isfinite(share) else f"{100 * share:.3g} %"


def comparison(found: JoinedBatch, knobs: Experiment) -> str:
    """How an accumulated gradient stands to that of the joined batch: 'equal to the joined batch within 3.1e-8', or by how much it
    differs and why, where a sound loop must differ."""
    if found.alike:
        return f"equal to the joined batch within {number(found.difference, 2)}"
    why = ""
    if knobs.loss.kind == "naive_sqrt":
        why = ", as this loss compares the examples of a batch with each other"
    elif knobs.applies("model.norm") and knobs.model.norm == "batch":
        why = ", as batch norm sees each micro-batch by itself"
    return f"differs from the joined batch {_distance(found.difference)}{why}"


def _distance(difference: float) -> str:
    """'by 30 %', and where a share would be hard to read 'by 1.7e4 times its norm'."""
    if math.isnan(difference):
        return number(difference)
    return f"by {percent(difference)}" if difference < 10 or math.isinf(difference) else f"by {number(difference, 2)} times its norm"


def mistakes_made(run: Run) -> dict[str, str]:
    """The mistakes that were switched on at the start or are now, and what there is to know about each beside the other knobs."""
    made = {}
    for knob, value in run.experiment.items():
        if knob.section == "mistakes" and (value or run.in_force[knob.name]):
            made[knob.name] = mistakes.note(knob.name, run.in_force)
    return made
