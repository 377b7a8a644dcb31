"""The dialog that adds a place: its name, its command, and its devices."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QCheckBox, QDialogButtonBox, QFormLayout, QLabel, QLineEdit

from gradstudio.core import worker_places
from gradstudio.core.worker_places import Place, PlaceError
from gradstudio.gui.services.context import Context
from gradstudio.gui.services.jobs import Task
from gradstudio.gui.widgets.popups import TemporaryDialog
from gradstudio.gui.widgets.roles import set_styled
from gradstudio.gui.widgets.rows import in_column
from gradstudio.session.machine import place_search
from gradstudio.session.machine.place_search import PlaceAnswer

ABOUT = (
    "A place is another Python, machine or container that has GradStudio. The command leads there, without a shell: "
    "ssh lab, docker exec -i box, ~/proj/.venv/bin/python."
)


class PlaceDialog(TemporaryDialog):
    """Runs the command only when Try is pressed."""

    def __init__(self, context: Context) -> None:
        super().__init__(context.parent, "Add a place")
        self._context = context
        self._task: Task | None = None
        about = QLabel(ABOUT, wordWrap=True)
        self.name, self.command, self.found = QLineEdit(), QLineEdit(), QLabel()
        for line, name, example in ((self.name, "Name", "lab"), (self.command, "Command", "ssh lab")):
            line.setPlaceholderText(example)
            line.setAccessibleName(name)
            line.setAccessibleDescription(about.text())
        self.found.setWordWrap(True)
        self.found.setTextFormat(Qt.TextFormat.PlainText)
        self.found.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Ok | QDialogButtonBox.StandardButton.Cancel)
        buttons.button(QDialogButtonBox.StandardButton.Ok).setText("Add")
        self.attempt = buttons.addButton("Try", QDialogButtonBox.ButtonRole.ActionRole)
        self.attempt.setToolTip("Runs the command once, and shows which devices are there")
        self.attempt.clicked.connect(self._try)
        buttons.accepted.connect(self.accept_place)
        buttons.rejected.connect(self.reject)
        self.finished.connect(self._cancel)
        form = QFormLayout()
        form.addRow("Name", self.name)
        form.addRow("Command", self.command)
        self.keep = QCheckBox("Keep training there when the connection breaks")
        self.keep.setToolTip("The run goes on into the library there, and can be followed from here")
        form.addRow("", self.keep)
        in_column(about, form, self.found, buttons, of=self)
        self.resize(520, 220)

    def _try(self) -> None:
        place = Place(self.name.text().strip() or "it", self.command.text().strip())
        try:
            place.words()
        except PlaceError as fault:
            self._show(str(fault), wrong=True)
            return
        self._show("Asking: this takes some seconds …")
        self.attempt.setEnabled(False)
        self._task = self._context.jobs.start(
            "", lambda task: place_search.ask(place, lambda: task.cancelled), self._take, lambda _: None
        )

    def _take(self, answer: PlaceAnswer) -> None:
        self._task = None
        self.attempt.setEnabled(True)
        lines = [f"{each.id}: {each.in_words}" for each in answer.devices]
        self._show(answer.problem or "\n".join([answer.versions, *lines]), wrong=bool(answer.problem))

    def accept_place(self) -> None:
        """Store the place and close, or show why it cannot be stored."""
        try:
            worker_places.add(self.name.text().strip(), self.command.text(), keep=self.keep.isChecked())
        except PlaceError as fault:
            self._show(str(fault), wrong=True)
        else:
            self.accept()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _show(self, text: str, *, wrong: bool = False) -> None:
        set_styled(self.found, "role", "error" if wrong else "dim")
        self.found.setText(text)
