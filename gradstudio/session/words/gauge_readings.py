"""The readings of the gauges in core/gauge_samples.py, in a sentence or two each."""

from __future__ import annotations

import math

from gradstudio.core.gauge_samples import ClippedGradient, Exponents, Logits, NoiseScale, Overshoot, Shares, Sharpness
from gradstudio.core.text import number, plural, power
from gradstudio.session.record.run import Run
from gradstudio.session.words.names import OPTIMIZERS

NEAR = 0.1  # relative distance from the limit that counts as being at it
FAR = 4  # a batch is called too small or too large beyond this factor
PEAKED = 0.1  # share of the possible entropy below which an attention looks at hardly more than one time step
TURNED = 0.01  # degrees below which a direction counts as the same: rounding makes 0.001
SETTLED = 10  # samples of the noise before its average is reliable


def share(value: float) -> str:
    """Return '31 %' with a non-breaking space; a share near 0 or 1 is not rounded to 0 or 100."""
    percent = 100 * value
    if 0 < percent < 0.01:
        return "less than 0.01\N{NO-BREAK SPACE}%"
    if 99.9 < percent < 100:
        return "more than 99.9\N{NO-BREAK SPACE}%"
    return f"{number(percent, 2) if percent < 99 else f'{percent:.3g}'}\N{NO-BREAK SPACE}%"


def factor(scale: float) -> str:
    """Return a loss scale, as a power of two if it is one."""
    mantissa, exponent = math.frexp(scale)
    return power(2, exponent - 1) if mantissa == 0.5 else number(scale)


def exponents(measured: Exponents, run: Run) -> str:
    """Return how many entries of the gradient fp16 loses, and what a loss scale changes."""
    dtype, told = run.in_force.precision.dtype, []
    scale, scaled = (measured.scale, measured.scaled) if measured.scale != 1 else (measured.best_scale, measured.best)
    lost = _describe_loss(measured.plain)
    lost = lost[0].upper() + lost[1:]
    if measured.entries == 0:
        told.append("No entry is finite and not 0.")
    elif dtype == "fp16" and measured.scale != 1:
        if measured.plain.lost or scaled.lost:
            told.append(
                f"{lost} of the entries underflow in fp16 without a loss scale; with a scale of {factor(scale)}, "
                f"{_describe_loss(scaled)}."
            )
        else:
            told.append("No entry underflows in fp16, with or without the loss scale.")
        if scaled.over:
            told.append(f"But {share(scaled.over)} are then above 65504, the largest number of fp16: an overflow.")
        if scaled.lost > measured.best.lost + 0.01:
            told.append(f"A scale of {factor(measured.best_scale)} would lose {_describe_loss(measured.best)}.")
    elif dtype == "fp16" and measured.plain.lost:
        told.append(f"{lost} of the entries underflow in fp16, and there is no loss scale.")
        if scale != 1:
            told.append(f"With a scale of {factor(scale)}: {_describe_loss(scaled)}.")
    elif measured.plain.lost:
        told.append(
            f"{lost} of the entries would underflow in fp16; with a scale of {factor(scale)}: {_describe_loss(scaled)}."
        )
        told.append(f"{dtype} holds them as they are.")
    elif not measured.plain.over:
        told.append("Every entry is within what fp16 can hold, without a loss scale.")
    if measured.plain.over and measured.scale == 1:
        told.append(f"{share(measured.plain.over)} are above 65504, the largest number of fp16.")
    if measured.nonfinite:
        told.append(f"{plural(measured.nonfinite, 'entry is', 'entries are')} NaN or Inf.")
    if measured.zeros:
        all_entries = measured.zeros + measured.entries + measured.nonfinite
        told.append(f"{share(measured.zeros / all_entries)} of all entries are exactly 0 and are not counted.")
    return " ".join(told)


def _describe_loss(shares: Shares) -> str:
    return "none" if shares.lost == 0 else share(shares.lost)


def rule(sharpness: Sharpness) -> str:
    """Return the limit of the sharpness as text: '2/lr', '38/lr'."""
    return f"{number(sharpness.rule)}/lr" if sharpness.lr > 0 else "2/lr"


def sharpness(measured: Sharpness, run: Run) -> str:
    """Return whether the step is short enough for the direction of largest curvature."""
    seen = f", as {OPTIMIZERS[run.in_force.optimizer.kind]} sees it," if measured.preconditioned else ""
    value = f"Sharpness {'' if measured.converged else 'at least '}{number(measured.value)}{seen}"
    alone = value.removesuffix(",")  # before another punctuation mark
    if not math.isfinite(measured.limit):
        if measured.lr > 0:
            return f"{alone}. For {OPTIMIZERS[run.in_force.optimizer.kind]} no largest one is known."
        return f"{alone}; the learning rate is 0, so nothing moves."
    limit = f"{rule(measured)} = {number(measured.limit)}"
    if measured.value > (1 + NEAR) * measured.limit:
        clipped = len(run.history) and run.history.value("clip_coef", len(run.history) - 1) < 1
        held = " Clipping makes the step shorter, which keeps the run stable." if clipped else ""
        return f"{value} is over {limit}: the step is too long for the direction of largest curvature.{held}"
    if measured.value >= (1 - NEAR) * measured.limit:
        return (
            f"{value} is at {limit}, the edge of stability: along the direction of largest curvature the weights "
            "oscillate, by the same distance each time."
        )
    if measured.value <= 0:
        return f"{alone}: no direction curves upward, so no step is too long here."
    if not measured.converged:
        return f"{alone}, against {limit}: more samples are needed to tell."
    return f"{value} is under {limit}: the step is short enough for the direction of largest curvature."


def noise_scale(noise: NoiseScale) -> str:
    """Return the effect of another batch size."""
    batch = f"the batch has {noise.batch:,}"
    if math.isinf(noise.value):
        text = (
            f"The gradient is too small against its noise to be measured; {batch}. Each step is almost random, and a "
            "larger batch would help."
        )
    elif noise.value > FAR * noise.batch:
        text = (
            f"{_examples(noise)}; {batch}. Each step is mostly noise: a larger batch, or more micro-batches, "
            "would give a better direction."
        )
    elif noise.value * FAR < noise.batch:
        text = f"{_examples(noise)}; {batch}, more than needed: a smaller one would learn almost as well, in less time."
    else:
        text = f"{_examples(noise)}; {batch}, which is about right."
    return (
        text
        if noise.samples >= SETTLED
        else f"{text} So far this is from {plural(noise.samples, 'sample', 'samples')}, so it may still change much."
    )


def _examples(noise_scale: NoiseScale) -> str:
    count = (
        number(noise_scale.value, 2)
        if noise_scale.value < 10 or noise_scale.value >= 1e4
        else f"{noise_scale.value:.0f}"
    )
    return f"Above about {count} examples, a larger batch helps little"


def overshoot(measured: Overshoot) -> str:
    """Return whether the last update overshot the minimum along its direction."""
    before, after = measured.losses[0], measured.losses[2]
    digits = next((digits for digits in range(3, 9) if number(before, digits) != number(after, digits)), 9)
    moved = f"The loss of the gauge's batch went from {number(before, digits)} to {number(after, digits)}."
    if not math.isfinite(after):
        return f"The last update left a loss that is {number(after)}."
    if math.isinf(measured.ratio):
        return (
            "Along the last update the loss of this batch rises from the start: the update came from other "
            f"examples, or from momentum. {moved}"
        )
    if measured.ratio == 0:
        return f"The last update has no minimum ahead: the loss keeps falling along it. {moved}"
    best = f"it was {number(measured.ratio, 2)} times as long as the step to the minimum"
    if measured.ratio > 2:
        return f"The last update overshot the minimum so far that the loss rose: {best}. {moved}"
    if measured.ratio > 1.2:
        return f"The last update overshot the minimum: {best}. {moved}"
    if measured.ratio >= 0.5:
        return f"The last update came close to the minimum: {best}. {moved}"
    return f"The last update stopped well before the minimum: {best}. {moved}"


def logits(sample: Logits) -> str:
    """Return how sharply the attentions choose, and the mean log Z of the outputs."""
    told = []
    if sample.names:
        most = max(range(len(sample.names)), key=lambda at: (math.isnan(sample.largest[at]), sample.largest[at]))
        told.append(f"The largest attention logit is {number(sample.largest[most])}, in {sample.names[most]}.")
        measured = [at for at, entropy in enumerate(sample.entropy) if not math.isnan(entropy)]
        if measured:
            least = min(measured, key=lambda at: sample.entropy[at])
            told.append(
                f"The least entropy is {number(sample.entropy[least])} of the possible, in {sample.names[least]} "
                "(1: it looks at all time steps alike, 0: at one alone)."
            )
            if sample.entropy[least] < PEAKED:
                told.append("Its softmax is saturated, so hardly any gradient passes: qk_norm bounds the logits.")
    if sample.log_z is not None:
        told.append(f"log Z of the outputs is {number(sample.log_z)} on average; z_loss draws it to 0.")
    return " ".join(told)


def clipping_effects(clipped_gradient: ClippedGradient) -> str:
    """Return a sentence on what each kind of clipping does to the whole gradient."""
    texts = [f"All {clipped_gradient.size:,} entries: the gradient is {number(clipped_gradient.norm)} long."]
    for kind, what in (
        ("norm", f"Norm, max_norm {number(clipped_gradient.max_norm)}"),
        ("value", f"Value, clip_value {number(clipped_gradient.clip_value)}"),
        ("agc", f"AGC, agc_factor {number(clipped_gradient.agc_factor)}"),
    ):
        cut = clipped_gradient.cuts[kind]
        texts.append(f"{what}: {cut_in_words(clipped_gradient.norm, cut.norm, cut.angle)}.")
    cost = clipped_gradient.seconds / (clipped_gradient.seconds + clipped_gradient.passes)
    texts.append(
        f"torch's clip_grad_norm_ takes {number(1000 * clipped_gradient.seconds)} ms for it, {share(cost)} of that and "
        f"the passes in fp32, {number(1000 * clipped_gradient.passes)} ms."
    )
    return " ".join(texts)


def cut_in_words(before: float, after: float, angle: float) -> str:
    """Return the effect of clipping on a vector: its length afterwards, and by how many degrees it turned."""
    if after >= before * (1 - 1e-6):
        return "nothing is cut"
    if math.isnan(angle):
        return "nothing is left"
    turned = "same direction" if angle < TURNED else f"turned by {degrees(angle)}"
    return f"{number(after)} long, {turned}"


def degrees(angle: float) -> str:
    """Return an angle in degrees."""
    return f"{number(angle)}°"
