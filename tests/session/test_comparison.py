"""Runs held against each other: what differs, in which figures, and from which step on."""

from __future__ import annotations

import csv
import io
import json
import math
import struct
import subprocess
import sys

import numpy as np
import pytest
from waiting import PATIENCE

from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import BLOCK, LAYER_METRICS
from gradstudio.core.presets import Preset
from gradstudio.core.row import Layer, Row
from gradstudio.session.files.comparison import (
    LABELS,
    MOST,
    ComparisonError,
    as_json,
    compare,
    curves_csv,
    first_difference,
)
from gradstudio.session.files.summary import to_json
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_figures import Figures
from gradstudio.session.record.run_writer import RunWriter


def run_of(
    name: str,
    losses: list[float],
    knobs: dict | None = None,
    changes: dict | None = None,
    planned: tuple[Change, ...] = (),
    **environment,
) -> Run:
    """A run with these losses; `changes`: knob and value by step."""
    experiment = Experiment().with_values({"run.stop_on_nonfinite": False, **(knobs or {})})
    run = Run(Preset(id="made", title=name, experiment=experiment), experiment, planned, id=name)
    RunWriter(run).begin((Layer("weight", "weight", 4),), {"device": "cpu", **environment})
    for step, loss in enumerate(losses):
        if changes and step in changes:
            RunWriter(run).change(*changes[step])
        RunWriter(run).record(
            Row(step, loss, 1.0, 1.0, 1.0, 0.1, 1.0, False, 0, 1e-3, 1.0, 0.5, 0.25, np.ones((len(LAYER_METRICS), 1)))
        )
    RunWriter(run).end("finished", "", 0.5)
    return run


NEARLY = math.nextafter(1.0, 2.0)
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], (None, 3)),
        ([1.0, 2.0, 3.0], [1.0, 2.0], (None, 2)),
        ([1.0, 1.0], [1.0, NEARLY, 1.0], (1, 2)),
        ([0.0], [-0.0], (0, 1)),
        ([1.0, math.nan], [1.0, math.nan], (None, 2)),
        ([math.nan], [OTHER_NAN], (0, 1)),
        ([math.inf], [-math.inf], (0, 1)),
        ([], [1.0], (None, 0)),
    ],
)
def test_losses_are_compared_by_their_bits(
    first: list[float], second: list[float], found: tuple[int | None, int]
) -> None:
    assert first_difference(np.array(first), np.array(second)) == found


def test_each_run_is_held_against_the_first() -> None:
    found = compare(
        [run_of("a", [1.0, 2.0, 3.0]), run_of("b", [1.0, 2.5, 3.0]), run_of("c", [1.0, 2.0, math.nan, 4.0])]
    )
    assert [member.differs_at for member in found.members] == [None, 1, 2]
    assert [member.figures.first_nonfinite_step for member in found.members] == [None, None, 2]
    assert [member.findings for member in found.members] == [(), (), ("nonfinite_loss",)]
    assert found.settings == () and found.surroundings == {}


def test_knobs_that_differ_are_told_with_every_change_on_the_way() -> None:
    changed = run_of("b", [1.0] * 4, {"clipping.kind": "norm"}, {1: ("optimizer.lr", 0.5), 3: ("optimizer.lr", 0.25)})
    found = compare([run_of("a", [1.0] * 4, {"clipping.max_norm": 9.0}), changed])
    told = {setting.knob: setting.texts() for setting in found.settings}
    assert told == {
        "optimizer.lr": ["0.1", "0.1; 0.5 from step 1; 0.25 from step 3"],
        "clipping.kind": ["none", "norm"],
        "clipping.max_norm": ["9.0 (no effect)", "1.0"],
    }


def test_a_change_that_was_still_to_come_counts_and_the_same_change_is_no_difference() -> None:
    plan = (Change(2, "optimizer.lr", 0.5),)
    made, cut_off = run_of("a", [1.0] * 4, None, {2: ("optimizer.lr", 0.5)}), run_of("b", [1.0], planned=plan)
    assert compare([made, cut_off]).settings == ()
    (setting,) = compare([run_of("c", [1.0] * 4), cut_off]).settings
    assert setting.texts() == ["0.1", "0.1; 0.5 from step 2"]


def test_surroundings_that_differ_are_told_and_missing_ones_are_a_dash() -> None:
    found = compare(
        [
            run_of("a", [1.0], torch="2.13.0", threads="1"),
            run_of("b", [1.0], threads="4"),
            run_of("c", [1.0], threads="1", torch="2.13.0"),
        ]
    )
    assert found.surroundings == {"torch": ("2.13.0", "–", "2.13.0"), "threads": ("1", "4", "1")}


def test_every_figure_has_a_label_and_stands_beside_the_others() -> None:
    assert set(LABELS) == set(Figures.__dataclass_fields__)
    rows = dict(compare([run_of("a", [1.0, math.nan]), run_of("b", [])]).figure_texts())
    assert (
        rows["loss at the end"] == ["NaN", "–"] and rows["steps"] == ["2", "0"] and rows["accuracy"] == ["50 %", "50 %"]
    )
    assert "nonfinite_loss" not in rows["findings"][0] and " " in rows["findings"][0]  # a title, and no name of a rule
    assert rows["findings"][1] == "none" and rows["loss scale at the end"] == ["–", "–"]


@pytest.mark.parametrize("names", [[], ["a"], ["a", "a"], [str(number) for number in range(MOST + 1)]])
def test_too_few_too_many_and_twice_the_same_are_one_line(names: list[str]) -> None:
    with pytest.raises(ComparisonError, match="compared") as fault:
        compare([run_of(name, [1.0]) for name in names])
    assert "\n" not in str(fault.value)


def test_json_is_strict_and_keeps_values_as_they_are() -> None:
    runs = [
        run_of("a", [1.0, math.inf]),
        run_of("b", [2.0], {"model.residual": True, "model.width": 8}, {0: ("clipping.kind", "norm")}),
    ]
    found = json.loads(to_json(as_json(compare(runs))), parse_constant=pytest.fail)
    assert [
        (entry["run"], entry["final_loss"], entry["first_different_step"], entry["shared_steps"])
        for entry in found["runs"]
    ] == [
        ("a", "inf", None, 2),
        ("b", 2.0, 0, 1),
    ]
    knobs = {entry["knob"]: entry for entry in found["knobs"]}
    assert knobs["model.residual"]["values"] == [False, True]
    assert knobs["clipping.kind"]["changes"] == [[], [{"step": 0, "value": "norm"}]]


@pytest.mark.parametrize("steps", [3, BLOCK, BLOCK + 2])
def test_curves_of_unlike_length_stand_side_by_side_bit_for_bit(steps: int) -> None:
    source = np.random.default_rng(steps)
    special = [math.nan, math.inf, -math.inf, -0.0, 5e-324, 0.1]
    runs = [run_of('a,"1"\n', special[:2]), run_of("b", []), run_of("c", [])]
    rows = np.column_stack([np.arange(steps), *(source.choice(special, steps) for _ in range(12))])
    runs[2].history.extend(rows, np.zeros((len(LAYER_METRICS), steps, 1), np.float32))
    file = io.BytesIO()
    curves_csv(runs, file)
    head, *lines = csv.reader(io.StringIO(file.getvalue().decode(), newline=""))
    assert head == ["step", 'loss a,"1"\n', 'grad_norm a,"1"\n', "loss b", "grad_norm b", "loss c", "grad_norm c"]
    assert [line[0] for line in lines] == [str(step) for step in range(steps)]
    assert [line[1] for line in lines] == ["nan", "inf"] + [""] * (steps - 2)
    assert {line[3] for line in lines} == {""}
    assert np.array([float(line[5]) for line in lines]).tobytes() == runs[2].history.column("loss").tobytes()


def test_it_needs_neither_torch_nor_qt() -> None:
    code = (
        "import sys, gradstudio.session.files.comparison; print(*sorted({'torch', 'PySide6', 'matplotlib'} & "
        "set(sys.modules)))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True
        ).stdout
        == "\n"
    )
