"""State, hints and lessons: what is said of a run follows from its rows."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gradstudio.core.adjusted_knobs import with_adjustments
from gradstudio.core.diagnosis.finding import Finding, Severity
from gradstudio.core.experiment import KNOBS, Experiment
from gradstudio.core.history import LAYER_METRICS
from gradstudio.core.knobs import Knob
from gradstudio.core.loop_calls import Loop, in_words
from gradstudio.core.presets import LessonStep, Preset
from gradstudio.core.row import Layer, Row
from gradstudio.core.task_measures import measure
from gradstudio.core.unknown import UNKNOWN
from gradstudio.session.library.store import Library
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.record.run import Run, recent_mean
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.record.watched_script import WatchedScript
from gradstudio.session.running import slow_step
from gradstudio.session.words import run_texts
from gradstudio.session.words.knob_hints import (
    Hint,
    advised_max_norm,
    applies_to,
    clipping_in_question,
    hint,
    share_clipped,
    share_over,
)
from gradstudio.session.words.lesson_check_marks import is_done
from gradstudio.session.words.run_state import describe, outcome
from gradstudio.session.words.story import headline, tell, tone

PLAIN = Experiment()
LAYERS = (Layer("hidden.0.weight", "weight", 4), Layer("head.weight", "weight", 4))


def row(step: int, loss: float = 1.0, **values: float) -> Row:
    given = dict(
        grad_norm=1.0, clipped_norm=1.0, clip_coef=1.0, lr=0.1, scale=1.0, skipped=False, nonfinite=0,
        update_ratio=1e-3,
        weight_norm=1.0, accuracy=0.5, step_seconds=0.01, layers=np.ones((len(LAYER_METRICS), len(LAYERS))),
    )  # fmt: skip
    return Row(step=step, loss=loss, **(given | values))


def run_of(losses: list[float], **values: float) -> Run:
    run = Run(Preset(id="p", title="P", experiment=Experiment()), Experiment())
    RunWriter(run).begin(LAYERS, {"device": "cpu"})
    RunWriter(run).set_status("running")
    for step, loss in enumerate(losses):
        RunWriter(run).record(row(step, loss, **values))
    return run


def test_a_falling_a_rising_and_a_resting_loss() -> None:
    falling = [2.0 - 0.01 * step for step in range(100)]
    assert describe(run_of(falling)).headline == "Training: the loss falls"
    assert describe(run_of(falling[::-1])).headline == "Training: the loss rises"
    assert describe(run_of([1.0] * 100)).headline == "Training: the loss is on a plateau"


@pytest.mark.parametrize(("usual", "told"), [(0.01, "No step for 12 s"), (2.0, "Training: the loss is on a plateau")])
def test_a_step_that_takes_far_longer_than_those_before_it_is_told(
    monkeypatch: pytest.MonkeyPatch, usual: float, told: str
) -> None:
    run = run_of([1.0] * 100, step_seconds=usual)
    RunWriter(run).step_begins(100)
    assert run.step_now is not None
    began = run.step_now[1]
    monkeypatch.setattr(slow_step.time, "monotonic", lambda: began + 12.1)
    assert describe(run).headline == told
    RunWriter(run).set_status("paused")
    assert describe(run).headline == "Paused after 100 steps"


def test_a_script_that_another_program_trains_has_made_no_step_since_its_latest_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched, clock = WatchedScript("train.py", (), "", 1, ()), [1000.0]
    shown, later = (replace(run_of([1.0] * count), watched=watched) for count in (40, 60))
    monkeypatch.setattr(slow_step.time, "monotonic", lambda: clock[0])
    for read, seconds, told in (
        (shown, 7.0, "No step for 7 s"),
        (later, 0.0, "Training"),
        (later, 8.0, "No step for 8 s"),
    ):
        RunWriter(shown).catch_up(read)
        clock[0] += seconds
        assert describe(shown).headline.startswith(told)
    assert describe(shown).text.startswith("The script has made no step after the 60 rows that are there; the longest")


def test_a_nan_is_said_with_its_step() -> None:
    state = describe(run_of([2.0, 1.5, math.nan, math.nan]))
    assert (state.tone, state.headline) == ("bad", "Diverged: the loss is NaN at step 2")
    assert "from 2 to 1.5 at step 1" in state.text


@pytest.mark.parametrize(
    ("norms", "told"),
    [
        ([0.7, 0.6, 1.1, 0.8, 0.9], "In the 5 steps before it diverged the gradient norm was between 0.6 and 1.1."),
        ([0.7, 0.5, 40.0, 6e9, 2e9], "In the 4 steps before it diverged the gradient norm went from 0.5 to 6e9."),
        ([900.0, 0.7, 0.5], "In the 3 steps before it diverged the gradient norm was between 0.5 and 900."),
        ([0.7], "In the 1 step before it diverged the gradient norm was 0.7."),
    ],
)
def test_a_gradient_norm_is_said_to_have_grown_only_where_it_has(norms: list[float], told: str) -> None:
    run = run_of([])
    for step, norm in enumerate(norms):
        RunWriter(run).record(row(step, 2.0, grad_norm=norm))
    RunWriter(run).record(row(len(norms), math.nan))
    assert describe(run).text.endswith(told)


def test_an_infinite_loss_is_called_so() -> None:
    assert describe(run_of([2.0, math.inf])).headline == "Diverged: the loss is Inf at step 1"


@pytest.mark.parametrize("loss", [1.9, UNKNOWN])
def test_a_gradient_that_broke_first(loss: float) -> None:
    run = run_of([2.0])
    RunWriter(run).record(row(1, loss, grad_norm=math.nan, nonfinite=3))
    assert describe(run).headline == "Diverged: NaN or Inf in a gradient at step 1"


def test_weights_that_broke_alone() -> None:
    run = run_of([2.0, 1.9])
    RunWriter(run).diverge_in_weights()
    assert describe(run).headline == "Diverged: NaN or Inf in the weights at step 1"


def test_a_skipped_overflow_is_no_divergence() -> None:
    run = run_of([2.0, 1.9])
    RunWriter(run).record(row(2, 1.8, grad_norm=math.inf, nonfinite=3, skipped=True, scale=65536.0))
    assert run.first_nonfinite_step is None
    assert describe(run).tone == "good" and "skipped 1 update" in describe(run).text
    assert run.events[-1].kind == "step_skipped"


def test_failed_finished_stopped_paused() -> None:
    run = run_of([2.0] * 30)
    RunWriter(run).set_status("paused")
    assert describe(run).headline == "Paused after 30 steps"
    RunWriter(run).end("finished", "", 0.875)
    assert describe(run).headline == "Finished: test accuracy 87.5\u00a0%"
    RunWriter(run).set_status("stopped")
    assert describe(run).headline == "Stopped after 30 steps"
    RunWriter(run).end("failed", "Out of memory.", None)
    assert describe(run).text == "Out of memory. The 30 measured steps are kept."


def test_hints_follow_the_rows() -> None:
    run = run_of([1.0] * 10, grad_norm=3.0)
    clipped = Experiment().with_values({"clipping.kind": "norm", "clipping.max_norm": 2.0})
    assert hint("clipping.max_norm", clipped, run).text == "would clip 100 % of the last 10 steps"
    assert (
        hint("clipping.max_norm", clipped.with_value("clipping.max_norm", 4.0), run).text
        == "would clip 0 % of the last 10 steps"
    )
    assert hint("accumulation.steps", clipped.with_value("accumulation.steps", 4), run) == Hint(
        "effective batch 32 × 4 = 128"
    )
    assert hint("optimizer.lr", clipped, run) == Hint()
    spiky = run_of([])
    for step, norm in enumerate([*(1.0 + 0.001 * step for step in range(95)), 50.0, 60.0, 70.0, 80.0, math.nan]):
        RunWriter(spiky).record(row(step, 1.0, grad_norm=norm))
    assert advised_max_norm(spiky) == 1.1 and share_clipped, (
        share_over(spiky, 1.1) == 0.05 and advised_max_norm(run) is None
    )
    assert (
        hint("clipping.max_norm", clipped.with_value("clipping.max_norm", 1.2), spiky).text
        == "would clip 5 % of the last 100 steps"
    )
    assert hint("clipping.max_norm", clipped.with_value("clipping.max_norm", 0.1), spiky).text.endswith(
        "; 1.1 would clip 5 %"
    )
    assert hint("clipping.max_norm", clipped, run_of([1.0])).text == "would clip 0 % of the last 1 step"


@pytest.mark.parametrize(
    ("texts", "device", "warns"),
    [
        (["precision.dtype=fp16", "model.kind=cnn"], "", True),
        (["precision.dtype=fp16", "model.kind=cnn"], "cuda:0", False),
        (["precision.dtype=fp16", "model.kind=cnn", "run.device=cpu"], "cuda:0", True),
        (["precision.dtype=fp16", "model.kind=cnn", "run.device=cuda:0"], "", False),
        (["precision.dtype=bf16", "model.kind=cnn"], "", False),
        (["precision.dtype=fp16"], "", False),
    ],
)
def test_a_format_that_is_far_slower_on_a_cpu_is_told(texts: list[str], device: str, warns: bool) -> None:
    run = run_of([1.0])
    run.environment.update({"device": device} if device else {})
    assert ("20 to 350 times" in hint("precision.dtype", Experiment().with_texts(texts), run).text) is warns


def test_the_hint_of_a_limit_counts_as_the_foot_of_the_window_does() -> None:
    run = run_of([1.0] * 6, grad_norm=3.0)
    for knob, value in (("clipping.max_norm", 2.0), ("clipping.kind", "norm")):
        RunWriter(run).change(knob, value)
    for step in range(6, 10):
        RunWriter(run).record(row(step, 1.0, grad_norm=3.0, clip_coef=2 / 3, clipped_norm=2.0))
    assert share_clipped(run) == 0.4
    assert hint("clipping.max_norm", run.in_force, run).text == (
        "clipped 40 % of the last 10 steps; 2 in all of them would clip 100 %"
    )


def test_clipping_is_in_question_once_a_finding_offers_it() -> None:
    assert not clipping_in_question(run_of([1.0] * 60, grad_norm=1.0))
    run = run_of([1.0] * 60, grad_norm=1.0)
    for step in range(60, 64):
        RunWriter(run).record(row(step, 1.0, grad_norm=10.0 ** (step - 58)))
    assert clipping_in_question(run)


@pytest.mark.parametrize(
    ("dtype", "difference", "says", "grave"),
    [
        ("fp32", 3.1e-8, "step 1: equal to the large batch within 3.1e-8 of its norm", False),
        ("fp32", 3.0, "step 1: differs from the large batch by 300 %", True),
        ("fp32", 9.99, "step 1: differs from the large batch by 999 %", True),
        ("fp32", 16_700.0, "step 1: differs from the large batch by 1.7e4 times its norm", True),
        ("fp32", math.inf, "step 1: differs from the large batch by Inf", True),
        ("fp32", 0.01, "step 1: differs from the large batch by 1 %", True),
        ("bf16", 0.01, "step 1: equal to the large batch within 0.01 of its norm", False),
        ("fp32", math.nan, "step 1: differs from the large batch NaN", True),
    ],
)
def test_a_comparison_is_told_under_the_knob(dtype: str, difference: float, says: str, grave: bool) -> None:
    run = run_of([1.0])
    RunWriter(run).change("precision.dtype", dtype)
    RunWriter(run).record(replace(row(1), joined_difference=difference))
    found = hint("accumulation.steps", PLAIN, run)
    assert found.text.splitlines()[1] == says and found.grave == grave
    assert run.events[-1].kind == "compared" and run.compared[0][0] == 1


def test_a_comparison_beside_batch_norm_says_why_it_differs() -> None:
    run = Run(Preset(id="p", title="P", experiment=PLAIN), PLAIN.with_value("model.norm", "batch"))
    RunWriter(run).begin(LAYERS, {})
    RunWriter(run).record(replace(row(0), joined_difference=0.3))
    assert hint("accumulation.steps", PLAIN, run).text.endswith(
        "by 30 %, as batch norm sees each micro-batch by itself"
    )


def test_a_mistake_is_explained_while_it_is_switched_on() -> None:
    name = "mistakes.clip_after_step"
    run = run_of([1.0])
    assert hint(name, PLAIN, run) == Hint()
    assert hint(name, PLAIN.with_value(name, True), run).text == "changes nothing without clipping"
    assert hint(name, PLAIN.with_values({name: True, "clipping.kind": "norm"}), run) == Hint()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("model.residual", "applies to kind mlp, rnn, cnn, gan, policy"),
        ("model.activation", "applies to every model.kind but lstm and gru"),
        (
            "model.norm_position",
            "applies to kind mlp, rnn, cnn, gan, policy with any norm; or to kind transformer",
        ),
        ("precision.growth_factor", "applies to fp16 with scaling dynamic"),
        ("clipping.max_norm", "applies to kind norm, per_tensor, per_module, per_network, adagc, per_example"),
        ("loss.eps", "applies to every loss.kind but auto"),
    ],
)
def test_where_a_knob_applies_is_short(name: str, says: str) -> None:
    assert applies_to(KNOBS[name]) == says


@pytest.mark.parametrize("knob", [knob for knob in KNOBS.values() if knob.when], ids=lambda knob: knob.name)
def test_where_any_knob_applies_fits_on_two_lines(knob: Knob) -> None:
    assert len(applies_to(knob)) < 100


@pytest.mark.parametrize("task", KNOBS["problem.task"].choices)
@pytest.mark.parametrize("model", KNOBS["model.kind"].choices)
def test_every_network_and_task_is_called_by_its_name(task: str, model: str) -> None:
    knobs = with_adjustments(with_adjustments(PLAIN, "problem.task", task), "model.kind", model)
    run = Run(Preset(id="p", title="P", experiment=knobs), knobs)
    plan = describe(run).text
    assert plan[0].isupper() and "{" not in plan and " will learn " in plan and " None" not in plan
    assert measure(knobs).headline.count("{}") == 1


def test_accuracy_is_called_what_it_is() -> None:
    for task, said in (
        ("pole", "pole up 87 % of the time"),
        ("ring", "87 % of the clusters hit"),
        ("digits", "test accuracy 87 %"),
    ):
        run = replace(run_of([2.0] * 60), experiment=with_adjustments(PLAIN, "problem.task", task))
        RunWriter(run).end("finished", "", 0.87)
        assert describe(run).headline == f"Finished: {said}".replace(" %", "\u00a0%")
    pole = replace(run_of([2.0] * 60), experiment=with_adjustments(PLAIN, "problem.task", "pole"))
    assert describe(pole).headline == "Training: pole up 50 % of the time"


def test_a_negative_loss_that_falls_is_said_to_fall() -> None:
    assert describe(run_of([-1.0 - 0.01 * step for step in range(100)])).headline == "Training: the loss falls"


def test_paused_before_the_first_step() -> None:
    run = run_of([])
    RunWriter(run).set_status("paused")
    assert describe(run).headline == "Paused before the first step"


def test_a_loop_is_told_once_whatever_the_scaler_skips() -> None:
    run = run_of([])
    going = Loop(
        ("zero_grad", "forward", "backward", "unscale", "step", "update", "schedule"), 1, False, "dynamic", False
    )
    for step in range(40):
        skipped = step % 2 == 0
        RunWriter(run).record(
            replace(
                row(step, skipped=skipped),
                loop=going._replace(calls=going.calls[: -1 if skipped else None], skipped=skipped),
            )
        )
    RunWriter(run).record(replace(row(40), loop=going._replace(calls=going.calls[1:])))
    told = [(event.step, event.text) for event in run.events if event.kind == "loop"]
    assert told == [(0, in_words(going.calls)), (40, in_words(going.calls[1:]))]


def test_a_comparison_that_could_be_made_takes_the_place_of_one_that_could_not() -> None:
    run = run_of([1.0])
    RunWriter(run).record(replace(row(1), joined_problem="not compared: it does not fit"))
    assert hint("accumulation.steps", PLAIN, run) == Hint(
        "effective batch 32 × 1 = 32\nnot compared: it does not fit", grave=True
    )
    RunWriter(run).record(replace(row(2), joined_difference=2e-8))
    assert hint("accumulation.steps", PLAIN, run) == Hint(
        "effective batch 32 × 1 = 32\nstep 2: equal to the large batch within 2e-8 of its norm"
    )


def test_a_lesson_step_is_done_when_all_that_it_names_holds() -> None:
    step = LessonStep(text="x", outcome="nonfinite", knobs=["clipping.kind=none"])
    assert not is_done(step, run_of([1.0]), PLAIN)
    assert is_done(step, run_of([1.0, math.nan]), PLAIN)
    assert not is_done(LessonStep(text="x", knobs=["clipping.kind=norm"]), run_of([1.0]), PLAIN)
    assert is_done(LessonStep(text="x", rule="nonfinite_loss"), run_of([1.0, math.nan]), PLAIN)
    assert not is_done(LessonStep(text="x"), run_of([]), PLAIN)


def test_accuracy_counts_over_fifty_rows_and_a_nan_is_none() -> None:
    step = LessonStep(text="x", accuracy=0.5)
    assert not is_done(step, run_of([1.0] * 49), PLAIN)
    assert is_done(step, run_of([1.0] * 50), PLAIN)
    run = run_of([1.0] * 60)
    RunWriter(run).record(row(60, accuracy=math.nan))
    assert not is_done(step, run, PLAIN) and math.isnan(recent_mean(run.history, "accuracy"))


def test_a_step_that_asks_for_knobs_is_done_when_they_are_asked_for() -> None:
    step = LessonStep(text="x", knobs=["clipping.kind=norm"])
    broken = run_of([1.0, math.nan])
    assert not is_done(step, broken, PLAIN)
    assert is_done(step, broken, PLAIN.with_value("clipping.kind", "norm"))
    learned = LessonStep(text="x", knobs=["clipping.kind=norm"], outcome="finished")
    RunWriter(broken).end("finished", "", 0.5)
    assert not is_done(learned, broken, PLAIN.with_value("clipping.kind", "norm"))  # the run itself was without


def test_norms_that_were_never_finite_hide_no_finite_loss() -> None:
    run = run_of([2.0, 1.0], grad_norm=math.inf, nonfinite=3, skipped=True)
    RunWriter(run).record(row(2, math.nan))
    assert "from 2 to 1 at step 1" in describe(run).text and "No gradient norm" in describe(run).text


def test_an_interrupted_run_says_that_its_program_ended() -> None:
    run = run_of([2.0 - 0.01 * step for step in range(100)])
    RunWriter(run).set_status("interrupted")
    state = describe(run)
    assert state.headline == "Interrupted at step 100"
    assert state.text.startswith("The program ended while it trained. Over the last 100 steps the loss went from")
    assert headline(run) == "interrupted after 100 of 1,000 steps: the program ended while it trained"
    assert "ended" in tell(run)


@pytest.mark.parametrize(
    ("status", "told"),
    [("interrupted", "Interrupted before the first step"), ("stopped", "Stopped before the first step")],
)
def test_a_run_that_is_over_before_its_first_step_does_not_start(status: str, told: str) -> None:
    run = run_of([])
    RunWriter(run).set_status(status)
    assert describe(run).headline == told


def test_an_interrupted_run_that_had_diverged_says_so_first() -> None:
    run = run_of([2.0, math.nan])
    RunWriter(run).set_status("interrupted")
    assert describe(run).headline == "Diverged: the loss is NaN at step 1"


@pytest.mark.parametrize(
    ("status", "rule", "severity", "told"),
    [
        ("finished", "clipping_always", "warning", ("finished", "good")),
        ("finished", "vanishing_gradient", "critical", ("unhealthy", "bad")),
        ("finished", "nothing_learned", "warning", ("learns nothing", "warning")),
        ("finished", "nothing_learned", "info", ("finished", "good")),
        ("nonfinite", "nothing_learned", "warning", ("diverged", "bad")),
    ],
)
def test_an_outcome_has_one_word_and_one_colour(
    tmp_path: Path, status: str, rule: str, severity: Severity, told: tuple[str, str]
) -> None:
    run = run_of([1.0] * 49 + [math.nan if status == "nonfinite" else 1.0])
    run.findings[rule] = Finding(rule, severity, "A finding", 3, 49, (), "Seen.", "It means something.", ())
    RunWriter(run).set_status(status)  # type: ignore[arg-type]
    assert outcome(run) == told and describe(run).tone == told[1] == tone(run)
    writer = LibraryWriter(tmp_path / "runs.sqlite3")
    writer.follow(run)
    assert writer.close(30)
    library = Library(tmp_path / "runs.sqlite3")
    [entry] = library.entries()
    library.close()
    assert run_texts.outcome(entry) == told
