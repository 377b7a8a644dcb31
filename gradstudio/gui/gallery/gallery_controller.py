"""Connects the gallery to the program: presets and the latest run of the library are opened from it, and finished
lessons are stored in the settings."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Signal

from gradstudio.core.presets import Preset
from gradstudio.core.text import one_line, shorten
from gradstudio.gui import user_settings
from gradstudio.gui.gallery.gallery_page import GalleryPage
from gradstudio.gui.services.context import Context
from gradstudio.session.library.run_entries import Entry
from gradstudio.session.library.store import Library
from gradstudio.session.words import run_texts

LOOK_EVERY = 2000  # ms between two searches for the latest run
LONGEST_TITLE = 40  # letters of the latest run on its button


class GalleryController(QObject):
    left = Signal()  # the plots are to be shown

    def __init__(self, context: Context, page: GalleryPage) -> None:
        super().__init__(page)
        self._context, self._page = context, page
        self._last: Entry | None = None
        self._finished = user_settings.FINISHED_LESSONS.get()
        self._again = QTimer(self, singleShot=True)
        self._again.timeout.connect(self.look)
        page.at_start.setChecked(user_settings.GALLERY_AT_START.get())
        page.show_finished(self._finished)
        page.chosen.connect(self._open)
        page.last_asked.connect(self._open_last)
        page.left.connect(self.left)
        page.at_start_changed.connect(user_settings.GALLERY_AT_START.set)

    def look(self) -> None:
        """Find the latest run of the library, if there is one, now and while the gallery is shown: a run that was just
        left is still being written."""
        if self._page.isVisible():
            self._again.start(LOOK_EVERY)
            if self._context.library.path.exists():
                self._context.library.ask(_latest, self._offer)

    def finish(self, preset: Preset) -> None:
        """Store that a lesson is finished."""
        if preset.lesson and preset.id not in self._finished and len(self._finished) < user_settings.MOST_FINISHED:
            self._finished = self._finished | {preset.id}
            user_settings.FINISHED_LESSONS.set(self._finished)
            self._page.show_finished(self._finished)

    # ---- inside

    def _open(self, preset: Preset) -> None:
        self.left.emit()
        self._context.controls.open_preset(preset.path or preset.id)

    def _open_last(self) -> None:
        if self._last is not None:
            self.left.emit()
            self._context.controls.open_asked.emit(self._last.id)

    def _offer(self, entry: Entry | None) -> None:
        self._last = entry
        if entry is None:
            self._page.offer_last("")
        else:
            title = shorten(one_line(entry.title), LONGEST_TITLE)
            self._page.offer_last(f"{title}, {run_texts.outcome(entry)[0]}")


def _latest(library: Library) -> Entry | None:
    return next(iter(library.entries()), None)
