"""The open studio file, watched on disk: once it is saved with another text, the message bar offers to restart with
that. The run keeps the text that it was made with."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from PySide6.QtCore import QFileSystemWatcher, QObject, QTimer

from gradstudio.core import presets, user_presets
from gradstudio.gui.services.message_bar import Action, MessageBar
from gradstudio.gui.services.simulator_controller import SimulatorController
from gradstudio.session.simulator import Simulator

SETTLES = 200  # ms after the last change on disk, as an editor may write a file in several parts
OFFER_STAYS = 600_000  # ms
KEPT = "The run keeps the text that it was made with."
GONE = "gone"  # stands for a deleted file, in place of a hash


class StudioFileWatch(QObject):
    """Watches the studio file of the simulator's preset for changes."""

    def __init__(self, simulator: Simulator, controls: SimulatorController, message: MessageBar) -> None:
        super().__init__(message)  # deleted with the window, in its thread: no other thread may destroy the watcher
        self._simulator, self._controls, self._message = simulator, controls, message
        self._path: Path | None = None
        self._told = ""  # hash of the text that was offered last, or what was wrong with it
        self._shown = ""  # the message about it in the message bar
        self._files = QFileSystemWatcher(self)
        self._settles = QTimer(self, singleShot=True, interval=SETTLES)
        self._settles.timeout.connect(self._look)
        self._files.fileChanged.connect(self._wait)
        self._files.directoryChanged.connect(self._wait_at_most)
        controls.title_changed.connect(self.follow)
        self.follow()

    def follow(self) -> None:
        """Watch the file of the simulator's current preset, if it is a studio file."""
        preset = self._simulator.preset
        path = preset.path if preset.experiment.studio_file is not None else None
        if path is not None and not presets.studio_file.is_named(path):
            path = None  # a preset that contains its own text
        if path != self._path:
            self._path, self._told, self._shown = path, "", ""
            watched = [*self._files.files(), *self._files.directories()]
            if watched:
                self._files.removePaths(watched)
            self._watch()

    def restart(self, path: Path) -> None:
        """Run the studio file at a path from its beginning, with the current knobs, if it still has them."""
        try:
            preset = presets.read(path)
        except presets.PresetError as fault:
            self._message.show_error(str(fault))
            return
        preset, lost = user_presets.with_knobs(preset, self._simulator.requested.changed_knobs())
        self._controls.run_again(preset)
        if lost:
            self._message.show_news(f"The new text of {path.name} does not take what was set: {', '.join(lost)}")

    def _wait(self) -> None:
        self._settles.start()

    def _wait_at_most(self) -> None:
        """Check soon. Other programs may change the folder at any moment: that must not delay it."""
        if not self._settles.isActive():
            self._settles.start()

    def _watch(self) -> None:
        """Watch the file and its folder: an editor may replace the file."""
        if self._path is not None:
            missing = {str(self._path), str(self._path.absolute().parent)} - {
                *self._files.files(), *self._files.directories(),
            }  # fmt: skip
            if there := [path for path in missing if os.path.exists(path)]:
                self._files.addPaths(there)

    def _look(self) -> None:
        """Offer the current text of the file, if it differs."""
        self._watch()
        path, running = self._path, self._simulator.preset.experiment.studio_file
        if path is None or running is None:
            return
        if not os.path.lexists(path):
            self._tell(GONE, f"{path.name} is not on disk any more. {KEPT}")
            return
        try:
            studio_file = presets.read(path).experiment.studio_file
        except presets.PresetError as fault:
            self._tell(str(fault), str(fault), wrong=True)
            return
        assert studio_file is not None
        if studio_file.sha256 == running.sha256:
            self._take_back()
        else:
            again = partial(self.restart, path)
            text = f"{path.name} was changed on disk. {KEPT}"
            self._tell(studio_file.sha256, text, action=("Restart with the new text", again))

    def _tell(self, what: str, text: str, *, action: Action | None = None, wrong: bool = False) -> None:
        """Show a message, once for each state of the file."""
        if what == self._told:
            return
        self._told = what
        if wrong:
            self._message.show_error(text)
        else:
            self._message.show_news(text, action=action, stay=OFFER_STAYS)
        self._shown = self._message.message

    def _take_back(self) -> None:
        """Withdraw the message about the file: it is again the one that the run was made with."""
        if self._shown and self._message.message == self._shown:
            self._message.hide()
        self._told = self._shown = ""
