"""python -m benchmarks [step watch window worker stalls drawing startup memory rewind ranks map faults]: measure, and print a
table in Markdown. On an otherwise quiet machine.

map and faults take some minutes, and come only where they are asked for. Alone faults has options: python -m benchmarks faults -h.
python -m benchmarks reports is another one, of scripts made after public reports, with options and tables of its own."""

from __future__ import annotations

import importlib
import sys

from benchmarks.table import machine, markdown

PARTS = (
    "step",
    "watch",
    "window",
    "worker",
    "stalls",
    "drawing",
    "startup",
    "memory",
    "rewind",
    "ranks",
    "map",
    "faults",
)


def main(asked: list[str]) -> int:
    if asked[:1] == ["faults"] and len(asked) > 1:
        from benchmarks import faults

        return faults.main(asked[1:])
    if asked[:1] == ["reports"]:
        from benchmarks import reports

        return reports.main(asked[1:])
    unknown = [part for part in asked if part not in PARTS]
    if unknown:
        print(f"no benchmark {unknown[0]}; there are: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    print(machine(), end="\n\n")
    figures = (
        figure for part in asked or PARTS[:-2] for figure in importlib.import_module(f"benchmarks.{part}").figures()
    )
    for line in markdown(figures):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
