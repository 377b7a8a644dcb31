"""Why a run diverged: its first non-finite step is replayed under observation, from a snapshot, and reported with what
led up to it."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gradstudio.core import ranks_allowed
from gradstudio.core.history import History
from gradstudio.core.knobs import value_text
from gradstudio.core.provenance import PHASES, Provenance, ProvenanceUnknown
from gradstudio.core.text import join_with_and, number, plural
from gradstudio.session.record import branches
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.record.snapshots import Snapshots

if TYPE_CHECKING:
    from gradstudio.engine.ranks.ranked_trainer import RankedTrainer
    from gradstudio.engine.trainer import Trainer

BACK = 20  # steps for which broken weights are traced back, at most
RECENT = 100  # a knob change is reported if it came at most this many steps before


def investigate(run: Run, trainer: Trainer, snapshots: Snapshots, stopped: Callable[[], bool]) -> Provenance | None:
    """Return where the first non-finite value of a run was born; None if that cannot be determined, for lack of a
    snapshot or of time, and ProvenanceUnknown if the step is too large. The trainer must have no unread rows.
    Afterwards it is back at its former step, even if this raises."""
    from gradstudio.engine.snapshot import Snapshot

    there = Snapshot.take(trainer)
    try:
        birth = _find(run, trainer, snapshots, stopped)
    finally:
        there.restore(trainer)
    return birth and replace(birth, led_up=led_up(run, birth))


def explain(writer: RunWriter, trainer: Trainer, snapshots: Snapshots, stopped: Callable[[], bool]) -> str:
    """Record where the first non-finite value of a run was born, or why that is unknown; a rank that produced the value
    replays its step alone. Return the traceback of an error, "" if there is none."""
    run = writer.run
    try:
        if ranks_allowed.several(run.experiment):
            birth = cast("RankedTrainer", trainer).explain()
            writer.explain(replace(birth, led_up=led_up(run, birth)))
        else:
            writer.explain(investigate(run, trainer, snapshots, stopped))
    except ProvenanceUnknown as why:
        if not stopped():
            writer.note("notice", f"Where the first NaN or Inf was born is unknown: {why}.")
    except BaseException:
        return traceback.format_exc()
    return ""


def _find(run: Run, trainer: Trainer, snapshots: Snapshots, stopped: Callable[[], bool]) -> Provenance | None:
    """Find it, and leave the trainer at another step, or within one."""
    from gradstudio.engine import provenance_search

    broke = run.first_nonfinite_step
    assert broke is not None
    for step in range(broke, max(broke - BACK, -1), -1):
        if not bring(run, trainer, snapshots, step, stopped):
            return None
        if trainer.weights_are_finite():  # otherwise an update before this step broke them
            return provenance_search.explain(trainer, stopped)
    return None


def bring(run: Run, trainer: Trainer, snapshots: Snapshots, step: int, stopped: Callable[[], bool]) -> bool:
    """Bring the trainer to the start of a step, with the changes that act from it on. Return whether it got there."""
    snapshot = snapshots.nearest(run, step)
    if snapshot is None:
        return False
    snapshot.state.restore(trainer)
    return replay(run, trainer, step, stopped)


def replay(run: Run, trainer: Trainer, step: int, stopped: Callable[[], bool]) -> bool:
    """Replay the steps from the trainer's position to the start of a later one, with the run's changes. Return whether
    it got there."""
    while trainer.step < step:
        _change_as_then(run, trainer)
        trainer.skip_batches(stopped)
        if stopped():
            return False
        next(trainer.steps())
    _change_as_then(run, trainer)
    return True


def _change_as_then(run: Run, trainer: Trainer) -> None:
    """Repeat the changes that the run made before the trainer's next step."""
    for change in run.timeline:
        if change.step == trainer.step:
            trainer.change(change.knob, change.value)


def led_up(run: Run, birth: Provenance) -> str:
    """Return the effect of the steps and knob changes before it."""
    history, step, parts = run.history, birth.step, []
    healthy = branches.last_healthy_step(run)
    if healthy is not None and healthy < step - 1:
        norms = history.column("grad_norm", healthy, step)
        peak = int(np.argmax(np.where(np.isfinite(norms), norms, -1.0)))
        if norms[peak] > 10 * norms[0]:
            at = healthy + peak
            parts.append(
                f"Before it the gradient norm went from {number(norms[0])} to {number(norms[peak])} in "
                f"{plural(peak, 'step', 'steps')}{_mostly(history, at)}."
            )
    if step and (moved := history.value("update_ratio", step - 1)) > 1:
        parts.append(f"The update of step {step - 1:,} moved the weights by {number(moved)} times their norm.")
    if factor := growth_factor(birth):
        parts.append(
            f"Along the {birth.growth_along}, the largest value grows by a factor of {number(factor, 2)} per "
            f"{birth.growth_along.removesuffix('s')}."
        )
    recent = [change for change in run.timeline if step - RECENT <= change.step <= step]
    if recent:
        change = recent[-1]
        parts.append(
            f"{plural(step - change.step, 'step', 'steps')} before, {change.knob} became {value_text(change.value)}."
        )
    return " ".join(parts)


def _mostly(history: History, step: int) -> str:
    """Return which layer has most of a step's gradient; "" if several do."""
    squares = history.layer_metric("grad_norm", step, step + 1)[0].astype(float) ** 2
    total = float(squares.sum())
    if not (math.isfinite(total) and total > 0):
        return ""
    share = float(squares.max() / total)
    return (
        f", {'nearly all' if share > 0.9 else f'{100 * share:.0f} %'} of it in "
        f"{history.layers[int(squares.argmax())].name}"
        if share > 0.5
        else ""
    )


def growth_factor(birth: Provenance) -> float | None:
    """Return by how much the values grew from one stage to the next, as a geometric mean; None if they did not."""
    values = [value for _, value in birth.growth if value > 0 and math.isfinite(value)]
    if len(values) < 3 or values[-1] < 10 * values[0]:
        return None
    return (values[-1] / values[0]) ** (1 / (len(values) - 1))


def sentence(birth: Provenance) -> str:
    """Return where the value was born, and from what, as a sentence."""
    at = f"time step {birth.time_step + 1:,} of the sequence" if birth.time_step is not None else ""
    of_a_part = birth.micro_batches > 1 and birth.phase not in ("unscale", "update")
    part = f"micro-batch {birth.micro_batch + 1} of {birth.micro_batches}" if of_a_part else ""
    rank = f"rank {birth.rank}" if birth.rank is not None else ""
    where = ", ".join(place for place in (rank, birth.module, at, part) if place)
    all_alike = f" Ranks {join_with_and(birth.ranks)} each had one in that step." if len(birth.ranks) > 1 else ""
    operation = birth.chain[0]
    what = (
        "NaN"
        if operation.given_nan and not operation.given_inf
        else "Inf"
        if operation.given_inf and not operation.given_nan
        else "NaN or Inf"
    )
    if birth.is_from_input:
        given = ", ".join(place for place in (rank, part) if place)
        return (
            f"The first {what} came with the data of step {birth.step:,}{f' ({given})' if given else ''}: "
            f"{birth.cause}.{all_alike}"
        )
    if birth.phase == "update" and not operation.is_birth:  # detected as the next step began
        held = f"The weights held what is not finite before step {birth.step:,}{f' ({where})' if where else ''}"
        return f"{held}: {birth.cause}.{all_alike}"
    of_inf = what == "NaN" and birth.is_birth and not operation.taken_nan  # such as a softmax of nothing but -Inf
    verb = "was born" if operation.is_birth or of_inf else "came" if birth.is_birth else "was first seen"
    return (
        f"The first {what} {verb} in the {PHASES[birth.phase]} of step "
        f"{birth.step:,}{f' ({where})' if where else ''}, in {birth.short_name}: {birth.cause}.{all_alike}"
    )


def heading(birth: Provenance) -> str:
    """Return the heading of that sentence."""
    return "Where it was born" if birth.is_birth else "Where it was first seen"


def as_json(birth: Provenance | None) -> dict[str, Any] | None:
    """Return the provenance in the form of a run's summary."""
    if birth is None:
        return None
    return {
        "step": birth.step, "rank": birth.rank, "ranks": list(birth.ranks),
        "phase": birth.phase, "module": birth.module, "operation": birth.operation,
        "cause": birth.cause,
        "micro_batch": birth.micro_batch, "time_step": birth.time_step, "layers": list(birth.layers),
        "led_up": birth.led_up,
        "growth_along": birth.growth_along, "growth": [list(each) for each in birth.growth],
        "chain": [vars(operation) | {"produced": operation.is_birth} for operation in birth.chain],
    }  # fmt: skip
