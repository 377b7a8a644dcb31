"""The device menu: devices here and at the places that a person adds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PySide6.QtWidgets import QLabel, QMenu
from pytestqt.qtbot import QtBot
from waiting import LONG

import gradstudio
from gradstudio.core import worker_places
from gradstudio.gui.shell.place_dialog import PlaceDialog
from gradstudio.gui.window import Window


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The command of a place whose doctor is well."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    device = {"id": "cuda:0", "name": "Card & Co", "free": 8_000_000_000}
    checks = [
        {"name": "GradStudio", "ok": True, "text": gradstudio.__version__, "advice": "", "devices": []},
        {"name": "Devices", "ok": True, "text": "one", "advice": "", "devices": [device]},
    ]
    (tmp_path / "told").write_text("Welcome\n" + json.dumps(checks, indent=2))
    return f"sh -c 'cat {tmp_path}/told'"


def texts(menu: QMenu) -> list[str]:
    return [action.text() for action in menu.actions()]


def test_a_place_is_added_and_its_device_chosen(window: Window, command: str, qtbot: QtBot) -> None:
    menu, simulator = window.knobs.device.menu(), window.simulator
    menu.aboutToShow.emit()
    assert texts(menu)[-1] == "Add a place…"
    menu.actions()[-1].trigger()
    dialog = window.findChild(PlaceDialog)
    assert dialog is not None
    dialog.name.setText("lab")
    dialog.command.setText(command)
    dialog.attempt.click()
    qtbot.waitUntil(lambda: "8 GB free" in dialog.found.text(), timeout=LONG)
    assert "cuda:0: Card & Co, 8 GB free" in dialog.found.text()
    dialog.accept_place()
    assert worker_places.read()["lab"].command == command
    menu.popup(window.pos())
    assert "Asking lab …" in texts(menu)
    qtbot.waitUntil(lambda: "cuda:0 on lab: Card && Co, 8 GB free" in texts(menu), timeout=LONG)
    next(action for action in menu.actions() if "cuda:0 on lab" in action.text()).trigger()
    menu.close()
    assert simulator.next_place is not None and simulator.requested.run.device == "cuda:0"
    window.refresh(whole=True)
    assert window.knobs.device.text() == "cuda:0 on lab"
    simulator.play()  # this command leads to no worker
    qtbot.waitUntil(lambda: simulator.run.over, timeout=LONG)
    assert simulator.run.message.startswith("The worker on lab is gone")
    menu.aboutToShow.emit()
    next(action for action in menu.actions() if action.text() == "Forget lab").trigger()
    assert worker_places.read() == {} and simulator.next_place is None
    window.refresh(whole=True)
    assert " on lab" not in window.knobs.device.text()


def test_what_is_wrong_with_a_place_is_said(window: Window, command: str, qtbot: QtBot) -> None:
    dialog = PlaceDialog(window.context)
    dialog.name.setText("here")
    dialog.accept_place()
    assert "is no name of a place" in dialog.found.text()
    dialog.command.setText("sh -c 'echo no such host >&2; exit 255'")
    dialog.attempt.click()
    qtbot.waitUntil(lambda: dialog.found.text() == "no such host", timeout=LONG)
    assert isinstance(dialog.found, QLabel) and worker_places.read() == {}
    dialog.reject()
