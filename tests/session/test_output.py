"""The files of a run: they read back as what was measured, and give the same run again."""

from __future__ import annotations

import csv
import io
import json
import math
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from waiting import ENDLESS, join

from gradstudio.core import presets
from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import COLUMNS, LAYER_METRICS
from gradstudio.core.presets import Preset
from gradstudio.core.row import Layer, Row
from gradstudio.core.unknown import UNKNOWN
from gradstudio.session.files import csv_table, output, run_files
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.running.worker import Worker
from gradstudio.session.running.worker_commands import Stop

SMALL = ["model.depth=1", "model.width=8", "problem.batch_size=8", "run.steps=8", "run.device=cpu", "run.seed=3"]
ODD = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e300, 5e-324, 0.1, 1 / 3, 1e-38]


def trained(experiment: Experiment, planned: tuple[Change, ...] = ()) -> Run:
    run = Run(Preset(id="small", title="Small", experiment=experiment), experiment, planned)
    Worker(run).run()
    assert run.status == "finished", run.message
    return run


def fed(values: list[float]) -> Run:
    experiment = Experiment()
    run = Run(Preset(id="fed", title="Fed", experiment=experiment), experiment)
    RunWriter(run).begin((Layer("a", "weight", 1), Layer("β", "bias", 2)), {})
    row = Row(
        0, 1.0, 1.0, 1.0, 1.0, 0.1, 1.0, False, 0, 1e-3, 1.0, 0.5, 0.01, np.ones((len(LAYER_METRICS), 2), np.float32)
    )
    tested = {0: {"test_accuracy": 0.5}, 1: {"test_accuracy": math.nan}}  # at no other step
    for step, value in enumerate(values):
        layers = np.full((len(LAYER_METRICS), 2), np.clip(value, -1e30, 1e30), np.float32)
        RunWriter(run).record(
            replace(
                row,
                step=step,
                loss=value,
                weight_norm=value,
                skipped=step == 1,
                nonfinite=step,
                layers=layers,
                **tested.get(step, {}),
            )
        )
    return run


def content(run: Run, name: str) -> bytes:
    """One of the files that are written piece by piece."""
    file, write = io.BytesIO(), run_files.FILES[name](run)
    assert callable(write)
    write(file)
    return file.getvalue()


def bits(values: list[float]) -> list[bytes]:
    return [struct.pack("<d", value) for value in values]


def test_metrics_read_back_bit_for_bit() -> None:
    run = fed(ODD)
    rows = list(csv.DictReader(io.StringIO(content(run, "metrics.csv").decode())))
    assert list(rows[0]) == list(COLUMNS)
    for name in COLUMNS:
        read = [float(row[name]) if row[name] else UNKNOWN for row in rows]
        assert bits(read) == bits(run.history.column(name).tolist()), name
    assert [row["test_accuracy"] for row in rows[:3]] == ["0.5", "nan", ""]
    assert [row["loss"] for row in rows[:3]] == ["nan", "inf", "-inf"]
    assert [(row["step"], row["skipped"], row["nonfinite"]) for row in rows[:2]] == [("0", "0", "0"), ("1", "1", "1")]


def test_layers_read_back_without_pickle() -> None:
    run = fed(ODD)
    read = np.load(io.BytesIO(content(run, "layers.npz")), allow_pickle=False)
    assert read["layers"].tolist() == ["a", "β"]
    assert (read["roles"].tolist(), read["sizes"].tolist()) == (["weight", "bias"], [1, 2])
    for name in LAYER_METRICS:
        assert np.array_equal(read[name], run.history.layer_metric(name), equal_nan=True)


def test_what_is_written_piece_by_piece_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    run = fed(ODD)
    whole = {name: content(run, name) for name in ("metrics.csv", "layers.npz")}
    monkeypatch.setattr(run_files, "BLOCK", 3)
    monkeypatch.setattr(csv_table, "BLOCK", 3)
    assert content(run, "metrics.csv") == whole["metrics.csv"]
    one, other = np.load(io.BytesIO(whole["layers.npz"])), np.load(io.BytesIO(content(run, "layers.npz")))
    assert one.files == other.files
    assert all(
        one[name].tobytes() == other[name].tobytes() and one[name].dtype == other[name].dtype for name in one.files
    )


def test_a_text_that_a_spreadsheet_would_run_is_marked_and_a_number_is_not() -> None:
    run = fed([1.0])
    for text in ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "＝1+1", "plain, with a comma"):
        RunWriter(run).note("finding", text)
    RunWriter(run).change("loss.weight", 0.5)
    rows = list(csv.DictReader(io.StringIO(run_files.events_csv(run))))
    assert [row["text"] for row in rows[1:8]] == [
        "'=1+1", "'+1", "'-1", "'@SUM(A1)", "'\t=1", "'＝1+1", "plain, with a comma",
    ]  # fmt: skip
    assert (rows[8]["knob"], rows[8]["before"], rows[8]["value"]) == ("loss.weight", "1.0", "0.5")


def test_the_file_gives_the_same_run_again(tmp_path: Path) -> None:
    planned = (Change(2, "optimizer.lr", 0.03), Change(5, "clipping.kind", "norm"))
    first = trained(Experiment().with_texts([*SMALL, "optimizer.momentum=0.9", "gradients.noise_std=0.01"]), planned)
    output.write(first, tmp_path)
    preset = presets.read(tmp_path / "experiment.toml")
    assert preset.timeline == planned
    again = trained(preset.experiment, preset.timeline)
    for name in set(COLUMNS) - {"step_seconds"}:
        assert first.history.column(name).tobytes() == again.history.column(name).tobytes(), name


def test_every_file_is_there_and_run_json_is_strict(tmp_path: Path) -> None:
    written = output.write(fed(ODD), tmp_path / "deep" / "folder")
    assert [path.name for path in written] == [
        "experiment.toml",
        "run.json",
        "metrics.csv",
        "layers.npz",
        "events.csv",
        "train.py",
        "digits.npz",
    ]
    assert sorted(path.name for path in (tmp_path / "deep" / "folder").iterdir()) == sorted(
        path.name for path in written
    )
    found = json.loads((tmp_path / "deep" / "folder" / "run.json").read_text(), parse_constant=pytest.fail)
    assert {"run", "outcome", "findings", "provenance", "environment", "timeline", "title"} <= set(found)


def test_changes_that_are_still_to_come_are_written_too() -> None:
    experiment = Experiment().with_texts(SMALL)
    planned = (Change(2, "optimizer.lr", 0.03), Change(5, "clipping.kind", "norm"))
    preset = Preset(id="small", title="Small", experiment=experiment, timeline=planned)
    ready = Run(preset, experiment, planned)
    assert (
        ready.course == planned
        and run_files.as_preset(ready).timeline == planned
        and run_files.as_preset(ready).title == "Small"
    )
    RunWriter(ready).change("optimizer.lr", 0.5)
    assert ready.course == (Change(0, "optimizer.lr", 0.5), *planned)
    done = trained(experiment, planned)
    assert done.course == planned == tuple(done.timeline)


def test_the_program_is_that_of_the_run() -> None:
    run = trained(Experiment().with_texts(SMALL), (Change(2, "optimizer.lr", 0.03),))
    program = run_files.train_py(run)
    compile(program, "train.py", "exec")
    assert "0.03" in program and "Small" in program.splitlines()[0]


def test_a_run_without_a_step_has_files_too(tmp_path: Path) -> None:
    assert len(output.write(fed([]), tmp_path)) == 7
    assert (tmp_path / "metrics.csv").read_text() == ",".join(COLUMNS) + "\n"
    assert np.load(tmp_path / "layers.npz")["grad_norm"].shape == (0, 2)


def test_a_folder_that_cannot_be_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here first")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/gradstudio")):
        with pytest.raises(output.OutputError, match="cannot be written: ") as fault:
            output.check_folder(folder)
        assert "\n" not in str(fault.value)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.json").mkdir()
    with pytest.raises(output.OutputError, match=r"run\.json cannot be written"):
        output.write(fed([1.0]), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["experiment.toml", "run.json"]


def test_a_file_that_cannot_be_deleted_is_named(tmp_path: Path) -> None:
    (tmp_path / "report.pdf").mkdir()
    with pytest.raises(output.OutputError, match=r"report\.pdf cannot be deleted"):
        output.write(fed([1.0]), tmp_path)
    with pytest.raises(output.OutputError, match=r"report\.pdf cannot be written"):
        output.check_files(fed([1.0]), tmp_path)


def test_files_of_a_run_that_still_trains_are_whole() -> None:
    """Rows come between the reading of two columns; every file holds the rows that were there when it was begun, or
    more."""
    experiment = Experiment().with_texts([*SMALL, f"run.steps={ENDLESS}"])
    run = Run(Preset(id="small", title="Small", experiment=experiment), experiment)
    worker = Worker(run)
    worker.start()
    try:
        for _ in range(30):
            lines = content(run, "metrics.csv").decode().splitlines()
            assert all(line.count(",") == len(COLUMNS) - 1 for line in lines)
            layers = np.load(io.BytesIO(content(run, "layers.npz")))
            assert {layers[name].shape for name in LAYER_METRICS} == {(len(layers["grad_norm"]), len(layers["layers"]))}
            for name in ("run.json", "events.csv"):
                assert run_files.FILES[name](run)
    finally:
        worker.send(Stop())
        join(worker)


def test_a_person_s_change_counts_after_a_planned_one_at_the_same_step() -> None:
    experiment = Experiment().with_value("optimizer.lr", 0.05)
    planned = (Change(3, "optimizer.lr", 0.05), Change(9, "optimizer.lr", 0.01))
    run = Run(presets.Preset(id="a", title="A", experiment=experiment, timeline=planned), experiment, planned)
    run = replace(run, timeline=[Change(3, "optimizer.lr", 0.3)])
    assert run.course == (planned[0], run.timeline[0], planned[1])


def test_a_report_of_an_earlier_run_does_not_stay(tmp_path: Path) -> None:
    run = Run(presets.Preset(id="a", title="A", experiment=Experiment()), Experiment())
    (tmp_path / "report.html").write_text("of an earlier run")
    (tmp_path / "notes.txt").write_text("mine")
    output.write(run, tmp_path)
    assert not (tmp_path / "report.html").exists() and (tmp_path / "notes.txt").exists()


def test_parquet_has_the_rows_with_null_for_what_nobody_measured(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    from pyarrow import parquet

    run = trained(Experiment().with_texts(SMALL))
    output.export(run, tmp_path, ["parquet"])
    table = parquet.read_table(tmp_path / "metrics.parquet").to_pydict()
    assert table["step"] == list(range(len(run.history))) and list(table) == list(COLUMNS)
    assert table["loss"] == run.history.column("loss").tolist() and table["rank_drift"] == [None] * len(run.history)
    layers = parquet.read_table(tmp_path / "layers.parquet").to_pydict()
    assert len(layers["layer"]) == len(run.history) * len(run.history.layers)
    assert layers["grad_norm"] == run.history.layer_metric("grad_norm").ravel().tolist()
