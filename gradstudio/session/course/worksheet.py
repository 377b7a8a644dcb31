"""A worksheet: a student's answers to an exercise, with the runs that they were read from. It is a TOML file; handing
it in adds the records of the runs, which are looked up in the student's library."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import tomli_w
from pydantic import Field

from gradstudio.core import assignment
from gradstudio.core.assignment import AssignmentError, Sheet
from gradstudio.core.events import Change
from gradstudio.core.exercise import MOST_RUNS, Exercise, ExerciseRun
from gradstudio.core.experiment import differing_values
from gradstudio.core.knobs import format_value
from gradstudio.core.lesson import Part
from gradstudio.core.text import clean, one_line, plural
from gradstudio.session.course.evidence import ChangeMade, Evidence, evidence
from gradstudio.session.course.questions import ENDED
from gradstudio.session.record.run import Run

if TYPE_CHECKING:
    from gradstudio.session.library.store import Library

LARGEST = 200_000  # bytes of a sheet
LONGEST_ANSWER, LONGEST_NAME = 4_000, 80
SEEDS = 9000  # number of seeds, from 1000 on
MOST_LOOKED_AT = 300  # latest runs of a preset that are searched for those of a worksheet

Answer = Annotated[str, Field(max_length=LONGEST_ANSWER)]


class HandedIn(Part):
    seal: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    run: Annotated[list[Evidence], Field(max_length=MOST_RUNS)]


class Worksheet(Sheet):
    key: ClassVar[str] = "exercise"

    exercise: Annotated[str, Field(max_length=80)]
    name: Annotated[str, Field(max_length=LONGEST_NAME)]
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)]
    answers: dict[str, Answer] = {}
    runs: dict[str, Annotated[str, Field(max_length=200)]] = {}
    handed_in: HandedIn | None = None

    def with_seal(self, runs: Sequence[Evidence]) -> Worksheet:
        """Return the worksheet with the records of its runs."""
        sealed = self.model_copy(update={"handed_in": HandedIn(seal="0" * 64, run=list(runs))})
        return sealed.model_copy(update={"handed_in": HandedIn(seal=sealed.digest(), run=list(runs))})


def seed_of(name: str) -> int:
    """Return the seed of a student's runs, which differs from student to student."""
    return 1000 + int.from_bytes(hashlib.sha256(clean(name).encode()).digest()[:4], "big") % SEEDS


def blank(exercise: Exercise, name: str, file: str = "", source: str = "") -> str:
    """Return an empty worksheet for a student, as text. `file` is where it will be, and `source` the file of an
    exercise that is not bundled, so that its commands can be pasted."""
    seed, at = seed_of(name), " --at 20" if any(run.then for run in exercise.run) else ""
    given = ["gradstudio", "course", "runs", *filter(None, [source]), "--sheet", file or f"{exercise.id}.toml"]
    lines = [
        f"# {exercise.title}. {exercise.text}".strip(), "schema = 1", f"exercise = {_quote(exercise.id)}",
        f"name = {_quote(clean(name))}", f"seed = {seed}  # your own: each run has it", "",
        f"# All runs at once: {shlex.join(given)}{at}",
        "# A figure of a run: gradstudio runs show RUN --measure grad_norm.median", "",
        "[answers]",
    ]  # fmt: skip
    for place, question in enumerate(exercise.question, 1):
        lines += [f"# {place}. {question.text}{question.where}"]
        lines += [f"#    {letter}: {text}" for letter, text in question.lettered_choices]
        lines += [f'q{place} = ""', ""]
    lines += ["[runs]  # the id of each; left empty, the latest run of your library that fits is taken"]
    for run in exercise.run:
        lines += [f"# {run.text}", f"# {run.command(seed)}", f'{run.name} = ""', ""]
    return "\n".join(one_line(line) if line.startswith("#") else line for line in lines) + "\n"


def _quote(text: str) -> str:
    return tomli_w.dumps({"x": text}).partition("= ")[2].strip()


def read(path: Path) -> Worksheet:
    """Return the worksheet in a file; AssignmentError if it is not one."""
    return assignment.read(path, Worksheet, most=LARGEST)


def why_not(run: Run, asked_run: ExerciseRun, seed: int) -> str:
    """Return why a run does not match the exercise, as half a sentence; "" if it does."""
    if run.watched is not None:
        return "was watched, and not trained by the studio"
    if run.status not in ENDED:
        return f"has not ended by itself ({run.status})"
    differs = differing_values(asked_run.starts_with(seed), run.experiment)
    differs.pop("run.device", None)
    if differs:
        return f"has {', '.join(f'{name} = {format_value(value)}' for name, value in sorted(differs.items())[:3])}"
    own = _own_changes(run, asked_run)
    made = {change.knob: change.value for change in own}
    if made != asked_run.changes or len(own) > len(made):
        wanted = ", ".join(f"{name} = {format_value(value)}" for name, value in asked_run.changes.items())
        once = " once" if made == asked_run.changes else ""
        return f"was to be changed{once} while it trained: {wanted}" if wanted else "was changed while it trained"
    if asked_run.outcome is not None and run.status != asked_run.outcome:
        return f"ended as {run.status}, and {asked_run.outcome} was wanted"
    return ""


def evidence_of(run: Run, asked_run: ExerciseRun) -> Evidence:
    """Return the record of a run of an exercise."""
    made = [ChangeMade(step=each.step, knob=each.knob, value=each.value) for each in _own_changes(run, asked_run)]
    return evidence(run, asked_run.name, run.experiment.changed_knobs(), made)


def _own_changes(run: Run, asked_run: ExerciseRun) -> list[Change]:
    """Return the changes that the student made while it trained."""
    planned = {(change.step, change.knob, change.value) for change in asked_run.beginning().timeline}
    return [change for change in run.timeline if (change.step, change.knob, change.value) not in planned]


def hand_in(library: Library, sheet: Worksheet, exercise: Exercise) -> tuple[Worksheet, dict[str, Run]]:
    """Return the worksheet with the records of its runs, and the runs by name; AssignmentError if one is missing."""
    for table, names, allowed in (
        ("answers", sheet.answers, [f"q{place}" for place in range(1, len(exercise.question) + 1)]),
        ("runs", sheet.runs, [run.name for run in exercise.run]),
    ):
        for name in names:
            if name not in allowed:
                raise AssignmentError(f"{table}.{name[:40]}: {exercise.id} has no such; allowed: {', '.join(allowed)}")
    runs = {asked_run.name: run_for(library, asked_run, sheet) for asked_run in exercise.run}
    return sheet.with_seal([evidence_of(runs[asked.name], asked) for asked in exercise.run]), runs


def unanswered_questions(sheet: Worksheet, exercise: Exercise) -> str:
    """Return which questions have no answer, as a sentence; "" if each has one."""
    names = [f"q{place}" for place in range(1, len(exercise.question) + 1)]
    empty = [name for name in names if not sheet.answers.get(name, "").strip()]
    if not empty:
        return ""
    return f"{len(empty)} of {plural(len(names), 'question has', 'questions have')} no answer: {', '.join(empty)}."


def run_for(library: Library, asked_run: ExerciseRun, sheet: Worksheet) -> Run:
    """Return the run of a worksheet: the one that it names, or else the latest match; AssignmentError says why there is
    none."""
    if id := sheet.runs.get(asked_run.name, "").strip():
        run = library.load(library.find(id))
        if why := why_not(run, asked_run, sheet.seed):
            raise AssignmentError(f"{asked_run.name}: the run {run.id} {why}")
        return run
    latest = [entry for entry in library.entries() if entry.preset == asked_run.preset and not entry.watched]
    nearest = ""
    for entry in latest[:MOST_LOOKED_AT]:
        run = library.load(entry.id)
        why = why_not(run, asked_run, sheet.seed)
        if not why:
            return run
        nearest = nearest or f"; the latest run of that preset {why}"
    raise AssignmentError(
        f"{asked_run.name}: the library has no run that has ended of: {asked_run.command(sheet.seed)}{nearest}"
    )


def peaks(exercise: Exercise, seed: int) -> dict[str, str]:
    """Return the memory use of a step of each run, if the exercise asks for it; runs for which it is unknown are left
    out."""
    from gradstudio.core.footprint import Footprint
    from gradstudio.session.footprint import texts
    from gradstudio.session.footprint.process import FootprintProcess, FootprintUnknown

    peak_texts: dict[str, str] = {}
    process = FootprintProcess()
    try:
        for asked_run in exercise.run if exercise.memory else ():
            try:
                answers = list(process.ask(asked_run.starts_with(seed)))
            except FootprintUnknown:
                continue
            peak_texts[asked_run.name] = texts.size(next(each for each in answers if isinstance(each, Footprint)).peak)
    finally:
        process.close()
    return peak_texts
