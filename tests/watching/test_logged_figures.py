"""What a script tells by itself: figures beside the rows, its own step numbers, a run that goes on, and who hears of a
finding."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from waiting import until
from watching.conftest import runs_of, small_net, square_loss

from gradstudio.core.diagnosis.finding import Finding
from gradstudio.session.files import run_files
from gradstudio.session.library.store import Library
from gradstudio.watching.recording import messenger, stall
from gradstudio.watching.training_watch import TrainingWatch

Watch = Callable[..., TrainingWatch]


def steps(model: torch.nn.Module, optimizer: torch.optim.Optimizer, count: int, scale: float = 1.0) -> None:
    for _ in range(count):
        optimizer.zero_grad()
        (scale * square_loss(model)).backward()
        optimizer.step()


def trained(watch: Watch, **options: Any) -> tuple[TrainingWatch, torch.nn.Module, torch.optim.Optimizer]:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return watch(model, optimizer, **options), model, optimizer


def test_figures_are_columns_of_the_run_and_rules_read_them(watch: Watch, tmp_path: Path) -> None:
    one, model, optimizer = trained(watch)
    for epoch in range(6):
        steps(model, optimizer, 20)
        one.log(eval_loss=torch.tensor(1.0 + abs(epoch - 1)), entropy=epoch, val_acc=0.5, note="no number")
    one.close()
    (run,) = runs_of(one)
    assert run.history.logged_as("val_loss") == ([20, 40, 60, 80, 100, 119], [2.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    assert run.history.logged_as("entropy")[1] == [0, 1, 2, 3, 4, 5]
    assert run.history.measurements("test_accuracy")[0].tolist() == [20, 40, 60, 80, 100] and run.accuracy == 0.5
    assert "test_loss_rises" in run.findings
    with (tmp_path / "metrics.csv").open("wb") as file:
        run_files.metrics_csv(run, file)
    head, *lines = (tmp_path / "metrics.csv").read_text().splitlines()
    assert head.endswith(",val_loss,entropy") and lines[40].endswith(",1.0,1.0") and lines[41].endswith(",,")
    library = Library(tmp_path / "runs.db")
    assert library.load(run.id).history.logged == run.history.logged
    library.close()


def test_a_reward_that_collapses_is_told_and_the_loss_need_not_fall(watch: Watch) -> None:
    one, model, optimizer = trained(watch)
    for step in range(160):
        steps(model, optimizer, 1, scale=1 + step)
        one.log(reward=100 - abs(step - 60), kl=0.1 * step)
    one.close()
    (run,) = runs_of(one)
    assert "reward_lost" in run.findings and "KL" in run.findings["reward_lost"].evidence
    assert not run.findings.keys() & {"loss_not_decreasing", "loss_oscillating", "loss_spike"}


def test_rows_have_the_script_s_own_numbers_in_texts_and_in_files(watch: Watch, capsys: Any) -> None:
    one, model, optimizer = trained(watch)
    one.log(step=500)
    steps(model, optimizer, 30)
    steps(model, optimizer, 1, scale=math.nan)
    one.close()
    (run,) = runs_of(one)
    assert run.history.column("step").tolist() == [*range(500, 531)] and run.first_nonfinite_step == 30
    assert one.findings[0].when == "step 530" and "at step 530" in one.findings[0].evidence
    assert "step 530 is not finite" in capsys.readouterr().err


@pytest.mark.parametrize("told", [None, 20])
def test_a_run_that_is_resumed_goes_on_behind_the_rows_of_the_one_before(
    watch: Watch, told: int | None, tmp_path: Path
) -> None:
    first, model, optimizer = trained(watch)
    steps(model, optimizer, 30)
    name = first.run
    first.close()
    before = runs_of(first)[0].history.column("loss")
    one = watch(model, optimizer, resume=name)
    if told is not None:
        one.log(step=told)
    steps(model, optimizer, 10)
    one.close()
    (run,) = runs_of(one)
    count = told or 30
    assert (run.parent, run.parent_step, len(run.history)) == (name, count, count + 10)
    assert run.history.column("step").tolist() == [*range(count + 10)]
    assert run.history.column("loss", 0, count).tolist() == before[:count].tolist()
    library = Library(tmp_path / "runs.db")
    kept = library.load(run.id)
    library.close()
    assert (kept.parent, kept.own) == (name, 10)


def test_a_run_that_cannot_be_resumed_begins_by_itself_with_one_line(watch: Watch, capsys: Any) -> None:
    one, model, optimizer = trained(watch, resume="no-such-run")
    steps(model, optimizer, 3)
    one.close()
    assert "resume=no-such-run: " in capsys.readouterr().err and runs_of(one)[0].parent == ""


def test_who_asked_for_it_hears_of_a_finding_and_of_a_stall(
    watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(stall, "STALLED", 0.05)
    monkeypatch.setattr(stall, "TIMES", 0)
    heard: list[Finding] = []
    texts: list[tuple[str, str, int]] = []
    writer = SimpleNamespace(add_text=lambda *given: texts.append(given))
    command = f"{sys.executable} -c \"import sys; open('told.json', 'w').write(sys.stdin.read())\""
    monkeypatch.chdir(tmp_path)
    one, model, optimizer = trained(watch, on_finding=[heard.append, command, lambda finding: 1 / 0], to=writer)
    steps(model, optimizer, 3)
    until(lambda: any(finding.rule == "stalled" for finding in heard))
    steps(model, optimizer, 1, scale=math.nan)
    one.close()
    rules = [finding.rule for finding in heard]
    assert rules == ["stalled", "nonfinite_loss"] and [text[2] for text in texts] == [2, 3]
    assert json.loads((tmp_path / "told.json").read_text())["rule"] == "nonfinite_loss"
    assert "a finding was not passed on: ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "fault"), [({"to": "comet"}, ValueError), ({"on_finding": 3}, TypeError)], ids=["to", "on_finding"]
)
def test_nobody_to_tell_is_refused_at_once(watch: Watch, options: dict[str, Any], fault: type[Exception]) -> None:
    with pytest.raises(fault, match=r"allowed|must be"):
        watch(small_net(), **options)


def test_a_tracker_that_is_not_in_use_is_said_once(capsys: Any) -> None:
    messenger.say_once.cache_clear()
    assert messenger.tellers_of(None, ["wandb", "wandb"]) == []
    assert capsys.readouterr().err.count("nothing of it is in use") == 1
