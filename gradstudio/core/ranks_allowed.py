"""Training on several ranks: which values are compatible with distributed.ranks, and what is impossible with more than
one. Nothing here depends on Experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gradstudio.core.knobs import KnobError, Value, format_value


class Values(Protocol):
    """One value for every knob, by its dotted name."""

    def __getitem__(self, name: str, /) -> Value: ...


MOST = 8
SEVERAL = tuple(range(2, MOST + 1))
# What needs a model or a loop in one process, with the reason.
NOT_WITH_RANKS: Mapping[str, tuple[tuple[Value, ...], str]] = {
    "problem.task": (("ring", "pole", "bandit"), "a rank takes its share of a batch that has one label an example"),
    "loss.kind": (("naive_sqrt",), "it compares the examples of a batch, and a rank has only its share of them"),
    "loss.class_weights": (
        ("balanced",),
        "cross_entropy divides by the weights of a rank's share, and those of the whole batch would have to be summed "
        "over the ranks",
    ),
    "clipping.on_spike": (("skip", "rewind"), "ranks would have to agree which update to leave out"),
    "mistakes.clip_each_micro_batch": ((True,), "DistributedDataParallel reduces what is in the gradients by then"),
    "mistakes.unscale_twice": ((True,), "each rank would fail by itself"),
    "mistakes.never_update_scaler": ((True,), "each rank would fail by itself"),
}
_OF_REPLICAS = (
    "forward_outside_no_sync", "never_synced", "clip_before_all_reduce", "unused_parameter", "find_unused",
    "sync_batch_norm",
)  # fmt: skip
_CLIP_OTHERWISE = (
    "value",
    "per_tensor",
    "per_module",
    "per_network",
    "agc",
    "zclip",
    "adagc",
)  # than by the whole norm
_CLIP_ELSEWHERE = ("mistakes.clip_before_backward", "mistakes.clip_before_unscale", "mistakes.clip_after_step")


class RankFailure(RuntimeError):
    """Ranks that cannot continue: one exited, hangs or has failed. One line for the user."""


def several(knobs: Values) -> bool:
    """Return whether an experiment is trained on more than one rank."""
    return knobs["distributed.ranks"] != 1


def check_alone(knobs: Values, what: str) -> None:
    """Raise KnobError if `what`, a sentence's subject and verb, is requested for several ranks."""
    if several(knobs):
        raise KnobError(
            f"{what} with distributed.ranks = {knobs['distributed.ranks']}: model and optimizer are in the processes "
            "of the ranks; set distributed.ranks=1"
        )


def check(knobs: Values, *, with_file: bool) -> None:
    """Raise KnobError for the first value that is incompatible with several ranks. `with_file`: beside a studio
    file."""
    ranks = int(knobs["distributed.ranks"])
    if ranks == 1:
        return
    if with_file:
        raise KnobError(
            f"distributed.ranks = {ranks} is not allowed with a studio file, whose batches nobody can share"
        )
    for name, (values, why) in NOT_WITH_RANKS.items():
        if knobs[name] in values:
            _refuse(name, knobs, why)
    if knobs["run.device"] == "mps":
        _refuse("run.device", knobs, "neither gloo nor NCCL takes its tensors; allowed: auto, cpu, cuda, cuda:N")
    if knobs["optimizer.sam_rho"]:
        _refuse("optimizer.sam_rho", knobs, "the gradient that it moves along is never reduced; allowed: 0")
    if knobs["clipping.qk_clip"]:
        _refuse("clipping.qk_clip", knobs, "each rank sees the logits of its own examples alone; allowed: 0")
    if knobs["run.memory_budget"]:
        _refuse("run.memory_budget", knobs, "the memory of a single process is what is worked out")
    size = int(knobs["problem.batch_size"])
    if size % ranks:
        _refuse("problem.batch_size", knobs, f"each rank takes an equal share; allowed: a multiple of {ranks}")
    if size == ranks and knobs["model.norm"] == "batch":
        _refuse("problem.batch_size", knobs, "a batch norm needs 2 examples on each rank")
    if int(knobs["distributed.nan_rank"]) >= ranks:
        _refuse("distributed.nan_rank", knobs, f"allowed: at most {ranks - 1}")
    if knobs["distributed.fault"] != "none" and int(knobs["distributed.fault_rank"]) >= ranks:
        _refuse("distributed.fault_rank", knobs, f"allowed: at most {ranks - 1}")
    if knobs["distributed.uneven_every"]:
        _check_uneven(knobs, size // 4, ranks - 1)
    if knobs["distributed.runs_out_at"]:
        _check_running_out(knobs)
    if knobs["distributed.clip_before_all_reduce"]:
        _check_clipping(knobs)
    if knobs["distributed.clip_shards"]:
        _check_shards(knobs)


def _check_uneven(knobs: Values, rest: int, others: int) -> None:
    """Raise KnobError if uneven shares are too small, or require something that exists only for even ones."""
    least = 2 if knobs["model.norm"] == "batch" else 1
    if rest < least * others:
        _refuse("problem.batch_size", knobs, f"with uneven_every at least {4 * least * others} examples are needed")
    for name in ("distributed.same_data", "distributed.sync_batch_norm"):
        if knobs[name]:
            _refuse("distributed.uneven_every", knobs, f"{name} = true is for shares of one size")


def _check_running_out(knobs: Values) -> None:
    """Raise KnobError for what torch's Join does not support, or if no rank waits for the one without batches."""
    others = ("never_synced", "clip_before_all_reduce", "clip_shards", "sync_batch_norm", "unused_parameter")
    for name in (*(f"distributed.{name}" for name in others), "distributed.uneven_every"):
        if knobs[name]:
            at = knobs["distributed.runs_out_at"]
            raise KnobError(f"distributed.runs_out_at = {at} is not allowed with {name} = {format_value(knobs[name])}")


def share_of_rank(rank: int, world: int, size: int, *, uneven: bool) -> slice:
    """Return which of `size` examples a rank takes. With uneven shares, rank 0 takes all but a quarter."""
    if not uneven:
        return slice(rank, None, world)
    first = size - size // 4
    return slice(0, first) if rank == 0 else slice(first + rank - 1, None, world - 1)


def _check_shards(knobs: Values) -> None:
    """Raise KnobError for anything that differs if each rank holds only its shard."""
    others: dict[str, Value] = {
        **dict.fromkeys((f"distributed.{name}" for name in _OF_REPLICAS), True),
        **dict.fromkeys(_CLIP_ELSEWHERE, True),
        "precision.dtype": "fp16",
        "gradients.centralize": True,
    }
    kinds = (
        *(("clipping.kind", kind) for kind in _CLIP_OTHERWISE),
        *(("precision.weights", kind) for kind in ("bf16", "bf16_stochastic")),
    )
    for name, value in (*others.items(), *kinds):
        if knobs[name] == value:
            raise KnobError(f"distributed.clip_shards = true is not allowed with {name} = {format_value(value)}")
    if knobs["gradients.noise_std"]:
        raise KnobError("distributed.clip_shards = true is not allowed with gradients.noise_std above 0")


def _check_clipping(knobs: Values) -> None:
    """Raise KnobError for other values that change or move the clipping."""
    others = {"distributed.never_synced": True, "precision.dtype": "fp16", **dict.fromkeys(_CLIP_ELSEWHERE, True)}
    for name, value in others.items():
        if knobs[name] == value:
            raise KnobError(
                f"distributed.clip_before_all_reduce = true is not allowed with {name} = {format_value(value)}"
            )


def _refuse(name: str, knobs: Values, why: str) -> None:
    ranks = knobs["distributed.ranks"]
    raise KnobError(f"{name} = {format_value(knobs[name])} is not allowed with distributed.ranks = {ranks}: {why}")
