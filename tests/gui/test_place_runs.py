"""The runs of a place in the window: listed, followed while one trains there, stopped, and copied home."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot
from waiting import ENDLESS, LONG, PATIENCE, hold, until

from gradstudio.core import files, worker_places
from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.gui.runs.place_runs import NO_PLACE, PlaceRunsDialog
from gradstudio.gui.window import Window
from gradstudio.session.library.store import Library
from gradstudio.session.simulator import Simulator

ROOT = Path(__file__).parents[2]
SMALL = {"model.width": 8, "model.depth": 1, "problem.batch_size": 16, "run.device": "cpu", "run.steps": ENDLESS}


def test_a_run_of_a_place_is_followed_and_copied(
    make_window: Callable[..., Window], qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    window = make_window()
    window.commands.commands["open_place"].call()
    assert NO_PLACE in window.message.text.text()
    theirs = tmp_path / "runs.sqlite3"
    worker_places.add("lab", f"env GRADSTUDIO_LIBRARY={theirs} PYTHONPATH={ROOT} {sys.executable}")
    trains = Simulator(Preset(id="small", title="Theirs", experiment=Experiment().with_values(SMALL)), theirs)
    hold(trains, 30)
    until(lambda: _is_written(theirs, 30))
    window.commands.commands["open_place"].call()
    dialog = window.findChild(PlaceRunsDialog)
    assert dialog is not None
    qtbot.waitUntil(lambda: dialog.list.count() == 1, timeout=LONG)
    assert "Theirs   paused, 30 steps, today" in dialog.list.item(0).text()
    dialog.show_button.click()
    qtbot.waitUntil(lambda: window.simulator.run.id == trains.run.id, timeout=LONG)
    run = window.simulator.run
    assert window.simulator.is_trained_elsewhere and run is not trains.run
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: len(run.history) > 40, timeout=LONG)
    window.controls.stop()
    qtbot.waitUntil(lambda: run.over, timeout=LONG)
    assert run.status == "stopped" and len(run.history) == len(trains.run.history)
    window.commands.commands["open_place"].call()
    again = window.findChildren(PlaceRunsDialog)[-1]
    qtbot.waitUntil(lambda: again.list.count() == 1, timeout=LONG)
    again.copy_button.click()
    qtbot.waitUntil(lambda: "is in the library here" in window.message.text.text(), timeout=LONG)
    again.reject()
    with closing(Library(files.user_library())) as library:
        assert len(library.load(run.id).history) == len(run.history)
    assert trains.close(PATIENCE)


def _is_written(library: Path, steps: int) -> bool:
    with closing(Library(library)) as stored:
        return [(each.steps, each.outcome) for each in stored.entries()] == [(steps, "paused")]
