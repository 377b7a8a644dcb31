"""Fixes tried on a recorded training: from its state on, over its batches, each with a single change."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gradstudio.core.text import number, plural
from gradstudio.crash.attention_calls import CAP, attention_in, number_of
from gradstudio.crash.change import NO_CHANGE, Change, Guard
from gradstudio.crash.recorded_pass import SAME_ENTRIES, Raised, fills, written_by
from gradstudio.crash.recorded_training import Recorded, StepResult, Training, preserve_random_state, replay_steps
from gradstudio.session.files.crash_file import RecordedBirth, Structure
from gradstudio.session.record import run_outcome

ROUNDS = 3  # times that the recorded batches are repeated
LEAST = 12  # updates of a trial
MOST_GUARDS = 3  # number of calls that one fix keeps within bounds
LEAST_VARIANCE = 1e-3  # that a softplus in place of a relu leaves
_MAKE_ZEROS = {"relu", "relu_", "clamp", "clamp_", "clamp_min", "clamp_min_"}
_KEEP_MASK = {"softmax", "log_softmax", "mul", "__mul__", "__truediv__", "div", "add", "__add__"}
MASK = -1e4  # as fp16 has no -1e9
FAR_ABOVE = 10.0  # times the losses, or the learning rates, of the first recorded steps
MOST_LOSS = 2.0  # a fix with this many times the best loss comes after the others

# The change to the dangerous argument of a call, by which number, and its notation.
_GUARDS: dict[str, tuple[str, float, str]] = {
    "exp": ("both", 40.0, "torch.exp(x.clamp(-40, 40))"),
    "exp_": ("both", 40.0, "x.clamp_(-40, 40).exp_()"),
    **dict.fromkeys(("log", "log2", "log10"), ("least", 1e-8, "torch.log(x.clamp_min(1e-8))")),
    **dict.fromkeys(("sqrt", "rsqrt", "reciprocal"), ("plus", 1e-8, "(x + 1e-8)")),
    **dict.fromkeys(("div", "true_divide", "__truediv__", "div_"), ("divisor", 1e-8, "a / (b + 1e-8)")),
    "__rtruediv__": ("plus", 1e-8, "a / (b + 1e-8)"),
    **dict.fromkeys(("norm", "vector_norm"), ("plus", 1e-8, "(x + 1e-8).norm()")),
    **dict.fromkeys(("softmax", "log_softmax"), ("least", -1e4, "torch.softmax(x.clamp_min(-1e4), …)")),
    **dict.fromkeys(("pow", "__pow__"), ("least", 1e-8, "x.clamp_min(1e-8) ** y")),
    "log1p": ("least", -1 + 1e-6, "torch.log1p(x.clamp_min(-1 + 1e-6))"),
    "atanh": ("both", 1 - 1e-6, "torch.atanh(x.clamp(-1 + 1e-6, 1 - 1e-6))"),
    **dict.fromkeys(("acos", "asin", "arccos", "arcsin"), ("both", 1 - 1e-6, "x.clamp(-1 + 1e-6, 1 - 1e-6)")),
}


@dataclass
class Trial:
    """The result of one fix. `broke_at` counts its updates; None if everything was finite."""

    change: Change
    updates: int = 0
    broke_at: int | None = None
    loss: float = math.nan
    update: float = math.nan
    learns: bool = True  # its loss did not rise
    fault: str = ""

    @property
    def is_finite(self) -> bool:
        return self.broke_at is None and not self.fault

    @property
    def holds(self) -> bool:
        return self.is_finite and self.learns and self.updates > 0

    @property
    def words(self) -> str:
        name = self.change.name or "no change"
        if self.fault:
            return f"{name}: failed, {self.fault}"
        if self.broke_at is not None:
            return f"{name}: not finite at update {self.broke_at + 1:,}"
        if not self.updates:
            return f"{name}: no recorded batch is left to try it on"
        size = f", updates of {number(self.update)} of the weights" if math.isfinite(self.update) else ""
        how = "holds for" if self.learns else "finite, but its loss rises in"
        return f"{name}: {how} {plural(self.updates, 'update', 'updates')}, loss {number(self.loss)}{size}"

    def as_json(self) -> dict[str, Any]:
        return {
            "fix": self.change.name, "held": self.holds, "updates": self.updates, "broke_at": self.broke_at,
            "loss": _finite(self.loss), "update": _finite(self.update), "lines": list(self.change.lines),
            "fault": self.fault, "words": self.words,
        }  # fmt: skip


class Tried(NamedTuple):
    """All trials, the best first, and the one without a change."""

    trials: list[Trial]
    unchanged: Trial

    @property
    def words(self) -> str:
        held = sum(each.holds for each in self.trials)
        told = f"{held} of {plural(len(self.trials), 'fix', 'fixes')} hold"
        if self.unchanged.is_finite:
            return f"{told}; without a change it is finite here too"
        return told + ("" if held else ": the harm was done before the recorded steps, or in the data")


def tried(recorded: Recorded, device: str = "cpu", seconds: float = math.inf) -> Tried:
    """Try every applicable fix. TimeoutError if that takes more `seconds`."""
    end = time.monotonic() + seconds
    training = Training(recorded, device)
    born = replay_steps(training)
    unchanged = _trial(recorded, device, NO_CHANGE)
    trials: list[Trial] = []
    for each in candidates(recorded.structure, born):
        if time.monotonic() > end:
            raise TimeoutError
        trials.append(_with_more_guards(recorded, device, _trial(recorded, device, each)))
    best = min((each.loss for each in trials if each.holds), default=math.nan)

    def place(item: tuple[int, Trial]) -> tuple[Any, ...]:
        at, each = item
        worse = not each.loss <= best + (MOST_LOSS - 1) * abs(best)
        return (not each.is_finite, not each.learns, worse, at if each.is_finite else -(each.broke_at or 0))

    return Tried([each for _, each in sorted(enumerate(trials), key=place)], unchanged)


def _trial(recorded: Recorded, device: str, change: Change) -> Trial:
    """Go through the recorded batches, from the recorded state on."""
    trial, steps = Trial(change), recorded.structure.steps
    made: list[StepResult] = []
    try:
        with preserve_random_state():
            training = Training(recorded, device, change)
            for place in range(max(ROUNDS * len(steps), LEAST)):
                step = steps[place % len(steps)]
                one = training.step(step)
                if step.number in change.skipped:
                    continue
                scaled = any(each.scale != 1 for each in step.passes)
                if not (math.isfinite(one.loss) and (scaled or math.isfinite(one.norm)) and math.isfinite(one.update)):
                    trial.broke_at = len(made)
                    break
                made.append(one)
    except Raised as fault:
        trial.fault = str(fault)[:100]
    except Exception as fault:  # from torch, for incompatible values
        trial.fault = f"{type(fault).__name__}: {' '.join(str(fault).split())[:100]}"
    trial.updates = len(made)
    if made:
        count = len(steps) - len(change.skipped)
        losses = np.array([each.loss for each in made])
        trial.loss = float(losses[-count:].mean())
        trial.update = statistics.median(each.update for each in made)
        before = [each.loss for each in steps[:-1] if isinstance(each.loss, float)]
        rises = run_outcome.rises(losses[:count], losses[-count:], least=1)
        trial.learns = not (rises or (before and _is_far_above(trial.loss, before)))
    return trial


def _is_far_above(loss: float, losses: Sequence[float]) -> bool:
    """Return whether a loss is far above those of the first half of the recorded steps."""
    usual = abs(statistics.median(losses[: max(1, len(losses) // 2)]))
    return usual > 0 and loss > FAR_ABOVE * usual


def _with_more_guards(recorded: Recorded, device: str, trial: Trial) -> Trial:
    """Also keep the next broken value within bounds, if one call is not enough."""
    while trial.change.guards and not trial.is_finite and len(trial.change.guards) < MOST_GUARDS:
        try:
            born = replay_steps(Training(recorded, device, trial.change))
        except Raised:
            break
        more = next(_guards(born), None)
        if more is None or more.guards[0] in trial.change.guards:
            break
        before = trial.change
        both = f"{before.name.removesuffix(' in bounds')} and {born.do.rpartition('.')[2]} in bounds"
        change = Change(both, (*before.lines, *more.lines), guards=(*before.guards, *more.guards))
        trial = _trial(recorded, device, change)
    return trial


def candidates(structure: Structure, born: RecordedBirth) -> list[Change]:
    """Return the applicable fixes, with those indicated by the mechanism first."""
    last = structure.steps[-1]
    skip = Change(
        "skip the batch", ("if not torch.isfinite(loss): optimizer.zero_grad(); continue",),
        skipped=frozenset((born.step,)),
    )  # fmt: skip
    losses = [each.loss for each in structure.steps[:-1] if isinstance(each.loss, float)]
    is_rising = len(losses) > 1 and _is_far_above(losses[-1], losses)
    rates = list(_of_the_rate(structure))
    groups: list[list[Change]] = [
        [skip] if born.phase == "given" else [],
        rates if is_rising or born.phase == "update" else [],
        list(_precision(structure, born)),
        list(_before(structure, born)),
        list(_guards(born)),
        list(_of_attention(structure)),
        [skip],
        rates,
        list(_of_the_optimizer(last.groups)),
    ]
    return list({each.name: each for group in reversed(groups) for each in reversed(group)}.values())[::-1]


def _guards(born: RecordedBirth) -> Iterator[Change]:
    kind = born.do.rpartition(".")[2]
    if (guards := _GUARDS.get(kind)) is not None:
        how, by, text = guards
        line = f"{born.line or 'module ' + born.module}: {text} in place of {kind}"
        yield Change(f"keep {kind} in bounds", (line,), guards=(Guard(born.do, born.line, how, by),))


def _before(structure: Structure, born: RecordedBirth) -> Iterator[Change]:
    """Fixes at an earlier call whose result this call uses: a softplus in place of a ReLU that gave a 0, such as a
    variance, and a number in place of the -Inf of a mask."""
    kind = born.do.rpartition(".")[2]
    danger = _GUARDS.get(kind, ("",))[0]
    for calls in structure.programs:
        call = calls[born.call] if 0 <= born.call < len(calls) else None
        if call is None or (call.do, call.line, call.module) != (born.do, born.line, born.module):
            continue
        makers = {number: each for each in calls[: born.call] for number in written_by(each)}
        taken = [*call.given, *call.named.values()][danger == "divisor" :]
        maker = makers.get(number_of(taken[0])) if taken else None
        for _ in calls:  # at most
            if maker is None or not (maker.kind in SAME_ENTRIES or maker.kind in _KEEP_MASK):
                break
            taken = [*maker.given, *maker.named.values()]
            maker = makers.get(number_of(taken[0])) if taken else None
        if maker is None:
            return
        where = f"{maker.line or 'module ' + maker.module}: "
        if maker.kind in _MAKE_ZEROS and danger in ("least", "plus", "divisor"):
            line = f"{where}torch.nn.functional.softplus(x) + {LEAST_VARIANCE:g} in place of {maker.kind}"
            guard = Guard(maker.do, maker.line, "softplus", LEAST_VARIANCE, maker.module)
            yield Change(f"softplus in place of {maker.kind}", (line,), guards=(guard,))
        if fills(maker) and {"float": "-inf"} in (*maker.given, *maker.named.values()):
            guard = Guard(maker.do, maker.line, "mask", MASK, maker.module)
            yield Change("a finite mask", (f"{where}{MASK:g} in place of float('-inf')",), guards=(guard,))
        return


def _of_attention(structure: Structure) -> Iterator[Change]:
    for calls in structure.programs:
        attention = attention_in(calls)
        lines = {place: f"{calls[place].line or 'module ' + calls[place].module}: " for place in attention.products}
        if not lines:
            continue
        normed = "q, k = [torch.nn.functional.rms_norm(x, x.shape[-1:]) for x in (q, k)]  # before their product"
        yield Change("QK-norm", (lines[min(lines)] + normed,), attention="norm")
        if attention.scores:
            capped = f"scores = {CAP:g} * torch.tanh(scores / {CAP:g})  # before the mask and the softmax"
            yield Change("softcap", (lines[min(lines)] + capped,), attention="cap")
        return


def _precision(structure: Structure, born: RecordedBirth) -> Iterator[Change]:
    formats = {dtype for calls in structure.programs for call in calls for dtype in call.autocast.values()}
    if not formats:
        return
    if born.module:
        line = (
            f"with torch.autocast({structure.device!r}, enabled=False): around module {born.module}, its input .float()"
        )
        yield Change(f"fp32 for module {born.module}", (line,), exact=born.module)
    if "float16" in formats:
        line = f"torch.autocast({structure.device!r}, torch.bfloat16), without a GradScaler"
        yield Change("bf16 in place of fp16", (line,), dtype="bfloat16", scale=1.0)
    yield Change("fp32 for all", (f"torch.autocast({structure.device!r}, enabled=False)",), exact="*", scale=1.0)
    scale = max((each.scale for step in structure.steps for each in step.passes), default=1.0)
    if scale > 1:
        yield Change(
            "a loss scale of 1/16", (f"GradScaler(init_scale={scale / 16:g})  # was {scale:g}",), scale=scale / 16
        )


def _of_the_rate(structure: Structure) -> Iterator[Change]:
    last = structure.steps[-1]
    kind = structure.optimizers[0].kind.rpartition(".")[2] if structure.optimizers else "Optimizer"
    rates = [group["lr"] for groups in last.groups for group in groups if isinstance(group.get("lr"), float)]
    firsts = [
        group["lr"] for groups in structure.steps[0].groups for group in groups if isinstance(group.get("lr"), float)
    ]
    if (grown := [(old, new) for old, new in zip(firsts, rates, strict=False) if new >= FAR_ABOVE * old]) and firsts:
        (old, new), step = grown[0], structure.steps[0].number
        yield Change(
            f"the learning rate of step {step:,}", (f"lr={old:g} at every step  # grew to {new:g}",), first_rate=True
        )
    for factor in (0.1, 0.01) if rates else ():
        line = f"{kind}(…, lr={rates[-1] * factor:g})  # was {rates[-1]:g}"
        yield Change(f"learning rate × {factor:g}", (line,), rate=factor)
    norms = [each.norm for each in structure.steps if isinstance(each.norm, float) and each.norm > 0]
    if norms:
        limit = float(f"{statistics.median(norms[: max(1, len(norms) // 2)]):.2g}")
        line = f"torch.nn.utils.clip_grad_norm_(model.parameters(), {limit:g})  # before optimizer.step()"
        yield Change(f"clip the norm at {limit:g}", (line,), clip=("norm", limit))
        line = f"torch.nn.utils.clip_grad_value_(model.parameters(), {limit / 10:g})  # before optimizer.step()"
        yield Change(f"clip values at {limit / 10:g}", (line,), clip=("value", limit / 10))


def _of_the_optimizer(groups: list[list[dict[str, Any]]]) -> Iterator[Change]:
    first = groups[0][0] if groups and groups[0] else {}
    if isinstance(eps := first.get("eps"), float | int):
        more = eps * 1000 or 1e-8
        yield Change(f"eps {more:g}", (f"eps={more:g}  # was {eps:g}",), values={"eps": more})
    betas = first.get("betas")
    if isinstance(betas, dict) and len(pair := betas.get("tuple", ())) == 2 and pair[1] != 0.95:
        line = f"betas=({pair[0]:g}, 0.95)  # was ({pair[0]:g}, {pair[1]:g})"
        yield Change("second beta 0.95", (line,), values={"betas": (pair[0], 0.95)})


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
