"""The program of the portable build. Beside `gradstudio` it is the Python of the child processes that the program
starts with `-c CODE`, as sys.executable is this program there."""

from __future__ import annotations

import sys
from multiprocessing import freeze_support

if __name__ == "__main__":
    freeze_support()
    if "-c" in sys.argv[1:3] and sys.argv[1] in ("-P", "-c"):
        place = sys.argv.index("-c")
        code = sys.argv[place + 1]
        sys.argv[:] = ["-c", *sys.argv[place + 2 :]]
        exec(compile(code, "<string>", "exec"))
    else:
        from gradstudio.__main__ import main

        main()
