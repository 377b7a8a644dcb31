"""Windows that are opened, train and are closed, one after the other: python tests/torture/cycles.py --cycles 100

It fails where an exception was not taken, Qt warned, or a window left something behind in the process."""

from __future__ import annotations

import argparse
import faulthandler
import shutil
import sys
import time
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_TESTS), str(_TESTS.parent)]  # as pytest has them

from torture import stage  # noqa: E402

FIRST = 5  # cycles before the first census: each shows other pages
SHARES = 3
STEPS = 30  # that a run makes at least before its window is closed


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--cycles", type=int, default=100)
    asked.add_argument("--first", type=int, default=FIRST, help="cycles before the first census")
    asked.add_argument("--shares", type=int, default=SHARES, help="cycles that open all bundled presets together")
    options = asked.parse_args()
    stage.bound_memory()
    home = stage.make_home()
    try:
        return play(options.cycles, options.first, options.shares)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def play(cycles: int, before: int, shares: int) -> int:
    """Open, train and close so many windows, and say what those that come after the first few left; return 1 where that
    is something."""
    from torture import census
    from torture.watch import Watch

    from gradstudio.core import presets
    from gradstudio.gui import app

    app.application()
    watch = Watch()
    watch.begin()
    slowest = 0.0
    for path in presets.available():  # of which each is kept once it was read
        presets.load(str(path))
    try:
        for number in range(before):
            cycle(number, shares)
        first = census.take()
        for number in range(before, cycles):
            slowest = max(slowest, cycle(number, shares))
        last = stage.after_a_while(census.take, lambda now: not census.left(first, now))
    finally:
        watch.end()
    grown = census.left(first, last) + census.heavier(first, last)
    print(f"{cycles} cycles; the slowest closing took {slowest:.2f} s")
    print(f"after {before}: {first.told()}\nat the end: {last.told()}\nfaults: {sum(watch.counts.values())}")
    for line in grown:
        print(f"left: {line}")
    if watch.faults:
        print(watch.told())
    return 1 if grown or watch.faults else 0


def cycle(number: int, shares: int) -> float:
    """Open a window, train in it, use two pages of it and close it, each time at another moment; return the seconds that
    closing took."""
    from torture import census

    from gradstudio.gui.shell.pages import PAGES

    faulthandler.dump_traceback_later(stage.PATIENCE, exit=True)
    window = stage.open_window()
    pages = list(PAGES)
    for page in (number, number + 2):
        window.columns.show_page(pages[page % len(pages)])
    stage.open_presets(window, number % shares, shares)
    window.controls.run_or_pause()
    stage.wait(lambda: len(window.simulator.run.history) >= STEPS + number % 7, "the run trains")
    stage.export_report(window)
    if number % 3 == 1:
        window.controls.rewind(STEPS // 2)
        window.simulator.play()
    if number % 3 == 2:
        window.controls.start_twins("optimizer.lr", 0.05)
        stage.wait(lambda: len(window.simulator.run.history) >= STEPS, "the twins train")
    began = time.monotonic()
    window.close()
    seconds = time.monotonic() - began
    window.deleteLater()
    census.settle()  # nobody is in an event loop, where it would be deleted
    faulthandler.cancel_dump_traceback_later()
    return seconds


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.exit(code)
