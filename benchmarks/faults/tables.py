"""The tables of the benchmark of faults, and its list of misses, in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.faults.judgement import Result, changed
from benchmarks.faults.repeat_line import repeat_line
from gradstudio.session.course.drawn_faults.kinds import Kind


def faulty(results: Sequence[Result], kinds: Sequence[Kind]) -> Iterator[str]:
    """Yield a line for each kind of fault, and one for each group."""
    yield (
        "| fault | cases | first right | named | missed | wrong exit code | baseline falsely critical | steps, median | "
        "healed by the first remedy, by one of two | "
        "named first, in all |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---|"
    groups = [group for group in dict.fromkeys(kind.group for kind in kinds if not kind.healthy)]
    for group in groups:
        within = [result for result in results if result.group == group and not result.healthy]
        yield _fault_line(f"**{group}**", within, named_first=False)
        for kind in kinds:
            if kind.group == group and not kind.healthy:
                yield _fault_line(kind.name, [result for result in within if result.name == kind.name])


def _fault_line(name: str, drawn: Sequence[Result], *, named_first: bool = True) -> str:
    own = [result for result in drawn if result.counts]
    named = sum(result.named for result in own)
    first = Counter(_first_cause(result) for result in own)
    steps = [
        min(finding.first_step for finding in result.outcome.findings) for result in own if result.outcome.findings
    ]
    return (
        f"| {name} | {len(own)} | {sum(result.first_right for result in own)} | {named} | {len(own) - named} "
        f"| {sum(not result.exit_code_due for result in own)} | {sum(result.falsely_critical for result in drawn)} "
        f"| {f'{np.median(steps):.0f}' if steps and named_first else ''} | {_healed(own)} "
        f"| {', '.join(f'{rule} {count}' for rule, count in first.most_common()) if named_first else ''} |"
    )


def _healed(own: Sequence[Result]) -> str:
    """Return how many the first remedy heals and one of two, of those that were tried; "" where none was."""
    tried = [result.healed for result in own if result.healed]
    return f"{sum(healed[0] for healed in tried)}, {sum(map(any, tried))} of {len(tried)}" if tried else ""


def _first_cause(result: Result) -> str:
    return result.outcome.findings[0].rule if result.outcome.findings else "nothing"


def sound(results: Sequence[Result], kinds: Sequence[Kind]) -> Iterator[str]:
    """Yield a line for each kind of healthy run."""
    yield "| healthy | cases | falsely critical | warned | what was found |"
    yield "|---|---:|---:|---:|---|"
    for kind in kinds:
        own = [result for result in results if result.name == kind.name and kind.healthy and result.counts]
        if own:
            found = Counter(finding.rule for result in own for finding in result.outcome.findings)
            warned = sum(bool(result.outcome.findings) and not result.outcome.critical for result in own)
            yield (
                f"| {kind.name} | {len(own)} | {sum(result.falsely_critical for result in own)} | {warned} "
                f"| {', '.join(f'{rule} {count}' for rule, count in found.most_common())} |"
            )


def misses(results: Sequence[Result]) -> Iterator[str]:
    """Yield what was wrong in each case that was not right, and the command that repeats it."""
    for result in results:
        if result.right:
            continue
        parts = () if result.falsely_critical and not result.healthy else result.drawn.parts
        shown = result.outcome if parts or result.healthy else result.twin
        found = ", ".join(
            f"{finding.rule} ({finding.severity}, step {finding.first_step})" for finding in shown.findings
        )
        yield f"- {result.group}, {result.name}, seed {result.seed}: {_why(result)}."
        yield (
            f"  Accuracy {result.twin.accuracy:.2f} without, {result.outcome.accuracy:.2f} with, exit code "
            f"{shown.exit_code}. Found: {found or 'nothing'}."
        )
        yield f"  `{repeat_line(*changed(result.drawn, parts), result.seed)}`"


def _why(result: Result) -> str:
    if result.falsely_critical:
        return "a healthy run is called critical" if result.healthy else "its baseline is called critical"
    if result.healthy:
        return f"a healthy run ends with exit code {result.outcome.exit_code}"
    said = []
    if not result.named:
        said.append("not named")
    if not result.first_right:
        said.append(f"first is {_first_cause(result)}")
    if not result.exit_code_due:
        said.append(f"exit code {result.outcome.exit_code}")
    return ", ".join(said)
