"""The run library: every run, as it trains, in one SQLite file, so that nothing is lost when the program or the power
goes. interrupted_runs.py tells what happens after kill -9, salvage.py after damage.
May use session/record only.
"""
