"""Compiled functions do what they do in Python, from the first call on, wherever the program runs."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from waiting import PATIENCE, join

from gradstudio.core import jit
from gradstudio.core.jit import READ_ONLY


def largest(values: np.ndarray) -> float:
    found = -math.inf
    for value in values:
        if math.isnan(value):
            return value
        found = max(found, value)
    return found


def test_it_takes_rows_that_lie_apart_and_arrays_that_cannot_be_written_to() -> None:
    fast = jit.jit(f"float64({READ_ONLY.format('float64', 1)})")(largest)
    values = np.arange(12.0).reshape(3, 4)
    values.flags.writeable = False
    assert fast(values[:, 1]) == largest(values[:, 1]) == 9
    assert fast(np.array([1.0, -math.inf])) == 1 and math.isnan(fast(np.array([1.0, math.nan, 2.0])))


def test_other_types_are_an_error_and_not_compiled_for() -> None:
    fast = jit.jit("float64(float64[::1])")(largest)
    with pytest.raises(TypeError, match="No matching definition"):
        fast(np.ones(3, np.float32))


def test_who_comes_while_it_is_compiled_waits_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    made, plain = [], numba.njit

    def making(*args: Any, **kwargs: Any) -> Any:
        made.extend([1] * ("nogil" in kwargs))  # numba makes some of its own with it
        return plain(*args, **kwargs)

    monkeypatch.setattr(numba, "njit", making)
    fast = jit.jit("float64(float64[::1])")(largest)
    assert not made, "nothing is compiled before it is wanted"
    found: list[float] = []
    threads = [threading.Thread(target=lambda: found.append(fast(np.arange(5.0)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        join(thread)
    assert found == [4.0] * 4 and made == [1]


def test_all_that_is_known_is_compiled_beforehand() -> None:
    fast = jit.jit("float64(float64[::1])")(largest)
    seen = []
    watched = jit.jit("float64(float64[::1])")(largest)
    watched.compile = lambda: seen.append(jit.busy())  # type: ignore[method-assign]
    jit.compile_all()
    jit._known.remove(watched)
    assert seen == [True] and not jit.busy()
    assert fast._code is not None and fast(np.ones(2)) == 1


DOUBLED = """
from gradstudio.core.jit import jit

@jit("float64(float64)")
def doubled(value):
    return 2 * value
"""


@pytest.fixture
def doubled(tmp_path: Path) -> Callable[..., str]:
    """What a program says that doubles a number, and where its code is kept."""
    (tmp_path / "written.py").write_text(DOUBLED)

    def run(before: str = "", **environment: str) -> str:
        code = f"{before}\nfrom written import doubled\nprint(doubled(1.5), doubled._code.stats.cache_path)"
        return subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])} | environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        ).stdout

    return run


def test_where_nothing_can_be_written_it_is_compiled_at_each_start(doubled: Callable[..., str]) -> None:
    assert doubled(NUMBA_CACHE_LOCATOR_CLASSES="UserProvidedCacheLocator", NUMBA_CACHE_DIR="") == "3.0 None\n"


def test_what_was_kept_and_is_damaged_is_made_anew(doubled: Callable[..., str], tmp_path: Path) -> None:
    here = tmp_path / "cache"
    here.mkdir()
    assert doubled(NUMBA_CACHE_DIR=str(here)).startswith(f"3.0 {here}")
    (index,) = here.rglob("*.nbi")
    index.write_bytes(b"")
    assert doubled(NUMBA_CACHE_DIR=str(here)) == "3.0 None\n"
    assert doubled(NUMBA_CACHE_DIR=str(here)).startswith(f"3.0 {here}"), "and kept again"
    (code,) = here.rglob("*.nbc")
    code.write_bytes(code.read_bytes()[:100])
    assert doubled(NUMBA_CACHE_DIR=str(here)) == "3.0 None\n"


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such limits there")
def test_a_full_disk_does_not_matter(doubled: Callable[..., str], tmp_path: Path) -> None:
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"
    assert doubled(full, NUMBA_CACHE_DIR=str(tmp_path)) == "3.0 None\n"
