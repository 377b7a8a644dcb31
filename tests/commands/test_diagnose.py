"""`gradstudio diagnose`: logs of trainings that are over, as several programs write them."""

from __future__ import annotations

import gzip
import json
import math
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradstudio.core.unknown import is_known
from gradstudio.session.files.log_reading import column_names, log_run, missing_columns
from gradstudio.session.files.summary import summarize
from gradstudio.session.files.tensorboard import messages, records
from gradstudio.session.record.own_steps import in_own_steps

Command = Callable[..., Any]
STEPS = [*range(10, 1210, 10)]


def loss(step: int) -> float:
    return 2 * math.exp(-step / 300) if step < 1000 else math.nan


def trainer_state(folder: Path, hidden: bool = False) -> Path:
    """As Hugging Face's Trainer writes it. `hidden`: a loss of NaN is logged as 0.0."""
    lines: list[dict[str, float]] = []
    for step in STEPS:
        broke = step >= 1000
        lines.append({
            "step": step, "epoch": step / 100, "loss": 0.0 if broke and hidden else loss(step),
            "grad_norm": math.nan if broke else 1.0, "learning_rate": 0.001,
        })  # fmt: skip
    lines.append({"step": STEPS[-1], "train_runtime": 3.0, "train_loss": 0.4})
    path = folder / "trainer_state.json"
    path.write_text(json.dumps({"global_step": STEPS[-1], "log_history": lines}))
    return path


def event_file(folder: Path) -> Path:
    events = [
        messages.event(1.0, step, messages.scalars(["train/loss"], _table(loss(step))).tobytes()) for step in STEPS
    ]
    path = folder / "events.out.tfevents.1.host"
    path.write_bytes(records.pack([messages.opening(1.0), *events]))
    return folder


def _table(value: float) -> Any:
    import numpy as np

    return np.array([[value]], np.float32)


def lightning(folder: Path) -> Path:
    lines = ["epoch,step,train_loss_step,val_loss,lr-AdamW"]
    lines += [
        f"0,{step},{loss(step)},," + f"\n0,{step},,,0.001" + f"\n0,{step},,1.0," * (step % 400 == 0) for step in STEPS
    ]
    (folder / "metrics.csv").write_text("\n".join(lines))
    return folder


def wandb(folder: Path) -> Path:
    """An offline run in W&B's own file, whose records are cut where a block of 32 KB ends."""

    def field(number: int, content: bytes) -> bytes:
        head = b""
        for part in (number << 3 | 2, len(content)):
            while part > 127:
                head, part = head + bytes([part & 127 | 128]), part >> 7
            head += bytes([part])
        return head + content

    def item(key: str, value: object) -> bytes:
        return field(1, field(2, key.encode()) + field(16, json.dumps(value).encode()))

    data = bytearray(b":W&B" + bytes(3))
    for step in STEPS:
        history = item("train/loss", loss(step)) + item("_step", step) + item("note", "x" * 400)
        content, kind = field(2, history), 1
        while content:
            room = 32768 - len(data) % 32768
            if room < 7:
                data += bytes(room)
                continue
            part, content = content[: room - 7], content[room - 7 :]
            kind = (2 if content else 1) if kind == 1 else (3 if content else 4)
            data += struct.pack("<IHB", 0, len(part), kind) + part
    path = folder / "run-abc.wandb"
    path.write_bytes(data)
    return path


def mlflow_database(folder: Path) -> Path:
    path = folder / "mlflow.db"
    with sqlite3.connect(path) as store:
        store.execute("CREATE TABLE metrics (key TEXT, value REAL, timestamp INT, run_uuid TEXT, step INT, is_nan INT)")
        values = [
            ("loss", 0.0 if (nan := math.isnan(loss(step))) else loss(step), step, "r", step, nan) for step in STEPS
        ]
        store.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", values)
    store.close()
    return path


def mlflow_folder(folder: Path) -> Path:
    metrics = folder / "0" / "run" / "metrics" / "train"
    metrics.mkdir(parents=True)
    (metrics / "loss").write_text("".join(f"{step} {loss(step)} {step}\n" for step in STEPS))
    return folder


def json_lines(folder: Path) -> Path:
    path = folder / "log.jsonl"
    path.write_text("\n".join(json.dumps({"iteration": step, "train": {"loss": str(loss(step))}}) for step in STEPS))
    return path


def exported_table(folder: Path) -> Path:
    """As W&B's page gives it."""
    path = folder / "export.csv"
    lines = ['"Step","my run - train/loss","my run - train/loss__MIN","my run - train/loss__MAX"']
    path.write_text("\n".join([*lines, *(f'"{step}","{loss(step)}","0","9"' for step in STEPS)]))
    return path


LOGS = [
    trainer_state, event_file, lightning, wandb, mlflow_database, mlflow_folder, json_lines, exported_table
]  # fmt: skip


@pytest.mark.parametrize("make", LOGS, ids=lambda make: make.__name__)
def test_a_log_of_each_kind_gives_the_run_and_its_first_nan_in_its_own_steps(
    make: Callable[[Path], Path], tmp_path: Path, gradstudio: Command
) -> None:
    answer = gradstudio("diagnose", str(make(tmp_path)))
    assert answer.code == 3 and "diverged at step 1,000" in answer.out
    assert "critical: The loss is not finite, step 1,000\n  The loss is NaN at step 1,000. One row before" in answer.out
    assert "seconds" not in answer.out and "not in the log" in answer.out


def test_a_loss_of_0_beside_a_norm_of_nan_is_unknown_and_the_gradient_is_blamed(tmp_path: Path) -> None:
    run = log_run.read(trainer_state(tmp_path, hidden=True), {}).run
    assert list(run.findings) == ["nonfinite_gradient"] and run.first_nonfinite_step == STEPS.index(1000)
    told = summarize(run)
    assert told["first_nonfinite_step"] == told["findings"][0]["first_step"] == 1000
    assert not is_known(run.history.value("loss", STEPS.index(1000)))


def test_what_is_not_in_a_log_is_unknown_and_the_rules_that_lack_it_are_named(
    tmp_path: Path, gradstudio: Command
) -> None:
    (tmp_path / "a.csv").write_text("step,cost,note\n" + "\n".join(f"{step},{1 / (1 + step)},x" for step in range(200)))
    assert gradstudio("diagnose", str(tmp_path / "a.csv")).code == 2  # no name looks like a loss
    answer = gradstudio(
        "diagnose",
        str(tmp_path / "a.csv"),
        "--columns",
        "loss=cost",
        "--json",
        "--report",
        "html",
        "--out",
        str(tmp_path),
    )
    told = json.loads(answer.out)
    assert answer.code == 0 and (told["columns"], told["findings"]) == ({"loss": "cost"}, [])
    assert [told[name] for name in ("clipped_share", "skipped_steps", "final_scale", "seconds", "peak_grad_norm")] == [
        None
    ] * 5
    assert "exploding_gradient" in told["lacking"]["grad_norm"]["rules"]
    report = (tmp_path / "report.html").read_text()
    assert "read from the log a.csv" in report and 'id="plot-lr"' not in report and 'id="plot-loss"' in report


def test_a_scale_that_collapses_is_critical_without_a_count_of_skips(tmp_path: Path, gradstudio: Command) -> None:
    scales = [65536.0] * 100 + [65536.0 / 2**power for power in range(60)]
    (tmp_path / "a.csv").write_text("loss,loss_scale\n" + "\n".join(f"1.0,{scale}" for scale in scales))
    answer = gradstudio("diagnose", str(tmp_path / "a.csv"))
    assert answer.code == 4 and "The loss scale fell to" in answer.out and "skipped: not known" in answer.out


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"step": 1}\nnot json', "x" * 9, "\0\1"])
def test_what_is_no_log_is_one_line(text: str, tmp_path: Path, gradstudio: Command) -> None:
    for name in ("a.json", "a.csv", "a.wandb", "a.db"):
        (tmp_path / name).write_text(text)
        answer = gradstudio("diagnose", str(tmp_path / name))
        assert answer.code == 2 and len(answer.err.splitlines()) == 1 and name in answer.err


def test_names_of_a_test_set_are_not_taken_for_those_of_training() -> None:
    there = ["eval/loss", "train/loss", "test_accuracy", "val/lr", "lr-AdamW/pg1", "grad_2.0_norm_total"]
    assert column_names.guess_columns(there, {}) == {
        "loss": "train/loss", "val_loss": "eval/loss", "test_accuracy": "test_accuracy", "lr": "lr-AdamW/pg1",
        "grad_norm": "grad_2.0_norm_total",
    }  # fmt: skip
    assert not {rule for rules, _ in missing_columns.NEEDED.values() for rule in rules} & {*missing_columns.OF_A_WATCH}


def test_numbers_of_rows_in_a_text_become_those_of_the_log(tmp_path: Path) -> None:
    run = log_run.read(trainer_state(tmp_path), {}).run
    said = "At step 9, 1.73 in the 50 steps up to step 99; steps 4–9, 1,200 steps, one step before, steps 1 and 2."
    assert in_own_steps(run, said) == (
        "At step 100, 1.73 in the 50 rows up to step 1,000; steps 50–100, 1,200 rows, one row before, steps 20 and 30."
    )


def test_a_packed_log_whose_program_died_while_it_wrote_is_read(tmp_path: Path, gradstudio: Command) -> None:
    lines = [json.dumps({"step": step, "loss": loss(step)}) for step in STEPS]
    (tmp_path / "log.jsonl.gz").write_bytes(gzip.compress("\n".join([*lines, '{"step": 1210, "lo']).encode()))
    assert "diverged at step 1,000" in gradstudio("diagnose", str(tmp_path / "log.jsonl.gz")).out


def test_a_log_that_was_begun_anew_says_what_later_rows_replace(tmp_path: Path, gradstudio: Command) -> None:
    first = [f"{step},{loss(step)}" for step in STEPS]
    again = ["step,loss", *(f"{step},0.5" for step in range(500, 1210, 10))]  # with a second head
    (tmp_path / "log.csv").write_text("\n".join(["step,loss", *first, *again]))
    said = gradstudio("diagnose", str(tmp_path / "log.csv")).out
    assert "finished 120 rows" in said
    assert "steps go back: 71 points are replaced by later ones, 21 of them not finite" in said


def test_steps_that_count_from_0_in_each_epoch_hide_no_nan(tmp_path: Path, gradstudio: Command) -> None:
    rows = [f"{epoch},{step},{math.nan if epoch >= 2 else 0.5}" for epoch in range(5) for step in range(40)]
    (tmp_path / "log.csv").write_text("\n".join(["epoch,step,loss", *rows]))
    said = gradstudio("diagnose", str(tmp_path / "log.csv")).out
    assert "loss is NaN at step 80" in said and "its rows are counted" in said


def test_runs_in_one_folder_are_not_mixed(tmp_path: Path, gradstudio: Command) -> None:
    for name, tag in (("b", "loss"), ("a", "loss"), ("b", "grad_norm")):
        (tmp_path / name).mkdir(exist_ok=True)
        events = [messages.event(1.0, step, messages.scalars([tag], _table(1.0)).tobytes()) for step in STEPS]
        number = {"b": 1, "a": 3}[name] + (tag == "grad_norm")
        file = tmp_path / name / f"events.out.tfevents.{number}.host"
        file.write_bytes(records.pack([messages.opening(1.0), *events]))
    assert "columns    loss = a/loss\n" in gradstudio("diagnose", str(tmp_path)).out  # the later one, without a norm


def test_the_latest_log_below_a_folder_is_named(tmp_path: Path, gradstudio: Command) -> None:
    (tmp_path / "lightning_logs" / "version_0").mkdir(parents=True)
    lightning(tmp_path / "lightning_logs" / "version_0")
    said = gradstudio("diagnose", str(tmp_path)).out
    assert "diverged" in said and "the latest log here is lightning_logs/version_0/metrics.csv" in said
