"""The module that Python imports before it runs the script of `gradstudio watch`. Python itself runs the script, so
everything in it is unchanged: its arguments, its modules, its tracebacks, how it ends. The watch begins once the script
has imported torch, as its earlier settings, such as OMP_NUM_THREADS, are read by torch's own import.

`gradstudio/commands/watch.py` puts this folder in front of PYTHONPATH and passes the request in environment variables.
All of that is removed here at once, so neither the script nor the programs that it starts see it. This file uses only
the standard library."""

from __future__ import annotations

import atexit
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))  # the folder that contains the package


class _AtTorch:
    """Finds torch for the script, and begins the watch as soon as it has been imported."""

    def __init__(self, order: str) -> None:
        self._order, self._process = order, os.getpid()
        self._end: Any = None

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        place = sys.meta_path.index(self)
        del sys.meta_path[place]
        try:
            spec = find_spec(name)
        finally:
            sys.meta_path.insert(place, self)  # a library may only have checked whether torch exists
        loader: Any = spec.loader if spec is not None else None
        if loader is None:
            return spec
        execute = loader.exec_module

        def execute_and_begin(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._begin()

        loader.exec_module = execute_and_begin
        return spec

    def _begin(self) -> None:
        if os.getpid() != self._process:
            return  # forked by the script, where nothing is watched
        try:
            self._lend()
            from gradstudio.watching.launcher import begin

            self._end = begin(self._order)
        except Exception as fault:
            print(f"gradstudio: not watched: {type(fault).__name__}: {fault}", file=sys.stderr)

    def _lend(self) -> None:
        """Load this package, which the script need not be able to find. To the Python of another environment lend the
        packages that it lacks."""
        import json

        if "gradstudio" not in sys.modules:
            _load("gradstudio", [_ROOT])
        for name, folder in json.loads(self._order).get("lent", {}).items():
            if find_spec(name) is None:
                _load(name, [folder])

    def end(self) -> None:
        """End the watch with the process, after everything else that ends with it."""
        if os.getpid() != self._process:
            return
        if self._end is not None:
            self._end()
        elif "torch" not in sys.modules:
            _record_nothing(self._order)


def _record_nothing(order: str) -> None:
    import json

    asked_for = json.loads(order)
    if asked_for["out"]:
        with open(asked_for["out"], "w") as file:
            file.write("[]\n")
    if not asked_for["quiet"]:
        print("gradstudio: no training was seen: the script has not imported torch", file=sys.stderr)
    if asked_for["fail_on"] or asked_for["stop_on"]:
        sys.stdout.flush()
        os._exit(1)  # nothing has passed


def _load(name: str, where: list[str]) -> bool:
    """Import a module from one of these folders, and return whether it exists."""
    spec = PathFinder.find_spec(name, where)
    if spec is None or spec.loader is None:
        return False
    sys.modules[name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return True


def _start() -> None:
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != _HERE]
    sys.path_importer_cache.pop(_HERE, None)
    order = os.environ.pop("GRADSTUDIO_WATCH", None)
    before = os.environ.pop("GRADSTUDIO_PYTHONPATH", None)
    if order is not None:
        if before is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = before
        watch: Any = _AtTorch(order)
        sys.meta_path.insert(0, watch)
        atexit.register(watch.end)
    if not _load("sitecustomize", sys.path):
        raise ImportError(name="sitecustomize")  # Python treats it as missing, as it would be without us


_start()
