"""The fixes that a recorded training offers, each a single change, with those that its mechanism indicates first."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from gradstudio.crash.attention_calls import CAP, attention_in, number_of
from gradstudio.crash.change import Change, Guard
from gradstudio.crash.recorded_pass import SAME_ENTRIES, fills, written_by
from gradstudio.session.files.crash_file import RecordedBirth, Structure

LEAST_VARIANCE = 1e-3  # that a softplus in place of a relu leaves
_MAKE_ZEROS = {"relu", "relu_", "clamp", "clamp_", "clamp_min", "clamp_min_"}
_KEEP_MASK = {"softmax", "log_softmax", "mul", "__mul__", "__truediv__", "div", "add", "__add__"}
MASK = -1e4  # as fp16 has no -1e9
FAR_ABOVE = 10.0  # times the losses, or the learning rates, of the first recorded steps

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

_WITHOUT_BROKEN_EXAMPLES = Change(
    "leave out examples that are not finite",
    ("keep = torch.isfinite(x).flatten(1).all(1)  # then x[keep] and its targets",),
    drops_examples=True,
)


def is_far_above(loss: float, losses: Sequence[float]) -> bool:
    """Return whether a loss is far above those of the first half of the recorded steps."""
    usual = abs(statistics.median(losses[: max(1, len(losses) // 2)]))
    return usual > 0 and loss > FAR_ABOVE * usual


def candidates(structure: Structure, born: RecordedBirth) -> list[Change]:
    """Return the applicable fixes, with those indicated by the mechanism first."""
    last = structure.steps[-1]
    skip = _skip(structure, born)
    losses = [each.loss for each in structure.steps[:-1] if isinstance(each.loss, float)]
    is_rising = len(losses) > 1 and is_far_above(losses[-1], losses)
    rates = list(_of_the_rate(structure))
    groups: list[list[Change]] = [
        [skip, _WITHOUT_BROKEN_EXAMPLES] if born.phase == "given" and born.do.startswith("batch") else [],
        rates if is_rising or born.phase == "update" else [],
        list(_precision(structure, born)),
        list(_before(structure, born)),
        list(guards(born)),
        list(_of_attention(structure)),
        [skip],
        rates,
        list(_of_the_optimizer(last.groups)),
    ]
    return list({each.name: each for group in reversed(groups) for each in reversed(group)}.values())[::-1]


def _skip(structure: Structure, born: RecordedBirth) -> Change:
    """Leave out a step: with several ranks all of them have to, or they wait for one another."""
    name, lines = "skip the batch", ("if not torch.isfinite(loss): optimizer.zero_grad(); continue",)
    if structure.ranks > 1:
        ask = "ok = torch.isfinite(loss).float(); dist.all_reduce(ok, dist.ReduceOp.MIN)"
        name, lines = (
            "skip the step on every rank",
            (ask, "if not ok: continue  # on every rank, before loss.backward()"),
        )
    return Change(name, lines, skipped=frozenset((born.step,)))


def guards(born: RecordedBirth) -> Iterator[Change]:
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
