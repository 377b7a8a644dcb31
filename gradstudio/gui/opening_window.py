"""What the window opens: the gallery, large pages in place of the plots, and any file, by its kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QWidget

from gradstudio.core import studio_file
from gradstudio.gui.drawn_window import DrawnWindow
from gradstudio.gui.gallery.gallery_controller import GalleryController
from gradstudio.gui.services.context import Context
from gradstudio.gui.services.file_jobs import CRASH, LOGS, log_of
from gradstudio.gui.shell.projector_view import ProjectorView
from gradstudio.session.record.run import Run


class OpeningWindow(DrawnWindow):
    """A window that opens pages and files; its subclass creates the parts."""

    context: Context
    projector: ProjectorView
    gallery: GalleryController

    def toggle_gallery(self) -> None:
        """Show the gallery in place of the plots, or the plots again."""
        self.show_plots() if self.gallery_page.isVisible() else self.show_gallery()

    def show_gallery(self) -> None:
        self._remember_run_behind_gallery()
        self.pages.setCurrentWidget(self.gallery_page)
        self.gallery_page.search.setFocus()
        self.gallery.look()

    def show_large(
        self, page: QWidget, title: str, put_away: Callable[[], object] | None = None, *, alone: bool = False
    ) -> None:
        """Show a page in place of the plots, whatever is shown now; `put_away` is called once it is no longer visible.
        `alone`: nothing is shown beside it."""
        self.projector.leave()
        self.show_plots()
        if alone:
            put_away = self._leave_alone(put_away)
        self.columns.middle.show_large(page, title, put_away)
        self._show_title()

    def _leave_alone(self, put_away: Callable[[], object] | None) -> Callable[[], object]:
        """Hide everything about the run of the simulator. The returned function restores it."""
        self.columns.middle.show_plots()  # first: the former content restores what it has hidden
        back = self.columns.leave_alone()
        bars = (self.top, self.figures)

        def put_back() -> None:
            for bar in bars:
                bar.show()
            back()
            self._show_title()
            if put_away is not None:
                put_away()

        for bar in bars:
            bar.hide()
        return put_back

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if event.mimeData().hasUrls():
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        paths = [Path(url.toLocalFile()) for url in event.mimeData().urls() if url.isLocalFile()]
        if len(paths) != 1 or not self.open_file(str(paths[0])):
            self.message.show_error(
                "Only a single file can be dropped here: a preset, which ends in .toml, a studio file, in .py, a map, "
                "in .map, an exam, in .exam, a crash file, in .crash, or the log of a training: a table (.csv, .tsv, "
                ".txt), JSON, TensorBoard, W&B or MLflow."
            )

    def open_file(self, name: str) -> bool:
        """Open a file by its kind; return whether it can be opened."""
        from gradstudio.gui import late_imports

        path = Path(name)
        files = late_imports.assignment_files
        if path.suffix == ".toml" and files.is_worksheet(path):
            files.open_worksheet(self.context, path)
        elif path.suffix == ".toml" or studio_file.is_named(path):
            self.controls.open_preset(path)  # which runs nothing of it
        elif path.suffix == ".map":
            self.columns.show_page("map")
            self.map.open(path)
        elif path.suffix == CRASH:
            late_imports.crash_page.open_file(self.context, path)
        elif path.suffix == ".exam":
            files.open_exam(self.context, path)
        elif path.suffix in (".csv", ".tsv", ".txt") or "tfevents" in path.name:
            self.show_plots()
            late_imports.plot_menu.import_curve(self.context, self.plots.overlays, self.plots.loss, path)
        elif path.suffix in LOGS or path.is_dir():
            self.context.files.read(path, log_of, self.show_log)
        else:
            return False
        return True

    def show_log(self, run: Run) -> None:
        """Show a finished training from a log."""
        self.show_plots()
        self.controls.show_stored(run)
