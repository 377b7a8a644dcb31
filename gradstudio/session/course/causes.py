"""The causes that an exam asks for, in plain words, and the pairs that must not be offered together, as both could be
considered right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from gradstudio.core.events import Change
from gradstudio.core.experiment import KNOBS, Experiment
from gradstudio.core.knobs import Value

CAUSES: Mapping[str, str] = {
    "rate too high": "The learning rate is too high.",
    "rate too low": "The learning rate is too low for the weights to move.",
    "decay": "Weight decay pulls the weights to 0.",
    "momentum": "Momentum does not fade, so that the steps add up.",
    "drawn too large": "The first weights are drawn too large.",
    "drawn too small": "The first weights are drawn too small for this depth.",
    "drawn as zero": "The first weights are 0, so that the units stay alike.",
    "vanishes": "The activation makes the gradient vanish on its way through the layers.",
    "forgets": "The gradient vanishes on its way back through the time steps.",
    "explodes": "The gradient explodes, and nothing clips it.",
    "policy far off": "The policy runs far from the one that drew its batch.",
    "sure too soon": "The policy is sure of its actions before it has learned.",
    "hacked": "The reward pays for something else than what is wanted.",
    "collapsed": "Attention has collapsed: each step looks at one other alone.",
    "dead": "The biases keep the units off from the start.",
    "saturated": "The inputs of the units are so large that these saturate.",
    "outliers": "Now and then a batch of the data is noise of enormous size.",
    "loss": "The loss is written so that it gives NaN or Inf for allowed outputs.",
    "noise": "Noise is added to the gradient.",
    "underflow": "fp16 has no room for gradients this small.",
    "overflow": "fp16 has no room for numbers this large.",
    "clipped": "The gradient is clipped to almost nothing.",
    "not divided": "The loss is not divided by the number of micro-batches.",
    "micro-batches": "Part of the micro-batches is lost.",
    "not cleared": "The gradients are not cleared between the steps.",
    "scaled clip": "The gradient is clipped while it still carries the loss scale.",
    "late clip": "The clipping comes too late to act on the step.",
    "schedule": "The schedule advances too fast.",
    "no warmup": "The first updates are too long for post-norm without a warmup.",
}

# A run may show any two in one of these groups.
_ALIKE = (
    {"explodes", "rate too high", "momentum", "no warmup", "noise"},
    {"explodes", "drawn too large", "late clip"},
    {"explodes", "outliers", "not cleared"},
    {"rate too high", "collapsed", "no warmup"},
    {"vanishes", "forgets", "rate too high", "explodes"},
    {"rate too high", "explodes", "policy far off", "sure too soon"},
    {"rate too high", "not divided", "not cleared", "late clip"},
    {"vanishes", "drawn too small", "saturated", "drawn as zero", "dead", "no warmup"},
    {"momentum", "not cleared"},  # a sum of all gradients is a momentum of 1
    {"drawn too large", "saturated"},
    {"micro-batches", "not divided"},
    {"loss", "overflow", "late clip"},
    {"rate too low", "schedule", "clipped", "underflow", "decay"},
    {"clipped", "scaled clip"},
)

# The name of each kind of drawn fault.
_OF_KIND: Mapping[str, str] = {
    "rate too high": "rate too high",
    "rate too high, RMSprop": "rate too high",
    "rate too high, other tasks": "rate too high",
    "rate too low": "rate too low",
    "rate too low, other tasks": "rate too low",
    "weight decay too strong": "decay",
    "drawn too large": "drawn too large",
    "drawn too small": "drawn too small",
    "drawn as zero": "drawn as zero",
    "deep sigmoid": "vanishes",
    "deep, torch's own init": "drawn too small",
    "units born dead": "dead",
    "recurrent explosion": "explodes",
    "outlier batch": "outliers",
    "NaN of the loss itself": "loss",
    "0 / 0 in the loss": "loss",
    "fp16 underflow": "underflow",
    "fp16, scale too high": "overflow",
    "fp16, forward overflow": "overflow",
    "clipped too low": "clipped",
    "never cleared": "not cleared",
    "clip before unscale": "scaled clip",
    "post-norm, no warmup": "no warmup",
    "rate raised, SGD": "rate too high",
    "rate raised, Adam and RMSprop": "rate too high",
    "rate lowered to nothing": "rate too low",
    "outliers begin": "outliers",
    "clipping limit to nothing": "clipped",
    "to fp16, scale too high": "overflow",
    "weight decay to 1 / lr": "decay",
    "gradient noise": "noise",
    "momentum to 1": "momentum",
}

# The cause behind a rule's finding, for an exam made from a user's own experiment.
OF_RULE: Mapping[str, str] = {
    "nonfinite_loss": "loss",
    "exploding_gradient": "explodes",
    "vanishing_gradient": "vanishes",
    "vanishing_in_time": "forgets",
    "dead_units": "dead",
    "saturated_activation": "saturated",
    "attention_collapse": "collapsed",
    "policy_far_off": "policy far off",
    "entropy_collapse": "sure too soon",
    "reward_hacked": "hacked",
    "weight_decay_high": "decay",
    "momentum_high": "momentum",
    "rate_raised": "rate too high",
    "update_ratio_high": "rate too high",
    "update_ratio_low": "rate too low",
    "gradient_noise": "noise",
    "clipping_always": "clipped",
    "fp16_underflow": "underflow",
    "fp16_overflow": "overflow",
    "scale_collapse": "overflow",
    "clip_without_effect": "late clip",
    "clip_on_scaled_gradients": "scaled clip",
    "loss_spike": "outliers",
}

# The name of a mistake in the training loop, if a rule has detected it. The others have no name among CAUSES.
OF_MISTAKE: Mapping[str, str] = {
    "mistakes.clip_after_step": "late clip",
    "mistakes.clip_before_unscale": "scaled clip",
    "mistakes.unscaled_accumulation": "not divided",
    "mistakes.zero_grad_each_micro_batch": "micro-batches",
    "mistakes.drop_last_micro_batches": "micro-batches",
    "mistakes.never_zero_grad": "not cleared",
    "mistakes.scheduler_each_micro_batch": "schedule",
}
# Values that must be set, at the start or by a live change, for the words of a cause to be true of a run. A finding
# alone may have another cause: NaN in the data makes the loss NaN too, and too high a rate kills units.
_TRUE_WHERE: Mapping[str, tuple[str, Callable[[Value], bool]]] = {
    "loss": ("loss.kind", lambda kind: kind != "auto"),
    "dead": ("model.initial_bias", lambda bias: float(bias) < 0),
    "outliers": ("problem.outlier_every", lambda every: float(every) > 0),
    "vanishes": ("model.activation", lambda activation: activation in ("sigmoid", "tanh")),
    "rate too low": ("precision.weights", lambda weights: weights == "fp32"),
    "explodes": ("clipping.kind", lambda kind: kind == "none"),
    "late clip": ("mistakes.clip_after_step", bool),
    "scaled clip": ("mistakes.clip_before_unscale", bool),
}
OF_THE_LOOP = ("loop_order", "accumulation_mismatch")  # rules that detect a mistake in the loop


def kinds() -> Iterable[str]:
    """Return the names of the drawn faults that an exam may have."""
    return _OF_KIND


def of_kind(kind: str) -> str:
    return _OF_KIND[kind]


def of_findings(
    rules: Sequence[str], experiment: Experiment, changes: Iterable[Change], fix: Mapping[str, Value]
) -> str:
    """Return the cause indicated by the rules that warn, the most important first, for a run with these live changes
    that `fix` heals; "" if no named cause is true of it."""
    live: dict[str, list[Value]] = {}
    for change in changes:
        live.setdefault(change.knob, []).append(change.value)

    def values(knob: str) -> list[Value]:
        return [experiment[knob], *live.get(knob, [])]

    made = [knob for knob in KNOBS if knob.startswith("mistakes.") and any(values(knob))]
    undone = [mistake for mistake in made if fix.get(mistake) is False]
    for mistake in undone or (made if set(rules) & set(OF_THE_LOOP) else []):
        if mistake in OF_MISTAKE:
            return OF_MISTAKE[mistake]
    if undone:
        return ""  # the mistake is the cause, and it has no name here
    for cause in (OF_RULE[rule] for rule in rules if rule in OF_RULE):
        knob, is_true = _TRUE_WHERE.get(cause, ("", bool))
        if not knob or any(map(is_true, values(knob))):
            return cause
    return ""


def choices(right: str, random: np.random.Generator, count: int = 6) -> tuple[list[str], int]:
    """Return `count` causes to choose from, in words and in random order, and the index of the right one: a name in
    CAUSES, or a teacher's own text."""
    right = next((name for name, words in CAUSES.items() if _alike(words, right)), right)
    alike = {right}.union(*(group for group in _ALIKE if right in group))
    others = [name for name in CAUSES if name not in alike]
    chosen = [right, *(others[place] for place in random.permutation(len(others))[: count - 1])]
    order = [int(place) for place in random.permutation(len(chosen))]
    return [CAUSES.get(chosen[place], chosen[place]) for place in order], order.index(0)


def _alike(one: str, other: str) -> bool:
    """Return whether two texts are equal apart from spaces, capitals and a full stop."""
    first, second = (" ".join(text.split()).rstrip(".").casefold() for text in (one, other))
    return first == second
