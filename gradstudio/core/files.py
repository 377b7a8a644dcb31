"""The places of the program's files, reading what may be anybody's, and writing a file whole or not at all."""

from __future__ import annotations

import errno
import os
import platform
import re
import shutil
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import platformdirs

_PACKAGE = Path(__file__).resolve().parent.parent
# In a wheel presets/ and resources/ lie inside the package, in a checkout beside it.
_BUNDLED = _PACKAGE / "bundled" if (_PACKAGE / "bundled").is_dir() else _PACKAGE.parent

Content = (
    str | bytes | Callable[[BinaryIO], None]
)  # the content of a file; a function writes what is too large to be held at once

LIBRARY = "library.sqlite3"  # name of the library's file by default
LOG = "gradstudio.log"  # name of the log file
NO_FILE = "no file, but a pipe, a socket or a device"
PRESETS = _BUNDLED / "presets"
RESOURCES = _BUNDLED / "resources"


def user_presets() -> Path:
    """Return the folder of the user's own presets; it need not exist."""
    return Path(platformdirs.user_data_dir("gradstudio", appauthor=False)) / "presets"


def user_library() -> Path:
    """Return the file of the run library; it need not exist."""
    own = Path(platformdirs.user_data_dir("gradstudio", appauthor=False)) / LIBRARY
    return Path(os.environ.get("GRADSTUDIO_LIBRARY") or own).absolute()


def user_worksheets() -> Path:
    """Return the folder of worksheets that are not handed in yet, beside the library; it need not exist."""
    return user_library().with_name("worksheets")


def user_rules() -> Path:
    """Return the user's thresholds of the rules; the file need not exist."""
    return Path(platformdirs.user_config_dir("gradstudio", appauthor=False)) / "rules.toml"


def user_log() -> Path:
    """Return the file into which the window writes its own faults, beside the library; it need not exist."""
    return user_library().with_name(LOG)


def file_name(id: str) -> str:
    """Return a name for the files of a run, whose id may come from somebody else's library."""
    return re.sub(r"[^\w.+-]+", "-", id).lstrip(".-")[:100] or "run"


def user_cache() -> Path:
    """Return the folder for files that can be lost; it need not exist."""
    return Path(platformdirs.user_cache_dir("gradstudio", appauthor=False))


def reason(fault: Exception) -> str:
    """Return why a file cannot be read or written, in a few small letters."""
    return (getattr(fault, "strerror", None) or str(fault)).lower()


def why_not_seen(path: Path) -> str:
    """Return why nobody can tell whether something is there, as one line: a folder above it cannot be searched. ""
    if one can tell."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as fault:  # ValueError: a name that no file can have
        return f"{path}: {reason(fault)}"
    return ""


def read_bounded(path: Path, most: int) -> bytes:
    """Return the content of a file, at most one byte more than `most`. OSError or ValueError if it cannot be read,
    and for what is no file: a pipe waits for ever, and a device may have no end."""
    check_kind(path)
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb") as file:
        return file.read(most + 1) or b""


def is_stream(path: Path) -> bool:
    """Return whether a path names a pipe, a terminal or another such device, which is written to and never replaced;
    /dev/stdout is one, wherever it leads."""
    try:
        kind = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    led = re.match("/dev/(std|fd/)|/proc/", os.path.abspath(path))  # a redirected stream may lead to a file
    return stat.S_ISFIFO(kind) or stat.S_ISCHR(kind) or (stat.S_ISREG(kind) and led is not None)


def write_stream(path: Path, content: Content) -> None:
    """Write into a pipe or a device. OSError if that cannot be."""
    status = os.stat(path)
    own = next((number for number in (1, 2) if _is_open(number, status)), None)
    with os.fdopen(os.dup(own), "wb") if own else path.open("wb") as file:
        _write(content, file)


def write_whole(path: Path, content: Content) -> None:
    """Write a file so that a reader finds the old content or the new, never a part; one that was there keeps its
    mode. OSError if it cannot be, and where something is there that is no file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    check_kind(path)
    with temporary_folder(path.parent) as folder:
        written = Path(folder, path.name)
        with written.open("wb") as file:
            _write(content, file)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):  # a new one has the mode that the umask leaves
            os.chmod(written, stat.S_IMODE(os.stat(path).st_mode))
        os.replace(written, path)


def _write(content: Content, file: BinaryIO) -> None:
    data = content.encode() if isinstance(content, str) else content
    data(file) if callable(data) else file.write(data)


def _is_open(number: int, status: os.stat_result) -> bool:
    """Return whether a file is open under this number."""
    with suppress(OSError):
        return os.path.samestat(status, os.fstat(number))
    return False


def check_kind(path: Path) -> None:
    """Raise OSError if something is there that is no file: a folder, a device, a pipe, a socket."""
    try:
        kind = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(kind):
        raise OSError(errno.EINVAL, NO_FILE, str(path))


def temporary_folder(beside: Path) -> tempfile.TemporaryDirectory[str]:
    """Return a folder for what is not whole yet. A `with` deletes it at its end. What a killed process left here is
    deleted first: the name of such a folder tells the process."""
    for left in _left_over(beside):
        shutil.rmtree(left, ignore_errors=True)
    return tempfile.TemporaryDirectory(
        dir=beside, prefix=f".gradstudio-{_host()}-{os.getpid()}-", ignore_cleanup_errors=True
    )


def _left_over(folder: Path) -> list[Path]:
    """Return the temporary folders in this one whose process has ended."""
    if os.name == "nt":
        return []  # a signal would end the process there
    named = re.compile(rf"\.gradstudio-{re.escape(_host())}-(\d{{1,9}})-\w+")
    paths: list[Path] = []
    with suppress(OSError), os.scandir(folder) as entries:  # one may write into a folder that one may not read
        paths += [Path(each) for each in entries if (name := named.fullmatch(each.name)) and not _lives(int(name[1]))]
    return paths


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # somebody else's
    return True


def _host() -> str:
    """Return the name of this machine as file names can have it: another one may write into the same folder."""
    return re.sub(r"\W+", "_", platform.node())[:40]
