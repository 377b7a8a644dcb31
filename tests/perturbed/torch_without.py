"""A plugin of pytest that takes private parts of torch away, one at a time, as a version of torch may that was never
tried: `pytest -p torch_without --without NAME`, or `--without all` (docs/reliability.md).

What is left gives the same figures, and says the truth. A test of the very thing that a part is for has the mark
`wants` with its name, and is skipped without it. Programs that a test starts have every part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gradstudio.engine.torch_internals import parts
from gradstudio.engine.torch_internals.internal import Internal

PARTS = {each.name: each for each in parts.INTERNALS}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--without", default="all", choices=[*PARTS, "all"], help="the part of torch to take away")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    name = metafunc.config.getoption("--without")
    metafunc.parametrize(
        "part_away", list(parts.PARTS_OF_A_WATCH) if name == "all" else [PARTS[name]], ids=_name, indirect=True
    )


def _name(part: Internal) -> str:
    return f"without {part.name}"


@pytest.fixture(autouse=True)
def part_away(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if any(request.param.name in mark.args for mark in request.node.iter_markers("wants")):
        pytest.skip(f"it is about {request.param.name}")
    monkeypatch.setattr(request.param, "_find", _gone)
    request.param.forget()
    yield
    monkeypatch.undo()
    request.param.forget()


def _gone() -> Any:
    raise AttributeError("taken away by the test")
