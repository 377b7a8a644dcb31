"""How clipping and the optimizer transform one gradient, in sentences. The kinds differ: clipping by norm preserves the
direction and the others do not; an update of SGD is proportional to the gradient, while Adam bounds and remembers it.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from gradstudio.core.diagnosis.median import median
from gradstudio.core.history import History, up_to
from gradstudio.core.row import Settings
from gradstudio.core.text import number

_AFTER, _BEFORE = 5, 20  # updates around a step whose directions are compared
_LATEST = 50  # updates, or steps since a change
_TURNED = 0.5  # share of the previous cosine below which the updates no longer follow their gradients
_REMEMBERED = 200  # steps: a batch norm keeps 0.9 of its running variance at each, so 1e-9 of it remains after them
_SAME_DIRECTION = 0.999  # cosine
_SHORTENED = {
    "value": "Clipping by value cut each large entry",
    "per_tensor": "Clipping shortened each tensor by itself",
    "per_module": "Clipping shortened each module by itself",
    "per_network": "Clipping shortened each network by itself",
    "per_example": "Clipping shortened the gradient of each example by itself",
    "adagc": "AdaGC shortened each tensor by itself",
    "agc": "Adaptive clipping shortened the gradient of each unit by itself",
}


def in_force(history: History, step: int) -> Settings | None:
    """Return the settings of the optimizer and clipping at a step; None if they were not recorded."""
    return next((settings for since, settings in reversed(history.settings) if since <= step), None)


def clipping(history: History, step: int) -> str:
    """Return what clipping did to the gradient of a step, as a sentence."""
    settings = in_force(history, step)
    kind = settings.clipping if settings else ""
    cosine = history.value("clip_cosine", step)
    if history.value("clipped_norm", step) == 0:
        return "Clipping left nothing of this gradient."
    of_the_whole = kind in ("norm", "zclip")
    if not (of_the_whole or kind in _SHORTENED):  # a script clipped by itself, in a way that was not observed
        return "This gradient was shortened before the optimizer got it."
    if of_the_whole and cosine < _SAME_DIRECTION:  # for example if each micro-batch or each shard is clipped by itself
        return f"Clipping shortened this gradient; its cosine with the true gradient is {number(cosine)}."
    if of_the_whole or cosine >= _SAME_DIRECTION:  # also of parts, such as the one network that there is
        return "Clipping shortened this gradient and kept its direction."
    turned = f": its cosine with the true gradient is {number(cosine)}" if math.isfinite(cosine) else ""
    return f"{_SHORTENED[kind]}, which changes the direction of the whole gradient{turned}."


def clipping_switched_off(history: History, step: int) -> str:
    """Return a sentence, with a leading space, that clipping was switched off shortly before a step; "" if it was
    not."""
    for (_, before), (since, settings) in pairwise(history.settings):
        if before.clipping != "none" and settings.clipping == "none" and 0 <= step - since <= _LATEST:
            return f" Nothing has been clipped since step {since:,}; the limit was {number(before.limit)} before."
    return ""


def update(history: History, step: int) -> str:
    """Return, as a sentence, how the optimizer treats a large gradient at a step."""
    ratio = history.value("update_ratio", step)
    moved = f" The update of step {step:,} was {number(ratio)} times as large as the weights." * math.isfinite(ratio)
    settings = in_force(history, step)
    match settings and settings.optimizer:
        case "sgd":
            assert settings
            again = (
                f", and momentum repeats it for about {number(1 / (1 - settings.momentum))} steps"
                if 0 < settings.momentum < 1
                else ""
            )
            return f"An update of SGD is the learning rate times the gradient{again}.{moved}"
        case "adam" | "adamw":
            assert settings
            first, second = number(1 / (1 - settings.beta1)), number(1 / (1 - settings.beta2))
            return (
                "Adam bounds each update, but its running means keep this gradient: "
                f"m for about {first} steps, v for about {second} steps.{moved}"
            )
        case "rmsprop":
            assert settings
            return (
                "RMSprop divides the gradient by a running root mean square, which keeps this "
                f"gradient{memory(settings)}.{moved}"
            )
    return moved.strip() or "The update follows this gradient."


def memory(settings: Settings) -> str:
    """Return how long the running mean of squared gradients remembers a gradient, with a leading space; "" if
    unknown."""
    return f" for about {number(1 / (1 - settings.beta2))} steps" if 0 < settings.beta2 < 1 else ""


def turn(history: History, step: int) -> str:
    """Return a sentence, with a leading space, on how closely the updates after a step follow their own gradients; ""
    if they do so as they did before it, or if too few steps have followed. SGD without momentum always follows its
    gradient."""
    cosines = history.column("update_cosine", max(step - _BEFORE, 0), step + 1 + _AFTER)
    split = min(step, _BEFORE)
    before, after = (part[np.isfinite(part)] for part in (cosines[:split], cosines[split + 1 :]))
    if len(after) < _AFTER or not len(before) or not median(after) < _TURNED * median(before):
        return ""
    return (
        f" The next {_AFTER} updates follow their own gradients less: their cosine with them is "
        f"{number(median(after), 2)} in the median, and was {number(median(before), 2)} before."
    )


def momentum(history: History) -> str:
    """Return how little the latest updates follow their own gradients, as a sentence with a leading space; "" if they
    mostly do. Momentum and Adam's running mean carry them on."""
    cosines = history.column("update_cosine", len(history) - _LATEST)
    cosines = cosines[np.isfinite(cosines)]
    settings = in_force(history, len(history) - 1)
    if settings is None or not len(cosines) or not (cosine := median(cosines)) < _TURNED:
        return ""
    adam = settings.optimizer in ("adam", "adamw")
    share = settings.beta1 if adam else settings.momentum
    if not 0 < share < 1:
        return ""
    return (
        f" The {'running mean of Adam' if adam else 'momentum'} carries them on for about {number(1 / (1 - share))} "
        f"steps: the median cosine of the {len(cosines)} updates {up_to(history)} with their own gradients is "
        f"{number(cosine, 2)}."
    )


def reasons_for_test_gap(history: History, batch_normed: bool) -> str:
    """Return, as sentences, why a model that is right on its training batches may be wrong on others."""
    if not batch_normed:
        return (
            "The model fits its training examples better than others: it knows them by heart, or the test set "
            "has other labels or classes."
        )
    losses = history.column("loss", len(history) - _REMEMBERED)
    told = (
        "In training a batch norm divides by the deviation of its batch, and in evaluation by a running one. Where "
        "that is not the deviation of the data, the model computes something else."
    )
    finite = losses[np.isfinite(losses)]
    unlike = np.flatnonzero(losses > 10 * median(finite)) if len(finite) else finite
    if not len(unlike):
        return told
    latest = int(unlike[-1])
    return (
        f"{told} The batch of step {len(history) - len(losses) + latest:,}, with a loss of "
        f"{number(float(losses[latest]))} where the median is {number(median(finite))}, went into it."
    )
