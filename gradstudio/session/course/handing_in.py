"""Handing in a worksheet: its runs are looked for in the library, and what each takes of memory is worked out."""

from __future__ import annotations

from gradstudio.core.exercise import Exercise, ExerciseRun
from gradstudio.core.footprint import Footprint
from gradstudio.session.course import worksheet
from gradstudio.session.course.worksheet import Worksheet, WorksheetError, why_not
from gradstudio.session.footprint import texts
from gradstudio.session.footprint.process import FootprintProcess, FootprintUnknown
from gradstudio.session.library.store import Library
from gradstudio.session.record.run import Run

MOST_LOOKED_AT = 300  # latest runs of a preset among which those of a worksheet are looked for


def handed_in(library: Library, sheet: Worksheet, exercise: Exercise) -> tuple[Worksheet, dict[str, Run]]:
    """Return the worksheet with what its runs were, and the runs by name; WorksheetError where one is missing."""
    return worksheet.hand_in(sheet, exercise, lambda asked, id: _run_for(library, asked, id, sheet.seed))


def _run_for(library: Library, asked: ExerciseRun, id: str, seed: int) -> Run:
    """Return the run of a worksheet: the one that it names, or else the latest that fits."""
    if id.strip():
        run = library.load(library.find(id.strip()))
        if why := why_not(run, asked, seed):
            raise WorksheetError(f"{asked.name}: the run {run.id} {why}")
        return run
    latest = [entry for entry in library.entries() if entry.preset == asked.preset and not entry.watched]
    nearest = ""
    for entry in latest[:MOST_LOOKED_AT]:
        run = library.load(entry.id)
        why = why_not(run, asked, seed)
        if not why:
            return run
        nearest = nearest or f"; the latest run of that preset {why}"
    knobs = " ".join([*asked.knobs, f"run.seed={seed}"])
    raise WorksheetError(
        f"{asked.name}: the library has no run of the preset {asked.preset} with {knobs} that has ended{nearest}"
    )


def peaks(exercise: Exercise, seed: int) -> dict[str, str]:
    """Return what a step of each run takes of memory; a run without it where that is not known."""
    found_peaks: dict[str, str] = {}
    process = FootprintProcess()
    try:
        for asked in exercise.run:
            try:
                answers = list(process.ask(asked.starts_with(seed)))
            except FootprintUnknown:
                continue
            found = next(each for each in answers if isinstance(each, Footprint))
            found_peaks[asked.name] = texts.size(found.peak)
    finally:
        process.close()
    return found_peaks
