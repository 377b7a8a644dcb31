"""The places of the program's files, and writing a file whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
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
PRESETS = _BUNDLED / "presets"
RESOURCES = _BUNDLED / "resources"


def user_presets() -> Path:
    """Return the folder of the user's own presets; it need not exist."""
    return Path(platformdirs.user_data_dir("gradstudio", appauthor=False)) / "presets"


def user_library() -> Path:
    """Return the file of the run library; it need not exist."""
    own = Path(platformdirs.user_data_dir("gradstudio", appauthor=False)) / LIBRARY
    return Path(os.environ.get("GRADSTUDIO_LIBRARY") or own).absolute()


def user_log() -> Path:
    """Return the file into which the window writes its own faults, beside the library; it need not exist."""
    return user_library().with_name(LOG)


def user_cache() -> Path:
    """Return the folder for files that can be lost; it need not exist."""
    return Path(platformdirs.user_cache_dir("gradstudio", appauthor=False))


def write_whole(path: Path, content: Content) -> None:
    """Write a file so that a reader finds the old content or the new, never a part. OSError where it cannot be."""
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            data(file) if callable(data) else file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
