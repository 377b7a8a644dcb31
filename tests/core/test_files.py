from __future__ import annotations

import os
import resource
import signal
import threading
from pathlib import Path

import pytest
from waiting import join

from gradstudio.core import files


def test_write_whole_writes_bytes_and_text(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "a.toml"
    files.write_whole(path, "grün\n")
    assert path.read_bytes() == "grün\n".encode()
    files.write_whole(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    files.write_whole(path, lambda file: file.writelines((b"piece ", b"by piece")))
    assert path.read_bytes() == b"piece by piece"
    assert os.listdir(path.parent) == ["a.toml"]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_obeys_the_umask_and_an_old_one_keeps_its_mode(tmp_path: Path, mask: int, mode: int) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    old.touch()
    old.chmod(0o640)
    before = os.umask(mask)
    try:
        files.write_whole(new, "a")
        files.write_whole(old, "a")
    finally:
        os.umask(before)
    assert (new.stat().st_mode & 0o777, old.stat().st_mode & 0o777) == (mode, 0o640)


def test_what_was_written_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut after the new name would else leave an empty file in place of the old content."""
    told: list[str] = []

    def fsync(number: int) -> None:
        told.append(f"{os.fstat(number).st_size} bytes")
        real(number)

    real = os.fsync
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", lambda old, new: told.append("renamed"))
    files.write_whole(tmp_path / "a", "four")
    assert told == ["4 bytes", "renamed"]


def test_failure_keeps_the_old_content_and_leaves_no_stray_file(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    files.write_whole(path, "old")
    with pytest.raises(UnicodeEncodeError):
        files.write_whole(path, "\ud800")
    with pytest.raises(ZeroDivisionError):
        files.write_whole(path, lambda file: file.write(b"a part") and 1 / 0)
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["a.toml"])


def test_failure_to_replace_leaves_no_stray_file(tmp_path: Path) -> None:
    (tmp_path / "a.toml" / "in the way").mkdir(parents=True)
    with pytest.raises(OSError):
        files.write_whole(tmp_path / "a.toml", "new")
    assert os.listdir(tmp_path) == ["a.toml"]


def test_full_disk_keeps_the_old_content_and_leaves_no_stray_file(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    files.write_whole(path, "old")
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError):
            files.write_whole(path, "x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["a.toml"])


def test_a_reader_sees_the_old_content_or_the_new_and_nothing_between(tmp_path: Path) -> None:
    path = tmp_path / "a"
    contents = {letter * 200_000 for letter in "ab"}
    files.write_whole(path, "a" * 200_000)

    def write() -> None:
        for _ in range(20):
            for content in contents:
                files.write_whole(path, content)

    writer = threading.Thread(target=write)
    writer.start()
    seen = {path.read_text()}
    while writer.is_alive():
        seen.add(path.read_text())
    join(writer)
    assert seen <= contents


def test_user_presets_lie_in_the_user_s_data(own_user_data: Path) -> None:
    assert files.user_presets() == own_user_data / "gradstudio" / "presets"


def test_bundled_folders_are_there() -> None:
    assert (files.RESOURCES / "data" / "digits.npz").is_file()
    assert files.PRESETS.is_dir()
