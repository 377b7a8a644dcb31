"""Weight decay compared with the gradient: which of the two moved the weights, by the rows and the settings in force.
Rows of older versions do not include their decay, so nothing is reported for them."""

from __future__ import annotations

import numpy as np

from gradstudio.core.diagnosis.mechanism import in_force
from gradstudio.core.diagnosis.median import median
from gradstudio.core.history import History
from gradstudio.core.row import Settings
from gradstudio.core.text import number

DECOUPLED = ("adamw", "lion", "muon", "stable_adamw")  # optimizers that subtract lr x weight_decay of the weights
# Share of the weights that a usual decay removes at each step: 0.1 at AdamW's usual rate of 0.001.
USUAL = 1e-4
LEFT = 0.5  # share of the weights' norm below which they have shrunk
WINDOW = 200  # number of steps for that. A usual decay takes 700 steps or more
DROWNED = 10.0  # times the gradient
LONG = 50  # steps
_USUAL_L2 = 1e-4  # factor that is added to the gradient of Adam and RMSprop, which divide by its size


def outweighs(history: History, start: int, stop: int) -> bool:
    """Return whether weight decay exceeded the gradient in at least half of the rows from start to stop."""
    balance = balances(history, start, stop)
    return len(balance) > 0 and median(balance) > 1


def fall(history: History, stop: int, left: float = LEFT, window: int = WINDOW) -> int | None:
    """Return the step, at most `window` before `stop`, at which weight decay began to outweigh the gradient, if after
    it the norm of the weights fell below `left` of its value and decay outweighed the gradient at half of these steps
    or more; if a step removed more than all of the weights; or if an optimizer that divides by the size of the gradient
    received little but the decay for long. Otherwise None."""
    start = max(stop - window, 0)
    balance = balances(history, start, stop)
    above = np.flatnonzero(balance > 1)
    if not len(above):
        return None
    first = int(above[0])
    if overshoots(history, start + first):
        return start + first
    if _drowns(history, balance[first:]):
        return start + first
    norms = history.column("weight_norm", start + first, stop)
    small = np.flatnonzero(norms < left * norms[0])
    if not len(small):
        return None
    during = balance[first : first + int(small[0])]
    return start + first if np.count_nonzero(during > 1) >= 0.5 * len(during) else None


def _drowns(history: History, balance: np.ndarray) -> bool:
    """Return whether decay was so much larger than the gradient that Adam or RMSprop follow only the decay."""
    divides = history.settings[-1][1].optimizer in ("adam", "rmsprop")
    return divides and len(balance) >= LONG and median(balance[-LONG:]) > DROWNED


def shrinkage(history: History, step: int) -> str:
    """Return a sentence, with a leading space, that weight decay shrank the weights before a step; "" if it did not."""
    first = fall(history, step + 1)
    if first is None:
        return ""
    before, then = (number(history.value("weight_norm", at)) for at in (first, step))
    return (
        f" Weight decay outweighed the gradient before that: the norm of the weights was {before} at step {first:,} "
        f"and {then} at step {step:,}."
    )


def overshoots(history: History, step: int) -> bool:
    """Return whether the decay of a step removes more than all of the weights."""
    settings = in_force(history, step)
    if settings is None or not settings.weight_decay or settings.optimizer not in ("sgd", *DECOUPLED):
        return False
    return history.value("lr", step) * settings.weight_decay > 1


def balances(history: History, start: int, stop: int) -> np.ndarray:
    """Return the ratio of the decay term to the gradient, (rows,); 0 without decay, or if a number is non-finite.
    Decoupled optimizers add the decay to the update: there 1 means half of the update."""
    ratios = np.zeros(max(min(stop, len(history)) - start, 0))
    until = start + len(ratios)
    for since, settings in reversed(history.settings):
        first = max(since, start)
        if first < until and settings.weight_decay:
            ratios[first - start : until - start] = _balances(history, settings, settings.weight_decay, first, until)
        until = min(until, first)
    return ratios


def _balances(history: History, settings: Settings, decay: float, start: int, stop: int) -> np.ndarray:
    if settings.optimizer in DECOUPLED:
        pull, whole = 2 * decay * history.column("lr", start, stop), history.column("update_ratio", start, stop)
    else:
        pull, whole = decay * history.column("weight_norm", start, stop), history.column("clipped_norm", start, stop)
    sound = np.isfinite(pull) & np.isfinite(whole) & (pull > 0)
    with np.errstate(over="ignore"):  # Inf if the gradient has all but vanished
        return np.where(sound, pull / np.where(sound, np.maximum(whole, 1e-300), 1.0), 0.0)


def decayed_share(history: History, step: int) -> float | None:
    """Return the share of the weights that the decay of a step removes; None if the optimizer transforms it."""
    settings = in_force(history, step)
    if settings is None or not settings.weight_decay:
        return None
    plain = settings.optimizer in DECOUPLED or (settings.optimizer == "sgd" and settings.momentum == 0)
    return history.value("lr", step) * settings.weight_decay if plain else None


def describe_decay(history: History, step: int) -> str:
    """Return what weight decay did at a step, as sentences. The run must have weight decay."""
    share = decayed_share(history, step)
    if share is None:
        settings = in_force(history, step)
        pull = ((settings and settings.weight_decay) or 0.0) * history.value("weight_norm", step)
        return (
            f"At step {step:,} weight decay added a vector of norm {number(pull)} (weight_decay × weights) to a "
            f"gradient of norm {number(history.value('clipped_norm', step))}."
        )
    sign = " Above 1 it turns their sign" + (", and above 2 they grow." if share > 2 else ".") if share > 1 else ""
    return (
        f"At step {step:,} weight decay took {number(share)} of the weights away (lr × weight_decay), and the whole "
        f"update was {number(history.value('update_ratio', step))} times as large as the weights.{sign}"
    )


def lower(history: History, step: int) -> tuple[str, ...]:
    """Return lower decays as remedies, the usual one first."""
    settings = in_force(history, step)
    if settings is None or not settings.weight_decay:
        return ()
    lr = history.value("lr", step)
    plain = settings.optimizer in ("sgd", *DECOUPLED)
    kept = 1 - settings.momentum if settings.optimizer == "sgd" and settings.momentum < 1 else 1.0
    usual = float(f"{min(USUAL * kept / lr, 0.1) if plain and lr > 0 else _USUAL_L2:.1g}")
    return tuple(f"optimizer.weight_decay={value:g}" for value in (usual, 0.0) if value < settings.weight_decay)
