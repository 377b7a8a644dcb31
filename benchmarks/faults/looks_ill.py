"""Healthy runs that look ill. Each counts only if it learns, and about as much as the same run without that look."""

from __future__ import annotations

from collections.abc import Callable

from gradstudio.session.course.drawn_faults.drawing_runs import (
    Random,
    Texts,
    healthy,
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


def _as(base: Texts, *change: str) -> DrawnFault:
    return DrawnFault(base, (Part(change=change),))


def _any(random: Random) -> DrawnFault:
    return DrawnFault(healthy(random), ())


def _large_norms(random: Random) -> DrawnFault:
    """A loss with a large weight: every gradient is that much longer, and the updates are as they were."""
    base, weight = [*stack(random, 3), *trained_by(random)], log_uniform(random, 1e2, 1e5)
    if "optimizer.kind=sgd" in base:
        return _as(base, f"loss.weight={weight}", f"optimizer.lr={lr_of(base) / weight:.6g}")
    return _as(base, f"loss.weight={weight}")


def _raw_inputs(random: Random) -> DrawnFault:
    base = [
        *plain(random, "relu", 1, 3, "he"),
        "optimizer.kind=adam",
        f"optimizer.lr={log_uniform(random, 5e-4, 2e-3)}",
    ]
    return _as(base, "problem.scaling=raw", f"problem.input_scale={log_uniform(random, 1, 5)}")


def _oscillation(random: Random) -> DrawnFault:
    momentum = one_of(random, 0.95, 0.98, 0.99)
    base = [
        *stack(random, 3),
        "optimizer.kind=sgd",
        f"optimizer.lr={log_uniform(random, 0.003, 0.015)}",
        "run.steps=300",
    ]
    return _as(base, f"optimizer.momentum={momentum}")


def _edge(random: Random) -> DrawnFault:
    """Full batches at a rate at which the loss rides over the largest curvature."""
    base = [
        *(text for text in plain(random, "tanh", 1, 3, "xavier") if not text.startswith("problem.batch_size")),
        "problem.batch_size=1024", "optimizer.lr=0.1", "run.steps=150",
    ]  # fmt: skip
    return _as(base, f"optimizer.lr={log_uniform(random, 0.3, 1.2)}")


def _noisy_labels(random: Random) -> DrawnFault:
    """Every few batches the labels have nothing to do with the inputs, which are of the usual size."""
    base = [*stack(random, 3), *trained_by(random)]
    return _as(base, f"problem.outlier_every={random.integers(3, 9)}", "problem.outlier_scale=1")


def _noisy_inputs(random: Random) -> DrawnFault:
    return _as([*stack(random, 3), *trained_by(random)], f"problem.noise={log_uniform(random, 0.5, 2)}")


def _rewards(random: Random) -> DrawnFault:
    base = [
        "problem.task=pole", "model.kind=policy", "problem.seq_len=200", f"problem.batch_size={one_of(random, 8, 16)}",
        "model.depth=1", "model.activation=tanh", f"model.width={int(log_uniform(random, 16, 64))}", "run.steps=100",
        "optimizer.kind=adam", f"optimizer.lr={log_uniform(random, 0.005, 0.02)}",
    ]  # fmt: skip
    return DrawnFault(base, ())


def _held_spikes(random: Random) -> DrawnFault:
    hidden = plain(random, str(one_of(random, "relu", "gelu", "leaky_relu")), 1, 3, "he")
    limit = str(one_of(random, "kind=norm max_norm", "kind=value clip_value", "kind=per_tensor max_norm"))
    kind, knob = limit.split()
    low, high = (0.001, 0.01) if "value" in kind else (0.05, 0.3)
    base = [
        *hidden, *trained_by(random, "sgd"), f"clipping.{kind}", f"clipping.{knob}={log_uniform(random, low, high)}",
        "run.steps=250",
    ]  # fmt: skip
    return _as(
        base,
        f"problem.outlier_every={random.integers(40, 100)}",
        f"problem.outlier_scale={log_uniform(random, 1e2, 1e5)}",
    )


def _normed_outliers(random: Random) -> DrawnFault:
    base = [*plain(random, "relu", 1, 3, "he"), "model.norm=layer", *trained_by(random, "sgd"), "run.steps=250"]
    return _as(
        base,
        f"problem.outlier_every={random.integers(40, 100)}",
        f"problem.outlier_scale={log_uniform(random, 1e2, 1e5)}",
    )


def _long_warmup(random: Random) -> DrawnFault:
    steps = int(one_of(random, 200, 300, 400))
    base = [*stack(random, 3), *trained_by(random), f"run.steps={steps}"]
    return _as(base, f"schedule.warmup_steps={int(steps * random.uniform(0.4, 0.75))}")


def _decay(random: Random) -> DrawnFault:
    base = [*stack(random, 3), *trained_by(random, "sgd", "adamw")]
    low, high = (0.01, 1.0) if "optimizer.kind=adamw" in base else (1e-4, 1e-2)
    return _as(base, f"optimizer.weight_decay={log_uniform(random, low, high)}")


def _scale_found(random: Random) -> DrawnFault:
    base = [*stack(random, 3), *trained_by(random), "precision.dtype=fp16"]
    return _as(base, f"precision.init_scale={2.0 ** int(random.integers(18, 33))}")


def _slow_game(random: Random) -> DrawnFault:
    base = [
        "problem.task=ring", "model.kind=gan", f"model.width={int(log_uniform(random, 48, 96))}", "problem.batch_size=128",
        f"optimizer.lr={log_uniform(random, 0.03, 0.1)}", "run.steps=800",
    ]  # fmt: skip
    return DrawnFault(base, ())


def _gradient_noise(random: Random) -> DrawnFault:
    return _as([*stack(random, 3), *trained_by(random)], f"gradients.noise_std={log_uniform(random, 1e-4, 1e-2)}")


def _always_clipped(random: Random) -> DrawnFault:
    base = [*stack(random, 3), *trained_by(random, "adam", "adamw", "rmsprop")]
    return _as(base, "clipping.kind=norm", f"clipping.max_norm={log_uniform(random, 1e-3, 0.1)}")


def _fully_learned(random: Random) -> DrawnFault:
    """Long after the training set is known by heart: a loss near 0, tiny gradients, and no progress."""
    base = [*stack(random, 3), *trained_by(random, "sgd", "adam"), "run.steps=200"]
    return _as(base, "run.steps=900")


def _falls_to_zero(random: Random) -> DrawnFault:
    steps = int(one_of(random, 150, 200))
    base = [*stack(random, 3), *trained_by(random), f"run.steps={2 * steps}"]
    return _as(base, f"schedule.kind={one_of(random, 'cosine', 'linear')}", f"schedule.total_steps={steps}")


def _half_dead(random: Random) -> DrawnFault:
    base = [*plain(random, "relu", 2, 4, "he"), *trained_by(random)]
    return _as(base, f"model.initial_bias={-log_uniform(random, 0.1, 0.6):.3g}")


def _changed(random: Random) -> DrawnFault:
    """Knobs that somebody turns in a run that does well."""
    base, step = [*small_batches(random), *trained_by(random)], int(random.integers(60, 140))
    lr = lr_of(base)
    turns = (
        (f"optimizer.lr={lr / 10:.3g}",),
        (f"optimizer.lr={lr * 2:.3g}",),
        ("clipping.kind=norm", f"clipping.max_norm={log_uniform(random, 0.1, 1)}"),
        ("accumulation.steps=4",),
        ("precision.dtype=bf16",),
        ("precision.dtype=fp16",),
        ("schedule.kind=cosine", "schedule.total_steps=250"),
        (f"problem.skip_batches={random.integers(1, 20)}",),
        (f"loss.weight={log_uniform(random, 0.3, 3)}",),
    )
    return DrawnFault(base, (changes_at(step, *turns[int(random.integers(len(turns)))]),))


def _mended(random: Random) -> DrawnFault:
    """A step too high for a while, taken back in time: the run has come back from it."""
    base = [*stack(random, 3), *trained_by(random, "sgd"), "run.steps=300"]
    step, lr = int(random.integers(50, 80)), lr_of(base)
    up = changes_at(step, f"optimizer.lr={lr * log_uniform(random, 5, 30):.3g}")
    return DrawnFault(base, (up, changes_at(step + int(random.integers(2, 15)), f"optimizer.lr={lr:.3g}")))


def _other(random: Random) -> DrawnFault:
    base = other_task(random)
    return _as(base, "clipping.kind=norm", f"clipping.max_norm={log_uniform(random, 0.1, 1)}")


_DRAWS: dict[str, Callable[[Random], DrawnFault]] = {
    "any": _any,
    "other tasks, clipped": _other,
    "large norms": _large_norms,
    "raw inputs": _raw_inputs,
    "momentum oscillation": _oscillation,
    "edge of stability": _edge,
    "noisy labels": _noisy_labels,
    "noisy inputs": _noisy_inputs,
    "growing rewards": _rewards,
    "spikes that clipping held": _held_spikes,
    "outliers under layer norm": _normed_outliers,
    "long warmup": _long_warmup,
    "weight decay": _decay,
    "scaler that finds its scale": _scale_found,
    "GAN at a low rate": _slow_game,
    "gradient noise, little": _gradient_noise,
    "always clipped, Adam": _always_clipped,
    "learned by heart": _fully_learned,
    "rate falls to 0": _falls_to_zero,
    "biases below 0": _half_dead,
    "knobs turned": _changed,
    "rate too high for a while": _mended,
}

KINDS = tuple(Kind("healthy", name, draw, healthy=True) for name, draw in _DRAWS.items())
