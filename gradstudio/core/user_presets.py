"""Presets that the user saves, and applying the knobs of one to another."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from gradstudio.core import files, presets
from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError, Value, quote


def save_user_preset(preset: presets.Preset) -> Path:
    """Write a preset into the user's folder, with a file name derived from its title. PresetError if it cannot be
    written, or another preset has that name."""
    name = re.sub(r"[\W_]+", "-", preset.title.lower()).strip("-")
    if not name or len(preset.title) > presets.LONGEST_TITLE:
        raise presets.PresetError(
            f"{quote(preset.title)} is no name for a preset; allowed: 1 to {presets.LONGEST_TITLE} characters, with a "
            "letter or digit among them"
        )
    if os.path.exists(files.PRESETS / f"{name}.toml"):
        raise presets.PresetError(f"{name} is the name of a bundled preset; choose another")
    path = files.user_presets() / f"{name}.toml"
    if os.path.exists(path) and path != preset.path:
        raise presets.PresetError(
            f"there is a preset {name} already ({path}); choose another name, or open that one and save it again"
        )
    try:
        files.write_whole(path, presets.to_toml(preset))
    except OSError as fault:
        raise presets.PresetError(f"{path}: {files.reason(fault)}") from None
    return path


def save_as(old: presets.Preset, title: str, experiment: Experiment) -> Path:
    """Write an experiment as a preset of the user's, with a file name derived from `title`. The lesson and the promise
    of the old preset are left out, as they do not apply to the new knobs. PresetError as in `save_user_preset`."""
    return save_user_preset(
        presets.Preset(id=old.id, title=title, experiment=experiment, timeline=old.timeline, path=old.path)
    )


def with_knobs(preset: presets.Preset, values: Mapping[str, Value]) -> tuple[presets.Preset, list[str]]:
    """Return a preset with other knobs, and the names of those that it does not accept."""
    experiment, lost = preset.experiment, list[str]()
    for name, value in values.items():
        try:
            experiment = experiment.with_value(name, value)
        except KnobError:  # a keyword default that a studio file no longer has, or one of another type
            lost.append(name)
    return preset.model_copy(update={"experiment": experiment}), lost
