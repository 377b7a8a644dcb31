"""Every remedy that is offered heals: each line of code on a small computation in which it has to, and knobs on runs."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gradstudio.core import presets
from gradstudio.core.diagnosis import birth_remedies
from gradstudio.core.diagnosis.overflow_remedies import OF_HALF, of_overflow
from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.core.provenance import Operation
from gradstudio.session.record.ranked_findings import in_order
from gradstudio.session.record.run import Run
from gradstudio.session.running.worker import Worker

SPACE = {"torch": torch, "F": functional, "p": 0.5, "a": torch.ones(3), "dim": 0}
# What each operation is given where it, or its derivative, is not finite. Those of `_DEFINED` that are not here fail.
SPOILS: dict[str, Tensor] = {
    **dict.fromkeys(("log", "log2", "log10", "div", "reciprocal", "rsqrt", "sqrt", "pow"), torch.zeros(3)),
    **dict.fromkeys(("norm", "linalg_norm", "linalg_vector_norm"), torch.zeros(3)),
    **dict.fromkeys(("acos", "asin", "atanh", "erfinv"), torch.ones(3)),
    "logit": torch.ones(3),
    "linalg_slogdet": torch.zeros(3, 3),
    **dict.fromkeys(("cdist", "cdist_forward", "euclidean_dist"), torch.zeros(3)),
}
BY_ROOT = {
    "norm": lambda x: x.norm(),
    "linalg_norm": lambda x: torch.linalg.norm(x),
    "linalg_vector_norm": lambda x: x.norm(),
}


def computed(line: str) -> Callable[[Tensor], Tensor]:
    """The function of x that a line of code is; a division has its x below."""
    code = line.replace("/ b", "/ x").replace("(b +", "(x +").replace("squares", "(x ** 2)")
    return lambda x: eval(code, {**SPACE, "x": x})


def is_sound(function: Callable[[Tensor], Tensor], given: Tensor) -> bool:
    """Whether a function and its derivative are finite."""
    x = given.clone().requires_grad_()
    result = function(x)
    result.sum().backward()
    assert x.grad is not None
    return bool(result.isfinite().all() and x.grad.isfinite().all())


@pytest.mark.parametrize("operation", birth_remedies._DEFINED)
def test_a_line_for_an_operation_mends_it_where_it_is_not_defined(operation: str) -> None:
    written = re.findall(r"`([^`]+)`", birth_remedies._DEFINED[operation])
    spoiled = BY_ROOT.get(operation) or (
        computed(written[1]) if len(written) > 1 and "cdist" not in written[1] else None
    )
    if spoiled is None:
        spoiled = {"cdist": lambda x: (x**2).sqrt()}.get(operation[:5], getattr(torch, operation, torch.sqrt))
    assert is_sound(computed(written[0]), SPOILS[operation])
    if "norm" not in operation:  # torch takes 0 for its derivative at 0, which is not defined
        assert not is_sound(spoiled, SPOILS[operation])


def test_a_negative_number_is_raised_where_it_is_kept_above_zero() -> None:
    (line,) = birth_remedies._OF_POSITIVE
    mended, spoiled = map(computed, re.findall(r"`([^`]+)`", line))
    assert is_sound(mended, -torch.ones(3)) and not is_sound(spoiled, -torch.ones(3))


def test_losses_of_nothing_are_finite_as_they_are_offered() -> None:
    scores = torch.randn(4, 2, 3).log_softmax(-1)
    lengths = torch.tensor([4, 4]), torch.tensor([2, 9])
    labels = torch.ones(2, 9, dtype=torch.long)
    assert not functional.ctc_loss(scores, labels, *lengths).isfinite()
    assert "zero_infinity=True" in birth_remedies._ALWAYS["ctc_loss"]
    assert functional.ctc_loss(scores, labels, *lengths, zero_infinity=True).isfinite()
    x = torch.zeros(0)
    assert computed(birth_remedies._OF_NONE[0].split("`")[1])(x).isfinite() and not x.mean().isfinite()


def test_masks_and_targets_are_finite_as_they_are_offered() -> None:
    scores, mask = torch.randn(4, 3, requires_grad=True), torch.tensor([True, True, False])

    def finite_of(loss: Tensor) -> bool:
        (gradient,) = torch.autograd.grad(loss, scores, retain_graph=True)
        return bool(loss.isfinite() and gradient.isfinite().all())

    of_inf, of_1e9 = (scores.masked_fill(~mask, fill).log_softmax(-1) for fill in (-torch.inf, -1e9))
    assert not finite_of((of_inf.exp() * of_inf).sum()) and not finite_of(of_inf.mean())
    assert "`-1e9`" in birth_remedies._OF_A_MASK[0] and finite_of((of_1e9.exp() * of_1e9).sum())
    filled = of_inf.masked_fill(~mask, 0)
    assert all(
        "`x.masked_fill(mask, 0)`" in lines[0] for lines in (birth_remedies._OF_A_MASK, birth_remedies._OF_A_SUM)
    )
    assert finite_of((of_inf.exp() * filled).sum()) and finite_of(filled.mean())
    (line,) = birth_remedies._OF_A_PRODUCT
    filled = eval(line.split("`")[1], {"scores": scores, "mask": mask.float(), "math": torch})
    assert finite_of(filled.softmax(-1).square().sum()) and not (mask.float() * -torch.inf).isfinite().any()
    assert "F.softmax(target, dim)" in birth_remedies._OF_A_DIVERGENCE[0]
    target = torch.randn(4, 3)
    assert not finite_of(functional.kl_div(scores.log_softmax(-1), target, reduction="sum"))
    assert finite_of(functional.kl_div(scores.log_softmax(-1), target.softmax(-1), reduction="sum"))
    assert finite_of(
        functional.kl_div(scores.log_softmax(-1), target.log_softmax(-1), reduction="sum", log_target=True)
    )


@pytest.mark.parametrize("name", ["addmm", "convolution", "mul", "bmm"])
def test_what_overflows_float16_fits_into_what_is_offered(name: str) -> None:
    lines = of_overflow(Operation("forward", "0", f"aten.{name}.default", "", "float16", 300.0, 0, 0, 1.0, 0, 1))
    assert set(OF_HALF) <= set(lines)
    large = torch.full((2, 2), 300.0)
    assert not (large.half() @ large.half()).isfinite().all()
    assert (large.bfloat16() @ large.bfloat16()).isfinite().all() and (large @ large).isfinite().all()


# ---- what a watch reads off a script


def trained(loss_of: Callable[[nn.Module, Tensor], Tensor], *, lr: float = 0.05) -> tuple[float, float]:
    """Loss of a small net at the first step and at the last of 150, which learns a sign."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    losses = []
    for _ in range(150):
        loss = loss_of(net, torch.randn(64, 6))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[0], sum(losses[-10:]) / 10


def of(inputs: Tensor) -> Tensor:
    return inputs[:, :3].argmax(1)


MEND: dict[str, tuple[Callable[[nn.Module, Tensor], Tensor], Callable[[nn.Module, Tensor], Tensor]]] = {
    "activation_twice": (
        lambda net, x: functional.cross_entropy(net(x).softmax(-1), of(x)), lambda net, x: functional.cross_entropy(net(x), of(x)),
    ),
    "shapes_broadcast": (
        lambda net, x: functional.mse_loss(net(x)[:, :1], x[:, 0]),
        lambda net, x: functional.mse_loss(net(x)[:, :1].squeeze(-1), x[:, 0]),
    ),
    "gradient_of_zero": (
        lambda net, x: functional.mse_loss((net(x)[:, 0] - 4).relu(), 1.5 + 0 * x[:, 0]),
        lambda net, x: functional.mse_loss(functional.softplus(net(x)[:, 0] - 4), 1.5 + 0 * x[:, 0]),
    ),
    "large_targets": (
        lambda net, x: functional.huber_loss(net(x)[:, 0], 3e4 * x[:, 0] + 5e5),
        lambda net, x: functional.huber_loss(net(x)[:, 0], ((3e4 * x[:, 0] + 5e5) - 5e5) / 3e4),
    ),
    "large_inputs": (
        lambda net, x: functional.cross_entropy(net(1000 * x + 3000), of(x)),
        lambda net, x: functional.cross_entropy(net(((1000 * x + 3000) - 3000) / 1000), of(x)),
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("rule", MEND)
def test_the_line_for_what_is_wrong_with_a_loss_lets_it_fall(rule: str) -> None:
    spoiled, mended = MEND[rule]
    assert trained(spoiled)[1] > 0.5 and trained(mended)[1] < 0.25


# ---- the knobs of the studio

# A run in which a rule fires: knobs, or the name of a preset.
RUNS: dict[str, tuple[str, ...] | str] = {
    "exploding_gradient": "rnn-explosion",
    "vanishing_gradient": "deep-sigmoid-vanishing",
    "fp16_underflow": "fp16-underflow",
    "fp16_overflow": "fp16-overflow",
    "nonfinite_loss": "log-of-zero",
    "nonfinite_gradient": "root-at-zero",
    "accumulation_mismatch": "undivided-accumulation",
    "clip_on_scaled_gradients": "clip-before-unscale",
    "loop_order": ("mistakes.never_zero_grad=true", "optimizer.lr=0.05"),
    "poor_initialization": ("model.depth=20", "model.init=he", "model.init_gain=2", "optimizer.lr=0.01"),
    "saturated_activation": ("model.activation=tanh", "model.init_gain=30", "model.depth=4"),
    "dead_units": ("problem.scaling=raw", "optimizer.lr=0.3", "model.depth=3"),
    "attention_collapse": (
        "problem.task=sequential_digits", "problem.seq_len=16", "model.kind=transformer", "model.depth=2",
        "optimizer.kind=adamw", "optimizer.lr=0.1", "run.seed=1",
    ),
    "update_ratio_high": ("optimizer.lr=30",),
    "update_ratio_low": ("optimizer.lr=1e-7",),
    "weight_decay_high": ("optimizer.kind=adamw", "optimizer.lr=0.01", "optimizer.weight_decay=30"),
    "momentum_high": ("optimizer.momentum=0.9999", "optimizer.lr=0.1"),
    "betas_crossed": ("optimizer.kind=adam", "optimizer.lr=0.01", "optimizer.beta1=0.99", "optimizer.beta2=0.5"),
    "perturbation_large": ("optimizer.sam_rho=5",),
    "nonfinite_weights": ("optimizer.kind=adam", "optimizer.lr=0.01", "optimizer.eps=0", "problem.scaling=raw"),
    "clipping_always": ("clipping.kind=norm", "clipping.max_norm=0.001", "run.steps=300"),
}  # fmt: skip


def outcome(experiment: Experiment) -> tuple[Run, float]:
    run = Run(Preset(id="tried", title="Tried", experiment=experiment), experiment)
    Worker(run).run()
    return run, (run.accuracy or 0.0) if run.status == "finished" else 0.0


@pytest.mark.parametrize("rule", RUNS)
def test_the_first_remedy_of_a_run_heals_it(rule: str) -> None:
    knobs = ["run.device=cpu", "run.steps=150", "model.width=32", "run.seed=3"]
    asked = RUNS[rule]
    experiment = presets.load(asked).experiment if isinstance(asked, str) else Experiment().with_texts([*knobs, *asked])
    experiment = experiment.with_value("run.steps", min(experiment.run.steps, 300))
    run, accuracy = outcome(experiment)
    found = {finding.rule: finding for finding in in_order(run)}
    assert rule in found, list(found)
    assert found[rule].remedies
    healed, better = outcome(experiment.with_texts(found[rule].remedies[0].split()))
    assert healed.status == "finished" and better > accuracy + 0.1, (found[rule].remedies[0], accuracy, better)
