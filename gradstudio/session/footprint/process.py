"""The process that computes footprints: started on the first request, ended with the program, or if it takes too
long."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from gradstudio.core import presets, python_process, ranks_allowed
from gradstudio.core.experiment import Experiment
from gradstudio.core.footprint import Cure, Footprint, from_plain
from gradstudio.core.presets import Preset
from gradstudio.session import own_model

START = 180.0  # seconds allowed for importing torch
LIMIT = 60.0  # seconds for one answer
READY = "ready"  # its first message
KEPT = sys.platform == "linux"  # elsewhere a process gives a single answer
ENDING = 2.0  # seconds allowed for the process to end
LOOK = 0.05  # seconds between two checks whether it is stopped
_CHILD = "from gradstudio.engine.footprint import child; child.main()"


class FootprintUnknown(Exception):
    """The memory use of an experiment cannot be determined. One line for the user."""


class _ProcessEnded(FootprintUnknown):
    """The process has ended."""


class FootprintProcess:
    """Computes footprints. One thread sends requests at a time; `close` may be called from any thread."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._answers, self._ready = queue.SimpleQueue[bytes](), False
        self._number = 0
        self._listener: threading.Thread | None = None

    def ask(
        self, experiment: Experiment, stopped: Callable[[], bool] = lambda: False, *, cures: bool = True
    ) -> Iterator[Footprint | Cure]:
        """Yield the footprint of an experiment, then each cure, as they arrive. Ends early if `stopped`.
        FootprintUnknown if it cannot be determined."""
        if own_model.needs_agreement(experiment):
            raise FootprintUnknown("the studio file is run for that, and nobody has agreed to it")
        if ranks_allowed.several(experiment):
            raise FootprintUnknown("it is worked out for one process only; set distributed.ranks=1")
        self._number += 1
        plain = presets.to_toml(Preset(id="asked", title="", experiment=experiment))
        request = {"number": self._number, "toml": plain, "cures": cures}
        self._send(request)
        whole = begun = False
        try:
            while not stopped():
                try:
                    answer = self._next(stopped)
                except _ProcessEnded:  # perhaps after waiting too long, just before the request
                    if begun:
                        raise
                    self._send(request)
                    answer = self._next(stopped)
                begun = True
                if answer is None or answer.get("done"):
                    whole = answer is not None
                    return
                if "problem" in answer:
                    raise FootprintUnknown(str(answer["problem"]))
                if "footprint" in answer:
                    yield from_plain(answer["footprint"])
                else:
                    yield Cure(**answer["cure"])
        finally:
            if not KEPT or (not whole and experiment.studio_file is not None):
                self.close()  # a studio file may hang, or have started something

    def close(self) -> None:
        """End the process."""
        child, self._child = self._child, None
        if child is None:
            return
        assert child.stdin is not None
        with suppress(OSError, ValueError):
            child.stdin.close()  # which it sees
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=ENDING)
        python_process.end(child)
        if self._listener is not None:  # what the child wrote has ended too
            self._listener.join(ENDING)

    def _send(self, request: dict[str, Any]) -> None:
        """Send a request; a process that has ended is restarted."""
        line = json.dumps(request).encode() + b"\n"
        for _ in range(2):
            if self._child is None or self._child.poll() is not None:
                self.close()
                self._start()
            assert self._child is not None and self._child.stdin is not None
            try:
                self._child.stdin.write(line)
                self._child.stdin.flush()
                return
            except (OSError, ValueError):
                self.close()
        raise FootprintUnknown("the process that works it out has ended")

    def _start(self) -> None:
        self._answers, self._ready = queue.SimpleQueue[bytes](), False
        self._child = python_process.start(
            python_process.command(_CHILD), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._listener = threading.Thread(target=_listen, args=(self._child, self._answers), daemon=True)
        self._listener.start()

    def _next(self, stopped: Callable[[], bool]) -> dict[str, Any] | None:
        """Return the next answer to the latest request; None if it is stopped."""
        end = time.monotonic() + (LIMIT if self._ready else START)
        while (line := self._line(end - time.monotonic(), stopped)) is not None:
            if not line:
                self.close()
                raise _ProcessEnded("the process that works it out has ended")
            if line.decode().strip() == READY:
                self._ready, end = True, time.monotonic() + LIMIT
                continue
            answer = json.loads(line)
            if answer["number"] == self._number:
                return answer
        if stopped():
            return None
        self.close()
        if not self._ready:
            raise FootprintUnknown("the process that works it out does not start")
        raise FootprintUnknown(f"it takes more than {LIMIT:g} s to work out")

    def _line(self, seconds: float, stopped: Callable[[], bool]) -> bytes | None:
        """Return the next line, b"" at the end; None if none arrives in time or it is stopped."""
        end = time.monotonic() + seconds
        while not stopped():
            left = end - time.monotonic()
            if left <= 0:
                return None
            with suppress(queue.Empty):
                return self._answers.get(timeout=min(left, LOOK))
        return None


def _listen(child: subprocess.Popen[bytes], answers: queue.SimpleQueue[bytes]) -> None:
    """Pass on the lines of a child, and b"" at its end."""
    assert child.stdout is not None
    with suppress(OSError, ValueError), child.stdout:
        for line in child.stdout:
            answers.put(line)
    answers.put(b"")
