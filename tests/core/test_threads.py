"""How many threads torch computes with, as the environment asks for it."""

from __future__ import annotations

import pytest

from gradstudio.core import threads
from gradstudio.core.knobs import KnobError


@pytest.mark.parametrize(("asked", "standing", "threads_chosen"), [
    ("", "", "1"), ("4", "", "4"), ("4", "2", "4"), ("", "2", "2"), ("", "2,1", "1"), ("", "0", "1"),
])  # fmt: skip
def test_the_program_s_own_setting_comes_first(
    monkeypatch: pytest.MonkeyPatch, asked: str, standing: str, threads_chosen: str
) -> None:
    monkeypatch.setenv("GRADSTUDIO_THREADS", asked)
    monkeypatch.setenv("OMP_NUM_THREADS", standing)
    assert threads.chosen() == threads_chosen


@pytest.mark.parametrize("asked", ["0", "abc", "-1", "1025", "1.5"])
def test_what_is_no_number_of_threads_is_refused(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    monkeypatch.setenv("GRADSTUDIO_THREADS", asked)
    with pytest.raises(KnobError, match=f"GRADSTUDIO_THREADS = {asked} is not allowed"):
        threads.chosen()


@pytest.mark.parametrize(("said", "found"), [("4", "4"), ("0", ""), ("1); evil(", ""), (4, ""), (None, "")])
def test_what_a_run_says_of_its_threads_is_a_count_or_nothing(said: object, found: str) -> None:
    assert threads.of({"threads": said}) == found
    assert threads.of({}) == ""
