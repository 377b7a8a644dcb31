"""`python -m gradstudio` is `gradstudio`. Signals are heard before the commands are loaded, which takes a moment, and
until the very end."""

import os
import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    # `python -m` looks first into the current folder, which may be a stranger's with a torch.py in it: only where the
    # program itself lies in there.
    _own = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    if os.path.realpath(sys.path[0]) != _own:
        del sys.path[0]

import contextlib
from typing import NoReturn

from gradstudio.session.running import interrupts


def main() -> NoReturn:
    """Run the program. Once a signal was heard, a thread may still be in torch: then Python's own way out would free
    what that uses. After a studio file it would wait for the file's threads, and run what it has left for the end."""
    _open_closed_streams()
    code = interrupts.EXIT_CODE
    with interrupts.listening() as signals:
        try:
            from gradstudio.cli import main as carry_out

            carry_out()
        except SystemExit as end:
            code = end.code
        except KeyboardInterrupt:
            pass
        if signals.interrupted or signals.hasty:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            if "multiprocessing" in sys.modules:  # Python's own way out would end what a file has left of these
                for child in sys.modules["multiprocessing"].active_children():
                    child.kill()  # one that was forked off hears signals as this program does
            os._exit(code if isinstance(code, int) else int(signals.interrupted or code is not None))
    sys.exit(code)


def _open_closed_streams() -> None:
    """Open standard streams that were closed before the program started, as under some daemons, on the null device. The
    next opened files would take their descriptors: output of a library would go into the run library."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # which takes the lowest free descriptor
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


if __name__ == "__main__":
    main()
