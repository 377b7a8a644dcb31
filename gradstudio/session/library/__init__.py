"""The run library: every run, as it trains, in one SQLite file, so that nothing is lost in a crash or a power cut.
interrupted_runs.py handles runs after kill -9, salvage.py damage; checksums.py detects changes by the disk, and
field_types.py invalid values in an edited file.
May use core and session/record."""
