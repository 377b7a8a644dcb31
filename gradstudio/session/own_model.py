"""Before a studio file is trained: whether the user has agreed to run it, and the check of it in a separate process,
with a limit of time and memory, so that a file which hangs or ends its process does no further harm."""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gradstudio.core import files, presets, python_process, trust
from gradstudio.core.check_note import ASKED, NOTE, TRACES, CheckNote
from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import Value
from gradstudio.core.presets import Preset
from gradstudio.core.studio_file import SECTION, StudioFile, StudioFileError, digest

START = 180.0  # seconds allowed for importing torch
LIMIT = 60.0  # seconds for the file itself
WRITING = 0.5  # extra seconds in which the process may write where the file is
LOOK = 0.05  # seconds between two checks of the process
_CHILD = """from pathlib import Path
_, folder, limit = sys.argv
del sys.argv[1:]
from gradstudio.engine.own_model import check
check.main(Path(folder), float(limit))"""


class Agreement(NamedTuple):
    """What the user agrees to: a studio file, and the texts that are set for its knobs, by dotted name."""

    file: StudioFile
    texts: tuple[tuple[str, str], ...]
    hashes: tuple[str, ...]


def to_agree(experiment: Experiment, *others: Experiment) -> Agreement | None:
    """Return what the user has to agree to before an experiment is run, and others with the same studio file; None if
    nothing is left to agree to."""
    file = experiment.studio_file
    if file is None:
        return None
    values = [each.model_file for each in (experiment, *others)]
    needed = hashes(experiment, *others)
    if trust.is_trusted(*needed):
        return None
    texts = {(f"{SECTION}.{name}", text) for given in values for name, text in given.items() if isinstance(text, str)}
    return Agreement(file, tuple(sorted(texts)), needed)


def hashes(*experiments: Experiment) -> tuple[str, ...]:
    """Return the hashes of everything that experiments with one studio file would run; none without a studio file."""
    file = experiments[0].studio_file
    if file is None:
        return ()
    given = (each.model_file for each in experiments)
    return tuple(dict.fromkeys([file.sha256, *(each for values in given for each in file.hashes(values))]))


def needs_agreement(experiment: Experiment) -> bool:
    """Return whether an experiment would run a studio file, or use a text for one of its knobs, without the user's
    agreement."""
    return to_agree(experiment) is not None


def agree_to_own(experiment: Experiment, values: Mapping[str, Value]) -> None:
    """Remember until this program ends that these values, by dotted name, were set by the user."""
    if experiment.studio_file is not None:
        before = f"{SECTION}."
        own = {name.removeprefix(before): value for name, value in values.items() if name.startswith(before)}
        trust.agree_here(*experiment.studio_file.hashes(own))


def keep_agreement(experiment: Experiment) -> None:
    """Remember permanently that everything in an experiment was agreed to: it is being run."""
    if experiment.studio_file is not None:
        trust.agree(experiment.studio_file.sha256, *experiment.studio_file.hashes(experiment.model_file))


def check(experiment: Experiment, stopped: Callable[[], bool] = lambda: False, *, limit: float | None = None) -> None:
    """Raise StudioFileError if the studio file of an experiment cannot be trained. Takes a few seconds, once for each
    text and each value that the file is given. If it is `stopped`, the check is inconclusive."""
    if experiment.studio_file is None:
        return
    text = _check_input(experiment)
    known = digest(text)
    if needs_agreement(experiment) or trust.is_trusted(known):
        return  # the engine runs nothing that the user has not agreed to
    fault = _fault(experiment.studio_file.name, text, stopped, LIMIT if limit is None else limit)
    if fault:
        raise StudioFileError(fault)
    if not stopped():
        trust.agree(known)


def place_of(fault: BaseException, experiment: Experiment) -> str:
    """Return 'my_model.py, line 12: ' for a training exception that came through the studio file, otherwise ""."""
    from gradstudio.engine.own_model import line_at_work

    file = experiment.studio_file
    line = line_at_work.line_of_fault(file.name, fault) if file is not None else 0
    return f"{file.name}, line {line}: " if file is not None and line else ""


def line_now(experiment: Experiment, thread: str) -> str:
    """Return ' my_model.py is at line 12.' if the thread with this name is in the studio file, otherwise ""."""
    from gradstudio.engine.own_model import line_at_work

    file = experiment.studio_file
    number = next((each.ident for each in threading.enumerate() if each.name == thread), None)
    if file is None or number is None:
        return ""
    line = line_at_work.line_at_work(file.name, sys._current_frames().get(number))
    return f" {file.name} is at line {line}." if line else ""


def _check_input(experiment: Experiment) -> str:
    """Return the input of the check, as the TOML that the child reads."""
    names = [
        "problem.batch_size",
        "run.device",
        "run.deterministic",
        *(name for name in experiment.changed_knobs() if name.startswith(f"{SECTION}.")),
    ]
    plain = Experiment(studio_file=experiment.studio_file).with_values({name: experiment[name] for name in names})
    return presets.to_toml(Preset(id="checked", title="", experiment=plain))


def _fault(name: str, text: str, stopped: Callable[[], bool], limit: float) -> str:
    """Return what is wrong with the file; "" if nothing is, or the check is stopped."""
    secret = secrets.token_hex(8)
    try:
        with files.temporary_folder(Path(tempfile.gettempdir())) as made:
            folder = Path(made)
            (folder / ASKED).write_text(f"{secret}\n{text}", encoding="utf-8", newline="")
            CheckNote.begin(folder / NOTE)
            note = CheckNote(folder / NOTE, secret)
            try:
                return _check_in_process(name, folder, note, stopped, limit)
            finally:
                note.close()
    except OSError as fault:
        return f"{name}: it cannot be checked before it is trained: {files.reason(fault)}"


def _check_in_process(name: str, folder: Path, note: CheckNote, stopped: Callable[[], bool], limit: float) -> str:
    """Return the same from a process that works in a folder."""
    child = python_process.start(
        python_process.command(_CHILD, str(folder), str(limit)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        code = _wait(child, lambda: stopped() or note.ready, START)
        if note.ready:
            code = _wait(child, lambda: stopped() or note.read_answer is not None, limit + WRITING)
    finally:
        python_process.end(child)
    if stopped():
        return ""
    if note.read_answer is not None:
        return note.read_answer
    if not note.ready:
        how = "ended" if code is not None else "hung"
        return f"{name}: the process that is to check it {how} before it ran the file"
    line = note.line or _line_in(folder / TRACES, name)
    where = f"{name}, line {line}" if line else f"{name}, at a line that is not known"
    if code is None:
        return f"{where}: it takes more than {limit:g} s to build its model and compute one loss; wanted: less"
    return f"{where}: it {python_process.how_it_ended(code)}; wanted: functions that return"


def _wait(child: subprocess.Popen[bytes], enough: Callable[[], bool], seconds: float) -> int | None:
    """Wait until the child has ended, and return its exit code; None if `enough` becomes true first, or it takes
    longer."""
    end = time.monotonic() + seconds
    while not enough() and time.monotonic() < end:
        with suppress(subprocess.TimeoutExpired):
            return child.wait(timeout=LOOK)
    return None


def _line_in(traces: Path, name: str) -> int:
    """Return the innermost line of the file in the tracebacks that Python wrote when the process crashed or took too
    long: in the thread that crashed, otherwise in the main thread, which is printed last. 0 if there is none."""
    escaped = re.escape(name.encode("ascii", "backslashreplace").decode())
    innermost = 0
    with suppress(OSError):
        for thread in traces.read_text(encoding="ascii", errors="replace").split("(most recent call first)"):
            if line := re.search(rf'File "{escaped}", line (\d+)', thread):
                innermost = int(line[1])
    return innermost
