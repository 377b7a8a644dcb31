"""Curves of other programs: every usual spelling is read, and whatever else lies in a file ends in a CurveError of one
line."""

from __future__ import annotations

import contextlib
import math
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradstudio.session.files import curve_import
from gradstudio.session.files.curve_import import Curve, CurveError
from gradstudio.session.files.curve_import import imported_curve as limits
from gradstudio.session.files.tensorboard import records


def table(folder: Path, text: str | bytes, name: str = "log.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(path: Path) -> dict[str, tuple[list[float], list[float]]]:
    return {found.name: (found.steps.tolist(), found.values.tolist()) for found in curve_import.read(path)}


def refused(path: Path) -> str:
    with pytest.raises(CurveError) as raised:
        curve_import.read(path)
    text = str(raised.value)
    assert text.isprintable() and len(text) < 500 and text.startswith(str(path))
    return text.removeprefix(str(path))


# ---- tables


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("step", ["step", "Step", "global_step", "trainer/global_step", "iteration", "epoch"])
def test_a_step_column_is_found_by_its_name(tmp_path: Path, delimiter: str, step: str) -> None:
    lines = [["loss", step, "acc"], ["3", "10", "0.1"], ["2", "20", "0.2"]]
    path = table(tmp_path, "\n".join(delimiter.join(line) for line in lines))
    assert read(path) == {"loss": ([10, 20], [3, 2]), "acc": ([10, 20], [0.1, 0.2])}


def test_a_step_counts_before_an_epoch_which_then_is_a_curve(tmp_path: Path) -> None:
    assert read(table(tmp_path, "epoch,step,loss\n0,5,2\n1,6,1\n")) == {
        "epoch": ([5, 6], [0, 1]),
        "loss": ([5, 6], [2, 1]),
    }


def test_without_a_step_column_rows_are_counted(tmp_path: Path) -> None:
    assert read(table(tmp_path, "loss\n3\n2\n\n1\n")) == {"loss": ([0, 1, 2], [3, 2, 1])}


def test_without_a_header_columns_are_numbered(tmp_path: Path) -> None:
    assert read(table(tmp_path, "3,1e-3\n2,nan\n"))["column 1"] == ([0, 1], [3, 2])


def test_columns_of_one_name_are_told_apart(tmp_path: Path) -> None:
    curves = read(table(tmp_path, "step,loss,loss,loss (2),loss\n1,2,3,4,5\n"))
    assert {name: values for name, (_, values) in curves.items()} == {
        "loss": [2], "loss (2)": [3], "loss (2) (2)": [4], "loss (3)": [5],
    }  # fmt: skip


def test_a_tensorboard_download_is_named_by_its_file(tmp_path: Path) -> None:
    path = table(tmp_path, "Wall time,Step,Value\n1700000000.1,0,2.5\n1700000001.1,100,NaN\n", "run-a-tag-loss.csv")
    [found] = curve_import.read(path)
    assert (found.name, found.steps.tolist()) == ("run-a-tag-loss", [0, 100])
    assert found.values[0] == 2.5 and math.isnan(found.values[1])


def test_a_wandb_download_keeps_what_each_run_logged(tmp_path: Path) -> None:
    text = (
        '"Step","a - loss","a - loss__MIN","b - loss"\n"0","1.5","1.5",""\n"1","","","7"\n"2","NaN","NaN","Infinity"\n'
    )
    found = read(table(tmp_path, text))
    assert found["b - loss"] == ([1, 2], [7, math.inf])
    assert found["a - loss"][0] == [0, 2] and math.isnan(found["a - loss"][1][1])


@pytest.mark.parametrize("spelled", ["nan", "NaN", "NAN", "-nan", "+NaN", "1.#QNAN", "-1.#IND", "nan(ind)"])
def test_nan_however_it_is_spelled(tmp_path: Path, spelled: str) -> None:
    assert math.isnan(read(table(tmp_path, f"loss\n1\n{spelled}\n"))["loss"][1][1])


@pytest.mark.parametrize(
    ("spelled", "value"),
    [("inf", math.inf), ("-Inf", -math.inf), ("+Infinity", math.inf), ("∞", math.inf), ("1.#INF", math.inf)],
)
def test_inf_however_it_is_spelled(tmp_path: Path, spelled: str, value: float) -> None:
    assert read(table(tmp_path, f"loss\n1\n{spelled}\n"))["loss"][1] == [1, value]


@pytest.mark.parametrize("missing", ["", " ", "NA", "n/a", "null", "None", "-"])
def test_what_is_missing_is_no_point(tmp_path: Path, missing: str) -> None:
    assert read(table(tmp_path, f"step,loss,acc\n0,{missing},1\n1,2,1\n"))["loss"] == ([1], [2])


def test_a_decimal_comma_and_what_a_spreadsheet_saves(tmp_path: Path) -> None:
    assert read(table(tmp_path, "step;loss\r\n0;0,5\r\n1;1,25\r\n")) == {"loss": ([0, 1], [0.5, 1.25])}
    assert read(table(tmp_path, b"\xef\xbb\xbfstep,loss\n0,1\n")) == {"loss": ([0], [1])}
    assert read(table(tmp_path, "step\tloss\n0\t1\n".encode("utf-16"))) == {"loss": ([0], [1])}


def test_columns_of_words_and_times_are_no_curves(tmp_path: Path) -> None:
    assert set(read(table(tmp_path, "step,note,loss,_timestamp\n0,start,3,170\n1,,2,171\n"))) == {"loss"}


def test_steps_out_of_order_are_put_in_order(tmp_path: Path) -> None:
    assert read(table(tmp_path, "step,loss\n2,20\n0,0\n1,10\n")) == {"loss": ([0, 1, 2], [0, 10, 20])}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "empty"),
        ("step\n1\n2\n", "no column of numbers"),
        ("step,loss\n", "no column of numbers"),
        ("name,word\na,b\n", "no column of numbers"),
        ("step,loss\n0,1\n1,bad\n", ", line 3: loss = bad is not allowed; allowed: a number, nan, inf"),
        ("step,loss\n0,1\nx,2\n", ", line 3: step = x is not allowed; allowed: a finite number"),
        ("step,loss\n0,1\nnan,2\n", ", line 3: step = nan is not allowed"),
        ("step,loss\n0,1\n,2\n", ", line 3: step =  is not allowed"),
        ("loss,step\n0,1\n2\n", ", line 3: the row ends before its step"),
        ("step,loss\n0,1\n1,2,3\n", ", line 3: 3 cells under 2 columns"),
        ("loss\n1\n1_000\n", "1_000 is not allowed"),
        (b"loss\n1\n\xff\n", ", line 3: not UTF-8"),
        (b"loss\0", "not a table of text"),
        ("a," * 2000, "allowed: at most 1,000"),
        ('loss\n"' + "1" * 200_000, "no table: field larger"),
        ("st\x07ep<script>,loss\na,a\n", "no column of numbers"),
    ],
)
def test_an_error_names_the_line_and_what_is_allowed(tmp_path: Path, text: str | bytes, part: str) -> None:
    assert part in refused(table(tmp_path, text))


def test_a_file_that_is_not_there_or_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no such file" in refused(tmp_path / "none.csv")
    monkeypatch.setattr(limits, "LARGEST_FILE", 10)
    assert "larger than" in refused(table(tmp_path, "loss\n1\n2\n3\n4\n"))


@settings(max_examples=200)
@given(st.binary(max_size=300) | st.text("0123456789.,;\t\n\"' naif-+estp", max_size=200).map(str.encode))
def test_any_file_is_curves_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = table(tmp_path_factory.mktemp("any"), data)
    for name in (path, path.rename(path.with_name("events.out.tfevents.1"))):
        name = path if path.exists() else name
        with contextlib.suppress(CurveError):
            for found in curve_import.read(name):
                check(found)


def check(found: Curve) -> None:
    assert found.name and found.steps.dtype == found.values.dtype == np.float64
    assert len(found.steps) == len(found.values) >= 1
    assert np.isfinite(found.steps).all() and (np.diff(found.steps) >= 0).all()


# ---- TensorBoard


def field(number: int, kind: int, content: bytes) -> bytes:
    return bytes([number << 3 | kind]) + (bytes([len(content)]) + content if kind == 2 else content)


def event(step: int, *values: bytes) -> bytes:
    """An Event with a step below 128."""
    return (
        field(1, 1, struct.pack("<d", 1.0))
        + field(2, 0, bytes([step]))
        + field(5, 2, b"".join(field(1, 2, value) for value in values))
    )


def scalar(tag: str, value: float) -> bytes:
    return field(1, 2, tag.encode()) + field(2, 5, struct.pack("<f", value))


def tensor(tag: str, value: bytes, dtype: int, number: int) -> bytes:
    return field(1, 2, tag.encode()) + field(8, 2, field(1, 0, bytes([dtype])) + field(number, 2, value))


VERSION = field(1, 1, struct.pack("<d", 1.0)) + field(3, 2, b"brain.Event:2")
EVENTS = [VERSION, *(event(step, scalar("loss", 10.0 - step), scalar("acc", step / 8)) for step in range(9))]


def log(folder: Path, contents: list[bytes] = EVENTS, name: str = "events.out.tfevents.1.host") -> Path:
    return table(folder, records.pack(contents), name)


def test_the_checksum_is_that_of_the_standard() -> None:
    """RFC 3720, B.4, and the check value of the catalogue of CRCs; masked as TensorFlow does."""
    for content, crc in (
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"123456789", 0xE3069283),
    ):
        masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
        assert records.checksums([content]) == [masked]
        assert records.checksums([content] * records.FEW) == [masked] * records.FEW


def test_a_long_record_has_the_checksum_of_the_same_bytes_in_a_short_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    content = np.random.default_rng(0).bytes(records.LONG + 4099)
    found = records.checksums([content])
    monkeypatch.setattr(records, "LONG", len(content) + 1)
    assert records.checksums([content]) == found


def test_scalars_of_a_log_are_read_from_its_file_and_its_folder(tmp_path: Path) -> None:
    path = log(tmp_path)
    expected = {
        "loss": ([*range(9)], [10.0 - step for step in range(9)]),
        "acc": ([*range(9)], [step / 8 for step in range(9)]),
    }
    assert read(path) == read(tmp_path) == expected


def test_scalars_written_as_tensors_are_read(tmp_path: Path) -> None:
    single, double = struct.pack("<f", 0.5), struct.pack("<d", 0.1)
    values = [
        tensor("a", single, 1, 4),
        tensor("b", double, 2, 4),
        tensor("c", single, 1, 5),
        tensor("d", double, 2, 6),
        tensor("text", b"hi", 7, 8),
    ]
    found = read(log(tmp_path, [VERSION, event(3, *values)]))
    assert found == {"a": ([3], [0.5]), "b": ([3], [0.1]), "c": ([3], [0.5]), "d": ([3], [0.1])}


def test_nan_and_inf_stay(tmp_path: Path) -> None:
    [found] = curve_import.read(
        log(tmp_path, [event(0, scalar("loss", math.nan)), event(1, scalar("loss", -math.inf))])
    )
    assert math.isnan(found.values[0]) and found.values[1] == -math.inf


def test_runs_in_a_folder_are_told_apart_and_a_run_goes_on_in_a_second_file(tmp_path: Path) -> None:
    for run in ("a", "b"):
        (tmp_path / run).mkdir()
        log(tmp_path / run)
    log(tmp_path / "a", [event(5, scalar("loss", 77.0)), event(6, scalar("loss", 78.0))], "events.out.tfevents.2.host")
    found = read(tmp_path)
    assert found["b/loss"][0] == [*range(9)]
    assert found["a/loss"] == ([*range(7)], [10.0, 9.0, 8.0, 7.0, 6.0, 77.0, 78.0])


@pytest.mark.parametrize("cut", [1, 4, 10, 20, 30])
def test_a_last_record_that_is_not_yet_whole_is_left_out(tmp_path: Path, cut: int) -> None:
    data = records.pack(EVENTS)
    assert len(read(table(tmp_path, data[:-cut], "events.out.tfevents.1"))["loss"][0]) == 8


@settings(max_examples=60)
@given(st.integers(0, len(records.pack(EVENTS)) - 1), st.integers(1, 255))
def test_a_changed_byte_is_noticed(tmp_path_factory: pytest.TempPathFactory, place: int, change: int) -> None:
    data = bytearray(records.pack(EVENTS))
    data[place] ^= change
    path = table(tmp_path_factory.mktemp("bytes"), bytes(data), "events.out.tfevents.1")
    assert ": record " in refused(path) and "is damaged, at byte" in refused(path)


@pytest.mark.parametrize(
    ("contents", "part"),
    [
        ([], "no scalars"),
        ([VERSION], "no scalars"),
        ([b"\xff" * 40], "holds no event"),
        ([b"\x0d\x01"], "holds no event"),
        ([b"hello"], "no "),
        ([b"\x10" + b"\xff" * 9 + b"\x7f" + event(1, scalar("loss", 1.0))], "holds no event"),  # a step of 70 bits
    ],
)
def test_what_holds_no_scalars_is_said(tmp_path: Path, contents: list[bytes], part: str) -> None:
    assert part in refused(log(tmp_path, contents))


def test_a_folder_without_a_log_is_said(tmp_path: Path) -> None:
    assert "no log in this folder" in refused(tmp_path)
