"""The command that repeats a run: a bundled preset, and every knob in which the run differs from it."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from benchmarks.faults.judgement import experiment
from gradstudio.core import files, presets
from gradstudio.core.experiment import differing_values
from gradstudio.core.knobs import format_value


@functools.cache
def _presets() -> tuple[presets.Preset, ...]:
    bundled = (presets.load(path) for path in sorted(files.PRESETS.glob("*.toml")))
    return tuple(preset for preset in bundled if not preset.timeline)


def repeat_line(texts: Sequence[str], at: Sequence[str], seed: int) -> str:
    """Return a command for a shell. Torch computes with one thread, as the benchmark does."""
    made = experiment(texts, seed)
    nearest = min(_presets(), key=lambda preset: len(differing_values(preset.experiment, made)))
    knobs = [
        f"--set {name}={format_value(value)}" for name, value in differing_values(nearest.experiment, made).items()
    ]
    later = [f"--at {text}" for text in at]
    return " ".join(["GRADSTUDIO_THREADS=1 gradstudio run", nearest.id, *knobs, *later])
