"""What is measured beside the rows, of a whole run: when, kept where, cut where a run is cut, and in the library."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import COLUMNS, SAMPLE_EVERY
from gradstudio.core.presets import Preset
from gradstudio.core.row import Settings
from gradstudio.engine.gauges import kernels, plain_loops
from gradstudio.session.files.summary import summarize
from gradstudio.session.library.store import Library
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.record.run import Run
from gradstudio.session.running.worker import Worker

SMALL = [
    "model.depth=2",
    "model.width=8",
    "problem.batch_size=4",
    "accumulation.steps=2",
    "run.device=cpu",
    "run.steps=260",
]


def trained(*texts: str, changes: tuple[Change, ...] = ()) -> Run:
    experiment = Experiment().with_texts([*SMALL, *texts])
    run = Run(Preset(id="made", title="Made", experiment=experiment), experiment, changes)
    Worker(run).run()
    assert run.status == "finished", run.message
    return run


@pytest.fixture(scope="module")
def run() -> Run:
    changes = (
        Change(40, "clipping.kind", "norm"),
        Change(50, "accumulation.steps", 3),
        Change(60, "mistakes.unscaled_accumulation", True),
    )
    return trained(changes=changes)


def test_activations_are_sampled_now_and_then(run: Run) -> None:
    assert [sample.step for sample in run.history.activations] == list(range(0, 260, SAMPLE_EVERY))
    assert [layer.layer for layer in run.history.activations[0].layers] == ["hidden.0.weight", "hidden.1.weight"]


def test_the_test_set_is_measured_by_the_count_of_steps() -> None:
    from gradstudio.engine.trainer import Trainer

    large = ["problem.batch_size=128", "run.steps=70", "optimizer.lr=0.5"]
    changes = (Change(30, "accumulation.steps", 4),)  # 256 examples in a step, then 512: every 60 steps, then every 40
    run = trained(*large, changes=changes)
    steps, values = run.history.measurements("test_accuracy")
    assert steps.tolist() == [0, 40]
    trainer = Trainer(run.experiment)
    for step in range(41):
        if step == 30:
            trainer.change("accumulation.steps", 4)
        if step in (0, 40):
            assert trainer.evaluate() == values[steps.tolist().index(step)]
        trainer.advance()
    assert values[1] > values[0]


def test_what_accumulates_is_checked_once_and_after_each_change(run: Run) -> None:
    assert [each.step for each in run.history.accumulated] == [0, 50, 60]
    assert [each.difference > each.tolerance for each in run.history.accumulated] == [False, False, True]
    assert run.history.accumulated[-1].difference == pytest.approx(2, abs=1e-3)
    assert run.findings["accumulation_mismatch"].first_step == 60
    assert "3 times too long" in run.findings["accumulation_mismatch"].evidence


def test_an_overflow_does_not_count_as_a_check() -> None:
    run = trained("precision.dtype=fp16", "precision.init_scale=1e9", "run.steps=40")
    differences = [each.difference for each in run.history.accumulated]
    assert (
        len(differences) > 1
        and differences[-1] < 1e-2
        and not any(difference == difference and difference < 1e30 for difference in differences[:-1])
    )
    assert "accumulation_mismatch" not in run.findings


def test_settings_are_kept_from_the_step_on_that_they_hold_from(run: Run) -> None:
    unclipped = Settings("none", 0.0, "fp32", optimizer="sgd", weight_decay=0.0)
    assert run.history.settings == [(0, unclipped), (40, unclipped._replace(clipping="norm", limit=1.0))]


@pytest.mark.parametrize("step", [0, 1, 40, 41, 121, 260])
def test_a_history_that_is_cut_has_what_was_before(run: Run, step: int) -> None:
    grown = next((history for history in run.history.as_it_grew(step - 1, step)), None)
    for part in (run.history.until(step), grown):
        if part is not None:
            assert part.activations == [sample for sample in run.history.activations if sample.step < step]
            assert part.accumulated == [each for each in run.history.accumulated if each.step < step]
            assert part.settings == [stretch for stretch in run.history.settings if stretch[0] < step]


def test_all_of_it_comes_back_from_the_library(run: Run, tmp_path: Path) -> None:
    writing = LibraryWriter(tmp_path / "library.sqlite3")
    writing.follow(run)
    assert writing.close(), writing.problem
    found = Library(tmp_path / "library.sqlite3").load(run.id)
    for name in ("loops", "settings", "accumulated", "activations"):
        assert getattr(found.history, name) == getattr(run.history, name), name
    assert found.findings == run.findings and summarize(found)["findings"] == summarize(run)["findings"]


def test_a_run_is_diagnosed_the_same_however_often_its_rules_are_asked(run: Run) -> None:
    """The run asks most rules only where a look is due; here all are asked at every row."""
    from gradstudio.core.diagnosis.diagnosis import Diagnosis
    from gradstudio.core.rule_thresholds import all_rules

    diagnosis, found = Diagnosis(all_rules()), {}
    for history in run.history.as_it_grew(0, len(run.history)):
        asked = (rule.update(history, diagnosis.progress) for rule in diagnosis.rules)
        found |= {finding.rule: finding for finding in asked if finding}
    assert found == run.findings


def test_without_a_compiler_a_run_trains_alike_and_its_figures_are_the_same_to_rounding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = trained("run.steps=12")
    for loop in ("norms", "product", "norms_of_change", "inspect"):
        monkeypatch.setattr(getattr(kernels, loop), "_code", getattr(plain_loops, loop))
    after = trained("run.steps=12")
    for name in COLUMNS:
        if name != "step_seconds":
            one, other = (each.history.column(name) for each in (before, after))
            np.testing.assert_allclose(one, other, rtol=1e-12)
    assert before.history.column("loss").tolist() == after.history.column("loss").tolist()
    np.testing.assert_allclose(*(each.history.layer_metric("update_ratio") for each in (before, after)), rtol=1e-6)
