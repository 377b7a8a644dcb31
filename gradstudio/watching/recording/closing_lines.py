"""What is said on stderr of the runs of a script once it has ended: where they are, what came of them, how to open
them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from gradstudio.core import files
from gradstudio.core.diagnosis.finding import RANK
from gradstudio.core.text import one_line, plural
from gradstudio.session.record.ranked_findings import ranked
from gradstudio.session.words.outcome_words import OUTCOMES
from gradstudio.watching.births.loss_code import OF_ANOTHER
from gradstudio.watching.hearing.guard import say
from gradstudio.watching.recording.watched_run import WatchedRun

MOST_TOLD = 10  # runs: a script may make one for each of a thousand tasks


def tell(runs: Sequence[WatchedRun], library: Path, *, written: bool) -> None:
    """Say a line of each run, with its first finding, and how to open the last one where the library was `written`. Of
    many runs those are told that need somebody most."""
    runs = [found for found in runs if found.is_recorded]
    if not runs:
        return
    told = runs if len(runs) <= MOST_TOLD else _worst(runs)
    for found in told:
        _tell_of(found)
    own = library.resolve() == files.user_library().resolve()
    where = "" if own else f" --library {shlex.quote(str(library))}"
    if more := len(runs) - len(told):
        say(f"and {plural(more, 'more run', 'more runs')}" + f": `gradstudio runs{where}`" * written)
    if written:
        say(f"`gradstudio runs show {told[-1].id}{where}` has the rest")


def _worst(runs: Sequence[WatchedRun]) -> list[WatchedRun]:
    """Return the runs with the worst findings, of others the latest, in the order in which they began."""
    worst = sorted(reversed(runs), key=_severity, reverse=True)[:MOST_TOLD]
    return [found for found in runs if found in worst]


def _severity(found: WatchedRun) -> int:
    """Return how bad the worst finding of a run is; -1 without any."""
    findings = () if found.run is None else found.run.findings.values()
    return max([RANK[each.severity] for each in findings], default=-1)


def _tell_of(found: WatchedRun) -> None:
    """Say what came of one run."""
    assert found.run is not None
    rows = plural(len(found.run.history), "row", "rows")
    say(f"{found.id}: {one_line(found.run.title)}, {rows}, {OUTCOMES[found.run.status][0]}")
    if found.passed_over:
        say(f"  {plural(found.passed_over, 'batch', 'batches')} not finite, skipped by the script without an update")
    if found.spared:
        say(f"  {plural(found.spared, 'batch', 'batches')} not finite, skipped by the loss scaler without an update")
    if found.left_out:
        say(f"  {plural(found.left_out, 'update', 'updates')} left out, as the gradient was not finite")
    if found.spikes:
        say(f"  {plural(found.spikes, 'update', 'updates')} left out, as the gradient norm was a spike")
    for finding in ranked(found.run)[:1]:
        say(f"  {finding.severity}: {finding.title}, {finding.when}. {finding.evidence}")
        if finding.remedies and OF_ANOTHER not in found.unknown:  # whose run says what heals that one
            say(f"  try: {finding.remedies[0]}")
    if found.crash is not None and not found.crash_unknown:
        say(f"  `gradstudio crash fixes {shlex.quote(str(found.crash))}` tries fixes from before it on")
