"""`gradstudio top`: what it shows of a run on a small terminal, and what its keys ask for."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradstudio.commands import top
from gradstudio.commands.text_curve import MARK, curve
from gradstudio.commands.top_screen import screen
from gradstudio.core.unknown import UNKNOWN
from gradstudio.session.files.log_reading import log_run
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter


@pytest.fixture
def run(tmp_path: Path) -> Run:
    lines = [f"{step},{math.exp(-step / 30) if step < 180 else math.nan},{1 + step % 7},0.1" for step in range(200)]
    (tmp_path / "log.csv").write_text("\n".join(["step,loss,grad_norm,lr", *lines]))
    return log_run.read(tmp_path / "log.csv", {}).run


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 60), (40, 12)])
def test_the_screen_is_as_large_as_the_terminal_and_tells_the_curves_and_findings(
    run: Run, width: int, height: int
) -> None:
    lines = [text for text, _ in screen(run, width, height)]
    assert len(lines) == height and max(map(len, lines)) <= width
    assert "log.csv  diverged  step 199" in lines[0] and lines[-1] == "q quit"
    assert any(MARK in line for line in lines) and any("critical: The loss is not finite" in line for line in lines)


def test_a_curve_falls_from_its_highest_to_its_lowest_number_and_unknown_is_a_gap() -> None:
    values = np.array([8.0, 4.0, UNKNOWN, 2.0, math.inf, 1.0])
    lines = curve(values, 16, 4, axis=4)
    assert lines[0].split()[0] == "8" and lines[-1].split()[0] == "1"
    assert [len(line) for line in lines] == [16] * 4 and lines[0].count(MARK) == 1
    assert curve(np.empty(0), 16, 2)[0].strip() == "–" or len(curve(np.empty(0), 16, 2)) == 2


def test_keys_ask_the_program_that_trains(run: Run) -> None:
    asked: list[str] = []
    kept: Any = type("Kept", (), {"request": lambda self, name, word, factor: asked.append(word)})()
    for status, key in (("running", "p"), ("paused", "p"), ("running", "s"), ("running", "x")):
        RunWriter(run).set_status(status)  # pyright: ignore[reportArgumentType]
        top._ask(kept, run, key)
    assert asked == ["pause", "resume", "stop"]


def test_without_a_terminal_it_says_so(gradstudio: Callable[..., Any]) -> None:
    answer = gradstudio("top")
    assert answer.code == 2 and "runs show" in answer.err and len(answer.err.splitlines()) == 1
