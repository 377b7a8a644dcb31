"""The figures of a run, as JSON and as an exit code."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from gradstudio.commands import exit_codes
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import LAYER_METRICS
from gradstudio.core.presets import Preset
from gradstudio.core.row import Layer, Row
from gradstudio.session.files.summary import summarize, to_json
from gradstudio.session.record.ranked_findings import ranked_findings
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_figures import figures
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.running.worker import Worker

KEYS = [
    "run", "outcome", "steps", "first_nonfinite_step", "initial_loss", "final_loss", "best_loss", "accuracy",
    "peak_grad_norm",
    "clipped_share", "skipped_steps", "final_scale", "seconds", "findings", "provenance", "comparisons", "tests", "parent",
    "parent_step",
]  # fmt: skip


def run_of(
    *losses: float, norms: tuple[float, ...] = (), coefs: tuple[float, ...] = (), skipped: tuple[bool, ...] = ()
) -> Run:
    experiment = Experiment().with_value("run.stop_on_nonfinite", False)
    run = Run(Preset(id="made", title="Made", experiment=experiment), experiment)
    RunWriter(run).begin((Layer("weight", "weight", 4),), {"device": "cpu"})
    for step, loss in enumerate(losses):
        norm = norms[step] if norms else 1.0
        coef = coefs[step] if coefs else 1.0
        skip = skipped[step] if skipped else False
        layers = np.ones((len(LAYER_METRICS), 1))
        RunWriter(run).record(
            Row(
                step,
                loss,
                norm,
                norm * coef,
                coef,
                0.1,
                8.0,
                skip,
                int(not math.isfinite(norm)),
                1e-3,
                1.0,
                0.5,
                0.25,
                layers,
            )
        )
    return run


def trained(*assignments: str) -> Run:
    small = ["model.depth=1", "model.width=8", "problem.batch_size=8", "run.steps=6", "run.device=cpu"]
    experiment = Experiment().with_texts([*small, *assignments])
    run = Run(Preset(id="small", title="Small", experiment=experiment), experiment)
    Worker(run).run()
    return run


def test_the_object_has_the_keys_that_are_promised_in_their_order() -> None:
    found = summarize(run := trained())
    assert list(found) == KEYS
    accuracy, alike = (run.history.value(name, 0) for name in ("test_accuracy", "head_cosine"))
    assert found["tests"] == [{"step": 0, "accuracy": accuracy, "head_cosine": alike}] and 0 < alike < 1


def test_a_nan_never_hides_and_the_extremes_are_of_finite_values() -> None:
    run = run_of(
        3.0,
        1.0,
        math.inf,
        math.nan,
        norms=(1.0, 50.0, math.inf, math.nan),
        coefs=(1.0, 0.5, 0.5, 1.0),
        skipped=(False, True, False, False),
    )
    RunWriter(run).end("nonfinite", "", None)
    found = summarize(run)
    assert (found["initial_loss"], found["final_loss"], found["best_loss"]) == (3.0, "nan", 1.0)
    assert (found["peak_grad_norm"], found["clipped_share"], found["skipped_steps"], found["final_scale"]) == (
        50.0,
        0.5,
        1,
        8.0,
    )
    assert (found["accuracy"], found["provenance"], found["first_nonfinite_step"], found["seconds"]) == (
        None,
        None,
        2,
        1.0,
    )


def test_json_is_strict_with_every_kind_of_value() -> None:
    text = to_json({"a": math.nan, "b": [math.inf, -math.inf, -0.0, 1e300, 5e-324], "c": None, "d": (True, 1)})
    assert json.loads(text, parse_constant=pytest.fail) == {
        "a": "nan",
        "b": ["inf", "-inf", -0.0, 1e300, 5e-324],
        "c": None,
        "d": [True, 1],
    }


def test_a_run_without_a_step_has_no_figures_and_does_not_fail() -> None:
    run = run_of()
    RunWriter(run).end("stopped", "", None)
    found = figures(run)
    assert (
        found.steps,
        found.final_loss,
        found.best_loss,
        found.peak_grad_norm,
        found.clipped_share,
        found.final_scale,
    ) == (
        0,
        None,
        None,
        None,
        None,
        None,
    )


def test_findings_stand_most_severe_first_and_then_the_earliest() -> None:
    run = run_of(1.0)
    for rule, severity, step in (("a", "info", 0), ("b", "critical", 9), ("c", "warning", 1), ("d", "critical", 2)):
        RunWriter(run).find(Finding(rule, severity, rule, step, step, (), "", "", ()))
    assert [finding.rule for finding in ranked_findings(run)] == ["d", "b", "c", "a"]


def test_exit_codes() -> None:
    assert exit_codes.of_run(trained()) == 0
    assert exit_codes.of_run(trained("optimizer.lr=1e6", "optimizer.momentum=0.9", "problem.input_scale=1e30")) == 3
    assert exit_codes.of_run(trained("run.device=cuda:99")) == 2
    run = run_of(1.0)
    RunWriter(run).end("failed", "out of memory", None)
    assert exit_codes.of_run(run) == 1
    RunWriter(run).end("stopped", "", None)
    assert exit_codes.of_run(run) == 130
    RunWriter(run).end("finished", "", 0.9)
    RunWriter(run).find(Finding("b", "warning", "b", 0, 0, (), "", "", ()))
    assert exit_codes.of_run(run) == 0
    RunWriter(run).find(Finding("a", "critical", "a", 0, 0, (), "", "", ()))
    assert exit_codes.of_run(run) == 4


def test_a_device_that_is_not_there_is_refused_and_named() -> None:
    run = trained("run.device=cuda:99")
    assert run.refused
    assert "run.device = cuda:99" in run.message
