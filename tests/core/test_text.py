from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradstudio.core.text import about_unseen, number, plural, reveal, short_name


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "NaN"),
        (math.inf, "Inf"),
        (-math.inf, "-Inf"),
        (0.0, "0"),
        (-0.0, "0"),
        (0.82, "0.82"),
        (39.0, "39"),
        (39164.22762, "3.92e4"),
        (6e-8, "6e-8"),
        (0.001, "0.001"),
        (0.00099, "9.9e-4"),
        (1234.5, "1234"),
        (999.6, "1000"),
        (-2.5e-12, "-2.5e-12"),
        (1e38, "1e38"),
        (5e-324, "4.94e-324"),
        (1.7976931348623157e308, "1.8e308"),
    ],
)
def test_number(value: float | None, text: str) -> None:
    assert number(value) == text


def test_number_with_other_digits() -> None:
    assert [number(39164.0, digits) for digits in (1, 2, 4)] == ["4e4", "3.9e4", "3.916e4"]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_short_and_right(value: float) -> None:
    text = number(value)
    assert len(text) <= 10
    assert math.isclose(float(text), value, rel_tol=6e-3) or abs(value) > 1.79e308


def test_plural() -> None:
    assert [plural(count, "step", "steps") for count in (0, 1, 2, 12345)] == [
        "0 steps",
        "1 step",
        "2 steps",
        "12,345 steps",
    ]


@pytest.mark.parametrize(("name", "longest", "short"), [
    ("rnn.weight_hh_l0", 17, "rnn.weight_hh_l0"),
    ("blocks.1.attention.query.weight", 18, "b.1.a.query.weight"),
    ("blocks.1.attention.query.weight", 17, "b.1.a.q.weight"),
    ("generator.hidden.0.weight", 17, "g.hidden.0.weight"),
    ("a_name_without_any_part_that_is_long", 12, "a_nam…s_long"),
])  # fmt: skip
def test_a_long_name_keeps_what_tells_it_apart(name: str, longest: int, short: str) -> None:
    assert short_name(name, longest) == short


def test_what_is_not_seen_is_revealed() -> None:
    assert reveal("x = 1\r\n\ty = 'é'\n") == "x = 1\n\ty = 'é'\n"
    assert reveal("# a\u202eb\u2066 \xa0\x00\u200b\U000e0041") == r"# a\u202eb\u2066 \xa0\x00\u200b\U000e0041"
    for blank in "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180f\u2800\u3164\ufe00\ufe0f\uffa0\U000e0100\U000e01ef":
        assert (
            reveal(f"eval('{blank}')") == f"eval('{blank.encode('unicode_escape').decode()}')"
        )  # bytes of code hide so
        assert about_unseen(f"\n{blank}").startswith(
            "1 character that cannot be seen is written as codes, the first in line 2"
        )
    assert about_unseen("x = 'é 漢 😀 ਕ੍ਰ'") == ""
    assert reveal("# all of it\rimport os") == "# all of it\\r\nimport os"  # where Python begins a line
