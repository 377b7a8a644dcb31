"""Writing the files of a run into a folder: the implementation of --out, `gradstudio report` and the window's Save.
Each file is written atomically."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from gradstudio.core import files
from gradstudio.program import data_files
from gradstudio.session.files import report
from gradstudio.session.files.run_files import FILES, ON_REQUEST, has_ranks, ranks_npz, train_py
from gradstudio.session.record.run import Run

if TYPE_CHECKING:
    from gradstudio.session.files.report.blocks import Section
    from gradstudio.session.files.report.journey_section import Fixes

REPORTS = ("html", "pdf")
RANKS = "ranks.npz"  # written together with layers.npz if there are ranks
# The formats in which a run can be exported at any time, and their files.
EXPORTS = {
    "html": ("report.html",), "pdf": ("report.pdf",), "json": ("run.json",), "csv": ("metrics.csv", "events.csv"),
    "npz": ("layers.npz",), "toml": ("experiment.toml",), "py": ("train.py",),
    "parquet": ("metrics.parquet", "layers.parquet"),
}  # fmt: skip


class OutputError(OSError):
    """A file or folder that cannot be written. One line for the user."""


def check_folder(folder: Path) -> None:
    """Create the folder and check that files can be written into it; OutputError if they cannot."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as fault:
        raise _cannot(folder, fault) from None


def check_files(run: Run, folder: Path) -> None:
    """Raise OutputError if something else in the folder has the name of a file that `write` would replace or delete."""
    for name in (*FILES, RANKS, *(f"report.{suffix}" for suffix in REPORTS)):
        try:
            files.check_kind(folder / name)
        except OSError as fault:
            raise _cannot(folder / name, fault) from None
    _data_beside(folder, train_py(run))


def write(
    run: Run, folder: Path, reports: Sequence[str] = (), line: Sequence[Run] = (), fixes: Fixes = MappingProxyType({})
) -> list[Path]:
    """Write every file of a run, and its report in these formats; return their paths. OutputError names the first that
    cannot be written. A report left by an earlier run is deleted, as its other files are replaced."""
    contents = {name: content(run) for name, content in FILES.items()}
    written = [_write(folder / name, content) for name, content in contents.items()]
    if has_ranks(run):
        written.append(_write(folder / RANKS, partial(ranks_npz, run)))
    else:
        _delete(folder / RANKS)
    beside = _data_beside(folder, str(contents["train.py"]))
    written += [_write(path, data) for path, data in beside.items()]
    for suffix in REPORTS:
        if suffix not in reports:
            _delete(folder / f"report.{suffix}")
    for suffix in reports:
        written.append(_write(folder / f"report.{suffix}", report.content(run, suffix, line=line, fixes=fixes)))
    return written


def export(
    run: Run,
    folder: Path,
    formats: Sequence[str],
    note: str = "",
    more: Mapping[str, files.Content] = MappingProxyType({}),
    sections: Sequence[Section] = (),
    line: Sequence[Run] = (),
) -> list[Path]:
    """Write the files of these EXPORTS into the folder, with `more` by their names, all or none; return their paths. A
    report includes the note, further `sections` and the journey of its `line` of runs. OutputError if they cannot be
    written."""
    contents: dict[Path, files.Content] = {}
    for name in (name for chosen in formats for name in EXPORTS[chosen]):
        kind = (FILES | ON_REQUEST).get(name)
        contents[folder / name] = (
            kind(run) if kind else report.content(run, Path(name).suffix[1:], note, sections, line)
        )
    if "npz" in formats and has_ranks(run):
        contents[folder / RANKS] = partial(ranks_npz, run)
    if "py" in formats:
        contents |= _data_beside(folder, str(contents[folder / "train.py"]))
    return write_together(contents | {folder / name: content for name, content in more.items()})


def write_program(program: str, path: Path) -> None:
    """Write a program, and beside it the data sets that it reads. OutputError on failure."""
    write_together({path: program, **_data_beside(path.parent, program)})


def write_stream(path: Path, content: files.Content) -> None:
    """Write to a pipe or a device. OutputError on failure."""
    try:
        files.write_stream(path, content)
    except OSError as fault:
        raise _cannot(path, fault) from None


def write_together(contents: Mapping[Path, files.Content]) -> list[Path]:
    """Write several files all-or-nothing. OutputError names the first that cannot be written."""
    with ExitStack() as aside:
        ready = []
        for path, content in contents.items():
            check_folder(path.parent)
            try:
                files.check_kind(path)
                folder = aside.enter_context(files.temporary_folder(path.parent))
            except OSError as fault:
                raise _cannot(path, fault) from None
            ready.append((_write(Path(folder, path.name), content), path))
        for written, path in ready:
            try:
                os.replace(written, path)
            except OSError as fault:
                raise _cannot(path, fault) from None
    return list(contents)


def _data_beside(folder: Path, program: str) -> dict[Path, bytes]:
    """Return the data sets that a program reads, by the paths that it checks first. OutputError if another file has
    that name, as it may be the user's."""
    contents = {folder / path.name: path.read_bytes() for path in data_files(program)}
    for path, data in contents.items():
        if os.path.lexists(path) and not _holds(path, data):
            raise OutputError(f"{path} cannot be written: another file of that name is there; choose another folder")
    return contents


def _holds(path: Path, data: bytes) -> bool:
    """Return whether a file has this content."""
    try:
        return files.read_bounded(path, len(data)) == data
    except OSError:
        return False


def _write(path: Path, content: files.Content) -> Path:
    try:
        files.write_whole(path, content)
    except OSError as fault:
        raise _cannot(path, fault) from None
    return path


def _delete(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as fault:
        raise OutputError(f"{path} cannot be deleted: {files.reason(fault)}") from None


def _cannot(path: Path, fault: OSError) -> OutputError:
    return OutputError(f"{path} cannot be written: {files.reason(fault)}")
