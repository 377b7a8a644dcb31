"""Faults that begin in a healthy run: a change of a live knob at a step."""

from __future__ import annotations

from collections.abc import Callable

from gradstudio.session.course.drawn_faults.drawing_runs import (
    Random,
    Texts,
    log_uniform,
    lr_of,
    one_of,
    other_task,
    plain,
    small_batches,
    stack,
    trained_by,
)
from gradstudio.session.course.drawn_faults.kinds import DrawnFault, Kind, Part, changes_at

_RATE = ("rate_raised", "update_ratio_high", "exploding_gradient", "dead_units")
_FREEZE = (3, 12)  # steps at which a run that stagnates from then on has learned nothing


def _one(base: Texts, part: Part) -> DrawnFault:
    return DrawnFault(base, (part,))


def _middle(random: Random) -> int:
    return int(random.integers(60, 140))


def _early(random: Random) -> int:
    return int(random.integers(*_FREEZE))


def _rate(random: Random, base: Texts) -> DrawnFault:
    step = _middle(random)
    return _one(base, changes_at(step, f"optimizer.lr={lr_of(base) * log_uniform(random, 10, 1000):.3g}", named=_RATE))


def _rate_sgd(random: Random) -> DrawnFault:
    return _rate(random, [*stack(random), *trained_by(random, "sgd")])


def _rate_adam(random: Random) -> DrawnFault:
    return _rate(random, [*stack(random), *trained_by(random, "adam", "adamw", "rmsprop")])


def _rate_elsewhere(random: Random) -> DrawnFault:
    return _rate(random, other_task(random))


def _rate_to_zero(random: Random) -> DrawnFault:
    base = [*stack(random, 3), *trained_by(random)]
    low = f"optimizer.lr={lr_of(base) * log_uniform(random, 1e-7, 1e-4):.3g}"
    return _one(base, changes_at(_early(random), low, named=("update_ratio_low",)))


def _clipping_removed(random: Random) -> DrawnFault:
    base = [
        "problem.task=sequential_digits", "problem.seq_len=32", "problem.scaling=unit", "model.kind=rnn",
        "model.depth=1", f"model.width={int(log_uniform(random, 32, 80))}", "model.init=orthogonal",
        f"model.init_gain={random.uniform(1.0, 1.25):.3g}", f"optimizer.lr={log_uniform(random, 0.15, 0.3)}",
        "clipping.kind=norm", "clipping.max_norm=0.5", "run.steps=400",
    ]  # fmt: skip
    return _one(base, changes_at(int(random.integers(30, 200)), "clipping.kind=none", named=("exploding_gradient",)))


def _game_unclipped(random: Random) -> DrawnFault:
    base = [
        "problem.task=ring", "model.kind=gan",
        f"model.width={int(log_uniform(random, 48, 96))}", "problem.batch_size=128",
        f"optimizer.lr={random.uniform(0.4, 0.6):.3g}", "clipping.kind=norm", "clipping.max_norm=0.1", "run.steps=800",
    ]  # fmt: skip
    named = ("exploding_gradient", "update_ratio_high")
    return _one(base, changes_at(int(random.integers(100, 400)), "clipping.kind=none", named=named))


def _outliers(random: Random) -> DrawnFault:
    hidden = plain(random, str(one_of(random, "relu", "leaky_relu", "gelu")), 1, 3, "he")
    part = changes_at(
        _middle(random), f"problem.outlier_scale={log_uniform(random, 1e3, 1e5)}",
        f"problem.outlier_every={random.integers(20, 50)}", named=("exploding_gradient", "loss_spike"),
    )  # fmt: skip
    return _one([*hidden, *trained_by(random, "sgd")], part)


def _clipped_to_zero(random: Random) -> DrawnFault:
    base = [*stack(random, 3), *trained_by(random, "sgd"), "clipping.kind=norm", "clipping.max_norm=1"]
    low = f"clipping.max_norm={log_uniform(random, 1e-6, 1e-4)}"
    return _one(base, changes_at(_early(random), low, named=("clipping_always",)))


def _underflow(random: Random) -> DrawnFault:
    base = [
        *stack(random, 3), *trained_by(random, "adam"), "optimizer.eps=1e-16", "precision.scaling=none",
        f"loss.weight={log_uniform(random, 1e-8, 1e-6)}",
    ]  # fmt: skip
    return _one(base, changes_at(_early(random), "precision.dtype=fp16", named=("fp16_underflow",)))


def _static_overflow(random: Random) -> DrawnFault:
    base = [
        *stack(random, 3), *trained_by(random), "precision.scaling=static",
        f"precision.init_scale={log_uniform(random, 1e8, 1e11)}",
    ]  # fmt: skip
    return _one(base, changes_at(_middle(random), "precision.dtype=fp16", named=("fp16_overflow",)))


def _forward_overflow(random: Random) -> DrawnFault:
    base = [
        *plain(random, "relu", 1, 3, "he"), "model.norm=batch", *trained_by(random),
        f"problem.input_scale={log_uniform(random, 1e5, 1e6)}",
    ]  # fmt: skip
    named = ("fp16_overflow", "scale_collapse")
    return _one(base, changes_at(_middle(random), "precision.dtype=fp16", named=named))


def _large_decay(random: Random) -> DrawnFault:
    """The weights are pulled to 0: each step removes a large share of them."""
    base = [*stack(random, 3), *trained_by(random, "sgd", "adamw")]
    share = log_uniform(random, 0.2, 0.9)  # of the weights, at each step
    pull = f"optimizer.weight_decay={min(share / lr_of(base), 1000):.3g}"
    return _one(base, changes_at(_middle(random), pull, named=("weight_decay_high",)))


def _noise(random: Random) -> DrawnFault:
    base = [*stack(random, 3), *trained_by(random, "sgd")]
    named = ("gradient_noise", "exploding_gradient", "update_ratio_high")
    return _one(base, changes_at(_middle(random), f"gradients.noise_std={log_uniform(random, 3, 100)}", named=named))


def _momentum(random: Random) -> DrawnFault:
    """Velocity that never decays, so the steps add up without end."""
    base = [*stack(random, 3), "optimizer.kind=sgd", f"optimizer.lr={log_uniform(random, 0.03, 0.1)}", "run.steps=300"]
    named = ("momentum_high", "update_ratio_high", "exploding_gradient", "loss_oscillating", "dead_units")
    return _one(base, changes_at(_middle(random), "optimizer.momentum=1", named=named))


def _bug(
    name: str, *named: str, needs: tuple[str, ...] = (), kinds: tuple[str, ...] = ()
) -> Callable[[Random], DrawnFault]:
    def draw(random: Random) -> DrawnFault:
        more = [need.format(n=one_of(random, 2, 4, 8), limit=log_uniform(random, 0.1, 1.0)) for need in needs]
        base = [*small_batches(random), *trained_by(random, *kinds), *more]
        return _one(base, changes_at(_middle(random), f"mistakes.{name}=true", named=named, silent=True))

    return draw


_MICRO = ("accumulation.steps={n}",)
_LIMITED = ("clipping.kind=norm", "clipping.max_norm={limit}")
_MISMATCH = ("accumulation_mismatch", "loop_order")

_DRAWS: dict[str, Callable[[Random], DrawnFault]] = {
    "rate raised, SGD": _rate_sgd,
    "rate raised, Adam and RMSprop": _rate_adam,
    "rate raised, other tasks": _rate_elsewhere,
    "rate lowered to nothing": _rate_to_zero,
    "clipping removed, recurrent": _clipping_removed,
    "clipping removed, GAN": _game_unclipped,
    "outliers begin": _outliers,
    "clipping limit to nothing": _clipped_to_zero,
    "to fp16, underflow": _underflow,
    "to fp16, scale too high": _static_overflow,
    "to fp16, forward overflow": _forward_overflow,
    "weight decay to 1 / lr": _large_decay,
    "gradient noise": _noise,
    "momentum to 1": _momentum,
    "no zero_grad": _bug("never_zero_grad", "loop_order", kinds=("sgd", "adam", "rmsprop")),
    "division left out": _bug("unscaled_accumulation", *_MISMATCH, needs=_MICRO),
    "half of the micro-batches": _bug("drop_last_micro_batches", *_MISMATCH, needs=_MICRO),
    "clip moves after step": _bug("clip_after_step", "clip_without_effect", "loop_order", needs=_LIMITED),
    "clip moves before unscale": _bug(
        "clip_before_unscale", "clip_on_scaled_gradients", "loop_order", needs=("precision.dtype=fp16", *_LIMITED)
    ),
    "step moves around the scaler": _bug("step_without_scaler", "loop_order", needs=("precision.dtype=fp16",)),
}

KINDS = tuple(Kind("from mid-run", name, draw) for name, draw in _DRAWS.items())
