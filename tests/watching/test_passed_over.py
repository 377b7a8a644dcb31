"""Batches that are not finite and that the script skips: known, and no steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from watching.conftest import columns, runs_of, small_net, square_loss

from gradstudio.session.files.summary import summarize
from gradstudio.session.record.run import Run
from gradstudio.session.words.story import in_words
from gradstudio.watching.watched import Watched

Watch = Callable[..., Watched]


def batch(step: int, *, broken: str) -> tuple[Tensor, Tensor]:
    """Every third batch has a NaN, from the first on."""
    inputs = torch.randn(16, 6)
    targets = inputs.sum(1, keepdim=True)
    if step % 3 == 0:
        (inputs if broken == "inputs" else targets)[2, 0] = math.nan
    return inputs, targets


def loss_of(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return (model(inputs) - targets).square().mean()


def skipped_before(run: Run) -> list[int]:
    return [event.step for event in run.events if event.kind == "nan_batch"]


def in_a_variable(model: nn.Module, optimizer: Any, inputs: Tensor, targets: Tensor, held: list[Any]) -> float | None:
    held[:] = [loss_of(model, inputs, targets)]
    optimizer.zero_grad()
    if not torch.isfinite(held[0]):
        return None
    held[0].backward()
    optimizer.step()
    return held[0].item()


def let_go(model: nn.Module, optimizer: Any, inputs: Tensor, targets: Tensor, held: list[Any]) -> float | None:
    found = in_a_variable(model, optimizer, inputs, targets, held)
    held.clear()
    return found


def after_backward(model: nn.Module, optimizer: Any, inputs: Tensor, targets: Tensor, _: Any) -> float | None:
    loss = loss_of(model, inputs, targets)
    loss.backward()
    if not math.isfinite(nn.utils.clip_grad_norm_(model.parameters(), 1.0)):
        optimizer.zero_grad()
        return None
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


@pytest.mark.parametrize(
    ("step_of", "broken", "said", "born"),
    [
        (in_a_variable, "inputs", "loss NaN; it made no backward pass", "input 0 of the model holds 1 NaN"),
        (in_a_variable, "targets", "loss NaN; it made no backward pass", "born in the script, loss code: sub"),
        (let_go, "inputs", "the model gave NaN; it made no backward pass", "input 0 of the model holds 1 NaN"),
        (after_backward, "inputs", "loss NaN; it threw its gradients away", "input 0 of the model holds 1 NaN"),
        (after_backward, "targets", "loss NaN; it threw its gradients away", "born in the script, loss code: sub"),
    ],
)
def test_a_skipped_batch_is_an_event_and_no_row(
    watch: Watch, capsys: pytest.CaptureFixture[str], step_of: Any, broken: str, said: str, born: str
) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    held: list[Any] = []
    given = [step_of(model, optimizer, *batch(step, broken=broken), held) for step in range(7)]
    one.close()
    losses = [loss for loss in given if loss is not None]
    (run,) = runs_of(one)
    assert given[0] is given[3] is given[6] is None and columns(one, "loss") == [losses]
    assert skipped_before(run) == [0, 2, 4] and run.status == "finished"
    assert run.first_nonfinite_step is None and run.provenance is None and not run.findings
    text = next(event.text for event in run.events if event.kind == "nan_batch")
    assert said in text and "no update was made" in text and born in text
    assert f"  skipped    3 batches; before step 0 {text}" in in_words(run).splitlines()
    assert [each["step"] for each in summarize(run)["skipped_batches"]] == [0, 2, 4]
    lines = [line for line in capsys.readouterr().err.splitlines() if "skipped a batch" in line]
    assert len(lines) == 1 and "before step 0 the script skipped a batch, without an update" in lines[0]


def test_a_tensor_without_numbers_is_no_loss(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    """As torch's compiler holds them."""
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.randn((), requires_grad=True)) * 2
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    held: list[Any] = []
    for step in range(5):
        in_a_variable(model, optimizer, *batch(step, broken="inputs"), held)
    one.close()
    (run,) = runs_of(one)
    assert skipped_before(run) == [0, 2] and fake.grad_fn is not None
    assert "watching ended" not in capsys.readouterr().err


def test_a_closure_that_makes_no_backward_pass_is_no_step(watch: Watch) -> None:
    """As Lightning has it where `training_step` returns None."""
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    one = watch(model, optimizer)
    losses = []
    for step in range(4):

        def closure(step: int = step) -> Any:
            loss = loss_of(model, *batch(step + 1, broken="inputs"))
            optimizer.zero_grad()
            if not torch.isfinite(loss):
                return None
            loss.backward()
            losses.append(loss.item())
            return loss

        optimizer.step(closure)
    assert len(losses) == 3 and columns(one, "loss") == [losses]
    (run,) = runs_of(one)
    assert skipped_before(run) == [2] and run.first_nonfinite_step is None


def test_a_first_batch_at_the_very_end_is_taken_for_the_end(watch: Watch) -> None:
    """Nobody knows whether the script would have gone on: it ended with this loss."""
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    for step in (1, 2, 3):
        after = loss_of(model, *batch(step, broken="inputs"))
        after.backward()
        if step < 3:
            optimizer.step()
            optimizer.zero_grad()
    one.close()
    (run,) = runs_of(one)
    assert run.status == "nonfinite" and run.first_nonfinite_step == 2
    assert run.provenance is not None and run.provenance.operation == "input"


def test_passes_that_are_answered_later_and_gradients_of_another_optimizer_are_not_skipped(watch: Watch) -> None:
    """A GAN's judge throws away what the step of its maker left, also where that was NaN."""
    maker, judge = nn.Linear(4, 6), small_net(1)
    makes, judges = torch.optim.SGD(maker.parameters(), lr=0.01), torch.optim.SGD(judge.parameters(), lr=0.01)
    one, other = watch(maker, makes), watch(judge, judges)
    for step in range(4):
        judges.zero_grad()
        parts = [judge(torch.randn(8, 6)).mean() for _ in range(3)]
        torch.stack(parts).sum().backward()
        judges.step()
        makes.zero_grad()
        (judge(maker(torch.randn(8, 4))).mean() * (math.nan if step == 2 else 1)).backward()
        makes.step() if step != 2 else None
    (run,) = runs_of(other)
    assert skipped_before(run) == [3], "of the maker's step 2, which was not made"
    (run,) = runs_of(one)
    assert skipped_before(run) == [2] and run.first_nonfinite_step is None and len(run.history) == 3


def test_weights_that_are_broken_make_it_a_run_that_diverged(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=math.inf)
    one = watch(model, optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        loss = square_loss(model)
        if torch.isfinite(loss):
            loss.backward()
            optimizer.step()
    one.close()
    (run,) = runs_of(one)
    assert run.first_nonfinite_step == 0 and run.status == "nonfinite" and len(run.history) == 1
    assert run.provenance is not None and run.provenance.phase == "update"


def test_a_step_that_looks_ahead_uses_the_gradients_that_it_throws_away(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    for step in range(3):
        outputs = model(torch.randn(16, 6))
        ((outputs * 0).sqrt() if step == 2 else outputs.square()).mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.add_(parameter.grad, alpha=1e-3)
        optimizer.zero_grad()
        square_loss(model).backward()
        optimizer.step()
        optimizer.zero_grad()
    (run,) = runs_of(one)
    assert not skipped_before(run) and run.first_nonfinite_step == 2
    assert run.provenance is not None and "SqrtBackward0" in run.provenance.operation


def test_the_birth_of_a_later_divergence_is_its_own(watch: Watch) -> None:
    """What was found for a skipped batch is not kept for the run."""
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    for step in range(3):
        loss = loss_of(model, *batch(step, broken="inputs")) if step < 2 else (model(torch.ones(4, 6)) - 9).log().sum()
        loss.backward()
        if step:
            optimizer.step()
        optimizer.zero_grad()
    (run,) = runs_of(one)
    assert skipped_before(run) == [0] and run.first_nonfinite_step == 1
    assert run.provenance is not None and run.provenance.operation == "LogBackward0"
