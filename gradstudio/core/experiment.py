"""Every knob of the program, declared once: default, help, range. An Experiment has one value for each."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from gradstudio.core import combinations, ranks_allowed
from gradstudio.core.knobs import Knob, KnobError, Section, Value, format_value, knob, read_knobs
from gradstudio.core.studio_file import SECTION, StudioFile
from gradstudio.core.text import LONGEST_LINE

# Models whose layers use the activation, norms and residuals set by knobs; the others bring their own.
LAYERED = ("mlp", "rnn", "cnn", "gan", "policy")
# Models that model.parametrization acts on.
WITH_MUP = ("mlp", "rnn", "lstm", "gru", "cnn", "transformer", "policy")
# Values that had another name in older versions, with the same meaning.
RENAMED: Mapping[tuple[str, Value], Value] = {("clipping.kind", "per_layer"): "per_tensor"}


def of_today(name: str, value: Value) -> Value:
    """Return the value of a knob under its current name."""
    return RENAMED.get((name, value), value)


class Clipping(Section):
    kind: Literal["none", "norm", "value", "agc", "per_tensor", "per_module", "per_network", "zclip", "adagc"] = knob(
        "none",
        "How gradients are clipped before the optimizer sees them. norm: scale all of them together, which keeps their "
        "direction. value: cut every entry. agc: limit each unit relative to its weights. per_tensor: scale each "
        "tensor by itself, a layer's weight apart from its bias. per_module: weight and bias together, and all of an "
        "attention. per_network: generator and discriminator of a gan by themselves. zclip: scale down a norm far "
        "above its running mean (Kumar 2025). adagc: keep each tensor near the running mean of its norms (Wang 2025).",
    )
    max_norm: float = knob(
        1.0, "Largest gradient norm that reaches the optimizer (per_tensor, per_module, per_network: norm of each of "
        "these; adagc: of the whole gradient in its first 100 steps). Larger ones are scaled down to it.",
        gt=0, le=1e30, slider=(1e-2, 1e2), logarithmic=True, 
        when={"clipping.kind": ("norm", "per_tensor", "per_module", "per_network", "adagc")},
    )  # fmt: skip
    clip_value: float = knob(
        0.5, "Largest absolute value of a gradient entry. Larger ones are cut, which changes the direction of the "
        "gradient.",
        gt=0, le=1e30, slider=(1e-3, 1e1), logarithmic=True, when={"clipping.kind": ("value",)},
    )  # fmt: skip
    agc_factor: float = knob(
        0.01,
        "Largest gradient norm of a unit, as a share of the norm of its weights (Brock 2021). The output layer is not "
            "clipped.",
        gt=0, le=1e6, slider=(1e-3, 1.0), logarithmic=True, when={"clipping.kind": ("agc",)},
    )  # fmt: skip
    zclip_deviations: float = knob(
        2.5,
        "Deviations d above the running mean from which a norm is scaled down: with z deviations, to mean + d^2 / z "
        "deviations. Means have a decay of 0.97; the first 25 steps are only measured.",
        gt=0, le=1e6, slider=(1.0, 10.0), when={"clipping.kind": ("zclip",)},
    )  # fmt: skip
    adagc_factor: float = knob(
        1.05,
        "Largest gradient norm of a tensor, as a multiple of the running mean of its clipped norms, whose decay is "
        "0.98. In the first 100 steps the gradient is clipped by norm.",
        gt=0, le=1e6, slider=(1.0, 4.0), when={"clipping.kind": ("adagc",)},
    )  # fmt: skip
    on_spike: Literal["none", "skip", "rewind"] = knob(
        "none",
        "What is done where the gradient norm stands far above its running median. skip: the update is left out "
        "(OLMo 2). rewind: weights and optimizer go back at most 8 steps too, and the batches go on (PaLM).",
        group="Loss spikes",
    )
    spike_deviations: float = knob(
        6.0, "Deviations above the median of the last 128 gradient norms, from which a norm is a spike. A deviation is "
        "1.48 times the median distance from the median, and at least 5 % of it. It takes 20 norms.",
        gt=0, le=1e6, slider=(2.0, 20.0), when={"clipping.on_spike": ("skip", "rewind")}, group="Loss spikes",
    )  # fmt: skip

    @field_validator("kind", mode="before")
    @classmethod
    def _by_its_present_name(cls, kind: object) -> object:
        return of_today("clipping.kind", kind) if isinstance(kind, str) else kind


class Accumulation(Section):
    steps: int = knob(
        1,
        "Number of micro-batches whose gradients are averaged before one optimizer step.",
        ge=1,
        le=256,
        slider=(1, 32),
    )


class Precision(Section):
    dtype: Literal["fp32", "bf16", "fp16"] = knob(
        "fp32",
        "Number format of the forward and backward pass under autocast. fp16 has three limits: above 65,504 a number "
        "becomes Inf, below 6.1e-5 it loses digits, and below 3e-8 it becomes 0.",
    )
    weights: Literal["fp32", "bf16", "bf16_stochastic"] = knob(
        "fp32",
        "Number format that the weights are kept in. bf16: 8 significant bits, rounded to the nearest after every "
        "update, so that an update below 1/512 of its weight is lost (Zamirai 2020). bf16_stochastic: rounded up or "
        "down by chance, so that their mean is right (Gupta 2015). The optimizer's state stays fp32.",
        live=False,
    )
    scaling: Literal["dynamic", "static", "none"] = knob(
        "dynamic",
        "Multiplies the loss so that small fp16 gradients do not underflow. dynamic: torch's GradScaler. static: a "
        "fixed factor without any check. none: no scaling.",
        when={"precision.dtype": ("fp16",)},
    )
    init_scale: float = knob(
        65536.0, "Loss scale at the first step.", live=False, ge=1e-30, le=1e38, slider=(1.0, 2.0**32),
        logarithmic=True, when={"precision.dtype": ("fp16",), "precision.scaling": ("dynamic", "static")},
    )  # fmt: skip
    growth_factor: float = knob(
        2.0, "Factor on the loss scale after growth_interval steps without overflow.", live=False, gt=1, le=1e6,
        when={"precision.dtype": ("fp16",), "precision.scaling": ("dynamic",)},
    )  # fmt: skip
    backoff_factor: float = knob(
        0.5, "Factor on the loss scale at an overflow.", live=False, gt=0, le=0.999999,
        when={"precision.dtype": ("fp16",), "precision.scaling": ("dynamic",)},
    )  # fmt: skip
    growth_interval: int = knob(
        2000, "Steps without overflow before the loss scale grows.", ge=1, le=1_000_000, unit="steps",
        when={"precision.dtype": ("fp16",), "precision.scaling": ("dynamic",)},
    )  # fmt: skip


class Schedule(Section):
    warmup_steps: int = knob(
        0,
        "Steps over which the learning rate rises linearly from near 0 to lr. A falling schedule begins after them, so "
        "the largest rate is lr.",
        ge=0,
        le=1_000_000,
        unit="steps",
        slider=(0, 1000),
    )
    kind: Literal["constant", "cosine", "linear", "exponential", "one_cycle", "wsd"] = knob(
        "constant",
        "Course of the learning rate after the warmup: constant, or falling until total_steps: to 0 (cosine, linear) "
        "or to a hundredth of lr, by the same factor at every step (exponential). one_cycle: from lr/25 up to lr in "
        "30 % of the steps, then down to lr/250,000 (Smith 2018); it brings its own rise, so leave warmup_steps at 0. "
        "wsd: lr for 80 % of the steps after the warmup, and then linearly to 0 (warmup, stable, decay: Hu 2024).",
    )
    total_steps: int = knob(
        1000,
        "Step at which the schedule ends; from there on the learning rate stays as it is.",
        ge=1,
        le=10_000_000,
        unit="steps",
        when={"schedule.kind": ("cosine", "linear", "exponential", "one_cycle", "wsd")},
    )


class Optimizer(Section):
    kind: Literal["sgd", "adam", "adamw", "rmsprop", "lion", "muon", "stable_adamw", "schedule_free"] = knob(
        "sgd",
        "The rule that turns gradients into updates of the weights. lion: w - lr sign(beta1 m + (1 - beta1) g), then m "
        "= beta2 m + (1 - beta2) g, so every entry moves by lr (Chen 2023). muon: the momentum of each matrix but the "
        "first and last, m = beta1 m + (1 - beta1) g with Nesterov's look ahead, is brought to singular values near 1 "
        "before it moves the weights by lr sqrt(max(1, rows / columns)) (Jordan 2024); AdamW trains the rest. "
        "stable_adamw: adamw, and the step of a tensor is divided by the root mean square of its g / sqrt(v) where "
        "that is above 1, as it is where v lags behind a sudden large gradient (Wortsman 2023). "
        "schedule_free: adamw without momentum moves z; the gradient is taken at y = (1 - beta1) z + beta1 x, and the "
        "mean x of all z is tested, so no schedule is needed (Defazio 2024).",
        live=False,
    )
    lr: float = knob(
        0.1,
        "Learning rate: factor on every update of the weights.",
        ge=0,
        le=1e6,
        slider=(1e-5, 10.0),
        logarithmic=True,
    )
    discriminator_factor: float = knob(
        1.0,
        "Factor on the learning rate of the discriminator. Above 1 it keeps up with the generator: two time scales "
        "(Heusel 2017).",
        ge=0, le=1e6, slider=(0.1, 10.0), logarithmic=True, when={"model.kind": ("gan",)},
    )  # fmt: skip
    momentum: float = knob(
        0.0,
        "Decay of the running sum v of gradients: v = momentum v + g, and the weights move by lr v (Polyak 1964, in "
        "torch's form).",
        ge=0,
        le=1,
        slider=(0.0, 0.99),
        when={"optimizer.kind": ("sgd", "rmsprop")},
    )
    beta1: float = knob(
        0.9,
        "Decay of the running mean of gradients, of Muon too (often 0.95 there).",
        ge=0,
        le=0.999999,
        slider=(0.0, 0.99),
        when={"optimizer.kind": ("adam", "adamw", "lion", "muon", "stable_adamw", "schedule_free")},
    )
    beta2: float = knob(
        0.999,
        "Decay of the running mean of squared gradients; of Lion that of its mean of gradients (often 0.99 there).",
        ge=0,
        le=0.9999999,
        slider=(0.8, 0.999),
        when={"optimizer.kind": ("adam", "adamw", "lion", "muon", "stable_adamw", "schedule_free")},
    )
    eps: float = knob(
        1e-8, "Added to the root of the mean squared gradient, so that the denominator is never 0.", ge=0, le=1,
        slider=(1e-10, 1e-1), logarithmic=True,
        when={"optimizer.kind": ("adam", "adamw", "rmsprop", "muon", "stable_adamw", "schedule_free")},
    )  # fmt: skip
    adamw_lr: float = knob(
        0.001,
        "Learning rate of AdamW for what Muon does not train: the first and the last matrix, biases and norms.",
        ge=0, le=1e6, slider=(1e-5, 0.1), logarithmic=True, when={"optimizer.kind": ("muon",)},
    )  # fmt: skip
    weight_decay: float = knob(
        0.0,
        "Pull of the weights towards 0. sgd, adamw, lion, muon, stable_adamw: each step takes lr x weight_decay of the "
        "weights away (sgd through its momentum). adam, rmsprop: weight_decay x weights is added to the gradient (L2) "
        "and rescaled with it, so the pull is weak where gradients are large (Loshchilov 2019).",
        ge=0,
        le=1e3,
        slider=(0.0, 0.1),
    )
    sam_rho: float = knob(
        0.0,
        "Sharpness-aware minimization (Foret 2021): how far along its gradient g the weights are moved, to w + rho "
        "g / |g|, before the gradient is taken that updates w. It takes two passes a step: loss and accuracy are those "
        "of the first, at w; every gradient norm is that of the second, at the moved weights. 0: off; often 0.05.",
        ge=0, le=1e3, slider=(0.0, 0.5),
    )  # fmt: skip


class Gradients(Section):
    centralize: bool = knob(False, "Subtract from each unit's gradient its mean over the inputs (Yong 2020).")
    noise_std: float = knob(
        0.0,
        "Standard deviation of the Gaussian noise that is added to every gradient entry.",
        ge=0,
        le=1e6,
        slider=(0.0, 0.1),
    )


_ACTING = {"problem.task": combinations.ACTING}


class Loss(Section):
    kind: Literal["auto", "naive_log", "naive_division", "naive_sqrt", "naive_exp", "naive_variance"] = knob(
        "auto",
        "auto: the stable loss that suits the task. The naive losses are written by hand, as people first write them. "
        "naive_log: the log of a probability that reaches 0. naive_division: a division by a prediction. naive_sqrt: a "
        "root at 0. naive_exp: a softmax whose exp overflows. naive_variance: the log of a variance that becomes "
        "negative. Their NaN is born in the loss or in its derivative, where clipping does not reach.",
        live=False,
    )
    eps: float = knob(
        0.0,
        "Added by a naive loss where it takes a log or a root, or divides; of naive_variance it is the least variance. "
        "1e-7 is enough for naive_log and naive_sqrt, 0.1 for naive_variance, 0.5 for naive_division; naive_exp "
        "overflows with any value.",
        ge=0, le=1, slider=(1e-12, 1.0), logarithmic=True, when={"loss.kind": tuple(combinations.LOSS_TASKS)},
    )  # fmt: skip
    z_loss: float = knob(
        0.0,
        "Factor on the mean square of log Z, which is added to the loss of classes. log Z is the log of the sum of "
        "exp(outputs) of an answer; drawn to 0, it keeps them from drifting off (PaLM: 1e-4, Chowdhery 2022).",
        ge=0, le=1e6, slider=(1e-6, 1.0), logarithmic=True,
        when={"problem.task": combinations.CLASSES, "loss.kind": ("auto",), "loss.class_weights": ("none",)},
    )  # fmt: skip
    class_weights: Literal["none", "balanced"] = knob(
        "none",
        "Weight of each example in the loss. balanced: N / (K n_c) for one of the n_c examples that its class has of N "
        "in all, with K classes. The loss of a batch is then sum(w l) / sum(w), as F.cross_entropy(weight=...) has it.",
        live=False, when={"loss.kind": ("auto",), "problem.task": combinations.LABELLED},
    )  # fmt: skip
    ratio_limit: float = knob(
        0.0,
        "Limit e on the ratio r = p(action) / p(action when it was drawn): the loss is -min(r A, clip(r, 1 - e, 1 + e) "
        "A), with the advantage A of the action, so that nothing is gained beyond it (PPO, Schulman 2017; GRPO, Shao "
        "2024). 0: no limit, -r A; often 0.2.",
        ge=0, le=100, slider=(0.0, 1.0), when=_ACTING, group="Policy",
    )  # fmt: skip
    kl_penalty: float = knob(
        0.0,
        "Factor b on KL(p_old, p), the sum of p_old log(p_old / p) over all actions, which is added to the loss: it "
        "holds the policy p near p_old, which drew the batch (Schulman 2017, section 4).",
        ge=0, le=1e6, slider=(0.0, 10.0), when=_ACTING, group="Policy",
    )  # fmt: skip
    entropy_bonus: float = knob(
        0.0,
        "Factor on the entropy of the policy, -sum of p log p, which is taken from the loss: it pays for trying all "
        "actions (Williams 1991; Schulman 2017).",
        ge=0, le=1e6, slider=(0.0, 1.0), when=_ACTING, group="Policy",
    )  # fmt: skip
    weight: float = knob(
        1.0,
        "Factor on the loss, as in a weighted sum of losses.",
        ge=0,
        le=1e30,
        slider=(1e-8, 1e4),
        logarithmic=True,
    )


class Model(Section):
    init: Literal["default", "xavier", "he", "orthogonal", "lsuv", "zeros", "normal"] = knob(
        "default",
        "How the weights of a layer of n_in inputs and n_out outputs are drawn before step 0. default: uniform within"
        " 1/sqrt(n_in), variance 1/(3 n_in) (torch.nn.Linear; recurrent: within 1/sqrt(width)). xavier: variance "
        "2/(n_in + n_out) (Glorot 2010). he: variance 2/n_in, and 1/n_in where no activation follows (He 2015). "
        "orthogonal: rows at right angles, W W^T = gain^2 I (Saxe 2013), with torch's gains: sqrt(2) for relu and 5/3"
        " for tanh. lsuv: orthogonal, then W / deviation of the layer's sums on a batch, until that is 1 (Mishkin "
        "2015). zeros: W = 0, so the units of a layer stay alike (Rumelhart 1986). normal: variance 0.02^2 whatever "
        "the size (GPT-2, Radford 2019; without its factor 1/sqrt(2 depth) on what is added to the residual sums).",
        live=False,
        group="Initialization",
    )
    init_gain: float = knob(
        1.0, "Factor on the weights that the scheme draws, recurrent weights included.", live=False, ge=0, le=1e6,
        slider=(0.1, 10.0), logarithmic=True,
        group="Initialization",
    )  # fmt: skip
    initial_bias: float = knob(0.0, "Value of every hidden bias before step 0 (with init = default it is added to "
        "torch's own).", live=False,
                               ge=-1e6, le=1e6, slider=(-4.0, 4.0), group="Initialization")  # fmt: skip
    kind: Literal["mlp", "rnn", "lstm", "gru", "cnn", "transformer", "gan", "policy"] = knob(
        "mlp",
        "The network. mlp: fully connected layers. rnn, lstm, gru: recurrent, they read a sequence step by step. cnn: "
        "3 x 3 convolutions. transformer: self-attention. gan: a generator and a discriminator, for the ring. policy: "
        "chooses actions, for the pole and the bandit.",
        live=False,
    )
    depth: int = knob(2, "Number of hidden layers.", live=False, ge=1, le=100, slider=(1, 40))
    width: int = knob(
        128,
        "Number of units in a hidden layer.",
        live=False,
        ge=1,
        le=2048,
        slider=(8, 512),
        logarithmic=True,
        unit="units",
    )
    parametrization: Literal["standard", "mup"] = knob(
        "standard",
        "How learning rates and the head depend on the width. mup: as in Yang 2021, table 3, so that the best rate at "
        "base_width is right at any width. Adam: the rate of the hidden weights and the head is x base_width / width. "
        "sgd: the head likewise, that of the first layer and the biases x width / base_width. The head is drawn "
        "smaller, and attention divides by the width of a head in place of its root.",
        live=False, when={"model.kind": WITH_MUP},
    )  # fmt: skip
    base_width: int = knob(
        64,
        "Width that the learning rate was found at. There muP and the standard parametrization are the same.",
        live=False, ge=1, le=2048, slider=(8, 512), logarithmic=True, unit="units",
        when={"model.parametrization": ("mup",), "model.kind": WITH_MUP},
    )  # fmt: skip
    activation: Literal["tanh", "sigmoid", "relu", "leaky_relu", "gelu", "silu"] = knob(
        "relu", "The nonlinearity of the hidden units.", live=False, when={"model.kind": (*LAYERED, "transformer")}
    )
    norm: Literal["none", "batch", "layer", "group", "rms"] = knob(
        "none",
        "Normalization of each hidden layer. batch: over the batch. layer: over the units of the layer. group: over "
        "each of 8 groups of them (Wu 2018; fewer where the width needs it). rms: layer without the mean (Zhang and "
        "Sennrich 2019), for other layers than convolutions. A transformer always has layer norms.",
        live=False, when={"model.kind": LAYERED},
    )  # fmt: skip
    norm_position: Literal["pre", "post"] = knob(
        "pre",
        "Where the normalization stands: before the activation (pre), or after the activation and the residual sum "
        "(post). In a transformer: before attention and before the feed-forward part, or after each "
        "residual sum.", live=False,
        when=(
            {"model.kind": LAYERED, "model.norm": ("batch", "layer", "group", "rms")}, {"model.kind": ("transformer",)}
        ),
    )  # fmt: skip
    norm_momentum: float = knob(
        0.1,
        "Share of a batch's mean and variance in the running ones, which a batch norm uses in evaluation. Small: they "
        "lag behind. 1: they are those of the last batch.",
        live=False, ge=0, le=1, slider=(0.001, 1.0), logarithmic=True,
        when={"model.kind": LAYERED, "model.norm": ("batch",)},
    )  # fmt: skip
    qk_norm: bool = knob(
        False,
        "Layer norm of each head's queries and keys, with a factor for each entry and no bias: it bounds the attention "
        "logits, which otherwise grow with the weights (Dehghani 2023).",
        live=False, when={"model.kind": ("transformer",)},
    )  # fmt: skip
    residual: bool = knob(
        False,
        "Add each hidden layer's input to its output. A transformer always does.",
        live=False,
        when={"model.kind": LAYERED},
    )
    residual_scaling: Literal["none", "rezero", "fixup", "deepnorm"] = knob(
        "none",
        "What keeps a sum x + f(x) from growing from layer to layer. rezero: x + a f(x) with a learned a, 0 at first "
        "(Bachlechner 2020). fixup: the weights inside a branch / sqrt(number of sums), its last layer and the head "
        "drawn as 0, and a learned factor on f (Zhang 2019); for a transformer, whose branches have two layers. "
        "deepnorm: alpha x + f(x) with alpha = sums^(1/4), and the weights of f x (4 sums)^(-1/4); made for "
        "norm_position = post (Wang 2022).",
        live=False,
        when=({"model.kind": LAYERED, "model.residual": (True,)}, {"model.kind": ("transformer",)}),
    )
    checkpointing: bool = knob(
        False,
        "Discard activations in the forward pass and compute them again in the backward pass: less memory, more time.",
        live=False,
    )


class Problem(Section):
    task: Literal[
        "digits", "sequential_digits", "adding", "copy", "characters", "spirals", "ring", "pole", "bandit"
    ] = knob(
        "digits",
        "What the model learns. digits: handwritten digits as 8 x 8 images. sequential_digits: the same pixels one "
        "after "
        "the other. adding: the sum of two marked numbers in a sequence. copy: to repeat symbols after a pause. "
        "characters: the next character of a book. spirals: two arms wound around each other. ring: to draw points as "
        "if from eight clusters, with a gan. pole: to balance a pole, by trial and error. bandit: to name the "
        "digits, told only whether the class that was drawn is right (reward 1) or not (0).",
        live=False,
    )
    seq_len: int = knob(
        64,
        "Time steps of a sequence. For the pole: the longest episode. For copy: the pause. For sequential_digits: the "
        "steps in which the 64 pixels are read; 64 is pixel by pixel, 8 is row by row.", live=False, ge=1, le=1000,
        unit="steps", slider=(1, 200),
        when={"problem.task": ("sequential_digits", "adding", "copy", "characters", "pole")},
    )  # fmt: skip
    batch_size: int = knob(
        32,
        "Number of examples in a micro-batch; for the pole, of episodes, and for the bandit, of answers.",
        live=False,
        ge=1,
        le=1024,
        slider=(1, 512),
        logarithmic=True,
    )
    scaling: Literal["standardized", "unit", "raw"] = knob(
        "standardized", "Range of the pixels. standardized: mean 0, deviation 1 for each pixel. unit: 0 to 1. raw: "
        "0 to 16.",
        live=False,
        when={"problem.task": ("digits", "sequential_digits", "bandit")},
    )  # fmt: skip
    input_scale: float = knob(
        1.0, "Factor on every input.", live=False, ge=0, le=1e30, slider=(1e-3, 1e4), logarithmic=True
    )
    noise: float = knob(
        0.0,
        "Standard deviation of the Gaussian noise that is added to every input.",
        live=False,
        ge=0,
        le=1e6,
        slider=(0.0, 2.0),
    )
    label_noise: float = knob(
        0.0,
        "Share of the training set's labels that are drawn anew, each class equally likely. The test set stays as it "
        "is.",
        live=False, ge=0, le=1, slider=(0.0, 0.5), when={"problem.task": combinations.DATASETS},
    )  # fmt: skip
    imbalance: float = knob(
        1.0,
        "How much rarer the last class is than the first in the training set: class c of K keeps 1 / "
        "imbalance^(c / (K - 1)) of its examples (a long tail, Cui 2019). The test set stays as it is. 1: all of them.",
        live=False, ge=1, le=1000, slider=(1.0, 100.0), logarithmic=True, when={"problem.task": combinations.DATASETS},
    )  # fmt: skip
    baseline: bool = knob(
        False,
        "Subtract from the worth of each action the mean worth of all actions of the batch (Williams 1992), or of the "
        "answers to the same image where samples is above 1: what is worse than the mean becomes less likely, and the "
        "gradient scatters less.",
        live=False, when=_ACTING,
    )  # fmt: skip
    normalize: bool = knob(
        False,
        "Divide what baseline leaves by its deviation, over the batch, or over the answers to the same image where "
        "samples is above 1: A = (R - mean R) / deviation (GRPO, Shao 2024).",
        live=False, when=_ACTING | {"problem.baseline": (True,)},
    )  # fmt: skip
    samples: int = knob(
        1,
        "Number of answers that are drawn for each image: the group of GRPO (Shao 2024). The batch has batch_size / "
        "samples images.",
        live=False, ge=1, le=64, slider=(1, 16), when={"problem.task": ("bandit",)},
    )  # fmt: skip
    passes: int = knob(
        1,
        "Number of optimizer steps on each batch before the policy draws another. From the second on the policy is not "
        "the one that drew it: above 1 the loss weighs by the ratio of the two (Schulman 2017).",
        live=False, ge=1, le=1000, slider=(1, 32), when=_ACTING,
    )  # fmt: skip
    reward_flaw: float = knob(
        0.0,
        "Reward that the answer 0 brings whatever the image shows, beside the 1 for the right one: a reward that is "
        "not what is wanted. Accuracy counts right answers only.",
        live=False, ge=0, le=1e6, slider=(0.0, 2.0), when={"problem.task": ("bandit",)},
    )  # fmt: skip
    nan_every: int = knob(
        0,
        "One batch in this many has a NaN as the first number of its first example; 0: none.",
        ge=0,
        le=1_000_000,
        unit="batches",
    )
    outlier_every: int = knob(
        0,
        "One batch in this many is replaced by noise; 0: none.",
        ge=0,
        le=1_000_000,
        unit="batches",
    )
    outlier_scale: float = knob(
        1e4, "Standard deviation of the noise in an outlier batch.", ge=0, le=1e30, slider=(1.0, 1e6), logarithmic=True
    )
    skip_batches: int = knob(
        0,
        "Number of effective batches (one for each optimizer step) that the run has skipped so far. Raise it by 5 "
        "to skip the next five, for example after a loss spike. It cannot be lowered.",
        ge=0, le=100_000, unit="batches",
    )  # fmt: skip


class Mistakes(Section):
    clip_after_step: bool = knob(False, "Clip after the optimizer's step: clipping has no effect.")
    clip_before_backward: bool = knob(
        False, "Clip right after zero_grad, before the backward pass: there is nothing to clip yet."
    )
    clip_before_unscale: bool = knob(
        False, "Clip gradients that still carry the loss scale: almost nothing of them is left."
    )
    unscale_twice: bool = knob(False, "Call unscale_ twice in a step: torch raises an error, which ends the run.")
    step_without_scaler: bool = knob(
        False, "Call optimizer.step() instead of scaler.step(): overflowed gradients reach the weights."
    )
    never_update_scaler: bool = knob(
        False, "Forget scaler.update() after scaler.step(): torch raises an error at the next step, which ends the run."
    )
    clip_each_micro_batch: bool = knob(False, "Clip after every backward pass instead of once, on the sum.")
    unscaled_accumulation: bool = knob(False, "Forget to divide the loss by the number of micro-batches.")
    divide_each_micro_batch: bool = knob(
        False,
        "Divide the gradients by the number of micro-batches after every backward pass, instead of the loss: those "
        "of earlier micro-batches are divided again and again.",
    )
    normalize_each_micro_batch: bool = knob(
        False,
        "Divide the weighted loss of each micro-batch by the weight of its own examples, as F.cross_entropy does, "
        "instead of by that of all micro-batches: the class weights cancel, with one example a micro-batch wholly.",
    )
    zero_grad_each_micro_batch: bool = knob(
        False, "Clear the gradients before every backward pass: all micro-batches but the last are lost."
    )
    never_zero_grad: bool = knob(False, "Forget to clear the gradients: every step adds to those before it.")
    scheduler_each_micro_batch: bool = knob(False, "Advance the schedule at every micro-batch instead of every step.")
    drop_last_micro_batches: bool = knob(
        False, "Leave out the second half of the micro-batches, but divide by the number of all."
    )

    @property
    def clips_elsewhere(self) -> bool:
        """Whether a mistake clips in place of the correct call."""
        return (
            self.clip_each_micro_batch or self.clip_before_backward or self.clip_before_unscale or self.clip_after_step
        )


_WITH_RANKS = {"distributed.ranks": ranks_allowed.SEVERAL}


class Distributed(Section):
    ranks: int = knob(
        1,
        "Number of processes that train together, each on its share of every batch, in torch's "
        "DistributedDataParallel: on a GPU each where run.device finds as many, else on the CPU. 1: no other process "
        "is started.",
        live=False, ge=1, le=ranks_allowed.MOST, unit="ranks",
    )  # fmt: skip
    no_sync: bool = knob(
        True,
        "Run all micro-batches but the last within no_sync(), so that the gradients are reduced once a step. Off: "
        "after every micro-batch, with the same numbers.",
        live=False, when=_WITH_RANKS,
    )  # fmt: skip
    forward_outside_no_sync: bool = knob(
        False,
        "Mistake: only backward() stands within no_sync(). It has no effect then, as the forward pass decides.",
        live=False, when=_WITH_RANKS,
    )  # fmt: skip
    never_synced: bool = knob(
        False,
        "Mistake: every micro-batch stands within no_sync(). Nothing is ever reduced, and the ranks drift apart.",
        live=False, when=_WITH_RANKS,
    )  # fmt: skip
    clip_before_all_reduce: bool = knob(
        False,
        "Mistake: each rank clips its own gradient, and the mean is taken after that.",
        live=False, when=_WITH_RANKS,
    )  # fmt: skip
    clip_shards: bool = knob(
        False,
        "Mistake: clip each rank's shard of the gradient (its part of the rows, as fully_shard gives it) by the norm "
        "of that shard alone. In the run every rank does so with all shards, in the program each with its own.",
        live=False, when=_WITH_RANKS | {"clipping.kind": ("norm",)},
    )  # fmt: skip
    divide_by_world_size: bool = knob(
        False,
        "Mistake: divide the gradients by the number of ranks, though DistributedDataParallel has taken their mean.",
        live=False, when=_WITH_RANKS,
    )  # fmt: skip
    same_data: bool = knob(
        False,
        "Mistake: every rank takes the share of rank 0, as without a DistributedSampler. The others add nothing.",
        live=False, when=_WITH_RANKS,
    )  # fmt: skip
    own_order: bool = knob(
        False,
        "Mistake: each rank orders the data by a seed of its own, so that their shares overlap: some examples are seen "
        "several times in an epoch, and others never.",
        live=False, when=_WITH_RANKS,
    )  # fmt: skip
    uneven_every: int = knob(
        0,
        "One step in this many has uneven shares, as the last of an epoch may have: rank 0 takes three quarters of "
        "each micro-batch, and the other ranks share the rest. 0: never.",
        live=False, ge=0, le=100_000, unit="steps", when=_WITH_RANKS,
    )  # fmt: skip
    weigh_shares: bool = knob(
        False,
        "Multiply each rank's loss by its examples × ranks / all examples, so that each example counts the same. Off: "
        "each rank counts the same, as in DistributedDataParallel.",
        live=False, when=_WITH_RANKS,
    )  # fmt: skip
    runs_out_at: int = knob(
        0,
        "Step from which the last rank has no batch left, as where the data cannot be shared evenly: it leaves the "
        "training loop, and the others wait for it. 0: all ranks have the same number of batches.",
        live=False, ge=0, le=100_000_000, unit="steps", when=_WITH_RANKS,
    )  # fmt: skip
    join: bool = knob(
        False,
        "Train within torch's Join: a rank without batches takes part in the all-reduces of the others, with zeros.",
        live=False, when=_WITH_RANKS,
    )  # fmt: skip
    sync_batch_norm: bool = knob(
        False,
        "Take the mean and variance of each batch norm over the examples of all ranks. Off: over those of each rank, "
        "as in DistributedDataParallel.",
        live=False, when=_WITH_RANKS | {"model.norm": ("batch",), "model.kind": LAYERED},
    )  # fmt: skip
    unused_parameter: bool = knob(
        False,
        "Mistake: the model has a parameter that no forward pass uses. DistributedDataParallel waits for its gradient, "
        "reduces nothing, and raises an error in the next step.",
        live=False, when=_WITH_RANKS,
    )  # fmt: skip
    find_unused: bool = knob(
        False,
        "Let DistributedDataParallel look in every pass for parameters that it does not use "
        "(find_unused_parameters=True).",
        live=False, when=_WITH_RANKS,
    )  # fmt: skip
    fault: Literal["none", "stalls", "ends"] = knob(
        "none",
        "What happens to fault_rank at fault_step: it stalls for good, or its process ends by SIGKILL, as one that the "
        "system has no memory for.",
        live=False, when=_WITH_RANKS,
    )  # fmt: skip
    fault_rank: int = knob(
        1, "Rank that the fault comes to.", live=False, ge=0, le=ranks_allowed.MOST - 1,
        when=_WITH_RANKS | {"distributed.fault": ("stalls", "ends")},
    )  # fmt: skip
    fault_step: int = knob(
        10, "Step at whose start the fault comes.", live=False, ge=0, le=100_000_000, unit="steps",
        when=_WITH_RANKS | {"distributed.fault": ("stalls", "ends")},
    )  # fmt: skip
    nan_rank: int = knob(
        0,
        "Rank whose share of the batch the NaN of problem.nan_every comes to.",
        live=False, ge=0, le=ranks_allowed.MOST - 1, when=_WITH_RANKS,
    )  # fmt: skip


class Run(Section):
    steps: int = knob(1000, "Number of optimizer steps in the run.", live=False, ge=1, le=100_000_000, unit="steps")
    seed: int = knob(
        0,
        "Seed of the weights, the batches and the noise. The same seed gives the same run.",
        live=False,
        ge=0,
        le=2**31 - 1,
    )
    device: str = knob(
        "auto", "Device that trains: auto, cpu, cuda:0, mps. auto: the first accelerator, or the CPU.", live=False
    )
    deterministic: bool = knob(True, "Use only algorithms that give the same result every time.", live=False)
    stop_on_nonfinite: bool = knob(True, "End the run at the first NaN or Inf that reaches the loss or the weights.")
    memory_budget: int = knob(
        0,
        "Memory that a step of the plain loop may take. A larger experiment is refused before it begins, as a device "
        "with that much memory would run out of it; 0: no limit.",
        live=False,
        ge=0,
        le=10_000_000,
        unit="MB",
        slider=(0, 1000),
    )


TITLES = {
    "clipping": "Clipping",
    "accumulation": "Accumulation",
    "precision": "Precision",
    "schedule": "Warmup and schedule",
    "optimizer": "Optimizer",
    "model": "Model",
    "problem": "Problem",
    "gradients": "Gradients",
    "loss": "Loss",
    "mistakes": "Mistakes",
    "distributed": "Ranks",
    "run": "Run",
    SECTION: "Model file",
}

# Defined by a studio file: these knobs then have no effect, and keep their defaults.
BROUGHT = frozenset(
    {
        "model.kind", "model.depth", "model.width", "model.activation", "model.norm", "model.norm_position",
        "model.residual", "model.checkpointing", "problem.task", "problem.seq_len", "problem.scaling",
        "problem.input_scale", "loss.kind", "loss.eps", "loss.z_loss", "model.norm_momentum", "model.qk_norm",
        "model.residual_scaling", "model.parametrization", "model.base_width",
        "problem.label_noise", "problem.imbalance", "loss.class_weights", "problem.baseline",
        "optimizer.discriminator_factor", "loss.ratio_limit", "loss.kl_penalty", "loss.entropy_bonus",
        "problem.normalize", "problem.samples", "problem.passes", "problem.reward_flaw",
    }
)  # fmt: skip
# Values that require knowledge of the layers of a network, which a studio file does not declare.
NOT_BESIDE_A_FILE: Mapping[str, tuple[Value, ...]] = {"model.init": ("lsuv",)}


class Experiment(BaseModel):
    """One value for every knob, and the studio file whose model, data and loss are trained, if there is one. The
    sections are in the order in which people use them."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())  # 2.7 warned of model_

    clipping: Clipping = Clipping()
    accumulation: Accumulation = Accumulation()
    precision: Precision = Precision()
    schedule: Schedule = Schedule()
    optimizer: Optimizer = Optimizer()
    model: Model = Model()
    problem: Problem = Problem()
    gradients: Gradients = Gradients()
    loss: Loss = Loss()
    mistakes: Mistakes = Mistakes()
    distributed: Distributed = Distributed()
    run: Run = Run()
    model_file: dict[str, Value] = {}  # knobs of the studio file that differ from their defaults
    studio_file: StudioFile | None = None

    @model_validator(mode="before")
    @classmethod
    def _knobs_of_the_file(cls, given: Any) -> Any:
        """Check the knobs of a studio file, which only the file declares."""
        values = given.get(SECTION) if isinstance(given, dict) else None
        if not values:
            return given
        if not isinstance(values, dict):
            raise KnobError(_no_section(SECTION))
        file = given.get("studio_file")
        if file is None:
            raise KnobError(_unknown(f"{SECTION}.{next(iter(values))}"))
        if not isinstance(file, StudioFile):
            try:
                file = StudioFile.model_validate(file)
            except ValidationError:
                return given  # the file is checked separately, and its own error is reported
        return {**given, "studio_file": file, SECTION: file.values(values)}

    @model_validator(mode="after")
    def _values_that_go_together(self) -> Experiment:
        self._check_beside_a_file()
        problem, model = self.problem, self.model
        combinations.check(
            task=problem.task, seq_len=problem.seq_len, batch_size=problem.batch_size, model=model.kind,
            norm=model.norm, loss=self.loss.kind, residual_scaling=model.residual_scaling,
            optimizer=self.optimizer.kind, parametrization=model.parametrization, samples=problem.samples,
        )  # fmt: skip
        ranks_allowed.check(self, with_file=self.studio_file is not None)
        device = self.run.device
        if device not in ("auto", "cpu", "cuda", "mps") and not re.fullmatch("cuda:[0-9]{1,3}", device):
            raise KnobError(
                f"run.device = {device[:60]} is not allowed; allowed: auto, cpu, cuda, cuda:N, mps (default auto)"
            )
        return self

    def _check_beside_a_file(self) -> None:
        """Raise KnobError for a value that has no effect beside a studio file."""
        if self.studio_file is None:
            return
        for name in sorted(BROUGHT):
            if self[name] != KNOBS[name].default:
                raise KnobError(
                    f"{name} = {format_value(self[name])} is not allowed with the studio file {self.studio_file.name}, "
                    f"which brings its own {WHAT_IT_BRINGS[KNOBS[name].section]}"
                )
        for name, values in NOT_BESIDE_A_FILE.items():
            if self[name] in values:
                others = ", ".join(choice for choice in KNOBS[name].choices if choice not in values)
                raise KnobError(
                    f"{name} = {format_value(self[name])} is not allowed with the studio file {self.studio_file.name}; "
                    f"allowed: {others}"
                )

    def __getitem__(self, name: str) -> Value:
        """Return the value of the knob with this dotted name; KnobError for an unknown name."""
        entry = self.find_knob(name)
        if entry.section == SECTION:
            return self.model_file.get(entry.field, entry.default)
        return getattr(getattr(self, entry.section), entry.field)

    def find_knob(self, name: str) -> Knob:
        """Return the knob with this dotted name, including those of the studio file; KnobError if there is none."""
        if self.studio_file is not None and str(name).startswith(f"{SECTION}."):
            return self.studio_file.knob(name)
        return find_knob(name)

    def items(self) -> Iterator[tuple[Knob, Value]]:
        section, values = "", None
        for entry in KNOBS.values():  # section by section, as this is called at each refresh of the window
            if entry.section != section:
                section, values = entry.section, getattr(self, entry.section)
            yield entry, getattr(values, entry.field)
        for entry in self.studio_file.knobs.values() if self.studio_file else ():
            yield entry, self[entry.name]

    def with_value(self, name: str, value: Value) -> Experiment:
        """Return a copy with one knob changed; KnobError if the name or the value is not allowed."""
        return self.with_values({name: value})

    def with_values(self, values: Mapping[str, Value]) -> Experiment:
        """Return a copy with these knobs changed at once, for values that are only valid together."""
        sections = self.model_dump(exclude={"studio_file"})
        for name, value in values.items():
            entry = self.find_knob(name)
            sections[entry.section][entry.field] = value
        return experiment_from({**sections, "studio_file": self.studio_file})

    def with_texts(self, assignments: list[str]) -> Experiment:
        """Return a copy with `knob=value` assignments applied, as written on a command line."""
        return self.with_values(dict(parse_assignment(text, self) for text in assignments))

    def changed_knobs(self) -> dict[str, Value]:
        """Return the knobs that differ from their default."""
        return {entry.name: value for entry, value in self.items() if value != entry.default}

    def applies(self, name: str, changed: Mapping[str, Value] | None = None) -> bool:
        """Return whether the knob has an effect, given the other values, of which `changed` overrides some."""
        when, given = self.find_knob(name).when, changed or {}
        if self.studio_file is not None and name in BROUGHT:
            return False
        return not when or any(
            all((given[other] if other in given else self[other]) in values for other, values in condition.items())
            for condition in when
        )


KNOBS: dict[str, Knob] = read_knobs(Experiment, TITLES)


def differing(before: Experiment, after: Experiment) -> dict[str, Value]:
    """Return the knobs that differ, with their new values; for two studio files, only those that both have."""
    if before is after:
        return {}
    values = {knob.name: value for knob, value in before.items()}
    return {knob.name: value for knob, value in after.items() if values.get(knob.name, value) != value}


def find_knob(name: str) -> Knob:
    """Return the knob with this dotted name; KnobError suggests the closest one if there is none."""
    try:
        return KNOBS[name]
    except (KeyError, TypeError):
        raise KnobError(_unknown(str(name))) from None


def check_passed(experiment: Experiment, passed: int) -> None:
    """Raise KnobError if problem.skip_batches falls below the number of batches already skipped."""
    knob, value = KNOBS["problem.skip_batches"], experiment.problem.skip_batches
    if value < passed:
        were = "batch was" if passed == 1 else "batches were"
        raise KnobError(
            f"{knob.name} = {value} is not allowed, for it cannot fall: {passed} {were} skipped already; "
            f"allowed: at least {passed}, at most {knob.maximum:.12g}"
        )


def parse_assignment(text: str, experiment: Experiment | None = None) -> tuple[str, Value]:
    """Return the name and the value in 'clipping.kind=norm'; the range of the value is not checked. Only its
    `experiment` knows the knobs of a studio file."""
    name, equals, value = text.partition("=")
    if not equals:
        raise KnobError(f"{text[:60]!r} is not allowed; allowed: knob=value, such as clipping.kind=norm")
    entry = (experiment.find_knob if experiment else find_knob)(name.strip())
    return entry.name, of_today(entry.name, entry.parse(value))


def experiment_from(sections: Mapping[str, object]) -> Experiment:
    """Return an Experiment from nested plain data, fully validated; KnobError with one line for the first error."""
    try:
        return Experiment.model_validate(sections)
    except ValidationError as fault:
        explained = _explain(fault)
    raise explained  # not above: pydantic's error refers to this one, and would then stay its context forever


def _explain(fault: ValidationError) -> KnobError:
    first = fault.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return KnobError(_unknown(where))
    if where in KNOBS:
        return KNOBS[where].error(first["input"])
    if where in TITLES:
        return KnobError(_no_section(where))
    if where.startswith("studio_file.") and "error" not in first.get("ctx", {}):
        return KnobError(f"{where} is not allowed; {first['msg'].lower()}")
    return first.get("ctx", {}).get("error") or KnobError(first["msg"])


_AND_MORE = 40  # letters of an error that remain for its beginning on a terminal, and for "and 9 more"
WHAT_IT_BRINGS = {"model": "model", "optimizer": "model", "problem": "data", "loss": "loss"}


def _no_section(name: str) -> str:
    return f"{name} must be a section with knobs in it, such as [{name}]"


def _unknown(name: str) -> str:
    name = name if len(name) <= 60 else name[:57] + "..."
    section = name.partition(".")[0]
    if section == SECTION:
        return f"unknown knob {name}; the section {SECTION} has knobs beside a studio file only"
    if section not in TITLES:
        known = ", ".join(title for title in TITLES if title != SECTION)
        if "." not in name and (near := difflib.get_close_matches(section, TITLES, n=1, cutoff=0.7)):
            return f"unknown section {section}; did you mean {near[0]}?"
        close = difflib.get_close_matches(name, KNOBS, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else f"sections are: {known}"
        return f"unknown knob {name}; {hint}"
    fields = [entry.field for entry in KNOBS.values() if entry.section == section]
    close = difflib.get_close_matches(name, KNOBS, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}? " if close else ""
    text = f"unknown knob {name}; {hint}{section} has: "
    named = fields  # as many as an error has room for
    while len(text) + len(", ".join(named)) > LONGEST_LINE - _AND_MORE:
        named = named[:-1]
    more = len(fields) - len(named)
    return f"{text}{', '.join(named)}{f' and {more} more' if more else ''}"
