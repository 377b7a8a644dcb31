"""The devices that can train, here and at the user's places, as a menu."""

from __future__ import annotations

from functools import partial

from PySide6.QtGui import QActionGroup
from PySide6.QtWidgets import QMenu

from gradstudio.core import worker_places
from gradstudio.core.text import shorten
from gradstudio.core.worker_places import Place, PlaceError
from gradstudio.gui.services.context import Context
from gradstudio.gui.services.message_bar import NEWS_STAY
from gradstudio.gui.shell.place_dialog import PlaceDialog
from gradstudio.session.machine import place_search
from gradstudio.session.machine.device_search import Machine
from gradstudio.session.machine.place_search import PlaceAnswer

LONGEST = 90  # characters of an entry
AUTOMATIC = ("auto", "the first accelerator, or the CPU")


class DeviceMenu:
    """Lists the devices. Places are queried when a menu is opened for the first time, or again."""

    def __init__(self, context: Context, machine: Machine) -> None:
        self._context, self._machine = context, machine
        self._answers: dict[Place, PlaceAnswer | None] = {}  # None: the query is pending

    def fill(self, menu: QMenu) -> None:
        """List what is known now; an open menu also shows what comes later."""
        group = QActionGroup(menu)
        here = self._machine.devices or (("cpu", "the processor"),)
        for device, name in (AUTOMATIC, *here):
            self._add(menu, group, device, f"{device}: {name}", None)
        if not self._machine.ready:
            menu.addAction("Looking for accelerators …").setEnabled(False)
        elif len(self._machine.devices) == 1:
            menu.addAction("No accelerator was found: training on the CPU").setEnabled(False)
        try:
            places = list(worker_places.read().values())
        except PlaceError as fault:
            places = []
            menu.addAction(shorten(str(fault), LONGEST)).setEnabled(False)
        for place in places:
            self._list_place(menu, group, place)
        menu.addSeparator()
        menu.addAction("Add a place…", lambda: PlaceDialog(self._context).open())
        if places:
            menu.addAction("Ask places again", self._answers.clear)
        for place in places:
            menu.addAction(f"Forget {place.name}", partial(self._forget, place))

    def _list_place(self, menu: QMenu, group: QActionGroup, place: Place) -> None:
        menu.addSeparator()
        answer = self._answers.get(place)
        if place not in self._answers:
            self._answers[place] = None
            self._context.jobs.start(
                "", lambda task: place_search.ask(place, lambda: task.cancelled), partial(self._take, menu, place)
            )
        if answer is None or answer.problem:
            text = f"Asking {place.name} …" if answer is None else f"{place.name}: {answer.problem}"
            menu.addAction(shorten(text, LONGEST)).setEnabled(False)
            return
        for device, name in (AUTOMATIC, *((each.id, each.in_words) for each in answer.devices)):
            self._add(menu, group, device, f"{device} on {place.name}: {name}", place)

    def _add(self, menu: QMenu, group: QActionGroup, device: str, text: str, place: Place | None) -> None:
        simulator = self._context.simulator
        shown = shorten(text, LONGEST).replace("&", "&&")
        action = menu.addAction(shown, partial(self._context.controls.train_at, place, device))
        action.setCheckable(True)
        action.setChecked(simulator.requested.run.device == device and simulator.next_place == place)
        group.addAction(action)

    def _take(self, menu: QMenu, place: Place, answer: PlaceAnswer) -> None:
        self._answers[place] = answer
        if menu.isVisible():
            menu.aboutToShow.emit()  # refills it

    def _forget(self, place: Place) -> None:
        if self._context.simulator.next_place == place:
            self._context.controls.train_at(None, "auto")
        again = ("Add it again", partial(worker_places.add, place.name, place.command, keep=place.keep))
        try:
            worker_places.remove(place.name)
            self._context.message.show_news(f"Forgot {place.name}: {place.command}", action=again, stay=NEWS_STAY)
        except PlaceError as fault:
            self._context.message.show_error(str(fault))
