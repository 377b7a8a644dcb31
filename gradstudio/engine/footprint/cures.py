"""Changes that lower the peak of an experiment: the cheapest ones, each with its computed result."""

from __future__ import annotations

from collections.abc import Iterator

from gradstudio.core.experiment import Experiment
from gradstudio.core.footprint import MB, Cure, Footprint
from gradstudio.core.knobs import KnobError, Value
from gradstudio.core.sections.task_knobs import LAYERED
from gradstudio.engine.footprint.estimate import estimate
from gradstudio.engine.step import precision
from gradstudio.engine.subject import BuiltIn

MOST_MICRO_BATCHES = 256
PARTS_WITHOUT_BUDGET = 8  # number of parts of a batch if no budget determines it
_CHECKPOINTING: dict[str, Value] = {"model.checkpointing": True}
_BF16: dict[str, Value] = {"precision.dtype": "bf16"}
# With these mistakes a step over micro-batches differs from that of the large batch.
_OF_ACCUMULATION = (
    "clip_each_micro_batch", "unscaled_accumulation", "zero_grad_each_micro_batch", "scheduler_each_micro_batch",
    "drop_last_micro_batches", "divide_each_micro_batch", "normalize_each_micro_batch",
)  # fmt: skip


def cures(knobs: Experiment, now: Footprint) -> Iterator[Cure]:
    """Yield the changes that bring the experiment into its budget, the cheapest first: the same gradient before
    another, less work before more; none if it fits. Without a budget, yield the three usual ones. Useless changes are
    left out. If none of them suffices, two of them combined come last."""
    limit = knobs.run.memory_budget * MB
    if limit and now.peak <= limit:
        return
    search = _Search(knobs, now, limit)
    alone = [search.split({}), search.try_changes(_CHECKPOINTING, same=True), search.try_changes(_BF16, same=False)]
    alone_cures = [cure for cure in alone if cure is not None]
    yield from sorted(alone_cures, key=lambda cure: (not cure.fits, not cure.same_gradient, cure.work))
    if limit and not any(cure.fits for cure in alone_cures):
        for changes in (_CHECKPOINTING, {**_CHECKPOINTING, **_BF16}):
            both = search.split(changes)
            if both is not None:
                yield both
                if both.fits:
                    return


class _Search:
    """Computes the effect of changes to one experiment."""

    def __init__(self, knobs: Experiment, now: Footprint, limit: int) -> None:
        self._knobs, self._now, self._limit = knobs, now, limit

    def try_changes(self, changes: dict[str, Value], *, same: bool) -> Cure | None:
        """Return the effect of these changes; None if they are not possible or do not help."""
        knobs = self._knobs
        if all(knobs[name] == value for name, value in changes.items()) or not _possible(knobs, changes):
            return None
        try:
            footprint = estimate(knobs.with_values(changes))
        except KnobError:
            return None
        if footprint.peak >= self._now.peak:
            return None
        work = footprint.multiplications / self._now.multiplications if self._now.multiplications else 0.0
        return Cure(changes, footprint.peak, same, work, not self._limit or footprint.peak <= self._limit)

    def split(self, beside: dict[str, Value]) -> Cure | None:
        """Return the smallest number of micro-batches that fits, together with other changes; the largest possible if
        none fits."""
        ways = self._ways()
        if not ways:
            return None
        if not self._limit:
            return self._in_parts(max([way for way in ways if way <= PARTS_WITHOUT_BUDGET], default=ways[0]), beside)
        best = None
        low, high = 0, len(ways) - 1
        while low <= high:
            middle = (low + high) // 2
            cure = self._in_parts(ways[middle], beside)
            if cure is not None and cure.fits:
                best, high = cure, middle - 1
            else:
                low = middle + 1
                best = best if best is not None and best.fits else cure or best
        return best

    def _ways(self) -> list[int]:
        """Return the numbers of parts into which a micro-batch can be split, ascending."""
        knobs, size = self._knobs, self._knobs.problem.batch_size
        if knobs.mistakes.model_copy(update=dict.fromkeys(_OF_ACCUMULATION, False)) != knobs.mistakes:
            return []
        least = 2 if _normalizes_batches(knobs) or knobs.loss.kind == "naive_sqrt" else 1
        return [
            parts
            for parts in range(2, size + 1)
            if size % parts == 0 and size // parts >= least and parts * knobs.accumulation.steps <= MOST_MICRO_BATCHES
        ]

    def _in_parts(self, parts: int, beside: dict[str, Value]) -> Cure | None:
        knobs = self._knobs
        changes: dict[str, Value] = {
            "problem.batch_size": knobs.problem.batch_size // parts,
            "accumulation.steps": knobs.accumulation.steps * parts,
        }
        same = _adds_up(knobs) and "precision.dtype" not in beside
        return self.try_changes({**changes, **beside}, same=same)


def _adds_up(knobs: Experiment) -> bool:
    """Return whether the mean of the micro-batches' gradients is the gradient of the large batch."""
    return not (
        knobs.studio_file is not None  # its batches and its loss are its own
        or _normalizes_batches(knobs)
        or knobs.loss.kind == "naive_sqrt"  # compares the examples of a batch
        or knobs.problem.outlier_every > 0  # drawn for each micro-batch
    )


def _normalizes_batches(knobs: Experiment) -> bool:
    return knobs.studio_file is None and knobs.model.kind in LAYERED and knobs.model.norm == "batch"


def _possible(knobs: Experiment, changes: dict[str, Value]) -> bool:
    """Return whether the experiment can be trained with these changes."""
    if "model.checkpointing" in changes and knobs.studio_file is not None:
        return False
    if changes.get("precision.dtype", "fp32") == "fp32":
        return True
    if knobs.precision.dtype != "fp32":
        return False  # it is no smaller
    return knobs.studio_file is not None or _computes(knobs)


def _computes(knobs: Experiment) -> bool:
    """Return whether torch supports such a network in bf16 here: a small one tries it."""
    small = knobs.with_values({"model.width": 8, "model.depth": 1, "problem.batch_size": 2})
    few = BuiltIn(small, "cpu")
    wanted = small.precision.model_copy(update={"dtype": "bf16"})
    return not precision.possible(few.network(small), few.task.sample(2), wanted, "cpu")
