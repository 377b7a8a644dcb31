"""The meaning of an older experiment schema, where it differed. The experiment is read as it is, and each run of it
lists the differences.

Schema 1, used by files without a number: a falling schedule began at step 0, under the warmup; micro-batches were drawn
one by one, so that an epoch dropped less of its end than with the large batch that they stand for."""

from __future__ import annotations

from collections.abc import Iterable

from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import Value

_FALL = "Since schema 2 a falling schedule begins after the warmup, so the learning rate reaches optimizer.lr."
_BATCHES = (
    "Since schema 2 the micro-batches of a step are the parts of one large batch, so the run sees other examples."
)


def differences(schema: int, experiment: Experiment, changes: Iterable[Change]) -> list[str]:
    """Return what a run of this schema does differently today, a sentence each."""
    if schema >= 2:
        return []
    made, sentences = tuple(changes), []

    def values(name: str) -> list[Value]:
        return [experiment[name], *(change.value for change in made if change.knob == name)]

    if values("schedule.warmup_steps") != [0] and {"cosine", "linear"} & set(values("schedule.kind")):
        sentences.append(_FALL)
    if values("accumulation.steps") != [1]:
        sentences.append(_BATCHES)
    return [f"This preset is of schema 1. {text}" for text in sentences]
