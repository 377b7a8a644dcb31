"""The texts about the memory use of an experiment."""

from __future__ import annotations

from collections.abc import Iterable

from gradstudio.core.experiment import Experiment
from gradstudio.core.footprint import MB, Cure, Footprint
from gradstudio.core.knobs import KnobError
from gradstudio.core.text import LONGEST_LINE, number

PARTS = {
    "parameters": "parameters", "gradients": "gradients", "optimizer": "optimizer state",
    "data": "data", "saved": "kept for backward", "temporary": "temporary",
}  # fmt: skip
PHASES = {
    "data": "between the passes", "forward": "in the forward pass", "backward": "in the backward pass",
    "unscale": "while unscaling", "clip": "while clipping", "update": "in the optimizer's update",
}  # fmt: skip
PLAIN_LOOP = "The memory of the plain loop on the CPU; recordings and gauges of a run take more."


def size(taken: int) -> str:
    """Return bytes as '158 MB', in the units of run.memory_budget."""
    if taken >= 1e9:
        return f"{number(taken / 1e9)} GB" if taken < 1e12 else f"{taken / 1e9:,.0f} GB"
    return f"{number(taken / MB)} MB" if taken >= 1000 else f"{taken} bytes"


def place(phase: str, operation: str) -> str:
    """Return a location in words: 'in the backward pass, operation mm'."""
    return f"{PHASES[phase]}, operation {operation}" if operation else PHASES[phase]


def peak_text(footprint: Footprint) -> str:
    """Return where the peak is: 'peak 158 MB, in the backward pass, operation mm'."""
    return f"peak {size(footprint.peak)}, {place(footprint.phase, footprint.operation)}"


def part_rows(footprint: Footprint) -> list[tuple[str, str, str]]:
    """Return each use of memory with its size at the peak, and at most."""
    return [(name, size(footprint.at_peak[part]), size(footprint.sizes[part])) for part, name in PARTS.items()]


def budget_text(footprint: Footprint, budget: int) -> str:
    """Return whether a step fits into a run.memory_budget; "" if there is none."""
    if not budget:
        return ""
    moment = footprint.first_above(budget * MB)
    if moment is None:
        return f"fits into run.memory_budget = {budget} MB"
    return f"over run.memory_budget = {budget} MB {place(moment.phase, moment.operation)}"


def cure_text(cure: Cure) -> str:
    """Return a cure in a few words: 'batch 64 with accumulation 8: 158 MB, same gradient'."""
    return f"{change_text(cure)}: {size(cure.peak)}, {_price(cure)}"


def change_text(cure: Cure) -> str:
    """Return what a cure changes: 'batch 64 with accumulation 8'."""
    said = []
    if "problem.batch_size" in cure.changes:
        said.append(
            f"batch {cure.changes['problem.batch_size']} with accumulation {cure.changes['accumulation.steps']}"
        )
    if "model.checkpointing" in cure.changes:
        said.append("checkpointing")
    if "precision.dtype" in cure.changes:
        said.append(str(cure.changes["precision.dtype"]))
    return " and ".join(said)


def refusal(experiment: Experiment, footprint: Footprint, cures: Iterable[Cure]) -> str:
    """Return why an experiment does not fit into its budget, and what would make it fit."""
    limit = experiment.run.memory_budget * MB
    moment = footprint.first_above(limit)
    assert moment is not None
    text = (
        f"out of memory {place(moment.phase, moment.operation)}: tried to allocate "
        f"{size(moment.after - moment.before)} with {size(moment.before)} of run.memory_budget = "
        f"{experiment.run.memory_budget} MB taken; a step takes {size(footprint.peak)}"
    )
    tried = list(cures)
    if fitting := [cure_text(cure) for cure in tried if cure.fits]:
        while len(fitting) > 1 and len(f"{text}; what fits: {'; '.join(fitting)}") > LONGEST_LINE:
            fitting.pop()
        return f"{text}; what fits: {'; '.join(fitting)}"
    if tried:
        least = min(tried, key=lambda cure: cure.peak)
        return f"{text}; nothing fits: {cure_text(least)} is the least"
    return f"{text}; make model.width or model.depth smaller"


def refuse(experiment: Experiment, footprint: Footprint, cures: Iterable[Cure]) -> KnobError:
    """Return the error for an experiment that is over its budget."""
    text = refusal(experiment, footprint, cures)
    return KnobError(text[0].upper() + text[1:])


def _price(cure: Cure) -> str:
    same = "same gradient" if cure.same_gradient else "another gradient"
    if cure.changes.get("precision.dtype") == "bf16":
        same = "rounded to 8 bits"
    if cure.work > 1.005:
        return f"{same}, {100 * (cure.work - 1):.0f} % more multiplications"
    return same
