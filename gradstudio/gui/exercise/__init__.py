"""Exercises in the window: exercise_dialog.py loads the runs of one and takes the answers, exercise_files.py asks for
the worksheet. May use core, session, gui/services, gui/widgets and gui/theme.py."""
