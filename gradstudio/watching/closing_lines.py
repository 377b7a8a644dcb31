"""What is said on stderr of the runs of a script once it has ended: where they are, what came of them, how to open
them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from gradstudio.core import files
from gradstudio.core.text import one_line, plural
from gradstudio.session.record.ranked_findings import ranked
from gradstudio.session.words.outcome_words import OUTCOMES
from gradstudio.watching.guard import say
from gradstudio.watching.loss_code import OF_ANOTHER
from gradstudio.watching.watched_run import WatchedRun


def tell(runs: Sequence[WatchedRun], library: Path) -> None:
    """Say a line of each run, with its first finding, and how to open the last one."""
    for found in runs:
        assert found.run is not None
        rows = plural(len(found.run.history), "row", "rows")
        say(f"{found.id}: {one_line(found.run.title)}, {rows}, {OUTCOMES[found.run.status][0]}")
        if found.passed_over:
            say(
                f"  {plural(found.passed_over, 'batch', 'batches')} not finite, skipped by the script without an update"
            )
        for finding in ranked(found.run)[:1]:
            say(f"  {finding.severity}: {finding.title}, {finding.when}. {finding.evidence}")
            if finding.remedies and OF_ANOTHER not in found.unknown:  # whose run says what heals that one
                say(f"  try: {finding.remedies[0]}")
    if runs:
        own = library.resolve() == files.user_library().resolve()
        where = "" if own else f" --library {shlex.quote(str(library))}"
        say(f"`gradstudio runs show {runs[-1].id}{where}` has the rest")
