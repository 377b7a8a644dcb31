"""A crew on a Dask cluster (pip install 'gradstudio[cluster]'), which does the work of a pool on many machines. Dask
itself reassigns an order if a worker dies, and reports which order killed several."""

from __future__ import annotations

import contextlib
import logging
from concurrent.futures import Executor
from importlib import import_module
from pathlib import Path
from typing import Any

from gradstudio.session.map.workers import CrewError

RETRIES = 3  # times that Dask retries an order after an error
PATIENCE = 10  # seconds to reach the scheduler


class Cluster:
    """The workers of a Dask scheduler. Each should have one thread: --nthreads 1."""

    def __init__(self, where: str) -> None:
        """`where`: the address of the scheduler, such as tcp://host:8786, or the path of its scheduler file. CrewError
        if there is none."""
        try:
            self._dask: Any = import_module("distributed")
        except ImportError:
            raise CrewError("--on needs Dask: pip install 'gradstudio[cluster]'") from None
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # its message is shown here, in one line
        self._where = where
        is_file = "://" not in where
        if is_file and not Path(where).is_file():
            raise CrewError(f"--on {where[:200]} is not allowed; allowed: tcp://HOST:PORT, or a scheduler file")
        place = {"scheduler_file": where} if is_file else {"address": where}
        try:
            self._client = self._dask.Client(**place, timeout=PATIENCE, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as fault:
            why = str(fault).partition("\n")[0][:200]
            raise CrewError(f"--on {where[:200]}: no scheduler answers ({why or type(fault).__name__})") from None
        self._executor: Executor = self._client.get_executor(pure=False, retries=RETRIES)

    @property
    def size(self) -> int:
        """The total number of threads of all current workers; at least 1."""
        with contextlib.suppress(OSError, TimeoutError):
            return max(1, sum(self._client.ncores().values()))
        return 1

    def executor(self) -> Executor:
        return self._executor

    def check(self) -> None:
        if self._client.status != "running":
            raise CrewError(f"the scheduler at {self._where} is gone; --resume goes on with the map")

    def fault_of_cell(self, fault: BaseException) -> str:
        self.check()
        if isinstance(fault, self._dask.scheduler.KilledWorker):
            return "it ended each worker process that trained it, as by a crash or for want of memory"
        if isinstance(fault, ModuleNotFoundError):
            raise CrewError(f"a worker at {self._where} lacks {fault.name}; install the same GradStudio there")
        raise CrewError(f"the cluster at {self._where} gave a run back: {type(fault).__name__}: {str(fault)[:200]}")

    def close(self) -> None:
        with contextlib.suppress(Exception):  # a scheduler that is gone
            self._client.close(timeout=PATIENCE)
