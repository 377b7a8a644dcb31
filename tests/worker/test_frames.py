"""The protocol of a worker, byte by byte."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradstudio.worker import frames

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda part: st.lists(part, max_size=3), max_leaves=9
)


@given(st.lists(st.tuples(st.dictionaries(st.text(), JSON, max_size=3), st.binary(max_size=99)), max_size=4))
def test_frames_come_back(said: list[tuple[dict, bytes]]) -> None:
    told = [({**head, "m": "news"}, raw) for head, raw in said]
    data = b"".join(bytes(piece) for head, raw in told for piece in frames.pack(head, [raw]))
    file, back = io.BytesIO(data), []
    while (frame := frames.read(file)) is not None:
        back.append((frame.head, bytes(frame.raw)))
    assert back == told


def test_arrays_are_sent_as_they_lie() -> None:
    values = np.arange(6.0).reshape(2, 3)
    data = b"".join(bytes(piece) for piece in frames.pack({"m": "a"}, [values, np.empty(0)]))
    frame = frames.read(io.BytesIO(data))
    assert frame is not None and np.frombuffer(frame.raw).tolist() == list(range(6))


def test_a_frame_that_is_cut_short_is_the_end() -> None:
    data = b"".join(bytes(piece) for piece in frames.pack({"m": "a"}, [b"12345"]))
    assert all(frames.read(io.BytesIO(data[:length])) is None for length in range(len(data)))


@pytest.mark.parametrize(
    "data",
    [struct.pack("<II", 1 << 31, 0), struct.pack("<II", 2, 0) + b"[]", struct.pack("<II", 2, 0) + b"{}",
     struct.pack("<II", 3, 0) + b"NaN", struct.pack("<II", 1, 0) + b"\xff"],
)  # fmt: skip
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(frames.BrokenFrame):
        frames.read(io.BytesIO(data))


def test_what_a_login_prints_comes_before_the_greeting() -> None:
    file = io.BytesIO(b"Welcome!\nnews " + frames.greeting("n1") + b"rest")
    assert frames.find_greeting(file, "n1") == "Welcome!\n" and file.read() == b"rest"
    assert frames.find_greeting(io.BytesIO(frames.greeting("other")), "n1") is None
