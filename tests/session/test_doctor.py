"""The doctor: what it says of versions that do not go together, and of this machine."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from pathlib import Path

import pytest

from gradstudio.core import files
from gradstudio.core.system_libraries import FOR_A_WINDOW
from gradstudio.session.library import store
from gradstudio.session.machine import doctor, own_files


@pytest.mark.parametrize(
    ("python", "qt", "pyqtgraph", "names"),
    [
        ((3, 11), "6.10.3", "0.14.0", []),
        ((3, 11), "6.12.0", "0.15.0", ["PySide6 with Python"]),
        ((3, 12), "6.12.0", "0.15.0", []),
        ((3, 11), "6.12.1", "0.15.0", []),
        ((3, 12), "6.11.0", "0.14.0", ["pyqtgraph with Qt"]),
        ((3, 11), "6.12.0", "0.14.0", ["PySide6 with Python", "pyqtgraph with Qt"]),
        ((3, 11), "", "", []),
        ((3, 11), "unknown", "0.14.0", []),
    ],
)
def test_hazards(python: tuple[int, int], qt: str, pyqtgraph: str, names: list[str]) -> None:
    found = doctor.hazards(python, qt, pyqtgraph)
    assert [check.name for check in found if not check.ok] == names
    assert all(check.advice for check in found if not check.ok)


def test_this_machine_is_well() -> None:
    found = {check.name: check for check in doctor.examine()}
    assert {"Python", "torch", "PySide6", "pyqtgraph", "numpy", "numba", "matplotlib", "pydantic"} <= set(found)
    assert {"Devices", "Display", "Drawing", "User folder", "Run library", "Presets"} <= set(found)
    assert all(check.ok for check in found.values()), [check for check in found.values() if not check.ok]


def test_a_server_without_qt_is_well_and_half_a_window_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    away = {"PySide6-Essentials", "pyqtgraph"}
    version = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda package: "" if package in away else version(package))
    found = {check.name: check for check in doctor._packages() + doctor._display() + doctor._drawing()}
    assert all(check.ok for check in found.values())
    assert f"pip install {FOR_A_WINDOW}" in found["Qt"].text
    away.remove("pyqtgraph")
    assert [check.name for check in doctor._packages() if not check.ok] == ["PySide6"]


def test_a_torch_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda package: "2.3.1+cpu")
    (torch,) = (check for check in doctor._packages() if check.name == "torch")
    assert not torch.ok and torch.advice == "Install torch 2.4 or newer, as 2.3.1+cpu is too old"
    monkeypatch.setattr(doctor, "_version", lambda package: "2.14.0a0")
    assert doctor.torch_problem() == ""


def test_a_numba_that_does_not_go_with_numpy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "numba":
                raise ImportError("Numba needs NumPy 2.4 or less. Got NumPy 2.9.")

    assert [check.ok for check in doctor._compiler()] == [True]
    for name in [name for name in sys.modules if name.partition(".")[0] == "numba"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Refusing(), *sys.meta_path])
    (check,) = doctor._compiler()
    assert not check.ok and "Numba needs NumPy 2.4 or less" in check.text and "--force-reinstall numba" in check.advice


def test_no_display_is_a_problem_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("QT_QPA_PLATFORM", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("QT_QPA_PLATFORM", "xcb")
    (check,) = doctor._display()
    assert not check.ok
    assert "gradstudio run" in check.advice or "apt install" in check.advice


def test_a_broken_preset_and_a_folder_that_cannot_be_written_are_named(own_user_data: Path) -> None:
    folder = own_user_data / "gradstudio" / "presets"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text("[optimizer]\nlr = nan\n")
    bad = [check for check in own_files.own_presets() if not check.ok]
    assert len(bad) == 1
    assert "mine.toml, line 2" in bad[0].text
    assert own_files.folder()[0].ok


def test_a_user_folder_below_a_file_is_a_problem(own_user_data: Path) -> None:
    own_user_data.write_text("a file, where a folder should be")
    assert not own_files.folder()[0].ok


def write_library() -> Path:
    path = files.user_library()
    store.Library(path).close()
    return path


def test_a_library_that_is_not_there_yet_and_an_empty_one_are_fine() -> None:
    (check,) = own_files.library()
    assert check.ok and "not there yet" in check.text and not files.user_library().exists()
    write_library()
    (check,) = own_files.library()
    assert check.ok and "0 runs" in check.text and "MB" in check.text


def test_a_damaged_library_is_a_problem_once_and_its_copy_is_named() -> None:
    path = write_library()
    path.write_bytes(b"no database" * 1000)
    (check,) = own_files.library()
    assert not check.ok and "damaged" in check.text and check.advice
    assert own_files.library()[0].ok
    assert [found.read_bytes() for found in path.parent.glob("*damaged*.sqlite3")] == [b"no database" * 1000]


def test_damage_that_only_the_list_meets_is_told_with_what_became_of_it() -> None:
    path = write_library()
    with contextlib.closing(sqlite3.connect(path)) as library:
        [root] = library.execute("SELECT rootpage FROM sqlite_master WHERE name = 'runs'").fetchone()
        [size] = library.execute("PRAGMA page_size").fetchone()
    data = bytearray(path.read_bytes())
    data[(root - 1) * size : root * size] = b"\x55" * size
    path.write_bytes(data)
    (check,) = own_files.library()
    assert not check.ok and "was damaged" in check.text and "Nothing has to be done" in check.advice
    assert own_files.library()[0].ok and len(list(path.parent.glob("*damaged*.sqlite3"))) == 1


def test_a_library_that_is_damaged_within_is_a_problem_and_left_where_it_is() -> None:
    path = write_library()
    data = bytearray(path.read_bytes())
    data[-4096:] = bytes(range(256)) * 16  # the page of its last table
    path.write_bytes(data)
    (check,) = own_files.library()
    assert not check.ok and "is damaged" in check.text and "gradstudio report" in check.advice
    assert path.read_bytes() == data


def test_a_newer_library_and_one_that_cannot_be_opened_are_problems(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = write_library()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    (check,) = own_files.library()
    assert not check.ok and "newer" in check.text and "Update" in check.advice
    monkeypatch.setenv("GRADSTUDIO_LIBRARY", str(tmp_path))
    (check,) = own_files.library()
    assert not check.ok and str(tmp_path) in check.text and "GRADSTUDIO_LIBRARY" in check.advice


def test_the_parts_of_pyqtgraph_that_make_it_fast_are_tried() -> None:
    (check,) = doctor._drawing()
    assert check.text == "pyqtgraph has every part that makes it fast"
