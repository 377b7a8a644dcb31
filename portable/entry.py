"""The program of the portable build. Beside `gradstudio` it is the Python of the child processes that the program
starts with `-P -c CODE`, as sys.executable is this program there."""

from __future__ import annotations

import sys
from multiprocessing import freeze_support

if __name__ == "__main__":
    freeze_support()
    if sys.argv[1:3] == ["-P", "-c"]:
        code = sys.argv[3]
        sys.argv[:] = ["-c", *sys.argv[4:]]
        exec(compile(code, "<string>", "exec"))
    else:
        from gradstudio.__main__ import main

        main()
