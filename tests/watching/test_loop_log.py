"""The order of the calls in a script's own loop: what is wrong is found and has a line of code for it, and loops of
many kinds that are right stay without a finding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.checkpoint import checkpoint
from watching.conftest import runs_of, small_net, square_loss

from gradstudio.session.record.ranked_findings import in_order
from gradstudio.watching.training_watch import TrainingWatch

Watch = Callable[..., TrainingWatch]
STEPS = 5


class Loop:
    """The parts of a training loop."""

    def __init__(self) -> None:
        self.model = small_net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def watch(self, watch: Watch) -> TrainingWatch:
        one = watch(self.model, self.optimizer)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 2)
        return one

    def clip(self) -> None:
        clip_grad_norm_(self.model.parameters(), 0.5)

    def loss(self) -> Tensor:
        return square_loss(self.model)


def no_zero(loop: Loop) -> None:
    loop.loss().backward()
    loop.clip()
    loop.optimizer.step()


def no_zero_after_an_overflow(loop: Loop) -> None:
    """The Inf of a first step stays in the gradients, so the scaler skips every update."""
    loss = loop.loss()
    if loop.scaler.get_scale() == 1024.0:
        loss = loss * 1e38
    loop.scaler.scale(loss).backward()
    loop.scaler.step(loop.optimizer)
    loop.scaler.update()


def clip_late(loop: Loop) -> None:
    loop.optimizer.zero_grad()
    loop.loss().backward()
    loop.optimizer.step()
    loop.clip()


def clip_early(loop: Loop) -> None:
    loop.optimizer.zero_grad()
    loop.clip()
    loop.loss().backward()
    loop.optimizer.step()


def clip_between(loop: Loop) -> None:
    loop.optimizer.zero_grad()
    loss = loop.loss()
    loop.clip()
    loss.backward()
    loop.optimizer.step()


def clip_early_of_parts(loop: Loop) -> None:
    """The model itself is never called, so nobody hears when its parts are."""
    loop.optimizer.zero_grad()
    loss = loop.model[2](loop.model[0](torch.randn(16, 6))).square().mean()
    loop.clip()
    loss.backward()
    loop.optimizer.step()


def clip_early_with_zeros(loop: Loop) -> None:
    loop.optimizer.zero_grad(set_to_none=False)
    loop.clip()
    loop.loss().backward()
    loop.optimizer.step()


def around(loop: Loop) -> None:
    loop.optimizer.zero_grad()
    loop.scaler.scale(loop.loss()).backward()
    loop.optimizer.step()


def cleared_late(loop: Loop) -> None:
    loop.loss().backward()
    loop.optimizer.zero_grad()
    loop.optimizer.step()


def stepped_twice(loop: Loop) -> None:
    loop.optimizer.zero_grad()
    loop.scaler.scale(loop.loss()).backward()
    loop.scaler.step(loop.optimizer)
    loop.scaler.update()
    loop.optimizer.step()


def schedule_inside(loop: Loop) -> None:
    loop.optimizer.zero_grad()
    for _ in range(3):
        (loop.loss() / 3).backward()
        loop.schedule.step()
    loop.optimizer.step()


def clip_inside(loop: Loop) -> None:
    loop.optimizer.zero_grad()
    for _ in range(3):
        (loop.loss() / 3).backward()
        loop.clip()
    loop.optimizer.step()


of_clips = pytest.mark.wants("torch.nn.utils.clip_grad")


@pytest.mark.filterwarnings("ignore:Detected call of:UserWarning")
@pytest.mark.parametrize(
    ("step", "called", "remedy"),
    [
        pytest.param(no_zero, "forward, backward, clip, step", "`optimizer.zero_grad()` once a step", marks=of_clips),
        (no_zero_after_an_overflow, "forward, backward, unscale, step", "`optimizer.zero_grad()` once a step"),
        pytest.param(
            clip_late,
            "zero_grad, forward, backward, step, clip",
            "the call that clips after `loss.backward()`",
            marks=of_clips,
        ),
        pytest.param(
            clip_early,
            "zero_grad, clip, forward, backward, step",
            "the call that clips after `loss.backward()`",
            marks=of_clips,
        ),
        pytest.param(
            clip_between,
            "zero_grad, forward, clip, backward, step",
            "the call that clips after `loss.backward()`",
            marks=of_clips,
        ),
        pytest.param(
            clip_early_of_parts,
            "zero_grad, clip, backward, step",
            "the call that clips after `loss.backward()`",
            marks=of_clips,
        ),
        pytest.param(
            clip_early_with_zeros,
            "zero_grad, clip, forward, backward, step",
            "the call that clips after",
            marks=of_clips,
        ),
        (cleared_late, "forward, backward, zero_grad, step", "before `loss.backward()`"),
        (stepped_twice, "zero_grad, forward, backward, unscale, step, step_without_scaler", "`scaler.step(optimizer)`"),
        (around, "zero_grad, forward, backward, step_without_scaler", "`scaler.step(optimizer)`"),
        pytest.param(
            clip_inside,
            "zero_grad, 3 × (forward, backward, clip), step",
            "one clip before `optimizer.step()`",
            marks=of_clips,
        ),
        (schedule_inside, "zero_grad, 3 × (forward, backward, schedule), step", "`scheduler.step()` once after"),
    ],
)
def test_a_wrong_loop_is_found(watch: Watch, step: Callable[[Loop], None], called: str, remedy: str) -> None:
    loop = Loop()
    one = loop.watch(watch)
    for _ in range(STEPS):
        step(loop)
    (finding,) = [found for found in in_order(runs_of(one)[0]) if found.rule == "loop_order"]
    assert finding.evidence.startswith(f"Called: {called}. Right: ")
    assert any(remedy in each for each in finding.remedies), finding.remedies


def test_a_loop_that_is_put_right_again_is_told_to_be(watch: Watch) -> None:
    loop = Loop()
    one = loop.watch(watch)
    for step in (*[no_zero] * 4, *[clip_late] * 1, *[healthy_clip] * 4):
        step(loop)
    (finding,) = [found for found in in_order(runs_of(one)[0]) if found.rule == "loop_order"]
    assert finding.last_step < 5


def test_a_scaler_that_skips_one_update_after_the_other_is_no_fault_of_the_loop(watch: Watch) -> None:
    loop = Loop()
    one = loop.watch(watch)
    for _ in range(STEPS):
        loop.optimizer.zero_grad()
        loop.scaler.scale(loop.loss() * 1e38).backward()
        loop.scaler.step(loop.optimizer)
        loop.scaler.update()
    (run,) = runs_of(one)
    assert run.history.column("skipped").all()
    assert not [found for found in in_order(run) if found.rule == "loop_order"]


def healthy_clip(loop: Loop) -> None:
    loop.optimizer.zero_grad(set_to_none=False)
    loop.loss().backward()
    clip_grad_norm_(loop.model.parameters(), float("inf"))  # measures
    loop.clip()
    loop.optimizer.step()
    loop.schedule.step()
    clip_grad_norm_(loop.model.parameters(), float("inf"))


def amp(loop: Loop) -> None:
    loop.optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = loop.loss()
    loop.scaler.scale(loss).backward()
    loop.scaler.unscale_(loop.optimizer)
    loop.clip()
    loop.scaler.step(loop.optimizer)
    loop.scaler.update()


def unscaled_by_hand(loop: Loop) -> None:
    loop.scaler.scale(loop.loss()).backward()
    for parameter in loop.model.parameters():
        assert parameter.grad is not None
        parameter.grad /= loop.scaler.get_scale()
    loop.optimizer.step()
    loop.model.zero_grad()


def accumulation(loop: Loop) -> None:
    for _ in range(3):
        (loop.loss() / 3).backward()
    loop.clip()
    loop.optimizer.step()
    loop.optimizer.zero_grad()
    loop.schedule.step()


def by_hand(loop: Loop) -> None:
    for parameter in loop.model.parameters():
        parameter.grad = None
    loop.loss().backward()
    loop.optimizer.step()


def decaying(loop: Loop) -> None:
    """Keeps a part of the gradient, on purpose."""
    for parameter in loop.model.parameters():
        if parameter.grad is not None:
            parameter.grad *= 0.5
    loop.loss().backward()
    loop.optimizer.step()


def checkpointed(loop: Loop) -> None:
    loop.optimizer.zero_grad()
    checkpoint(loop.loss, use_reentrant=False).backward()  # pyright: ignore[reportOptionalMemberAccess]
    loop.optimizer.step()


def evaluated(loop: Loop) -> None:
    loop.loss().backward()  # a pass that is thrown away
    loop.optimizer.zero_grad()
    loop.loss().backward()
    loop.optimizer.step()
    with torch.no_grad():
        loop.loss()


def two_losses(loop: Loop) -> None:
    loop.optimizer.zero_grad()
    loop.loss().backward()
    loop.clip()
    loop.loss().backward()
    loop.optimizer.step()


HEALTHY = (healthy_clip, amp, unscaled_by_hand, accumulation, by_hand, decaying, checkpointed, evaluated, two_losses)


@pytest.mark.parametrize("step", HEALTHY)
def test_a_right_loop_has_no_finding(watch: Watch, step: Callable[[Loop], None]) -> None:
    loop = Loop()
    one = loop.watch(watch)
    for _ in range(STEPS):
        step(loop)
    (run,) = runs_of(one)
    assert len(run.history) == STEPS
    assert not any(found.rule == "loop_order" for found in in_order(run)) and not run.history.loops


def gan() -> tuple[Any, ...]:
    generator, judge = small_net(), small_net(1)
    of_generator, of_judge = (torch.optim.Adam(each.parameters()) for each in (generator, judge))

    def step() -> None:
        of_generator.zero_grad()
        judge(generator(torch.randn(4, 6)).expand(4, 6)).mean().backward()
        clip_grad_norm_(generator.parameters(), 0.1)
        of_generator.step()
        of_judge.zero_grad()
        judge(generator(torch.randn(4, 6)).detach().expand(4, 6)).mean().backward()
        judge(torch.randn(4, 6)).mean().backward()
        clip_grad_norm_(judge.parameters(), 0.1)
        of_judge.step()

    return step, (generator, of_generator), (judge, of_judge)


def lbfgs() -> tuple[Any, ...]:
    model = small_net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = square_loss(model)
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        return loss

    return lambda: optimizer.step(closure), (model, optimizer)


def two_models_with_one_optimizer() -> tuple[Any, ...]:
    both = nn.ModuleList([small_net(), small_net(1)])
    optimizer = torch.optim.AdamW(both.parameters(), fused=True)

    def step() -> None:
        for model in both:
            square_loss(model).backward()
        optimizer.step()
        for model in both:
            model.zero_grad()

    return step, (both, optimizer)


def two_optimizers_of_one_model() -> tuple[Any, ...]:
    model = small_net()
    first, last = (torch.optim.SGD(each.parameters(), 1e-3) for each in (model[0], model[2]))

    def step() -> None:
        model.zero_grad(set_to_none=False)
        square_loss(model).backward()
        clip_grad_norm_(model.parameters(), 0.1)
        first.step()
        last.step()

    return step, (model, first), (model, last)


@pytest.mark.wants("torch.nn.utils.clip_grad")
def test_a_clip_of_two_optimizers_that_is_too_early_is_found_for_both(watch: Watch) -> None:
    model = small_net()
    optimizers = [torch.optim.SGD(each.parameters(), 1e-3) for each in (model[0], model[2])]
    watched = [watch(model, each) for each in optimizers]
    for _ in range(STEPS):
        model.zero_grad()
        clip_grad_norm_(model.parameters(), 0.5)
        square_loss(model).backward()
        for each in optimizers:
            each.step()
    for one in watched:
        (finding,) = [found for found in in_order(runs_of(one)[0]) if found.rule == "loop_order"]
        assert finding.evidence.startswith("Called: zero_grad, clip, forward")


@pytest.mark.parametrize("kind", [gan, lbfgs, two_models_with_one_optimizer, two_optimizers_of_one_model])
def test_a_right_loop_of_another_kind_has_no_finding(watch: Watch, kind: Callable[[], tuple[Any, ...]]) -> None:
    step, *pairs = kind()
    watched = [watch(model, optimizer) for model, optimizer in pairs]
    for _ in range(STEPS):
        step()
    for one in watched:
        (run,) = runs_of(one)
        assert len(run.history) == STEPS and not run.history.loops


@pytest.mark.filterwarnings("ignore:Detected call of:UserWarning")
def test_a_schedule_that_was_made_before_the_watch_is_heard(watch: Watch) -> None:
    loop = Loop()
    loop.schedule = torch.optim.lr_scheduler.StepLR(loop.optimizer, 2)
    one = watch(loop.model, loop.optimizer)
    for _ in range(STEPS):
        schedule_inside(loop)
    assert "loop_order" in {found.rule for found in in_order(runs_of(one)[0])}
