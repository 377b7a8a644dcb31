"""The names of networks, tasks and optimizers in a sentence, and sentences that several texts share."""

from __future__ import annotations

import math
from typing import NamedTuple

from gradstudio.core import mistakes
from gradstudio.core.experiment import Experiment
from gradstudio.core.task_measures import measure, why_it_need_not_fall
from gradstudio.core.text import number, percent, plural
from gradstudio.session.record.run import JoinedBatch, Run, recent_mean

OPTIMIZERS = {
    "sgd": "SGD",
    "adam": "Adam",
    "adamw": "AdamW",
    "rmsprop": "RMSprop",
    "lion": "Lion",
    "muon": "Muon",
    "stable_adamw": "StableAdamW",
    "schedule_free": "Schedule-Free AdamW",
}

# The task of a network: the words after "learned" or "will learn".
_TASKS = {
    "digits": "handwritten digits",
    "sequential_digits": "handwritten digits, each read in {steps}",
    "adding": "to add two marked numbers of a sequence of {steps}",
    "copy": "to repeat symbols after a pause of {steps}",
    "characters": "each next character of a book, in windows of {seq_len}",
    "spirals": "which of two spirals a point lies on",
    "ring": "to draw points as if from eight clusters on a ring",
    "pole": "to balance a pole, in episodes of at most {steps}",
    "bandit": "to name handwritten digits, from the reward of its answers alone",
}


CUT_OFF = "the program ended while it trained"  # why a run is "interrupted"


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


def network(knobs: Experiment) -> str:
    """Return the network in words: 'a fully connected network of 2 hidden layers with 128 relu units each'."""
    if knobs.studio_file is not None:
        return f"the model of {knobs.studio_file.name}"
    model, what = knobs.model, _NETWORKS[knobs.model.kind]
    layers = plural(model.depth, what.layer, what.layer + "s")
    activation = f"{model.activation} " if knobs.applies("model.activation") else ""
    norm = f" and {model.norm} normalization" if knobs.applies("model.norm") and model.norm != "none" else ""
    name = what.name.format(norm_position=model.norm_position)
    return (
        f"{name}{', each' if model.kind == 'gan' else ''} of {layers} with {model.width} "
        f"{activation}{what.units}{' each' if model.depth > 1 else ''}{norm}"
    )


def aim(run: Run) -> str:
    """Return what to watch over the last steps, such as 'pole up 45 % of the time'; empty if the loss is
    informative."""
    share = recent_mean(run.history, "accuracy")
    text = measure(run.experiment).batch.format(percent(round(share, 2)))
    return text if why_it_need_not_fall(run.experiment) else ""


def task(knobs: Experiment) -> str:
    """Return what the network learns, such as 'handwritten digits'."""
    if knobs.studio_file is not None:
        return "the batches of its get_batch"
    return _TASKS[knobs.problem.task].format(
        seq_len=knobs.problem.seq_len, steps=plural(knobs.problem.seq_len, "step", "steps")
    )


def comparison(batch: JoinedBatch, knobs: Experiment) -> str:
    """Return how an accumulated gradient compares with that of the large batch: 'equal to the large batch within 3.1e-8
    of its norm', or by how much it differs, and why if even a correct loop must differ."""
    if batch.alike:
        return f"equal to the large batch within {number(batch.difference, 2)} of its norm"
    why = ""
    if knobs.loss.kind == "naive_sqrt":
        why = ", as this loss compares the examples of a batch with each other"
    elif knobs.applies("model.norm") and knobs.model.norm == "batch":
        why = ", as batch norm sees each micro-batch by itself"
    return f"differs from the large batch {_distance(batch.difference)}{why}"


def _distance(difference: float) -> str:
    """Return 'by 30 %', or 'by 1.7e4 times its norm' where a share would be hard to read."""
    if math.isnan(difference):
        return number(difference)
    return (
        f"by {percent(difference)}"
        if difference < 10 or math.isinf(difference)
        else f"by {number(difference, 2)} times its norm"
    )


def active_mistakes(run: Run) -> dict[str, str]:
    """Return the mistakes that were switched on at the start or are now, each with its note given the other knobs."""
    made = {}
    for knob, value in run.experiment.items():
        if knob.section == "mistakes" and (value or run.in_force[knob.name]):
            made[knob.name] = mistakes.note(knob.name, run.in_force)
    return made
