"""What the rules make of faults: named, named first, how soon, with which exit code; and of healthy runs that look ill:
false alarms.

Each case is drawn from declared ranges by its own seed: a healthy run (task, model, depth, width, optimizer, rate,
precision and more), and the same with one fault, with two, or with one that begins in mid-run. Whether a finding is
right follows from what was done and from how the healthy run ends. Seeds 0 to 99 may be looked at while rules change;
those from HELD on were run once.

    python -m benchmarks faults [--quick] [--first SEED] [--cases N] [--only NAME ...] [--heal] [--jobs N] [--minutes M]"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass

from benchmarks.faults import larger_nets, looks_ill, two_faults
from benchmarks.faults.judgement import Result, cases
from benchmarks.faults.tables import faulty, misses, sound
from benchmarks.table import Figure
from gradstudio.session.course.drawn_faults import from_mid_run, one_fault
from gradstudio.session.course.drawn_faults.kinds import Kind

HELD = 9000
CASES = 2  # of each kind
KINDS: tuple[Kind, ...] = (
    *one_fault.KINDS,
    *two_faults.KINDS,
    *from_mid_run.KINDS,
    *larger_nets.KINDS,
    *looks_ill.KINDS,
)
_BY_NAME = {(kind.group, kind.name): kind for kind in KINDS}
assert len(_BY_NAME) == len(KINDS)


@dataclass(frozen=True)
class Asked:
    """What is to be run."""

    kinds: tuple[Kind, ...] = KINDS
    first: int = HELD  # seed
    count: int = CASES  # of each kind
    heal: bool = False
    jobs: int = 0  # processes; 0: as many as cores
    minutes: float = math.inf  # after which no other case is begun


DEFAULT = Asked()


def _alone() -> None:
    """Let a process compute with one thread: there are as many processes as cores."""
    os.environ["GRADSTUDIO_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)


def _cases(name: tuple[str, str], first: int, count: int, heal: bool, until: float) -> list[Result]:
    return list(cases(_BY_NAME[name], first, count, heal=heal, until=until))


def run(asked: Asked) -> Iterator[Result]:
    """Yield the cases as they come, and tell on stderr how far it is. The groups take turns, so that each has cases
    where the time ends first."""
    until = time.time() + 60 * asked.minutes
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        asked.jobs or len(os.sched_getaffinity(0)), mp_context=spawned, initializer=_alone
    ) as pool:
        of_group: Counter[str] = Counter()
        turns: dict[Kind, float] = {}
        for kind in asked.kinds:
            of_group[kind.group] += 1
            turns[kind] = of_group[kind.group]
        turns = {kind: turn / of_group[kind.group] for kind, turn in turns.items()}
        waiting = {
            pool.submit(_cases, (kind.group, kind.name), asked.first, asked.count, asked.heal, until): kind
            for kind in sorted(turns, key=turns.__getitem__)
        }
        for number, each in enumerate(as_completed(waiting), 1):
            results = each.result()
            wrong = [*misses(results)]
            print(
                f"# {number} of {len(waiting)}: {waiting[each].group}, {waiting[each].name}",
                *wrong,
                sep="\n",
                file=sys.stderr,
            )
            yield from results


def figures(asked: Asked = DEFAULT) -> Iterator[Figure]:
    """Yield the figures of all cases, and print the tables and the misses."""
    began = time.monotonic()
    order = {(kind.group, kind.name): place for place, kind in enumerate(asked.kinds)}
    results = sorted(run(asked), key=lambda result: (order[result.group, result.name], result.seed))
    harmed = [result for result in results if result.counts and not result.healthy]
    looks = [result for result in results if result.counts and result.healthy]
    among = max(len(harmed), 1)
    yield Figure("faults named", sum(result.named for result in harmed) / among, note=f"of {len(harmed)}", least=0.98)
    yield Figure("earliest cause first", sum(result.first_right for result in harmed) / among, least=0.9)
    yield Figure("exit codes as due", sum(result.exit_code_due for result in harmed) / among)
    if asked.heal:
        yield Figure("healed by the first remedy", sum(result.healed[:1] == [True] for result in harmed) / among)
        yield Figure("healed by one of the first two", sum(any(result.healed) for result in harmed) / among)
    twins = sum(not result.healthy for result in results)
    yield Figure(
        "healthy runs called critical", sum(result.falsely_critical for result in results), most=0,
        note=f"of {len(looks)} that look ill, and of the baselines of {twins} faulty ones",
    )  # fmt: skip
    yield Figure("took", (time.monotonic() - began) / 60, "min", most=10)
    for lines in (faulty(results, asked.kinds), sound(results, asked.kinds), misses(results)):
        print()
        for line in lines:
            print(line, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Take the options, and print the tables."""
    from benchmarks.table import machine, markdown

    parser = argparse.ArgumentParser(prog="python -m benchmarks faults")
    parser.add_argument("--first", type=int, default=HELD, metavar="SEED", help="the first seed")
    parser.add_argument("--cases", type=int, default=CASES, metavar="N", help="cases of each kind")
    parser.add_argument("--quick", action="store_true", help="one case of each kind")
    parser.add_argument("--only", nargs="*", default=(), metavar="NAME", help="parts of names of kinds or groups")
    parser.add_argument("--heal", action="store_true", help="try the first two remedies of each first cause")
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="processes; as many as cores")
    parser.add_argument("--minutes", type=float, default=math.inf, metavar="M", help="begin no case after that")
    asked = parser.parse_args(arguments)
    kinds = [
        kind for kind in KINDS if not asked.only or any(part in f"{kind.group}: {kind.name}" for part in asked.only)
    ]
    if not kinds:
        parser.error(
            f"no kind has {' or '.join(asked.only)} in its name; there are: {', '.join(k.name for k in KINDS)}"
        )
    if asked.cases < 1 or asked.first < 0 or asked.jobs < 0:
        parser.error("--cases is at least 1, --first and --jobs at least 0")
    count = 1 if asked.quick else asked.cases
    wanted = Asked(tuple(kinds), asked.first, count, asked.heal, asked.jobs, asked.minutes)
    print(machine(), end="\n\n")
    for line in markdown(figures(wanted)):
        print(line, flush=True)
    return 0
