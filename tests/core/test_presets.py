"""Preset files: what is written is read back equal, and whatever else lies in a file ends in a PresetError of one
line."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from gradstudio.core import files, preset_as_text, presets, user_presets
from gradstudio.core.adjusted_knobs import with_adjustments
from gradstudio.core.diagnosis.rule_names import NAMES
from gradstudio.core.events import MOST_CHANGES, Change
from gradstudio.core.experiment import KNOBS, Experiment
from gradstudio.core.knobs import Knob, KnobError, Value, format_value
from gradstudio.core.planned_changes import read_timeline
from gradstudio.core.presets import LessonStep, Preset, PresetError, Promise

PATH = Path("sample.toml")
BUNDLED = sorted(files.PRESETS.glob("*.toml"))
SAMPLE = """\
schema = 2
title = "Sample"
summary = "Two lines\\nof text"

[optimizer]
kind = "adam"
lr = 0.5

[promise]
outcome = "nonfinite"
rule = "exploding_gradient"
fix = ["clipping.kind=norm"]
accuracy = 0.9

[[lesson]]
text = "Let it run."
outcome = "nonfinite"

[[timeline]]
step = 20
knob = "clipping.kind"
value = "norm"

[[timeline]]
step = 10
knob = "optimizer.lr"
value = 2
"""


def values(knob: Knob) -> st.SearchStrategy[Value]:
    """Every value that the knob allows."""
    if knob.name == "problem.seq_len":
        return st.sampled_from([1, 2, 4, 8, 16, 32, 64])
    if knob.kind == "choice":
        return st.sampled_from([each for each in knob.choices if each != "per_example"])  # which refuses later changes
    if knob.kind == "bool":
        return st.booleans()
    if knob.kind == "int":
        return st.integers(int(knob.minimum), int(knob.maximum))
    if knob.kind == "float":
        return st.floats(knob.minimum, knob.maximum, exclude_min=knob.above_minimum)
    return st.sampled_from(["auto", "cpu", "cuda", "cuda:0", "cuda:7", "mps"])


rules = st.sampled_from(NAMES)
TOGETHER = (
    "problem.task",
    "problem.seq_len",
    "problem.batch_size",
    "model.kind",
    "model.norm",
    "loss.kind",
)  # not every value with every other
assignments = st.sampled_from(
    [f"{knob.name}={format_value(knob.default)}" for knob in KNOBS.values() if knob.name not in TOGETHER]
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


def going_together(chosen: dict[str, Value]) -> Experiment:
    """An experiment with these values, as far as they go together."""
    experiment = Experiment()
    for name, value in chosen.items():
        with contextlib.suppress(KnobError):
            experiment = with_adjustments(experiment, name, value)
    return experiment


experiments = st.fixed_dictionaries(  # with several ranks a later change may be refused
    {}, optional={name: values(knob) for name, knob in KNOBS.items() if name != "distributed.ranks"}
).map(going_together)
changes = st.sampled_from(
    [knob for knob in KNOBS.values() if knob.live and knob.name != "problem.skip_batches"]
).flatmap(  # that cannot fall
    lambda knob: st.builds(Change, st.integers(0, 10**8), st.just(knob.name), values(knob))
)
written = st.builds(
    Preset,
    id=st.just(PATH.stem),
    path=st.just(PATH),
    title=texts.filter(bool),
    summary=texts,
    experiment=experiments,
    lesson=st.lists(
        st.builds(
            LessonStep,
            text=texts,
            rule=st.none() | rules,
            knobs=st.lists(assignments, max_size=2),
            accuracy=st.none() | st.floats(0, 1),
        ),
        max_size=3,
    ),
    promise=st.none()
    | st.builds(
        Promise,
        outcome=st.sampled_from(["finished", "nonfinite", "failed"]),
        rule=st.none() | rules,
        fix=st.lists(assignments, max_size=2),
        accuracy=st.floats(0, 1),
        broken_accuracy=st.none() | st.floats(0, 1),
        wrong_fixes=st.lists(st.lists(assignments, max_size=2), max_size=2),
    ),
    group=st.sampled_from(presets.GROUPS),
    timeline=st.lists(changes, max_size=4).map(lambda made: tuple(sorted(made, key=lambda change: change.step))),
)


@settings(max_examples=1000 if os.environ.get("GRADSTUDIO_TORTURE") == "1" else 40)
@given(written)
def test_what_is_written_or_shared_as_a_text_is_read_back_equal(preset: Preset) -> None:
    assert presets.parse(presets.to_toml(preset), PATH) == preset
    back = preset_as_text.from_text(preset_as_text.to_text(preset))
    assert back.path is None and back.id
    assert back.model_copy(update={"id": preset.id, "path": PATH}) == preset


def refused(text: str) -> str:
    with pytest.raises(PresetError) as raised:
        presets.parse(text, PATH)
    assert str(raised.value).isprintable() and str(raised.value).startswith("sample.toml")
    return str(raised.value)


def read_or_refuse(path: Path) -> None:
    """Whatever lies there is a preset, or a PresetError of one line that names the file; anything else fails the
    test."""
    try:
        assert isinstance(presets.read(path), Preset)
    except PresetError as fault:
        assert str(fault).isprintable() and len(str(fault)) < 1100
        assert path.name in str(fault)


def test_sample_is_read() -> None:
    preset = presets.parse(SAMPLE, PATH)
    assert (preset.id, preset.title, preset.summary, preset.bundled) == (
        "sample",
        "Sample",
        "Two lines\nof text",
        False,
    )
    assert preset.experiment.changed_knobs() == {"optimizer.kind": "adam", "optimizer.lr": 0.5}
    assert preset.timeline == (Change(10, "optimizer.lr", 2.0), Change(20, "clipping.kind", "norm"))
    assert type(preset.timeline[0].value) is float
    assert preset.promise and preset.promise.fix == ["clipping.kind=norm"]


def test_an_empty_file_is_the_default_experiment() -> None:
    empty = Preset(id="sample", title="sample", experiment=Experiment(), path=PATH, written_in=1)
    assert presets.parse("", PATH) == empty


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("[optimizer]\nlr = nan", ", line 2", "optimizer.lr = nan is not allowed; allowed: a number at least 0"),
        ("[optimizer]\nlr = inf", ", line 2", "optimizer.lr = inf"),
        ("[optimizer]\nlr = -inf", ", line 2", "optimizer.lr = -inf"),
        ("[optimizer]\nlr = 1e400", ", line 2", "optimizer.lr = inf"),
        ("[optimizer]\n\n  lr=-1", ", line 3", "optimizer.lr = -1"),
        ("[optimizer]\nlr = '0.1'", ", line 2", "optimizer.lr = 0.1"),
        ("[optimizer]\nlr = true", ", line 2", "optimizer.lr = true"),
        ("[optimizer]\nlr = []", ", line 2", "optimizer.lr = a list"),
        ("[optimizer]\nlr = 2024-01-01", ", line 2", "optimizer.lr = 2024-01-01"),
        ("[optimizer]\nlr = 0x" + "f" * 5000, ", line 2", "optimizer.lr = "),
        ("[run]\nsteps = 1.0", ", line 2", "run.steps = 1.0 is not allowed; allowed: a whole number"),
        ("[run]\nsteps = 0x" + "f" * 5000, ", line 2", "run.steps = "),
        ("[run]\nsteps = " + "9" * 5000, "", "not valid TOML"),
        ("[run]\ndevice = 'a\\u000ab'", ", line 2", "run.device = "),
        ('[run]\ndevice = "a\\nb\\u001b[31m"', ", line 2", "run.device = a b"),
        ("[model]\nresidual = 1", ", line 2", "model.residual = 1 is not allowed; allowed: true or false"),
        ("[problem]\ntask = 'sequential_digits'\nseq_len = 5", ", line 3", "problem.seq_len = 5"),
        ("[problem]\ntask = 'ring'", "", "model.kind = mlp is not allowed with problem.task = ring; allowed: gan"),
        ("[clipping]\nkind = 'nrom'", ", line 2", "clipping.kind = nrom is not allowed; allowed: one of: none, norm"),
        ("[clipping]\nknid = 'norm'", ", line 2", "unknown knob clipping.knid; did you mean clipping.kind?"),
        ("\n[zzz]\nx = 1", ", line 2", "unknown knob zzz"),
        ("titel = 'x'", "", "unknown knob titel"),
        ('"a\\nb" = 1', "", "unknown knob a b"),
        ("optimizer = 5", "", "optimizer must be a section"),
        ("schema = 3", "", "schema"),
        ("title = 5", "", "title"),
        ("title = '" + "x" * 3000 + "'", "", "title"),
        ("lesson = 1", "", "lesson"),
        ("[[lesson]]\ntext = 'a'\n[[lesson]]\ntext = 'b'\nzzz = 1", ", line 3", "lesson.1.zzz"),
        ("[promise]\noutcome = 'wonderful'", ", line 2", "promise.outcome"),
        ("[promise]\naccuracy = nan", ", line 2", "promise.accuracy"),
        (
            "[promise]\nwrong_fixes = ['optimizer.lr=1']",
            ", line 2",
            "promise.wrong_fixes.0 = optimizer.lr=1 is not allowed",
        ),
        ("group = 'nonsense'", "", "group = nonsense is not allowed; input should be 'healthy', 'exploding'"),
        ("x = ", ", last line", "not valid TOML"),
        ("[run]\nsteps = 1\nsteps = 2\n", ", line 3", "not valid TOML"),
        ("[run\n", ", line 1", "not valid TOML"),
        ("x = " + "[" * 100_000, "", "not valid TOML"),
        ("x = " + "{a=" * 100_000, "", "not valid TOML"),
        ("optimizer.lr" + ".a" * 190 + " = 1", "", "optimizer.lr = a table"),
        ("a" + ".a" * 190 + " = 1", "", "unknown knob a"),
        ("[run]\na" + ".a" * 400_000 + " = 1", ", line 2", "more than 200 dots"),
    ],
)
def test_wrong_file_is_refused_with_place_and_reason(text: str, place: str, says: str) -> None:
    message = refused(text)
    assert message.startswith(f"sample.toml{place}: ")
    assert says in message


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (
            "step = 5\nknob = 'optimizer.kind'\nvalue = 'adam'",
            "optimizer.kind acts on restart and cannot change at step 5; live in its section: optimizer.lr",
        ),
        ("step = 5\nknob = 'optimizer.lr'\nvalue = -2", "optimizer.lr = -2"),
        ("step = 5\nknob = 'optimizer.lr'\nvalue = nan", "optimizer.lr = nan"),
        ("step = 5\nknob = 'optimizer.lr'\nvalue = {}", "optimizer.lr = a table"),
        ("step = 5\nknob = 'optimizer.speed'\nvalue = 1", "unknown knob optimizer.speed"),
        ("step = 5\nknob = ['optimizer.lr']\nvalue = 1", "unknown knob"),
        ("step = -1\nknob = 'optimizer.lr'\nvalue = 1", "step = -1 is not allowed; allowed: a whole number at least 0"),
        ("step = true\nknob = 'optimizer.lr'\nvalue = 1", "step = true"),
        ("step = 1.5\nknob = 'optimizer.lr'\nvalue = 1", "step = 1.5"),
        (f"step = 0x{'f' * 5000}\nknob = 'optimizer.lr'\nvalue = 1", "step = an integer of thousands of digits"),
        ("step = {}\nknob = 'optimizer.lr'\nvalue = 1", "step = a table"),
        ("step = 5\nknob = 'optimizer.lr'", "exactly step, knob and value"),
        ("step = 5\nknob = 'optimizer.lr'\nvalue = 1\nnote = ''", "exactly step, knob and value"),
    ],
)
def test_wrong_timeline_is_refused_and_the_section_is_not_blamed(entry: str, says: str) -> None:
    message = refused(f"[optimizer]\nkind = 'sgd'\nlr = 0.1\n\n[[timeline]]\n{entry}")
    assert says in message
    assert message.startswith("sample.toml, line 5: timeline.0: ")


def test_a_timeline_without_end_is_refused() -> None:
    line = "\n[[timeline]]\nstep = 5\nknob = 'optimizer.lr'\nvalue = 1"
    assert refused(line * (MOST_CHANGES + 1)) == (
        "sample.toml, line 2: timeline: 10,001 changes are not allowed; allowed: at most 10,000"
    )
    assert "characters, which is more than is read" in refused(line * 100_000)


def test_a_file_name_that_is_not_utf8_gives_a_title_that_is() -> None:
    preset = presets.parse("", Path("caf\udce9.toml"))
    assert (preset.id, preset.title) == ("caf\\udce9", "caf\\udce9")
    assert presets.parse(presets.to_toml(preset), Path("x.toml")).title == preset.title


SKIP = "problem.skip_batches"


def skipping(start: int, *made: tuple[int, int]) -> tuple[Change, ...]:
    """The timeline of a run that passes over so many batches from the start, and so many from these steps on."""
    experiment = Experiment().with_values({SKIP: start})
    return read_timeline([{"step": step, "knob": SKIP, "value": value} for step, value in made], experiment)


@pytest.mark.parametrize(
    ("start", "made", "says"),
    [
        (
            0,
            [(100, 5), (200, 3)],
            "timeline.1: problem.skip_batches = 3 is not allowed, for it cannot fall: 5 batches were skipped already",
        ),
        (
            0,
            [(200, 0), (100, 1)],
            "timeline.0: problem.skip_batches = 0 is not allowed, for it cannot fall: 1 batch was skipped already",
        ),
        (7, [(1, 6)], "timeline.0: problem.skip_batches = 6"),
        (0, [(100, 5), (200, 3), (200, 8)], "timeline.1: problem.skip_batches = 3"),
        (0, [(0, 5), (1, 4)], "allowed: at least 5, at most 100000"),
    ],
)
def test_what_was_passed_over_cannot_come_back(start: int, made: list[tuple[int, int]], says: str) -> None:
    with pytest.raises(KnobError) as raised:
        skipping(start, *made)
    assert says in str(raised.value)


def test_batches_to_be_passed_over_can_be_taken_back_before_the_step() -> None:
    """As a run notes it, whose own timeline must be read again."""
    skipping(0, (100, 5), (100, 0), (200, 0))
    skipping(0, (100, 5), (200, 9), (200, 6), (200, 5), (300, 5))
    skipping(7, (0, 3))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff\xfe[\x00r\x00u\x00n\x00]\x00", "line 1: not UTF-8 text (byte 0xff)"),
        (b"[run]\ntitle = '\xe9'", "line 2: not UTF-8 text (byte 0xe9)"),
        (b"x" * 2_000_000, "larger than 1000 kB"),
        (b"\x00", "line 1: not valid TOML"),
    ],
)
def test_wrong_bytes_are_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(content)
    with pytest.raises(PresetError) as raised:
        presets.read(path)
    assert says in str(raised.value) and str(path) in str(raised.value)


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(b"\xef\xbb\xbf" + SAMPLE.encode())
    assert presets.read(path).title == "Sample"


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PresetError, match="no such file"):
        presets.read(tmp_path / "missing.toml")
    with pytest.raises(PresetError, match="is a directory"):
        presets.load(tmp_path)


@pytest.mark.parametrize(
    "source",
    ["nothing-of-that-name", "", "a\nb", "x" * 5000, "x" * 5000 + ".toml", "a\0b", "a\0b.toml", "../..", "\ud800"],
)
def test_a_source_that_is_no_preset_is_refused(source: str) -> None:
    with pytest.raises(PresetError):
        presets.load(source)


@pytest.mark.parametrize("path", BUNDLED, ids=[path.stem for path in BUNDLED])
def test_bundled_preset_is_found_by_name_and_comes_back_from_its_text(path: Path) -> None:
    preset = presets.load(path.stem)
    assert preset.bundled and preset.path == path
    assert preset.title and preset.summary
    assert bool(preset.experiment.changed_knobs()) == (
        path.stem != "healthy-mlp"
    )  # which has every knob at its default
    assert presets.parse(presets.to_toml(preset), path) == preset


def test_there_are_bundled_presets() -> None:
    assert BUNDLED


def test_bytes_of_any_kind_are_refused_or_read(tmp_path: Path) -> None:
    """Random ones, and a sample with some of its bytes replaced. Texts of bundled presets are changed in
    tests/torture/test_fuzzing.py."""
    random, path = np.random.default_rng(1), tmp_path / "a.toml"
    bits = [b"[", b"]", b"=", b'"', b"\n", b"1e400", b"nan", b"-", b".", b"{", b"\xff", b"0", b"true", b"", b"", b""]
    for size in random.integers(0, 200, 300):
        path.write_bytes(random.bytes(size))
        read_or_refuse(path)
        data = bytearray(SAMPLE.encode())
        for place in random.integers(0, len(data), random.integers(1, 6)):
            data[place : place + int(random.integers(0, 3))] = bits[random.integers(len(bits))]
        path.write_bytes(data)
        read_or_refuse(path)


@settings(max_examples=200)
@given(
    st.dictionaries(
        st.sampled_from(
            [*(knob.section for knob in KNOBS.values()), "title", "lesson", "timeline", "promise", "schema"]
        )
        | texts,
        st.recursive(
            st.none().map(lambda _: math.nan) | st.booleans() | st.integers() | st.floats() | texts | st.dates(),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from([knob.field for knob in KNOBS.values()] + ["step", "knob", "value", "text"])
                    | texts,
                    inner,
                    max_size=3,
                )
            ),
            max_leaves=6,
        ),
        max_size=3,
    )
)
def test_any_toml_table_is_refused_or_read(table: dict) -> None:
    try:
        presets.parse(tomli_w.dumps(table), PATH)
    except PresetError as fault:
        assert str(fault).isprintable() and str(fault).startswith("sample.toml")


def test_saved_preset_is_found_again(own_user_data: Path) -> None:
    preset = presets.parse(SAMPLE, PATH)
    path = user_presets.save_user_preset(preset)
    assert path == own_user_data / "gradstudio" / "presets" / "sample.toml"
    assert path in list(presets.available())
    again = presets.load("sample")
    assert (again.experiment, again.timeline, again.lesson, again.bundled) == (
        preset.experiment,
        preset.timeline,
        preset.lesson,
        False,
    )


def test_a_broken_preset_does_not_keep_the_others_from_being_read_ahead() -> None:
    path = user_presets.save_user_preset(Preset(id="x", title="Mine", experiment=Experiment()))
    path.with_name("broken.toml").write_text("title =")
    path.with_name("a-folder.toml").mkdir()
    presets.read_ahead()
    assert presets.read(path) is presets.read(path)
    with pytest.raises(PresetError):
        presets.read(path.with_name("broken.toml"))


@pytest.mark.parametrize("title", ["", "  ", "...", "/", "_"])
def test_a_title_without_a_letter_is_no_name(title: str) -> None:
    with pytest.raises(PresetError, match="no name for a preset"):
        user_presets.save_user_preset(Preset(id="x", title=title, experiment=Experiment()))


def test_a_title_cannot_lead_out_of_the_folder_nor_shadow_a_bundled_preset() -> None:
    path = user_presets.save_user_preset(Preset(id="x", title="../../etc/passwd", experiment=Experiment()))
    assert path == files.user_presets() / "etc-passwd.toml"
    with pytest.raises(PresetError, match="bundled preset"):
        user_presets.save_user_preset(Preset(id="x", title=BUNDLED[0].stem, experiment=Experiment()))


def test_saving_where_nothing_can_be_written_is_a_preset_error(own_user_data: Path) -> None:
    own_user_data.write_text("a file where the folder should be")
    with pytest.raises(PresetError, match=r"sample\.toml: not a directory"):
        user_presets.save_user_preset(presets.parse(SAMPLE, PATH))


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ('[[lesson]]\ntext = "x"\nknobs = ["nonsense"]', "line 3: lesson.0: 'nonsense'"),
        (
            '[[lesson]]\ntext = "x"\n[[lesson]]\ntext = "y"\nknobs = ["optimizer.lr=zzz"]',
            "line 5: lesson.1: optimizer.lr = zzz",
        ),
        (
            '[[lesson]]\ntext = "x"\nmap = "made"',
            "lesson.0: map = made is not allowed; allowed: beside a table [map]",
        ),
        (
            '[[lesson]]\ntext = "x"\nrule = "no_such"',
            "lesson.0: rule = no_such is not allowed; allowed: one of: ranks_alike",
        ),
        ('[promise]\nfix = ["run.seed=-1"]', "promise: run.seed = -1"),
        ('[promise]\nwrong_fixes = [["run.seed=-1"]]', "promise: run.seed = -1"),
        ("title = 3", "title = 3 is not allowed"),
    ],
)
def test_a_lesson_and_a_promise_are_checked_as_knobs_are(part: str, says: str) -> None:
    with pytest.raises(PresetError) as fault:
        presets.parse("schema = 1\n\n" + part + "\n", Path("mine.toml"))
    assert says in str(fault.value) and "\n" not in str(fault.value)


def test_saving_never_takes_another_presets_place() -> None:
    path = user_presets.save_user_preset(Preset(id="x", title="Взрыв 1", experiment=Experiment()))
    assert path.stem == "взрыв-1" and presets.load("взрыв-1").title == "Взрыв 1"
    with pytest.raises(PresetError, match="already"):
        user_presets.save_user_preset(Preset(id="y", title="ВЗРЫВ  1", experiment=Experiment()))
    assert user_presets.save_user_preset(presets.load("взрыв-1")) == path
    for title in ("", "  ", "--", "x" * 61):
        with pytest.raises(PresetError, match="no name for a preset"):
            user_presets.save_user_preset(Preset(id="z", title=title, experiment=Experiment()))
