"""Bugs that people had, and healthy runs that look ill, each a small script of our own after a public report: whether the
watch names the cause that was found, names it first, and offers the cure; what it says of the same script with its cure;
and what the tools beside it say.

Each script has its source, the mechanism, the cure, and what counts as naming it; with --cured it has the cure, and its
last line is "well" or "ill". A third, drawn by a hash of the name, is put aside: it is run with --aside alone, once the
rules no longer change.

    python -m benchmarks reports [--aside] [--only TEXT ...] [--jobs N] [--peers PYTHON] [--results FILE]"""

from __future__ import annotations

import argparse
import importlib.metadata
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.reports.cases import Result, as_json, cases, from_json, judged
from benchmarks.table import Figure

GROUPS = ("NaN or Inf", "no NaN")


def _options(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks reports", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--aside", action="store_true", help="the third that was put aside, and not the others")
    parser.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="scripts whose name holds one of these")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="scripts at a time")
    parser.add_argument("--peers", default="", metavar="PYTHON", help="also run the tools of others, with this Python")
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
    with ThreadPoolExecutor(options.jobs) as pool:
        for result in pool.map(lambda case: judged(case, options.peers), [c for c in asked if c.name not in results]):
            results[result.name] = result
            print(f"{result.name}: {in_short(result)}", file=sys.stderr, flush=True)
            if options.results:
                with options.results.open("a") as file:
                    print(as_json(result), file=file)
    for line in tables([results[case.name] for case in asked], options.peers):
        print(line)
    return 0


def in_short(result: Result) -> str:
    if not result.reproduced:
        return "not as promised: it is not ill without the cure, or not well with it"
    if result.group == "healthy":
        return ", ".join(result.alarms) or "calm"
    said = "first" if result.first else "named" if result.named else "silent" if result.silent else "missed"
    return (
        f"{said}{', cure' if result.heals else ''}{f', alarm with the cure: {result.alarms}' if result.alarms else ''}"
    )


def tables(results: Sequence[Result], peers: str) -> Iterator[str]:
    """Yield the tables in Markdown, and lists of what was missed."""
    yield from _bugs(results, bool(peers))
    yield ""
    yield from _healthy(results)
    yield ""
    counted = [result for result in results if result.cost]
    if counted:
        yield f"CPU time watched / bare, whole processes: median {statistics.median(r.cost for r in counted):.2f}, "
        yield f"largest {max(r.cost for r in counted):.2f}. stdout or exit code changed: {_names(results, 'unchanged', False)}."
    yield f"Not as promised: {_names(results, 'reproduced', False)}."
    yield from _versions(peers)
    yield ""
    yield from _missed(results)


def _share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.0f} %)" if whole else "-"


def _bugs(results: Sequence[Result], peers: bool) -> Iterator[str]:
    more = " anomaly mode | DebugUnderflowOverflow |" if peers else ""
    yield f"| bugs | scripts | named | first | first remedy is the cure | silent |{more}"
    yield f"|---|---:|---:|---:|---:|---:|{'---:|---:|' if peers else ''}"
    for title, groups in (
        (GROUPS[0], GROUPS[:1]),
        (GROUPS[1], GROUPS[1:]),
        ("all", GROUPS),
        ("controls", ("control",)),
    ):
        own = [result for result in results if result.group in groups]
        told = [sum(getattr(result, name) for result in own) for name in ("named", "first", "heals", "silent")]
        told += [sum(bool(getattr(result, name)) for result in own) for name in ("anomaly", "debugger") if peers]
        yield f"| {title} | {len(own)} | " + " | ".join(_share(count, len(own)) for count in told) + " |"


def _healthy(results: Sequence[Result]) -> Iterator[str]:
    yield "| healthy | scripts | called critical | warned of | calm |"
    yield "|---|---:|---:|---:|---:|"
    for title, own in (
        ("bugs with their cure", [result for result in results if result.group != "healthy"]),
        ("healthy, though they look ill", [result for result in results if result.group == "healthy"]),
    ):
        critical = sum(bool(result.alarms) for result in own)
        warned = sum(bool(result.warnings) and not result.alarms for result in own)
        told = (critical, warned, len(own) - critical - warned)
        yield f"| {title} | {len(own)} | " + " | ".join(_share(count, len(own)) for count in told) + " |"


def _names(results: Sequence[Result], field: str, value: bool) -> str:
    return ", ".join(result.name for result in results if getattr(result, field) is value) or "none"


def _versions(peers: str) -> Iterator[str]:
    versions = {name: importlib.metadata.version(name) for name in ("gradstudio", "torch")}
    if peers:
        ask = "import importlib.metadata as m; print(m.version('torch'), m.version('transformers'))"
        theirs = subprocess.run([peers, "-c", ask], capture_output=True, text=True, check=False).stdout.split()
        versions |= dict(zip(("torch of the tools beside", "transformers"), theirs, strict=False))
    yield "Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + "."


def _missed(results: Sequence[Result]) -> Iterator[str]:
    for result in results:
        if result.group in GROUPS and not (result.first and result.heals):
            found = ", ".join(result.findings) or "nothing"
            yield f"- {result.name}: {in_short(result)}; {found}; birth: {result.birth or '-'}; remedy: {result.remedy or '-'}"
    for result in results:
        if result.alarms or result.warnings:
            kind = "healthy" if result.group == "healthy" else "with its cure"
            yield f"- {result.name}, {kind}: critical {result.alarms}, warnings {result.warnings}"
    for result in results:
        if result.peers_alarm:
            yield f"- {result.name}, healthy: {', '.join(result.peers_alarm)}"


def figures() -> Iterator[Figure]:
    """Yield the shares of the open scripts."""
    results = [judged(case) for case in cases() if not case.aside]
    bugs = [result for result in results if result.group in GROUPS]
    yield Figure("bugs named", 100 * sum(r.named for r in bugs) / len(bugs), "%", least=90, note=f"of {len(bugs)}")
    yield Figure("bugs named first", 100 * sum(r.first for r in bugs) / len(bugs), "%", least=80)
    yield Figure("first remedies that are the cure", 100 * sum(r.heals for r in bugs) / len(bugs), "%", least=90)
    yield Figure(
        "critical findings on healthy runs", sum(bool(r.alarms) for r in results), most=0, note=f"of {len(results)}"
    )
