"""Command lines, presets, curve files and libraries that nobody would write: hypothesis makes them.

Short in the gate, the same every time. GRADSTUDIO_TORTURE=1 makes it long, and other examples each time."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import typer
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from gradstudio.cli import app, main
from gradstudio.core import files, preset_as_text, presets
from gradstudio.core.experiment import KNOBS
from gradstudio.core.history import COLUMNS, LAYER_METRICS
from gradstudio.core.knobs import KnobError
from gradstudio.core.row import Layer, Row
from gradstudio.core.text import LONGEST_LINE
from gradstudio.program import script
from gradstudio.session.files import curve_import
from gradstudio.session.files.summary import summarize, to_json
from gradstudio.session.files.tensorboard import export
from gradstudio.session.library.library_faults import LibraryError
from gradstudio.session.library.run_entries import DAMAGED, Entry
from gradstudio.session.library.store import Library
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.words import run_texts

LONG = os.environ.get("GRADSTUDIO_TORTURE") == "1"
CODES = {0, 2, 3, 4, 130}
WRITTEN = (
    "run.json",
    "metrics.csv",
    "events.csv",
    "layers.npz",
    "experiment.toml",
    "train.py",
    "report.html",
    "curves.csv",
)
PAGE = 4096  # bytes: damage lies within one, as a disk writes it
ROWS = 150  # more than one piece of the library

TINY = """schema = 1
title = "Tiny"
[model]
depth = 1
width = 4
[problem]
batch_size = 4
[run]
steps = 2
device = "cpu"
"""


def many(short: int, long: int) -> Callable:
    """How many examples, and that none of them is too slow or too large."""
    return settings(
        max_examples=long if LONG else short, derandomize=not LONG, deadline=None,
        suppress_health_check=list(HealthCheck), print_blob=LONG,
    )  # fmt: skip


# ---- command lines

JUNK = ["", " ", "-", "--", "-1", "0", "1", "2", "1e999", "nan", "inf", "9" * 5000, "9" * 4000, "x" * 5000, "ü∞🙂", "\udce9", "a\0b",
        "\x1b[31mred\x1b]0;title\x07", "two\nlines", "\u202eright", "<b>&", "'; DROP TABLE runs; --", "last", "first", "fir", "second",
        "=", "a=b", "a=b=c", ":", "1:", ":x=1", "html", "html,pdf,nonsense", "json,csv,npz,toml,py,tensorboard", "true", "auto", "cuda:99"]  # fmt: skip
SOURCES = ["{tiny}", "tiny.toml", "rnn-explosion", "first", "last", "results", "broken.toml", "link.toml", "loop", "pipe", "/dev/zero", "/dev/full",
           "/proc/self/mem", "/dev/null", ".", "..", "/", "library.sqlite3", "/root/x", "no/such/file.toml"]  # fmt: skip
OUTPUTS = [
    "out",
    "deep/er/out",
    "tiny.toml",
    "results",
    "/dev/full",
    "/proc/here",
    "loop",
    "x" * 300,
    "a\0b",
    "ü\n\x1b[31m",
]
KNOB_VALUES = [
    "0",
    "1",
    "2",
    "-1",
    "0.5",
    "true",
    "false",
    "nan",
    "inf",
    "-inf",
    "1e-45",
    "1e308",
    "",
    "9" * 5000,
    "ü",
    "none",
    "norm",
    "adam",
    "fp16",
]
PLACES = {"--out", "--csv", "--library"}  # where a command writes


def commands() -> dict[tuple[str, ...], list[tuple[str, bool]]]:
    """Every command with its options; whether each takes a value."""
    found = {}

    def walk(command: object, path: tuple[str, ...]) -> None:
        for name, child in getattr(command, "commands", {}).items():
            walk(child, (*path, name))
        if path:
            options = [
                (option, not each.is_flag) for each in command.params for option in each.opts if option.startswith("-")
            ]
            found[path] = options

    walk(typer.main.get_command(app), ())
    return found


COMMANDS = commands()
assignment = st.builds(
    "{}={}".format, st.sampled_from([*KNOBS, "no.knob", "optimizer", ""]), st.sampled_from(KNOB_VALUES)
)
change = st.builds("{}:{}".format, st.sampled_from(["0", "1", "-1", "", "x", "9" * 5000]), assignment)
texts = st.text(st.characters(exclude_characters="/", codec="utf-8"), max_size=30)
inputs = st.one_of(st.sampled_from(JUNK), st.sampled_from(SOURCES), texts)
values = st.one_of(inputs, assignment, change)


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    command = draw(st.sampled_from([each for each in COMMANDS if each[0] not in ("doctor", "devices", "memory")]))
    words = [*command]
    for _ in range(draw(st.integers(0, 3))):
        words.append(draw(inputs))
    for option, takes in draw(st.lists(st.sampled_from([*COMMANDS[command], ("--nonsense", True)]), max_size=4)):
        words.append(option)
        if takes:
            words.append(draw(st.sampled_from(OUTPUTS) if option in PLACES else values))
    if command[0] in ("run", "branch"):
        words += ["--steps", "2"]  # whatever is trained is short
        words += draw(st.sampled_from([[], ["--set", "model.width=4"], ["--quiet"]]))
    return words


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with two runs that nobody trained."""
    path = tmp_path_factory.mktemp("library") / "library.sqlite3"
    writing = LibraryWriter(path)
    for name in ("first", "second"):
        writing.follow(made(name))
    assert writing.close(), writing.problem
    return path


def made(name: str) -> Run:
    preset = presets.parse(TINY, Path("tiny.toml"))
    run = Run(preset, preset.experiment, id=name)
    writer, source = RunWriter(run), np.random.default_rng(len(name))
    writer.begin((Layer("one.weight", "weight", 3), Layer("two.bias", "bias", 2)), {"device": "cpu", "threads": "1"})
    for step in range(ROWS):
        row = {column: float(value) for column, value in zip(COLUMNS, source.normal(size=len(COLUMNS)), strict=True)}
        run.history.append(Row(**row | {"step": step}, layers=np.float32(source.normal(size=(len(LAYER_METRICS), 2)))))
    writer.change("optimizer.lr", 0.5)
    writer.end("finished", "", 0.25)
    return run


@pytest.fixture
def folder(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Path]]:
    """Makes the folder in which a command runs: files, links, a pipe, and the library."""
    numbers = itertools.count()

    def make() -> Path:
        place = tmp_path / f"parent-{next(numbers)}" / "here"
        (place / "results").mkdir(parents=True)
        shutil.copy(library, place)
        (place / "tiny.toml").write_text(TINY)
        (place / "broken.toml").write_text("[model\n")
        (place / "results" / "experiment.toml").write_text(TINY)
        (place / "results" / "run.json").write_text('{"run": "first", "steps": 2}')
        (place / "link.toml").symlink_to("tiny.toml")
        (place / "loop").symlink_to("loop")
        os.mkfifo(place / "pipe")
        monkeypatch.chdir(place)
        monkeypatch.setenv("GRADSTUDIO_LIBRARY", str(place / "library.sqlite3"))
        return place

    yield make
    monkeypatch.chdir(tmp_path)


def call(words: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str, str]:
    """The exit code of a command, and what it said on either stream."""
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "argv", ["gradstudio", *words])
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0), out.getvalue(), err.getvalue()
    raise AssertionError("main ends by SystemExit")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Linux and macOS have pipes with a name")
def test_any_command_line_ends_with_a_documented_code_and_at_most_one_short_line(
    folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch, own_user_data: Path
) -> None:
    @many(30, 1500)
    @given(command_lines())
    def check(words: list[str]) -> None:
        place = folder()
        before = tree(place)
        with warnings.catch_warnings(record=True) as warned:
            code, out, err = call([word.replace("{tiny}", str(place / "tiny.toml")) for word in words], monkeypatch)
        event(f"{words[0]}: {code}")
        assert code in CODES and not warned, (code, err)
        lines = err.splitlines()
        assert all(len(line) <= LONGEST_LINE for line in lines) and "Traceback" not in err, err
        assert all(letter.isprintable() or letter == "\n" for letter in err), err
        if "script" not in words and "show" not in words:  # whose output somebody may save
            assert all(letter.isprintable() or letter == "\n" for letter in out), out
        new = tree(place) - before
        if code == 2:
            assert len(lines) == 1 and lines[0].startswith("error: "), err
            assert not [name for name in new if Path(name).name in WRITTEN], new
        assert not [name for name in new if ".gradstudio-" in name or name.endswith("-journal")], new
        assert os.listdir(place.parent) == ["here"] and not own_user_data.exists()
        os.chdir("/")  # hypothesis asks where it is
        shutil.rmtree(place.parent)

    check()


def tree(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*")}


# ---- presets

BUNDLED = [path.read_text(encoding="utf-8") for path in sorted(files.PRESETS.glob("*.toml"))]
PIECES = ["", "\0", "\n", '"', "'''", "[", "]", "{", "[[", "=", ".", "a.b.c", "nan", "inf", "-1", "1e999", "0x1", "9" * 5000, "true", "[model]", "[[timeline]]",
          "é", "\ufeff", "\u202e", "[" * 2000, "a" * 3000, "title = 5", 'title = "' + "t" * 1990 + '"', "2026-01-01", "# x"]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn, whole: list[str], pieces: list[str]) -> str:
    """A text with some pieces of it left out, doubled, moved or replaced."""
    text = draw(st.sampled_from(whole))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        stop = min(start + draw(st.integers(0, 40)), len(text))
        text = text[:start] + draw(st.sampled_from([*pieces, text[start:stop] * 2])) + text[stop:]
    return text


@many(100, 6000)
@given(mutated(BUNDLED, PIECES))
def test_any_preset_is_read_whole_or_refused_in_one_line(text: str) -> None:
    try:
        preset = presets.parse(text, Path("some.toml"))
    except presets.PresetError as fault:
        assert "\n" not in str(fault) and "some.toml" in str(fault)
        return
    again = presets.parse(presets.to_toml(preset), Path("some.toml"))
    assert (again.experiment, again.timeline, again.lesson, again.title) == (
        preset.experiment, preset.timeline, preset.lesson, preset.title,
    )  # fmt: skip
    if preset.experiment.changed_knobs() == again.experiment.changed_knobs():
        assert preset_as_text.from_text(preset_as_text.to_text(preset)).experiment == preset.experiment


def of_knob(knob: str) -> st.SearchStrategy:
    """Any value of a knob, allowed or not."""
    found = KNOBS[knob]
    if found.kind == "choice":
        return st.sampled_from(found.choices)
    if found.kind == "bool":
        return st.booleans()
    if found.kind == "text":
        return st.sampled_from(["auto", "cpu"])
    low = found.minimum if math.isfinite(found.minimum) else -1e30
    high = found.maximum if math.isfinite(found.maximum) else 1e30
    if found.kind == "int":
        return st.integers(int(low), int(min(high, 2**62)))
    return st.floats(low, high, allow_nan=False, exclude_min=found.above_minimum)


experiments = st.dictionaries(st.sampled_from(sorted(KNOBS)), st.just(None), max_size=12).flatmap(
    lambda names: st.fixed_dictionaries({name: of_knob(name) for name in names})
)


@many(50, 1500)
@given(experiments)
def test_any_experiment_comes_back_from_its_file_and_has_a_program(knobs: dict) -> None:
    base = presets.load("rnn-explosion")
    try:
        preset = base.model_copy(
            update={"experiment": base.experiment.with_values(knobs), "lesson": [], "promise": None}
        )
    except KnobError as fault:
        assert "\n" not in str(fault) and len(str(fault)) <= LONGEST_LINE
        return
    assert presets.parse(presets.to_toml(preset), Path("some.toml")).experiment == preset.experiment
    compile(script(preset.experiment), "train.py", "exec")


# ---- curves of other programs

TABLES = [
    "step,loss,acc\n0,1.5,0.1\n1,nan,0.2\n2,inf,0.3\n3,,0.4\n",
    "epoch;loss\n1;0,5\n2;0,25\n",
    "1 2\n3 4\n",
    "Wall time,Step,Value\n1.5e9,0,2\n1.5e9,1,3\n",
]
CELLS = [
    "",
    ",",
    ";",
    "\n",
    '"',
    "nan",
    "-inf",
    "1e308",
    "1e999",
    "-1",
    "9" * 5000,
    "é",
    "\0",
    "\x1b[31m",
    "=cmd()",
    "step",
    "\r\n",
    "2147483648",
    "1e300",
]


@many(100, 3000)
@given(text=mutated(TABLES, CELLS))
def test_any_table_gives_curves_or_one_line(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "curves.csv"
    path.write_text(text, encoding="utf-8", newline="")
    holds_curves_or_refuses(path)


def holds_curves_or_refuses(path: Path) -> None:
    try:
        curves = curve_import.read(path)
    except curve_import.CurveError as fault:
        assert "\n" not in str(fault) and path.name in str(fault)
        return
    assert curves
    for curve in curves:
        assert len(curve.steps) == len(curve.values) >= 1 and np.isfinite(curve.steps).all()
        assert (np.diff(curve.steps) >= 0).all() and curve.name.isprintable()


flips = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 7)), min_size=1, max_size=3)


def flipped(data: bytes, flips: list[tuple[float, int]]) -> bytes:
    """The same bytes with some bits the other way round; each place is a share of the length."""
    changed = bytearray(data)
    for place, bit in flips:
        changed[int(place * len(data))] ^= 1 << bit
    return bytes(changed)


@pytest.fixture(scope="module")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return export.export(made("log"), tmp_path_factory.mktemp("log")).read_bytes()


def test_any_event_file_gives_curves_or_one_line(event_log: bytes, tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.x"

    @many(25, 500)
    @given(flips, st.floats(0.1, 1))
    def check(bits: list[tuple[float, int]], share: float) -> None:
        path.write_bytes(flipped(event_log[: int(share * len(event_log))], bits))
        holds_curves_or_refuses(path)

    check()


# ---- libraries


def test_a_bit_that_a_disk_has_changed_is_never_read_in_silence(library: Path, tmp_path: Path) -> None:
    data, numbers = library.read_bytes(), itertools.count()
    with contextlib.closing(Library(library)) as whole:
        listed = {entry.id: entry for entry in whole.entries()}
        runs = {run: told(whole.load(run)) for run in listed}

    pages = [data[at : at + PAGE] for at in range(0, len(data), PAGE)]

    @many(30, 1500)
    @given(st.integers(0, len(pages) - 1), flips)
    def check(page: int, bits: list[tuple[float, int]]) -> None:
        place = tmp_path / str(next(numbers))
        place.mkdir()
        damaged = [*pages[:page], flipped(pages[page], bits), *pages[page + 1 :]]
        (place / "library.sqlite3").write_bytes(b"".join(damaged))
        try:
            with contextlib.closing(Library(place / "library.sqlite3")) as found:
                entries = found.entries()
                assert found.notice or len(entries) >= len(listed), "no run is missing in silence"
                for entry in entries:
                    same(found, entry)
        except LibraryError as fault:
            assert "\n" not in str(fault)
        shutil.rmtree(place)

    def same(found: Library, entry: Entry) -> None:
        """What is listed and read is what was written, or it is said that it is not."""
        assert run_texts.words(entry, 1e9) and run_texts.tip(entry) and run_texts.spoken(entry, 1e9)
        try:
            run = told(found.load(entry.id))
        except LibraryError as fault:
            assert "\n" not in str(fault)
            assert entry == listed.get(entry.id) or entry.outcome == DAMAGED or entry.id not in listed
            return
        assert run == runs[entry.id] and entry == listed[entry.id]

    check()


def told(run: Run) -> tuple[str, bytes]:
    """Everything that a run says of itself."""
    layers = b"".join(run.history.layer_metric(name).tobytes() for name in LAYER_METRICS)
    about = to_json(summarize(run) | {"events": [str(event) for event in run.events], "title": run.title})
    return about, run.history.table().tobytes() + layers
