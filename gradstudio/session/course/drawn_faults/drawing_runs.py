"""Healthy runs, drawn from ranges by a seeded generator. The ranges follow common practice, not the rules."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

Random = np.random.Generator
T = TypeVar("T")
Texts = list[str]  # such as optimizer.lr=0.1
# By task: the accuracy of a run that may be called healthy.
LEARNED = {
    "digits": 0.75, "sequential_digits": 0.4, "spirals": 0.75, "ring": 0.6, "pole": 0.2, "characters": 0.25,
    "adding": 0.3, "copy": 0.3,
}  # fmt: skip


def log_uniform(random: Random, low: float, high: float) -> float:
    """Return a number between two bounds, drawn log-uniformly."""
    return float(f"{np.exp(random.uniform(np.log(low), np.log(high))):.3g}")


def one_of(random: Random, *values: T) -> T:
    return values[int(random.integers(len(values)))]


def rate(random: Random, kind: str, momentum: float = 0.0) -> float:
    low, high = {"sgd": (0.03, 0.3), "adam": (5e-4, 5e-3), "adamw": (5e-4, 5e-3), "rmsprop": (3e-4, 2e-3)}[kind]
    return log_uniform(random, low, high) * (1 - momentum if kind == "sgd" else 1)


def trained_by(random: Random, *kinds: str) -> Texts:
    """Return a random optimizer as texts of knobs, the learning rate last."""
    kind = str(one_of(random, *(kinds or ("sgd", "sgd", "adam", "adamw", "rmsprop"))))
    momentum = float(one_of(random, 0.0, 0.9)) if kind == "sgd" else 0.0
    return [
        f"optimizer.kind={kind}",
        f"optimizer.momentum={momentum}",
        f"optimizer.lr={rate(random, kind, momentum):.3g}",
    ]


def lr_of(texts: Texts) -> float:
    """Return the learning rate among the texts."""
    return float(next(text for text in reversed(texts) if text.startswith("optimizer.lr=")).partition("=")[2])


def stack(random: Random, deepest: int = 4) -> Texts:
    """Return a random MLP or CNN that learns the digits, as texts of knobs."""
    kind = str(one_of(random, "mlp", "mlp", "mlp", "cnn"))
    activation = str(one_of(random, "relu", "relu", "tanh", "leaky_relu", "gelu", "silu"))
    width = int(log_uniform(random, 12, 24)) if kind == "cnn" else int(log_uniform(random, 24, 200))
    init = "he" if activation != "tanh" else "xavier"
    return [
        f"model.kind={kind}", f"model.activation={activation}", f"model.width={width}",
        f"model.depth={random.integers(1, min(deepest, 3 if kind == 'cnn' else 9) + 1)}",
        f"model.init={one_of(random, init, init, 'orthogonal', 'default')}",
        f"model.norm={one_of(random, 'none', 'none', 'batch', 'layer')}",
        f"problem.batch_size={one_of(random, 16, 32, 64, 128)}", "problem.task=digits",
    ]  # fmt: skip


def plain(random: Random, activation: str, low: int, high: int, init: str) -> Texts:
    """Return an MLP without norms."""
    return [
        "model.kind=mlp", "problem.task=digits", f"model.activation={activation}",
        f"model.depth={random.integers(low, high + 1)}",
        f"model.width={int(log_uniform(random, 32, 128))}", f"model.init={init}",
        f"problem.batch_size={one_of(random, 32, 64)}",
    ]  # fmt: skip


def small_batches(random: Random, deepest: int = 3) -> Texts:
    """Return a stack with small batches, so that micro-batches can be accumulated."""
    return [
        *(text for text in stack(random, deepest) if not text.startswith("problem.batch_size")),
        "problem.batch_size=16",
    ]


def other_task(random: Random) -> Texts:
    """Return a run on a task other than the digits, with an optimizer of any kind; its learning rate is the last
    text."""
    task = str(one_of(random, "adding", "copy", "characters", "spirals"))
    kind = str(one_of(random, "adam", "adamw", "rmsprop"))
    slower = 0.5 if kind == "rmsprop" else 1.0
    texts = [f"problem.task={task}", f"optimizer.kind={kind}"]
    match task:
        case "adding":
            texts += [
                f"problem.seq_len={one_of(random, 6, 8, 10)}", f"model.kind={one_of(random, 'gru', 'lstm')}",
                "model.depth=1", f"model.width={int(log_uniform(random, 32, 64))}", "run.steps=400",
            ]  # fmt: skip
            low, high = 0.01, 0.02
        case "copy":
            cell = str(one_of(random, "transformer", "gru"))
            texts += [
                f"problem.seq_len={one_of(random, 2, 3)}", f"model.kind={cell}", "run.steps=300",
                f"model.depth={2 if cell == 'transformer' else 1}",
                f"model.width={32 if cell == 'transformer' else 64}",
            ]  # fmt: skip
            low, high = (0.002, 0.004) if cell == "transformer" else (0.01, 0.02)
        case "characters":
            cell = str(one_of(random, "transformer", "gru"))
            texts += ["problem.seq_len=16", f"model.kind={cell}", "model.depth=1", "model.width=48", "run.steps=150"]
            low, high = 0.003, 0.006
        case _:
            texts += [
                "model.width=64", f"model.depth={random.integers(2, 4)}", "model.activation=tanh", "run.steps=300",
            ]  # fmt: skip
            low, high = 0.003, 0.01
    return [*texts, f"optimizer.lr={slower * log_uniform(random, low, high):.3g}"]


def healthy(random: Random) -> Texts:
    """Return any run that ought to learn."""
    which = random.integers(10)
    extra = [f"run.steps={one_of(random, 150, 200, 300)}"]
    if which < 6:
        return [*stack(random), *trained_by(random), *_options(random), *extra]
    if which == 6:
        return [
            "problem.task=spirals", "model.width=64", f"model.depth={random.integers(2, 4)}", "model.activation=tanh",
            "optimizer.kind=adam", f"optimizer.lr={log_uniform(random, 3e-3, 1e-2)}", *extra,
        ]  # fmt: skip
    if which == 7:
        return [
            "problem.task=sequential_digits", "problem.seq_len=8", f"model.kind={one_of(random, 'lstm', 'gru', 'rnn')}",
            "model.activation=tanh", "model.depth=1", f"model.width={int(log_uniform(random, 32, 96))}",
            "optimizer.kind=adam", f"optimizer.lr={log_uniform(random, 2e-3, 1e-2)}",
            *(["clipping.kind=norm"] if random.random() < 0.5 else []), *extra,
        ]  # fmt: skip
    if which == 8:
        return [
            "problem.task=sequential_digits", "problem.seq_len=8", "model.kind=transformer",
            f"model.depth={random.integers(1, 3)}", "model.width=32", "optimizer.kind=adam",
            f"optimizer.lr={log_uniform(random, 5e-4, 3e-3)}", *extra,
        ]  # fmt: skip
    if random.random() < 0.5:
        return [
            "problem.task=ring", "model.kind=gan", "model.width=64", "problem.batch_size=128", "optimizer.lr=0.4",
            "clipping.kind=norm", "clipping.max_norm=0.1", "run.steps=800",
        ]  # fmt: skip
    return other_task(random)


def _options(random: Random) -> Texts:
    texts: Texts = []
    if random.random() < 0.3:
        texts.append(f"accumulation.steps={one_of(random, 2, 4)}")
    if random.random() < 0.3:
        texts += ["clipping.kind=norm", f"clipping.max_norm={one_of(random, 0.5, 1.0, 5.0)}"]
    if random.random() < 0.3:
        texts.append(f"precision.dtype={one_of(random, 'bf16', 'fp16')}")
    if random.random() < 0.2:
        texts += [f"schedule.warmup_steps={one_of(random, 20, 60)}"]
    if random.random() < 0.2:
        texts += ["schedule.kind=cosine", "schedule.total_steps=300"]
    return texts
