"""Loading torch's largest library before torch is imported, without holding Python's interpreter lock.

The import would hold that lock while the system links 400 MB of code: for a quarter of a second, no window answers.
Here it is linked through a call that releases the lock, so that the library is there when the import asks for it."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import threading
from pathlib import Path

from gradstudio.core import threads
from gradstudio.core.knobs import KnobError

LARGEST = "libtorch_cpu.so"  # the system loads the libraries that it needs with it

_once = threading.Lock()


def load_ahead() -> None:
    """Load the library, unless torch is there already. Call this in a thread that may wait. Where it fails nothing
    happens: the import will say why."""
    if not sys.platform.startswith("linux"):  # where else it would help has not been measured
        return
    with _once:
        path = _path()
        if "torch" in sys.modules or path is None:
            return
        try:
            os.environ["OMP_NUM_THREADS"] = threads.chosen()  # OpenMP comes with the library and reads this at once
        except KnobError:
            return
        call = ctypes.CDLL(None).dlopen  # unlike CDLL(path), a call through ctypes releases the lock
        call.restype, call.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
        call(os.fsencode(path), os.RTLD_NOW)


def _path() -> Path | None:
    """Return where the library is, None if there is none."""
    found = importlib.util.find_spec("torch")
    path = (
        Path(found.submodule_search_locations[0]) / "lib" / LARGEST
        if found and found.submodule_search_locations
        else None
    )
    return path if path is not None and path.exists() else None
