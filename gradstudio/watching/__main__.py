"""`gradstudio watch` starts the script here, in a Python of its own, so that it finds what it would find without us."""

import sys

from gradstudio.watching.launcher import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
