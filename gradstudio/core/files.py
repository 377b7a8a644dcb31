"""The locations of the program's files, reading of untrusted files, and atomic writing."""

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
# In a wheel presets/ and resources/ are inside the package, in a checkout beside it.
_BUNDLED = _PACKAGE / "bundled" if (_PACKAGE / "bundled").is_dir() else _PACKAGE.parent

Content = (
    str | bytes | Callable[[BinaryIO], None]
)  # the content of a file, or a function that writes it if it is too large to keep in memory

LIBRARY = "library.sqlite3"  # default file name of the library
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
    """Return a file name for a run, whose id may come from an untrusted library."""
    return re.sub(r"[^\w.+-]+", "-", id).lstrip(".-")[:100] or "run"


def user_cache() -> Path:
    """Return the cache folder; it need not exist."""
    return Path(platformdirs.user_cache_dir("gradstudio", appauthor=False))


def reason(fault: Exception) -> str:
    """Return why a file cannot be read or written, in a few lower-case words."""
    return (getattr(fault, "strerror", None) or str(fault)).lower()


def why_unreachable(path: Path) -> str:
    """Return, as one line, why the existence of a path cannot be determined: a folder above it cannot be searched. ""
    if it can be."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as fault:  # ValueError: a name that no file can have
        return f"{path}: {reason(fault)}"
    return ""


def read_bounded(path: Path, most: int) -> bytes:
    """Return the content of a file, at most one byte more than `most`. OSError or ValueError if it cannot be read, or
    is not a regular file: a pipe blocks forever, and a device may have no end."""
    check_kind(path)
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb") as file:
        return file.read(most + 1) or b""


def is_stream(path: Path) -> bool:
    """Return whether a path names a pipe, a terminal or a similar device, which is written to and never replaced;
    /dev/stdout is one, whatever it refers to."""
    try:
        kind = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    led = re.match("/dev/(std|fd/)|/proc/", os.path.abspath(path))  # a redirected stream may lead to a file
    return stat.S_ISFIFO(kind) or stat.S_ISCHR(kind) or (stat.S_ISREG(kind) and led is not None)


def write_stream(path: Path, content: Content) -> None:
    """Write to a pipe or a device. OSError on failure."""
    status = os.stat(path)
    own = next((number for number in (1, 2) if _is_open(number, status)), None)
    with os.fdopen(os.dup(own), "wb") if own else path.open("wb") as file:
        _write(content, file)


def write_whole(path: Path, content: Content) -> None:
    """Write a file so that a reader finds the old content or the new, never a part; an existing file keeps its mode.
    OSError on failure, or if the path is not a regular file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    check_kind(path)
    with temporary_folder(path.parent) as folder:
        written = Path(folder, path.name)
        with written.open("wb") as file:
            _write(content, file)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):  # a new one gets the mode given by the umask
            os.chmod(written, stat.S_IMODE(os.stat(path).st_mode))
        os.replace(written, path)


def _write(content: Content, file: BinaryIO) -> None:
    data = content.encode() if isinstance(content, str) else content
    data(file) if callable(data) else file.write(data)


def _is_open(number: int, status: os.stat_result) -> bool:
    """Return whether a file is open under this descriptor."""
    with suppress(OSError):
        return os.path.samestat(status, os.fstat(number))
    return False


def check_kind(path: Path) -> None:
    """Raise OSError if the path is not a regular file: a folder, a device, a pipe, a socket."""
    try:
        kind = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(kind):
        raise OSError(errno.EINVAL, NO_FILE, str(path))


def temporary_folder(beside: Path) -> tempfile.TemporaryDirectory[str]:
    """Return a folder for unfinished files. A `with` deletes it at its end. Leftovers of killed processes are deleted
    first: the name of such a folder contains the process."""
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
    with suppress(OSError), os.scandir(folder) as entries:  # a folder can be writable and yet not readable
        paths += [Path(each) for each in entries if (name := named.fullmatch(each.name)) and not _lives(int(name[1]))]
    return paths


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # owned by another user
    return True


def _host() -> str:
    """Return the name of this machine in a form that is valid in file names: another machine may write into the same
    folder."""
    return re.sub(r"\W+", "_", platform.node())[:40]
