"""The menu entry: whole, in the user's own folders, and gone again."""

from __future__ import annotations

import configparser
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gradstudio.cli import app
from gradstudio.session.machine import menu_entry

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="menu entries are made on Linux")


@linux
def test_an_entry_starts_this_program_and_can_be_taken_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for _ in range(2):  # over one that is there
        assert CliRunner().invoke(app, ["desktop", "install"]).exit_code == 0
    entry = configparser.ConfigParser(interpolation=None)
    entry.read(tmp_path / "applications" / "gradstudio.desktop", encoding="utf-8")
    command = shlex.split(entry["Desktop Entry"]["Exec"])
    assert Path(command[0]).is_file() and Path(command[0]).parent == Path(sys.executable).parent
    icons = {path.name for path in tmp_path.rglob("apps/*") if path.stat().st_size > 100}
    assert icons == {"gradstudio.svg", "gradstudio.png"}
    assert CliRunner().invoke(app, ["desktop", "uninstall"]).exit_code == 0
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert "no menu entry" in CliRunner().invoke(app, ["desktop", "uninstall"]).output


@linux
def test_a_folder_that_takes_no_files_is_named_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (tmp_path / "icons").write_text("a file")
    with pytest.raises(OSError):
        menu_entry.install()
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "icons"]


@linux
def test_a_command_with_strange_signs_is_quoted_as_the_specification_asks() -> None:
    for word in ("/opt/grad studio/bin", 'a"b', "a$b`c", "a\\b", "100%"):
        told = menu_entry._quote(word).replace("\\\\", "\\").replace("%%", "%")  # the file's own escapes
        assert (
            subprocess.run(["sh", "-c", f"printf %s {told}"], capture_output=True, text=True, check=True).stdout == word
        )
