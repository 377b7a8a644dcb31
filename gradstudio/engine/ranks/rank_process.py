"""The main loop of a rank: it joins the others, serves requests step by step, and ends with the requesting process."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from gradstudio.core import process_server
from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError
from gradstudio.core.rank_placement import Placement

STORE, PLACES = "store", "places"  # files in the ranks' folder
SHARED = 2  # rows of the second: since when each rank has been waiting, and its latest heartbeat
BEAT = 0.25  # seconds
LONGEST = 200  # characters of an error that are reported
_PARENT_DIES = 1  # PR_SET_PDEATHSIG


def main(asker: Connection, rank: int, experiment: Experiment, folder: str, placement: Placement) -> None:
    """Run as a rank. The ranks find each other through `folder`."""
    _end_with_the_others()
    _be_silent()
    try:
        trainer = _join(asker, rank, experiment, Path(folder), placement)
        asker.send(("done", (trainer.layers, trainer.environment, trainer.test_interval)))
        while True:
            asker.send(_answer(trainer, *asker.recv()))
    except (EOFError, BrokenPipeError):
        pass
    except BaseException as fault:
        with suppress(OSError):
            asker.send(_fault(fault))
    finally:
        os._exit(0)  # no goodbye to ranks that may be gone


def _join(asker: Connection, rank: int, experiment: Experiment, folder: Path, placement: Placement) -> Any:
    """Meet the other ranks, and return the trainer."""
    if sys.platform in ("linux", "darwin"):
        os.environ["GLOO_SOCKET_IFNAME"] = "lo" if sys.platform == "linux" else "lo0"
        os.environ.setdefault("NCCL_SOCKET_IFNAME", os.environ["GLOO_SOCKET_IFNAME"])
    from torch.distributed import FileStore  # pyright: ignore[reportPrivateImportUsage]

    from gradstudio.engine.ranks import collectives
    from gradstudio.engine.ranks.rank_trainer import RankTrainer

    world, device = experiment.distributed.ranks, placement.devices[rank]
    collectives.open_device(device)  # before the heartbeat starts: it takes seconds in which no Python thread runs
    places, beats = np.memmap(folder / PLACES, np.float64, "r+", shape=(SHARED, world))
    threading.Thread(target=_beat, args=(beats, rank), name="heart", daemon=True).start()

    def waits(begins: bool) -> None:
        places[rank] = time.monotonic() if begins else 0.0

    def leaves() -> None:
        places[rank] = -time.monotonic()

    collectives.meet(FileStore(str(folder / STORE), world), rank, world)
    why = f"it has not connected the ranks within {collectives.STARTS:.0f} s"
    with _refusing(asker, collectives.STARTS, collectives.not_started(device, why)):
        group = collectives.group_of_devices(placement.backend, device)
    return RankTrainer(experiment, rank, collectives.Collectives(world, device, group, waits), leaves)


@contextmanager
def _refusing(asker: Connection, seconds: float, why: str) -> Iterator[None]:
    """Report that this rank refuses if the body takes longer. It may never return."""
    late = threading.Timer(seconds, asker.send, [("refused", why)])
    late.daemon = True
    late.start()
    try:
        yield
    finally:
        late.cancel()


def _beat(beats: np.ndarray, rank: int) -> None:
    """Write the heartbeat of this process, repeatedly."""
    while True:
        beats[rank] = time.monotonic()
        time.sleep(BEAT)


def _answer(trainer: Any, word: str, what: Any) -> tuple[str, Any]:
    """Carry out a request."""
    match word:
        case "step":
            if trainer.rank == 0:
                trainer.requests = what
            row = trainer.advance()[0]
            shared = row if trainer.rank == 0 else None
            return "done", (shared, trainer.own_loss(row), trainer.weigh(row.accuracy), trainer.figures(row))
        case "change":
            try:
                trainer.change(*what)
            except KnobError as fault:
                return _fault(fault)
            return "done", trainer.test_interval
        case "check":
            trainer.check(what.with_value("run.device", trainer.device))
            return "done", None
        case "evaluate":
            return "done", trainer.evaluate()
        case "explain":
            from gradstudio.engine.ranks import rank_replay

            return "done", rank_replay.search(trainer)
    raise ValueError(word)


def _fault(fault: BaseException) -> tuple[str, Any]:
    if isinstance(fault, KnobError):
        return "refused", str(fault)
    text = str(fault).strip().partition("\n")[0]
    if len(text) > LONGEST:  # torch writes paragraphs
        text = text[: text.rfind(". ", 0, LONGEST) + 1] or text[:LONGEST]
    return "failed", f"{type(fault).__name__}: {text}" if text else type(fault).__name__


def _be_silent() -> None:
    """Silence gloo, which reports each connection on stdout: a command prints its summary there."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(nowhere, stream)


def _end_with_the_others() -> None:
    """Leave Ctrl+C to the requesting process, and end as soon as it ends."""
    process_server.end_with_parent()
    _release_server()
    if sys.platform == "linux":  # of the server that started this process, which ends with the requesting one
        ctypes.CDLL(None).prctl(_PARENT_DIES, signal.SIGKILL)


def _release_server() -> None:
    """Close this copy of the pipe that keeps the server alive. Otherwise a rank that is stopped by a signal keeps the
    server alive, and the server keeps that rank."""
    if sys.platform == "win32":
        return
    from multiprocessing import forkserver

    with suppress(AttributeError):  # private to multiprocessing: without it a stopped rank stays until it is resumed
        server: Any = forkserver._forkserver  # pyright: ignore[reportAttributeAccessIssue]
        if (pipe := server._forkserver_alive_fd) is not None:
            os.close(pipe)
            server._forkserver_alive_fd = None
