"""Branches by commands: what a branch makes from step N on is, to the last bit, what a run makes that had the change
planned from its start."""

from __future__ import annotations

import csv
import json
import os
import pty
import runpy
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from waiting import PATIENCE

from gradstudio.core import files
from gradstudio.session.library.store import Library
from gradstudio.session.record.run import Run

COMMAND = [sys.executable, "-m", "gradstudio"]
NOT_REPEATED = ("run", "title", "seconds", "parent", "parent_step")  # of run.json


def told(folder: Path) -> dict:
    return json.loads((folder / "run.json").read_text(), parse_constant=pytest.fail)


def rows(folder: Path, first: int = 0) -> list[dict[str, str]]:
    """The lines of metrics.csv from a step on, without the time that they took."""
    lines = list(csv.DictReader((folder / "metrics.csv").read_text().splitlines()))
    return [
        {name: cell for name, cell in line.items() if name != "step_seconds"}
        for line in lines
        if int(line["step"]) >= first
    ]


def news(folder: Path, first: int) -> list[dict[str, str]]:
    """What happened to a run from a step on, except that it branched."""
    lines = list(csv.DictReader((folder / "events.csv").read_text().splitlines()))
    return [line for line in lines if line["kind"] not in ("branched", "started") and int(line["step"]) >= first]


def assert_same(branch: Path, run: Path, step: int) -> None:
    """The branch is the run from this step on, and what is said of both is the same."""
    assert rows(branch) == rows(run, step)
    one, other = np.load(branch / "layers.npz"), np.load(run / "layers.npz")
    for name in set(one) - {"steps", "layers", "roles", "sizes"}:
        assert one[name].tobytes() == other[name][step:].tobytes(), name
    assert one["steps"].tolist() == list(range(step, len(other["steps"])))
    assert news(branch, step) == news(run, step)
    said = [
        {name: value for name, value in told(folder).items() if name not in NOT_REPEATED} for folder in (branch, run)
    ]
    assert said[0] == said[1]
    for name in ("experiment.toml", "train.py"):
        assert (branch / name).read_text() == (run / name).read_text(), name


def kept(gradstudio: Callable) -> list[dict]:
    return json.loads(gradstudio("runs", "--json").out)


@pytest.fixture
def folder(once: Callable, gradstudio: Callable, small: Path) -> Path:
    """The folder of a run of 6 steps, which is in the library too. To be read only."""
    return once("six", lambda folder: gradstudio("run", small, "-q", "--out", folder / "folder")) / "folder"


PLANNED = (
    '[[timeline]]\nstep = 8\nknob = "accumulation.steps"\nvalue = 3\n[[timeline]]\nstep = 5\nknob = '
    '"optimizer.lr"\nvalue = 0.05\n'
)

SOURCES = {
    "plain": ("small", [], 6, 12, ["optimizer.lr=0.01"]),
    "long enough for samples": ("small", [], 130, 260, ["optimizer.lr=0.5"]),
    "the first step": ("small", [], 0, 6, ["optimizer.lr=0.01"]),
    "at a planned change": ("planned", [], 5, 12, ["optimizer.lr=0.02"]),
    "across a change of accumulation": ("planned", [], 6, 14, ["clipping.kind=norm", "clipping.max_norm=0.5"]),
    "within warmup": (
        "small",
        ["schedule.warmup_steps=10", "schedule.kind=cosine", "schedule.total_steps=30"],
        6,
        20,
        ["optimizer.lr=0.3"],
    ),
    "that breaks at once": ("fp16-overflow", ["model.width=8"], 0, 6, ["optimizer.lr=0.01"]),
    "that breaks soon": ("small", ["problem.noise=0.1"], 6, 30, ["optimizer.lr=1e6", "loss.weight=1e20"]),
    "across skipped steps": (
        "fp16-overflow",
        ["precision.scaling=dynamic", "model.width=16", "model.depth=2"],
        4,
        30,
        ["optimizer.lr=0.01"],
    ),
    "into fp16": ("small", ["precision.init_scale=1e7"], 5, 20, ["precision.dtype=fp16"]),
    "bf16": (
        "small",
        ["precision.dtype=bf16", "optimizer.kind=adamw", "model.norm=batch"],
        5,
        12,
        ["gradients.noise_std=0.01"],
    ),
    "over an outlier": ("outlier-batch", ["model.width=8", "problem.outlier_every=15"], 12, 40, ["clipping.kind=norm"]),
    "past an outlier": (
        "outlier-batch",
        ["model.width=8", "problem.outlier_every=15"],
        12,
        40,
        ["problem.skip_batches=4"],
    ),
    "an explosion held": ("rnn-explosion", ["model.width=16"], 40, 80, ["clipping.kind=norm"]),
    "a mistake mended": ("missing-zero-grad", ["model.width=8"], 15, 40, ["mistakes.never_zero_grad=false"]),
    "a transformer": (
        "post-norm-transformer",
        ["model.width=16", "model.depth=2", "problem.batch_size=8"],
        9,
        20,
        ["optimizer.lr=1e-4"],
    ),
    "two networks": ("gan-ring", ["model.width=16"], 9, 25, ["optimizer.beta1=0.0"]),
    "a pole": ("pole-collapse", ["model.width=16", "problem.seq_len=20"], 5, 12, ["optimizer.lr=0.001"]),
    "in micro-batches": (
        "undivided-accumulation",
        ["model.width=8"],
        10,
        16,
        ["accumulation.steps=2", "mistakes.unscaled_accumulation=false"],
    ),
}


# What the command itself does with a branch; of each kind of run tests/session/test_branches.py holds the same.
IN_GATE = (
    "plain",
    "long enough for samples",
    "the first step",
    "at a planned change",
    "that breaks at once",
    "a mistake mended",
)
CASES = [
    pytest.param(*case, id=name, marks=() if name in IN_GATE else pytest.mark.thorough)
    for name, case in SOURCES.items()
]


@pytest.mark.parametrize(("source", "knobs", "step", "steps", "changes"), CASES)
def test_a_branch_is_the_run_that_had_the_change_planned(
    source: str,
    knobs: list[str],
    step: int,
    steps: int,
    changes: list[str],
    gradstudio: Callable,
    small: Path,
    tmp_path: Path,
) -> None:
    if source in ("small", "planned"):
        small.write_text(small.read_text() + (PLANNED if source == "planned" else ""))
        source = str(small)
    assignments = ["--steps", str(steps), *(word for knob in knobs for word in ("--set", knob))]
    assert gradstudio("run", source, *assignments, "-q").err == ""
    answer = gradstudio(
        "branch",
        "last",
        "--step",
        str(step),
        *(word for change in changes for word in ("--set", change)),
        "--out",
        tmp_path / "branch",
        "--json",
    )
    assert answer.err == f"files in {tmp_path / 'branch'}\n"
    again = gradstudio(
        "run",
        source,
        *assignments,
        *(word for change in changes for word in ("--at", f"{step}:{change}")),
        "--out",
        tmp_path / "run",
        "-q",
    )
    assert answer.code == again.code
    assert_same(tmp_path / "branch", tmp_path / "run", step)
    assert told(tmp_path / "branch") | json.loads(answer.out) == told(tmp_path / "branch")


def test_it_is_kept_with_its_parent_and_its_files_repeat_it(
    gradstudio: Callable, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gradstudio("run", small, "-q")
    answer = gradstudio(
        "branch",
        "last",
        "--step",
        "2",
        "--set",
        "optimizer.lr=0.02",
        "--at",
        "4:clipping.kind=norm",
        "--out",
        tmp_path / "b",
        "--report",
        "html,pdf",
    )
    branch, run = kept(gradstudio)
    said = f"branch     of {run['run']} from step 2: optimizer.lr = 0.02, clipping.kind = norm"
    assert answer.code == 0 and said in answer.out and f"kept as {branch['run']}" in answer.out and answer.err == ""
    assert (branch["parent"], branch["parent_step"], run["parent"], run["parent_step"]) == (run["run"], 2, None, None)
    assert (branch["title"], branch["steps"]) == ("Small: optimizer.lr = 0.02, clipping.kind = norm", 6)
    shown = gradstudio("runs", "show", "last")
    assert said in shown.out and answer.out.partition("\n\nkept")[0] in shown.out
    assert json.loads(gradstudio("runs", "show", "last", "--json").out)["parent"] == run["run"]
    assert "branched" in (tmp_path / "b" / "events.csv").read_text()
    report = (tmp_path / "b" / "report.html").read_text()
    assert f"continues from step 2 of the run {run['run']}, with optimizer.lr = 0.02, clipping.kind = norm" in report
    for source in (tmp_path / "b", branch["run"]):
        gradstudio("run", source, "--out", tmp_path / "again", "-q")
        assert rows(tmp_path / "again", 2) == rows(tmp_path / "b")
    gradstudio("report", branch["run"], "--format", "csv,json,py", "--out", tmp_path / "later")
    for name in ("metrics.csv", "events.csv", "run.json", "train.py"):
        assert (tmp_path / "later" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    runpy.run_path(str(tmp_path / "b" / "train.py"), run_name="__main__")  # alone: test_script.py
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in printed][2:] == [row["loss"] for row in rows(tmp_path / "b")]
    compared = json.loads(gradstudio("runs", "compare", run["run"], branch["run"], "--json").out)
    assert [entry["first_different_step"] for entry in compared["runs"]] == [None, 3]


def test_a_branch_of_a_branch_and_of_folders(gradstudio: Callable, small: Path, tmp_path: Path) -> None:
    small.write_text(small.read_text() + PLANNED)
    gradstudio("run", small, "--steps", "14", "-q", "--out", tmp_path / "root")
    gradstudio(
        "branch",
        "last",
        "--step",
        "4",
        "--set",
        "optimizer.momentum=0.9",
        "--at",
        "9:clipping.kind=norm",
        "-q",
        "--out",
        tmp_path / "one",
    )
    gradstudio("branch", "last", "--step", "7", "--set", "optimizer.lr=0.2", "-q", "--out", tmp_path / "two")
    _, one, root = (entry["run"] for entry in kept(gradstudio))
    assert (told(tmp_path / "two")["parent"], told(tmp_path / "two")["parent_step"]) == (one, 7)
    changes = ["--at", "4:optimizer.momentum=0.9", "--at", "9:clipping.kind=norm", "--at", "7:optimizer.lr=0.2"]
    gradstudio("run", small, "--steps", "14", *changes, "-q", "--out", tmp_path / "run")
    assert_same(tmp_path / "two", tmp_path / "run", 7)
    answer = gradstudio(
        "branch", tmp_path / "one", "--step", "7", "--set", "optimizer.lr=0.2", "-q", "--out", tmp_path / "of folder"
    )
    assert (answer.code, answer.err) == (0, "") and told(tmp_path / "of folder")["parent"] == one
    assert rows(tmp_path / "of folder") == rows(tmp_path / "two") and news(tmp_path / "of folder", 7) == news(
        tmp_path / "two", 7
    )
    for step in (0, 5, 14):
        for name, parent in (("library", root), ("folder", tmp_path / "root")):
            gradstudio(
                "branch",
                parent,
                "--step",
                step,
                "--steps",
                "16",
                "--set",
                "optimizer.beta1=0.5",
                "-q",
                "--out",
                tmp_path / name,
            )
        assert rows(tmp_path / "library") == rows(tmp_path / "folder") and len(rows(tmp_path / "folder")) == 16 - step
        assert told(tmp_path / "folder")["parent"] == told(tmp_path / "library")["parent"] == root


def test_a_finished_run_goes_on_for_longer_and_a_planned_change_at_its_end_comes(
    gradstudio: Callable, small: Path, tmp_path: Path
) -> None:
    small.write_text(small.read_text() + PLANNED)
    gradstudio("run", small, "--steps", "8", "-q")
    answer = gradstudio("branch", "last", "--step", "8", "--steps", "20", "--out", tmp_path / "branch")
    assert answer.code == 0 and "Small: run.steps = 20: finished 20 steps" in answer.out
    gradstudio("run", small, "--steps", "20", "-q", "--out", tmp_path / "run")
    assert_same(tmp_path / "branch", tmp_path / "run", 8)
    assert kept(gradstudio)[1]["title"] == "Small: run.steps = 20"


def test_what_broke_goes_on_from_before_it_did(gradstudio: Callable, small: Path, tmp_path: Path) -> None:
    broken = ["--set", "optimizer.lr=1e6", "--set", "problem.input_scale=1e10", "--steps", "30"]
    assert gradstudio("run", small, *broken, "-q", "--out", tmp_path / "run").code == 3
    broke = told(tmp_path / "run")["first_nonfinite_step"]
    again = gradstudio("branch", "last", "--step", str(broke), "--json")
    assert (
        again.code == 3
        and json.loads(again.out)["first_nonfinite_step"] == broke
        and json.loads(again.out)["steps"] == broke + 1
    )
    mended = gradstudio("branch", tmp_path / "run", "--step", "0", "--set", "optimizer.lr=1e-25", "--json")
    assert mended.code != 3 and json.loads(mended.out)["steps"] == 30
    after = gradstudio(
        "branch", tmp_path / "run", "--step", str(broke + 1), "--set", "run.stop_on_nonfinite=false", "--json"
    )
    found = json.loads(after.out)
    assert after.code == 3 and (found["steps"], found["first_nonfinite_step"]) == (30, broke)


def test_what_was_changed_by_hand_after_it_does_not_come_and_what_was_planned_does(
    gradstudio: Callable, small: Path, tmp_path: Path
) -> None:
    small.write_text(small.read_text() + PLANNED)
    gradstudio("run", small, "--steps", "12", "-q", "--out", tmp_path / "run")
    (entry,) = kept(gradstudio)
    with sqlite3.connect(files.user_library()) as connection:  # as if somebody had done this in the window
        number = connection.execute("SELECT count(*) FROM entries WHERE kind = 'change'").fetchone()[0]
        change = json.dumps([10, "optimizer.momentum", 0.5])
        connection.execute("INSERT INTO entries VALUES (?, 'change', ?, ?)", (entry["run"], number, change))
        connection.execute("DELETE FROM checksums")
    connection.close()
    for step, lr in ((4, ["0.1", "0.05"]), (5, ["0.05"])):
        gradstudio("branch", entry["run"], "--step", step, "-q", "--out", tmp_path / str(step))
        timeline = [(change["step"], change["knob"]) for change in told(tmp_path / str(step))["timeline"]]
        assert timeline == [(5, "optimizer.lr"), (8, "accumulation.steps")]
        assert [row["lr"] for row in rows(tmp_path / str(step))][: len(lr)] == lr
        assert rows(tmp_path / str(step)) == rows(tmp_path / "run", step)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["last"], "Missing option '--step'"),
        (["nope", "--step", "1"], "no run nope in the library"),
        (["last", "--step", "7"], "made 6 steps; allowed: 0 to 6"),
        (["{folder}", "--step", "7"], "made 6 steps; allowed: 0 to 6"),
        (["last", "--step", "-1"], "allowed: 0 to 6"),
        (
            ["last", "--step", "6"],
            "--step 6 leaves nothing to train, as the branch ends at step 6; allowed: an earlier step, or --steps 7 "
            "or more",
        ),
        (["last", "--step", "4", "--steps", "4"], "or --steps 5 or more"),
        (["last", "--step", "4", "--steps", "0"], "run.steps = 0 is not allowed"),
        (
            ["last", "--step", "2", "--set", "model.width=4"],
            "model.width acts on restart and cannot change in a branch; allowed: a live knob",
        ),
        (["last", "--step", "2", "--set", "run.steps=40"], "--steps lengthens the run"),
        (["last", "--step", "2", "--at", "3:problem.task=copy"], "problem.task acts on restart"),
        (
            ["last", "--step", "2", "--set", "optimizer.lr=-1"],
            "optimizer.lr = -1.0 is not allowed; allowed: a number at least 0",
        ),
        (["last", "--step", "2", "--set", "optimizer.speed=1"], "unknown knob optimizer.speed"),
        (["last", "--step", "2", "--at", "3:clipping.kind=some"], "clipping.kind = some is not allowed"),
        (
            ["last", "--step", "2", "--at", "1:optimizer.lr=1"],
            "--at 1:optimizer.lr=1 comes before the branch begins; its first step is 2",
        ),
        (["last", "--step", "2", "--at", "6:optimizer.lr=1"], "its last step is 5"),
        (["last", "--step", "2", "--at", "optimizer.lr=1"], "STEP:KNOB=VALUE"),
        (
            ["last", "--step", "2", "--set", "problem.skip_batches=4", "--at", "4:problem.skip_batches=2"],
            "it cannot fall",
        ),
        (["last", "--step", "2", "--compare", "1"], "--compare 1 comes before the branch begins"),
        (["last", "--step", "2", "--compare", "6"], "its last step is 5"),
        (["last", "--step", "2", "--seed", "4"], "--seed 4 is not allowed: a branch has its run's, 0"),
        (["last", "--step", "2", "--device", "cuda:0"], "--device cuda:0 is not allowed: a branch has its run's, cpu"),
        (["last", "--step", "2", "--report", "docx"], "allowed: html, pdf"),
        (["last", "--step", "2", "--out", "/proc/here"], "cannot be written"),
        (["{folder}", "--step", "2", "--out", "/proc/here"], "cannot be written"),
        (["/proc", "--step", "2"], "/proc is no folder of a run"),
        (["last", "--step", "2", "--library", "/nowhere/at/all"], "there is no run library"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_code_2(
    words: list[str], said: str, gradstudio: Callable, folder: Path
) -> None:
    answer = gradstudio("branch", *(word.format(folder=folder) for word in words))
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ") and said in answer.err and answer.err.count("\n") == 1
    assert len(kept(gradstudio)) == 1


def test_the_run_s_own_seed_and_device_may_be_said(gradstudio: Callable, small: Path) -> None:
    gradstudio("run", small, "--seed", "3", "-q")
    assert gradstudio("branch", "last", "--step", "2", "--seed", "3", "--device", "cpu", "-q").code == 0


def test_a_planned_change_that_does_not_go_with_it_is_named(gradstudio: Callable, small: Path) -> None:
    small.write_text(small.read_text() + '[[timeline]]\nstep = 5\nknob = "problem.skip_batches"\nvalue = 1\n')
    gradstudio("run", small, "-q")
    answer = gradstudio("branch", "last", "--step", "2", "--set", "problem.skip_batches=3")
    assert (
        answer.code == 2
        and "error: the change that is planned at step 5 does not go with it: problem.skip_batches = 1" in answer.err
    )


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"run": "x", "steps": true}', '{"run": 3, "steps": 6}', '{"run": "x"}', "[" * 100_000]
)
def test_a_folder_whose_run_json_somebody_changed_is_one_line(
    content: str, gradstudio: Callable, folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "folder")
    (tmp_path / "folder" / "run.json").write_text(content)
    answer = gradstudio("branch", tmp_path / "folder", "--step", "2")
    assert answer.code == 2 and "is no folder of a run" in answer.err and answer.err.count("\n") == 1


def test_another_number_of_threads_is_said_and_so_is_where_the_steps_part(
    gradstudio: Callable, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gradstudio("run", small, "-q")
    (entry,) = kept(gradstudio)
    library, load = Library(files.user_library()), Library.load

    def from_elsewhere(self: Library, run: str) -> Run:
        found = load(self, run)
        found.history._rows[0][3:, 1] += 1e-9  # as another processor rounds
        return replace(found, environment={**found.environment, "processor": "Another One", "threads": "4"})

    library.close()
    monkeypatch.setattr(Library, "load", from_elsewhere)
    answer = gradstudio("branch", entry["run"], "--step", "5", "--json")
    first, second = answer.err.splitlines()
    assert "GRADSTUDIO_THREADS=4 repeats it to the last bit" in first
    assert second.startswith(
        "from step 3 on, this machine does not repeat the steps before the branch to the last bit: processor Another "
        "One, here "
    )
    assert "; threads 4, here 1" in second
    assert gradstudio("branch", entry["run"], "--step", "5", "-q").err == ""
    assert gradstudio("branch", entry["run"], "--step", "2", "--json").err.count("\n") == 1


def test_a_branch_stays_whole_when_its_parent_is_deleted(gradstudio: Callable, small: Path, tmp_path: Path) -> None:
    gradstudio("run", small, "-q")
    gradstudio("branch", "last", "--step", "3", "--set", "optimizer.lr=0.5", "-q", "--out", tmp_path / "one")
    branch, parent = (entry["run"] for entry in kept(gradstudio))
    assert gradstudio("runs", "delete", parent, "--yes").code == 0
    (entry,) = kept(gradstudio)
    assert (entry["run"], entry["parent"], entry["parent_step"], entry["steps"]) == (branch, parent, 3, 6)
    assert "of " + parent in gradstudio("runs", "show", branch).out
    assert gradstudio("report", branch, "--format", "csv", "--out", tmp_path / "later").code == 0
    assert rows(tmp_path / "later") == rows(tmp_path / "one")
    gradstudio("branch", branch, "--step", "1", "-q", "--out", tmp_path / "two")
    gradstudio("run", small, "--at", "3:optimizer.lr=0.5", "-q", "--out", tmp_path / "run")
    assert rows(tmp_path / "two") == rows(tmp_path / "run", 1), "with what was planned for the branch"


def test_comparisons_are_made_in_a_branch_too(gradstudio: Callable, small: Path) -> None:
    gradstudio(
        "run",
        small,
        "--set",
        "accumulation.steps=4",
        "--set",
        "model.norm=batch",
        "--compare",
        "1",
        "--compare",
        "4",
        "-q",
    )
    found = json.loads(gradstudio("branch", "last", "--step", "3", "--compare", "5", "--json").out)
    assert [entry["step"] for entry in found["comparisons"]] == [1, 4, 5]


# As COMMAND, but each step takes at least 0.2 s, so that 190 of them are never over before somebody interrupts.
SLOWED = """
import time
from gradstudio.cli import main
from gradstudio.session.record.snapshots import Snapshots
Snapshots.due = lambda self, seconds: bool(time.sleep(0.2))  # asked after each step; none is due
main()
"""


def interrupted(words: list[str], ready: bytes) -> tuple[int, str, str]:
    """A command that is stopped by Ctrl+C once its progress line shows `ready`: exit code, stdout and what stood on the
    terminal."""
    screen, terminal = pty.openpty()
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=terminal, text=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )  # fmt: skip
    os.close(terminal)
    seen = b""
    while ready not in seen:
        seen += os.read(screen, 4096)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE)
    try:
        while more := os.read(screen, 65536):
            seen += more
    except OSError:  # the other side has closed it
        pass
    os.close(screen)
    return process.returncode, out, seen.decode()


def test_ctrl_c_keeps_what_the_branch_has_measured(gradstudio: Callable, small: Path, tmp_path: Path) -> None:
    gradstudio("run", small, "-q")
    code, out, _ = interrupted(
        [*COMMAND, "branch", "last", "--step", "4", "--steps", "10000000", "--out", str(tmp_path / "out"), "--json"],
        b"loss",
    )
    found = json.loads(out)
    assert code == 130 and found["outcome"] == "stopped" and found["accuracy"] is not None
    assert len(rows(tmp_path / "out")) == found["steps"] - 4 > 0
    assert (kept(gradstudio)[0]["outcome"], kept(gradstudio)[0]["steps"]) == ("stopped", found["steps"])


@pytest.mark.parametrize("of", ["library", "folder"])
def test_ctrl_c_on_the_way_back_keeps_nothing(of: str, gradstudio: Callable, small: Path, tmp_path: Path) -> None:
    gradstudio("run", small, "--steps", "200", "-q", "--out", tmp_path / "run")
    with sqlite3.connect(files.user_library()) as connection:
        connection.execute("DELETE FROM snapshots")
    connection.close()
    source = "last" if of == "library" else str(tmp_path / "run")
    ready = b"rewinding to step" if of == "library" else b"loss"
    words = ["branch", source, "--step", "190", "--out", str(tmp_path / "out")]
    code, out, said = interrupted([sys.executable, "-c", SLOWED, *words], ready)
    assert (code, out) == (130, "") and "interrupted before step 190 was reached again" in said
    assert len(kept(gradstudio)) == 1 and list((tmp_path / "out").iterdir()) == []
