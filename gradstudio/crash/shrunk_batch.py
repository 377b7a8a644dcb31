"""Recorded batches with fewer examples: the fewest that still produce a non-finite value, for crashes that no single
call can show, and those that are finite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from gradstudio.core.text import join_with_and, plural
from gradstudio.crash.recorded_training import LoadedCrash, Training, preserve_random_state
from gradstudio.session.files.crash_file import RecordedBirth, RecordedPass, RecordedStep

MOST_TRIALS = 60
MOST_NAMED = 4


def fewest_examples(recorded: LoadedCrash, born: RecordedBirth) -> str:
    """Return in words how many examples of the fatal batch are enough to reproduce it; "" if all are needed, or
    none."""
    step = next(each for each in recorded.structure.steps if each.number == born.step)
    size, names = _batch(recorded, step.passes)
    if not size or born.do.startswith("weight "):
        return ""
    kept = part = torch.arange(size)

    def tensor(name: str) -> Tensor:
        original = recorded.tensor(name)
        return original[part] if name in names else original

    training = Training(LoadedCrash(recorded.structure, tensor))
    parts, trials = 2, 0
    with preserve_random_state():
        for before in recorded.structure.steps[: recorded.structure.steps.index(step)]:
            training.step(before)
        while parts < 2 * len(kept) and trials < MOST_TRIALS:
            for part in kept.chunk(parts):  # which `tensor` takes
                trials += 1
                if _gives_it(training, step, born):
                    kept, parts = part, 1
                    break
            parts *= 2
    if len(kept) == size:
        return ""
    places = [f"number {place:,}" for place in kept.tolist()]
    which = f": {join_with_and(places)}" if len(kept) <= MOST_NAMED else ""
    give = "still gives it" if len(kept) == 1 else "still give it"
    return f"{len(kept):,} of {plural(size, 'example', 'examples')} of its batch {give}{which}"


def without_broken_examples(recorded: LoadedCrash) -> LoadedCrash:
    """Return the training without the examples that hold NaN or Inf. A batch of which no example is left stays."""
    sound: dict[str, Tensor] = {}
    for each in (each for step in recorded.structure.steps for each in step.passes):
        size, names = _batch(recorded, [each])
        keep = torch.ones(size, dtype=torch.bool)
        for name in names:
            keep &= recorded.tensor(name).isfinite().reshape(size, -1).all(1)
        if keep.any() and not keep.all():
            sound |= dict.fromkeys(names, keep)

    def tensor(name: str) -> Tensor:
        original = recorded.tensor(name)
        return original[sound[name]] if name in sound else original

    return LoadedCrash(recorded.structure, tensor)


def _batch(recorded: LoadedCrash, passes: Sequence[RecordedPass]) -> tuple[int, set[str]]:
    """Return the number of examples in a batch, 0 if unknown, and the tensors that have each of them."""
    names = {stored for each in passes for name, stored in each.tensors.items() if name.startswith("i:")}
    lengths = {name: given.shape[0] for name in names if (given := recorded.tensor(name)).dim()}
    sizes = Counter(lengths.values())
    size = max(sizes, key=lambda size: (sizes[size], size), default=0)
    return size, {name for name in lengths if lengths[name] == size}


def _gives_it(training: Training, step: RecordedStep, born: RecordedBirth) -> bool:
    training.born = None
    try:
        training.passes(step, looks=True)
    except Exception:  # of torch, at sizes that stand in a call as numbers
        return False
    birth = training.born
    return birth is not None and (birth.phase, birth.do) == (born.phase, born.do)
