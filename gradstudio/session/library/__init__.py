"""The run library: every run, as it goes, in one SQLite file. What was measured is not lost when the program or the power goes."""
