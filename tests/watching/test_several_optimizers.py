"""Several optimizers of one model are one run: after one backward pass, or within it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from watching.conftest import columns, gradient_norm, near, norm, runs_of, small_net, square_loss

from gradstudio.watching import training_watch
from gradstudio.watching.training_watch import TrainingWatch

Watch = Callable[..., TrainingWatch]


def halves(model: nn.Module) -> list[torch.optim.Optimizer]:
    """As Muon for the matrices and AdamW for the rest."""
    matrices = [each for each in model.parameters() if each.dim() == 2]
    rest = [each for each in model.parameters() if each.dim() != 2]
    return [torch.optim.SGD(matrices, lr=0.1), torch.optim.AdamW(rest, lr=0.01)]


def watched_by(
    watch: Watch, model: nn.Module, optimizers: list[torch.optim.Optimizer], **options: Any
) -> TrainingWatch:
    """Watch all, and return what was given for one of them."""
    first, *_ = [watch(model, each, **options) for each in optimizers]
    return first


def run_alone(one: TrainingWatch) -> Any:
    (run,) = runs_of(one)
    found = training_watch.current()
    assert found is not None and [each.run for each in found.runs] == [run]
    return run


@pytest.mark.parametrize("is_one_discarded", [False, True])
def test_optimizers_that_exist_already_are_watched_with_their_model(watch: Watch, is_one_discarded: bool) -> None:
    model = small_net()
    both = halves(model)
    discarded = torch.optim.SGD(model.parameters()) if is_one_discarded else None
    one, norms = watch(model), []
    both = both if discarded is None else [torch.optim.SGD(model.parameters(), lr=0.1)]
    for _ in range(3):
        for each in both:
            each.zero_grad()
        square_loss(model).backward()
        norms.append(gradient_norm(model))
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        for each in both:
            each.step()
    assert run_alone(one).history.column("grad_norm").tolist() == near(norms)


@pytest.mark.parametrize("accumulated", [1, 2])
def test_two_optimizers_are_one_run_with_the_norm_of_the_whole(watch: Watch, accumulated: int) -> None:
    model = small_net()
    both = halves(model)
    first, second = [watch(model, each) for each in both]
    losses, norms, clipped, ratios = [], [], [], []
    for _ in range(5):
        for each in both:
            each.zero_grad()
        losses.append(0.0)
        for _ in range(accumulated):
            loss = square_loss(model)
            loss.backward()
            losses[-1] += loss.item()
        norms.append(gradient_norm(model))
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        clipped.append(gradient_norm(model))
        before = [each.detach().clone() for each in model.parameters()]
        for each in both:
            each.step()
        moved = norm(after.detach() - each for after, each in zip(model.parameters(), before, strict=True))
        ratios.append(moved / norm(before))
    assert first.run == second.run
    run = run_alone(second)
    assert columns(first, "loss", "grad_norm", "clipped_norm", "update_ratio") == [
        near(losses), near(norms), near(clipped), near(ratios),
    ]  # fmt: skip
    assert [layer.name for layer in run.history.layers] == [name for name, _ in model.named_parameters()]
    gradients = [norm([each.grad]) for each in model.parameters()]
    assert run.history.layer_metric("weight_norm")[0].tolist() == pytest.approx(
        [norm([each.detach()]) for each in small_net().parameters()], rel=1e-5
    )
    assert len(gradients) == 4 and dict(run.watched.facts)["optimizer"].startswith("SGD(lr=0.1) and AdamW(lr=0.01")


def test_a_birth_is_found_in_the_model_of_both(watch: Watch) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    both = halves(model)
    one = watched_by(watch, model, both)
    for step in range(4):
        for each in both:
            each.zero_grad()
        given = model(torch.randn(3, 4))
        ((given * 0 - 1).log() if step == 2 else given).square().sum().backward()
        for each in both:
            each.step()
    run = run_alone(one)
    assert run.provenance is not None and run.provenance.step == 2 and "log" in run.provenance.operation.lower()


def test_a_scaler_may_skip_both(watch: Watch) -> None:
    model = small_net()
    both, scaler = halves(model), torch.amp.GradScaler("cpu", init_scale=2.0**127)
    one = watched_by(watch, model, both)
    skips: list[bool] = []
    for _ in range(8):
        for each in both:
            each.zero_grad()
        scaler.scale(square_loss(model)).backward()
        for each in both:
            scaler.step(each)
        before = scaler.get_scale()
        scaler.update()
        skips.append(scaler.get_scale() < before)
    run_alone(one)
    assert columns(one, "skipped") == [skips] and any(skips) and not all(skips)


def test_a_step_is_left_out_of_both(watch: Watch) -> None:
    model = small_net()
    both = halves(model)
    one = watched_by(watch, model, both, on_nonfinite="skip")
    for step in range(4):
        for each in both:
            each.zero_grad()
        (square_loss(model) / (step != 2)).backward()
        for each in both:
            each.step()
    run_alone(one)
    assert columns(one, "skipped") == [[0, 0, 1, 0]]
    assert all(bool(torch.isfinite(each).all()) for each in model.parameters())


def test_an_optimizer_that_steps_less_often_is_of_the_run_too(watch: Watch) -> None:
    model = small_net()
    both = halves(model)
    one = watched_by(watch, model, both)
    norms = []
    for step in range(6):
        for each in both:
            each.zero_grad()
        square_loss(model).backward()
        norms.append(gradient_norm(model))
        both[0].step()
        if step % 2 == 0:
            both[1].step()
    run_alone(one)
    training_watch.current().close()  # pyright: ignore[reportOptionalMemberAccess]
    assert columns(one, "grad_norm") == [near(norms)]


@pytest.mark.wants("torch.nn.utils.clip_grad")
def test_optimizers_that_step_within_the_backward_pass_are_one_run(watch: Watch) -> None:
    model = small_net()
    of_each = {weight: torch.optim.SGD([weight], lr=0.05, foreach=False) for weight in model.parameters()}
    every = [watch(model, each) for each in of_each.values()]
    squares: list[float] = []

    def arrived(weight: Any) -> None:
        squares.append(norm([weight.grad]) ** 2)
        of_each[weight].step()
        of_each[weight].zero_grad()

    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(arrived)
    losses, norms, weights = [], [], []
    for _ in range(5):
        weights.append(norm(each.detach() for each in model.parameters()))
        loss = square_loss(model)
        loss.backward()
        losses.append(loss.item())
        norms.append(sum(squares) ** 0.5)
        squares.clear()
    run = run_alone(every[0])
    assert columns(every[3], "loss", "grad_norm", "weight_norm") == [near(losses), near(norms), near(weights)]
    ratios, rates = columns(every[0], "update_ratio", "lr")
    assert ratios == near([0.05 * each / weight for each, weight in zip(norms, weights, strict=True)])
    assert rates == [0.05] * 5 and dict(run.watched.facts)["optimizer"] == "SGD(lr=0.05)"


@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_what_is_not_finite_is_kept_from_weights_within_the_backward_pass(watch: Watch, policy: str) -> None:
    model = small_net()
    of_each = {weight: torch.optim.AdamW([weight], lr=0.05, foreach=False) for weight in model.parameters()}
    one = watched_by(watch, model, [*of_each.values()], on_nonfinite=policy)

    def arrived(weight: Any) -> None:
        of_each[weight].step()
        of_each[weight].zero_grad()

    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(arrived)
    raised = 0
    for step in range(4):
        try:
            (square_loss(model) / (step != 2)).backward()
        except FloatingPointError:
            raised += 1
            model.zero_grad()
    run_alone(one)
    assert all(bool(torch.isfinite(each).all()) for each in model.parameters())
    assert raised == (policy == "raise") and len(columns(one, "loss")[0]) == 4
    assert columns(one, "skipped") == [[0, 0, policy == "skip", 0]]


@pytest.mark.parametrize("generator_first", [True, False])
def test_the_two_of_a_gan_within_one_module_are_two_runs(watch: Watch, generator_first: bool) -> None:
    class Gan(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.maker, self.judge = nn.Linear(3, 4), nn.Linear(4, 1)

    gan = Gan()
    makes = torch.optim.SGD(gan.maker.parameters(), lr=0.1)
    judges = torch.optim.SGD(gan.judge.parameters(), lr=0.1)
    both = [watch(gan, makes), watch(gan, judges)]

    def make() -> None:
        makes.zero_grad()
        gan.judge(gan.maker(torch.randn(5, 3))).mean().backward()
        makes.step()

    def judge() -> None:
        judges.zero_grad()
        gan.judge(gan.maker(torch.randn(5, 3)).detach()).mean().backward()
        judges.step()

    for _ in range(4):
        for turn in (make, judge) if generator_first else (judge, make):
            turn()
    assert both[0].run != both[1].run and [len(columns(each, "loss")[0]) for each in both] == [4, 4]
