"""Commands for several chosen runs at once: tags, reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QFileDialog

from gradstudio.core import files
from gradstudio.core.text import plural
from gradstudio.gui.services import file_choice
from gradstudio.gui.services.context import Context
from gradstudio.gui.services.file_jobs import draw_file, telling
from gradstudio.gui.services.jobs import JobError, Task
from gradstudio.gui.widgets import popups
from gradstudio.session.library.library_faults import LibraryError
from gradstudio.session.library.run_entries import Entry
from gradstudio.session.library.store import Library
from gradstudio.session.record.run import Run

MOST_REPORTS = 100  # written at once


class SeveralRuns(QObject):
    def __init__(self, context: Context, parent: QObject, changed: Callable[[], object]) -> None:
        super().__init__(parent)
        self._context, self._changed = context, changed

    def ask_tags(self, entries: Sequence[Entry]) -> None:
        """Ask which tags to add to the runs, and which to remove."""
        dialog = popups.input_dialog(
            self._context.parent, f"Tags of {plural(len(entries), 'run', 'runs')}",
            "Tags to add, with commas between them; a tag with a minus before it is removed",
        )  # fmt: skip
        dialog.textValueSelected.connect(partial(self.tag, list(entries)))
        dialog.open()

    def tag(self, entries: Sequence[Entry], text: str) -> None:
        """Add the tags in a text to the runs, and remove those with a minus."""
        words = [" ".join(part.split()) for part in text.split(",") if part.strip()]
        gone = {word.removeprefix("-").strip() for word in words if word.startswith("-")}
        added = [word for word in words if not word.startswith("-")]

        def annotate(library: Library) -> None:
            now = {entry.id: entry.tags for entry in library.entries()}
            for entry in entries:
                if entry.id in now:
                    tags = [tag for tag in now[entry.id] if tag not in gone]
                    library.annotate(entry.id, tags=[*tags, *added])

        def on_done(_: object) -> None:
            self._context.message.show_news(f"Tags written to {plural(len(entries), 'run', 'runs')}.")
            self._changed()

        words = f"Tagging {plural(len(entries), 'run', 'runs')}"
        self._context.library.ask(annotate, on_done, words=words)

    def ask_folder(self, entries: Sequence[Entry]) -> None:
        """Ask for the folder into which a report of each run is written."""
        if len(entries) > MOST_REPORTS:
            self._context.message.show_error(
                f"{len(entries):,} runs are chosen; allowed: at most {MOST_REPORTS} reports at once."
            )
            return
        dialog = popups.file_dialog(self._context.parent, "Folder for the reports", file_choice.folder())
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setOption(QFileDialog.Option.ShowDirsOnly)
        dialog.fileSelected.connect(partial(self.export, list(entries)))
        dialog.open()

    def export(self, entries: Sequence[Entry], folder: str) -> None:
        """Write a report of each run, with the run's name, one after the other. One that cannot be written does not
        affect the others."""
        message, place = self._context.message, Path(folder)

        def on_done(problems: list[str]) -> None:
            if problems:
                message.show_error(problems[-1])
            elif len(entries) == 1:
                path = _place(place, entries[0])
                message.show_written(f"Written: {path}", path)
            else:
                message.show_written(f"Written: {len(entries):,} files into {place}", place)

        words = f"Writing {plural(len(entries), 'report', 'reports')}"
        work = partial(_write, self._context.library.path, entries, place)
        self._context.jobs.start(words, work, on_done, parts=len(entries), writes=True)


def _write(library_path: Path, entries: Sequence[Entry], folder: Path, task: Task) -> list[str]:
    """Write the reports, in a thread; return the errors."""
    problems: list[str] = []
    library = Library(library_path)
    try:
        for entry in entries:
            task.check()
            path = _place(folder, entry)
            try:
                run = library.load(entry.id)
                with telling(path, "was not written"):
                    draw_file(partial(_report, run, entry.note, library.line(run)), path, task)
            except (LibraryError, JobError) as fault:
                problems.append(str(fault))
            task.done += 1
    finally:
        library.close()
    return problems


def _place(folder: Path, entry: Entry) -> Path:
    return folder / f"{files.file_name(entry.id)}.html"


def _report(run: Run, note: str, line: Sequence[Run]) -> files.Content:
    from gradstudio.session.files import report

    return report.content(run, "html", note, line=line)
