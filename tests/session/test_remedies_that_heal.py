"""Every remedy that is offered heals: each line of code on a small computation in which it has to, and knobs on runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase

import pytest
import torch
import written_remedies
from torch import Tensor, nn
from torch.nn import functional

from gradstudio.core import presets
from gradstudio.core.diagnosis import birth_remedies, operation_remedies
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.overflow_remedies import OF_HALF, of_overflow
from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment, parse_assignment
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
    "acosh": torch.ones(3),
    "lgamma": torch.zeros(3),
    "log1p": -torch.ones(3),
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


@pytest.mark.parametrize("operation", operation_remedies._DEFINED)
def test_a_line_for_an_operation_mends_it_where_it_is_not_defined(operation: str) -> None:
    written = re.findall(r"`([^`]+)`", operation_remedies._DEFINED[operation])
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
    assert "zero_infinity=True" in operation_remedies._ALWAYS["ctc_loss"]
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
    "labels_alike": (
        lambda net, x: functional.cross_entropy(net(x[:4]) @ net(2 * x[:4]).T, torch.zeros(4, dtype=torch.long)),
        lambda net, x: functional.cross_entropy(net(x[:4]) @ net(2 * x[:4]).T, torch.arange(4)),
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


def test_labels_are_decoded_once_none_of_them_is_the_blank_of_ctc() -> None:
    def decoded(blank: int) -> set[int]:
        """Classes that are read of a net with one frame for each label 0 or 1, and a third output."""

        def loss_of(net: nn.Module, x: Tensor) -> Tensor:
            labels, one = (x[:, :1] > 0).long(), torch.ones(len(x), dtype=torch.long)
            return functional.ctc_loss(net(x).log_softmax(-1)[None], labels, one, one, blank=blank)

        nets: list[nn.Module] = []
        trained(lambda net, x: nets.append(net) or loss_of(net, x))
        return set(nets[0](torch.randn(64, 6)).argmax(-1).tolist()) - {blank}

    assert decoded(0) == {1} and decoded(2) == {0, 1}


# ---- the knobs of the studio

# Runs in which a rule offers its remedies: knobs, beside a preset, and what is changed on the way (`step:knob=value`). The
# first that offers a remedy and is healed by it counts.
_LOOP = "accumulation.steps=4 problem.batch_size=8"
_TRANSFORMER = (
    "model.kind=transformer problem.task=sequential_digits problem.seq_len=4 run.steps=120 problem.batch_size=16"
)
_POST_NORM = (
    f"{_TRANSFORMER} model.norm_position=post model.norm=layer model.depth=10 model.width=8 optimizer.kind=adam"
)
_COLLAPSED = f"{_TRANSFORMER} problem.seq_len=8 model.width=16 optimizer.kind=adamw optimizer.lr=0.1 run.seed=1"
_HALF = "precision.dtype=fp16"
_IN_HALF = f"{_HALF} problem.input_scale=3e4 optimizer.kind=adam optimizer.lr=0.001 run.stop_on_nonfinite=false"
_NO_SCALE = f"{_HALF} precision.scaling=none loss.weight=1e-6 optimizer.kind=adam optimizer.lr=0.01"
_DECAYED = "optimizer.kind=adamw optimizer.lr=0.01 optimizer.weight_decay=30 model.depth=8"
_FAST = "optimizer.lr=1.5 model.depth=3"
_POLE = "model.kind=policy problem.task=pole optimizer.lr=0.5 problem.seq_len=30 run.steps=60"
_DEEP_CNN = "model.kind=cnn model.depth=16 model.width=4 run.steps=150 problem.batch_size=8"
TRIALS: dict[str, tuple[str, ...]] = {
    "accumulation_mismatch": (
        f"{_LOOP} mistakes.unscaled_accumulation=true optimizer.lr=1 model.depth=3", f"{_LOOP} clipping.kind=norm "
        "mistakes.clip_each_micro_batch=true clipping.max_norm=0.1", f"{_LOOP} mistakes.drop_last_micro_batches=true",
        f"{_LOOP} mistakes.zero_grad_each_micro_batch=true", f"{_LOOP} mistakes.divide_each_micro_batch=true",
        f"{_LOOP} loss.class_weights=balanced mistakes.normalize_each_micro_batch=true problem.imbalance=10",
    ),
    "attention_collapse": (_COLLAPSED,),
    "entropy_collapse": ("preset=sure-too-soon run.steps=1000",),
    "policy_far_off": ("preset=policy-far-off run.steps=300",),
    "vanishing_in_time": ("preset=a-net-that-forgets run.steps=300",),
    "reward_hacked": ("preset=reward-hacked run.steps=400",),
    "batch_norm_of_two": ("model.norm=batch problem.batch_size=2 model.depth=3",),
    "betas_crossed": ("optimizer.kind=adam optimizer.lr=0.01 optimizer.beta1=0.99 optimizer.beta2=0.5",),
    "clip_on_scaled_gradients": tuple(
        f"{_HALF} clipping.kind=norm mistakes.{name}=true" for name in ("clip_before_unscale", "clip_each_micro_batch")
    ),
    "clip_overflow": (
        "clipping.kind=norm clipping.max_norm=1e9 optimizer.momentum=0.9 optimizer.lr=0.5 model.depth=3 "
        "model.activation=leaky_relu",
    ),
    "clip_without_effect": tuple(
        f"clipping.kind=norm problem.outlier_every=60 mistakes.{name}=true"
        for name in ("clip_after_step", "clip_before_backward")
    ),
    "clipping_always": ("clipping.kind=norm clipping.max_norm=0.001",),
    "clipping_never": ("clipping.kind=norm clipping.max_norm=1e15 optimizer.lr=0.5 problem.scaling=raw run.steps=200",),
    "dead_units": (
        _FAST, "model.initial_bias=-5 model.depth=3", "model.init=zeros model.depth=3", _DECAYED,
    ),
    "exploding_gradient": (
        "optimizer.lr=2 model.depth=3", "clipping.kind=norm clipping.max_norm=1e4 problem.outlier_every=60 optimizer.lr=0.5",
        "optimizer.weight_decay=25",
    ),
    "fp16_overflow": (
        f"{_HALF} precision.scaling=static precision.init_scale=1e6", f"{_HALF} problem.input_scale=1e4",
    ),
    "fp16_underflow": (_NO_SCALE,),
    "gradient_noise": ("gradients.noise_std=1 optimizer.kind=adam optimizer.lr=0.001",),
    "loop_order": (
        f"{_HALF} mistakes.step_without_scaler=true", "mistakes.never_zero_grad=true optimizer.lr=0.05",
        f"{_HALF} precision.scaling=static mistakes.unscale_twice=true", f"{_HALF} mistakes.never_update_scaler=true",
        f"{_LOOP} mistakes.scheduler_each_micro_batch=true schedule.kind=cosine schedule.total_steps=150",
        *(f"{_LOOP} mistakes.{name}=true" for name in (
            "zero_grad_each_micro_batch", "drop_last_micro_batches", "divide_each_micro_batch",
        )),
        *(f"{_LOOP} clipping.kind=norm mistakes.{name}=true" for name in (
            "clip_each_micro_batch", "clip_before_backward", "clip_after_step",
        )),
        f"{_HALF} clipping.kind=norm mistakes.clip_before_unscale=true",
    ),
    "loss_not_decreasing": ("optimizer.lr=1e-5 run.steps=200",),
    "loss_oscillating": ("optimizer.lr=2.5 model.depth=1",),
    "loss_spike": ("problem.outlier_every=60",),
    "momentum_high": ("optimizer.momentum=0.9999",),
    "nonfinite": (f"{_HALF} precision.scaling=static precision.init_scale=1e6", _FAST + " optimizer.lr=3"),
    "nothing_learned": ("model.norm=batch problem.outlier_every=30",),
    "perturbation_large": ("optimizer.sam_rho=5",),
    "poor_initialization": ("model.depth=20 model.init=he model.init_gain=2 optimizer.lr=0.01",),
    "rate_raised": ("60:optimizer.lr=2 optimizer.lr=0.3",),
    "saturated_activation": ("model.activation=tanh model.init_gain=30 model.depth=4",),
    "scale_collapse": (_IN_HALF,),
    "signal_lost": ("model.depth=10 optimizer.lr=0.3 model.activation=tanh",),
    "test_gap": ("model.norm=batch model.norm_momentum=0.001 problem.scaling=raw optimizer.lr=0.01 problem.input_scale=5",),
    "update_ratio_high": (_FAST, "optimizer.weight_decay=25"),
    "update_ratio_low": (
        "optimizer.lr=1e-7", "schedule.kind=exponential schedule.total_steps=10", "schedule.warmup_steps=100000",
    ),
    "updates_after_spike": ("problem.outlier_every=60 optimizer.kind=adam optimizer.lr=0.001",),
    "vanishing_gradient": (
        "model.depth=12 model.activation=sigmoid", f"{_POST_NORM} optimizer.lr=0.01", _DECAYED,
        "optimizer.lr=0.1 optimizer.weight_decay=5",
    ),
    "weight_decay_high": ("optimizer.kind=adamw optimizer.lr=0.01 optimizer.weight_decay=30",),
    "offered": (  # for what the knobs in force ask for, whichever rule it is
        _POLE, "problem.nan_every=20", "model.kind=gan problem.task=ring optimizer.momentum=0.9 run.steps=200",
        "preset=log-of-zero", "loss.kind=naive_division", "loss.kind=naive_exp optimizer.lr=2",
        "preset=log-of-negative run.steps=100", _DEEP_CNN, f"{_DEEP_CNN} model.init_gain=30",
        "model.activation=tanh model.init_gain=30 model.kind=rnn problem.task=copy problem.seq_len=4 optimizer.kind=adam optimizer.lr=0.003",
        "optimizer.lr=1e-7 schedule.kind=exponential schedule.total_steps=10", "problem.input_scale=0.001",
        "optimizer.kind=adam optimizer.eps=1 optimizer.lr=0.001", "optimizer.kind=adam optimizer.lr=1",
        "precision.weights=bf16 optimizer.lr=0.004 run.steps=600 problem.batch_size=8",
        "model.initial_bias=1e5", "loss.weight=1e4", "loss.z_loss=1e3", "problem.input_scale=1e30 model.init_gain=50",
        "model.depth=40 model.residual=true model.init=he", f"{_POST_NORM} optimizer.lr=0.01",
    ),
}  # fmt: skip
# What no run of the studio in one process can offer, and where it is tried.
ELSEWHERE = {
    "reward_lost": "only a script tells its rewards: a policy in tests/watching/test_script_remedies.py",
    "gradient_of_zero": "of the studio's own models other rules know more: tests/watching/test_script_remedies.py",
    "nan_on_a_rank": "needs several processes: tests/session/test_ranks.py",
    "distributed": "needs several processes: tests/session/test_ranks.py",
}
# Remedies that heal only after more steps than a test can take.
LATE = {
    ("policy_far_off", "loss.ratio_limit=0.1"): "after 6,400 steps, at a lower rate, as its preset promises",
    ("vanishing_in_time", "model.init=orthogonal"): "of an LSTM, after some 800 steps",
}
# The first remedy of each rule is tried in `make test`; tests/session/test_diagnosis.py heals runs by others.
LONG = pytest.mark.thorough
ASKED = [
    pytest.param(rule, remedy, id=f"{rule}: {remedy}", marks=() if place == 0 or rule == "offered" else LONG)
    for rule, remedies in written_remedies.of_rules().items() if rule not in ELSEWHERE
    for place, remedy in enumerate(remedies) if remedy.partition(".")[0] not in ELSEWHERE and (rule, remedy) not in LATE
]  # fmt: skip


def set_up(asked: str) -> tuple[Experiment, tuple[Change, ...]]:
    """The experiment of a trial, and what is changed on the way."""
    words = asked.split()
    name = words.pop(0).removeprefix("preset=") if asked.startswith("preset=") else ""
    changes = [word.partition(":") for word in words if word[0].isdigit()]
    timeline = tuple(Change(int(step), *parse_assignment(change)) for step, _, change in changes)
    knobs = [word for word in words if not word[0].isdigit()]
    if not name:
        knobs = ["run.steps=120", "model.width=32", "run.seed=3", *knobs]
    return (presets.load(name).experiment if name else Experiment()).with_texts(["run.device=cpu", *knobs]), timeline


def outcome(asked: str, remedy: str = "") -> tuple[Run, float]:
    """The run of a trial, with a remedy, and how well it ends."""
    experiment, timeline = set_up(asked)
    return trained_once(experiment.with_texts(remedy.split()), () if remedy else timeline)


def trained_once(experiment: Experiment, timeline: tuple[Change, ...]) -> tuple[Run, float]:
    """Train, unless the same was trained before: several rules offer the same remedy for the same run."""
    key = repr((experiment, timeline))
    if key not in TRAINED:
        run = Run(Preset(id="tried", title="Tried", experiment=experiment), experiment, timeline)
        Worker(run).run()
        TRAINED[key] = run, (run.accuracy or 0.0) if run.status == "finished" else 0.0
    return TRAINED[key]


TRAINED: dict[str, tuple[Run, float]] = {}


def heals(asked: str, finding: Finding, remedy: str) -> str:
    """Why a remedy does not heal a finding of a run; "" if it does."""
    before = outcome(asked)[1]
    healed, after = outcome(asked, remedy)
    left = {found.rule for found in in_order(healed) if found.severity != "info"}
    harmless = remedy.startswith("mistakes.") and after > before - 0.01  # that the loss hides
    if healed.status == "finished" and finding.rule not in left and (after > before + 0.05 or harmless):
        return ""
    return f"{asked}: {remedy}: {healed.status}, {before:.3f} to {after:.3f}, {sorted(left)}"


@pytest.mark.parametrize(("rule", "remedy"), ASKED)
def test_each_remedy_of_a_rule_heals_a_run_in_which_it_is_offered(rule: str, remedy: str) -> None:
    failed = ["no run of TRIALS offers it"]
    mistake = remedy.startswith("mistakes.") and remedy.partition("=")[0].partition(".")[2]
    for asked in TRIALS[rule]:
        if mistake and mistake not in asked:
            continue
        for finding in in_order(outcome(asked)[0]):
            if rule not in ("offered", finding.rule) and not finding.rule.startswith(f"{rule}_"):
                continue
            for offered in finding.remedies:
                if fnmatchcase(offered, remedy):
                    failed.append(heals(asked, finding, offered))
                    if not failed[-1]:
                        return
    raise AssertionError("\n".join(failed))
