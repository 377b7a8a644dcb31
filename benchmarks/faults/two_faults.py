"""Two faults at once. Each is one by itself too; where one can act only later, it has to be named second."""

from __future__ import annotations

from collections.abc import Callable

from gradstudio.session.course.drawn_faults.drawing_runs import (
    Random,
    Texts,
    log_uniform,
    lr_of,
    one_of,
    plain,
    small_batches,
    trained_by,
)
from gradstudio.session.course.drawn_faults.kinds import DrawnFault, Kind, Part, changes_at

_RATE = ("rate_raised", "update_ratio_high", "exploding_gradient", "dead_units")
_JUMP = ("exploding_gradient", "loss_spike")
_MISMATCH = ("accumulation_mismatch", "loop_order")


def _bug(name: str, *named: str, step: int = 0) -> Part:
    text = f"mistakes.{name}=true"
    return changes_at(step, text, named=named, silent=True) if step else Part(named, (text,), silent=True)


def _later(random: Random) -> int:
    return int(random.integers(50, 110))


def _raised(random: Random, base: Texts, step: int = 0) -> Part:
    step = step or _later(random)
    return changes_at(step, f"optimizer.lr={lr_of(base) * log_uniform(random, 30, 1000):.3g}", named=_RATE)


def _outliers(random: Random, step: int = 0) -> Part:
    step = step or _later(random)
    return changes_at(
        step, f"problem.outlier_scale={log_uniform(random, 1e3, 1e5)}", f"problem.outlier_every={random.integers(15, 40)}",
        named=_JUMP,
    )  # fmt: skip


def _micro(random: Random, *kinds: str) -> Texts:
    return [*small_batches(random), f"accumulation.steps={one_of(random, 2, 4)}", *trained_by(random, *kinds)]


def _limited(random: Random, *kinds: str) -> Texts:
    limit = log_uniform(random, 0.1, 1.0)
    return [*small_batches(random), "clipping.kind=norm", f"clipping.max_norm={limit}", *trained_by(random, *kinds)]


def _deep(random: Random, activation: str, init: str) -> Texts:
    deep = plain(random, activation, 8, 14, init)
    return [*deep, "optimizer.momentum=0.9", f"optimizer.lr={log_uniform(random, 0.003, 0.01)}"]


def _undivided_then_rate(random: Random) -> DrawnFault:
    base = _micro(random)
    return DrawnFault(base, (_bug("unscaled_accumulation", *_MISMATCH), _raised(random, base)))


def _cleared_then_outliers(random: Random) -> DrawnFault:
    base = _micro(random, "sgd")
    return DrawnFault(base, (_bug("zero_grad_each_micro_batch", *_MISMATCH), _outliers(random)))


def _clip_after_then_rate(random: Random) -> DrawnFault:
    base = _limited(random, "sgd", "adam")
    bug = _bug("clip_after_step", "clip_without_effect", "loop_order")
    return DrawnFault(base, (bug, _raised(random, base)))


def _clip_after_then_outliers(random: Random) -> DrawnFault:
    """The clipping would have held them: by itself the second part does not harm, so it counts as it is."""
    hidden = plain(random, str(one_of(random, "relu", "gelu")), 1, 3, "he")
    base = [*hidden, "clipping.kind=norm", "clipping.max_norm=0.5", *trained_by(random, "sgd")]
    bug = _bug("clip_after_step", "clip_without_effect", "loop_order")
    return DrawnFault(base, (bug, _outliers(random)))


def _schedule_then_rate(random: Random) -> DrawnFault:
    base = [*_micro(random), "schedule.kind=cosine", "schedule.total_steps=1200", "run.steps=200"]
    return DrawnFault(base, (_bug("scheduler_each_micro_batch", "loop_order"), _raised(random, base)))


def _dropped_then_underflow(random: Random) -> DrawnFault:
    base = [
        *_micro(random, "adam"), "optimizer.eps=1e-16", f"loss.weight={log_uniform(random, 1e-8, 1e-6)}",
        "precision.scaling=none",
    ]  # fmt: skip
    half = changes_at(int(random.integers(4, 9)), "precision.dtype=fp16", named=("fp16_underflow",))
    return DrawnFault(base, (_bug("drop_last_micro_batches", *_MISMATCH), half))


def _small_and_low(random: Random) -> DrawnFault:
    base = _deep(random, "relu", "he")
    small = Part(("poor_initialization",), (f"model.init_gain={log_uniform(random, 0.1, 0.5)}",))
    return DrawnFault(base, (small, Part(("update_ratio_low",), (f"optimizer.lr={log_uniform(random, 1e-9, 1e-6)}",))))


def _sigmoid_and_clip(random: Random) -> DrawnFault:
    base = _deep(random, "tanh", "xavier")
    low = Part(("clipping_always",), ("clipping.kind=norm", f"clipping.max_norm={log_uniform(random, 1e-5, 1e-3)}"))
    return DrawnFault(base, (Part(("vanishing_gradient",), ("model.activation=sigmoid",)), low))


def _dead_and_undivided(random: Random) -> DrawnFault:
    base = [*plain(random, "relu", 2, 4, "he"), "accumulation.steps=4", *trained_by(random, "sgd")]
    dead = Part(("dead_units",), (f"model.initial_bias={-log_uniform(random, 3, 8):.3g}",))
    return DrawnFault(base, (_bug("unscaled_accumulation", *_MISMATCH), dead))


def _saturated_then_uncleared(random: Random) -> DrawnFault:
    base = [*plain(random, str(one_of(random, "tanh", "sigmoid")), 1, 2, "xavier"), "optimizer.lr=0.1"]
    large = Part(("saturated_activation",), (f"model.init_gain={log_uniform(random, 20, 100)}",))
    return DrawnFault(base, (large, _bug("never_zero_grad", "loop_order", step=_later(random))))


def _outliers_then_uncleared(random: Random) -> DrawnFault:
    hidden = plain(random, "relu", 1, 3, "he")
    base = [*hidden, *trained_by(random, "sgd")]
    return DrawnFault(base, (_outliers(random, 40), _bug("never_zero_grad", "loop_order", step=130)))


def _rate_then_dropped(random: Random) -> DrawnFault:
    base = _micro(random)
    return DrawnFault(base, (_raised(random, base, 40), _bug("drop_last_micro_batches", *_MISMATCH, step=120)))


def _log_and_undivided(random: Random) -> DrawnFault:
    hidden = plain(random, "relu", 1, 3, "he")
    base = [*hidden, "accumulation.steps=4", "optimizer.kind=adam", "optimizer.lr=0.01", "run.steps=300"]
    log = Part(("nonfinite_loss", "nonfinite_gradient"), ("loss.kind=naive_log",), since=1)
    return DrawnFault(base, (_bug("unscaled_accumulation", *_MISMATCH), log))


def _around_then_rate(random: Random) -> DrawnFault:
    base = [*small_batches(random), "precision.dtype=fp16", *trained_by(random, "sgd", "adam")]
    return DrawnFault(base, (_bug("step_without_scaler", "loop_order"), _raised(random, base)))


def _zero_and_clip_after(random: Random) -> DrawnFault:
    base = [*plain(random, str(one_of(random, "relu", "tanh")), 2, 4, "xavier"), *trained_by(random, "sgd", "adam")]
    base += ["clipping.kind=norm", "clipping.max_norm=0.5"]
    bug = _bug("clip_after_step", "clip_without_effect", "loop_order")
    return DrawnFault(base, (bug, Part(("poor_initialization",), ("model.init=zeros",))))


_PAIRS: dict[str, Callable[[Random], DrawnFault]] = {
    "not divided, then rate raised": _undivided_then_rate,
    "cleared too often, then outliers": _cleared_then_outliers,
    "clip after step, then rate raised": _clip_after_then_rate,
    "clip after step, then outliers": _clip_after_then_outliers,
    "schedule too fast, then rate raised": _schedule_then_rate,
    "micro-batches dropped, then fp16 underflow": _dropped_then_underflow,
    "drawn too small, and rate too low": _small_and_low,
    "deep sigmoid, and clipped too low": _sigmoid_and_clip,
    "units born dead, and not divided": _dead_and_undivided,
    "saturated, then never cleared": _saturated_then_uncleared,
    "outliers, then never cleared": _outliers_then_uncleared,
    "rate raised, then micro-batches dropped": _rate_then_dropped,
    "log of 0, and not divided": _log_and_undivided,
    "step around the scaler, then rate raised": _around_then_rate,
    "drawn as zero, and clip after step": _zero_and_clip_after,
}

KINDS = tuple(Kind("two faults", name, draw) for name, draw in _PAIRS.items())
