"""What the rules make of known faults: found, named first, how soon, and healed by what they offer; and of healthy
runs: false alarms.

Each case is drawn from declared ranges by its own seed: a healthy run (task, model, depth, width, optimizer, rate,
precision and more), and the same with one fault. The ranges come of what people do, not of the rules' thresholds. TUNED
seeds were looked at while the thresholds were set, HELD seeds only afterwards.

    python -m benchmarks faults                    the figures, on HELD seeds
    python -m benchmarks.faults [--first N] [--cases N] [--only FAULT ...] [--heal] [--verbose]"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from benchmarks.table import Figure
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.session.record.ranked_findings import ranked
from gradstudio.session.record.run import Run

TUNED, HELD = 0, 10_000  # first seeds
KEPT = 0.8  # of the healthy run's accuracy: that much is healed, and less is harm
LEARNED = {
    "digits": 0.75,
    "sequential_digits": 0.4,
    "spirals": 0.6,
    "ring": 0.6,
    "pole": 0.2,
    "characters": 0.2,
}  # accuracy of a run that may be called healthy

Random = np.random.Generator
Texts = list[str]


def between(random: Random, low: float, high: float) -> float:
    """A number between two, evenly on a logarithmic scale."""
    return float(f"{np.exp(random.uniform(np.log(low), np.log(high))):.3g}")


def one_of(random: Random, *values: object) -> object:
    return values[int(random.integers(len(values)))]


def rate(random: Random, kind: str, momentum: float = 0.0) -> float:
    low, high = {"sgd": (0.03, 0.3), "adam": (5e-4, 5e-3), "adamw": (5e-4, 5e-3), "rmsprop": (3e-4, 2e-3)}[kind]
    return between(random, low, high) * (1 - momentum if kind == "sgd" else 1)


def trained_by(random: Random, *kinds: str) -> Texts:
    kind = str(one_of(random, *(kinds or ("sgd", "sgd", "adam", "adamw", "rmsprop"))))
    momentum = float(one_of(random, 0.0, 0.9)) if kind == "sgd" else 0.0
    return [
        f"optimizer.kind={kind}",
        f"optimizer.momentum={momentum}",
        f"optimizer.lr={rate(random, kind, momentum):.3g}",
    ]


def stack(random: Random, deepest: int = 4) -> Texts:
    """An MLP or a CNN that learns the digits."""
    kind = str(one_of(random, "mlp", "mlp", "mlp", "cnn"))
    activation = str(one_of(random, "relu", "relu", "tanh", "leaky_relu", "gelu", "silu"))
    width = int(between(random, 12, 24)) if kind == "cnn" else int(between(random, 24, 200))
    init = "he" if activation != "tanh" else "xavier"
    return [
        f"model.kind={kind}", f"model.activation={activation}", f"model.width={width}",
        f"model.depth={random.integers(1, min(deepest, 3 if kind == 'cnn' else 9) + 1)}",
        f"model.init={one_of(random, init, init, 'orthogonal', 'default')}",
        f"model.norm={one_of(random, 'none', 'none', 'batch', 'layer')}",
        f"problem.batch_size={one_of(random, 16, 32, 64, 128)}", "problem.task=digits",
    ]  # fmt: skip


def plain(random: Random, activation: str, low: int, high: int, init: str) -> Texts:
    """An MLP without norms."""
    return [
        "model.kind=mlp", "problem.task=digits", f"model.activation={activation}",
        f"model.depth={random.integers(low, high + 1)}",
        f"model.width={int(between(random, 32, 128))}", f"model.init={init}",
        f"problem.batch_size={one_of(random, 32, 64)}",
    ]  # fmt: skip


def healthy(random: Random) -> Texts:
    """Any run that ought to learn."""
    which = random.integers(10)
    extra = [f"run.steps={one_of(random, 150, 200, 300)}"]
    if which < 6:
        texts = [*stack(random), *trained_by(random)]
        if random.random() < 0.3:
            extra.append(f"accumulation.steps={one_of(random, 2, 4)}")
        if random.random() < 0.3:
            extra += ["clipping.kind=norm", f"clipping.max_norm={one_of(random, 0.5, 1.0, 5.0)}"]
        if random.random() < 0.3:
            extra.append(f"precision.dtype={one_of(random, 'bf16', 'fp16')}")
        if random.random() < 0.2:
            extra += [f"schedule.warmup_steps={one_of(random, 20, 60)}"]
        if random.random() < 0.2:
            extra += ["schedule.kind=cosine", "schedule.total_steps=300"]
    elif which == 6:
        texts = [
            "problem.task=spirals",
            "model.width=64",
            f"model.depth={random.integers(2, 4)}",
            "model.activation=tanh",
            "optimizer.kind=adam",
            f"optimizer.lr={between(random, 3e-3, 1e-2)}",
        ]
    elif which == 7:
        kind = one_of(random, "lstm", "gru", "rnn")
        texts = [
            "problem.task=sequential_digits",
            "problem.seq_len=8",
            f"model.kind={kind}",
            "model.activation=tanh",
            "model.depth=1",
            f"model.width={int(between(random, 32, 96))}",
            "optimizer.kind=adam",
            f"optimizer.lr={between(random, 2e-3, 1e-2)}",
            *(["clipping.kind=norm"] if random.random() < 0.5 else []),
        ]
    elif which == 8:
        texts = [
            "problem.task=sequential_digits",
            "problem.seq_len=8",
            "model.kind=transformer",
            f"model.depth={random.integers(1, 3)}",
            "model.width=32",
            "optimizer.kind=adam",
            f"optimizer.lr={between(random, 5e-4, 3e-3)}",
        ]
    elif random.random() < 0.5:
        texts = [
            "problem.task=ring",
            "model.kind=gan",
            "model.width=64",
            "problem.batch_size=128",
            "optimizer.lr=0.4",
            "clipping.kind=norm",
            "clipping.max_norm=0.1",
        ]
        extra = ["run.steps=800"]
    else:
        texts = [
            "problem.task=characters",
            "problem.seq_len=16",
            f"model.kind={one_of(random, 'gru', 'transformer')}",
            "model.depth=1",
            "model.width=48",
            "optimizer.kind=adam",
            "optimizer.lr=0.005",
        ]
    return [*texts, *extra]


# ---- the faults: the healthy run that each is put into, the fault, and the rules that name it

Draw = Callable[[Random], tuple[Texts, Texts]]


def _rate_too_high(random: Random) -> tuple[Texts, Texts]:
    kind = str(one_of(random, "sgd", "adam", "adamw"))
    lr = rate(random, kind)
    return [*stack(random), f"optimizer.kind={kind}", f"optimizer.lr={lr}"], [
        f"optimizer.lr={lr * between(random, 30, 1000):.3g}"
    ]


def _rate_too_low(random: Random) -> tuple[Texts, Texts]:
    texts = [*stack(random), *trained_by(random, "sgd", "adam")]
    return texts, [f"optimizer.lr={float(texts[-1].partition('=')[2]) * between(random, 1e-6, 3e-4):.3g}"]


def _drawn_too_large(random: Random) -> tuple[Texts, Texts]:
    deep = plain(random, str(one_of(random, "relu", "leaky_relu", "gelu")), 5, 14, "he")
    return [*deep, "optimizer.momentum=0.9", f"optimizer.lr={between(random, 0.003, 0.01)}"], [
        f"model.init_gain={between(random, 2, 6)}"
    ]


def _drawn_too_small(random: Random) -> tuple[Texts, Texts]:
    deep = plain(random, str(one_of(random, "relu", "leaky_relu")), 6, 14, "he")
    return [*deep, "optimizer.momentum=0.9", f"optimizer.lr={between(random, 0.003, 0.01)}"], [
        f"model.init_gain={between(random, 0.1, 0.5)}"
    ]


def _drawn_as_zero(random: Random) -> tuple[Texts, Texts]:
    return [*plain(random, str(one_of(random, "relu", "tanh", "gelu")), 2, 4, "xavier"), *trained_by(random)], [
        "model.init=zeros"
    ]


def _deep_sigmoid(random: Random) -> tuple[Texts, Texts]:
    deep = plain(random, "tanh", 8, 20, "xavier")
    return [*deep, "optimizer.momentum=0.9", f"optimizer.lr={between(random, 0.003, 0.01)}"], [
        "model.activation=sigmoid"
    ]


def _deep_default(random: Random) -> tuple[Texts, Texts]:
    deep = plain(random, "relu", 12, 22, "he")
    return [*deep, "optimizer.momentum=0.9", f"optimizer.lr={between(random, 0.003, 0.01)}"], ["model.init=default"]


def _units_born_dead(random: Random) -> tuple[Texts, Texts]:
    return [*plain(random, "relu", 2, 5, "he"), *trained_by(random, "sgd")], [
        f"model.initial_bias={-between(random, 3, 8):.3g}"
    ]


def _inputs_saturate(random: Random) -> tuple[Texts, Texts]:
    return [
        *plain(random, str(one_of(random, "tanh", "sigmoid")), 1, 2, "xavier"),
        "optimizer.kind=sgd",
        f"optimizer.lr={between(random, 0.05, 0.3)}",
    ], [f"model.init_gain={between(random, 20, 100)}"]


def _recurrent_explosion(random: Random) -> tuple[Texts, Texts]:
    base = [
        "problem.task=sequential_digits",
        "problem.seq_len=32",
        "problem.scaling=unit",
        "model.kind=rnn",
        "model.depth=1",
        f"model.width={int(between(random, 32, 80))}",
        "model.init=orthogonal",
        f"model.init_gain={random.uniform(1.0, 1.1):.3g}",
        f"optimizer.lr={between(random, 0.15, 0.3)}",
        "run.steps=400",
    ]
    return [*base, "clipping.kind=norm", "clipping.max_norm=0.5"], [
        "clipping.kind=none",
        f"model.init_gain={random.uniform(1.15, 1.4):.3g}",
    ]


def _outlier(random: Random) -> tuple[Texts, Texts]:
    base = [
        *plain(random, str(one_of(random, "relu", "leaky_relu", "gelu")), 1, 3, "he"),
        "optimizer.kind=sgd",
        f"optimizer.lr={between(random, 0.05, 0.2)}",
    ]
    return base, [
        f"problem.outlier_every={random.integers(60, 120)}",
        f"problem.outlier_scale={between(random, 1e3, 1e5)}",
    ]


def _naive_loss(random: Random) -> tuple[Texts, Texts]:
    kind = str(one_of(random, "naive_log", "naive_sqrt", "naive_exp", "naive_variance"))
    base = [
        "model.kind=mlp",
        f"model.depth={random.integers(1, 3)}",
        f"model.width={int(between(random, 48, 128))}",
        "run.steps=300",
        "problem.batch_size=64",
    ]
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
        f"loss.weight={between(random, 1e-8, 1e-6)}",
    ]


def _fp16_scale(random: Random) -> tuple[Texts, Texts]:
    return [*stack(random, 3), *trained_by(random), "precision.dtype=fp16"], [
        "precision.scaling=static",
        f"precision.init_scale={between(random, 1e8, 1e11)}",
    ]


def _fp16_forward(random: Random) -> tuple[Texts, Texts]:
    return [*plain(random, "relu", 1, 3, "he"), *trained_by(random), "precision.dtype=fp16"], [
        "problem.scaling=raw",
        f"problem.input_scale={between(random, 4e3, 1e6)}",
    ]


def _clip_too_low(random: Random) -> tuple[Texts, Texts]:
    return [*stack(random, 3), *trained_by(random, "sgd"), "clipping.kind=norm"], [
        f"clipping.max_norm={between(random, 1e-4, 1e-2)}"
    ]


def _mistake(name: str, *needs: str, kinds: tuple[str, ...] = ("sgd", "adam")) -> Draw:
    def draw(random: Random) -> tuple[Texts, Texts]:
        more = [need.format(n=one_of(random, 2, 4, 8), limit=between(random, 0.1, 1.0)) for need in needs]
        base = [text for text in stack(random, 3) if not text.startswith("problem.batch_size")]
        return [*base, "problem.batch_size=16", *trained_by(random, *kinds), *more], [f"mistakes.{name}=true"]

    return draw


def _gan(random: Random) -> tuple[Texts, Texts]:
    base = [
        "problem.task=ring",
        "model.kind=gan",
        f"model.width={int(between(random, 48, 96))}",
        "problem.batch_size=128",
        f"optimizer.lr={random.uniform(0.4, 0.6):.3g}",
        "run.steps=800",
    ]
    return [*base, "clipping.kind=norm", "clipping.max_norm=0.1"], ["clipping.kind=none"]


def _pole(random: Random) -> tuple[Texts, Texts]:
    base = [
        "problem.task=pole",
        "model.kind=policy",
        "problem.seq_len=200",
        "problem.batch_size=8",
        "model.depth=1",
        "model.activation=tanh",
        f"model.width={int(between(random, 16, 48))}",
        "optimizer.lr=0.1",
        "run.steps=120",
    ]
    return [*base, "clipping.kind=norm", "clipping.max_norm=0.5"], [
        "clipping.kind=none",
        f"optimizer.lr={between(random, 0.1, 0.4)}",
    ]


def _post_norm(random: Random) -> tuple[Texts, Texts]:
    base = [
        "problem.task=sequential_digits",
        "problem.seq_len=8",
        "model.kind=transformer",
        f"model.depth={random.integers(5, 9)}",
        "model.width=48",
        "optimizer.kind=adam",
        "run.steps=150",
    ]
    return [*base, "optimizer.lr=0.002"], ["model.norm_position=post", f"optimizer.lr={between(random, 0.005, 0.02)}"]


@dataclass(frozen=True)
class Fault:
    draw: Draw
    named: tuple[str, ...]  # rules any of which names it; the first stands for it in the table
    silent: bool = False  # it is one whether or not the accuracy shows it


FAULTS: dict[str, Fault] = {
    "rate too high": Fault(
        _rate_too_high, ("update_ratio_high", "exploding_gradient", "dead_units")
    ),  # which it kills, where they are relus
    "rate too low": Fault(_rate_too_low, ("update_ratio_low",)),
    "drawn too large": Fault(_drawn_too_large, ("poor_initialization",)),
    "drawn too small": Fault(_drawn_too_small, ("poor_initialization",)),
    "drawn as zero": Fault(_drawn_as_zero, ("poor_initialization",)),
    "deep sigmoid": Fault(_deep_sigmoid, ("vanishing_gradient",)),
    "deep, torch's own init": Fault(_deep_default, ("vanishing_gradient", "poor_initialization")),
    "units born dead": Fault(_units_born_dead, ("dead_units",)),
    "saturated": Fault(_inputs_saturate, ("saturated_activation",)),
    "recurrent explosion": Fault(_recurrent_explosion, ("exploding_gradient",)),
    "outlier batch": Fault(_outlier, ("exploding_gradient", "loss_spike")),
    "NaN of the loss itself": Fault(_naive_loss, ("nonfinite_loss", "nonfinite_gradient")),
    "fp16 underflow": Fault(_fp16_underflow, ("fp16_underflow",)),
    "fp16, scale too high": Fault(_fp16_scale, ("fp16_overflow",)),
    "fp16, forward overflow": Fault(_fp16_forward, ("fp16_overflow", "scale_collapse")),
    "clipped too low": Fault(_clip_too_low, ("clipping_always",)),
    "not divided": Fault(_mistake("unscaled_accumulation", "accumulation.steps={n}"), ("accumulation_mismatch",), True),
    "cleared too often": Fault(
        _mistake("zero_grad_each_micro_batch", "accumulation.steps={n}"), ("accumulation_mismatch", "loop_order"), True
    ),
    "micro-batches dropped": Fault(
        _mistake("drop_last_micro_batches", "accumulation.steps={n}"), ("accumulation_mismatch", "loop_order"), True
    ),
    "never cleared": Fault(_mistake("never_zero_grad", kinds=("sgd",)), ("loop_order",), True),
    "clip before unscale": Fault(
        _mistake("clip_before_unscale", "precision.dtype=fp16", "clipping.kind=norm", "clipping.max_norm={limit}"),
        ("clip_on_scaled_gradients", "loop_order"),
        True,
    ),
    "clip after step": Fault(
        _mistake("clip_after_step", "clipping.kind=norm", "clipping.max_norm={limit}"),
        ("clip_without_effect", "loop_order"),
        True,
    ),
    "schedule too fast": Fault(
        _mistake(
            "scheduler_each_micro_batch", "accumulation.steps={n}", "schedule.kind=cosine", "schedule.total_steps=300"
        ),
        ("loop_order",),
        True,
    ),
    "step around the scaler": Fault(_mistake("step_without_scaler", "precision.dtype=fp16"), ("loop_order",), True),
    "GAN runs away": Fault(_gan, ("exploding_gradient", "update_ratio_high")),
    "policy runs away": Fault(_pole, ("update_ratio_high", "exploding_gradient")),
    "post-norm, no warmup": Fault(_post_norm, ("vanishing_gradient", "update_ratio_high")),
}


@dataclass
class Result:
    """A case and what came of it. `alarms` are of the healthy run."""

    fault: str
    seed: int
    base: Texts
    change: Texts
    reference: float
    alarms: list[Finding]
    harmed: bool = True
    accuracy: float = 0.0
    found: list[Finding] = field(default_factory=list)  # causes above a note, the first one first
    healed: list[bool] = field(default_factory=list)  # by the first and by the second remedy

    @property
    def named_first(self) -> bool:
        return bool(self.found) and self.found[0].rule in FAULTS[self.fault].named

    @property
    def detected(self) -> bool:
        named = FAULTS[self.fault].named
        return any(finding.rule in named or set(finding.explains) & set(named) for finding in self.found)

    @property
    def steps(self) -> int:
        """How long it took until the first finding above a note."""
        return min((finding.first_step for finding in self.found), default=-1)


def trained(texts: Texts, seed: int) -> Run:
    """A run to its end, in this thread."""
    from gradstudio.session.running.worker import Worker

    experiment = Experiment().with_texts(["run.device=cpu", "run.steps=200", f"run.seed={seed}", *texts])
    run = Run(Preset(id="benchmark", title="Benchmark", experiment=experiment), experiment)
    Worker(run).run()
    if run.status == "failed":
        raise RuntimeError(f"{texts}: {run.message}")
    return run


def grave(run: Run) -> list[Finding]:
    return [finding for finding in ranked(run) if finding.severity != "info"]


def reached(run: Run) -> float:
    return run.accuracy if run.status == "finished" and run.accuracy is not None else 0.0


def case(fault: str, seed: int, heal: bool) -> Result | None:
    """A case; None where the healthy run has not learned, and so is none."""
    random = np.random.default_rng([list(FAULTS).index(fault), seed])
    base, change = FAULTS[fault].draw(random)
    sound = trained(base, seed)
    task = sound.experiment.problem.task
    if reached(sound) < LEARNED[task]:
        return None
    result = Result(fault, seed, base, change, reached(sound), grave(sound))
    broken = trained([*base, *change], seed)
    result.accuracy, result.found = reached(broken), grave(broken)
    result.harmed = FAULTS[fault].silent or result.accuracy < KEPT * result.reference
    if heal and result.harmed and result.found:
        for remedy in result.found[0].remedies[:2]:
            healed = trained([*base, *change, *remedy.split()], seed)
            result.healed.append(reached(healed) >= KEPT * result.reference)
            if result.healed[-1]:
                break
    return result


def healthy_case(seed: int) -> Result | None:
    random = np.random.default_rng([999, seed])
    base = healthy(random)
    run = trained(base, seed)
    return (
        Result("healthy", seed, base, [], reached(run), grave(run))
        if reached(run) >= LEARNED[run.experiment.problem.task]
        else None
    )


def drawn(make: Callable[[int], Result | None], first: int, cases: int) -> Iterator[Result]:
    """So many cases that count, from this seed on."""
    seed, made = first, 0
    while made < cases and seed < first + 4 * cases:
        result = make(seed)
        seed += 1
        if result is not None and (result.harmed or result.alarms):
            made += result.harmed
            yield result


def matrix(results: list[Result]) -> Iterator[str]:
    """Expected cause by cause named first, in Markdown."""
    yield (
        "| fault | cases | found | named first | steps, median | healed by the first | or second | named first, in "
        "all |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---|"
    for fault in FAULTS:
        own = [result for result in results if result.fault == fault and result.harmed]
        if own:
            names = Counter(result.found[0].rule if result.found else "nothing" for result in own)
            steps = [result.steps for result in own if result.found]
            yield (
                f"| {fault} | {len(own)} | {sum(result.detected for result in own)} | "
                f"{sum(result.named_first for result in own)} "
                f"| {np.median(steps) if steps else float('nan'):.0f} | "
                f"{sum(result.healed[:1] == [True] for result in own)} "
                f"| {sum(any(result.healed) for result in own)} | "
                f"{', '.join(f'{name} {count}' for name, count in names.most_common())} |"
            )


def figures(
    first: int = HELD,
    cases: int = 4,
    sound: int = 60,
    only: tuple[str, ...] = (),
    heal: bool = True,
    verbose: bool = False,
) -> Iterator[Figure]:
    import torch

    torch.set_num_threads(1)
    results: list[Result] = []
    for fault in FAULTS:
        if only and fault not in only:
            continue
        for result in drawn(lambda seed, fault=fault: case(fault, seed, heal), first, cases):
            results.append(result)
            if verbose and (result.alarms or not result.named_first or (heal and not any(result.healed))):
                _tell(result)
    runs = [] if only else list(drawn(healthy_case, first, sound))
    if verbose:
        for result in runs:
            if result.alarms:
                _tell(result)
    harmed = [result for result in results if result.harmed]
    count = max(len(harmed), 1)
    yield Figure(
        "faults found",
        sum(result.detected for result in harmed) / count,
        least=0.98,
        note=f"of {len(harmed)}; any finding above a note: {sum(bool(result.found) for result in harmed)}",
    )
    yield Figure("cause named first", sum(result.named_first for result in harmed) / count, least=0.90)
    if heal:
        yield Figure("healed by the first remedy", sum(result.healed[:1] == [True] for result in harmed) / count)
        yield Figure("healed by one of the first two", sum(any(result.healed) for result in harmed) / count, least=0.90)
    yield Figure(
        "healthy runs with a false alarm",
        sum(bool(result.alarms) for result in (*runs, *results)),
        most=0,
        note=f"of {len(runs)} drawn for that, and of the {len(results)} that faults were put into",
    )
    print()
    for line in matrix(results):
        print(line, flush=True)


def _tell(result: Result) -> None:
    found = [
        f"{finding.rule} {finding.severity} @{finding.first_step} explains {','.join(finding.explains)}"
        for finding in result.found
    ]
    print(
        f"# {result.fault} {result.seed}: {' '.join(result.base)} + {' '.join(result.change)}: "
        f"{result.reference:.2f} -> {result.accuracy:.2f}"
    )
    for line in found:
        print("#    ", line)
    if result.found:
        print("#      remedies", result.found[0].remedies[:2], result.healed)
    for alarm in result.alarms:
        print("#      FALSE ALARM", alarm.rule, alarm.severity, alarm.first_step, alarm.evidence)
    print(end="", flush=True)


def main() -> None:
    os.environ.setdefault("GRADSTUDIO_THREADS", "1")
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=TUNED)
    parser.add_argument("--cases", type=int, default=3)
    parser.add_argument("--sound", type=int, default=60)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--heal", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    asked = parser.parse_args()
    for figure in figures(asked.first, asked.cases, asked.sound, tuple(asked.only), asked.heal, asked.verbose):
        print(figure.what, f"{figure.value:.3g}", figure.note)


if __name__ == "__main__":
    main()
