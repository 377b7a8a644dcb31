"""Worksheets: what a student hands in repeats when it is trained again, and what was forged does not."""

from __future__ import annotations

import csv
import json
import shlex
import tomllib
from pathlib import Path

import pytest
import tomli_w
from typer.testing import CliRunner

from gradstudio.cli import app
from gradstudio.core import exercise, files, measure, presets
from gradstudio.core.assignment import AssignmentError
from gradstudio.session.course import worksheet
from gradstudio.session.files.output import OutputError

EXERCISE = """
schema = 1
title = "Two rates"
[[run]]
name = "slow"
text = "Slow."
preset = "healthy-mlp"
knobs = ["run.steps=12", "model.width=8"]
[[run]]
name = "changed"
text = "Faster from some step on."
preset = "healthy-mlp"
knobs = ["run.steps=12", "model.width=8"]
then = ["optimizer.lr=0.5"]
[[study]]
title = "Rates"
x = "optimizer.lr"
y = "loss.last"
runs = ["slow", "changed"]
[[curves]]
title = "Loss"
column = "loss"
runs = ["slow", "changed"]
[[pair]]
runs = ["slow", "changed"]
[[question]]
text = "How many steps?"
run = "slow"
explain = {measure = "steps", tolerance = 0.0}
points = 2
[[question]]
text = "How did it end?"
run = "changed"
predict = [{text = "NaN", outcome = "nonfinite"}, {text = "At its end", outcome = "finished"}]
[[question]]
text = "Why? <b>Say it</b>"
full = "Because the rate is higher."
points = 3
"""


def command(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    assert done.exit_code == code, (done.output, done.exception)
    return done.stdout


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an exercise and, in `in`, the worksheet of somebody who did it."""
    home = tmp_path_factory.mktemp("lab")
    library = ("--library", home / "runs.sqlite3")
    (home / "two-rates.toml").write_text(EXERCISE)
    sheet = home / "ada.toml"
    command("course", "begin", home / "two-rates.toml", "--name", '=HYPERLINK("x") <i>Ada', "--out", sheet)
    (pasted,) = [
        line[2:]
        for line in sheet.read_text().splitlines()
        if line.startswith("# gradstudio run") and "STEP" not in line
    ]
    command(*pasted.split()[1:], "-q", *library)
    exercise = home / "two-rates.toml"
    made = command("course", "runs", exercise, "--sheet", sheet, "--at", 5, *library)
    assert made.startswith("slow: there is healthy-mlp-") and "changed: finished, kept as" in made
    empty = CliRunner().invoke(
        app,
        [str(each) for each in ("course", "hand-in", sheet, "--exercise", exercise, "--out", home / "empty", *library)],
    )
    assert "3 of 3 questions have no answer: q1, q2, q3." in empty.stderr
    answers = {"q1": "12", "q2": " b ", "q3": "=1+1 <script>alert(1)</script>"}
    filled = tomllib.loads(sheet.read_text()) | {"answers": answers}
    sheet.write_text(tomli_w.dumps(filled))
    command("course", "hand-in", sheet, "--exercise", home / "two-rates.toml", "--out", home / "in", *library)
    return home


def graded(home: Path, sheet: dict | None = None) -> dict:
    """Grade the worksheet, or another in its place, and return what is said of it."""
    folder = home / "in"
    if sheet is not None:
        folder = home / "forged"
        folder.mkdir(exist_ok=True)
        (folder / "ada.toml").write_text(tomli_w.dumps(sheet))
    done = CliRunner().invoke(
        app,
        ["grade", str(folder), "--out", str(home / "class"), "--exercise", str(home / "two-rates.toml"), "--json"],
    )
    assert done.exit_code in (0, 1), (done.output, done.exception)
    (found,) = json.loads(done.stdout)["worksheets"]
    assert (done.exit_code == 0) == found["verified"]
    return found


def sealed(table: dict) -> dict:
    """Return a worksheet with the seal that it would have, as a forger can work it out."""
    sheet = worksheet.Worksheet.model_validate(table)
    table["handed_in"]["seal"] = sheet.digest()
    return table


def test_runs_repeat_to_the_last_bit_and_answers_are_judged(handed_in: Path) -> None:
    found = graded(handed_in)
    assert found["verified"] and found["reason"] == "repeats to the last bit"
    assert (found["score"], found["of"]) == (3, 3)
    assert [each["points"] for each in found["answers"]] == [2, 1, None]
    assert all(each["exact"] for each in found["runs"])


def test_the_table_of_a_class_has_seeds_equal_sheets_and_keeps_the_points_of_a_teacher(handed_in: Path) -> None:
    friend = handed_in / "in" / "friend.toml"
    friend.write_text((handed_in / "in" / "ada.toml").read_text())
    asked = ("grade", handed_in / "in", "--out", handed_in / "alike", "--exercise", handed_in / "two-rates.toml")
    table = handed_in / "alike" / "class.csv"
    try:
        command(*asked)
        (ada, twin) = csv.DictReader(table.read_text().splitlines())
        assert ada["seed"] == twin["seed"] and (ada["same_as"], twin["same_as"]) == ("friend.toml", "ada.toml")
        assert (ada["by_teacher"], ada["of_teacher"]) == ("", "3")
        table.write_text(table.read_text().replace("3,3,,3", "3,3,2.5,3", 1))
        command(*asked)
        (ada, twin) = csv.DictReader(table.read_text().splitlines())
        assert (ada["by_teacher"], twin["by_teacher"]) == ("2.5", "")
    finally:
        friend.unlink()
    assert "A full answer: Because the rate is higher." in (handed_in / "alike" / "class.html").read_text()


def test_a_step_is_asked_for_where_a_run_is_changed_in_mid_run(handed_in: Path) -> None:
    arguments = ["course", "runs", str(handed_in / "two-rates.toml"), "--sheet", str(handed_in / "ada.toml")]
    done = CliRunner().invoke(app, arguments)
    assert "changed is changed while it trains: say with --at STEP when" in str(done.exception)


def test_no_question_can_be_answered_by_the_knobs_alone() -> None:
    asked = [question for id in exercise.available() for question in exercise.load(id).question]
    asked += [step for path in files.PRESETS.glob("*.toml") for step in presets.read(path).lesson]
    for question in asked:
        if question.explain:
            kinds = {part.kind for part in measure.measure(question.explain.measure).parts}
            assert not kinds <= {"knob", "number"}, question.text


def test_texts_of_a_student_are_texts_and_nothing_else(handed_in: Path) -> None:
    graded(handed_in)
    page = (handed_in / "class" / "class.html").read_text()
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page and "<i>Ada" not in page
    (_, row) = csv.reader((handed_in / "class" / "class.csv").read_text().splitlines())
    assert row[1].startswith("'=")
    printed = (handed_in / "in" / "ada.html").read_text()
    assert printed.count("<svg") >= 2 and "<b>Say it" not in printed and "differ by at most" in printed


@pytest.mark.parametrize(
    ("forge", "why"),
    [
        (lambda table: table["answers"].update(q1="13"), "changed after it was handed in"),
        (lambda table: table.update(seed=table["seed"] + 1), "its rows are different"),
        (lambda table: table["handed_in"]["run"][0].update(final_loss=0.01), "final_loss is not that of its rows"),
        (lambda table: table["handed_in"]["run"][0].update(digest="0" * 64), "its rows are different"),
        (lambda table: table["handed_in"]["run"][1]["changes"][0].update(step=6), "its rows are different"),
        (lambda table: table["handed_in"]["run"][1]["changes"][0].update(value=0.4), "changed otherwise"),
        (lambda table: table["handed_in"]["run"][0].update(changes=[{"step": 1, "knob": "optimizer.lr", "value": 1.0}]),
         "changed otherwise"),
        (lambda table: table["handed_in"]["run"][1].update(
            {**table["handed_in"]["run"][0], "name": "changed",
             "changes": [{"step": 12, "knob": "optimizer.lr", "value": 0.5}]}),
         "ended before its change at step 12"),
        (lambda table: table["handed_in"]["run"].pop(), "the run changed is missing"),
        (lambda table: table["handed_in"]["run"][0].update(processor="another", digest="0" * 64, beginning=[1.0]),
         "first losses are others"),
    ],
)  # fmt: skip
def test_a_forged_worksheet_is_found(handed_in: Path, forge, why: str) -> None:
    table = tomllib.loads((handed_in / "in" / "ada.toml").read_text())
    forge(table)
    found = graded(handed_in, table if why.startswith("changed after") else sealed(table))
    assert not found["verified"] and why in found["reason"] and not found["score"]


def test_another_processor_repeats_within_a_tolerance(handed_in: Path) -> None:
    table = tomllib.loads((handed_in / "in" / "ada.toml").read_text())
    for run in table["handed_in"]["run"]:
        run.update(processor="another", digest="0" * 64, beginning=[loss * (1 + 1e-5) for loss in run["beginning"]])
    assert graded(handed_in, sealed(table))["reason"] == "repeats within the tolerance"


def test_what_is_no_worksheet_gets_one_line_and_harms_nobody(handed_in: Path) -> None:
    folder = handed_in / "bad"
    folder.mkdir()
    whole = tomllib.loads((handed_in / "in" / "ada.toml").read_text())
    bad = {
        "binary": b"\xff\x00", "huge": b"x = 1\n" * 100_000, "empty": b"", "list": b"x = [1]",
        "long": tomli_w.dumps(whole | {"answers": {"q1": "x" * 5000}}).encode(),
        "other": tomli_w.dumps(whole | {"exercise": "no-such"}).encode(),
        "nested": b"a = " + b"[" * 5000,
        "hex": tomli_w.dumps(whole).replace("value = 0.5", "value = 0x" + "f" * 5000).encode(),
        "knob": tomli_w.dumps(whole).replace("[handed_in.run.knobs]", "[handed_in.run.knobs]\na = 0x" + "f" * 5000).encode(),
        "blank": tomli_w.dumps({key: value for key, value in whole.items() if key != "handed_in"}).encode(),
    }  # fmt: skip
    for name, content in bad.items():
        (folder / f"{name}.toml").write_bytes(content)
    told = command(
        "grade", folder, "--out", handed_in / "c", "--exercise", handed_in / "two-rates.toml", "--json", code=1
    )
    found = json.loads(told)["worksheets"]
    assert len(found) == len(bad) and not any(each["verified"] for each in found)
    assert all(0 < len(each["reason"]) <= 400 and "\n" not in each["reason"] for each in found)


def test_a_run_that_does_not_fit_is_named(handed_in: Path) -> None:
    sheet = handed_in / "second.toml"
    command("course", "begin", handed_in / "two-rates.toml", "--name", "Grace", "--out", sheet)
    done = CliRunner().invoke(
        app,
        ["course", "hand-in", str(sheet), "--exercise", str(handed_in / "two-rates.toml"), "--library",
         str(handed_in / "runs.sqlite3"), "--out", str(handed_in / "none")],
    )  # fmt: skip
    assert isinstance(done.exception, AssignmentError) and "run.seed = " in str(done.exception)
    assert not (handed_in / "none").exists()
    command("course", "begin", 1, "--name", "Grace", "--out", sheet, code=1)  # no answers are lost


def test_a_folder_that_cannot_be_written_is_told_before_the_class_is_trained(
    handed_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command_ in ("grade", "exam"):
        monkeypatch.setattr(f"gradstudio.commands.{command_}.train_whole", lambda run: pytest.fail("trained"))
    (tmp_path / "file").touch()
    asked = [
        "grade",
        handed_in / "in",
        "--exercise",
        handed_in / "two-rates.toml",
        "--out",
        tmp_path / "file" / "class",
    ]
    for arguments in (asked, ["exam", "new", "rate-too-high", "--out", tmp_path / "file" / "a.exam"]):
        done = CliRunner().invoke(app, [str(each) for each in arguments])
        assert isinstance(done.exception, OutputError), done.exception


def test_a_run_that_is_handed_in_is_one_that_is_graded(handed_in: Path) -> None:
    """A knob that was turned twice ends where the exercise wants it, and is not what it asks for."""
    library = ("--library", handed_in / "turned.sqlite3")
    sheet, own = handed_in / "in" / "ada.toml", ("--exercise", handed_in / "two-rates.toml")
    knobs = ["--set", "run.steps=12", "--set", "model.width=8", "--seed", tomllib.loads(sheet.read_text())["seed"]]
    command("run", "healthy-mlp", "-q", *knobs, *library)
    command("run", "healthy-mlp", "-q", *knobs, "--at", "5:optimizer.lr=0.4", "--at", "7:optimizer.lr=0.5", *library)
    done = CliRunner().invoke(
        app, [str(each) for each in ("course", "hand-in", sheet, *own, *library, "--out", handed_in / "turned")]
    )
    assert "was to be changed once while it trained: optimizer.lr = 0.5" in str(done.exception)
    assert not (handed_in / "turned").exists()


@pytest.mark.parametrize("id", exercise.available())
def test_the_bundled_exercises_are_whole(id: str, tmp_path: Path) -> None:
    found = exercise.load(id)
    assert found.run and found.question and any(question.is_question for question in found.question)
    tomllib.loads(worksheet.blank(found, "Ada"))


def test_the_empty_worksheet_of_any_text_can_be_read(tmp_path: Path) -> None:
    path, sheet = tmp_path / "odd.toml", tmp_path / "sheet.toml"
    path.write_text(EXERCISE.replace("Two rates", "Two\\r\\u0001rates").replace("At its end", "At\\nits\\rend"))
    command("course", "begin", path, "--name", "Ada", "--out", sheet)
    assert f"gradstudio course runs {shlex.join([str(path), '--sheet', str(sheet)])}" in sheet.read_text()
    assert worksheet.read(sheet).exercise == "odd"


def test_what_is_no_number_of_an_exercise_is_none() -> None:
    assert exercise.load("1").id == next(iter(exercise.available()))
    for text in ("0", "01", "99", "\N{SUPERSCRIPT TWO}", "9" * 5000):
        with pytest.raises(AssignmentError, match="no exercise"):
            exercise.load(text)


def test_a_name_that_no_text_holds_is_written_out(tmp_path: Path) -> None:
    """A name in another encoding has bytes that are no letters."""
    sheet, long = tmp_path / "sheet.toml", "A\udcff" * 20  # 140 characters, once it is written out
    done = CliRunner().invoke(app, ["course", "begin", "1", "--name", long, "--out", str(sheet)])
    assert "--name has 140 characters" in str(done.exception) and not sheet.exists()
    command("course", "begin", "1", "--name", "A\udcff", "--out", sheet)
    assert worksheet.read(sheet).name == "A\\udcff"


def test_an_exercise_that_is_wrong_says_where(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    for old, new, why in [
        ('preset = "healthy-mlp"', 'preset = "nope"', "nope"),
        ("optimizer.lr=0.5", "model.width=9", "acts on restart"),
        ('column = "loss"', 'column = "x"', "column"),
        ('"steps"', '"stepz"', "stepz"),
        ('x = "optimizer.lr"', 'x = "model.kind"', "model.kind is no number"),
        ('run = "slow"', 'run = "fast"', "allowed: slow, changed"),
        ('name = "slow"', 'name = "changed"', "same name"),
    ]:
        path.write_text(EXERCISE.replace(old, new, 1))
        with pytest.raises(AssignmentError, match=why):
            exercise.read(path)
    assert exercise.FOLDER.is_relative_to(files.RESOURCES)
