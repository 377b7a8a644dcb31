"""What clipping and the optimizer make of one gradient, in sentences. The kinds differ: clipping by norm keeps the
direction and the others do not; an update of SGD is as long as the gradient, and Adam bounds and remembers it."""

from __future__ import annotations

import math

from gradstudio.core.history import History, Settings
from gradstudio.core.text import number

_SHORTENED = {
    "value": "Clipping by value cut each large entry",
    "per_tensor": "Clipping shortened each tensor by itself",
    "agc": "Adaptive clipping shortened the gradient of each unit by itself",
}


def in_force(history: History, step: int) -> Settings | None:
    """Return how the optimizer and clipping were set at a step; None where that was not recorded."""
    return next((settings for since, settings in reversed(history.settings) if since <= step), None)


def clipped(history: History, step: int) -> str:
    """Return what clipping did to the gradient of a step, as a sentence."""
    settings = in_force(history, step)
    kind = settings.clipping if settings else ""
    if kind not in _SHORTENED:
        return "Clipping shortened this gradient and kept its direction."
    cosine = history.value("clip_cosine", step)
    turned = f": its cosine with the true gradient is {number(cosine)}" if math.isfinite(cosine) else ""
    return f"{_SHORTENED[kind]}, which changes the direction of the whole gradient{turned}."


def stepped(history: History, step: int) -> str:
    """Return what the optimizer makes of a large gradient at a step, as a sentence."""
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
            return (
                "RMSprop divides the gradient by a running root mean square, which keeps this gradient for about 100 "
                f"steps.{moved}"
            )
    return moved.strip() or "The update follows this gradient."
