"""The longer commands of `gradstudio`, one file for each; exit codes are in exit_codes.py. Slow imports are made by the
command that needs them.
May use session, program, crash and core; never gui or torch."""
