"""The devices that can train here, as a menu."""

from __future__ import annotations

from PySide6.QtGui import QActionGroup
from PySide6.QtWidgets import QMenu

from gradstudio.gui.services.context import Context
from gradstudio.session.machine.device_search import Machine


def fill(menu: QMenu, context: Context, machine: Machine) -> None:
    """List the devices; until torch is loaded, only those that are there on any machine."""
    group = QActionGroup(menu)
    for device, name in (
        ("auto", "the first accelerator, or the CPU"),
        *(machine.devices or (("cpu", "the processor"),)),
    ):
        action = menu.addAction(
            f"{device}: {name}", lambda device=device: context.controls.set_knob("run.device", device)
        )
        action.setCheckable(True)
        action.setChecked(context.simulator.requested.run.device == device)
        group.addAction(action)
    if not machine.ready:
        menu.addAction("Looking for accelerators …").setEnabled(False)
    elif len(machine.devices) == 1:
        menu.addAction("No accelerator was found: training on the CPU").setEnabled(False)
