"""The files of maps: where a new one goes, and what one is exported as."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from gradstudio.core import files
from gradstudio.gui.services.jobs import JobError
from gradstudio.session.map import journal
from gradstudio.session.map.journal import JournalContent, JournalError
from gradstudio.session.map.map_plan import Plan
from gradstudio.session.record.run import Run

FOLDER = "maps"  # beside the library


def load(path: Path) -> JournalContent:
    try:
        return journal.load(path)
    except JournalError as fault:
        raise JobError(str(fault)) from None


def folder() -> Path:
    return files.user_library().parent / FOLDER


def _name(plan: Plan) -> str:
    return f"{plan.preset.id}-{plan.x.knob.partition('.')[2]}-{plan.y.knob.partition('.')[2]}"


def new_file(plan: Plan) -> Path:
    """Return an unused path in the folder of maps."""
    name, number = _name(plan), 1
    while (path := folder() / f"{name}-{number}.map").exists():
        number += 1
    return path


def to_export(kind: str, stored: JournalContent, run: Run) -> tuple[str, Callable[[], files.Content]]:
    """Return the name of a file to export, and what makes its content: the report of a run, or a file of the map."""
    if kind == "report":
        return f"{run.preset.id}-report.html", partial(_report, run, stored)
    return f"{_name(stored.plan)}.{kind}", partial(_exported, stored, kind)


def _exported(stored: JournalContent, kind: str) -> files.Content:
    """Return one of a map's files. It takes long: matplotlib draws the pictures."""
    from gradstudio.session.map import picture_file, tables

    if kind in ("png", "svg"):
        return picture_file.render(stored, kind)
    return partial(tables.write_csv if kind == "csv" else tables.write_npz, stored)


def _report(run: Run, stored: JournalContent) -> files.Content:
    from gradstudio.session.files import report
    from gradstudio.session.map import report_section

    return report.content(run, "html", more=[report_section.of(run, stored)])
