"""The essential knobs at the top of the form, and their short names: those that stability depends on most, and those
that the lesson of a preset is about."""

from __future__ import annotations

from gradstudio.core.knobs import Knob
from gradstudio.core.presets import Preset

# In the order of the form. Those that do not apply, such as max_norm without clipping, are not shown.
STANDARD = (
    "run.device", "clipping.kind", "clipping.max_norm", "clipping.clip_value", "clipping.agc_factor",
    "accumulation.steps", "precision.dtype", "precision.scaling", "schedule.warmup_steps", "optimizer.lr", "model.init",
)  # fmt: skip
# Those that give way to knobs of a lesson, in this order.
GIVE_WAY = ("model.init", "schedule.warmup_steps", "accumulation.steps", "precision.dtype")
LABELS = {
    "run.device": "device",
    "clipping.kind": "clipping",
    "accumulation.steps": "accumulation",
    "precision.dtype": "precision",
    "precision.scaling": "loss scaling",
    "schedule.warmup_steps": "warmup",
    "schedule.kind": "schedule",
    "optimizer.lr": "learning rate",
    "optimizer.kind": "optimizer",
    "model.init": "initialization",
    "model.kind": "network",
    "model.norm": "normalization",
    "loss.kind": "loss",
    "loss.eps": "eps of the loss",
    "loss.weight": "loss weight",
    "precision.weights": "weight format",
}  # if the name of a knob alone is ambiguous
TYPED = ("schedule.warmup_steps",)  # without a slider, as they are set before a run rather than during it
MOST_OF_A_LESSON = 4


def label(knob: Knob) -> str:
    """Return the name of a knob outside of its section."""
    return LABELS.get(knob.name, knob.label)


def short_label(knob: Knob) -> str:
    """Return the shortest name of a knob that identifies it."""
    return label(knob) if knob.field in ("kind", "steps", "init", "dtype") else knob.field


def essential(preset: Preset) -> list[str]:
    """Return the names of the essential knobs for a preset."""
    named = {text.partition("=")[0].strip(): None for step in preset.lesson for text in step.knobs}
    own = [name for name in named if name not in STANDARD and name != "run.steps"][:MOST_OF_A_LESSON]
    gone = [name for name in GIVE_WAY if name not in named and name not in preset.experiment.changed_knobs()][
        : len(own)
    ]
    return [*(name for name in STANDARD if name not in gone), *own]
