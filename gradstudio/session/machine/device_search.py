"""The search for devices that can train, in a thread of its own, because it has to load torch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gradstudio.core import jit, presets
from gradstudio.core.experiment import Experiment
from gradstudio.core.rank_placement import place


def device_of(experiment: Experiment) -> str:
    """Return the device on which an experiment trains here."""
    from gradstudio.engine import devices

    return devices.resolve(experiment.run.device)


class Machine:
    """Loads torch and everything else that training and its plots need, in the background. Once `ready`, `devices` are
    pairs of id and name, and `problem` says why nothing can train."""

    def __init__(self, ask: Callable[[], dict[str, Any]] | None = None) -> None:
        """`ask` waits for a worker's report of its devices; without it this process loads torch."""
        self._ask = ask
        self.ready = False
        self.devices: tuple[tuple[str, str], ...] = ()
        self.problem = ""
        self.nccl = False
        self._thread = threading.Thread(target=self._look, name="loading torch", daemon=True)

    def begin(self) -> None:
        """Let a worker load torch before the search."""
        if self._ask is not None:
            threading.Thread(target=self._ask, name="asking a worker", daemon=True).start()

    def look(self) -> None:
        """Start the search, and return at once."""
        self._thread.start()

    @property
    def busy(self) -> bool:
        """True while the search is running."""
        return self._thread.is_alive()

    def automatic(self, ranks: int = 1) -> str:
        """Return the device that run.device = auto stands for here; with several ranks, that of the first; "" while
        unknown."""
        if not self.devices:
            return ""
        if ranks == 1:
            return self.devices[1 if len(self.devices) > 1 else 0][0]
        gpus = sum(device.startswith("cuda") for device, _ in self.devices)
        return place("auto", ranks, gpus, nccl=self.nccl).devices[0]

    def _look(self) -> None:
        """Load everything, and record the devices."""
        if self._ask is None:
            self.find()
        else:
            self._take_answer(self._ask)
        from gradstudio import program

        for read_ahead in (presets.read_ahead, program.read_ahead):  # or a menu and the page Code would open late
            read_ahead()

    def _take_answer(self, ask: Callable[[], dict[str, Any]]) -> None:
        """Store a worker's report."""
        with suppress(Exception):  # it shows when the result is needed
            jit.compile_all()
        told = ask()
        self.problem, self.nccl = str(told["problem"]), bool(told["nccl"])
        self.devices = tuple((str(device), str(name)) for device, name in told["devices"])
        self.ready = True

    def find(self) -> None:
        """Load everything in this thread, and record the devices."""
        compiling = threading.Thread(target=_compile, name="compiling", daemon=True)
        compiling.start()
        try:
            # The trainer imports everything that training needs, so that it is ready when a run begins.
            from gradstudio.engine import devices, trainer  # noqa: F401

            self.nccl = devices.nccl()
            self.devices = tuple((device.id, device.name) for device in devices.available())
            compiling.join()
            jit.compile_all()
        except ModuleNotFoundError as fault:
            self.problem = f"{fault.name} is not installed, so nothing can train: pip install {fault.name}"
        except Exception as fault:  # a broken torch, numba or driver can raise anything
            self.problem = f"Nothing can train here: {str(fault).partition(chr(10))[0]}"
        finally:
            self.ready = True


def _compile() -> None:
    """Compile what does not need torch while the system links torch. Errors show up when the result is needed."""
    with suppress(Exception):
        from gradstudio.engine.gauges import kernels  # noqa: F401

        jit.compile_all()
