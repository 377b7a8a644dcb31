"""The run library by commands: what was run is kept, found, compared, reported, repeated and deleted."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import PATIENCE, until

from gradstudio.core import files
from gradstudio.session.files import curve_import
from gradstudio.session.library.store import Library

COMMAND = [sys.executable, "-m", "gradstudio"]
HOSTILE = "Er\x1b[31mror\n\x07\x9b1m\u202eevil\t<b>"
FOREVER = ["--steps", "10000000"]
# As COMMAND, but each step takes at least 5 ms: a run that only has to go on leaves the processor to the others.
UNHURRIED = """
import time
from gradstudio.cli import main
from gradstudio.session.record.snapshots import Snapshots
due = Snapshots.due
Snapshots.due = lambda self, seconds: bool(time.sleep(0.005)) or due(self, seconds)  # asked after each step
main()
"""


@pytest.fixture
def two(once: Callable, gradstudio: Callable, small: Path) -> list[str]:
    """Two runs that part at step 3, the second one first in the list."""
    other = [
        "--at",
        "3:optimizer.lr=0.5",
        "--set",
        "clipping.kind=norm",
        "--set",
        "clipping.max_norm=1e9",
        "--steps",
        "8",
    ]
    once("two", lambda _: [gradstudio("run", small, "-q", *changes) for changes in ([], other)])
    assert len(listed(gradstudio)) == 2
    return [entry["run"] for entry in listed(gradstudio)]


def listed(gradstudio: Callable, *words: str) -> list[dict]:
    answer = gradstudio("runs", "--json", *words)
    assert answer.code == 0, answer.err
    return json.loads(answer.out, parse_constant=pytest.fail)


@pytest.fixture
def endless(gradstudio: Callable, small: Path) -> Iterator[subprocess.Popen[str]]:
    """A `gradstudio run` that is in the library with some steps, and goes on."""
    words = [sys.executable, "-c", UNHURRIED, "run", str(small), *FOREVER, "--json"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        until(files.user_library().exists)  # asking for the list costs more
        until(lambda: any(entry["steps"] for entry in listed(gradstudio)))
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# ---- what is kept


def test_without_a_library_there_are_no_runs_and_none_is_made(gradstudio: Callable) -> None:
    assert gradstudio("runs").code == 0 and listed(gradstudio) == []
    assert gradstudio("runs", "show", "last").code == 2
    assert not files.user_library().exists()


def test_every_run_is_kept_with_its_outcome_and_one_that_could_not_begin_is_not(
    gradstudio: Callable, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gradstudio("run", small, "--steps", "4").code == 0
    assert (
        gradstudio("run", small, "--set", "optimizer.lr=1e6", "--set", "problem.input_scale=1e30", "--steps", "30").code
        == 3
    )
    assert gradstudio("run", small, "--device", "cuda:77").code == 2
    from gradstudio.engine.trainer import Trainer

    advance = Trainer.advance

    def fails(trainer):
        if trainer.step == 3:
            raise MemoryError("no memory")
        return advance(trainer)

    monkeypatch.setattr(Trainer, "advance", fails)
    assert gradstudio("run", small).code == 1
    found = listed(gradstudio)
    assert [(entry["outcome"], entry["title"]) for entry in found] == [
        (outcome, "Small") for outcome in ("failed", "nonfinite", "finished")
    ]
    assert found[0]["steps"] == 3 and found[2]["steps"] == 4 and found[1]["final_loss"] in ("nan", "inf")


def test_what_is_shown_of_a_run_is_what_it_said_itself(gradstudio: Callable, small: Path) -> None:
    told = gradstudio("run", small, "--at", "2:optimizer.lr=0.03", "--set", "optimizer.momentum=0.9")
    words, _, kept = told.out.partition("\n\nkept as ")
    again = gradstudio("run", kept.strip(), "--json")
    assert json.loads(gradstudio("runs", "show", "last", "--json").out) == json.loads(again.out)
    shown = gradstudio("runs", "show", kept.strip())
    assert shown.out.startswith(words + "\n\nrun ")
    for part in ("optimizer.momentum = 0.9", "optimizer.lr = 0.03 from step 2", "model.width = 8"):
        assert part in shown.out
    assert "model.kind" not in shown.out, "which has its default"


def test_the_list_can_be_searched_and_runs_have_notes_and_tags(gradstudio: Callable, two: list[str]) -> None:
    assert gradstudio("runs", "note", two[1], "for the  teacher").code == 0
    assert gradstudio("runs", "tag", two[1], "class 7", "good").code == 0
    assert [entry["run"] for entry in listed(gradstudio, "--search", "TEACHER good")] == [two[1]]
    (entry,) = listed(gradstudio, "--search", two[1])
    assert (entry["note"], entry["tags"]) == ("for the  teacher", ["class 7", "good"])
    assert "class 7, good" in gradstudio("runs").out.splitlines()[1]
    assert "for the teacher" in gradstudio("runs", "show", two[1]).out
    gradstudio("runs", "tag", two[1])
    gradstudio("runs", "note", two[1], "")
    assert listed(gradstudio, "--search", "teacher") == [] and listed(gradstudio)[1]["tags"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["runs", "show", "small"], "could be 2 runs"),
        (["runs", "show", "nope"], "no run nope in the library"),
        (["runs", "show", "\x1b[31mnope"], "no run  [31mnope"),
        (["report", "nope"], "no run nope"),
        (["report", "last", "--format", "docx"], "--format docx is not allowed; allowed: html, pdf, json"),
        (["report", "last", "--format", ","], "--format names no format"),
        (["report", "last", "--out", "/proc/here"], "cannot be written"),
        (["runs", "compare", "last"], "1 run cannot be compared; allowed: 2 to 8"),
        (["runs", "compare", "last", "last"], "a run cannot be compared with itself"),
        (["runs", "compare", "{0}", "{1}", "--csv", "/proc/here.csv"], "cannot be written"),
        (["runs", "compare", "{0}", "{1}", "--report", "docx"], "allowed: html, pdf"),
        (["runs", "delete", "last"], "--yes"),
        (["runs", "delete", "{0}", "nope", "--yes"], "no run nope"),
        (["runs", "note", "last", "x" * 20_000], "too long"),
        (["runs", "tag", "last", "x" * 50], "tags"),
        (["runs", "--search", "x", "show", "last"], "--search"),
        (["runs", "--library", "/proc"], "is a directory"),
        (["runs", "show", "last", "--library", "/nowhere/at/all"], "there is no run library"),
        (["run", "smal"], "the whole id of a run"),
        (["script", "smal", "--library", "/nowhere/at/all"], "no preset smal"),
        (["script", "small"], "could be 2 runs"),
        (["script", "last", "--at", "8:optimizer.lr=1"], "its last step is 7"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_code_2(
    words: list[str], said: str, gradstudio: Callable, two: list[str]
) -> None:
    answer = gradstudio(*(word.format(*two) for word in words))
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ") and said in answer.err and answer.err.count("\n") == 1
    assert [entry["run"] for entry in listed(gradstudio)] == two


# ---- comparing


def test_compared_runs_say_what_differs_and_from_where_on(gradstudio: Callable, two: list[str], tmp_path: Path) -> None:
    answer = gradstudio(
        "runs", "compare", two[1], two[0], "--csv", tmp_path / "sub" / "curves.csv", "--out", tmp_path / "out"
    )
    assert answer.code == 0, answer.err
    lines = [" ".join(line.split()) for line in answer.out.splitlines()]
    assert {"optimizer.lr 0.1 0.1; 0.5 from step 3", "clipping.kind none norm", "run.steps 6 8"} <= set(lines)
    assert "the losses of A and B first differ at step 4" in lines and "B stayed finite" in lines
    found = json.loads(gradstudio("runs", "compare", two[1], two[0], "--json").out)
    assert found == json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert [run["first_different_step"] for run in found["runs"]] == [None, 4]
    assert (tmp_path / "out" / "curves.csv").read_bytes() == (tmp_path / "sub" / "curves.csv").read_bytes()
    rows = list(csv.DictReader((tmp_path / "sub" / "curves.csv").read_text().splitlines()))
    for run in two:
        assert gradstudio("report", run, "--format", "csv", "--out", tmp_path / run).code == 0
        metrics = list(csv.DictReader((tmp_path / run / "metrics.csv").read_text().splitlines()))
        for name in ("loss", "grad_norm"):
            assert [row[f"{name} {run}"] for row in rows] == [row[name] for row in metrics] + [""] * (8 - len(metrics))
    assert [row["step"] for row in rows] == [str(step) for step in range(8)]


# ---- reporting and repeating


def test_a_report_is_made_of_the_files_that_the_run_wrote(
    gradstudio: Callable, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    gradstudio("run", small, "--at", "2:optimizer.lr=0.03", "--out", "first", "-q")
    gradstudio("runs", "note", "last", "what the student wrote")
    (run,) = (entry["run"] for entry in listed(gradstudio))
    answer = gradstudio("report", "last", "--format", "html,pdf,json,csv,npz,toml,py")
    assert answer.code == 0, answer.err
    assert sorted(path.name for path in Path(run).iterdir()) == sorted(
        ["report.html", "report.pdf", *(path.name for path in Path("first").iterdir())]
    )
    assert {str(path) for path in Path(run).iterdir()} == set(answer.out.splitlines())
    for name in ("metrics.csv", "events.csv", "run.json", "experiment.toml", "train.py", "layers.npz"):
        if name != "layers.npz":  # a zip file knows when it was made
            assert (Path(run) / name).read_bytes() == (Path("first") / name).read_bytes(), name
    assert "what the student wrote" in Path(run, "report.html").read_text()
    assert Path(run, "report.pdf").read_bytes().startswith(b"%PDF")


def test_a_run_goes_to_tensorboard(gradstudio: Callable, two: list[str], tmp_path: Path) -> None:
    answer = gradstudio("report", "last", "--format", "tensorboard,csv", "--out", tmp_path / "out")
    (events,) = (tmp_path / "out").glob("events.out.tfevents.*")
    assert answer.code == 0 and str(events) in answer.out and (tmp_path / "out" / "metrics.csv").is_file()
    losses = next(curve for curve in curve_import.read(events) if curve.name == "loss")
    assert len(losses.values) == len((tmp_path / "out" / "metrics.csv").read_text().splitlines()) - 1


def test_a_report_is_written_whole_or_not_at_all(gradstudio: Callable, two: list[str], tmp_path: Path) -> None:
    (tmp_path / "out" / "events.csv").mkdir(parents=True)
    (tmp_path / "out" / "run.json").write_text("an older one")
    answer = gradstudio("report", "last", "--format", "html,json,csv", "--out", tmp_path / "out")
    assert answer.code == 2 and "events.csv cannot be written" in answer.err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["events.csv", "run.json"]
    assert (tmp_path / "out" / "run.json").read_text() == "an older one"


def test_a_run_is_repeated_to_the_bit_by_its_name_and_by_its_program(
    gradstudio: Callable, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gradstudio("run", small, "--at", "2:optimizer.lr=0.03", "--seed", "5", "--out", tmp_path / "first", "-q")
    (run,) = (entry["run"] for entry in listed(gradstudio))
    assert (
        gradstudio("script", run[:-2]).out
        == gradstudio("script", "last").out
        == (tmp_path / "first" / "train.py").read_text()
    )
    for source in (run, "last"):
        assert gradstudio("run", source, "-q").code == 0
    monkeypatch.setenv("GRADSTUDIO_THREADS", "3")
    assert "set_num_threads(1)" in gradstudio("script", "last").out
    assert "GRADSTUDIO_THREADS=1 repeats it to the last bit\n" in gradstudio("run", "last", "--json").err
    gradstudio("runs", "delete", "last", "--yes")
    newest, older, first = (entry["run"] for entry in listed(gradstudio))
    assert first == run
    told = json.loads(gradstudio("runs", "compare", first, older, newest, "--json").out)
    assert [entry["first_different_step"] for entry in told["runs"]] == [None, None, None] and told["knobs"] == []


def test_what_an_exercise_asks_can_be_read_on_the_command_line(gradstudio: Callable, small: Path) -> None:
    gradstudio("run", small, "-q")
    asked = ("--measure", "grad_norm.median", "--measure", "steps", "--measure", "nonfinite_step")
    told = gradstudio("runs", "show", "last", *asked).out.splitlines()
    values = json.loads(gradstudio("runs", "show", "last", *asked, "--json").out)
    assert [line.split()[0] for line in told] == list(values) and told[2].split()[1] == "unknown"
    assert values["nonfinite_step"] is None and values["steps"] == float(told[1].split()[1])
    assert values["grad_norm.median"] == pytest.approx(float(told[0].split()[1]), rel=1e-4)
    assert gradstudio("runs", "show", "last", "--measure", "grad_norm").code == 2


def test_a_format_that_is_far_slower_here_is_told_before_the_run(gradstudio: Callable) -> None:
    quick = ("--set", "model.kind=cnn", "--set", "model.width=1", "--set", "model.depth=1", "--steps", "1")
    told = [
        gradstudio("run", "healthy-mlp", *quick, "--set", f"precision.dtype={dtype}", *more).err
        for dtype, *more in (("fp16", "--device", "cpu"), ("bf16", "--device", "cpu"), ("fp16", "-q"))
    ]
    assert ["20 to 350 times" in each for each in told] == [True, False, False]


def test_a_preset_comes_before_a_run_of_that_name(
    gradstudio: Callable, two: list[str], small: Path, own_user_data: Path
) -> None:
    folder = own_user_data / "gradstudio" / "presets"
    folder.mkdir(parents=True)
    (folder / "last.toml").write_text(small.read_text().replace("Small", "The preset"))
    assert '"""The preset in plain PyTorch' in gradstudio("script", "last").out


def test_no_code_comes_into_a_program_from_somebody_else_s_library(
    gradstudio: Callable, two: list[str], tmp_path: Path
) -> None:
    with sqlite3.connect(files.user_library()) as connection:
        connection.execute(
            "UPDATE runs SET environment = ?", (json.dumps({"threads": "print('evil')", "device": "cpu"}),)
        )
        connection.execute("DELETE FROM checksums")  # somebody else would make them right
    connection.close()
    assert gradstudio("report", "last", "--format", "py", "--out", tmp_path).code == 0
    for program in (gradstudio("script", "last").out, (tmp_path / "train.py").read_text()):
        assert "evil" not in program and "set_num_threads(1)" in program


# ---- deleting


def test_deleted_runs_are_gone_and_give_their_space_back(gradstudio: Callable, small: Path) -> None:
    for steps in ("5", "1500"):
        gradstudio("run", small, "--steps", steps, "-q")
    before = files.user_library().stat().st_size
    long, short = (entry["run"] for entry in listed(gradstudio))
    assert gradstudio("runs", "delete", "last", "--yes").out == "deleted 1 run\n"
    assert [entry["run"] for entry in listed(gradstudio)] == [short]
    assert files.user_library().stat().st_size < before / 2
    assert long not in gradstudio("runs", "show", long).out


@pytest.mark.parametrize(("answer", "left"), [("n\n", 2), ("y\n", 1), ("\x03", 2)])
def test_on_a_terminal_deleting_asks(answer: str, left: int, gradstudio: Callable, two: list[str]) -> None:
    def begin() -> None:
        os.close(os.open(os.ttyname(0), os.O_RDWR))  # so that Ctrl+C comes from this terminal

    screen, terminal = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "runs", "delete", "last"],
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=begin,
    )
    os.close(terminal)
    seen = b""
    while b"?" not in seen:
        seen += os.read(screen, 4096)
    assert two[0].encode() in seen
    for _ in range(60):
        os.write(screen, answer.encode())
        with contextlib.suppress(
            subprocess.TimeoutExpired
        ):  # a Ctrl+C that comes between the question and Python's reading is lost
            process.communicate(timeout=1)
            break
    os.close(screen)
    assert process.returncode == (130 if answer == "\x03" else 0)
    assert len(listed(gradstudio)) == left


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_a_run_that_is_going_is_listed_and_not_deleted_and_kept_to_its_last_step_when_told_to_end(
    gradstudio: Callable, endless: subprocess.Popen[str], small: Path
) -> None:
    """And so is one that another program trains at the same time."""
    assert listed(gradstudio)[0]["outcome"] == "running"
    answer = gradstudio("runs", "delete", "last", "--yes")
    assert answer.code == 2 and "still running" in answer.err
    assert "still training" in gradstudio("runs", "show", "last").out
    beside = gradstudio("run", small, "--steps", "100", "-q")
    assert (beside.code, beside.err) == (0, "") and endless.poll() is None
    until(lambda: listed(gradstudio)[1]["steps"] >= 100)
    endless.send_signal(signal.SIGTERM)
    out, _ = endless.communicate(timeout=PATIENCE)
    assert endless.returncode == 130
    other, entry = listed(gradstudio)
    assert entry["outcome"] == "stopped" and entry["steps"] == json.loads(out)["steps"]
    assert (other["outcome"], other["steps"]) == ("finished", 100)
    compared = json.loads(gradstudio("runs", "compare", entry["run"], other["run"], "--json").out)
    assert [run["first_different_step"] for run in compared["runs"]] == [None, None]


# ---- what can go wrong


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_a_killed_run_is_interrupted_and_can_be_reported_and_repeated(
    gradstudio: Callable, endless: subprocess.Popen[str], tmp_path: Path
) -> None:
    endless.send_signal(signal.SIGKILL)
    endless.communicate()
    (entry,) = listed(gradstudio)
    assert entry["outcome"] == "interrupted" and entry["steps"] > 0
    shown = gradstudio("runs", "show", "last").out
    assert "interrupted after" in shown and "the program ended while it trained" in shown
    assert json.loads(gradstudio("runs", "show", "last", "--json").out)["outcome"] == "interrupted"
    assert gradstudio("report", "last", "--format", "html,csv", "--out", tmp_path).code == 0
    assert "the program ended while it trained" in (tmp_path / "report.html").read_text()
    assert len((tmp_path / "metrics.csv").read_text().splitlines()) == entry["steps"] + 1
    again = json.loads(gradstudio("run", "last", "--steps", str(entry["steps"]), "--json").out)
    assert again["final_loss"] == entry["final_loss"]


def test_a_library_that_cannot_be_written_is_one_line_and_changes_nothing_else(
    gradstudio: Callable, small: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "file" / "library.sqlite3"
    bad.parent.write_text("a file, where a folder should be")
    answer = gradstudio("run", small, "--json", "--library", bad, "--out", tmp_path / "out")
    assert (
        answer.code == 0
        and json.loads(answer.out)["outcome"] == "finished"
        and (tmp_path / "out" / "run.json").exists()
    )
    said = [line for line in answer.err.splitlines() if not line.startswith("files in")]
    assert len(said) == 1 and said[0].startswith("not kept: the run library") and str(bad) in said[0]
    unsound = gradstudio(
        "run",
        small,
        "-q",
        "--library",
        bad,
        "--set",
        "optimizer.lr=1e6",
        "--set",
        "problem.input_scale=1e30",
        "--steps",
        "30",
    )
    assert unsound.code == 3 and unsound.err.count("\n") == 1
    assert "kept as" not in gradstudio("run", small, "--library", bad).out


@pytest.mark.parametrize("kind", ["text", "database"])
def test_a_file_of_somebody_else_is_left_as_it_is(kind: str, gradstudio: Callable, small: Path, tmp_path: Path) -> None:
    path = tmp_path / "thesis"
    if kind == "text":
        path.write_text("This is no database. " * 100)
    else:
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE bookmarks (url TEXT)")
        other.close()
    before = path.read_bytes()
    assert gradstudio("runs", "--library", path).code == 2
    answer = gradstudio("run", small, "--library", path, "-q")
    assert answer.code == 0 and "is no run library" in answer.err
    assert path.read_bytes() == before and [found.name for found in tmp_path.iterdir() if "damaged" in found.name] == []


@pytest.mark.parametrize("page", ["first", "of the runs"])
def test_a_damaged_library_that_was_replaced_is_told_once(page: str, gradstudio: Callable, tmp_path: Path) -> None:
    path = tmp_path / "library.sqlite3"
    Library(path).close()
    with contextlib.closing(sqlite3.connect(path)) as library:
        [root] = library.execute("SELECT rootpage FROM sqlite_master WHERE name = 'runs'").fetchone()
        [size] = library.execute("PRAGMA page_size").fetchone()
    data, start = bytearray(path.read_bytes()), (root - 1) * size if page == "of the runs" else 0
    data[start : start + size] = b"\x55" * size
    path.write_bytes(data)
    answer = gradstudio("runs", "--library", path)
    assert answer.code == 0 and answer.err.count("The run library was damaged") == 1
    assert "was damaged" not in gradstudio("runs", "--library", path).err


@pytest.mark.parametrize(
    "words",
    [["--library", "{0}", "run", "{1}", "-q"], ["run", "{1}", "-q", "--library", "{0}"]],
)
def test_a_library_can_be_named_anywhere(
    words: list[str], gradstudio: Callable, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sub" / "class.sqlite3"
    assert gradstudio(*(word.format(path, small) for word in words)).code == 0
    assert listed(gradstudio) == [] and len(listed(gradstudio, "--library", str(path))) == 1
    assert "Small: finished" in gradstudio("runs", "--library", path, "show", "last").out
    monkeypatch.setenv("GRADSTUDIO_LIBRARY", str(path))
    assert len(listed(gradstudio)) == 1


# ---- hostile texts


@pytest.fixture
def hostile(gradstudio: Callable, small: Path) -> str:
    """The id of a run whose title, file name, note and tags hold what a terminal would obey."""
    path = small.with_name("evil\x1b[2J.toml")
    path.write_text(small.read_text().replace('"Small"', json.dumps(HOSTILE)))
    for source in (path, small):
        assert gradstudio("run", source, "-q").code == 0
    (run,) = (entry["run"] for entry in listed(gradstudio) if "evil" in entry["run"])
    library = Library(files.user_library())
    library.annotate(run, note=HOSTILE, tags=[HOSTILE])
    library.close()
    return run


def test_no_text_reaches_the_terminal_but_as_letters_and_tables_stay_lines(
    gradstudio: Callable, hostile: str, tmp_path: Path
) -> None:
    assert len(gradstudio("runs").out.splitlines()) == 2
    other = next(entry["run"] for entry in listed(gradstudio) if entry["run"] != hostile)
    compared = gradstudio("runs", "compare", hostile, other).out.split("\n")
    assert [line[:1] for line in compared[:3]] == ["A", "B", ""]
    for words in (
        ["runs"],
        ["runs", "show", hostile],
        ["runs", "show", hostile, "--json"],
        ["runs", "compare", hostile, other],
        ["runs", "compare", hostile, other, "--json"],
        ["runs", "--json"],
        ["report", hostile, "--out", str(tmp_path / "out")],
        ["run", hostile],
        ["run", hostile, "--json"],
        ["runs", "show", hostile + "x"],
        ["runs", "delete", hostile, "--yes"],
    ):
        answer = gradstudio(*words)
        for text in (answer.out, answer.err):
            assert all(letter.isprintable() or letter == "\n" for letter in text), (words, text)


def test_json_gives_every_text_back_as_it_was(gradstudio: Callable, hostile: str) -> None:
    (entry,) = (entry for entry in listed(gradstudio) if entry["run"] == hostile)
    assert entry["note"] == entry["title"] == HOSTILE and "\x1b[2J" in entry["run"]


# Commands that end well, one after the other, and a line after each.
COMMANDS = """
import json, sys
from gradstudio.cli import main
for sys.argv[1:] in json.loads(sys.argv[1]):
    try:
        main()
    except SystemExit as end:
        assert not end.code
    print("~" * 9, flush=True)
"""


def on_a_terminal(*commands: list[str]) -> list[str]:
    """What a terminal without colours, and of 80 columns, is sent by each command."""
    screen, terminal = pty.openpty()
    words = [sys.executable, "-c", COMMANDS, json.dumps(commands)]
    process = subprocess.Popen(words, stdout=terminal, stderr=terminal, env={**os.environ, "TERM": "dumb"})
    os.close(terminal)
    seen = b""
    try:
        while data := os.read(screen, 65536):
            seen += data
    except OSError:  # the other side has closed it
        pass
    os.close(screen)
    assert process.wait(timeout=PATIENCE) == 0, seen
    *texts, rest = seen.decode().replace("\r\n", "\n").split("~" * 9 + "\n")
    assert len(texts) == len(commands) and not rest
    return texts


def test_a_drawn_table_and_a_printed_program_are_harmless_too_and_ids_are_shown_whole(
    gradstudio: Callable, hostile: str, small: Path
) -> None:
    path = small.rename(small.with_name("a-name-of-many-letters.toml"))
    gradstudio("run", path, "-q")
    commands = ["runs"], ["runs", "show", hostile], ["script", hostile]
    shown = on_a_terminal(*commands)
    for words, text in zip(commands, shown, strict=True):
        assert "evil" in text and all(letter.isprintable() or letter == "\n" for letter in text), (words, text)
    assert listed(gradstudio)[0]["run"] in shown[0] and max(map(len, shown[0].splitlines())) <= 80
