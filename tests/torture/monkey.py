"""A seeded monkey on the real window: python tests/torture/monkey.py --seed 1 --actions 2000

It clicks, types, drags and gives commands at random, also inside menus and dialogs, while the run trains. Seed and number
of an action decide what it does; what it meets depends on how far the training is. It fails where an exception was not
taken, Qt warned, or something is left behind, and then prints the last 50 actions."""

from __future__ import annotations

import argparse
import faulthandler
import shutil
import subprocess
import sys
import time
import traceback
from collections import deque
from pathlib import Path
from random import Random

_TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_TESTS), str(_TESTS.parent)]  # as pytest has them

from torture import stage  # noqa: E402

FIRST = 100  # actions before the first census
SHOWN = 50  # actions that are printed with a finding
STUCK = 120  # seconds in one action, after which the stacks of all threads are printed
DEEPEST = 3  # dialogs and menus within one another in which it goes on; deeper it only closes
TOLD_EVERY = 1000  # actions, after which a line says how far it is
TOLD = 3  # exit code of the acting process where it has printed what it found
NOTED = "actions.txt"
TRIES = 6  # kinds of act that are tried until one has something to act on
PAUSES = (0, 0, 1, 2, 5, 10, 30)  # ms between two actions


class Monkey:
    """Acts on a window, action after action, from a chain of timers: so it acts within nested event loops too."""

    def __init__(self, window, watch, folder: Path, seed: int) -> None:
        from PySide6.QtCore import QEventLoop

        self.window, self.watch, self.folder, self.seed = window, watch, folder, seed
        self.files = stage.fill(folder)
        self.done = 0  # actions
        self.last: deque[str] = deque(maxlen=SHOWN)
        self._noted = (folder.parent / NOTED).open("w")  # for after a crash
        self._until = 0
        self._depth = 0
        self._due: dict[int, int] = {}  # windows over the main one, by id, and the action at which each is closed
        self._loop, self._stay = QEventLoop(), stage.refusal()
        watch.now = lambda: self.last[-1] if self.last else "nothing yet"

    def run(self, actions: int) -> None:
        """Do so many actions more; return when the last is done and every dialog is closed."""
        self._until = self.done + actions
        self._next(0)
        self.watch.time_turns(True)
        self.window.installEventFilter(self._stay)
        self._loop.exec()
        self.window.removeEventFilter(self._stay)
        self.watch.time_turns(False)

    def _next(self, pause: int) -> None:
        from PySide6.QtCore import QTimer

        QTimer.singleShot(pause, self._act)

    def _act(self) -> None:
        from torture import census

        started = time.thread_time()
        if self.done >= self._until:
            self._end()
            return
        random = Random(f"{self.seed} {self.done}")
        self.done += 1
        if self.done % TOLD_EVERY == 0:
            print(
                f"{self.done} actions, {len(self.watch.counts)} faults, {census.resident() / 1e6:,.0f} MB", flush=True
            )
        self._next(random.choice(PAUSES))  # first, for the act may wait in a loop of its own until a dialog is closed
        faulthandler.dump_traceback_later(STUCK, exit=True)
        self._depth += 1
        try:
            name, do = self._choose(random) or ("nothing to do", lambda: None)
            self.last.append(f"{self.done} {name}")
            print(self.last[-1], file=self._noted, flush=True)
            self.watch.doing(name)
            self.watch.exclude(time.thread_time() - started)
            do()
        except Exception as fault:  # were it to leave this slot, PySide would call no other until the act is over
            if not _its_target_is_gone(fault):
                self.watch.caught(fault)
        finally:
            self._depth -= 1

    def _choose(self, random: Random):
        from torture import acts

        hand = acts.Hand(self.window, random, self.folder, self.files)
        self._keep_inside()
        if self._depth >= DEEPEST or self._overdue(random):
            return acts.close_something(hand)
        several = random.choices(list(acts.ACTS), list(acts.ACTS.values()), k=TRIES)
        return next((found for act in several if (found := act(hand))), None)

    def _overdue(self, random: Random) -> bool:
        """Whether something that lies over the window was open long enough."""
        from PySide6.QtWidgets import QApplication

        over = [each for each in QApplication.topLevelWidgets() if each.isVisible() and each is not self.window]
        here = {id(each) for each in over}
        self._due = {key: due for key, due in self._due.items() if key in here}
        for key in here:
            self._due.setdefault(key, self.done + random.randint(2, 25))
        return any(due <= self.done for due in self._due.values())

    def _keep_inside(self) -> None:
        """Keep file dialogs in the folder."""
        from PySide6.QtWidgets import QApplication, QFileDialog

        for each in QApplication.topLevelWidgets():
            if isinstance(each, QFileDialog) and each.isVisible() and not self._holds(each.directory().absolutePath()):
                each.setDirectory(str(self.folder))

    def _holds(self, path: str) -> bool:
        return Path(path).is_relative_to(self.folder)

    def _end(self) -> None:
        """Leave the loop once no action waits in a dialog."""
        faulthandler.cancel_dump_traceback_later()
        self.watch.doing("closing what is open")
        stage.close_dialogs(self.window)
        if self._depth:
            self._next(5)
        else:
            self._loop.quit()


def _its_target_is_gone(fault: Exception) -> bool:
    """Whether the first half of an act, such as a press, removed the widget that the other half would be sent to."""
    frame = traceback.extract_tb(fault.__traceback__)[-1]
    return Path(frame.filename).parent == Path(__file__).parent and "already deleted" in str(fault)


def main() -> int:
    """Let the monkey act in a process of its own, so that a crash is a finding too."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--actions", type=int, default=2000)
    asked.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    options = asked.parse_args()
    if options.home:
        stage.bound_memory()
        stage.enter(options.home)
        return TOLD if play(options.home, options.seed, options.actions) else 0
    home = stage.make_home()
    try:
        words = ["--seed", str(options.seed), "--actions", str(options.actions), "--home", str(home)]
        code = subprocess.run(
            [sys.executable, "-X", "faulthandler", str(Path(__file__).resolve()), *words], check=False
        ).returncode
        if code not in (0, TOLD):  # it crashed, or was stuck
            print(f"FOUND with --seed {options.seed} --actions {options.actions}: ended by {code}; the last actions:")
            print(*(home / NOTED).read_text().splitlines()[-SHOWN:], sep="\n  ")
        return 1 if code else 0
    finally:
        shutil.rmtree(home, ignore_errors=True)


def play(home: Path, seed: int, actions: int) -> int:
    """Open the window, let the monkey act on it and say what came of it; return 1 where it found something."""
    from PySide6.QtGui import QDesktopServices
    from torture.watch import Watch, silence

    from gradstudio.gui import app

    app.application()
    silence(QDesktopServices, "openUrl", True)
    watch = Watch()
    watch.begin()
    try:
        return _watched(watch, home, seed, actions)
    finally:
        watch.end()


def _watched(watch, home: Path, seed: int, actions: int) -> int:
    from torture import census

    window = stage.open_window()
    monkey = Monkey(window, watch, home / "files", seed)
    stage.tour(window)
    monkey.run(min(FIRST, actions))
    stage.rest(window)
    first = census.take(window)
    began = time.monotonic()
    monkey.run(actions - monkey.done)
    seconds = time.monotonic() - began
    stage.rest(window)
    last = stage.after_a_while(lambda: census.take(window), lambda now: not census.left(first, now))
    grown = census.left(first, last) + census.heavier(first, last)
    window.close()
    print(f"seed {seed}, {monkey.done} actions, {monkey.done / max(seconds, 0.1):.0f} a second")
    print(f"after the first: {first.told()}\nat the end: {last.told()}")
    print(f"faults: {sum(watch.counts.values())}")
    stalls = sorted(watch.stalls, key=lambda stall: -stall.seconds)
    print(f"stalls over 100 ms: {len(stalls)} in {watch.turns} turns, the worst {1000 * watch.worst:.0f} ms")
    for stall in stalls[:10]:
        print(f"    {1000 * stall.seconds:.0f} ms: {'; '.join(stall.acts)}")
    if not (watch.faults or grown):
        return 0
    print(f"FOUND with --seed {seed} --actions {actions}")
    for line in grown:
        print(f"left: {line}")
    print(watch.told())
    print(f"the last {len(monkey.last)} actions:", *monkey.last, sep="\n  ")
    return 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.exit(code)
