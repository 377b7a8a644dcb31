"""Who may import what: gui -> session -> engine -> program -> core, with worker beside engine; Qt only in gui/, torch
only in engine/, in crash/ and
watching/, which stands beside commands/, and in the reference of program/, which is read as text and
never imported.

Within a layer, rooms import one way too, and no two modules import each other, not even inside functions or for
types. What the docstring of a folder says that it may use is true."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from waiting import PATIENCE

from gradstudio.core.experiment import KNOBS

PACKAGE = Path(__file__).parent.parent / "gradstudio"

TOP = "cli"  # everything that lies in the package itself
MAY_IMPORT = {
    "core": {"core"},
    "program": {"program", "core"},
    "engine": {"engine", "program", "core"},
    "worker": {"worker", "core"},
    "session": {"session", "worker", "engine", "program", "core"},
    "gui": {"gui", "session", "core"},
    "crash": {"crash", "session", "engine", "core"},
    "watching": {"watching", "crash", "session", "engine", "core"},
    "commands": {"commands", "crash", "session", "program", "core"},
    TOP: {TOP, "commands", "watching", "gui", "session", "core"},
}
ONLY_IN_FUNCTIONS = {
    ("session", "engine"),
    ("commands", "crash"),
    (TOP, "gui"),
    (TOP, "watching"),
}  # so that the start is fast; for annotations, TYPE_CHECKING will do
# The rooms of a layer, in order: each may import itself and what stands before it. Rooms in one group may import each
# other, but for FEATURES, of which each knows itself alone.
FEATURES = (
    "knobs",
    "diagnosis",
    "runs",
    "branches",
    "code",
    "gauges",
    "memory",
    "map",
    "export",
    "gallery",
    "assignment",
    "crash",
)
ROOMS: dict[str, tuple[tuple[str, ...], ...]] = {
    "session": tuple(
        (room,)
        for room in (
            "record",
            "library",
            "machine",
            "own_model",
            "footprint",
            "running",
            "remote",
            "words",
            "course",
            "files",
            "map",
            "undo",
            "requested_knobs",
            "simulated_runs",
            "simulator",
        )
    ),
    "watching": (
        ("hooks",),
        ("script",),
        ("measuring",),
        ("births",),
        ("recorder",),
        ("steps",),
        ("ranks",),
        ("recording",),
        ("observers",),
        ("watcher",),
        ("notebook", "live_widget"),
        ("training_watch",),
        ("frameworks", "launcher", "cell_magic", "tracebacks", "startup"),
    ),
    "gui": (
        ("user_settings", "styled_parts", "theme", "widgets", "frame_budget", "heartbeat", "pyside_internals"),
        ("drawing",),
        ("services",),
        ("plots",),
        FEATURES,
        ("shell", "commands", "command_palette_choices"),
        ("late_imports",),
        ("drawn_window",),
        ("opening_window",),
        ("window",),
        ("app",),
    ),
}
BETWEEN_FEATURES = {("branches", "runs"), ("assignment", "knobs")}
# Parts that work without the whole: no import of that module from there.
APART = {
    **{f"gradstudio.engine.{room}.": "gradstudio.engine.trainer" for room in ("passes", "models", "tasks", "step")},
    "gradstudio.engine.gauges.": "gradstudio.engine.trainer",
    "gradstudio.core.diagnosis.": "gradstudio.core.rules",
}
HOMES_OF = {
    "PySide6": ("gui",),
    "shiboken6": ("gui",),
    "pyqtgraph": ("gui",),
    "torch": ("engine", "crash", "watching", "program"),
}
CORE_USES = {"gradstudio", "numpy", "numba", "pydantic", "tomli_w", "platformdirs", *sys.stdlib_module_names}


def violations(package: Path) -> list[str]:
    """Every import under `package` that breaks the contract, as 'file:line: what'."""
    found = []
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        layer = parts[0] if len(parts) > 1 else TOP
        for line, module, late in imports(path, package):
            if fault := breach(layer, module, late):
                found.append(f"{'/'.join(parts)}:{line}: {fault}")
    return found


def breach(layer: str, module: str, late: bool) -> str:
    """What is wrong with an import in that layer; nothing where it is fine. `late`: in a function or under
    TYPE_CHECKING."""
    root, *rest = module.split(".")
    if layer not in MAY_IMPORT:
        return f"{layer} is no layer"
    if root == "gradstudio" and rest:
        target = rest[0] if rest[0] in MAY_IMPORT else TOP
        if target not in MAY_IMPORT[layer] and rest[0] != "__version__":
            return f"{layer} imports {target}"
        if (layer, target) in ONLY_IN_FUNCTIONS and not late:
            return f"{layer} imports {target} outside a function"
    if layer not in HOMES_OF.get(root, (layer,)):
        return f"{root} outside {HOMES_OF[root][0]}"
    if layer == "core" and root not in CORE_USES:
        return f"core imports {root}"
    return ""


def room_violations(package: Path) -> list[str]:
    """Every import under `package` that goes the wrong way between rooms, as 'file: what', once a file."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        own = module_of(path, package) + ("." if path.name == "__init__.py" else "")
        for _, module, _ in imports(path, package):
            if fault := room_breach(own, module):
                found[f"{'/'.join(parts)}: {fault}"] = True
    return list(found)


def room_breach(own: str, module: str) -> str:
    """What is wrong with the module `own` importing `module`, within a layer; nothing where it is fine."""
    for part, whole in APART.items():
        if own.startswith(part) and f"{module}.".startswith(f"{whole}."):
            return f"{part.removeprefix('gradstudio.').rstrip('.')} imports {whole.removeprefix('gradstudio.')}"
    _, layer, room, *_ = [*own.split("."), "", ""]
    root, target_layer, target, *_ = [*module.split("."), "", "", ""]
    if root != "gradstudio" or target_layer != layer or layer not in ROOMS or not target or not room or room == target:
        return ""
    place = {name: index for index, group in enumerate(ROOMS[layer]) for name in group}
    if room not in place or target not in place:
        return f"{layer}.{room if room not in place else target} has no place among the rooms"
    apart = place[room] == place[target] and room in FEATURES and (room, target) not in BETWEEN_FEATURES
    return f"{layer}.{room} imports {layer}.{target}" if apart or place[room] < place[target] else ""


def circles(package: Path) -> list[str]:
    """Every group of modules under `package` that import each other, wherever the imports stand."""
    files = {module_of(path, package): path for path in sorted(package.rglob("*.py"))}
    needs: dict[str, set[str]] = {
        module: {found for _, name, _ in imports(path, package) if (found := nearest(name, files)) and found != module}
        for module, path in files.items()
    }
    reached = {module: reachable(module, needs) for module in needs}
    groups = {
        tuple(sorted(other for other in reached[module] if module in reached[other]))
        for module in needs
        if module in reached[module]
    }
    return sorted(", ".join(group) for group in groups)


def reachable(module: str, needs: dict[str, set[str]]) -> set[str]:
    """Everything that comes with a module; the module itself only where it comes back to it."""
    found: set[str] = set()
    waiting = list(needs[module])
    while waiting:
        if (each := waiting.pop()) not in found:
            found.add(each)
            waiting += needs[each]
    return found


def nearest(name: str, files: dict[str, Path]) -> str:
    """The module that `a.b.c` is or is a name in; nothing for another package's."""
    while name and name not in files:
        name = name.rpartition(".")[0]
    return "" if name == "gradstudio" else name


def unsaid(package: Path) -> list[str]:
    """Every import under `package` that the docstring of its folder does not allow, as 'file:line: what'.

    The docstring has a sentence 'May use core, engine/shape.py (why) and session; never session/map.': places below
    the package, each with all that is in it. A folder may always use itself and what is in it, but for its 'never'."""
    found = []
    for path in sorted(package.rglob("*.py")):
        folder = next(each for each in path.parents if (each / "__init__.py").exists())
        allowed, never = said(folder, package)
        for line, module, _ in imports(path, package):
            place = module.split(".")[1:]
            if not module.startswith("gradstudio.") or place[0] == "__version__":
                continue
            if within(place, never) or not within(place, [folder.relative_to(package).as_posix(), *allowed]):
                found.append(f"{path.relative_to(package).as_posix()}:{line}: {module}")
    return found


@cache
def said(folder: Path, package: Path) -> tuple[list[str], list[str]]:
    """The places that a folder may use by its docstring, and those that it may never use. An error if there is no such
    sentence, or a place is not there."""
    told = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    told = re.sub(r" \([^()]*\)", "", " ".join(told.split()))
    sentence = re.search(r"May use ([^;]*?)(?:; never (.*?))?[.;](?=\s|$)", told)
    assert sentence, f"{folder}: no sentence 'May use …'"
    allowed, never = (re.split(r", | and | or ", each or "") for each in sentence.groups())
    gone = [place for place in (*allowed, *(each for each in never if "/" in each)) if not (package / place).exists()]
    assert not gone, f"{folder}: {gone}"
    return allowed, [place for place in never if place and (package / place).exists()]


def within(place: list[str], places: list[str]) -> bool:
    """Whether a module, as the parts of its name, is one of these places or in one."""
    around = {".", *("/".join(place[: end + 1]) for end in range(len(place)))}
    return any(each.removesuffix(".py") in around for each in places)


def module_of(path: Path, package: Path) -> str:
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(["gradstudio", *(parts[:-1] if parts[-1] == "__init__" else parts)])


def imports(path: Path, package: Path) -> tuple[tuple[int, str, bool], ...]:
    """Line, module and lateness of every import in a file. `from a import b` counts as a.b."""
    return imports_of(path.read_text(encoding="utf-8"), path.relative_to(package).parts[:-1])


@cache
def imports_of(text: str, parts: tuple[str, ...]) -> tuple[tuple[int, str, bool], ...]:
    folder = ["gradstudio", *parts]

    def walk(node: ast.AST, late: bool) -> Iterator[tuple[int, str, bool]]:
        for child in ast.iter_child_nodes(node):
            match child:
                case ast.Import(names=names):
                    yield from ((child.lineno, alias.name, late) for alias in names)
                case ast.ImportFrom(module=module, names=names, level=level):
                    above = folder[: len(folder) - level + 1] if level else []
                    base = ".".join([*above, *([module] if module else [])])
                    yield from ((child.lineno, f"{base}.{alias.name}", late) for alias in names)
                case ast.Call(
                    func=ast.Name(id="__import__") | ast.Attribute(attr="import_module"),
                    args=[ast.Constant(value=str(name)), *_],
                ):
                    yield child.lineno, name, late
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            types = isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")
            yield from walk(child, late or inside or types)

    return tuple(walk(ast.parse(text), False))


def test_every_import_points_the_right_way() -> None:
    assert violations(PACKAGE) == []


def test_every_room_imports_only_what_stands_before_it() -> None:
    assert room_violations(PACKAGE) == []


def test_no_modules_import_each_other() -> None:
    assert circles(PACKAGE) == []


def test_a_file_name_has_one_meaning() -> None:
    """A newcomer goes by names. These stand twice, and mean the same in both places."""
    same = {"__init__", "exam", "memory", "subject", "trees", "formula"}
    same |= {
        "__main__",
        "clipping",
        "losses",
        "optimizers",
        "layers",
        "ranks",
        "data",
        "sharpness_aware",
    }  # in the engine, and in the reference
    names = Counter(path.stem for path in PACKAGE.rglob("*.py"))
    assert {name for name, count in names.items() if count > 1} == same


def test_every_folder_says_what_lives_there_and_what_it_may_use() -> None:
    for path in PACKAGE.rglob("__init__.py"):
        told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        assert "\n" in told and re.search(r"\b[Mm]ay\s(use|import)", told), path


def test_every_folder_imports_only_what_it_says(tmp_path: Path) -> None:
    assert unsaid(PACKAGE) == []
    plant(tmp_path, "core/__init__.py", '"""Data.\nMay use core; never core/rules (odd)."""')
    plant(tmp_path, "core/rules/__init__.py", '"""Rules. May use\ncore/a.py (for b) and core/c; nothing else."""')
    plant(tmp_path, "core/a.py", "from gradstudio.core.rules import r\nfrom gradstudio.core import d")
    plant(tmp_path, "core/c/e.py", "def f():\n    import gradstudio.engine")
    plant(tmp_path, "core/rules/r.py", "if TYPE_CHECKING:\n    from ..d import D\nfrom gradstudio.core.a import b")
    plant(tmp_path, "core/rules/deep/s.py", "import numpy\nfrom gradstudio.core import rules, c, ab")
    assert unsaid(tmp_path) == [
        "core/a.py:1: gradstudio.core.rules.r",
        "core/c/e.py:2: gradstudio.engine",
        "core/rules/deep/s.py:2: gradstudio.core.ab",
        "core/rules/r.py:2: gradstudio.core.d.D",
    ]


@pytest.mark.parametrize(
    ("file", "text", "fault"),
    [
        (
            "session/record/a.py",
            "from gradstudio.session.running.worker import Worker",
            "session.record imports session.running",
        ),
        (
            "session/running/a.py",
            "def f():\n    from gradstudio.session.words import names",
            "session.running imports session.words",
        ),
        ("session/files/report/a.py", "from ...simulator import Simulator", "session.files imports session.simulator"),
        ("session/words/a.py", "import gradstudio.session.odd.b", "session.odd has no place among the rooms"),
        ("gui/knobs/a.py", "from gradstudio.gui.window import Window", "gui.knobs imports gui.window"),
        ("gui/knobs/a.py", "from gradstudio.gui.shell import pages", "gui.knobs imports gui.shell"),
        ("gui/runs/a.py", "from gradstudio.gui.branches import branch_list", "gui.runs imports gui.branches"),
        ("gui/window.py", "from gradstudio.gui.app import main", "gui.window imports gui.app"),
        (
            "engine/step/a.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from gradstudio.engine.trainer import Trainer",
            "engine.step imports engine.trainer",
        ),
        ("engine/gauges/a.py", "from gradstudio.engine import trainer", "engine.gauges imports engine.trainer"),
        ("core/diagnosis/a.py", "from gradstudio.core.rules import makers", "core.diagnosis imports core.rules"),
    ],
)
def test_a_planted_wrong_way_between_rooms_is_found(tmp_path: Path, file: str, text: str, fault: str) -> None:
    plant(tmp_path, file, text)
    assert room_violations(tmp_path) == [f"{file}: {fault}"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("session/running/a.py", "from gradstudio.session.machine import device_search"),
        ("session/files/report/a.py", "from gradstudio.session.files.report import blocks"),
        ("session/simulator.py", "from gradstudio.session.files.run_files import as_preset"),
        ("gui/branches/a.py", "from gradstudio.gui.runs import run_list"),
        ("gui/shell/a.py", "from gradstudio.gui.commands import TABLE"),
        ("gui/app.py", "from gradstudio.gui.window import Window"),
        ("engine/probes/__init__.py", "from gradstudio.engine.trainer import Trainer"),
        ("engine/trainer.py", "from gradstudio.engine.step import clipping"),
    ],
)
def test_a_right_way_between_rooms_is_not_reported(tmp_path: Path, file: str, text: str) -> None:
    plant(tmp_path, file, text)
    assert room_violations(tmp_path) == []


def test_planted_circles_are_found(tmp_path: Path) -> None:
    """Of two modules, one of them for types alone; and of three, one of them inside a function."""
    plant(tmp_path, "core/a.py", "from gradstudio.core.b import one")
    plant(tmp_path, "core/b.py", "if TYPE_CHECKING:\n    from gradstudio.core import a")
    plant(tmp_path, "core/rules/__init__.py", "from gradstudio.core.rules import c")
    plant(tmp_path, "core/rules/c.py", "import gradstudio.core.d")
    plant(tmp_path, "core/d.py", "def f():\n    from ..core.rules import makers")
    plant(tmp_path, "core/e.py", "from gradstudio.core import a, d")
    assert circles(tmp_path) == [
        "gradstudio.core.a, gradstudio.core.b",
        "gradstudio.core.d, gradstudio.core.rules, gradstudio.core.rules.c",
    ]


@pytest.mark.parametrize(
    ("file", "text", "fault"),
    [
        ("core/a.py", "import torch", "torch outside engine"),
        ("core/a.py", "import scipy", "core imports scipy"),
        ("core/a.py", "from gradstudio.session.record.run import Run", "core imports session"),
        ("core/a.py", "def f():\n    from gradstudio.engine import clipping", "core imports engine"),
        ("engine/a.py", "from gradstudio.session import run", "engine imports session"),
        ("engine/models/a.py", "from ...session import run", "engine imports session"),
        ("engine/a.py", "from PySide6.QtCore import QTimer", "PySide6 outside gui"),
        ("session/a.py", "from gradstudio.engine.trainer import Trainer", "session imports engine outside a function"),
        (
            "session/a.py",
            "try:\n    import gradstudio.engine\nexcept ImportError:\n    pass",
            "session imports engine outside a function",
        ),
        ("session/a.py", "import importlib\nimportlib.import_module('torch')", "torch outside engine"),
        ("session/a.py", "from gradstudio import gui", "session imports gui"),
        ("gui/a.py", "def f():\n    from gradstudio.engine import trainer", "gui imports engine"),
        ("gui/a.py", "def f():\n    import torch", "torch outside engine"),
        ("gui/a.py", "from gradstudio.cli import main", "gui imports cli"),
        ("cli.py", "from gradstudio.gui import app", "cli imports gui outside a function"),
        ("cli.py", "def f():\n    from gradstudio.engine import trainer", "cli imports engine"),
        ("commands/a.py", "from gradstudio.cli import main", "commands imports cli"),
        ("commands/a.py", "def f():\n    from gradstudio.gui import app", "commands imports gui"),
        ("watching/a.py", "from PySide6.QtCore import QTimer", "PySide6 outside gui"),
        ("watching/a.py", "from gradstudio.commands import runs", "watching imports commands"),
        ("session/a.py", "def f():\n    from gradstudio.watching import hooks", "session imports watching"),
        ("engine/a.py", "from gradstudio.watching import hooks", "engine imports watching"),
        ("gui/a.py", "from gradstudio.watching import hooks", "gui imports watching"),
        ("commands/a.py", "def f():\n    from gradstudio.watching import launcher", "commands imports watching"),
        ("helpers/a.py", "import os", "helpers is no layer"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, file: str, text: str, fault: str) -> None:
    plant(tmp_path, file, text)
    [found] = violations(tmp_path)
    assert found.startswith(f"{file}:") and found.endswith(f": {fault}")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (
            "core/a.py",
            "import numpy as np\nimport pydantic\nfrom gradstudio.core.knobs import Knob\nfrom . import knobs",
        ),
        ("engine/a.py", "import torch\nfrom gradstudio.core import files\nfrom gradstudio import __version__"),
        ("session/a.py", "def f():\n    from gradstudio.engine.trainer import Trainer"),
        (
            "session/a.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from gradstudio.engine.trainer import Trainer",
        ),
        (
            "gui/a.py",
            "from PySide6 import QtCore\nimport pyqtgraph\nfrom gradstudio.session import run\nfrom gradstudio.core "
            "import knobs",
        ),
        ("cli.py", "import typer\nfrom gradstudio.session import run\ndef f():\n    from gradstudio.gui import app"),
    ],
)
def test_what_is_allowed_is_not_reported(tmp_path: Path, file: str, text: str) -> None:
    plant(tmp_path, file, text)
    assert violations(tmp_path) == []


def plant(package: Path, file: str, text: str) -> None:
    path = package / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    "modules", ["gradstudio.cli", "gradstudio.session.record.run", "gradstudio.session.running.worker"]
)
def test_neither_torch_nor_qt_is_imported_at_start(modules: str) -> None:
    script = f"import sys, {modules}; print(*sorted({{'torch', 'PySide6', 'pyqtgraph'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout.split() == []


def test_presets_are_read_without_numpy() -> None:
    """It is half of the time that the list of presets may take."""
    script = (
        "import sys, gradstudio.cli; from gradstudio.core import presets; [*map(presets.read, "
        "presets.available())]; print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout.split() == ["False"]


def test_a_run_does_not_import_torchs_compiler() -> None:
    """The compiler takes as long to import as torch itself, and nothing here is compiled. With each optimizer a run
    records its passes, diverges, and is explained."""
    script = """
import sys
from gradstudio.core import presets
from gradstudio.core.experiment import KNOBS
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.running.worker import Worker
preset = presets.load("root-at-zero")
for optimizer in KNOBS["optimizer.kind"].choices:
    experiment = preset.experiment.with_texts(["run.steps=70", "run.device=cpu", "optimizer.kind=" + optimizer])
    worker = Worker(run := Run(preset, experiment), snapshots=Snapshots())
    worker.start()
    worker.join()
    import torch
    explained = run.status == "nonfinite" and run.provenance is not None
    print(optimizer, explained, torch.are_deterministic_algorithms_enabled(), "torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE)
    wanted = [f"{optimizer} True True False" for optimizer in KNOBS["optimizer.kind"].choices]
    assert done.stdout.splitlines() == wanted, done.stderr
