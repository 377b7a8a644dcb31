"""The knobs of a training loop: clipping, accumulation, precision, schedule, optimizer, gradients, and mistakes."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator

from gradstudio.core.knobs import Section, knob, of_today


class Clipping(Section):
    kind: Literal[
        "none", "norm", "value", "agc", "per_tensor", "per_module", "per_network", "zclip", "adagc", "per_example"
    ] = knob(
        "none", "How gradients are clipped before the optimizer sees them. norm: scale all of them together, which "
        "keeps their direction. value: cut every entry. agc: limit each unit relative to its weights. per_tensor: "
        "scale each tensor by itself, a layer's weight apart from its bias. per_module: weight and bias together, and "
        "all of an attention. per_network: generator and discriminator of a gan by themselves. zclip: scale down a "
        "norm far above its running mean (Kumar 2025). adagc: keep each tensor near the running mean of its norms "
        "(Wang 2025). per_example: each example by itself, before they are averaged, with micro-batches of one "
        "example; noise_std then adds noise to what is left (DP-SGD, Abadi 2016).",
    )
    max_norm: float = knob(
        1.0, "Largest gradient norm that reaches the optimizer (per_tensor, per_module, per_network, per_example: norm "
        "of each of these; adagc: of the whole gradient in its first 100 steps). Larger ones are scaled down to it.",
        gt=0, le=1e30, slider=(1e-2, 1e2), logarithmic=True,
        when={"clipping.kind": ("norm", "per_tensor", "per_module", "per_network", "adagc", "per_example")},
    )
    clip_value: float = knob(
        0.5, "Largest absolute value of a gradient entry. Larger ones are cut, which changes the direction of the "
        "gradient.",
        gt=0, le=1e30, slider=(1e-3, 1e1), logarithmic=True, when={"clipping.kind": ("value",)},
    )
    agc_factor: float = knob(
        0.01, "Largest gradient norm of a unit, as a share of the norm of its weights (Brock 2021). The output layer "
        "is not clipped.",
        gt=0, le=1e6, slider=(1e-3, 1.0), logarithmic=True, when={"clipping.kind": ("agc",)},
    )
    zclip_deviations: float = knob(
        2.5, "Deviations d above the running mean from which a norm is scaled down: with z deviations, to mean + d^2 "
        "/ z deviations. Means have a decay of 0.97; the first 25 steps are only measured.",
        gt=0, le=1e6, slider=(1.0, 10.0), when={"clipping.kind": ("zclip",)},
    )
    adagc_factor: float = knob(
        1.05, "Largest gradient norm of a tensor, as a multiple of the running mean of its clipped norms, whose decay "
        "is 0.98. In the first 100 steps the gradient is clipped by norm.",
        gt=0, le=1e6, slider=(1.0, 4.0), when={"clipping.kind": ("adagc",)},
    )
    on_spike: Literal["none", "skip", "rewind"] = knob(
        "none", "What is done where the gradient norm stands far above its running median. skip: the update is left "
        "out (OLMo 2). rewind: weights and optimizer go back at most 8 steps too, and the batches go on (PaLM).",
        group="Loss spikes",
    )
    spike_deviations: float = knob(
        6.0, "Deviations above the median of the last 128 gradient norms, from which a norm is a spike. A deviation "
        "is 1.48 times the median distance from the median, and at least 5 % of it. It takes 20 norms.",
        gt=0, le=1e6, slider=(2.0, 20.0), when={"clipping.on_spike": ("skip", "rewind")}, group="Loss spikes",
    )
    qk_clip: float = knob(
        0.0, "Limit t on the attention logits of each head. Where the largest logit s that the passes of a step have "
        "seen is above t, the weights and biases of the head's queries and keys are multiplied by sqrt(t / s) after "
        "the update (QK-clip, Kimi K2 2025, with t = 100), so that this logit would be t. Logits far below 0 stay. 0: "
        "off.",
        ge=0, le=1e6, slider=(1.0, 1000.0), logarithmic=True, group="Attention",
        when={"model.kind": ("transformer",), "model.qk_norm": (False,), "distributed.ranks": (1,)},
    )

    @field_validator("kind", mode="before")
    @classmethod
    def _by_its_present_name(cls, kind: object) -> object:
        return of_today("clipping.kind", kind) if isinstance(kind, str) else kind


class Accumulation(Section):
    steps: int = knob(
        1, "Number of micro-batches whose gradients are averaged before one optimizer step.",
        ge=1, le=256, slider=(1, 32),
    )


class Precision(Section):
    dtype: Literal["fp32", "bf16", "fp16"] = knob(
        "fp32", "Number format of the forward and backward pass under autocast. fp16 has three limits: above 65,504 a "
        "number becomes Inf, below 6.1e-5 it loses digits, and below 3e-8 it becomes 0.",
    )
    weights: Literal["fp32", "bf16", "bf16_stochastic"] = knob(
        "fp32", "Number format that the weights are kept in. bf16: 8 significant bits, rounded to the nearest after "
        "every update, so that an update below 1/512 of its weight is lost (Zamirai 2020). bf16_stochastic: rounded "
        "up or down by chance, so that their mean is right (Gupta 2015). The optimizer's state stays fp32.",
        live=False,
    )
    scaling: Literal["dynamic", "static", "none"] = knob(
        "dynamic", "Multiplies the loss so that small fp16 gradients do not underflow. dynamic: torch's GradScaler. "
        "static: a fixed factor without any check. none: no scaling.",
        when={"precision.dtype": ("fp16",)},
    )
    init_scale: float = knob(
        65536.0, "Loss scale at the first step.",
        live=False, ge=1e-30, le=1e38, slider=(1.0, 2.0**32), logarithmic=True,
        when={"precision.dtype": ("fp16",), "precision.scaling": ("dynamic", "static")},
    )
    growth_factor: float = knob(
        2.0, "Factor on the loss scale after growth_interval steps without overflow.",
        live=False, gt=1, le=1e6, when={"precision.dtype": ("fp16",), "precision.scaling": ("dynamic",)},
    )
    backoff_factor: float = knob(
        0.5, "Factor on the loss scale at an overflow.",
        live=False, gt=0, le=0.999999, when={"precision.dtype": ("fp16",), "precision.scaling": ("dynamic",)},
    )
    growth_interval: int = knob(
        2000, "Steps without overflow before the loss scale grows.",
        ge=1, le=1_000_000, unit="steps", when={"precision.dtype": ("fp16",), "precision.scaling": ("dynamic",)},
    )


class Schedule(Section):
    warmup_steps: int = knob(
        0, "Steps over which the learning rate rises linearly from near 0 to lr. A falling schedule begins after "
        "them, so the largest rate is lr.",
        ge=0, le=1_000_000, unit="steps", slider=(0, 1000),
    )
    kind: Literal["constant", "cosine", "linear", "exponential", "one_cycle", "wsd"] = knob(
        "constant", "Course of the learning rate after the warmup: constant, or falling until total_steps: to 0 "
        "(cosine, linear) or to a hundredth of lr, by the same factor at every step (exponential). one_cycle: from "
        "lr/25 up to lr in 30 % of the steps, then down to lr/250,000 (Smith 2018); it brings its own rise, so leave "
        "warmup_steps at 0. wsd: lr for 80 % of the steps after the warmup, and then linearly to 0 (warmup, stable, "
        "decay: Hu 2024).",
    )
    total_steps: int = knob(
        1000, "Step at which the schedule ends; from there on the learning rate stays as it is.",
        ge=1, le=10_000_000, unit="steps",
        when={"schedule.kind": ("cosine", "linear", "exponential", "one_cycle", "wsd")},
    )


class Optimizer(Section):
    kind: Literal["sgd", "adam", "adamw", "rmsprop", "lion", "muon", "stable_adamw", "schedule_free"] = knob(
        "sgd", "The rule that turns gradients into updates of the weights. lion: w - lr sign(beta1 m + (1 - beta1) "
        "g), then m = beta2 m + (1 - beta2) g, so every entry moves by lr (Chen 2023). muon: the momentum of each "
        "matrix but the first and last, m = beta1 m + (1 - beta1) g with Nesterov's look ahead, is brought to "
        "singular values near 1 before it moves the weights by lr sqrt(max(1, rows / columns)) (Jordan 2024); AdamW "
        "trains the rest. stable_adamw: adamw, and the step of a tensor is divided by the root mean square of its g / "
        "sqrt(v) where that is above 1, as it is where v lags behind a sudden large gradient (Wortsman 2023). "
        "schedule_free: adamw without momentum moves z; the gradient is taken at y = (1 - beta1) z + beta1 x, and the "
        "mean x of all z is tested, so no schedule is needed (Defazio 2024).",
        live=False,
    )
    lr: float = knob(
        0.1, "Learning rate: factor on every update of the weights.",
        ge=0, le=1e6, slider=(1e-5, 10.0), logarithmic=True,
    )
    discriminator_factor: float = knob(
        1.0, "Factor on the learning rate of the discriminator. Above 1 it keeps up with the generator: two time "
        "scales (Heusel 2017).",
        ge=0, le=1e6, slider=(0.1, 10.0), logarithmic=True, when={"model.kind": ("gan",)},
    )
    momentum: float = knob(
        0.0, "Decay of the running sum v of gradients: v = momentum v + g, and the weights move by lr v (Polyak 1964, "
        "in torch's form).",
        ge=0, le=1, slider=(0.0, 0.99), when={"optimizer.kind": ("sgd", "rmsprop")},
    )
    beta1: float = knob(
        0.9, "Decay of the running mean of gradients, of Muon too (often 0.95 there).",
        ge=0, le=0.999999, slider=(0.0, 0.99),
        when={"optimizer.kind": ("adam", "adamw", "lion", "muon", "stable_adamw", "schedule_free")},
    )
    beta2: float = knob(
        0.999, "Decay of the running mean of squared gradients; of Lion that of its mean of gradients (often 0.99 "
        "there).",
        ge=0, le=0.9999999, slider=(0.8, 0.999),
        when={"optimizer.kind": ("adam", "adamw", "lion", "muon", "stable_adamw", "schedule_free")},
    )
    eps: float = knob(
        1e-8, "Added to the root of the mean squared gradient, so that the denominator is never 0.",
        ge=0, le=1, slider=(1e-10, 1e-1), logarithmic=True,
        when={"optimizer.kind": ("adam", "adamw", "rmsprop", "muon", "stable_adamw", "schedule_free")},
    )
    adamw_lr: float = knob(
        0.001, "Learning rate of AdamW for what Muon does not train: the first and the last matrix, biases and norms.",
        ge=0, le=1e6, slider=(1e-5, 0.1), logarithmic=True, when={"optimizer.kind": ("muon",)},
    )
    weight_decay: float = knob(
        0.0, "Pull of the weights towards 0. sgd, adamw, lion, muon, stable_adamw: each step takes lr x weight_decay "
        "of the weights away (sgd through its momentum). adam, rmsprop: weight_decay x weights is added to the "
        "gradient (L2) and rescaled with it, so the pull is weak where gradients are large (Loshchilov 2019).",
        ge=0, le=1e3, slider=(0.0, 0.1),
    )
    sam_rho: float = knob(
        0.0, "Sharpness-aware minimization (Foret 2021): how far along its gradient g the weights are moved, to w + "
        "rho g / |g|, before the gradient is taken that updates w. It takes two passes a step: loss and accuracy are "
        "those of the first, at w; every gradient norm is that of the second, at the moved weights. 0: off; often "
        "0.05.",
        ge=0, le=1e3, slider=(0.0, 0.5),
    )


class Gradients(Section):
    centralize: bool = knob(False, "Subtract from each unit's gradient its mean over the inputs (Yong 2020).")
    noise_std: float = knob(
        0.0, "Standard deviation of the Gaussian noise that is added to every gradient entry.",
        ge=0, le=1e6, slider=(0.0, 0.1),
    )


class Mistakes(Section):
    clip_after_step: bool = knob(False, "Clip after the optimizer's step: clipping has no effect.")
    clip_before_backward: bool = knob(
        False, "Clip right after zero_grad, before the backward pass: there is nothing to clip yet.",
    )
    clip_before_unscale: bool = knob(
        False, "Clip gradients that still carry the loss scale: almost nothing of them is left.",
    )
    unscale_twice: bool = knob(False, "Call unscale_ twice in a step: torch raises an error, which ends the run.")
    step_without_scaler: bool = knob(
        False, "Call optimizer.step() instead of scaler.step(): overflowed gradients reach the weights.",
    )
    never_update_scaler: bool = knob(
        False, "Forget scaler.update() after scaler.step(): torch raises an error at the next step, which ends the "
        "run.",
    )
    clip_each_micro_batch: bool = knob(False, "Clip after every backward pass instead of once, on the sum.")
    unscaled_accumulation: bool = knob(False, "Forget to divide the loss by the number of micro-batches.")
    divide_each_micro_batch: bool = knob(
        False, "Divide the gradients by the number of micro-batches after every backward pass, instead of the loss: "
        "those of earlier micro-batches are divided again and again.",
    )
    normalize_each_micro_batch: bool = knob(
        False, "Divide the weighted loss of each micro-batch by the weight of its own examples, as F.cross_entropy "
        "does, instead of by that of all micro-batches: the class weights cancel, with one example a micro-batch "
        "wholly.",
    )
    zero_grad_each_micro_batch: bool = knob(
        False, "Clear the gradients before every backward pass: all micro-batches but the last are lost.",
    )
    never_zero_grad: bool = knob(False, "Forget to clear the gradients: every step adds to those before it.")
    scheduler_each_micro_batch: bool = knob(False, "Advance the schedule at every micro-batch instead of every step.")
    drop_last_micro_batches: bool = knob(
        False, "Leave out the second half of the micro-batches, but divide by the number of all.",
    )

    @property
    def clips_elsewhere(self) -> bool:
        """Whether a mistake clips in place of the correct call."""
        return (
            self.clip_each_micro_batch or self.clip_before_backward or self.clip_before_unscale or self.clip_after_step
        )
