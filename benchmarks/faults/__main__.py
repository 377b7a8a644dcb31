from __future__ import annotations

import sys

from benchmarks.faults import main

raise SystemExit(main(sys.argv[1:]))
