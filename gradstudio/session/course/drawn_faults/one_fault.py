"""One fault from the start: the rate, the initial weights, the number format, the clipping, the order of the calls."""

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
    rate,
    small_batches,
    stack,
    trained_by,
)
from gradstudio.session.course.drawn_faults.kinds import DrawnFault, Kind, Part

Draw = Callable[[Random], tuple[Texts, Texts]]  # the healthy run, and the fault


def _rate_too_high(random: Random) -> tuple[Texts, Texts]:
    kind = str(one_of(random, "sgd", "adam", "adamw"))
    lr = rate(random, kind)
    return [*stack(random), f"optimizer.kind={kind}", f"optimizer.lr={lr}"], [
        f"optimizer.lr={lr * log_uniform(random, 30, 1000):.3g}"
    ]


def _rate_too_low(random: Random) -> tuple[Texts, Texts]:
    texts = [*stack(random), *trained_by(random, "sgd", "adam")]
    return texts, [f"optimizer.lr={lr_of(texts) * log_uniform(random, 1e-6, 3e-4):.3g}"]


def _decay_too_strong(random: Random) -> tuple[Texts, Texts]:
    """SGD and AdamW subtract a share of the weights at each step; Adam and RMSprop add it to the gradient."""
    texts = [*stack(random, 3), *trained_by(random)]
    direct = "optimizer.kind=sgd" in texts or "optimizer.kind=adamw" in texts
    decay = min(log_uniform(random, 0.02, 0.6) / lr_of(texts), 1000) if direct else log_uniform(random, 1, 30)
    return texts, [f"optimizer.weight_decay={decay:.3g}"]


def _drawn_too_large(random: Random) -> tuple[Texts, Texts]:
    deep = plain(random, str(one_of(random, "relu", "leaky_relu", "gelu")), 5, 14, "he")
    return [*deep, "optimizer.momentum=0.9", f"optimizer.lr={log_uniform(random, 0.003, 0.01)}"], [
        f"model.init_gain={log_uniform(random, 2, 6)}"
    ]


def _drawn_too_small(random: Random) -> tuple[Texts, Texts]:
    deep = plain(random, str(one_of(random, "relu", "leaky_relu")), 6, 14, "he")
    return [*deep, "optimizer.momentum=0.9", f"optimizer.lr={log_uniform(random, 0.003, 0.01)}"], [
        f"model.init_gain={log_uniform(random, 0.1, 0.5)}"
    ]


def _drawn_as_zero(random: Random) -> tuple[Texts, Texts]:
    return [*plain(random, str(one_of(random, "relu", "tanh", "gelu")), 2, 4, "xavier"), *trained_by(random)], [
        "model.init=zeros"
    ]


def _deep_sigmoid(random: Random) -> tuple[Texts, Texts]:
    deep = plain(random, "tanh", 8, 20, "xavier")
    return [*deep, "optimizer.momentum=0.9", f"optimizer.lr={log_uniform(random, 0.003, 0.01)}"], [
        "model.activation=sigmoid"
    ]


def _deep_default(random: Random) -> tuple[Texts, Texts]:
    deep = plain(random, "relu", 12, 22, "he")
    return [*deep, "optimizer.momentum=0.9", f"optimizer.lr={log_uniform(random, 0.003, 0.01)}"], ["model.init=default"]


def _units_born_dead(random: Random) -> tuple[Texts, Texts]:
    return [*plain(random, "relu", 2, 5, "he"), *trained_by(random, "sgd")], [
        f"model.initial_bias={-log_uniform(random, 3, 8):.3g}"
    ]


def _inputs_saturate(random: Random) -> tuple[Texts, Texts]:
    hidden = plain(random, str(one_of(random, "tanh", "sigmoid")), 1, 2, "xavier")
    return [*hidden, "optimizer.kind=sgd", f"optimizer.lr={log_uniform(random, 0.05, 0.3)}"], [
        f"model.init_gain={log_uniform(random, 20, 100)}"
    ]


def _recurrent_explosion(random: Random) -> tuple[Texts, Texts]:
    base = (
        "problem.task=sequential_digits problem.seq_len=32 problem.scaling=unit model.kind=rnn model.depth=1 "
        f"model.width={int(log_uniform(random, 32, 80))} model.init=orthogonal "
        f"model.init_gain={random.uniform(1.0, 1.1):.3g} optimizer.lr={log_uniform(random, 0.15, 0.3)} "
        "run.steps=400"
    ).split()
    return [*base, "clipping.kind=norm", "clipping.max_norm=0.5"], [
        "clipping.kind=none",
        f"model.init_gain={random.uniform(1.15, 1.4):.3g}",
    ]


def _outliers(random: Random, often: int, seldom: int) -> Texts:
    every = random.integers(often, seldom)
    return [f"problem.outlier_every={every}", f"problem.outlier_scale={log_uniform(random, 1e3, 1e5)}"]


def _outlier(random: Random) -> tuple[Texts, Texts]:
    hidden = plain(random, str(one_of(random, "relu", "leaky_relu", "gelu")), 1, 3, "he")
    base = [*hidden, "optimizer.kind=sgd", f"optimizer.lr={log_uniform(random, 0.05, 0.2)}"]
    return base, _outliers(random, 60, 120)


def _naive_loss(random: Random) -> tuple[Texts, Texts]:
    kind = str(one_of(random, "naive_log", "naive_sqrt", "naive_exp", "naive_variance"))
    base = (
        f"model.kind=mlp model.depth={random.integers(1, 3)} model.width={int(log_uniform(random, 48, 128))} "
        "run.steps=300 problem.batch_size=64"
    ).split()
    optimizer = {
        "naive_log": ["optimizer.kind=adam", "optimizer.lr=0.01"],
        "naive_sqrt": ["optimizer.lr=0.1"],
        "naive_exp": ["optimizer.lr=0.1"],
    }.get(kind, ["optimizer.kind=adam", "optimizer.lr=0.003"])
    more = ["problem.scaling=raw", "problem.input_scale=16", "model.init=he"] if kind == "naive_exp" else []
    return [*base, *optimizer], [f"loss.kind={kind}", *more]


def _fp16_underflow(random: Random) -> tuple[Texts, Texts]:
    return [*stack(random, 3), *trained_by(random, "adam"), "precision.dtype=fp16"], [
        "precision.scaling=none",
        f"loss.weight={log_uniform(random, 1e-8, 1e-6)}",
    ]


def _fp16_scale(random: Random) -> tuple[Texts, Texts]:
    return [*stack(random, 3), *trained_by(random), "precision.dtype=fp16"], [
        "precision.scaling=static",
        f"precision.init_scale={log_uniform(random, 1e8, 1e11)}",
    ]


def _fp16_forward(random: Random) -> tuple[Texts, Texts]:
    return [*plain(random, "relu", 1, 3, "he"), *trained_by(random), "precision.dtype=fp16"], [
        "problem.scaling=raw",
        f"problem.input_scale={log_uniform(random, 4e3, 1e6)}",
    ]


def _clip_too_low(random: Random) -> tuple[Texts, Texts]:
    return [*stack(random, 3), *trained_by(random, "sgd"), "clipping.kind=norm"], [
        f"clipping.max_norm={log_uniform(random, 1e-4, 1e-2)}"
    ]


def _mistake(name: str, *needs: str, kinds: tuple[str, ...] = ("sgd", "adam")) -> Draw:
    def draw(random: Random) -> tuple[Texts, Texts]:
        more = [need.format(n=one_of(random, 2, 4, 8), limit=log_uniform(random, 0.1, 1.0)) for need in needs]
        return [*small_batches(random), *trained_by(random, *kinds), *more], [f"mistakes.{name}=true"]

    return draw


def _gan(random: Random) -> tuple[Texts, Texts]:
    base = (
        f"problem.task=ring model.kind=gan model.width={int(log_uniform(random, 48, 96))} problem.batch_size=128 "
        f"optimizer.lr={random.uniform(0.4, 0.6):.3g} run.steps=800"
    ).split()
    return [*base, "clipping.kind=norm", "clipping.max_norm=0.1"], ["clipping.kind=none"]


def _pole(random: Random) -> tuple[Texts, Texts]:
    base = (
        "problem.task=pole model.kind=policy problem.seq_len=200 problem.batch_size=8 model.depth=1 "
        f"model.activation=tanh model.width={int(log_uniform(random, 16, 48))} optimizer.lr=0.1 run.steps=120"
    ).split()
    return [*base, "clipping.kind=norm", "clipping.max_norm=0.5"], [
        "clipping.kind=none",
        f"optimizer.lr={log_uniform(random, 0.1, 0.4)}",
    ]


def _post_norm(random: Random) -> tuple[Texts, Texts]:
    base = (
        "problem.task=sequential_digits problem.seq_len=8 model.kind=transformer "
        f"model.depth={random.integers(5, 9)} model.width=48 optimizer.kind=adam run.steps=150"
    ).split()
    return [*base, "optimizer.lr=0.002"], [
        "model.norm_position=post",
        f"optimizer.lr={log_uniform(random, 0.005, 0.02)}",
    ]


def _rmsprop_too_high(random: Random) -> tuple[Texts, Texts]:
    lr = rate(random, "rmsprop")
    return [*stack(random), "optimizer.kind=rmsprop", f"optimizer.lr={lr}"], [
        f"optimizer.lr={lr * log_uniform(random, 30, 1000):.3g}"
    ]


def _other_too_high(random: Random) -> tuple[Texts, Texts]:
    base = other_task(random)
    return base, [f"optimizer.lr={lr_of(base) * log_uniform(random, 30, 1000):.3g}"]


def _other_too_low(random: Random) -> tuple[Texts, Texts]:
    base = other_task(random)
    return base, [f"optimizer.lr={lr_of(base) * log_uniform(random, 1e-6, 3e-4):.3g}"]


def _outlier_elsewhere(random: Random) -> tuple[Texts, Texts]:
    hidden = plain(random, str(one_of(random, "relu", "gelu", "silu")), 1, 3, "he")
    return [*hidden, *trained_by(random, "adam", "adamw", "rmsprop")], _outliers(random, 60, 120)


def _poisoned_statistics(random: Random) -> tuple[Texts, Texts]:
    hidden = plain(random, "relu", 1, 3, "he")
    base = [*hidden, "model.norm=batch", f"optimizer.lr={log_uniform(random, 0.03, 0.2)}"]
    return base, _outliers(random, 20, 60)


def _otherwise_too_low(random: Random) -> tuple[Texts, Texts]:
    """Clipping of the other kinds, with SGD, which uses the shortened gradient as it is."""
    kind, knob, low, high = {
        "value": ("value", "clip_value", 1e-7, 1e-5),
        "per_tensor": ("per_tensor", "max_norm", 1e-5, 1e-3),
        "agc": ("agc", "agc_factor", 1e-6, 1e-4),
    }[str(one_of(random, "value", "per_tensor", "agc"))]
    return [*stack(random, 3), *trained_by(random, "sgd")], [
        f"clipping.kind={kind}", f"clipping.{knob}={log_uniform(random, low, high)}"
    ]  # fmt: skip


def _division(random: Random) -> tuple[Texts, Texts]:
    return [*plain(random, "relu", 1, 3, "he"), *trained_by(random)], ["loss.kind=naive_division"]


def _kind(name: str, draw: Draw, *named: str, silent: bool = False) -> Kind:
    def draw_one(random: Random) -> DrawnFault:
        base, change = draw(random)
        return DrawnFault(base, (Part(named, tuple(change), silent=silent),))

    return Kind("one fault", name, draw_one)


def _bug(name: str, draw: Draw, *named: str) -> Kind:
    return _kind(name, draw, *named, silent=True)


_MICRO = "accumulation.steps={n}"
_LIMITED = ("clipping.kind=norm", "clipping.max_norm={limit}")
_TOO_LARGE = ("update_ratio_high", "exploding_gradient", "dead_units")  # which it kills, if they are relus

KINDS = (
    _kind("rate too high", _rate_too_high, *_TOO_LARGE),
    _kind("rate too high, RMSprop", _rmsprop_too_high, *_TOO_LARGE),
    _kind("rate too high, other tasks", _other_too_high, *_TOO_LARGE),
    _kind("rate too low", _rate_too_low, "update_ratio_low"),
    _kind("rate too low, other tasks", _other_too_low, "update_ratio_low"),
    _kind("weight decay too strong", _decay_too_strong, "weight_decay_high"),
    _kind("drawn too large", _drawn_too_large, "poor_initialization"),
    _kind("drawn too small", _drawn_too_small, "poor_initialization"),
    _kind("drawn as zero", _drawn_as_zero, "poor_initialization"),
    _kind("deep sigmoid", _deep_sigmoid, "vanishing_gradient"),
    _kind("deep, torch's own init", _deep_default, "vanishing_gradient", "poor_initialization", "signal_lost"),
    _kind("units born dead", _units_born_dead, "dead_units"),
    _kind("saturated", _inputs_saturate, "saturated_activation"),
    _kind("recurrent explosion", _recurrent_explosion, "exploding_gradient"),
    _kind("outlier batch", _outlier, "exploding_gradient", "loss_spike"),
    _kind("outlier batch, not SGD", _outlier_elsewhere, "exploding_gradient", "loss_spike", "updates_after_spike"),
    _kind("batch statistics poisoned", _poisoned_statistics, "nothing_learned", "test_gap", "loss_spike"),
    _kind("NaN of the loss itself", _naive_loss, "nonfinite_loss", "nonfinite_gradient"),
    _kind("0 / 0 in the loss", _division, "nonfinite_loss", "nonfinite_gradient"),
    _kind("fp16 underflow", _fp16_underflow, "fp16_underflow"),
    _kind("fp16, scale too high", _fp16_scale, "fp16_overflow"),
    _kind("fp16, forward overflow", _fp16_forward, "fp16_overflow", "scale_collapse"),
    _kind("clipped too low", _clip_too_low, "clipping_always"),
    _kind("clipped too low, other clipping", _otherwise_too_low, "clipping_always"),
    _bug("not divided", _mistake("unscaled_accumulation", _MICRO), "accumulation_mismatch"),
    _bug("cleared too often", _mistake("zero_grad_each_micro_batch", _MICRO), "accumulation_mismatch", "loop_order"),
    _bug("micro-batches dropped", _mistake("drop_last_micro_batches", _MICRO), "accumulation_mismatch", "loop_order"),
    _bug("never cleared", _mistake("never_zero_grad", kinds=("sgd",)), "loop_order"),
    _bug("never cleared, not SGD", _mistake("never_zero_grad", kinds=("adam", "adamw", "rmsprop")), "loop_order"),
    _bug("clip before unscale", _mistake("clip_before_unscale", "precision.dtype=fp16", *_LIMITED),
         "clip_on_scaled_gradients", "loop_order"),
    _bug("clip after step", _mistake("clip_after_step", *_LIMITED), "clip_without_effect", "loop_order"),
    _bug("clip each micro-batch", _mistake("clip_each_micro_batch", _MICRO, *_LIMITED),
         "loop_order", "accumulation_mismatch", "clip_without_effect"),
    _bug("schedule too fast",
         _mistake("scheduler_each_micro_batch", _MICRO, "schedule.kind=cosine", "schedule.total_steps=300"),
         "loop_order"),
    _bug("step around the scaler", _mistake("step_without_scaler", "precision.dtype=fp16"), "loop_order"),
    _kind("GAN runs away", _gan, "exploding_gradient", "update_ratio_high"),
    _kind("policy runs away", _pole, "update_ratio_high", "exploding_gradient"),
    _kind("post-norm, no warmup", _post_norm, "vanishing_gradient", "update_ratio_high", "signal_lost"),
)  # fmt: skip
