"""What can train here. Found in a thread of its own, for it takes torch to know."""

from __future__ import annotations

import threading
from contextlib import suppress

from gradstudio.core import compiled
from gradstudio.session import torch_library


class Machine:
    """Loads torch, and what else training and its plots take, in the background. `devices` is (id, name) pairs once `ready`; `problem` says
    why nothing can train."""

    def __init__(self) -> None:
        self.ready = False
        self.devices: tuple[tuple[str, str], ...] = ()
        self.problem = ""
        self._thread = threading.Thread(target=self._look, name="loading torch", daemon=True)

    def look(self) -> None:
        """Begin to look; returns at once."""
        self._thread.start()

    @property
    def busy(self) -> bool:
        return self._thread.is_alive()

    @property
    def automatic(self) -> str:
        """What run.device = auto comes to here; empty until that is known."""
        return self.devices[1 if len(self.devices) > 1 else 0][0] if self.devices else ""

    def _look(self) -> None:
        compiling = threading.Thread(target=_compile, name="compiling", daemon=True)
        compiling.start()
        try:
            torch_library.load_ahead()
            from gradstudio.engine import devices, trainer  # noqa: F401  all that training takes is there when it begins

            self.devices = tuple((device.id, device.name) for device in devices.available())
            compiling.join()
            compiled.compile_all()
        except ModuleNotFoundError as fault:
            self.problem = f"{fault.name} is not installed, so nothing can train: pip install {fault.name}"
        except Exception as fault:  # a broken torch, numba or driver can raise anything
            self.problem = f"Nothing can train here: {str(fault).partition(chr(10))[0]}"
        finally:
            self.ready = True


def _compile() -> None:
    """What torch need not be there for, while the system links that; who needs it says what went wrong."""
    with suppress(Exception):
        from gradstudio.engine import kernels  # noqa: F401

        compiled.compile_all()
