"""Batches that are not finite and that the script skips: known, and no steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from watching.conftest import columns, runs_of, small_net, square_loss

from gradstudio.session.files.summary import summarize
from gradstudio.session.record.run import Run
from gradstudio.session.words.story import in_words
from gradstudio.watching.recording.closing_lines import tell
from gradstudio.watching.recording.run_facts import Script
from gradstudio.watching.steps.watch_options import Options
from gradstudio.watching.training_watch import TrainingWatch
from gradstudio.watching.watcher import Watcher

Watch = Callable[..., TrainingWatch]


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


def release(model: nn.Module, optimizer: Any, inputs: Tensor, targets: Tensor, held: list[Any]) -> float | None:
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


@pytest.mark.wants("torch.utils._python_dispatch", "OpOverload._schema")
@pytest.mark.parametrize(
    ("step_of", "broken", "said", "born"),
    [
        (in_a_variable, "inputs", "loss NaN; it made no backward pass", "input 0 of the model holds 1 NaN"),
        (in_a_variable, "targets", "loss NaN; it made no backward pass", "its second operand holds NaN"),
        (release, "inputs", "the model gave NaN; it made no backward pass", "input 0 of the model holds 1 NaN"),
        (after_backward, "inputs", "loss NaN; it threw its gradients away", "input 0 of the model holds 1 NaN"),
        (
            after_backward,
            "targets",
            "loss NaN; it threw its gradients away",
            "its second operand, `targets`, holds NaN, which the model did not compute",
        ),
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


@pytest.mark.wants("torch.utils._python_dispatch", "OpOverload._schema")
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


class Scaled:
    """A training through a loss scaler."""

    def __init__(self, watch: Watch | None = None, model: nn.Module | None = None, **named: Any) -> None:
        self.model, self.scaler = model or small_net(), torch.amp.GradScaler("cpu", init_scale=2.0**16)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.one = watch(self.model, self.optimizer, **named) if watch else None

    def step(self, *, broken: bool) -> None:
        inputs, targets = batch(0 if broken else 1, broken="inputs")
        self.optimizer.zero_grad()
        self.scaler.scale(loss_of(self.model, inputs, targets)).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def plain_step(self) -> None:
        self.optimizer.zero_grad()
        loss_of(self.model, *batch(0, broken="targets")).backward()
        self.optimizer.step()

    def run(self) -> Run:
        assert self.one is not None
        self.one.close()
        return runs_of(self.one)[0]


@pytest.mark.wants("torch.utils._python_dispatch", "OpOverload._schema")
@pytest.mark.parametrize("every", [1, 3])
def test_a_nan_that_a_loss_scaler_keeps_from_the_weights_is_no_divergence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], every: int
) -> None:
    one = Watcher(tmp_path / "runs.db", Script(None), every_optimizer=True, options=Options(every=every))
    made = Scaled()
    for step in range(40):
        made.step(broken=step in (0, 5, 6, 30))
    one.close("finished", "")
    (found,) = one.runs
    tell(one.runs, one.library, written=True)
    run = found.run
    assert run is not None and len(run.history) == (40 if every == 1 else 15)
    losses, skipped = (run.history.column(name).tolist() for name in ("loss", "skipped"))
    assert list(map(math.isnan, losses)) == skipped and sum(skipped) == 4
    assert run.status == "finished" and run.first_nonfinite_step is None and run.provenance is None
    assert not [rule for rule in run.findings if rule.startswith("nonfinite")]
    texts = [event.text for event in run.events if event.kind == "nan_batch"]
    assert [losses[step] != losses[step] for step in skipped_before(run)] == [True] * 3 == [True] * len(texts)
    assert texts[0].startswith(
        "a batch was skipped by the loss scaler: loss NaN; no update was made; born in what the "
    )
    assert texts[1].startswith(
        "a batch was skipped by the loss scaler: loss NaN, 2 steps; no update was made; born in "
    )
    assert "  skipped    4 batches; before step" in in_words(run)
    told = capsys.readouterr().err
    assert told.count("born in  ") == told.count("the training goes on") == 1
    assert "4 batches not finite, skipped by the loss scaler without an update" in told


def test_what_a_loss_scaler_skips_is_no_overflow_of_fp16(watch: Watch) -> None:
    made = Scaled(watch)
    for step in range(30):
        with torch.autocast("cpu", dtype=torch.float16):
            made.step(broken=step < 2)
    run = made.run()
    assert run.history.settings[0][1].dtype == "fp16" and not run.findings


@pytest.mark.wants("torch.utils._python_dispatch", "OpOverload._schema")
def test_a_nan_that_reaches_the_weights_right_after_has_its_own_birth(
    watch: Watch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Scaled(watch)
    for broken in (False, True):
        made.step(broken=broken)
    made.plain_step()
    run = made.run()
    assert run.status == "nonfinite" and run.first_nonfinite_step == 2 and skipped_before(run) == [1]
    assert run.findings["nonfinite_loss"].first_step == 2
    assert run.provenance is not None and (run.provenance.step, run.provenance.phase) == (2, "loss")
    said = capsys.readouterr().err
    assert (said.count("born in  "), said.count("seen in  ")) == (2, 0)


@pytest.mark.wants("torch.utils._python_dispatch", "OpOverload._schema")
@pytest.mark.parametrize("earlier", [False, True])
def test_a_loss_that_stays_nan_has_diverged_at_the_first_one(
    watch: Watch, capsys: pytest.CaptureFixture[str], earlier: bool
) -> None:
    made = Scaled(watch)
    for broken in (earlier, False, *[True] * 25):
        made.step(broken=broken)
    assert made.one is not None
    (found,) = made.one.watched_runs
    assert found.has_diverged  # before the end, too
    run = made.run()
    assert run.status == "nonfinite" and run.first_nonfinite_step == 2 and len(run.history) == 27
    assert run.provenance is not None and run.provenance.step == 2
    assert capsys.readouterr().err.count("born in  ") == 1 + earlier


@pytest.mark.wants("torch.utils._python_dispatch", "OpOverload._schema")
@pytest.mark.parametrize("steps", [1, 4])
def test_a_last_step_that_a_loss_scaler_skips_is_the_end_of_a_run_that_diverged(watch: Watch, steps: int) -> None:
    made = Scaled(watch)
    for step in range(steps):
        made.step(broken=step == steps - 1)
    run = made.run()
    assert run.status == "nonfinite" and run.first_nonfinite_step == steps - 1
    assert run.provenance is not None and run.provenance.step == steps - 1


def test_weights_of_nan_are_not_kept_sound_by_a_loss_scaler(watch: Watch) -> None:
    made = Scaled(watch)
    made.step(broken=False)
    with torch.no_grad():
        made.model[0].weight[0, 0] = math.nan  # type: ignore[index]
    made.step(broken=False)
    made.step(broken=False)
    assert made.run().first_nonfinite_step == 1


@pytest.mark.wants("torch.utils._python_dispatch", "OpOverload._schema")
def test_a_running_mean_that_a_skipped_batch_has_spoiled_is_named(watch: Watch) -> None:
    made = Scaled(watch, nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)))
    for broken in (False, True, False):
        made.step(broken=broken)
    run = made.run()
    assert run.first_nonfinite_step is None
    (text,) = [event.text for event in run.events if event.kind == "nan_batch"]
    assert "no update was made; its buffer 1.running_mean holds NaN; born in" in text


def test_after_eight_births_of_skipped_batches_that_of_a_gradient_is_found_still(watch: Watch) -> None:
    made = Scaled(watch)
    for step in range(20):
        made.step(broken=step % 2 == 0)
    made.optimizer.zero_grad()
    made.model(torch.randn(4, 6)).mul(0).sqrt().sum().backward()  # the derivative of a root at 0
    made.optimizer.step()
    run = made.run()
    assert run.first_nonfinite_step == 20 and run.provenance is not None and "Sqrt" in run.provenance.operation
    texts = [event.text for event in run.events if event.kind == "nan_batch"]
    assert ["it is not searched for any more" in text for text in texts] == [False] * 8 + [True] * 2


def test_a_batch_that_a_loss_scaler_would_skip_ends_a_script_that_asked_for_it(watch: Watch) -> None:
    made = Scaled(watch, on_nonfinite="raise")
    made.step(broken=False)
    with pytest.raises(FloatingPointError, match="step 1 is not finite"):
        made.step(broken=True)
    assert made.run().first_nonfinite_step == 1


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
    one.close()
    (run,) = runs_of(one)
    assert skipped_before(run) == [0] and run.first_nonfinite_step == 1
    assert run.provenance is not None and run.provenance.operation == "LogBackward0"
