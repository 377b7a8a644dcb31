"""Bugs that people had, and healthy runs that look ill, each a small script of our own after a public report: whether the
watch names the cause that was found, names it first, and offers the cure; what it says of the same script with its cure;
and what the tools beside it say.

Each script has its source, the mechanism, the cure, and what counts as naming it; with --cured it has the cure, and its
last line is "well" or "ill". A third, drawn by a hash of the name, is put aside: it is run with --aside alone, once the
rules no longer change.

    python -m benchmarks reports [--aside] [--only TEXT ...] [--quick] [--jobs N] [--peers PYTHON] [--results FILE]"""

from __future__ import annotations

import argparse
import importlib.metadata
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.reports import beside
from benchmarks.reports.cases import Case, Result, as_json, cases, from_json, judged

GROUPS = ("NaN or Inf", "no NaN")


def _options(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks reports", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--aside", action="store_true", help="the third that was put aside, and not the others")
    parser.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="scripts whose name holds one of these")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="scripts at a time")
    parser.add_argument("--peers", default="", metavar="PYTHON", help="also run the tools of others, with this Python")
    parser.add_argument(
        "--quick", action="store_true", help="without the runs with the cure, of which the costs are taken"
    )
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="keep results here; those that it has are not run again"
    )
    return parser.parse_args(given)


def main(given: Sequence[str]) -> int:
    options = _options(given)
    kept = options.results.read_text().splitlines() if options.results and options.results.exists() else []
    results = {result.name: result for result in map(from_json, kept)}
    asked = [case for case in cases() if case.aside == options.aside]
    asked = [case for case in asked if not options.only or any(text in case.name for text in options.only)]
    wanted = [case for case in asked if _is_due(results.get(case.name), quick=options.quick)]
    with ThreadPoolExecutor(options.jobs) as pool:
        for result in pool.map(lambda case: judged(case, results.get(case.name), quick=options.quick), wanted):
            results[result.name] = result
            print(f"{result.name}: {in_short(result)}", file=sys.stderr, flush=True)
            if options.results:
                with options.results.open("a") as file:
                    print(as_json(result), file=file)
    own = [results[case.name] for case in asked]
    for line in [*tables(own), "", *(_beside(own, asked, options.peers) if options.peers else ()), "", *_missed(own)]:
        print(line)
    return 0


def _is_due(result: Result | None, *, quick: bool) -> bool:
    return not result or not (quick or result.healthy_run)


def in_short(result: Result) -> str:
    if not result.reproduced:
        return "not as promised: it is not ill without the cure, or not well with it"
    if result.group == "healthy":
        return ", ".join(result.alarms) or "calm"
    said = "first" if result.first else "named" if result.named else "silent" if result.silent else "missed"
    return (
        f"{said}{', cure' if result.heals else ''}{f', alarm with the cure: {result.alarms}' if result.alarms else ''}"
    )


def tables(results: Sequence[Result]) -> Iterator[str]:
    """Yield the tables in Markdown."""
    yield from _bugs(results)
    yield ""
    yield from _healthy(results)
    yield ""
    counted = [result for result in results if result.cost]
    if counted:
        yield f"CPU time watched / bare, whole processes: median {statistics.median(r.cost for r in counted):.2f}, "
        yield f"largest {max(r.cost for r in counted):.2f}. stdout or exit code changed: {_names(results, 'unchanged', False)}."
    yield f"Not as promised: {_names(results, 'reproduced', False)}."


def _share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.0f} %)" if whole else "-"


def _bugs(results: Sequence[Result]) -> Iterator[str]:
    yield "| bugs | scripts | named | first | first remedy is the cure | silent |"
    yield "|---|---:|---:|---:|---:|---:|"
    for title, groups in (
        (GROUPS[0], GROUPS[:1]),
        (GROUPS[1], GROUPS[1:]),
        ("all", GROUPS),
        ("controls", ("control",)),
    ):
        own = [result for result in results if result.group in groups]
        told = [sum(getattr(result, name) for result in own) for name in ("named", "first", "heals", "silent")]
        yield f"| {title} | {len(own)} | " + " | ".join(_share(count, len(own)) for count in told) + " |"


def _healthy(results: Sequence[Result]) -> Iterator[str]:
    ran = [result for result in results if result.healthy_run]
    yield "| healthy | scripts | called critical | warned of | calm |"
    yield "|---|---:|---:|---:|---:|"
    for title, own in (
        ("bugs with their cure", [result for result in ran if result.group != "healthy"]),
        ("healthy, though they look ill", [result for result in ran if result.group == "healthy"]),
    ):
        critical = sum(bool(result.alarms) for result in own)
        warned = sum(bool(result.warnings) and not result.alarms for result in own)
        told = (critical, warned, len(own) - critical - warned)
        yield f"| {title} | {len(own)} | " + " | ".join(_share(count, len(own)) for count in told) + " |"


def _names(results: Sequence[Result], field: str, value: bool) -> str:
    return ", ".join(result.name for result in results if getattr(result, field) is value) or "none"


def _beside(results: Sequence[Result], cases: Sequence[Case], python: str) -> Iterator[str]:
    """Yield how often each tool names the first NaN or Inf, and what it stops healthy scripts for."""
    cases = [case for case in cases if case.group in (GROUPS[0], "healthy")]
    told = beside.told(cases, python)
    own = [result for result in results if result.group == GROUPS[0]]
    yield f"| of the {len(own)} bugs with a NaN or Inf | named |"
    yield "|---|---:|"
    yield f"| GradStudio | {_share(sum(result.named for result in own), len(own))} |"
    for tool, title in beside.TOOLS.items():
        yield f"| {title} | {_share(sum(told[tool][result.name][0] for result in own), len(own))} |"
    yield ""
    for tool, title in beside.TOOLS.items():
        better = [result.name for result in own if told[tool][result.name][0] and not result.named]
        found = [
            f"{case.name} ({told[tool][case.name][1]})"
            for case in cases
            if "calm" in case.want and told[tool][case.name][1]
        ]
        yield f"- {title} alone names: {', '.join(better) or 'none'}; stops healthy scripts: {', '.join(found) or 'none'}"
    ask = (
        "import importlib.metadata as m; print('torch', m.version('torch'), 'transformers', m.version('transformers'))"
    )
    theirs = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    yield f"- GradStudio {importlib.metadata.version('gradstudio')}, torch {importlib.metadata.version('torch')}; beside it {theirs}"


def _missed(results: Sequence[Result]) -> Iterator[str]:
    for result in results:
        if result.group in GROUPS and not (result.first and result.heals):
            found = ", ".join(result.findings) or "nothing"
            yield f"- {result.name}: {in_short(result)}; {found}; birth: {result.birth or '-'}; remedy: {result.remedy or '-'}"
    for result in results:
        if result.alarms or result.warnings:
            kind = "healthy" if result.group == "healthy" else "with its cure"
            yield f"- {result.name}, {kind}: critical {result.alarms}, warnings {result.warnings}"
