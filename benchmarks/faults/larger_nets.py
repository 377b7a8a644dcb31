"""The same in larger nets: 1024 units wide, 40 layers deep, and the transformer that reads characters."""

from __future__ import annotations

from collections.abc import Callable

from gradstudio.session.course.drawn_faults.drawing_runs import Random, Texts, log_uniform, lr_of, one_of
from gradstudio.session.course.drawn_faults.kinds import DrawnFault, Kind, Part, changes_at

_RATE = ("rate_raised", "update_ratio_high", "exploding_gradient", "dead_units")


def _wide(random: Random) -> Texts:
    kind = str(one_of(random, "sgd", "adam"))
    low, high = (0.02, 0.1) if kind == "sgd" else (2e-4, 1e-3)
    return [
        "model.width=1024", f"model.depth={random.integers(2, 4)}", "model.init=he",
        f"model.activation={one_of(random, 'relu', 'gelu')}", "problem.batch_size=32", "run.steps=120",
        f"optimizer.kind={kind}", f"optimizer.lr={log_uniform(random, low, high)}",
    ]  # fmt: skip


def _forty(random: Random) -> Texts:
    """Forty layers with what makes them learn: a residual sum and a norm in each."""
    return [
        "model.depth=40", f"model.width={int(log_uniform(random, 32, 64))}", "model.residual=true", "model.norm=layer",
        f"model.init={one_of(random, 'default', 'normal')}", f"model.activation={one_of(random, 'relu', 'gelu')}",
        "problem.batch_size=32", "run.steps=120", "optimizer.kind=adam", f"optimizer.lr={log_uniform(random, 5e-4, 2e-3)}",
    ]  # fmt: skip


def _reader(random: Random) -> Texts:
    return [
        "problem.task=characters", "model.kind=transformer", f"problem.seq_len={one_of(random, 16, 32)}",
        f"model.depth={random.integers(2, 5)}", f"model.width={one_of(random, 48, 64)}", "problem.batch_size=16",
        f"optimizer.kind={one_of(random, 'adam', 'adamw')}", f"optimizer.lr={log_uniform(random, 0.001, 0.004)}",
        "run.steps=150",
    ]  # fmt: skip


def _with(
    base: Callable[[Random], Texts], *named: str, silent: bool = False
) -> Callable[..., Callable[[Random], DrawnFault]]:
    def of(change: Callable[[Random, Texts], tuple[str, ...]]) -> Callable[[Random], DrawnFault]:
        def draw(random: Random) -> DrawnFault:
            texts = base(random)
            return DrawnFault(texts, (Part(named, change(random, texts), silent=silent),))

        return draw

    return of


def _high(random: Random, base: Texts) -> tuple[str, ...]:
    return (f"optimizer.lr={lr_of(base) * log_uniform(random, 30, 1000):.3g}",)


def _sharp(random: Random, base: Texts) -> tuple[str, ...]:
    """Return a rate at which the logits of attention grow and no gradient does."""
    return (f"optimizer.lr={lr_of(base) * log_uniform(random, 8, 15):.3g}",)


def _low(random: Random, base: Texts) -> tuple[str, ...]:
    return (f"optimizer.lr={lr_of(base) * log_uniform(random, 1e-6, 1e-4):.3g}",)


def _large(random: Random, base: Texts) -> tuple[str, ...]:
    return (f"model.init_gain={log_uniform(random, 5, 20)}",)


def _bare(random: Random, base: Texts) -> tuple[str, ...]:
    return ("model.residual=false", "model.norm=none", "model.init=default", "model.activation=relu")


def _sigmoid(random: Random, base: Texts) -> tuple[str, ...]:
    return ("model.residual=false", "model.norm=none", "model.init=xavier", "model.activation=sigmoid")


def _undivided(random: Random, base: Texts) -> tuple[str, ...]:
    return ("mistakes.unscaled_accumulation=true",)


def _micro(base: Callable[[Random], Texts]) -> Callable[[Random], Texts]:
    return lambda random: [*base(random), "accumulation.steps=4", "problem.batch_size=8"]


def _static(random: Random, base: Texts) -> tuple[str, ...]:
    return (
        "precision.dtype=fp16",
        "precision.scaling=static",
        f"precision.init_scale={log_uniform(random, 1e8, 1e11)}",
    )


def _never(random: Random, base: Texts) -> tuple[str, ...]:
    return ("mistakes.never_zero_grad=true",)


def _dead(random: Random, base: Texts) -> tuple[str, ...]:
    return ("model.activation=relu", f"model.initial_bias={-log_uniform(random, 4, 10):.3g}")


def _raised(base: Callable[[Random], Texts]) -> Callable[[Random], DrawnFault]:
    def draw(random: Random) -> DrawnFault:
        texts = base(random)
        lr = lr_of(texts) * log_uniform(random, 30, 1000)
        return DrawnFault(texts, (changes_at(int(random.integers(40, 80)), f"optimizer.lr={lr:.3g}", named=_RATE),))

    return draw


_FAULTS: dict[str, Callable[[Random], DrawnFault]] = {
    "width 1024: rate too high": _with(_wide, *_RATE)(_high),
    "width 1024: rate too low": _with(_wide, "update_ratio_low")(_low),
    "width 1024: drawn too large": _with(_wide, "poor_initialization")(_large),
    "width 1024: units born dead": _with(_wide, "dead_units")(_dead),
    "width 1024: not divided": _with(_micro(_wide), "accumulation_mismatch", silent=True)(_undivided),
    "width 1024: rate raised": _raised(_wide),
    "depth 40: rate too high": _with(_forty, *_RATE)(_high),
    "depth 40: no residual, no norm": _with(_forty, "vanishing_gradient", "poor_initialization", "signal_lost")(_bare),
    "depth 40: sigmoid": _with(_forty, "vanishing_gradient", "signal_lost")(_sigmoid),
    "depth 40: rate raised": _raised(_forty),
    "characters: rate too high": _with(_reader, *_RATE)(_high),
    "characters: scale too high": _with(_reader, "fp16_overflow")(_static),
    "characters: never cleared": _with(_reader, "loop_order", silent=True)(_never),
    "characters: rate raised": _raised(_reader),
    "characters: attention collapses": _with(_reader, "attention_collapse", *_RATE)(_sharp),
}

KINDS = (
    *(Kind("larger nets", name, draw) for name, draw in _FAULTS.items()),
    *(
        Kind("healthy", name, lambda random, base=base: DrawnFault(base(random), ()), healthy=True)
        for name, base in (("width 1024", _wide), ("depth 40", _forty), ("characters, transformer", _reader))
    ),
)
