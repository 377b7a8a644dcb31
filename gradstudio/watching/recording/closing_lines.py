"""The closing report on stderr about the runs of a script: where they are, how they went, how to open them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path

from gradstudio.core import files
from gradstudio.core.diagnosis.finding import RANK
from gradstudio.core.text import one_line, plural
from gradstudio.session.files import crash_file, crash_reading
from gradstudio.session.record.ranked_findings import ranked_findings
from gradstudio.session.record.run import recent_mean
from gradstudio.session.words.outcome_words import OUTCOMES
from gradstudio.watching.births.loss_code import OF_ANOTHER
from gradstudio.watching.hooks.guard import replaying, say
from gradstudio.watching.recording.watched_run import WatchedRun

SECONDS_FOR_FIXES = 2.0  # at the end of a script
REPLAYS = 3  # of the recorded steps, that there has to be time for: the steps as they were, and two fixes
MOST_FIXES = 3  # that are named
MOST_TOLD = 10  # number of runs: a script may make one for each of a thousand tasks


def tell(runs: Sequence[WatchedRun], library: Path, *, written: bool) -> None:
    """Print a line for each run, with its first finding, and how to open the last one if the library was `written`. Of
    many runs the most urgent ones are listed."""
    runs = [training for training in runs if training.is_recorded]
    if not runs:
        return
    trainings = runs if len(runs) <= MOST_TOLD else _worst(runs)
    for watched in trainings:
        _tell_of(watched)
    own = library.resolve() == files.user_library().resolve()
    where = "" if own else f" --library {shlex.quote(str(library))}"
    if more := len(runs) - len(trainings):
        say(f"and {plural(more, 'more run', 'more runs')}" + f": `gradstudio runs{where}`" * written)
    if written:
        say(f"`gradstudio runs show {trainings[-1].id}{where}` has the rest")


def _worst(runs: Sequence[WatchedRun]) -> list[WatchedRun]:
    """Return the runs with the worst findings, and otherwise the latest, in the order in which they began."""
    worst = sorted(reversed(runs), key=_severity, reverse=True)[:MOST_TOLD]
    return [training for training in runs if training in worst]


def _severity(training: WatchedRun) -> int:
    """Return the severity of the worst finding of a run; -1 if there is none."""
    findings = () if training.run is None else training.run.findings.values()
    return max([RANK[each.severity] for each in findings], default=-1)


def _tell_of(training: WatchedRun) -> None:
    """Print the result of one run."""
    assert training.run is not None
    rows = plural(len(training.run.history), "row", "rows")
    say(f"{training.id}: {one_line(training.run.title)}, {rows}, {OUTCOMES[training.run.status][0]}")
    if training.skipped_batches:
        count = plural(training.skipped_batches, "batch", "batches")
        say(f"  {count} not finite, skipped by the script without an update")
    if training.held.spared:
        count = plural(training.held.spared, "batch", "batches")
        say(f"  {count} not finite, skipped by the loss scaler without an update")
    if training.left_out:
        say(f"  {plural(training.left_out, 'update', 'updates')} left out, as the gradient was not finite")
    if training.spikes:
        say(f"  {plural(training.spikes, 'update', 'updates')} left out, as the gradient norm was a spike")
    for finding in ranked_findings(training.run)[:1]:
        say(f"  {finding.severity}: {finding.title}, {finding.when}. {finding.evidence}")
        if finding.remedies and OF_ANOTHER not in training.unknown:  # whose run has the remedy for that one
            say(f"  try: {finding.remedies[0]}")
    if (path := _replayable(training)) is not None:
        command = f"`gradstudio crash fixes {shlex.quote(str(path))}`"
        say(f"  {_told_of_fixes(path, training)}{command} tries fixes from before it on")


def _replayable(training: WatchedRun) -> Path | None:
    """Return the crash file of a run whose steps can be replayed, of any rank; None if there is none."""
    path = training.crash.path
    if path is None or not training.crash.unknown:
        return path
    try:
        others = crash_reading.of_other_ranks(crash_reading.read(path))
    except crash_file.CrashFileError:
        return None
    return next((each.path for each in others if not each.structure.unknown), None)


def _told_of_fixes(path: Path, training: WatchedRun) -> str:
    """Try the fixes if that is quick, and return how many hold, and the best ones."""
    from gradstudio.crash import recorded_training  # which takes long to import, and few runs break
    from gradstudio.crash.crash_fixes import try_fixes

    try:
        crash = crash_reading.read(path)
        step = recent_mean(training.run.history, "step_seconds") if training.run is not None else math.nan
        if not REPLAYS * step * len(crash.structure.steps) <= SECONDS_FOR_FIXES:
            return ""
        with replaying():
            own, *others = [
                recorded_training.load(each, trusted=True) for each in (crash, *crash_reading.of_other_ranks(crash))
            ]
            result = try_fixes(own, recorded_training.device_here(own.structure.device), SECONDS_FOR_FIXES, others)
    except Exception:  # from torch, or there is no time
        return ""
    held = [each.change.name for each in result.trials if each.holds]
    return f"{result.words}: {', '.join(held[:MOST_FIXES])}; " if held else f"{result.words}; "
