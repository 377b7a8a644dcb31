"""The knobs of where an experiment is trained: on how many ranks, on which device, and for how long."""

from __future__ import annotations

from typing import Literal

from gradstudio.core import ranks_allowed
from gradstudio.core.knobs import Section, knob
from gradstudio.core.sections.task_knobs import LAYERED

_WITH_RANKS = {"distributed.ranks": ranks_allowed.SEVERAL}


class Distributed(Section):
    ranks: int = knob(
        1, "Number of processes that train together, each on its share of every batch, in torch's "
        "DistributedDataParallel: on a GPU each where run.device finds as many, else on the CPU. 1: no other process "
        "is started.",
        live=False, ge=1, le=ranks_allowed.MOST, unit="ranks",
    )
    no_sync: bool = knob(
        True, "Run all micro-batches but the last within no_sync(), so that the gradients are reduced once a step. "
        "Off: after every micro-batch, with the same numbers.",
        live=False, when=_WITH_RANKS,
    )
    forward_outside_no_sync: bool = knob(
        False, "Mistake: only backward() stands within no_sync(). It has no effect then, as the forward pass decides.",
        live=False, when=_WITH_RANKS,
    )
    never_synced: bool = knob(
        False, "Mistake: every micro-batch stands within no_sync(). Nothing is ever reduced, and the ranks drift "
        "apart.",
        live=False, when=_WITH_RANKS,
    )
    clip_before_all_reduce: bool = knob(
        False, "Mistake: each rank clips its own gradient, and the mean is taken after that.",
        live=False, when=_WITH_RANKS,
    )
    clip_shards: bool = knob(
        False, "Mistake: clip each rank's shard of the gradient (its part of the rows, as fully_shard gives it) by "
        "the norm of that shard alone. In the run every rank does so with all shards, in the program each with its "
        "own.",
        live=False, when=_WITH_RANKS | {"clipping.kind": ("norm",)},
    )
    divide_by_world_size: bool = knob(
        False, "Mistake: divide the gradients by the number of ranks, though DistributedDataParallel has taken their "
        "mean.",
        live=False, when=_WITH_RANKS,
    )
    same_data: bool = knob(
        False, "Mistake: every rank takes the share of rank 0, as without a DistributedSampler. The others add "
        "nothing.",
        live=False, when=_WITH_RANKS,
    )
    own_order: bool = knob(
        False, "Mistake: each rank orders the data by a seed of its own, so that their shares overlap: some examples "
        "are seen several times in an epoch, and others never.",
        live=False, when=_WITH_RANKS,
    )
    uneven_every: int = knob(
        0, "One step in this many has uneven shares, as the last of an epoch may have: rank 0 takes three quarters of "
        "each micro-batch, and the other ranks share the rest. 0: never.",
        live=False, ge=0, le=100_000, unit="steps", when=_WITH_RANKS,
    )
    weigh_shares: bool = knob(
        False, "Multiply each rank's loss by its examples × ranks / all examples, so that each example counts the "
        "same. Off: each rank counts the same, as in DistributedDataParallel.",
        live=False, when=_WITH_RANKS,
    )
    runs_out_at: int = knob(
        0, "Step from which the last rank has no batch left, as where the data cannot be shared evenly: it leaves the "
        "training loop, and the others wait for it. 0: all ranks have the same number of batches.",
        live=False, ge=0, le=100_000_000, unit="steps", when=_WITH_RANKS,
    )
    join: bool = knob(
        False, "Train within torch's Join: a rank without batches takes part in the all-reduces of the others, with "
        "zeros.",
        live=False, when=_WITH_RANKS,
    )
    sync_batch_norm: bool = knob(
        False, "Take the mean and variance of each batch norm over the examples of all ranks. Off: over those of each "
        "rank, as in DistributedDataParallel.",
        live=False, when=_WITH_RANKS | {"model.norm": ("batch",), "model.kind": LAYERED},
    )
    unused_parameter: bool = knob(
        False, "Mistake: the model has a parameter that no forward pass uses. DistributedDataParallel waits for its "
        "gradient, reduces nothing, and raises an error in the next step.",
        live=False, when=_WITH_RANKS,
    )
    find_unused: bool = knob(
        False, "Let DistributedDataParallel look in every pass for parameters that it does not use "
        "(find_unused_parameters=True).",
        live=False, when=_WITH_RANKS,
    )
    fault: Literal["none", "stalls", "ends"] = knob(
        "none", "What happens to fault_rank at fault_step: it stalls for good, or its process ends by SIGKILL, as one "
        "that the system has no memory for.",
        live=False, when=_WITH_RANKS,
    )
    fault_rank: int = knob(
        1, "Rank that the fault comes to.",
        live=False, ge=0, le=ranks_allowed.MOST - 1, when=_WITH_RANKS | {"distributed.fault": ("stalls", "ends")},
    )
    fault_step: int = knob(
        10, "Step at whose start the fault comes.",
        live=False, ge=0, le=100_000_000, unit="steps", when=_WITH_RANKS | {"distributed.fault": ("stalls", "ends")},
    )
    nan_rank: int = knob(
        0, "Rank whose share of the batch the NaN of problem.nan_every comes to.",
        live=False, ge=0, le=ranks_allowed.MOST - 1, when=_WITH_RANKS,
    )


class Run(Section):
    steps: int = knob(1000, "Number of optimizer steps in the run.", live=False, ge=1, le=100_000_000, unit="steps")
    seed: int = knob(
        0, "Seed of the weights, the batches and the noise. The same seed gives the same run.",
        live=False, ge=0, le=2**31 - 1,
    )
    device: str = knob(
        "auto", "Device that trains: auto, cpu, cuda:0, mps. auto: the first accelerator, or the CPU.",
        live=False,
    )
    deterministic: bool = knob(True, "Use only algorithms that give the same result every time.", live=False)
    stop_on_nonfinite: bool = knob(True, "End the run at the first NaN or Inf that reaches the loss or the weights.")
    memory_budget: int = knob(
        0, "Memory that a step of the plain loop may take. A larger experiment is refused before it begins, as a "
        "device with that much memory would run out of it; 0: no limit.",
        live=False, ge=0, le=10_000_000, unit="MB", slider=(0, 1000),
    )
