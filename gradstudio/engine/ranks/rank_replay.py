"""A step of one rank, repeated without the others, to find where its first NaN or Inf was born."""

from __future__ import annotations

from gradstudio.core.provenance import Provenance, ProvenanceUnknown
from gradstudio.engine.provenance_search import explain
from gradstudio.engine.ranks.kept_step import KEPT
from gradstudio.engine.ranks.rank_trainer import RankTrainer
from gradstudio.engine.snapshot import Snapshot
from gradstudio.engine.torch_internals import seen_operations


def search(trainer: RankTrainer) -> Provenance | str:
    """Return where the first non-finite value of this rank was born, or why that is unknown: a line without a full
    stop. No other rank takes part. Afterwards the trainer is back at its former step."""
    knobs = trainer.experiment
    if knobs.distributed.sync_batch_norm and knobs.applies("distributed.sync_batch_norm"):
        return "its batch norms take numbers from the other ranks, so no rank can make the step again alone"
    if not seen_operations.can_intercept_operations():
        return "this torch cannot be watched"
    there = Snapshot.take(trainer)
    try:
        for kept in reversed(trainer.kept):
            kept.before.restore(trainer)
            if trainer.weights_are_finite():  # otherwise an update before this step broke them
                trainer.alone_with = kept
                return explain(trainer) or "the step stays finite where it is made again alone"
        return f"the run diverged before the latest {KEPT} steps, and no earlier one is kept"
    except ProvenanceUnknown as why:
        return str(why)
    except Exception as fault:  # not a fault of the run
        return f"to make the step again failed with {type(fault).__name__}"
    finally:
        trainer.alone_with = None
        there.restore(trainer)
