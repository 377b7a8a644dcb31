"""Who may import what: gui -> session -> engine -> core, Qt only in gui/, torch only in engine/."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "gradstudio"

TOP = "cli"  # everything that lies in the package itself
MAY_IMPORT = {
    "core": {"core"},
    "engine": {"engine", "core"},
    "session": {"session", "engine", "core"},
    "gui": {"gui", "session", "core"},
    "commands": {"commands", "session", "core"},
    TOP: {TOP, "commands", "gui", "session", "core"},
}
ONLY_IN_FUNCTIONS = {("session", "engine"), (TOP, "gui")}  # so that the start is fast; for annotations, TYPE_CHECKING will do
HOME_OF = {"PySide6": "gui", "shiboken6": "gui", "pyqtgraph": "gui", "torch": "engine"}
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
    """What is wrong with an import in that layer; nothing where it is fine. `late`: in a function or under TYPE_CHECKING."""
    root, *rest = module.split(".")
    if layer not in MAY_IMPORT:
        return f"{layer} is no layer"
    if root == "gradstudio" and rest:
        target = rest[0] if rest[0] in MAY_IMPORT else TOP
        if target not in MAY_IMPORT[layer] and rest[0] != "__version__":
            return f"{layer} imports {target}"
        if (layer, target) in ONLY_IN_FUNCTIONS and not late:
            return f"{layer} imports {target} outside a function"
    if HOME_OF.get(root, layer) != layer:
        return f"{root} outside {HOME_OF[root]}"
    if layer == "core" and root not in CORE_USES:
        return f"core imports {root}"
    return ""


def imports(path: Path, package: Path) -> Iterator[tuple[int, str, bool]]:
    """Line, module and lateness of every import in a file. `from a import b` counts as a.b."""
    folder = ["gradstudio", *path.relative_to(package).parts[:-1]]

    def walk(node: ast.AST, late: bool) -> Iterator[tuple[int, str, bool]]:
        for child in ast.iter_child_nodes(node):
            match child:
                case ast.Import(names=names):
                    yield from ((child.lineno, alias.name, late) for alias in names)
                case ast.ImportFrom(module=module, names=names, level=level):
                    above = folder[: len(folder) - level + 1] if level else []
                    base = ".".join([*above, *([module] if module else [])])
                    yield from ((child.lineno, f"{base}.{alias.name}", late) for alias in names)
                case ast.Call(func=ast.Name(id="__import__") | ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
                    yield child.lineno, name, late
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            types = isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")
            yield from walk(child, late or inside or types)

    return walk(ast.parse(path.read_text(encoding="utf-8")), False)


def test_every_import_points_the_right_way() -> None:
    assert violations(PACKAGE) == []


@pytest.mark.parametrize(
    ("file", "text", "fault"),
    [
        ("core/a.py", "import torch", "torch outside engine"),
        ("core/a.py", "import scipy", "core imports scipy"),
        ("core/a.py", "from gradstudio.session.run import Run", "core imports session"),
        ("core/a.py", "def f():\n    from gradstudio.engine import clipping", "core imports engine"),
        ("engine/a.py", "from gradstudio.session import run", "engine imports session"),
        ("engine/models/a.py", "from ...session import run", "engine imports session"),
        ("engine/a.py", "from PySide6.QtCore import QTimer", "PySide6 outside gui"),
        ("session/a.py", "from gradstudio.engine.trainer import Trainer", "session imports engine outside a function"),
        ("session/a.py", "try:\n    import gradstudio.engine\nexcept ImportError:\n    pass", "session imports engine outside a function"),
        ("session/a.py", "import importlib\nimportlib.import_module('torch')", "torch outside engine"),
        ("session/a.py", "from gradstudio import gui", "session imports gui"),
        ("gui/a.py", "def f():\n    from gradstudio.engine import trainer", "gui imports engine"),
        ("gui/a.py", "def f():\n    import torch", "torch outside engine"),
        ("gui/a.py", "from gradstudio.cli import main", "gui imports cli"),
        ("cli.py", "from gradstudio.gui import app", "cli imports gui outside a function"),
        ("cli.py", "def f():\n    from gradstudio.engine import trainer", "cli imports engine"),
        ("commands/a.py", "from gradstudio.cli import main", "commands imports cli"),
        ("commands/a.py", "def f():\n    from gradstudio.gui import app", "commands imports gui"),
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
        ("core/a.py", "import numpy as np\nimport pydantic\nfrom gradstudio.core.knobs import Knob\nfrom . import knobs"),
        ("engine/a.py", "import torch\nfrom gradstudio.core import files\nfrom gradstudio import __version__"),
        ("session/a.py", "def f():\n    from gradstudio.engine.trainer import Trainer"),
        ("session/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from gradstudio.engine.trainer import Trainer"),
        ("gui/a.py", "from PySide6 import QtCore\nimport pyqtgraph\nfrom gradstudio.session import run\nfrom gradstudio.core import knobs"),
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


@pytest.mark.parametrize("modules", ["gradstudio.cli", "gradstudio.session.run", "gradstudio.session.worker"])
def test_neither_torch_nor_qt_is_imported_at_start(modules: str) -> None:
    script = f"import sys, {modules}; print(*sorted({{'torch', 'PySide6', 'pyqtgraph'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_presets_are_read_without_numpy() -> None:
    """It is half of the time that the list of presets may take."""
    script = (
        "import sys, gradstudio.cli; from gradstudio.core import presets; [*map(presets.read, presets.available())]; print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "rmsprop"])
def test_a_run_does_not_import_torchs_compiler(optimizer: str) -> None:
    """It takes as long as torch itself, and nothing here is compiled. The run records its passes, breaks, and is explained."""
    script = f"""
import sys
from gradstudio.core import presets
from gradstudio.session.run import Run
from gradstudio.session.snapshots import Snapshots
from gradstudio.session.worker import Worker
preset = presets.load("root-at-zero")
experiment = preset.experiment.with_texts(["run.steps=70", "run.device=cpu", "optimizer.kind={optimizer}"])
worker = Worker(run := Run(preset, experiment), snapshots=Snapshots())
worker.start()
worker.join()
import torch
print(run.status, run.provenance is not None, torch.are_deterministic_algorithms_enabled(), "torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split() == ["nonfinite", "True", "True", "False"], done.stderr
