"""Gauges on demand: none leaves a trace in training, and each agrees with an independent formula."""

from __future__ import annotations

import math
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.func import functional_call

from gradstudio.core.experiment import KNOBS, Experiment
from gradstudio.core.gauge_samples import (
    AT,
    CLIPPED_BY,
    KEPT,
    LOWEST,
    NAMES,
    ClippedGradient,
    Unmeasurable,
    add_sample,
    fits,
)
from gradstudio.engine.probes import OnDemandGauges, exponents, noise_scale, sharpness
from gradstudio.engine.probes.stand_in_model import Standin, batches_to_come, gauge_batch
from gradstudio.engine.snapshot import Snapshot
from gradstudio.engine.trainer import Trainer

SMALL = ["model.depth=2", "model.width=8", "problem.batch_size=4", "problem.seq_len=6", "run.device=cpu"]
KINDS = {
    "mlp": [
        "model.norm=batch",
        "problem.noise=0.1",
        "problem.outlier_every=3",
        "problem.skip_batches=2",
        "optimizer.kind=adam",
    ],
    "rnn": ["model.kind=rnn", "problem.task=adding", "optimizer.momentum=0.9"],
    "lstm": ["model.kind=lstm", "problem.task=copy", "problem.seq_len=3"],
    "gru": ["model.kind=gru", "problem.task=characters", "optimizer.kind=rmsprop"],
    "cnn": [
        "model.kind=cnn",
        "model.norm=batch",
        "model.residual=true",
        "accumulation.steps=3",
        "optimizer.kind=adamw",
    ],
    "transformer": [
        "model.kind=transformer",
        "problem.task=characters",
        "model.checkpointing=true",
        "optimizer.kind=adam",
    ],
    "gan": ["model.kind=gan", "problem.task=ring", "model.norm=batch", "gradients.noise_std=0.01"],
    "policy": [
        "model.kind=policy",
        "problem.task=pole",
        "problem.seq_len=20",
        "problem.noise=0.1",
        "clipping.kind=norm",
    ],
}


NO_LOGITS = ("rnn", "gan", "policy")  # numbers, scores and actions


def trainer(*texts: str) -> Trainer:
    return Trainer(Experiment().with_texts([*SMALL, *texts]))


def measured(gauges: OnDemandGauges, name: str) -> object:
    """A value, or None where there is none to be had."""
    try:
        return gauges.measure(name)
    except Unmeasurable:
        return None


def after(steps: int, *texts: str) -> tuple[Trainer, OnDemandGauges]:
    one = trainer(*texts)
    list(islice(one.steps(), steps))
    return one, OnDemandGauges(one)


def bits(one: Trainer) -> bytes:
    return Snapshot.take(one).pack()


@pytest.mark.parametrize(("kind", "dtype"), [
    *((kind, "fp32") for kind in KINDS), ("rnn", "bf16"), ("cnn", "bf16"), ("mlp", "fp16"), ("transformer", "fp16"),
])  # fmt: skip
def test_training_is_the_same_to_the_last_bit_with_and_without(kind: str, dtype: str) -> None:
    """Also once passes are recorded. Whatever there is of the run is compared: what the next step reads is in its
    snapshot."""
    watched, alone = (trainer(*KINDS[kind], f"precision.dtype={dtype}") for _ in range(2))
    gauges, found = OnDemandGauges(watched), set()
    missing = {"overshoot"} | ({"logits"} if kind in NO_LOGITS else set())
    assert {name for name in NAMES if measured(gauges, name) is None} == missing, "before the first step"
    for step, one, other in zip(range(5), watched.steps(), alone.steps(), strict=False):
        figures = [
            (row.loss, row.grad_norm, row.update_ratio, row.scale, row.skipped, row.layers.tobytes())
            for row in (one, other)
        ]
        assert repr(figures[0]) == repr(figures[1]), step
        assert bits(watched) == bits(alone), step
        random = torch.get_rng_state()
        found |= {name for name in NAMES if measured(gauges, name) is not None}
        assert bits(watched) == bits(alone) and torch.equal(torch.get_rng_state(), random), step
        assert watched.model.training and all(parameter.requires_grad for parameter in watched.model.parameters())
    assert found == set(NAMES) - (missing - {"overshoot"})


def hooks(one: Trainer) -> dict[tuple[str, str], int]:
    """How many hooks of each kind each module of the model has."""
    found = {}
    for name, module in one.model.named_modules():
        for kind, those in vars(module).items():
            if kind.endswith("_hooks"):
                found[name, kind] = len(those)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_is_measured_leaves_a_hook_on_the_model(kind: str) -> None:
    one, gauges = after(1, *KINDS[kind])
    before = hooks(one)
    assert len(before) > len(list(one.model.modules()))
    one.requests.test = one.requests.activations = one.requests.compare = True
    one.advance()
    for name in NAMES:
        measured(gauges, name)
    one.settle()
    assert hooks(one) == before


@pytest.mark.parametrize("kind", KINDS)
def test_the_batches_to_come_are_those_that_come(kind: str) -> None:
    one, _ = after(2, *KINDS[kind])
    for _ in range(3):
        ahead, drawn, draw = batches_to_come(one), [], one.next_batches
        one.next_batches = lambda drawn=drawn, draw=draw: drawn.extend(draw()) or drawn  # what the step itself draws
        next(one.steps())
        assert all(
            torch.equal(mine, its) for pair in zip(ahead, drawn, strict=True) for mine, its in zip(*pair, strict=True)
        )
        del one.next_batches


@pytest.mark.parametrize("kind", KINDS)
def test_the_gauge_batch_is_the_same_at_any_time_and_for_any_trainer_of_a_run(kind: str) -> None:
    one, _ = after(0, *KINDS[kind])
    first = gauge_batch(one)
    assert len(first.inputs) >= 32
    if kind != "policy":
        list(islice(one.steps(), 3))
    assert all(
        torch.equal(*pair)
        for other in (one, trainer(*KINDS[kind]))
        for pair in zip(first, gauge_batch(other), strict=True)
    )
    assert not torch.equal(first.inputs, gauge_batch(trainer(*KINDS[kind], "run.seed=1")).inputs)


# ---- sharpness

TINY = ["model.depth=1", "model.width=3", "problem.seq_len=3", "problem.batch_size=64", "run.device=cpu"]
TINY_KINDS = {
    "mlp": ["problem.task=spirals", "model.activation=tanh"],
    "batch norm": ["problem.task=spirals", "model.activation=gelu", "model.norm=batch"],
    "rnn": ["model.kind=rnn", "problem.task=adding"],
    "lstm": ["model.kind=lstm", "problem.task=adding"],
    "gru": ["model.kind=gru", "problem.task=adding"],
    "transformer": ["model.kind=transformer", "model.width=4", "problem.task=adding", "loss.weight=3"],
    "policy": ["model.kind=policy", "problem.task=pole"],
}
OPTIMIZERS = {"sgd": ["optimizer.weight_decay=0.1"], "adam": [], "adamw": ["optimizer.weight_decay=0.1"], "rmsprop": []}


def whole_hessian(one: Trainer) -> np.ndarray:
    """By torch's own functional call, in float64."""
    standin = Standin(one, torch.float64, "cpu")
    standin.follow()
    named = dict(zip([name for name, _ in one.flat.named], standin.parameters, strict=True))
    sizes = [parameter.numel() for parameter in named.values()]
    batch = gauge_batch(one)

    def loss(flat: torch.Tensor) -> torch.Tensor:
        parts = {name: part.view_as(named[name]) for name, part in zip(named, flat.split(sizes), strict=True)}
        targets = batch.targets.double() if batch.targets.is_floating_point() else batch.targets
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            outputs = functional_call(standin.model, parts, (batch.inputs.double(),))
        return one.subject.loss.value(outputs, targets, 0.0) * one.experiment.loss.weight

    flat = torch.cat([parameter.detach().flatten() for parameter in named.values()])
    return torch.autograd.functional.hessian(loss, flat).numpy()


# Each network with one optimizer and each optimizer with one network; all of them together take long.
PAIRS = [
    pytest.param(kind, optimizer, marks=() if optimizer == "sgd" or kind == "mlp" else pytest.mark.thorough)
    for kind in TINY_KINDS for optimizer in OPTIMIZERS
]  # fmt: skip


@pytest.mark.parametrize(("kind", "optimizer"), PAIRS)
def test_sharpness_is_the_largest_eigenvalue_of_the_whole_hessian(
    kind: str, optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharpness, "time", SimpleNamespace(perf_counter=lambda: 0.0))  # or a busy machine ends it
    one = Trainer(
        Experiment().with_texts(
            [*TINY, *TINY_KINDS[kind], f"optimizer.kind={optimizer}", "optimizer.lr=0.01", *OPTIMIZERS[optimizer]]
        )
    )
    list(islice(one.steps(), 12))
    gauges = OnDemandGauges(one)
    hessian = whole_hessian(one)
    if optimizer == "sgd":
        hessian += 0.1 * np.eye(len(hessian))
    else:
        state, group = one.optimizer.state[one.flat.weights], one.optimizer.param_groups[0]
        name, keep = ("square_avg", group["alpha"]) if optimizer == "rmsprop" else ("exp_avg_sq", group["betas"][1])
        before = torch.cat(
            [part.flatten() for part in one.flat.layout.views(state[name], one.flat.parameters)]
        ).double()
        standin = Standin(one, torch.float64, "cpu")
        mean = keep * before + (1 - keep) * standin.gradient(gauge_batch(one)) ** 2
        mean = mean if optimizer == "rmsprop" else mean / (1 - keep**13)
        root = 1 / np.sqrt(mean.sqrt().numpy() + group["eps"])
        hessian = root[:, None] * hessian * root
    largest = float(np.linalg.eigvalsh(hessian)[-1])
    cold, warm = (gauges.measure("sharpness") for _ in range(2))
    assert cold.converged and warm.converged and warm.products <= cold.products
    assert cold.value == pytest.approx(largest, rel=0.02) and warm.value == pytest.approx(largest, rel=0.02)
    assert cold.preconditioned == (optimizer != "sgd")


def test_where_a_direction_curves_down_more_steeply_the_largest_is_found_all_the_same() -> None:
    values = torch.linspace(-50, 20, 60)
    found = sharpness.largest(lambda vector: values * vector, torch.ones(60), 60)
    assert found.value == pytest.approx(20, rel=0.02) and found.converged
    cut = sharpness.largest(lambda vector: values * vector, torch.ones(60), 3)
    assert not cut.converged and cut.value <= 20
    with pytest.raises(Unmeasurable):
        sharpness.largest(lambda vector: vector * math.nan, torch.ones(4), 3)


def test_a_start_across_the_steepest_direction_finds_it_all_the_same() -> None:
    """At first glance the second steepest is all there is."""
    values = torch.cat([torch.tensor([3.0, 1.4]), torch.linspace(0, 0.1, 20)])
    start = torch.cat([torch.tensor([1e-3, 1.0]), torch.full((20,), 0.01)])
    assert sharpness.largest(lambda vector: values * vector, start, 30).value == pytest.approx(1.4, rel=0.01)
    assert sharpness.largest(lambda vector: values * vector, start, 30, sharpness.LEAST).value == pytest.approx(
        3, rel=0.01
    )


def test_the_eigenvector_of_the_last_time_saves_products() -> None:
    one, gauges = after(30, "model.width=32", "optimizer.lr=0.05")
    steps, counts = one.steps(), []
    for _ in range(6):
        counts.append(gauges.measure("sharpness").products)
        next(steps)
    assert np.mean(counts[1:]) < counts[0]


@pytest.mark.parametrize(
    ("texts", "rule"),
    [
        (["optimizer.kind=sgd", "optimizer.momentum=0"], 2),
        (["optimizer.kind=sgd", "optimizer.momentum=0.9"], 3.8),
        (["optimizer.kind=rmsprop", "optimizer.momentum=0"], 2),
        (["optimizer.kind=adam", "optimizer.momentum=0.5"], 38),
        (["optimizer.kind=adamw", "optimizer.beta1=0.8"], 18),
    ],
)
def test_the_limit_is_where_a_step_on_a_parabola_begins_to_swing(texts: list[str], rule: float) -> None:
    """Each optimizer at 0.98 and 1.02 times it, on a parabola, Adam and RMSprop with what they divide by held fast."""
    knobs = Experiment().with_texts([*texts, "optimizer.lr=0.1"]).optimizer
    assert sharpness.limit(knobs, 0.1) == pytest.approx(10 * rule)
    momentum = knobs.beta1 if knobs.kind in ("adam", "adamw") else knobs.momentum
    share = 1 - momentum if knobs.kind in ("adam", "adamw") else 1.0
    for times, grows in ((0.98, False), (1.02, True)):
        weight, moved = 1.0, 0.0
        for _ in range(2000):
            moved = momentum * moved + share * times * sharpness.limit(knobs, 0.1) * weight
            weight -= 0.1 * moved
        assert (not abs(weight) < 1) == grows  # past the largest float it is NaN


def test_gradient_descent_comes_to_the_edge_of_stability() -> None:
    """The whole set in a batch, a squared error: sharpness rises to 2/lr and stays there (Cohen 2021)."""
    texts = [
        "problem.task=adding",
        "problem.seq_len=4",
        "model.kind=mlp",
        "model.width=32",
        "model.activation=tanh",
        "optimizer.lr=0.2",
    ]
    one, gauges = after(0, *texts, "problem.batch_size=64")
    batch = gauge_batch(one)
    one.next_batches = lambda: [batch]
    first = gauges.measure("sharpness")
    list(islice(one.steps(), 3000))
    last = [gauges.measure("sharpness") for _ in range(3)][-1]
    assert first.value < last.value < 1.2 * last.limit


# ---- exponents


def test_entries_are_counted_by_their_exponent() -> None:
    sizes = [2.0**-149, -1.5 * 2.0**-30, 2.0**-25, 2.0**-24, 1.9 * 2.0**-20, 2.0**-14, 1.0, 65504.0, -65505.0, 3e38]
    found = exponents.measure(torch.tensor([*sizes, 0.0, 0.0, math.nan, math.inf]), 4.0)
    expected = [math.floor(math.log2(abs(size))) for size in sizes]
    assert {place + LOWEST: count for place, count in enumerate(found.counts.tolist()) if count} == {
        e: expected.count(e) for e in expected
    }
    assert (found.entries, found.zeros, found.nonfinite) == (10, 2, 2)
    assert (found.plain.lost, found.plain.subnormal, found.plain.over) == (0.3, 0.2, 0.2)
    assert (found.scaled.lost, found.scaled.over) == (0.2, pytest.approx(0.3))


def test_the_shares_are_those_that_torch_loses() -> None:
    """Entries from 2^-25 on are rounded up to 2^-24 and not to 0: they count as lost, being right only by a factor of
    2."""
    entries = torch.exp2(torch.randn(20_000, generator=torch.Generator().manual_seed(0)) * 8 - 20)
    for scale in (1.0, 2.0**10, 2.0**30):
        found, half = exponents.measure(entries, scale).scaled, (entries.double() * scale).half()
        rounded = ((entries * scale >= 2.0**-25) & (entries * scale < 2.0**-24)).double().mean().item()
        assert found.lost == pytest.approx((half == 0).double().mean().item() + rounded, abs=1e-9)
        assert found.over == pytest.approx(half.isinf().double().mean().item(), abs=1e-3)


@pytest.mark.parametrize(
    ("low", "high", "power"), [(-10, -2, 0), (-30, -3, 6), (-40, -3, 16), (-60, -3, 17), (-10, 20, -6), (-24, 14, 0)]
)
def test_the_best_scale_lifts_what_it_can_and_overflows_nothing(low: int, high: int, power: int) -> None:
    found = exponents.measure(torch.tensor([1.9 * 2.0**low, 1.9 * 2.0**high]), 1.0)
    assert found.best_scale == 2.0**power and found.best.over == 0
    assert found.best.lost == (0.0 if low + power >= -24 else 0.5)


def test_a_gradient_of_nothing_but_zeros_is_no_fault() -> None:
    found = exponents.measure(torch.zeros(5), 1024.0)
    assert (found.entries, found.zeros, found.best_scale, found.plain.lost) == (0, 5, 1.0, 0.0)


def test_the_gradient_is_that_of_the_step_to_come_without_fp16() -> None:
    one, gauges = after(3, "precision.dtype=fp16", "accumulation.steps=2")
    found = gauges.measure("exponents")
    assert found.scale == one.scaler.get_scale() > 1
    twin, _ = after(3, "precision.dtype=fp16", "accumulation.steps=2")
    twin.change("precision.dtype", "fp32")
    next(twin.steps())
    entries = torch.cat([grad.flatten() for grad in twin.flat.grads])
    assert exponents.measure(entries, 1.0).plain.lost == pytest.approx(found.plain.lost, abs=0.01)
    assert found.entries + found.zeros == len(entries)


# ---- noise scale


@pytest.mark.parametrize("parts", [2, 8])
def test_a_known_noise_is_found(parts: int) -> None:
    """Gradients of examples are drawn around a mean: B_simple = tr(Sigma) / |G|^2, here 34."""
    source, width, examples = torch.Generator().manual_seed(1), 200, 16
    mean = torch.full((width,), math.sqrt(1 / width), dtype=torch.float64)
    deviation = torch.linspace(0.1, 1, width, dtype=torch.float64)
    deviation *= math.sqrt(34) / deviation.norm()
    average = noise_scale.Average()
    for step in range(400):
        drawn = [
            mean + deviation * torch.randn(width, generator=source, dtype=torch.float64) / math.sqrt(examples)
            for _ in range(parts)
        ]
        found = average.add(*noise_scale.squares(drawn), examples, step)
    assert found.value == pytest.approx(34, rel=0.15) and found.gradient == pytest.approx(1, rel=0.15)
    assert (found.batch, found.samples) == (parts * examples, 400)


def test_the_same_step_counts_once_and_a_gradient_lost_in_noise_is_said() -> None:
    average = noise_scale.Average()
    first = average.add([4.0, 4.0], 3.0, 8, 5)
    assert (first.gradient, first.noise) == (2.0, 16.0) and first.value == 8.0
    assert average.add([4.0, 4.0], 3.0, 8, 5) == first
    lost = [average.add([4.0, 4.0], 0.1, 8, step).value for step in range(6, 200)]
    assert lost[0] < lost[-1] == math.inf
    with pytest.raises(Unmeasurable):
        average.add([math.inf], 1.0, 8, 401)


def test_micro_batches_are_compared_where_there_are_some_and_halves_else() -> None:
    assert [after(1, f"accumulation.steps={count}")[1].measure("noise_scale").batch for count in (1, 3)] == [4, 12]
    with pytest.raises(Unmeasurable, match="one example has no halves"):
        after(1, "problem.batch_size=1")[1].measure("noise_scale")


# ---- overshoot


@pytest.mark.parametrize(("ratio", "share"), [(0.5, 0.25), (1.0, 0.5), (1.6, 0.8), (2.4, 1.2)])
def test_on_a_parabola_the_ratio_is_the_step_over_the_best_one(ratio: float, share: float) -> None:
    """Gradient descent along the steepest direction of curvature s makes s lr times the best step."""
    curvature, lr = 10.0, ratio / 10.0
    moved = [1 - at * lr * curvature for at in AT]
    assert fits(tuple(0.5 * curvature * weight**2 + 3 for weight in moved)) == pytest.approx(ratio)
    assert ratio / 2 == share


def test_what_has_no_minimum_ahead_or_goes_uphill_or_breaks() -> None:
    assert fits((3.0, 2.0, 1.0, -1.0)) == pytest.approx(0, abs=1e-9) and fits((3.0, 2.9, 2.6, 1.0)) in (0.0, math.inf)
    assert fits((1.0, 2.0, 4.0, 9.0)) == math.inf == fits((1.0, 0.5, math.nan, math.nan))
    assert fits((1.0, 0.25, 0.0, math.inf)) == pytest.approx(1)


def test_the_ends_of_the_way_are_the_weights_before_and_after() -> None:
    one, gauges = after(4, "optimizer.lr=0.1")
    before = one.before.clone()
    found = gauges.measure("overshoot")
    batch = gauge_batch(one)
    with torch.no_grad():
        after_it = one.subject.loss.value(one.model(batch.inputs), batch.targets, 0.0).item()
        now = one.flat.weights.data.clone()
        one.flat.weights.data.copy_(before)
        before_it = one.subject.loss.value(one.model(batch.inputs), batch.targets, 0.0).item()
        one.flat.weights.data.copy_(now)
    assert found.losses[0] == pytest.approx(before_it, rel=1e-5) and found.losses[2] == pytest.approx(
        after_it, rel=1e-5
    )


def test_without_an_update_there_is_nothing_to_look_along() -> None:
    one, gauges = after(0)
    with pytest.raises(Unmeasurable, match="make a step"):
        gauges.measure("overshoot")
    start = Snapshot.take(one)
    list(islice(one.steps(), 2))
    found = gauges.measure("overshoot")
    Snapshot.take(one).restore(one)
    assert gauges.measure("overshoot") == found, "it stands where it stood"
    start.restore(one)
    with pytest.raises(Unmeasurable, match="make a step"):
        gauges.measure("overshoot")
    _, gauges = after(1, "precision.dtype=fp16", "precision.init_scale=1e30")
    with pytest.raises(Unmeasurable, match="as they were"):
        gauges.measure("overshoot")


# ---- all of them


def test_a_run_that_broke_is_told_and_not_raised() -> None:
    one, gauges = after(2)
    one.flat.weights.data[3] = math.nan
    for name in ("sharpness", "noise_scale", "overshoot"):
        with pytest.raises(Unmeasurable, match="not finite here"):
            gauges.measure(name)
    assert gauges.measure("exponents").nonfinite > 0


@pytest.mark.parametrize("kind", ["adam", "adamw", "rmsprop"])
def test_what_a_step_is_divided_by_is_what_the_optimizer_makes_of_that_gradient(kind: str) -> None:
    """Also before its first update. The optimizer's own step tells: without momentum it moves each weight by lr g /
    P."""
    texts = [
        f"optimizer.kind={kind}",
        "optimizer.lr=0.01",
        "optimizer.beta1=0",
        "optimizer.momentum=0",
        "optimizer.weight_decay=0",
    ]
    one, _ = after(0, *texts)
    for _ in range(3):
        standin = Standin(one, torch.float32, "cpu")
        (batch,) = batches_to_come(one)
        gradient, _ = standin.curvature(batch)
        divisor = sharpness.preconditioner(one, gradient)
        next(one.steps())
        changed = one.flat.weights.data - one.before
        added = torch.cat([part.flatten() for part in one.flat.layout.views(changed, one.flat.parameters)])
        assert torch.allclose(added, -0.01 * gradient / divisor, rtol=1e-3, atol=1e-6)


def test_samples_are_bounded_and_the_newest_stay_whole() -> None:
    samples: list = []
    for step in range(5 * KEPT):
        before = samples
        samples = add_sample(samples, (step, None))
        assert samples is not before and len(samples) <= KEPT and samples[-1][0] == step
    steps = [step for step, _ in samples]
    assert steps == sorted(set(steps)) and steps[0] == 0 and steps[-50:] == list(range(5 * KEPT - 50, 5 * KEPT))
    assert add_sample(samples, (steps[-1], "anew"))[-2:] == [samples[-2], (steps[-1], "anew")]


def test_every_live_loss_knob_counts() -> None:
    assert "loss.weight" in KNOBS
    one, gauges = after(1)
    single = gauges.measure("sharpness").value
    one.change("loss.weight", 10.0)
    assert gauges.measure("sharpness").value == pytest.approx(10 * single, rel=0.05)


# ---- logits


@pytest.mark.parametrize(("causal", "qk_norm"), [(True, False), (False, True)])
def test_the_logits_are_those_of_torch_s_own_attention(causal: bool, qk_norm: bool) -> None:
    """Against nn.MultiheadAttention, which gives the shares of its softmax, with the same weights."""
    task = "characters" if causal else "sequential_digits"
    texts = ["model.kind=transformer", f"problem.task={task}", "problem.seq_len=8", "model.init=xavier"]
    one, gauges = after(2, *texts, "model.init_gain=2", f"model.qk_norm={str(qk_norm).lower()}")
    found = gauges.measure("logits")
    assert found.names == ("blocks.0.attention", "blocks.1.attention")
    model, inputs, theirs = one.model, gauges._gauge_batch().inputs, []
    with torch.no_grad():
        state = model.embedding(inputs) + model.positions
        for block in model.blocks:
            mine, normed = block.attention, block.attention_norm(state)
            query, key = mine.query(normed), mine.key(normed)
            if qk_norm:
                query, key = (
                    norm(part.unflatten(2, (mine.heads, -1))).flatten(2)
                    for norm, part in ((mine.query_norm, query), (mine.key_norm, key))
                )
            width, steps = query.shape[2], query.shape[1]
            plain = torch.nn.MultiheadAttention(width, mine.heads, bias=False, batch_first=True)
            plain.in_proj_weight.copy_(torch.cat([torch.eye(width)] * 3))
            mask = torch.ones(steps, steps).triu(1).bool() if causal else None
            shares = plain(query, key, key, attn_mask=mask, average_attn_weights=False)[1].double()
            each = -(shares * shares.clamp(min=1e-300).log()).sum(-1)  # (batch, heads, time steps)
            keys = torch.arange(1, steps + 1) if causal else torch.full((steps,), steps)
            entropy = (each[..., keys > 1] / keys[keys > 1].double().log()).mean().item()
            logits = torch.einsum("bthd,bshd->bhts", *(x.unflatten(2, (mine.heads, -1)) for x in (query, key)))
            logits = logits / math.sqrt(width // mine.heads)
            theirs.append(
                (logits.masked_fill(torch.zeros(()).bool() if mask is None else mask, 0).abs().max(), entropy)
            )
            state = block(state)
        log_z = model(inputs).double().exp().sum(-1).log().mean().item()
    for largest, entropy, (their_largest, their_entropy) in zip(found.largest, found.entropy, theirs, strict=True):
        assert largest == pytest.approx(their_largest.item(), rel=1e-5)
        assert entropy == pytest.approx(their_entropy, rel=1e-4) and 0 < entropy < 1
    assert found.log_z == pytest.approx(log_z, rel=1e-5)


def test_a_sharper_attention_has_less_entropy() -> None:
    told = []
    for gain in ("0.5", "4"):
        _, gauges = after(1, "model.kind=transformer", "problem.task=sequential_digits", "problem.seq_len=8",
                          f"model.init_gain={gain}")  # fmt: skip
        told.append(gauges.measure("logits"))
    assert max(told[0].largest) < max(told[1].largest) and min(told[0].entropy) > min(told[1].entropy)


# ---- the clip microscope


def test_the_microscope_clips_as_training_does() -> None:
    texts = ("clipping.max_norm=0.05", "clipping.clip_value=0.002", "clipping.agc_factor=0.001")
    one, gauges = after(2, *KINDS["mlp"], *texts)
    found = gauges.measure("clipping")
    assert isinstance(found, ClippedGradient) and set(found.cuts) == set(CLIPPED_BY)
    for kind in CLIPPED_BY:
        other, _ = after(2, *KINDS["mlp"], *texts)
        other.change("clipping.kind", kind)
        row = next(other.steps())
        cut = found.cuts[kind]
        assert row.grad_norm == pytest.approx(found.norm, rel=1e-5)
        assert row.clipped_norm == pytest.approx(cut.norm, rel=1e-4)
        assert math.cos(math.radians(cut.angle)) == pytest.approx(row.clip_cosine, abs=1e-5)
    assert found.cuts["norm"].angle < 0.01 < found.cuts["value"].angle
    assert found.seconds > 0 < found.passes
    next(one.steps())  # without clipping, so that its gradient is still the one that was measured
    gradient = torch.cat([grad.reshape(-1) for grad in one.flat.grads]).numpy()
    assert found.ranks[:4] == (1, 2, 3, 5) and found.ranks[-1] == found.size == len(gradient)
    sizes = [abs(entry) for entry in found.entries]
    assert sizes == sorted(sizes, reverse=True) and max(map(abs, found.cuts["value"].entries)) <= 0.0021
    assert found.entries[0] == pytest.approx(float(gradient[np.abs(gradient).argmax()]), rel=1e-4)
