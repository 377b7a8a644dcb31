"""Each mistake does what the bug does in a loop written by hand."""

from __future__ import annotations

from itertools import islice

import pytest
import torch
from torch import nn

from gradstudio.core.experiment import KNOBS, Experiment
from gradstudio.engine.step.schedules import factor

MISTAKES = [name.partition(".")[2] for name in KNOBS if name.startswith("mistakes.")]
ENDING = ("unscale_twice", "never_update_scaler")  # torch refuses what comes next
STEPS, MICRO, CLIP, LR = 8, 4, 0.2, 0.5
KNOBS_HERE = [
    f"accumulation.steps={MICRO}",
    "clipping.kind=norm",
    f"clipping.max_norm={CLIP}",
    f"optimizer.lr={LR}",
    "run.seed=1",
]
FP16 = ["precision.dtype=fp16", "precision.init_scale=4096"]
RISING = ["schedule.warmup_steps=40"]
WEIGHTED = ["problem.imbalance=9", "loss.class_weights=balanced"]


def by_hand(trainer, wrong, precise):
    """The weights after a plain loop over the same batches with this bug in it."""
    model, task = trainer.model, trainer.task
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda taken: factor(trainer.experiment.schedule, taken))
    scaler = torch.amp.GradScaler("cpu", init_scale=4096, enabled=precise)
    clip = lambda: nn.utils.clip_grad_norm_(model.parameters(), CLIP)  # noqa: E731
    counts = torch.bincount(task.training.targets)
    weights = (
        len(task.training.targets) / (10 * counts) if trainer.experiment.loss.class_weights == "balanced" else None
    )
    for _ in range(STEPS):
        if wrong != "never_zero_grad":
            optimizer.zero_grad()
        if wrong == "clip_before_backward":
            clip()
        for index, (images, labels) in enumerate(task.next_batches(model, MICRO)):
            if wrong == "drop_last_micro_batches" and index >= MICRO // 2:
                break
            if wrong == "zero_grad_each_micro_batch":
                optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16, enabled=precise):
                logits = model(images)
            loss = nn.functional.cross_entropy(logits.float(), labels, weights)
            undivided = wrong in ("unscaled_accumulation", "divide_each_micro_batch")
            scaler.scale(loss if undivided else loss / MICRO).backward()
            if wrong == "divide_each_micro_batch":
                for parameter in model.parameters():
                    parameter.grad.div_(MICRO)
            if wrong == "clip_each_micro_batch":
                clip()
            if wrong == "scheduler_each_micro_batch" and index < MICRO - 1:
                scheduler.step()
        if wrong == "clip_before_unscale":
            clip()
        scaler.unscale_(optimizer)
        if wrong not in ("clip_before_backward", "clip_before_unscale", "clip_after_step", "clip_each_micro_batch"):
            clip()
        optimizer.step() if wrong == "step_without_scaler" else scaler.step(optimizer)
        if wrong == "clip_after_step":
            clip()
        scaler.update()
        scheduler.step()
    return list(model.parameters())


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize("precise", [False, True], ids=["fp32", "fp16"])
@pytest.mark.parametrize("mistake", ["", *[name for name in MISTAKES if name not in ENDING]])
def test_repeats_the_buggy_loop(build, mistake, precise):
    knobs = [*KNOBS_HERE, *RISING, *(FP16 if precise else []), *([f"mistakes.{mistake}=true"] if mistake else [])]
    knobs += WEIGHTED if mistake == "normalize_each_micro_batch" else []
    trainer = build(*knobs)
    list(islice(trainer.steps(), STEPS))
    for one, other in zip(trainer.flat.parameters, by_hand(build(*knobs), mistake, precise), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_without_what_it_spoils_a_mistake_does_nothing(build, mistake):
    if mistake == "never_zero_grad":
        pytest.skip("there is always a gradient to clear")
    clip = (
        []
        if mistake in ("clip_after_step", "clip_before_backward")
        else ["clipping.kind=norm", "clipping.max_norm=0.2"]
    )
    right, wrong = build(*clip), build(*clip, f"mistakes.{mistake}=true")
    for one, other in islice(zip(right.steps(), wrong.steps(), strict=False), 5):
        assert (one.loss, one.grad_norm, one.clipped_norm, one.clip_coef) == (
            other.loss,
            other.grad_norm,
            other.clipped_norm,
            other.clip_coef,
        )


@pytest.mark.parametrize("mistake", [name for name in MISTAKES if name not in (*ENDING, "step_without_scaler")])
def test_every_mistake_changes_the_run(build, mistake):
    knobs = [*KNOBS_HERE, *FP16, *RISING]
    if mistake == "unscaled_accumulation":  # clipping hides it
        knobs.append("clipping.max_norm=1000")
    if mistake == "normalize_each_micro_batch":
        knobs += WEIGHTED
    right, wrong = build(*knobs), build(*knobs, f"mistakes.{mistake}=true")
    list(islice(zip(right.steps(), wrong.steps(), strict=False), STEPS))
    if mistake == "never_zero_grad":  # what was unscaled before is 1/4096 of what comes: hardly anything
        assert not all(map(torch.equal, right.flat.parameters, wrong.flat.parameters))
    else:
        assert any(
            (one - other).norm() > 1e-3 * one.norm()
            for one, other in zip(right.flat.parameters, wrong.flat.parameters, strict=True)
        )


def test_unscale_twice_raises_torch_s_own_error(build):
    with pytest.raises(
        RuntimeError, match=r"unscale_\(\) has already been called on this optimizer since the last update\(\)"
    ):
        next(build(*FP16, "mistakes.unscale_twice=true").steps())


@pytest.mark.parametrize(("more", "says"), [
    ([], r"unscale_\(\) is being called after step\(\)"),
    (["accumulation.steps=3", "clipping.kind=norm"], r"unscale_\(\) is being called after step\(\)"),
    (["loss.weight=1e30"], r"unscale_\(\) is being called after step\(\)"),  # also where the step was skipped
    (["mistakes.step_without_scaler=true"], r"unscale_\(\) has already been called .* since the last update\(\)"),
])  # fmt: skip
def test_without_update_the_scaler_refuses_the_next_step(build, more, says):
    trainer = build(*FP16, "mistakes.never_update_scaler=true", *more)
    row = next(trainer.steps())
    assert "update" not in row.loop.calls and row.skipped == ("loss.weight=1e30" in more)
    with pytest.raises(RuntimeError, match=says):
        next(trainer.steps())


@pytest.mark.parametrize(("unscales", "says"), [
    (True, r"unscale_\(\) is being called after step\(\)"),
    (False, r"step\(\) has already been called since the last update\(\)"),
])  # fmt: skip
def test_which_call_torch_names_where_update_is_missing(unscales, says):
    """A loop that does not unscale has another message at the same step: the lesson says so."""
    model = nn.Linear(3, 2)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")

    def step():
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(1, 3)).sum()).backward()
        if unscales:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)

    step()
    with pytest.raises(RuntimeError, match=says):
        step()


def test_step_without_scaler_lets_an_overflow_through(train):
    row = train(1, *FP16, "loss.weight=1e30", "mistakes.step_without_scaler=true")[0]
    assert row.nonfinite > 0 and not row.skipped and row.went_nonfinite


def test_a_scale_of_0_ends_no_run_by_itself(train):
    rows = train(
        300,
        *FP16,
        "problem.input_scale=1e30",
        "problem.batch_size=2",
        "mistakes.clip_before_unscale=true",
        "clipping.kind=norm",
    )
    assert rows[-1].scale == 0 and all(row.skipped for row in rows)


def test_what_each_looks_like(train):
    """The figures that give a mistake away: the true norm stays what it is, the clipped norm tells."""
    right = train(1, *KNOBS_HERE, *FP16)[0]
    rows = {
        name: train(1, *KNOBS_HERE, *FP16, f"mistakes.{name}=true")[0] for name in MISTAKES if name != "unscale_twice"
    }
    for name in ("clip_after_step", "clip_before_unscale", "clip_each_micro_batch"):
        assert rows[name].grad_norm == pytest.approx(right.grad_norm, rel=1e-6), name
        assert rows[name].clipped_norm == pytest.approx(rows[name].grad_norm * rows[name].clip_coef, rel=1e-5), name
    assert rows["clip_after_step"].clipped_norm == right.grad_norm and rows["clip_after_step"].clip_coef == 1
    assert rows["clip_before_unscale"].clipped_norm == pytest.approx(CLIP / 4096, rel=1e-3)
    assert rows["unscaled_accumulation"].grad_norm == pytest.approx(MICRO * right.grad_norm, rel=1e-3)
    assert all(row.loss == right.loss for name, row in rows.items() if name != "drop_last_micro_batches")


def test_experiment_knows_every_mistake():
    assert set(type(Experiment().mistakes).model_fields) == set(MISTAKES) and len(MISTAKES) == 14
