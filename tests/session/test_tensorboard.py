"""A run as a TensorBoard log, read back by the program's own reader."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from waiting import PATIENCE

from gradstudio.core.experiment import Experiment
from gradstudio.core.history import LAYER_METRICS
from gradstudio.core.presets import Preset
from gradstudio.core.row import Layer, Row
from gradstudio.session.files import curve_import
from gradstudio.session.files.output import OutputError
from gradstudio.session.files.tensorboard import export, records
from gradstudio.session.files.tensorboard.messages import fields
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter

LOSSES = [2.0, 1.5, math.nan, math.inf, -math.inf, 1e-30, 3.0]


@pytest.fixture
def run() -> Run:
    experiment = Experiment().with_value("run.stop_on_nonfinite", False)
    run = Run(Preset(id="odd/../name", title="<b>*Odd*</b> `name`\n# no heading", experiment=experiment), experiment)
    RunWriter(run).begin((Layer("0.weight", "weight", 4), Layer("<i>", "bias", 2)), {"device": "cpu"})
    row = Row(
        0, 1.0, 1.0, 1.0, 1.0, 0.1, 1.0, False, 0, 1e-3, 1.0, 0.5, 0.25, np.ones((len(LAYER_METRICS), 2), np.float32)
    )
    for step, loss in enumerate(LOSSES):
        tested = {"test_accuracy": 0.5} if step == 3 else {}
        RunWriter(run).record(replace(row, step=step, loss=loss, layers=row.layers * loss, **tested))
    RunWriter(run).change("optimizer.lr", 0.5)
    RunWriter(run).end("finished", "", 0.5)
    return run


def test_every_number_comes_back_bit_for_bit(run: Run, tmp_path: Path) -> None:
    path = export.export(run, tmp_path)
    found = {curve.name: curve for curve in curve_import.read(tmp_path)}
    measured = [name for name in export.SCALARS if len(run.history.measurements(name)[0])]
    assert set(found) == {*measured, "grad_norm/0.weight", "grad_norm/<i>"}
    assert path.parent == tmp_path
    for name in measured:
        steps, values = run.history.measurements(name)
        assert found[name].steps.tolist() == steps.tolist()
        assert found[name].values.astype(np.float32).tobytes() == values.astype(np.float32).tobytes()
    assert found["test_accuracy"].steps.tolist() == [3]
    layers = run.history.layer_metric("grad_norm")
    assert found["grad_norm/<i>"].values.astype(np.float32).tobytes() == layers[:, 1].tobytes()


def found_fields(content: bytes, *path: int) -> list[bytes]:
    """What stands in a message under these numbers, one within the other."""
    inside = [part for number, _, part in fields(content) if number == path[0]]
    return inside if len(path) == 1 else [part for message in inside for part in found_fields(message, *path[1:])]


def test_texts_are_there_and_nothing_in_them_is_markup(run: Run, tmp_path: Path) -> None:
    contents, damage = records.unpack(export.export(run, tmp_path).read_bytes())
    assert not damage
    assert found_fields(contents[0], 3) == [b"brain.Event:2"]
    said = {
        found_fields(event, 5, 1, 1)[0].decode(): found_fields(event, 5, 1, 8, 8)[0].decode() for event in contents[1:4]
    }
    assert all(found_fields(event, 5, 1, 9, 1, 1) == [b"text"] for event in contents[1:4])
    assert set(said) == {"run/text_summary", "experiment/text_summary", "events/text_summary"}
    assert all(line.startswith("    ") for text in said.values() for line in text.split("\n"))
    assert "optimizer.lr 0.1 → 0.5" in said["events/text_summary"]
    assert "stop_on_nonfinite = false" in said["experiment/text_summary"]
    times = [struct.unpack("<d", found_fields(event, 1)[0])[0] - run.started for event in contents[-2:]]
    assert times == pytest.approx([1.5, 1.75], abs=1e-5)


def test_histograms_show_how_the_layers_are_spread(run: Run, tmp_path: Path) -> None:
    contents, _ = records.unpack(export.export(run, tmp_path).read_bytes())
    spreads = {}
    for event in contents[4:]:
        for value in found_fields(event, 5, 1):
            if found_fields(value, 5):
                spreads.setdefault(found_fields(value, 1)[0].decode(), []).append(found_fields(value, 5)[0])
    assert set(spreads) == {f"layers/log10 {metric}" for metric in ("grad_norm", "weight_norm", "update_ratio")}
    first, *others = spreads["layers/log10 grad_norm"]
    assert len(others) + 1 == sum(math.isfinite(loss) for loss in LOSSES)
    least, greatest, count = (struct.unpack("<d", found_fields(first, number)[0])[0] for number in (1, 2, 3))
    assert (least, greatest, count) == pytest.approx((math.log10(2), math.log10(2), 2))
    assert (
        np.frombuffer(found_fields(first, 7)[0], "<f8").sum() == 2
        and len(np.frombuffer(found_fields(first, 6)[0], "<f8")) == 30
    )


def test_a_log_that_is_written_again_takes_the_place_of_the_first(run: Run, tmp_path: Path) -> None:
    assert export.export(run, tmp_path) == export.export(run, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_run_without_a_step_gives_a_log_of_texts(tmp_path: Path) -> None:
    run = Run(Preset(id="a", title="A", experiment=Experiment()), Experiment())
    contents, damage = records.unpack(export.export(run, tmp_path).read_bytes())
    assert len(contents) == 4 and not damage


def test_a_folder_that_cannot_be_is_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        export.export(run, tmp_path / "file")


def test_neither_torch_nor_anything_of_tensorboard_is_imported() -> None:
    wanted = "{'torch', 'tensorboard', 'tensorboardX', 'google', 'PySide6'}"
    script = f"import sys, gradstudio.session.files.tensorboard.export; print(*{wanted} & set(sys.modules))"
    assert (
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=True
        ).stdout.split()
        == []
    )
