"""The process that computes footprints (session/footprint/process.py starts it). It imports torch once, and answers
each request in a fork of itself, so that a studio file can end or hang no more than that.

A request is a line of JSON on stdin: its number, the experiment as TOML, and whether cures are requested. The answers
are lines of JSON with that number: the footprint, each cure, and finally that it is done; or why it is unknown. A new
request ends the previous one. The process ends with its stdin, or after a while without a request."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from gradstudio.core import presets, trust
from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError
from gradstudio.engine import runtime
from gradstudio.engine.footprint import cures, estimate
from gradstudio.engine.own_model.check import limit_memory

READY = "ready"  # the first line
IDLE = 300.0  # seconds without a request
COPIES = sys.platform == "linux"  # elsewhere the process itself answers, and exits
_CHUNK = 1 << 16  # bytes

Answer = dict[str, Any]


def main() -> None:
    """Answer requests until stdin ends."""
    answers = os.dup(1)  # the output of a studio file is discarded
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    estimate.possible()  # imports everything needed
    os.write(answers, f"{READY}\n".encode())
    if COPIES:
        if estimate.possible():
            estimate.estimate(Experiment().with_value("optimizer.kind", "adam"))  # requires only a single import
        _Server(answers).serve()
    else:
        _answer(json.loads(sys.stdin.readline()), _writer(answers))
    os._exit(0)  # whatever threads a studio file has started


class _Server:
    """Answers requests one after the other, each in a fork of this process."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._copy, self._pipe, self._number = 0, -1, 0  # the running fork, its output, and its request
        self._asked, self._said = b"", b""  # incomplete lines

    def serve(self) -> None:
        while True:
            waiting = [0, self._pipe] if self._copy else [0]
            ready, _, _ = select.select(waiting, [], [], IDLE)
            if not ready and not self._copy:
                return
            if self._pipe in ready:
                self._pass_on()
            if 0 in ready and not self._read():
                self._end_copy()
                return

    def _read(self) -> bool:
        """Read the next request. Return False once there will be no more."""
        data = os.read(0, _CHUNK)
        *lines, self._asked = (self._asked + data).split(b"\n")
        if lines:
            self._end_copy()
            self._begin(lines[-1])
        return bool(data)

    def _begin(self, line: bytes) -> None:
        """Let a fork answer."""
        request = json.loads(line)
        self._number = request["number"]
        self._pipe, end = os.pipe()
        self._copy = os.fork()
        if self._copy:
            os.close(end)
            return
        os.close(self._pipe)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # a studio file must not read requests
        try:
            _answer(request, _writer(end))
        finally:
            os._exit(0)

    def _pass_on(self) -> None:
        """Pass whole lines on; a fork that is ended in the middle of a line leaves nothing of it."""
        data = os.read(self._pipe, _CHUNK)
        *lines, self._said = (self._said + data).split(b"\n")
        for line in lines:
            _write(self._answers, line + b"\n")
        if not data:
            ended = {"number": self._number, "problem": "the process that works it out has ended"}
            _write(self._answers, json.dumps(ended).encode() + b"\n")  # there is no reader if everything was answered
            self._end_copy()

    def _end_copy(self) -> None:
        if self._copy:
            with suppress(ProcessLookupError):
                os.kill(self._copy, signal.SIGKILL)
            os.waitpid(self._copy, 0)
            os.close(self._pipe)
        self._copy, self._pipe, self._said = 0, -1, b""


def _answer(request: dict[str, Any], say: Callable[[Answer], None]) -> None:
    """Answer one request."""
    number = request["number"]
    try:
        experiment = presets.parse(request["toml"], Path("asked")).experiment
        if (file := experiment.studio_file) is not None:
            trust.agree_here(file.sha256, *file.hashes(experiment.model_file))  # or the user has not agreed to it
            limit_memory()
        for answer in footprints(experiment, with_cures=request["cures"]):
            say({"number": number, **answer})
    except Exception as fault:
        say({"number": number, "problem": _problem(fault)})
    say({"number": number, "done": True})


def footprints(experiment: Experiment, *, with_cures: bool) -> Iterator[Answer]:
    """Yield the footprint of an experiment, and the changes that would lower it."""
    if not estimate.possible():
        yield {"problem": "this torch has no tensors without memory"}
        return
    now = estimate.estimate(experiment)
    yield {"footprint": now.plain()}
    if with_cures:
        for cure in cures.cures(experiment, now):
            yield {"cure": cure.plain()}


def _problem(fault: Exception) -> str:
    if runtime.out_of_memory(fault):
        return "even its shapes do not fit into memory"
    if isinstance(fault, KnobError):
        return str(fault)
    return f"{type(fault).__name__}: {str(fault).strip().partition(chr(10))[0][:200]}"


def _writer(end: int) -> Callable[[Answer], None]:
    return lambda answer: _write(end, json.dumps(answer).encode() + b"\n")


def _write(end: int, data: bytes) -> None:
    while data:
        data = data[os.write(end, data) :]
