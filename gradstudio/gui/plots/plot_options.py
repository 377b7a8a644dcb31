"""The user's drawing options for a plot: log or linear axis, smoothing, single steps or a band. Choices in the menu of
a plot are remembered for the next start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gradstudio.gui import user_settings


class Option(NamedTuple):
    """One option: its label, and its choices with a label each; the first is the default."""

    label: str
    choices: Mapping[str, str]


SCALE = Option("Axis", {"log": "Log", "linear": "Linear"})
SMOOTHING = Option(
    "Smoothing",
    {"0.6": "0.6, a little", "0": "None", "0.9": "0.9, over 10 steps", "0.97": "0.97, over 33 steps",
     "0.99": "0.99, over 100 steps"},
)  # fmt: skip
X_AXIS = Option("X axis of all plots", {"steps": "over steps", "time": "over time"})
STEPS = Option("Single steps", {"raw": "Each step", "band": "Band, least to greatest", "none": "Hide"})


class Chosen:
    """The choices for one plot. `key` is its name in the settings."""

    def __init__(self, key: str, options: Mapping[str, Option]) -> None:
        self.options = options
        self._kept = {name: user_settings.plot_option(key, name, option.choices) for name, option in options.items()}
        self._values = {name: kept.get() for name, kept in self._kept.items()}

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def choose(self, name: str, value: str) -> None:
        """Choose a value, and remember it."""
        if value not in self.options[name].choices:
            raise ValueError(f"{name} = {value!r}: choose one of {', '.join(self.options[name].choices)}")
        self._values[name] = value
        self._kept[name].set(value)
