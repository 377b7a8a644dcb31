"""Before a studio file is trained: whether somebody has agreed to run it, and the check of it in a process of its own,
with a limit of time and memory, so that a file which hangs or ends its process does no more than that."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import gradstudio
from gradstudio.core import presets, trust
from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.core.studio_file import SECTION, StudioFileError, digest

START = 180.0  # seconds in which torch has to be imported
LIMIT = 60.0  # seconds of the file's own
ENDING = 5.0  # seconds that a process may take to end after its answer
ASKING = 1.0  # seconds that a file that takes too long may take to tell its line
LOOK = 0.1  # seconds between two looks whether it is stopped
_LONGEST = 10_000  # characters of an answer
# The package of this very program, but nothing else of its folder before what the system has.
_CHILD = """import sys
sys.path.insert(0, sys.argv[1])
import gradstudio
del sys.path[0]
from gradstudio.engine.own_model import check
check.main()"""


def needs_agreement(experiment: Experiment) -> bool:
    """Return whether an experiment would run a studio file that nobody has agreed to."""
    file = experiment.studio_file
    return file is not None and not trust.agreed(file.sha256)


def check(experiment: Experiment, stopped: Callable[[], bool] = lambda: False, *, limit: float | None = None) -> None:
    """Raise StudioFileError where the studio file of an experiment cannot be trained. It takes a few seconds, once for
    each text and each value that the file is given. Where it is `stopped`, nothing is known."""
    if experiment.studio_file is None:
        return
    text = _checked(experiment)
    known = digest(text)
    if needs_agreement(experiment) or trust.agreed(known):
        return  # the engine runs nothing that was not agreed to
    fault = _fault(experiment.studio_file.name, text, stopped, LIMIT if limit is None else limit)
    if fault:
        raise StudioFileError(fault)
    if not stopped():
        trust.agree(known)


def _checked(experiment: Experiment) -> str:
    """Return what the check depends on, as the TOML that the child reads."""
    names = ["problem.batch_size", *(name for name in experiment.changed() if name.startswith(f"{SECTION}."))]
    plain = Experiment(studio_file=experiment.studio_file).with_values({name: experiment[name] for name in names})
    return presets.to_toml(Preset(id="checked", title="", experiment=plain))


def _fault(name: str, text: str, stopped: Callable[[], bool], limit: float) -> str:
    """Return what is wrong with the file, "" where nothing is or it is stopped."""
    folder = str(Path(gradstudio.__file__).parent.parent)
    # -P: nothing is imported from the folder that the program was started in
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", _CHILD, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    answers, code = queue.SimpleQueue[str](), None
    threading.Thread(target=_talk, args=(child, text, answers), daemon=True).start()
    try:
        _next(answers, START, stopped)
        answer = _next(answers, limit, stopped)
        code = _waited_for(child)
    except queue.Empty:
        if stopped():
            return ""
        line = _line_at_work(child, answers)
        return f"{name}{line}: it takes more than {limit:g} s to build its model and compute one loss; wanted: less"
    finally:
        _end(child)
    try:
        return str(json.loads(answer))
    except ValueError:
        return f"{name}: {_how_it_ended(code)}; wanted: functions that return"


def _line_at_work(child: subprocess.Popen[bytes], answers: queue.SimpleQueue[str]) -> str:
    """Return ', line 12' where the file can be asked at which line it is, else ""."""
    if not hasattr(signal, "SIGUSR1"):
        return ""
    with suppress(OSError, ValueError, queue.Empty):
        child.send_signal(signal.SIGUSR1)
        line = json.loads(_next(answers, ASKING, lambda: False))
        return line if isinstance(line, str) and re.fullmatch(r", line \d+", line) else ""
    return ""


def _next(answers: queue.SimpleQueue[str], seconds: float, stopped: Callable[[], bool]) -> str:
    """Return the next line; queue.Empty where it does not come in time, or it is stopped."""
    end = time.monotonic() + seconds
    while not stopped():
        left = end - time.monotonic()
        try:
            return answers.get(timeout=min(max(left, 0.0), LOOK))
        except queue.Empty:
            if left <= 0:
                raise
    raise queue.Empty


def _talk(child: subprocess.Popen[bytes], text: str, answers: queue.SimpleQueue[str]) -> None:
    """Hand over the text, and pass on the two lines of the answer; "" for one that does not come."""
    assert child.stdin is not None and child.stdout is not None
    with suppress(OSError, ValueError):
        child.stdin.write(text.encode())
        child.stdin.close()
    for _ in range(2):
        line = b""
        with suppress(OSError, ValueError):
            line = child.stdout.readline(_LONGEST)
        answers.put(line.decode(errors="replace").strip())


def _waited_for(child: subprocess.Popen[bytes]) -> int | None:
    """Return the exit code of a child that has answered, None where it does not come to its end."""
    with suppress(subprocess.TimeoutExpired):
        return child.wait(timeout=ENDING)
    return None


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child and what it has started."""
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
    child.wait()


def _how_it_ended(code: int | None) -> str:
    if code is None:
        return "its process did not tell what came of it"
    if code < 0:
        return f"it was ended by signal {-code}, as by a crash or for want of memory"
    return f"it ended its process with exit code {code}"
