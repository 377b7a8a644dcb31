"""The run library: every run, as it trains, in one SQLite file, so that nothing is lost when the program or the power
goes. interrupted_runs.py tells what happens after kill -9, salvage.py after damage; checksums.py finds what a disk has
changed, and conforming.py what somebody has.
May use core and session/record.
"""
