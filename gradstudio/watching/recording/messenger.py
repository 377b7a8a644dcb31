"""Sends findings while the run lives: to a function, a command or a URL, and to the tracker that the script uses. A
separate thread sends them, so that no step waits for a network."""

from __future__ import annotations

import _thread
import gc
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from gradstudio.core.diagnosis.finding import Finding
from gradstudio.session.files.gate import in_words
from gradstudio.watching.hooks.guard import say_once

PATIENCE = 10.0  # seconds allowed for a command, and waited at the end of a run for pending messages
Teller = Callable[[Finding], object]
TRACKERS = ("wandb", "tensorboard", "mlflow")
_LEVELS = {"critical": "ERROR", "warning": "WARN", "info": "INFO"}


class Messenger:
    """Sends the findings of one run, one after the other."""

    def __init__(self, tellers: Sequence[Teller]) -> None:
        self._tellers = tellers
        self._waiting: queue.SimpleQueue[Finding | None] = queue.SimpleQueue()
        self._done = threading.Event()
        _thread.start_new_thread(self._run, ())  # invisible to a script that waits for all threads

    def tell(self, finding: Finding) -> None:
        """Queue a finding to be sent soon."""
        self._waiting.put(finding)

    def close(self) -> None:
        """Wait until everything is sent, for a while."""
        self._waiting.put(None)
        self._done.wait(PATIENCE)

    def _run(self) -> None:
        while (finding := self._waiting.get()) is not None:
            for teller in self._tellers:
                try:
                    teller(finding)
                except Exception as fault:
                    say_once(f"a finding was not passed on: {type(fault).__name__}: {str(fault)[:200]}")
        self._done.set()


def tellers_of(on_finding: Any, to: Any) -> list[Teller]:
    """Return the recipients in `on_finding` and `to`, each one or several. Called in the thread that trains, as MLflow
    knows its run only there."""
    tellers = [_listener(each) for each in _as_list(on_finding)]
    return tellers + [teller for each in _as_list(to) if (teller := _tracker(each)) is not None]


def check(on_finding: Any, to: Any) -> None:
    """Raise TypeError or ValueError for an invalid recipient."""
    for each in _as_list(on_finding):
        if not callable(each) and not isinstance(each, str):
            raise TypeError(f"on_finding must be a function, a command or a URL, not {type(each).__name__}")
    for each in _as_list(to):
        if isinstance(each, str) and each not in TRACKERS:
            raise ValueError(
                f"to = {each!r} is not allowed; allowed: {', '.join(TRACKERS)}, or what has add_text or alert"
            )


def _as_list(given: Any) -> list[Any]:
    return [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]


def _listener(given: Any) -> Teller:
    if callable(given):
        return given
    return (lambda finding: _notify(given, finding)) if "://" in given else (lambda finding: _command(given, finding))


def _command(command: str, finding: Finding) -> None:
    """Run a command; it gets the finding as JSON on its standard input."""
    content = json.dumps({name: getattr(finding, name) for name in finding.__dataclass_fields__})
    subprocess.run(command, shell=True, input=content, text=True, timeout=PATIENCE, check=True, capture_output=True)


def _notify(url: str, finding: Finding) -> None:
    try:
        from apprise import Apprise  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise RuntimeError("a URL needs Apprise: pip install apprise") from None
    target = Apprise()
    if not target.add(url) or not target.notify(title=f"{finding.severity}: {finding.title}", body=in_words(finding)):
        raise RuntimeError("Apprise could not send it")


def _tracker(given: Any) -> Teller | None:
    """Return the function that informs a tracker; None, with a line on stderr, if the script does not use it."""
    used = _IN_USE[given]() if isinstance(given, str) else given
    if hasattr(used, "add_text"):
        return lambda finding: used.add_text(
            f"gradstudio/{finding.rule}", _markdown(finding), (*finding.own_steps, finding.first_step)[0]
        )
    if hasattr(used, "alert"):
        return lambda finding: _alert(used, finding)
    if callable(used):
        return used
    say_once(f"to={given!r}: nothing of it is in use here, so findings stay in the library")
    return None


def _markdown(finding: Finding) -> str:
    return in_words(finding).replace("\n", "\n\n")


def _alert(run: Any, finding: Finding) -> None:
    run.alert(title=finding.title, text=in_words(finding), level=_LEVELS[finding.severity])
    run.summary[f"gradstudio/{finding.rule}"] = in_words(finding)


def _run_of_wandb() -> Any:
    return getattr(sys.modules.get("wandb"), "run", None)


def _writer_of_tensorboard() -> Any:
    """Return the writer that the script created last."""
    kinds = {
        kind
        for name in ("torch.utils.tensorboard.writer", "tensorboardX.writer")
        if isinstance(kind := getattr(sys.modules.get(name), "SummaryWriter", None), type)
    }
    return next((each for each in reversed(gc.get_objects()) if type(each) in kinds), None) if kinds else None


def _run_of_mlflow() -> Teller | None:
    mlflow = sys.modules.get("mlflow")
    active = mlflow.active_run() if mlflow is not None else None
    if mlflow is None or active is None:
        return None
    client, run = mlflow.MlflowClient(), active.info.run_id
    return lambda finding: client.set_tag(run, f"gradstudio.{finding.rule}", in_words(finding))


_IN_USE: dict[str, Callable[[], Any]] = {
    "wandb": _run_of_wandb, "tensorboard": _writer_of_tensorboard, "mlflow": _run_of_mlflow,
}  # fmt: skip
