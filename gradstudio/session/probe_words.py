"""What the gauges of core/probes.py say, in a sentence or two each."""

from __future__ import annotations

import math

from gradstudio.core.probes import Exponents, NoiseScale, Overshoot, Shares, Sharpness
from gradstudio.core.text import number, plural, power
from gradstudio.session.run import Run
from gradstudio.session.wording import OPTIMIZERS

NEAR = 0.1  # so near to the limit counts as at it
FAR = 4  # a batch that many times too small, or too large, is worth a word
SETTLED = 10  # samples of the noise until its average means something


def share(value: float) -> str:
    """'31 %', on one line; what is nearly nothing or nearly all is not said to be that."""
    percent = 100 * value
    if 0 < percent < 0.01:
        return "less than 0.01\N{NO-BREAK SPACE}%"
    if 99.9 < percent < 100:
        return "more than 99.9\N{NO-BREAK SPACE}%"
    return f"{number(percent, 2) if percent < 99 else f'{percent:.3g}'}\N{NO-BREAK SPACE}%"


def factor(scale: float) -> str:
    """A loss scale, as a power of two where it is one."""
    mantissa, exponent = math.frexp(scale)
    return power(2, exponent - 1) if mantissa == 0.5 else number(scale)


def exponents(found: Exponents, run: Run) -> str:
    """How much fp16 loses of the gradient, and how a loss scale moves it."""
    dtype, told = run.in_force.precision.dtype, []
    scale, scaled = (found.scale, found.scaled) if found.scale != 1 else (found.best_scale, found.best)
    lost = _lost(found.plain)
    lost = lost[0].upper() + lost[1:]
    if found.entries == 0:
        told.append("No entry is finite and not 0.")
    elif dtype == "fp16" and found.scale != 1:
        if found.plain.lost or scaled.lost:
            told.append(f"{lost} of the entries are below what fp16 can hold; scaled by {factor(scale)}, {_lost(scaled)}.")
        else:
            told.append("No entry is below what fp16 can hold, without the loss scale and with it.")
        if scaled.over:
            told.append(f"But {share(scaled.over)} are then above 65504, the largest number of fp16: an overflow.")
        if scaled.lost > found.best.lost + 0.01:
            told.append(f"{factor(found.best_scale)} would leave {_lost(found.best)}.")
    elif dtype == "fp16" and found.plain.lost:
        told.append(f"{lost} of the entries are below what fp16 can hold, and there is no loss scale.")
        if scale != 1:
            told.append(f"Scaled by {factor(scale)} it would be {_lost(scaled)}.")
    elif found.plain.lost:
        told.append(f"{lost} of the entries are below what fp16 could hold; scaled by {factor(scale)} it would be {_lost(scaled)}.")
        told.append(f"{dtype} holds them as they are.")
    elif not found.plain.over:
        told.append("Every entry is within what fp16 can hold, without a loss scale.")
    if found.plain.over and found.scale == 1:
        told.append(f"{share(found.plain.over)} are above 65504, the largest number of fp16.")
    if found.nonfinite:
        told.append(f"{plural(found.nonfinite, 'entry is', 'entries are')} NaN or Inf.")
    if found.zeros:
        told.append(f"{share(found.zeros / (found.zeros + found.entries + found.nonfinite))} of all are exactly 0, and not counted.")
    return " ".join(told)


def _lost(shares: Shares) -> str:
    return "none" if shares.lost == 0 else share(shares.lost)


def rule(found: Sharpness) -> str:
    """'2/lr', '38/lr'."""
    return f"{number(found.rule)}/lr" if found.lr > 0 else "2/lr"


def sharpness(found: Sharpness, run: Run) -> str:
    """Whether the step is short enough for the steepest direction."""
    seen = f", as {OPTIMIZERS[run.in_force.optimizer.kind]} sees it," if found.preconditioned else ""
    value = f"Sharpness {'' if found.converged else 'at least '}{number(found.value)}{seen}"
    alone = value.removesuffix(",")  # before another stop
    if not math.isfinite(found.limit):
        return f"{alone}; the learning rate is 0, so nothing moves."
    limit = f"{rule(found)} = {number(found.limit)}"
    if found.value > (1 + NEAR) * found.limit:
        clipped = len(run.history) and run.history.value("clip_coef", len(run.history) - 1) < 1
        held = " Clipping makes it shorter, which holds the run together." if clipped else ""
        return f"{value} is over {limit}: the step is too long for the steepest direction.{held}"
    if found.value >= (1 - NEAR) * found.limit:
        return f"{value} is at {limit}, the edge of stability: along the steepest direction the weights swing to and fro, no further each time."
    if found.value <= 0:
        return f"{alone}: no direction curves upward, so no step is too long here."
    if not found.converged:
        return f"{alone}, against {limit}: it takes more samples to say more."
    return f"{value} is under {limit}: the step is short enough for the steepest direction."


def noise_scale(found: NoiseScale) -> str:
    """What a batch of another size would change."""
    batch = f"the batch has {found.batch:,}"
    if math.isinf(found.value):
        told = f"The gradient is lost in its noise, too faint to measure; {batch}. Each step is nearly all chance, and a larger batch would help."
    elif found.value > FAR * found.batch:
        told = f"{_examples(found)}; {batch}. Each step is mostly noise: a larger batch, or more micro-batches, would give a better direction."
    elif found.value * FAR < found.batch:
        told = f"{_examples(found)}; {batch}, more than it takes: a smaller one would move nearly as well, sooner."
    else:
        told = f"{_examples(found)}; {batch}, which suits it."
    return told if found.samples >= SETTLED else f"{told} This is of {plural(found.samples, 'sample', 'samples')} yet, so it may still move much."


def _examples(found: NoiseScale) -> str:
    count = number(found.value, 2) if found.value < 10 or found.value >= 1e4 else f"{found.value:.0f}"
    return f"From about {count} examples on a larger batch helps little"


def overshoot(found: Overshoot) -> str:
    """Whether the last update went past the minimum in its way."""
    before, after = found.losses[0], found.losses[2]
    digits = next((digits for digits in range(3, 9) if number(before, digits) != number(after, digits)), 9)
    moved = f"The loss of the probe batch went from {number(before, digits)} to {number(after, digits)}."
    if not math.isfinite(after):
        return f"The last update left a loss that is {number(after)}."
    if math.isinf(found.ratio):
        return f"The last update led uphill from the start: by chance, as other examples asked for it, or by its momentum. {moved}"
    if found.ratio == 0:
        return f"The last update has no minimum ahead: twice as far, the loss would fall still faster. {moved}"
    best = f"{number(found.ratio, 2)} times the step to the minimum in its way"
    if found.ratio > 2:
        return f"The last update went so far past the minimum that the loss came out higher: {best}. {moved}"
    if found.ratio > 1.2:
        return f"The last update went past the minimum: {best}. {moved}"
    if found.ratio >= 0.5:
        return f"The last update came close to the minimum: {best}. {moved}"
    return f"The last update stopped well before the minimum: {best}. {moved}"
