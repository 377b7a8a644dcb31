"""PySide6's import hook reads no sources, and does so as before where it is another than is known."""

from __future__ import annotations

import linecache
import subprocess
import sys
from pathlib import Path

import pytest

from gradstudio.gui import pyside_internals as internals

HOOK = sys.modules[internals.HOOK]


@pytest.fixture(autouse=True)
def as_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The hook as PySide6 brings it, and a folder from which modules are imported."""
    monkeypatch.setattr(HOOK, internals.ASKED, getattr(HOOK, internals.ASKED))  # put back afterwards
    monkeypatch.syspath_prepend(tmp_path)


def is_read(name: str, folder: Path) -> bool:
    """Import a new module and return whether its source was read."""
    path = folder / f"{name}.py"
    path.write_text("VALUE = 1\n")
    exec(f"import {name}")  # a statement, as the hook hears only those
    del sys.modules[name]
    return str(path) in linecache.cache


def test_sources_are_left_unread(tmp_path: Path) -> None:
    assert is_read("read_by_the_hook", tmp_path)  # else all of this is needless
    assert internals.leave_sources_unread() == ""
    assert not is_read("left_unread", tmp_path)
    assert internals.leave_sources_unread() == ""  # twice is as once


def test_another_hook_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HOOK, internals.ASKED, another := lambda module: None)
    assert "it behaves otherwise" in internals.leave_sources_unread()
    assert getattr(HOOK, internals.ASKED) is another
    monkeypatch.delitem(sys.modules, internals.HOOK)
    assert "PySide6" in internals.leave_sources_unread()


MADE = """
import sys
from importlib import import_module
from gradstudio.gui.pyside_internals import PARTS, create_classes
lacking = lambda: [name for part in map(parts.get, PARTS) for name in dir(part) if name not in vars(part)]
parts = {part: import_module(f"PySide6.{part}") for part in PARTS}
assert len(lacking()) > 500, "PySide6 makes its classes at once, and nothing is to be done"
for _ in create_classes():
    pass
assert not lacking(), lacking()
modules = set(sys.modules)
import gradstudio.gui.late_imports
print([name for name in sys.modules if name.startswith("PySide6.Qt") and name not in modules])
"""


def test_all_classes_that_the_second_part_of_the_window_can_ask_for_are_made() -> None:
    told = subprocess.run([sys.executable, "-c", MADE], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout) == (0, "[]\n"), told.stderr
