"""What the gallery shows for each bundled preset besides its file: the loss of real runs, in resources/gallery.json.

`python -m benchmarks.gallery` makes that file; tests/core/test_gallery.py reports if it is missing or stale."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gradstudio.core import files
from gradstudio.core.knobs import format_value
from gradstudio.core.lesson import LessonStep
from gradstudio.core.presets import GROUPS, LEVELS, Preset

PICTURES = files.RESOURCES / "gallery.json"
POINTS = 48  # of a curve
WORDS_A_MINUTE = 120  # of a reader whose second language is English
DOING = 15.0  # seconds to find a knob or a plot, for each step of a lesson


@dataclass(frozen=True, slots=True)
class Curve:
    """The loss of a run: the largest finite value in each of POINTS parts of its steps; None for a part without one."""

    status: str
    loss: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """The run of a preset as it is, and the run with its fix, if it has one. `seconds`: CPU time of a run."""

    digest: str
    seconds: float
    broken: Curve
    healed: Curve | None


def digest(preset: Preset) -> str:
    """Return a 12-letter digest of everything that the runs of a preset's picture depend on. New knobs at their default
    do not change it."""
    knobs = {name: format_value(value) for name, value in preset.experiment.changed_knobs().items()}
    text = json.dumps(
        [sorted(knobs.items()), [[c.step, c.knob, format_value(c.value)] for c in preset.timeline],
         preset.promise.fix if preset.promise else []]
    )  # fmt: skip
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@lru_cache(maxsize=1)
def pictures(path: Path = PICTURES) -> dict[str, Picture]:
    """Return the picture of each preset that has one, by id; empty if the file is gone."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return {
        name: Picture(
            each["digest"], each["seconds"], _curve(each["broken"]), each["healed"] and _curve(each["healed"])
        )
        for name, each in content.items()
    }


def picture(preset: Preset) -> Picture | None:
    """Return the picture of a bundled preset; None for others, or if the preset has changed since."""
    entry = pictures().get(preset.id) if preset.bundled else None
    return entry if entry is not None and entry.digest == digest(preset) else None


def minutes(preset: Preset) -> int:
    """Return about how many minutes a lesson takes: reading, doing its steps and training its runs."""
    picture = pictures().get(preset.id) if preset.bundled else None
    training = runs(preset) * picture.seconds if picture else 0.0
    return max(1, round((60 * words(preset) / WORDS_A_MINUTE + DOING * len(preset.lesson) + training) / 60))


def words(preset: Preset) -> int:
    """Return the number of words of a lesson with its questions."""
    texts = [preset.summary]
    for step in preset.lesson:
        texts += [step.text, *(choice.text for choice in step.predict)]
    return sum(len(text.split()) for text in texts)


def runs(preset: Preset) -> int:
    """Return how many runs a lesson needs: one for each set of knobs."""
    experiment, seen = preset.experiment, []
    for step in preset.lesson:
        experiment = experiment.with_texts(step.knobs)
        if _looks(step) and experiment not in seen:
            seen.append(experiment)
    return len(seen)


def in_order(presets: list[Preset]) -> list[Preset]:
    """Return presets in the recommended order: each after its prerequisites, the basic ones first, then by group.
    Cyclic or missing prerequisites are ignored."""
    known = {preset.id for preset in presets}
    left = sorted(presets, key=_rank)
    taken: dict[str, Preset] = {}
    while left:
        chosen = next((each for each in left if all(id in taken or id not in known for id in each.after)), left[0])
        left.remove(chosen)
        taken[chosen.id] = chosen
    return list(taken.values())


def _rank(preset: Preset) -> tuple[int, int, str]:
    return LEVELS.index(preset.level), GROUPS.index(preset.group), preset.title


def _looks(step: LessonStep) -> bool:
    return bool(step.outcome or step.rule or step.accuracy is not None or step.branch or step.is_question)


def _curve(table: dict) -> Curve:
    return Curve(table["status"], tuple(table["loss"]))
