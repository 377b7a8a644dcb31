"""Taking an exam in a terminal: it reads one command after the other."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np

from gradstudio.commands.terminal import say, table
from gradstudio.commands.whole_runs import train_whole
from gradstudio.core.assignment import LETTERS, AssignmentError
from gradstudio.core.knobs import KnobError, format_value
from gradstudio.core.text import number, percent, plural
from gradstudio.core.unknown import is_known, known_mask
from gradstudio.session.course.exam_taking import Attempt
from gradstudio.session.course.grading import Grader
from gradstudio.session.files import output
from gradstudio.session.record.run import Run

ROWS = 16  # of a table of steps
LONGEST_NUMBER = 4  # digits of a try's
COLUMNS = ("loss", "grad_norm", "clipped_norm", "update_ratio", "weight_norm", "scale")
METRICS = ("grad_norm", "weight_norm", "update_ratio", "largest_grad", "zero_share")
HELP_TEXT = """run                 train the run as it stands; the first thing to do
try KNOB=VALUE ...  train it with knobs changed
look [N]            the measurements of try N (0: as it stands), or of the latest
layers [N]          its layers at the step before the end
knobs [TEXT]        the knobs, those with TEXT in their names; hidden ones with a question mark
diagnose LETTER     say what the cause is; the first answer counts
hand in N           hand in try N as the fix
quit                go away; what was done is kept in the answer sheet"""


class ExamPrompt:
    """An exam that is taken in a terminal."""

    def __init__(self, attempt: Attempt, path: Path) -> None:
        self._attempt = attempt
        self._path = path
        self._runs: dict[int, Run] = {}  # by try; an earlier try is trained again when it is viewed

    def go(self) -> None:
        exam = self._attempt.exam
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")  # bytes that cannot be decoded are not a command
        say(f"{exam.title}. {exam.text}\n")
        self._tell_choices()
        say(f"\n{self._budget()} `help` tells the commands.")
        while True:
            if sys.stdin.isatty():
                print("exam> ", end="", flush=True)
            line = sys.stdin.readline()
            words = line.split()
            if not line or words in (["quit"], ["exit"]):
                return
            if words and self._do(words):
                return

    def _do(self, words: list[str]) -> bool:
        """Carry out a command; True once the exam is handed in."""
        try:
            match words:
                case ["help"]:
                    say(HELP_TEXT)
                case ["run"]:
                    self._try([])
                case ["try", *texts]:
                    self._try(texts)
                case ["look"] | ["look", _]:
                    self._look(self._place(words))
                case ["layers"] | ["layers", _]:
                    self._layers(self._place(words))
                case ["knobs", *texts]:
                    self._knobs(" ".join(texts))
                case ["diagnose", letter]:
                    self._attempt.diagnose(letter)
                    self._keep()
                    say(f"Kept. {self._budget()}")
                case ["hand", "in", place]:
                    self._attempt.hand_in(_number(place))
                    self._keep()
                    self._result()
                    return True
                case _:
                    say(f"{' '.join(words)[:60]!r} is no command; allowed:\n{HELP_TEXT}")
        except (KnobError, AssignmentError) as fault:
            say(f"Not allowed: {fault}")
        return False

    def _try(self, texts: list[str]) -> None:
        run = self._attempt.run(texts)
        train_whole(run)
        self._attempt.add_try(run, texts)
        self._keep()
        place = len(self._attempt.sheet.tries) - 1
        self._runs[place] = run
        self._look(place)
        say(self._budget())

    def _place(self, words: list[str]) -> int:
        last = len(self._attempt.sheet.tries) - 1
        text = words[1] if len(words) > 1 else str(last)
        if last < 0:
            raise KnobError("nothing was trained yet; allowed: run")
        place = _number(text)
        if not 0 <= place <= last:
            raise KnobError(f"there is no try {text[:20]}; allowed: 0 to {last}")
        return place

    def _run(self, place: int) -> Run:
        if place not in self._runs:
            self._runs[place] = self._attempt.again(place)
            train_whole(self._runs[place])
        return self._runs[place]

    def _look(self, place: int) -> None:
        run = self._run(place)
        rows = len(run.history)
        steps = _steps(run)
        head = [name for name in COLUMNS if known_mask(run.history.column(name)).any()]
        cells = [(str(step), *(_figure(run, name, step) for name in head)) for step in steps]
        table(("step", *head), cells, headed=True)
        right = run.history.column("test_accuracy")
        measured = [step for step in range(rows) if known_mask(right[step : step + 1])[0]]
        shown = measured[:: max(len(measured) // 6, 1)]
        if len(shown) > 1:
            say("Test set right: " + ", ".join(f"{percent(float(right[step]))} at step {step:,}" for step in shown))
        ended = {"finished": "It finished", "nonfinite": f"It diverged at step {run.first_nonfinite_step}"}
        score = "" if run.accuracy is None else f", with {percent(run.accuracy)} of the test set right"
        told = ended.get(run.status, f"It failed: {run.message}")
        loss = "" if not rows else f"; its last loss is {number(run.history.value('loss', rows - 1))}"
        say(f"{told}{score}{loss}.")

    def _layers(self, place: int) -> None:
        run = self._run(place)
        step = max(len(run.history) - 2, 0)
        if not len(run.history):
            say("It has no step.")
            return
        rows = [
            (layer.name, *(_format(float(run.history.layer_metric(name)[step, at])) for name in METRICS))
            for at, layer in enumerate(run.history.layers)
        ]
        say(f"At step {step:,}:")
        table(("layer", *METRICS), rows, headed=True)

    def _knobs(self, text: str) -> None:
        exam = self._attempt.exam
        experiment, _ = exam.experiment()
        rows = [
            (knob.name, format_value(value) if exam.is_shown(knob.name) else "?",
             "locked" if exam.is_locked(knob.name) else "", ", ".join(map(str, knob.choices)) if knob.choices else "")
            for knob, value in experiment.items()
            if text.lower() in knob.name
        ]  # fmt: skip
        table(("knob", "value", "", "choices"), rows)

    def _tell_choices(self) -> None:
        say("What is the cause?")
        for letter, text in zip(LETTERS, self._attempt.exam.choices, strict=False):
            say(f"  {letter}. {text}")

    def _budget(self) -> str:
        attempt = self._attempt
        said = f"Your diagnosis is {attempt.sheet.diagnosis}." if attempt.sheet.diagnosis else "No diagnosis yet."
        knobs = plural(attempt.exam.changes, "knob", "knobs")
        return f"{plural(attempt.tries_left, 'try is', 'tries are')} left; each may change {knobs}. {said}"

    def _keep(self) -> None:
        output.write_together({self._path: self._attempt.sheet.to_toml()})

    def _result(self) -> None:
        say("Handed in. The fix is trained with the other seeds.")
        grade = Grader(train_whole).grade(self._attempt.sheet, self._attempt.exam)
        for each in grade.answers:
            right = "" if each.points == each.question.points else f" Right: {each.right}"
            say(f"{each.question.text}, {each.points} of {each.question.points}: {each.answer}{right and '.' + right}")
        say(f"{grade.score} of {grade.most} points" + ("" if grade.verified else f": {grade.reason}"))
        say(f"The answer sheet is {self._path}.")


def _number(text: str) -> int:
    """Return the number of a try as typed; -1 if it is not one."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER else -1


def _steps(run: Run) -> list[int]:
    """Return the steps to show: evenly spread over the run, its last ones, and the one with the largest norm."""
    rows, norm = len(run.history), run.history.column("grad_norm")
    finite = np.where(np.isfinite(norm), norm, -1.0)
    even = {round(at * (rows - 1) / (ROWS - 1)) for at in range(ROWS)} if rows else set()
    return sorted({*even, *range(max(rows - 3, 0), rows), *([int(np.argmax(finite))] if rows else [])})


def _figure(run: Run, name: str, step: int) -> str:
    return _format(float(run.history.value(name, step)))


def _format(value: float) -> str:
    return number(value) if is_known(value) else ""
