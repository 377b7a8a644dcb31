"""`gradstudio grade` trains the runs of worksheets again, and writes a table of the class."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradstudio.commands import exit_codes
from gradstudio.commands.options import Json
from gradstudio.commands.terminal import WrongRequest, complain, say, say_json, table
from gradstudio.commands.whole_runs import train_whole

if TYPE_CHECKING:
    from gradstudio.core.assignment import Assignment
    from gradstudio.session.course.grading import Grader
    from gradstudio.session.files.report.worksheet_report import HandedIn

MOST_SHEETS = 500
HEAD = (
    "file", "name", "exercise", "seed", "same_as", "verified", "reason", "score", "of", "by_teacher", "of_teacher",
)  # fmt: skip


def grade(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder with the worksheets that were handed in.")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder for class.csv and class.html.")],
    exercise: Annotated[
        list[Path] | None, typer.Option("--exercise", metavar="FILE.toml", help="An exercise of your own. Repeatable.")
    ] = None,
    exam: Annotated[
        list[Path] | None, typer.Option("--exam", metavar="FILE", help="An exam that was taken. Repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train the runs of worksheets and of answer sheets again, say which ones repeat, and judge the answers. Exit code:
    0 all are verified, 1 one is not, 2 wrong request, 130 interrupted."""
    from gradstudio.core import exam as exams
    from gradstudio.core import exercise as exercises
    from gradstudio.session.course.grading import Grader
    from gradstudio.session.files import csv_table, output, report

    known: dict[str, Assignment] = {f"exercise {id}": exercises.load(id) for id in exercises.available()}
    known |= {f"exercise {sheet.id}": sheet for sheet in map(exercises.read, exercise or [])}
    known |= {f"exam {loaded.id}": loaded for loaded in map(exams.read, exam or [])}
    grader, sheets = Grader(train_whole), _sheets(folder)
    output.check_folder(out)  # before a class is trained for nothing
    handed = [_read_sheet(path, known, grader) for path in sheets]
    given = _points_of_teacher(out / "class.csv")
    told = [_as_json(each, handed) | {"by_teacher": given.get(each.file)} for each in handed]
    rows = [tuple(each[name] for name in HEAD) for each in told]
    lines = b"".join(csv_table.line([_cell(value) for value in row]) for row in (HEAD, *rows))
    page = report.grade_table(handed, known, "html")
    written = output.write_together({out / "class.csv": lines, out / "class.html": page})
    if as_json:
        say_json({"worksheets": told})
    else:
        table(("File", "Name", "Verified", "Score", "Why"), list(map(_row, told)))
        for path in written:
            say(str(path))
    verified = all(each.grade is not None and each.grade.verified for each in handed)
    raise typer.Exit(exit_codes.FINISHED if verified else exit_codes.FAILED)


def _points_of_teacher(table: Path) -> dict[str, str]:
    """Return the points for sentences that a teacher wrote into the table of a class, by file."""
    try:
        rows = list(csv.DictReader(table.read_text("utf-8-sig").splitlines()))
    except (OSError, ValueError, csv.Error):
        return {}
    return {row["file"]: row["by_teacher"] for row in rows if row.get("file") and row.get("by_teacher")}


def _sheets(folder: Path) -> list[Path]:
    """Return the files to grade, by name."""
    from gradstudio.core.files import reason

    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".toml")
    except OSError as fault:
        raise WrongRequest(f"{folder}: {reason(fault)}") from None
    if not paths:
        raise WrongRequest(f"{folder} has no .toml file; a worksheet is written by gradstudio course hand-in")
    if len(paths) > MOST_SHEETS:
        raise WrongRequest(f"{folder} has {len(paths):,} worksheets; allowed: at most {MOST_SHEETS}")
    return paths


def _read_sheet(path: Path, known: dict[str, Assignment], grader: Grader) -> HandedIn:
    from gradstudio.core.assignment import AssignmentError
    from gradstudio.core.text import clean, one_line, shorten
    from gradstudio.session.course import grading
    from gradstudio.session.files.report.worksheet_report import HandedIn

    name = shorten(clean(path.name), 80)
    try:
        sheet = grading.read(path)
    except AssignmentError as fault:
        return HandedIn(name, None, None, shorten(one_line(str(fault)), 300))
    shown = sheet.model_copy(update={part: clean(getattr(sheet, part)) for part in ("name", sheet.key)})
    asked = known.get(sheet.what)
    if asked is None:
        return HandedIn(name, shown, None, _unknown(shown.what, known))
    if grading.is_handed_in(sheet):
        complain(f"{name}: its runs are trained again")
    return HandedIn(name, shown, grader.grade(sheet, asked))


def _unknown(what: str, known: Iterable[str]) -> str:
    """Return the message that the exam or exercise of a sheet is unknown, and how to name it."""
    kind = what.partition(" ")[0]
    alike = ", ".join(each.partition(" ")[2] for each in known if each.startswith(f"{kind} "))
    option = "--exam FILE" if kind == "exam" else "--exercise FILE.toml"
    return f"no {what} is known{alike and f'; there are: {alike}'}; name its file with {option}"


def _as_json(handed: HandedIn, everybody: Sequence[HandedIn]) -> dict[str, Any]:
    from gradstudio.session.files.report import worksheet_report

    sheet, grade = handed.sheet, handed.grade
    return {
        "file": handed.file,
        "name": sheet.name if sheet else None,
        "exercise": sheet.assignment if sheet else None,
        "seed": getattr(sheet, "seed", None),
        "same_as": ", ".join(worksheet_report.same_as(handed, everybody)),
        "verified": grade is not None and grade.verified,
        "reason": grade.reason if grade else handed.fault,
        "score": grade.score if grade else None,
        "of": grade.most if grade else None,
        "of_teacher": grade.most_by_teacher if grade else None,
        "runs": [
            {"name": verdict.name, "repeats": not verdict.fault, "exact": verdict.exact, "outcome": verdict.run.status}
            for verdict in (grade.verdicts if grade else [])
        ],
        "answers": [
            {"answer": each.answer, "points": each.points, "of": each.question.points}
            for each in (grade.answers if grade else [])
        ],
    }


def _row(told: dict[str, Any]) -> tuple[str, ...]:
    score = "" if not told["of"] else f"{told['score']} of {told['of']}"
    return told["file"], told["name"] or "", "yes" if told["verified"] else "no", score, told["reason"]


def _cell(value: object) -> object:
    return "" if value is None else ("yes" if value else "no") if isinstance(value, bool) else value
