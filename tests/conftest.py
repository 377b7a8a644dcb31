"""Before anything imports Qt or torch: no display, one thread, and nothing of the user's own."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

os.environ["QT_QPA_PLATFORM"] = "offscreen"
os.environ["MPLBACKEND"] = "agg"
os.environ["GRADSTUDIO_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

_HOME = Path(tempfile.mkdtemp(prefix="gradstudio-tests-"))
for _name in ("DATA", "CONFIG", "CACHE", "STATE"):
    os.environ[f"XDG_{_name}_HOME"] = str(_HOME / _name.lower())
_numbers = itertools.count()

settings.register_profile("gradstudio", deadline=None, derandomize="CI" in os.environ, database=None)
settings.load_profile("gradstudio")


def pytest_unconfigure() -> None:
    shutil.rmtree(_HOME, ignore_errors=True)


@pytest.fixture(autouse=True)
def own_user_data(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has a user data folder of its own, empty and not yet made."""
    folder = _HOME / f"data-{next(_numbers)}"
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))
    return folder


@pytest.fixture(autouse=True)
def no_training_thread_is_left() -> Iterator[None]:
    """A test that leaves a training thread running has failed. One that was told to stop may finish its step."""
    yield
    left = [thread for thread in threading.enumerate() if thread.name.startswith("training ")]
    for thread in left:
        thread.join(timeout=2)
    running = [thread.name for thread in left if thread.is_alive()]
    assert not running, f"left running: {', '.join(running)}"
