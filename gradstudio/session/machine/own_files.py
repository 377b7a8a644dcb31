"""The doctor's checks of a person's own files: folders, run library, log, presets and plug-ins."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from gradstudio.core import files, network_disk, plugins, presets
from gradstudio.core.text import plural
from gradstudio.session.machine.doctor_check import Check


def folder() -> list[Check]:
    own = files.user_presets()
    # the folder is created when something is saved
    there = next((path for path in (own, *own.parents) if os.path.exists(path)), own)
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as fault:
        text = f"{own}: {files.reason(fault)}"
        return [Check("User folder", False, text, "Make it writable, or set XDG_DATA_HOME to a folder that is.")]
    return [Check("User folder", True, str(own))]


def library() -> list[Check]:
    from gradstudio.session.library.library_faults import LibraryError
    from gradstudio.session.library.store import Library, library_exists

    path = files.user_library()
    try:
        if not library_exists(path):
            return [Check("Run library", True, f"{path}: not there yet; the first run begins it")]
        opened = Library(path)
    except LibraryError as fault:
        return [Check("Run library", False, str(fault), "Update GradStudio if a newer one wrote it; else close what "
            "has it open, make it "
                      "writable, or name another: --library FILE, or GRADSTUDIO_LIBRARY. Runs train without it, and "
                          "are not kept.")]  # fmt: skip
    runs = 0
    try:
        runs = len(opened.entries())  # first, as it replaces a damaged file
        result = opened.check()
    except LibraryError as fault:
        result = str(fault).removeprefix(f"the run library {path}: ")
    finally:
        notice = opened.notice
        opened.close()
    if notice:
        return [
            Check(
                "Run library",
                False,
                notice,
                "Nothing has to be done, as the new library is in use. Keep the damaged file, or delete it.",
            )
        ]
    if result != "ok":
        return [Check("Run library", False, f"{path} is damaged: {result}"[:400], "Save the runs that can still be "
            "read (`gradstudio report RUN "
                      "--format csv,toml`), then move the file away: a new one is begun.")]  # fmt: skip
    checks = [Check("Run library", True, f"{path}: {plural(runs, 'run', 'runs')}, {_size(path) / 1e6:.3g} MB")]
    if network := network_disk.sentence(path):
        checks.append(Check("Network disk", False, network, "Keep the library on a disk of this machine if you can."))
    return checks


def log() -> list[Check]:
    path = files.user_log()
    try:
        written = f"{path.stat().st_size / 1e6:.3g} MB"
    except OSError:
        written = "not there yet; faults of the window are written there"
    return [Check("Log file", True, f"{path}: {written}")]


def _size(library: Path) -> int:
    """Return the bytes on the disk, including those that SQLite has not yet moved into the file itself."""
    return sum(os.path.getsize(path) for path in (library, Path(f"{library}-wal")) if os.path.isfile(path))


def own_presets() -> list[Check]:
    good, bad = [], []
    for path in presets.available():
        try:
            good.append(presets.read(path))
        except presets.PresetError as fault:
            bad.append(Check("Preset", False, str(fault), "Correct the file, or remove it."))
    for why in (presets.why_unreachable(), files.why_unreachable(files.user_rules())):
        if why:
            advice = "Make the folder readable, or set XDG_DATA_HOME and XDG_CONFIG_HOME to folders of your own."
            bad.append(Check("Own files", False, why, advice))
    bundled = sum(preset.bundled for preset in good)
    whole = bundled > 0
    text = f"{bundled} bundled, {len(good) - bundled} of your own"
    return [
        Check("Presets", whole, text, "" if whole else "The bundled presets are missing: install GradStudio again."),
        *bad,
    ]


def own_plugins() -> list[Check]:
    for group in plugins.GROUPS:
        plugins.names(group)  # loads them
    words = plugins.in_words()
    return [Check("Plug-ins", True, words)] * bool(words) + [
        Check("Plug-in", False, problem, "Update it, or uninstall its package.") for problem in plugins.problems()
    ]


CHECKS: tuple[Callable[[], list[Check]], ...] = (folder, library, log, own_presets, own_plugins)
