"""The worker's main loop: it reads requests on its standard input, has runs trained and looked into, and sends the
results. One thread reads, another sends; the training threads never wait for either."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import IO, Any

import gradstudio
from gradstudio.core import malloc, trust
from gradstudio.core.typed_json import from_plain
from gradstudio.session.record.snapshots import StoredSnapshot
from gradstudio.session.remote import command_codec, served_library
from gradstudio.session.remote.kept_runs import KeptRuns
from gradstudio.session.remote.run_document import agreed_in, run_from
from gradstudio.session.remote.run_news import RunSender, take_rows
from gradstudio.session.remote.served_looks import LOOKS, ServedFuture, ServedLook, ServedTask, ServedTrials
from gradstudio.session.remote.served_runs import Family, ServedWorker, WholeRun
from gradstudio.session.running.worker import Worker
from gradstudio.worker import frames
from gradstudio.worker.worker_process import Said

TICK = 0.02  # seconds between two checks for news
SOON = 0.003  # seconds likewise, for a moment after a request
MOMENT = 0.15  # seconds
WORD = 0.5  # seconds after which a worker at least reports that it is alive
SWITCH = 0.001  # seconds after which a training thread lets another one read or send
TRIM = 2.0  # seconds after which the memory that training has freed is given back

Kinds = dict[
    str, Callable[[dict[str, Any]], ServedTask]
]  # what else is served, by the name of the frame that asks for it


class Server:
    """Everything that one worker does."""

    def __init__(self, hearing: IO[bytes], telling: int, kinds: Kinds) -> None:
        self._hearing, self._telling = hearing, telling
        self._families: dict[int, Family] = {}
        self._served: dict[int, ServedTask] = {}
        self._kept, self._kinds = KeptRuns(), kinds
        self._wake, self._asked_at = threading.Event(), 0.0
        self._speaking = threading.Lock()
        self._said_at = 0.0

    def serve(self) -> None:
        """Read requests until the other side is gone."""
        # Before anything that another version sends is read.
        self._say({"m": "version", "version": gradstudio.__version__})
        for target, name in ((self._tell, "telling"), (self._load, "loading torch")):
            threading.Thread(target=target, name=name, daemon=True).start()
        try:
            while (frame := self._read()) is not None:
                self._kept.note_contact()
                self._answer(frame.head, frame.raw)
                self._asked_at = time.monotonic()
                self._wake.set()
            self._kept.go_on()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)  # whatever a thread is doing: there is no one to report it to

    def _read(self) -> frames.Frame | None:
        with suppress(OSError):  # a connection that was reset
            return frames.read(self._hearing)
        return None

    # ---- requests

    def _answer(self, head: dict[str, Any], raw: memoryview) -> None:
        if (made := self._kinds.get(head["m"])) is not None:
            self._serve(made(head))
        else:
            getattr(self, f"_on_{head['m']}")(head, raw)

    def _on_alive(self, head: dict[str, Any], raw: memoryview) -> None:
        """Do nothing: its arrival was noted."""

    def _on_family(self, head: dict[str, Any], raw: memoryview) -> None:
        self._families[head["family"]] = Family(head["budget"], keep=head["keep"])
        if head["keep"]:
            self._kept.prepare()

    def _on_forget_family(self, head: dict[str, Any], raw: memoryview) -> None:
        self._families.pop(head["family"], None)
        threading.Thread(target=_free_device, name="freeing", daemon=True).start()

    def _on_stored(self, head: dict[str, Any], raw: memoryview) -> None:
        stored = StoredSnapshot(head["run"], head["step"], head["seconds"], bytes(raw))
        self._families[head["family"]].stored.append(stored)

    def _on_run(self, head: dict[str, Any], raw: memoryview) -> None:
        family, said = self._families[head["family"]], head["run"]
        trust.agree_here(*agreed_in(said))
        base = family.runs.get(head["rows_of"])
        history = base.history.until(head["rows"]) if base is not None else None
        run = run_from(said, history, family.runs.get(said["parent"]))
        family.runs[run.id] = run

    def _on_rows(self, head: dict[str, Any], raw: memoryview) -> None:
        take_rows(self._families[head["family"]].runs[head["run"]].history, head, raw)

    def _on_forget_run(self, head: dict[str, Any], raw: memoryview) -> None:
        if (family := self._families.get(head["family"])) is not None:
            family.runs.pop(head["run"], None)

    def _on_snapshots(self, head: dict[str, Any], raw: memoryview) -> None:
        snapshots = self._families[head["family"]].snapshots
        if "budget" in head:
            snapshots.resize(head["budget"])
        snapshots.forget(head.get("forget", ()))

    def _on_train(self, head: dict[str, Any], raw: memoryview) -> None:
        family = self._families[head["family"]]
        run = family.runs[head["run"]]
        runs = [(RunSender(run), head["to"])]
        if head["whole"]:
            worker: Any = WholeRun(run)
        else:
            twin, before = family.runs.get(head["twin"]), self._served.get(head["before"])
            runs += [(RunSender(twin), head["twin_to"])] if twin is not None else []
            worker = Worker(
                run, paused=head["paused"], speed=from_plain(float, head["speed"]), snapshots=family.snapshots,
                before=before.worker if isinstance(before, ServedWorker) else None,
                twin=twin, twin_knob=head["twin_knob"],
            )  # fmt: skip
            for command in head["commands"]:
                worker.send(command_codec.decode(command))
        served = self._served[head["to"]] = ServedWorker(head["to"], worker, runs)
        worker.start()
        if family.keep and isinstance(worker, Worker):
            self._kept.add([told.run for told, _ in runs], worker, family.snapshots)
        served.begun = True

    def _on_do(self, head: dict[str, Any], raw: memoryview) -> None:
        served = self._served.get(head["to"])
        if isinstance(served, ServedWorker):
            served.worker.send(command_codec.decode(head["command"]))

    def _on_let_go(self, head: dict[str, Any], raw: memoryview) -> None:
        served = self._served.get(head["to"])
        if isinstance(served, ServedWorker):
            served.worker.release()

    def _on_free(self, head: dict[str, Any], raw: memoryview) -> None:
        """Forget a worker, look or trials that are no longer used."""
        if (served := self._served.pop(head["of"], None)) is not None and not served.over:
            served.stop()

    def _on_stop(self, head: dict[str, Any], raw: memoryview) -> None:
        if (served := self._served.get(head["to"])) is not None:
            served.stop()

    def _on_look(self, head: dict[str, Any], raw: memoryview) -> None:
        family = self._families[head["family"]]
        look = LOOKS[head["kind"]](family.runs[head["run"]], family.snapshots, head["step"])
        self._serve(ServedLook(head["to"], look))

    def _on_trials(self, head: dict[str, Any], raw: memoryview) -> None:
        family = self._families[head["family"]]
        self._serve(ServedTrials(head["to"], family.runs[head["run"]], family.snapshots, head["remedies"]))

    def _on_future(self, head: dict[str, Any], raw: memoryview) -> None:
        family, trials = self._families[head["family"]], self._served[head["trials"]]
        assert isinstance(trials, ServedTrials)
        self._serve(ServedFuture(head["to"], trials, head["trial"], lambda: family.pace))

    def _on_pace(self, head: dict[str, Any], raw: memoryview) -> None:
        self._families[head["family"]].pace = from_plain(float, head["pace"])

    def _on_pack(self, head: dict[str, Any], raw: memoryview) -> None:
        """Send the snapshots of a run for the library."""
        family = self._families[head["family"]]
        run = family.runs.get(head["run"])

        def pack() -> Said:
            from gradstudio.session.library import stored_snapshots

            states = stored_snapshots.pack(run, family.snapshots) if run is not None else []
            sizes = [[step, len(content)] for step, content in states]
            return {"states": sizes}, [content for _, content in states]

        self._answer_in_thread(head["to"], pack)

    def _on_library(self, head: dict[str, Any], raw: memoryview) -> None:
        self._answer_in_thread(head["to"], partial(served_library.answer, head))

    def _on_follow(self, head: dict[str, Any], raw: memoryview) -> None:
        self._serve(served_library.ServedLibraryRun(head["to"], head["run"]))

    def _on_pause_cells(self, head: dict[str, Any], raw: memoryview) -> None:
        if (served := self._served.get(head["to"])) is not None:
            served.pause(head["paused"])

    def _answer_in_thread(self, to: int, find: Callable[[], Said]) -> None:
        """Compute an answer in its own thread, and send it, or why there is none."""

        def work() -> None:
            try:
                answer, raw = find()
                self._say({"m": "answer", "to": to, "problem": "", **answer}, raw)
            except Exception as fault:
                self._say({"m": "answer", "to": to, "problem": str(fault) or type(fault).__name__})

        threading.Thread(target=work, name="answering", daemon=True).start()

    def _on_quit(self, head: dict[str, Any], raw: memoryview) -> None:
        os._exit(0)

    def _serve(self, served: ServedTask) -> None:
        self._served[served.to] = served
        served.begin()

    # ---- messages

    def _tell(self) -> None:
        """Send the news, repeatedly."""
        looked_at = trimmed_at = 0.0
        while True:
            now = time.monotonic()
            slow = now - looked_at > WORD
            looked_at = now if slow else looked_at
            going = [served for served in list(self._served.values()) if served.begun and not served.told_end]
            for served in going:
                try:
                    said = served.news()
                    if slow and isinstance(served, ServedWorker):
                        said += served.line()
                except Exception:  # of one of them; without its end the other side would wait
                    traceback.print_exc()
                    os._exit(1)
                if served.over:  # a reader that sees the end sees what is kept
                    self._tell_snapshots()
                for head, raw in said:
                    self._say(head, raw)
                served.told_end = served.over
            if going and now - trimmed_at > TRIM:
                trimmed_at = now
                malloc.return_freed_memory()
            if slow:
                self._tell_snapshots()
                if now - self._said_at > WORD:
                    self._say({"m": "alive"})
            self._wake.wait(SOON if now - self._asked_at < MOMENT else TICK if going else WORD)
            self._wake.clear()

    def _tell_snapshots(self) -> None:
        for number, family in list(self._families.items()):
            state = family.state()
            if state != family.told:
                family.told = state
                self._say({"m": "kept", "to": number, **state})

    def _say(self, head: dict[str, Any], raw: Iterable[Any] = ()) -> None:
        pieces = frames.pack(head, raw)
        with self._speaking, suppress(OSError):  # nobody hears it: that is told by the end of what is heard
            self._said_at = time.monotonic()
            frames.write(self._telling, pieces)

    def _load(self) -> None:
        """Load everything that training needs, so that it is ready when a run begins; then report what can train
        here."""
        from gradstudio.session.machine.device_search import Machine

        machine = Machine()
        machine.find()
        self._say({
            "m": "hello", "protocol": frames.PROTOCOL, "pid": os.getpid(),
            "devices": [list(device) for device in machine.devices], "problem": machine.problem, "nccl": machine.nccl,
        })  # fmt: skip


def _free_device() -> None:
    """Release the device memory that no run uses any more."""
    torch: Any = sys.modules.get("torch")
    with suppress(Exception):
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()


def main(nonce: str, kinds: Kinds | None = None) -> None:
    """Run as a worker. Output of a studio file goes to stderr, and its input is empty."""
    import faulthandler

    hearing, telling = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    faulthandler.enable()
    sys.setswitchinterval(SWITCH)
    frames.write(telling, [frames.greeting(nonce)])
    Server(os.fdopen(hearing, "rb", buffering=1 << 20), telling, kinds or {}).serve()
