"""The parts that come with an extra of the package, and the line that says which one to install."""

from __future__ import annotations

_EXTRA_OF = {
    "PySide6": "gui", "shiboken6": "gui", "pyqtgraph": "gui", "numba": "fast", "matplotlib": "report",
    "pyarrow": "parquet", "distributed": "cluster",
}  # fmt: skip


def to_install(module: str) -> str:
    """Return the command that installs the extra with this module; "" for a module outside of the extras."""
    extra = _EXTRA_OF.get(module.partition(".")[0])
    return f"pip install 'gradstudio[{extra}]'" if extra else ""


def missing(fault: Exception) -> str:
    """Return the line for a failed import of a module that comes with an extra; "" for another fault."""
    name = (fault.name or "").partition(".")[0] if isinstance(fault, ModuleNotFoundError) else ""
    command = to_install(name)
    return f"this needs {name}, which is not installed: {command}" if command else ""
