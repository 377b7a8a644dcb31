"""Every knob there is: its default holds, it can be written and read back, and a wrong value is refused in words."""

from __future__ import annotations

import math

import pytest

from gradstudio.core.adjusted_knobs import with_adjustments
from gradstudio.core.experiment import KNOBS, Experiment, find_knob, parse_assignment
from gradstudio.core.knobs import Knob, KnobError, Section, Value, format_value

every_knob = pytest.mark.parametrize("knob", KNOBS.values(), ids=KNOBS)


def wrong_values(knob: Knob) -> list[object]:
    """Values that the knob must refuse: out of range, of another kind, not finite."""
    wrong: list[object] = ["no such value", [1], {"a": 1}, None]
    if knob.kind in ("float", "int"):
        wrong += [math.nan, math.inf, -math.inf, True, "1"]
        wrong += [knob.minimum if knob.above_minimum else knob.minimum - 1] if knob.minimum > -math.inf else []
        wrong += [2 * knob.maximum + 1] if knob.maximum < math.inf else []
    if knob.kind == "int":
        wrong += [1.5, 10**30]
    if knob.kind == "bool":
        wrong += [0, 1, "true"]
    return wrong


def test_the_table_holds_every_section_in_order() -> None:
    sections = {name: part for name, part in Experiment() if isinstance(part, Section)}
    assert list(dict.fromkeys(knob.section for knob in KNOBS.values())) == list(sections)
    assert len(KNOBS) == sum(len(type(section).model_fields) for section in sections.values())


@every_knob
def test_default_is_allowed_and_comes_back_from_its_text(knob: Knob) -> None:
    assert Experiment().with_value(knob.name, knob.default)[knob.name] == knob.default
    back = knob.parse(f" {format_value(knob.default)} ")
    assert (back, type(back)) == (knob.default, type(knob.default))


@every_knob
def test_bounds_and_choices_themselves_are_allowed(knob: Knob) -> None:
    values: list[Value] = list(knob.choices)
    if knob.kind == "bool":
        values = [True, False]
    if knob.kind in ("float", "int"):
        convert = int if knob.kind == "int" else float
        values = [convert(knob.maximum)] + ([] if knob.above_minimum else [convert(knob.minimum)])
    for value in values:
        assert with_adjustments(Experiment(), knob.name, value)[knob.name] == value
        assert knob.parse(format_value(value)) == value


@every_knob
def test_wrong_value_is_refused_with_name_value_and_what_is_allowed(knob: Knob) -> None:
    for value in wrong_values(knob):
        with pytest.raises(KnobError) as raised:
            Experiment().with_value(knob.name, value)  # type: ignore[arg-type]
        text = str(raised.value)
        assert (
            text.startswith(f"{knob.name} = ")
            and f"(default {format_value(knob.default)})" in text
            and "\n" not in text
        )
        assert not isinstance(value, bool | int | float | str) or format_value(value)[:50] in text
        assert knob.kind == "text" or knob.accepted in text


@every_knob
def test_text_of_another_kind_is_refused(knob: Knob) -> None:
    with pytest.raises(KnobError, match=knob.name):
        Experiment().with_texts([f"{knob.name}=no such value"])


@every_knob
def test_declaration_is_complete(knob: Knob) -> None:
    assert knob.help.endswith(".") and "\n" not in knob.help
    shared = Experiment().with_value("problem.batch_size", 840)  # a multiple of any number of ranks
    for condition in knob.when:
        assert all(
            with_adjustments(shared, other, value)[other] == value
            for other, values in condition.items()
            for value in values
        )
    assert knob.kind not in ("float", "int") or (math.isfinite(knob.minimum) and math.isfinite(knob.maximum))
    if knob.slider:
        low, high = knob.slider
        assert knob.minimum <= low < high <= knob.maximum
        assert low <= knob.default <= high or knob.default == 0 or knob.name.endswith(("eps", "outlier_scale"))
        assert low > 0 or not knob.logarithmic


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("clipping.knd=norm", "did you mean clipping.kind?"),
        ("cliping.kind=norm", "did you mean clipping.kind?"),
        ("zzz=1", "sections are: clipping"),
        ("optimizer.zzzzz=1", "optimizer has: kind, lr"),
        ("mistakes.zzzz=1", "normalize_each_micro_batch and 4 more"),  # in an error there is no room for all
        ("optimizer.lr", "such as clipping.kind=norm"),
        ("=1", "unknown knob"),
        ("", "such as"),
        ("optimizer=1", "unknown knob optimizer"),
        ("x" * 10_000 + "=1", "unknown knob xxx"),
        ("optimizer.lr=1/0", "optimizer.lr = 1/0 is not allowed"),
        ("optimizer.lr=10^999", "optimizer.lr = 10^999 is not allowed"),
        ("optimizer.lr=-2^2", "optimizer.lr = -2^2 is not allowed"),  # -4 or 4?
        ("optimizer.lr=2^3^2", "optimizer.lr = 2^3^2 is not allowed"),
        ("optimizer.lr=1/nan", "optimizer.lr = nan"),
        ("run.steps=1/3", "run.steps = 1/3 is not allowed"),
        ("run.steps=1e30", "run.steps = 1e30 is not allowed"),
        ("optimizer.lr=" + "9" * 10_000, "optimizer.lr = inf"),
        ("run.steps=" + "9" * 10_000, "run.steps = 999"),
    ],
)
def test_wrong_assignment_says_what_would_be_right(text: str, says: str) -> None:
    with pytest.raises(KnobError) as raised:
        Experiment().with_texts([text])
    assert says in str(raised.value) and len(str(raised.value)) < 500


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("optimizer.lr=1e-3", 1e-3),
        ("optimizer.lr = 1", 1.0),
        ("run.steps=12", 12),
        ("run.steps=1e3", 1000),
        ("precision.init_scale=2^16", 65536.0),
        ("precision.init_scale = 2 ** 0.5", 2**0.5),
        ("optimizer.lr=1/3", 1 / 3),
        ("model.width=4*16", 64),
        ("model.residual=ON", True),
        ("model.residual=false", False),
    ],
)
def test_assignment_gives_the_knob_s_own_kind(text: str, value: Value) -> None:
    name, parsed = parse_assignment(text)
    assert name in KNOBS and parsed == value and type(parsed) is type(value)


@pytest.mark.parametrize("name", ["a\nb", "optimizer.l\x1b[31mr", "run.steps\r\n"])
def test_an_error_is_one_printable_line_whatever_it_quotes(name: str) -> None:
    with pytest.raises(KnobError) as raised:
        find_knob(name)
    assert str(raised.value).isprintable()
    with pytest.raises(KnobError) as raised:
        Experiment().with_value("run.device", name)
    assert str(raised.value).isprintable()
