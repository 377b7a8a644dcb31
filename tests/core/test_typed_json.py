"""Records as JSON and back: to the bit, and nothing but what is declared."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gradstudio.core.events import Change, Event
from gradstudio.core.gauge_samples import Exponents, Shares
from gradstudio.core.layer_sample import Histogram, LayerSample
from gradstudio.core.provenance import Provenance
from gradstudio.core.row import Activation, Activations
from gradstudio.core.typed_json import NotConforming, dumps, from_plain, loads, to_plain
from gradstudio.core.unknown import UNKNOWN, is_known

BITS = st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0])


def again(declared: Any, value: Any) -> Any:
    raw: list[np.ndarray] = []
    text = dumps(to_plain(value, raw))
    return from_plain(declared, loads(text), memoryview(b"".join(each.tobytes() for each in raw)))


@given(BITS)
def test_every_float_comes_back_to_the_bit(value: float) -> None:
    assert struct.pack("<d", again(float, value)) == struct.pack("<d", value)


def test_a_number_that_nobody_measured_stays_one() -> None:
    assert not is_known(again(float, UNKNOWN)) and is_known(again(float, float("nan")))


@pytest.mark.parametrize("declared", [Event, Change, Activations, Provenance, Shares])
def test_records_come_back(declared: type) -> None:
    @given(st.from_type(declared))
    def holds(record: Any) -> None:
        assert repr(again(declared, record)) == repr(record)

    holds()


@given(arrays.arrays(np.int64, 61), BITS)
def test_arrays_come_back_to_the_bit(counts: np.ndarray, mean: float) -> None:
    one = Histogram(counts, 0.0, 1.0, mean, mean, 2.0, 0, 0, 3)
    back = again(LayerSample, LayerSample(3, {"a": {"weights": one}, "b": {"update": one}}))
    assert back.layers["b"]["update"].counts.tobytes() == counts.tobytes()
    assert struct.pack("<d", back.layers["a"]["weights"].mean) == struct.pack("<d", mean)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (int, 1.5), (int, True), (bool, 1), (str, None), (float, "1"), (float, {"float": "zz"}),
        (tuple[int, str], [1]), (tuple[int, ...], {"a": 1}), (Change, [1, "a"]), (Change, ["1", "optimizer.lr", 2.0]),
        (Activation, [1, 2, 3, 4, 5]), (dict[str, int], [1]), (Exponents, None), (np.ndarray, {"array": ["O", [1]]}),
        (np.ndarray, {"array": ["<f8", [9]]}), (np.ndarray, {"array": ["<f8", [-1]]}), (int | None, "a"),
    ],
)  # fmt: skip
def test_nothing_else_is_taken(declared: Any, said: Any) -> None:
    with pytest.raises(NotConforming):
        from_plain(declared, said, memoryview(b""))


@pytest.mark.parametrize("text", [b"NaN", b"[Infinity]", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_strict_json_is_refused(text: bytes) -> None:
    with pytest.raises(NotConforming):
        loads(text)
