"""The doctor: checks whether everything that the program needs is there. It works without torch, Qt or a display."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable

import gradstudio
from gradstudio.core import extras, python_process, recording_switch, system_libraries
from gradstudio.core.system_libraries import FOR_A_WINDOW
from gradstudio.session.machine import own_files
from gradstudio.session.machine.doctor_check import Check

_PACKAGES = {
    "torch": "torch",
    "PySide6": "PySide6-Essentials",
    "pyqtgraph": "pyqtgraph",
    "numpy": "numpy",
    "pydantic": "pydantic",
}
_EXTRAS = {"numba": "makes measuring faster", "matplotlib": "reports need it", "pyarrow": "Parquet files need it"}
_WINDOW = ("PySide6", "pyqtgraph")  # only the window needs them
_FIRST_WINDOW = "from PySide6.QtGui import QGuiApplication; QGuiApplication(['gradstudio'])"
_DRAWING = (
    "from PySide6.QtWidgets import QApplication; app = QApplication([]); "
    "from gradstudio.gui import pyside_internals; read = pyside_internals.leave_sources_unread(); "
    "from gradstudio.gui.drawing import pyqtgraph_internals; "
    "print(*([read] if read else []), *pyqtgraph_internals.try_all(), sep='\\n')"
)
OLDEST_TORCH = (2, 4)
TRIED_TORCH = "2.4.1, 2.8.0, 2.13.0 and 2.14.1"
_SECONDS = 30  # for a process that only opens Qt


def examine() -> list[Check]:
    """Return every check, in the order of need."""
    return [check for look in CHECKS for check in look()]


def devices() -> list[tuple[str, str]]:
    """Return id and name of everything that can train here; KnobError if torch is missing."""
    from gradstudio.core.knobs import KnobError

    try:
        from gradstudio.engine.devices import available
    except ModuleNotFoundError as fault:
        if fault.name != "torch":
            raise
        raise KnobError(
            "PyTorch is not installed, and nothing trains without it; install it with: pip install torch"
        ) from None
    return [(device.id, device.name) for device in available()]


def _program() -> list[Check]:
    return [Check("GradStudio", True, gradstudio.__version__)]


def _python() -> list[Check]:
    enough = sys.version_info >= (3, 11)
    return [
        Check("Python", enough, platform.python_version(), "" if enough else "GradStudio needs Python 3.11 or newer.")
    ]


def _packages() -> list[Check]:
    checks = []
    for name, package in _PACKAGES.items():
        if _headless() and name in _WINDOW:
            continue
        version = _version(package)
        wanted = "" if version else f"Install it with: pip install {FOR_A_WINDOW if name in _WINDOW else package}"
        advice = torch_problem() if name == "torch" else wanted
        checks.append(Check(name, not advice, version or "not installed", advice))
    if _headless():
        text = f"not installed, and only the window needs it; if you want one: pip install {FOR_A_WINDOW}"
        checks.append(Check("Qt", True, text))
    for name, use in _EXTRAS.items():
        text = _version(name) or f"not installed, and only {use}: {extras.to_install(name)}"
        checks.append(Check(name, True, text))
    return checks


def torch_problem() -> str:
    """Return in one sentence what to install if torch is missing or too old; "" otherwise."""
    version = _version("torch")
    if not version:
        return "Install torch with: pip install torch"
    parts = tuple(map(int, re.findall(r"\d+", version)[:2]))
    oldest = ".".join(map(str, OLDEST_TORCH))
    return f"Install torch {oldest} or newer, as {version} is too old" if parts < OLDEST_TORCH else ""


def _headless() -> bool:
    """Return whether this is an installation without the window and all of its dependencies."""
    return not any(_version(_PACKAGES[name]) for name in _WINDOW)


def _hazards() -> list[Check]:
    """Check for versions that are known not to work together."""
    return hazards(sys.version_info[:2], _version("PySide6-Essentials"), _version("pyqtgraph"))


def hazards(python: tuple[int, int], qt: str, pyqtgraph: str) -> list[Check]:
    """Return what goes wrong between these versions; "" is an unknown version."""
    checks = []
    if numbers(qt) == (6, 12, 0) and python < (3, 12):
        checks.append(Check("PySide6 with Python", False, f"PySide6 {qt} aborts Python {python[0]}.{python[1]} "
            "within seconds of live plotting",
                            "Install another: pip install 'PySide6-Essentials>=6.10.3,<6.12'"))  # fmt: skip
    if numbers(pyqtgraph) and numbers(pyqtgraph) < (0, 15) and numbers(qt) >= (6, 11):
        checks.append(Check("pyqtgraph with Qt", False, f"pyqtgraph {pyqtgraph} cannot export SVG on Qt {qt}",
                            "Install an earlier Qt: pip install 'PySide6-Essentials>=6.10.3,<6.11'"))  # fmt: skip
    return checks or [Check("Known hazards", True, "none between these versions")]


def numbers(version: str) -> tuple[int, ...]:
    """Return "6.10.3" as (6, 10, 3), and () for an invalid version."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _devices() -> list[Check]:
    from gradstudio.core.knobs import KnobError

    try:
        trainable = devices()
    except KnobError as fault:
        return [Check("Devices", False, "none", str(fault))]
    except Exception as fault:  # a broken installation of torch can raise anything
        return [
            Check(
                "Devices",
                False,
                f"torch cannot be loaded: {str(fault)[:200]}",
                "Install torch again: pip install --force-reinstall torch",
            )
        ]
    from gradstudio.engine.memory import free_of

    text = "; ".join(f"{name} ({title})" for name, title in trainable) + without_accelerator(trainable)
    listed = tuple({"id": device, "name": title, "free": free_of(device)} for device, title in trainable)
    return [Check("Devices", True, text, devices=listed)]


def _compiler() -> list[Check]:
    if not _version("numba"):  # another check reports it
        return []
    try:
        importlib.import_module("numba")
    except Exception as fault:  # a numba that does not work with this numpy reports it
        text = f"numba cannot be loaded: {str(fault)[:200]}"
        return [Check("Compiler", False, text, "Install it again: pip install --force-reinstall numba")]
    return [Check("Compiler", True, f"numba, with llvmlite {_version('llvmlite')}")]


def _torch_internals() -> list[Check]:
    """Check whether torch has every private part that makes training fast. Training works without them."""
    if not _version("torch"):  # another check reports it
        return []
    checks = []
    if not recording_switch.is_enabled():
        text = "off, as GRADSTUDIO_RECORD=0 is set: training is slower, with the same numbers"
        checks.append(Check("Recorded passes", True, text))
    try:
        from gradstudio.engine.torch_internals import parts
    except Exception:  # _devices reports why torch cannot be loaded
        return checks
    missing = [(part, problem) for part in parts.INTERNALS if (problem := part.problem())]
    if not missing:
        return [*checks, Check("Parts of torch", True, f"all {len(parts.INTERNALS)} that are used are there")]
    advice = f"Training goes on. GradStudio was tried with torch {TRIED_TORCH}."
    return [*checks, *(Check("Parts of torch", part.costs_only_time, problem, advice) for part, problem in missing)]


def without_accelerator(trainable: list[tuple[str, str]]) -> str:
    """Return a message if only the CPU can train; "" otherwise."""
    return "" if len(trainable) > 1 else "; no accelerator was found, so training runs on the CPU"


def _display() -> list[Check]:
    if _headless():  # a server needs none
        return []
    if not _version("PySide6-Essentials"):
        return _no_display("not checked, as PySide6 is not installed", f"Install it with: pip install {FOR_A_WINDOW}")
    try:
        done = subprocess.run(
            python_process.command(_FIRST_WINDOW),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        return _no_display(f"Qt gave no answer: {fault}", "Check the display; `gradstudio run` trains without one.")
    if done.returncode == 0:
        where = (
            os.environ.get("QT_QPA_PLATFORM")
            or os.environ.get("WAYLAND_DISPLAY")
            or os.environ.get("DISPLAY")
            or "the system's own"
        )
        return [Check("Display", True, where)]
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    if library := system_libraries.missing(done.stderr):
        return _no_display(f"Qt needs the system library {library[0]}", library[1])
    text = next((line for line in lines if "display" in line.lower()), lines[0] if lines else "no window can be opened")
    cure = "The app needs a desktop (DISPLAY or WAYLAND_DISPLAY); `gradstudio run` trains without one."
    return _no_display(text[:200], cure)


def _no_display(text: str, cure: str) -> list[Check]:
    return [Check("Display", False, text, cure)]


def _drawing() -> list[Check]:
    """Check whether pyqtgraph has what makes drawing fast, in a separate process as this one has no Qt."""
    if not (_version("PySide6-Essentials") and _version("pyqtgraph")):  # other checks report it
        return []
    program = python_process.command(_DRAWING)
    environment = os.environ | {"QT_QPA_PLATFORM": "offscreen"}
    try:
        done = subprocess.run(
            program, env=environment, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        return [Check("Drawing", True, f"not tried: {fault}")]
    if done.returncode != 0:  # without Qt's libraries, as another check reports
        return [Check("Drawing", True, f"not tried: {(done.stderr.strip().splitlines() or ['no answer'])[-1][:200]}")]
    notices = done.stdout.split("\n")
    return [Check("Drawing", True, notice) for notice in notices if notice] or [
        Check("Drawing", True, "pyqtgraph has every part that makes it fast")
    ]


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


CHECKS: tuple[Callable[[], list[Check]], ...] = (
    _program,
    _python,
    _packages,
    _hazards,
    _devices,
    _torch_internals,
    _compiler,
    _display,
    _drawing,
    *own_files.CHECKS,
)
