"""What is said of the runs once the script has ended."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from watching.conftest import runs_of, small_net, square_loss

import gradstudio
from gradstudio.watching.recording import closing_lines
from gradstudio.watching.training_watch import TrainingWatch, current

TASKS, BROKEN = 15, 2


def test_of_many_runs_the_worst_and_the_latest_are_told(
    watch: Callable[..., TrainingWatch], capsys: pytest.CaptureFixture[str]
) -> None:
    watched, optimizers = [], []
    for task in range(TASKS):
        model = small_net()
        optimizers.append(torch.optim.SGD(model.parameters(), 0.01))
        watched.append(watch(model, optimizers[-1], name="task (3)" if task == 0 else "task"))
        (square_loss(model) * (torch.nan if task == BROKEN else 1)).backward()
        optimizers[-1].step()
    watcher, runs = current(), [run for one in watched for run in runs_of(one)]
    assert watcher is not None
    titles = [run.title for run in runs]
    assert titles[:2] == ["task (3)", "task"] and len(titles) == len(set(titles)) == TASKS
    capsys.readouterr()
    watcher.close()
    said = capsys.readouterr().err
    told = re.findall(r"gradstudio: (\S+): task", said)
    assert told == [runs[BROKEN].id, *(run.id for run in runs[-closing_lines.MOST_TOLD + 1 :])]
    *_, more, last = said.splitlines()
    assert more == f"gradstudio: and 5 more runs: `gradstudio runs --library {watcher.library}`"
    assert last.startswith(f"gradstudio: `gradstudio runs show {runs[-1].id} --library")


def test_no_library_that_cannot_be_opened_is_said_to_have_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    one = gradstudio.watch(model, optimizer, library=tmp_path / "file" / "runs.db")
    square_loss(model).backward()
    optimizer.step()
    (run,) = runs_of(one)
    watcher = current()
    assert watcher is not None
    watcher.close()
    problem, told = capsys.readouterr().err.splitlines()
    assert "run library" in problem and told.startswith(f"gradstudio: {run.id}: ") and told.endswith("1 row, finished")
